"""Sweeps: an algorithm with every combination of settings on every problem, as one table."""

from vrtd.sweeps.execution import sweep as sweep
from vrtd.sweeps.sweep_result import BestSetting as BestSetting
from vrtd.sweeps.sweep_result import SweepResult as SweepResult
from vrtd.sweeps.sweep_result import Timing as Timing
