"""What is known of the methods: constants, bounds, exact moments and curves, and the advice that follows from them."""

from vrtd.theory.bounds import td_iid_bound, td_markov_bound, vrtd_iid_bound, vrtd_markov_bound
from vrtd.theory.complexity import (
    Complexity,
    td_iid_complexity,
    td_markov_complexity,
    vrtd_iid_complexity,
    vrtd_markov_complexity,
)
from vrtd.theory.constants import Assumptions, check_assumptions, dobrushin, instance_constants, lambda_A
from vrtd.theory.curves import exact_curve, td_iid_moments, vrtd_iid_moments
from vrtd.theory.estimation import AutocorrelationTime, autocorrelation_time
from vrtd.theory.explained import value_explained
from vrtd.theory.lemmas import (
    Inequality,
    batch_bias_inequality,
    epoch_inequality_iid,
    epoch_inequality_markov,
    mixing_inequalities,
    pseudo_gradient_inequality,
    squared_pseudo_gradient_inequality,
    transition_inequalities,
)
from vrtd.theory.limits import approximation_limit, instance_optimal, stability_limit, stationary_second_moment
from vrtd.theory.moments import Moments
from vrtd.theory.phase import PhaseDiagram, phase_diagram
from vrtd.theory.planner import plan
from vrtd.theory.plans import Choice, Plan
from vrtd.theory.predictions import Prediction
from vrtd.theory.recursion import recursion_moments
from vrtd.theory.saddle import SaddleSteps, saddle_steps
from vrtd.theory.settings import limit_step, settings_for
from vrtd.theory.statements import Bound, Condition, EpochInequality

__all__ = [
    "Assumptions",
    "AutocorrelationTime",
    "Bound",
    "Choice",
    "Complexity",
    "Condition",
    "EpochInequality",
    "Inequality",
    "Moments",
    "PhaseDiagram",
    "Plan",
    "Prediction",
    "SaddleSteps",
    "approximation_limit",
    "autocorrelation_time",
    "batch_bias_inequality",
    "check_assumptions",
    "dobrushin",
    "epoch_inequality_iid",
    "epoch_inequality_markov",
    "exact_curve",
    "instance_constants",
    "instance_optimal",
    "lambda_A",
    "limit_step",
    "mixing_inequalities",
    "phase_diagram",
    "plan",
    "pseudo_gradient_inequality",
    "recursion_moments",
    "saddle_steps",
    "settings_for",
    "squared_pseudo_gradient_inequality",
    "stability_limit",
    "stationary_second_moment",
    "td_iid_bound",
    "td_iid_complexity",
    "td_iid_moments",
    "td_markov_bound",
    "td_markov_complexity",
    "transition_inequalities",
    "value_explained",
    "vrtd_iid_bound",
    "vrtd_iid_complexity",
    "vrtd_iid_moments",
    "vrtd_markov_bound",
    "vrtd_markov_complexity",
]
