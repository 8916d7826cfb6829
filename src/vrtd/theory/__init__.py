"""What is known of the methods: constants, bounds, exact moments and curves, and the advice that follows from them."""

from vrtd.theory.bounds import (
    td_iid_bound,
    td_iid_sharp,
    td_markov_bound,
    theorem1,
    theorem1_corrected,
    theorem1_sharp,
    theorem2,
    theorem2_repaired,
)
from vrtd.theory.complexity import (
    Complexity,
    corollary1,
    corollary1_corrected,
    corollary2,
    corollary2_repaired,
    td_iid_complexity,
    td_markov_complexity,
)
from vrtd.theory.constants import (
    Assumptions,
    Condition,
    check_assumptions,
    dobrushin,
    instance_constants,
    lambda_A,
)
from vrtd.theory.curves import exact_curve
from vrtd.theory.estimation import AutocorrelationTime, autocorrelation_time
from vrtd.theory.explained import value_explained
from vrtd.theory.lemmas import (
    Inequality,
    epoch_inequality_iid,
    epoch_inequality_markov,
    lemma1,
    lemma2,
    lemma3,
    lemma4,
    lemma5,
)
from vrtd.theory.limits import approximation_limit, instance_optimal, stability_limit
from vrtd.theory.moments import Anchor, Moments, Output, td_iid_moments, vrtd_iid_moments
from vrtd.theory.phase import PhaseDiagram, phase_diagram
from vrtd.theory.planner import plan
from vrtd.theory.plans import Choice, Plan
from vrtd.theory.recursion import recursion_moments
from vrtd.theory.saddle import SaddleSteps, saddle_steps
from vrtd.theory.sample import TransitionSample
from vrtd.theory.settings import limit_step, settings_for
from vrtd.theory.statements import Bound, EpochInequality
from vrtd.theory.stationary import stationary_second_moment

__all__ = [
    "Anchor",
    "Assumptions",
    "AutocorrelationTime",
    "Bound",
    "Choice",
    "Complexity",
    "Condition",
    "EpochInequality",
    "Inequality",
    "Moments",
    "Output",
    "PhaseDiagram",
    "Plan",
    "SaddleSteps",
    "TransitionSample",
    "approximation_limit",
    "autocorrelation_time",
    "check_assumptions",
    "corollary1",
    "corollary1_corrected",
    "corollary2",
    "corollary2_repaired",
    "dobrushin",
    "epoch_inequality_iid",
    "epoch_inequality_markov",
    "exact_curve",
    "instance_constants",
    "instance_optimal",
    "lambda_A",
    "lemma1",
    "lemma2",
    "lemma3",
    "lemma4",
    "lemma5",
    "limit_step",
    "phase_diagram",
    "plan",
    "recursion_moments",
    "saddle_steps",
    "settings_for",
    "stability_limit",
    "stationary_second_moment",
    "td_iid_bound",
    "td_iid_complexity",
    "td_iid_moments",
    "td_iid_sharp",
    "td_markov_bound",
    "td_markov_complexity",
    "theorem1",
    "theorem1_corrected",
    "theorem1_sharp",
    "theorem2",
    "theorem2_repaired",
    "value_explained",
    "vrtd_iid_moments",
]
