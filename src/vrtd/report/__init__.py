"""One page of everything: the answer or the verdicts first, then figures, data and settings."""

from vrtd.report.evaluation import Evaluation, EvaluationInterrupted, evaluate
from vrtd.report.reproduction import QUICK_RUNS, Reproduction, reproduce

__all__ = [
    "QUICK_RUNS",
    "Evaluation",
    "EvaluationInterrupted",
    "Reproduction",
    "evaluate",
    "reproduce",
]
