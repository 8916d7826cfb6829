"""Policy evaluation from logs: the estimator `Evaluator`, and `evaluate`, which fits one and writes a report."""

from vrtd.estimator.diagnostics import Diagnostics as Diagnostics
from vrtd.estimator.differences import difference as difference
from vrtd.estimator.estimates import Interval as Interval
from vrtd.estimator.estimates import Intervals as Intervals
from vrtd.estimator.evaluation import evaluate as evaluate
from vrtd.estimator.evaluation_result import Evaluation as Evaluation
from vrtd.estimator.evaluation_result import EvaluationInterrupted as EvaluationInterrupted
from vrtd.estimator.evaluation_result import ReportError as ReportError
from vrtd.estimator.evaluator import Evaluator as Evaluator
from vrtd.estimator.sums import Sums as Sums
from vrtd.estimator.sums import accumulate as accumulate
