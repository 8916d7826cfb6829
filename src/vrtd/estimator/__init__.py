"""The estimator `Evaluator` and the verb `evaluate`, which fits one and writes a report."""

from vrtd.estimator.diagnostics import Diagnostics
from vrtd.estimator.evaluation import Evaluation, EvaluationInterrupted, evaluate
from vrtd.estimator.evaluator import Evaluator
from vrtd.estimator.spread import Intervals

__all__ = ["Diagnostics", "Evaluation", "EvaluationInterrupted", "Evaluator", "Intervals", "evaluate"]
