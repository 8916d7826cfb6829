"""One page of everything: the answer or the verdicts first, then figures, data and settings."""

from vrtd.report.comparison import QUICK_PROBLEMS, QUICK_SIZE, Comparison, compare
from vrtd.report.evaluation import Evaluation, EvaluationInterrupted, evaluate
from vrtd.report.reproduction import QUICK_RUNS, Reproduction, reproduce

__all__ = [
    "QUICK_PROBLEMS",
    "QUICK_RUNS",
    "QUICK_SIZE",
    "Comparison",
    "Evaluation",
    "EvaluationInterrupted",
    "Reproduction",
    "compare",
    "evaluate",
    "reproduce",
]
