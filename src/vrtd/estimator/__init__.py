"""The estimator: fit, partial_fit, predict."""

from vrtd.estimator.diagnostics import Diagnostics
from vrtd.estimator.evaluator import Evaluator
from vrtd.estimator.spread import Intervals

__all__ = ["Diagnostics", "Evaluator", "Intervals"]
