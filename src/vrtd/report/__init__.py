"""One page of everything: verdicts, figures, data."""

from vrtd.report.reproduction import QUICK_RUNS, Reproduction, reproduce

__all__ = ["QUICK_RUNS", "Reproduction", "reproduce"]
