"""Representations of an evaluator: one line of text, and a table with a histogram of its values for notebooks."""

from __future__ import annotations

import warnings
from functools import partial
from math import isnan, nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vrtd.arrays import Floats
from vrtd.errors import VrtdError
from vrtd.estimator.estimates import Interval
from vrtd.estimator.means import mean_over_starts, mean_over_states
from vrtd.estimator.model_file import feature_settings
from vrtd.estimator.state import FitState, Setup
from vrtd.estimator.summary import FitSummary
from vrtd.features import Features, TargetFeatures
from vrtd.features.specs import describe_kind
from vrtd.plots import PALETTE, finish_axes
from vrtd.report.notebook import build_summary
from vrtd.report.numbers import describe_settings, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vrtd.estimator.evaluator import Evaluator

_MOST_FEATURES = 64  # up to which the closed form and its interval take milliseconds
_LEVEL = 0.95
_N_BINS = 40
_MOST_CHARACTERS = 70  # of the description of features


class _Means(NamedTuple):
    """Values averaged over states. The ends of intervals that would take long to compute are nan."""

    mean: Interval | None = None  # over the states of the log
    policy: Interval | None = None  # over the first states of its episodes
    doubt: str | None = None  # why the values have not converged

    @property
    def has_interval(self) -> bool:
        return self.mean is not None and not isnan(self.mean.low)

    @property
    def texts(self) -> dict[str, str]:
        """The known ones as texts, by name."""
        named = {"policy value": self.policy, "mean value": self.mean}
        return {name: _describe_interval(interval) for name, interval in named.items() if interval is not None}


def describe_fit(evaluator: Evaluator, setup: Setup, state: FitState, known: FitSummary | None) -> str:
    """Describe an evaluator on one line.

    `evaluator` is a copy, so the original caches nothing that is computed here. `known` holds earlier results.
    """
    of_target = "" if setup.target is None else " of a target policy"
    parts = [f"{_describe_method(setup, state)}{of_target}, {_describe_rows(setup, state)}"]
    if state.features is None:
        parts.append(f"features {_describe_features(setup.features)}; discount {setup.discount:g}")
    else:
        parts[0] += f", {plural(state.features.n_features, 'feature')}"
    means = _find_means(evaluator, state, known)
    parts += [f"{name} {text}" for name, text in means.texts.items()]
    if means.has_interval:
        parts.append("converged" if means.doubt is None else "not converged")
    return f"Evaluator({'; '.join(parts)})"


def build_fit_summary(evaluator: Evaluator, setup: Setup, state: FitState, known: FitSummary | None) -> str:
    """Return the same description as HTML, with a histogram of the values."""
    means, values = _find_means(evaluator, state, known), _values(evaluator, state, known)
    interval = f", {_LEVEL:.0%} interval" if means.has_interval else ""
    features = setup.features if state.features is None else state.features
    n = "" if state.features is None else f"{features.n_features:,}: "
    entries = {
        "algorithm": _describe_method(setup, state),
        "rows": _describe_rows(setup, state),
        "features": n + _describe_features(features),
        "discount": f"{setup.discount:g}",
        **{name: f"{text}{interval}" for name, text in means.texts.items()},
        "converged": "" if not means.has_interval else f"no: {means.doubt}" if means.doubt else "yes",
        "warnings": "; ".join(state.log_warnings),
        "remarks": "; ".join((*state.log_remarks, *state.remarks)),
    }
    what = "states and actions" if isinstance(features, TargetFeatures) else "states"
    return build_summary("Evaluator", entries, partial(_draw, values, means.mean, what) if values.size else None)


def _describe_method(setup: Setup, state: FitState) -> str:
    if state.algorithm is not None:
        return describe_settings(state.algorithm.settings)
    if state.iterative is not None:
        return f"closed form ({state.iterative.description})"
    if state.sums is not None:
        return "closed form"
    algorithm, settings = setup.settings.algorithm, setup.settings
    name = algorithm if isinstance(algorithm, str) else describe_settings(algorithm.settings)
    sizes = {"step_size": settings.step_size, "batch_size": settings.batch_size}
    return ", ".join([name, *(f"{key} {value}" for key, value in sizes.items() if value != "auto")])


def _describe_features(features: Features) -> str:
    settings = feature_settings(features)
    text = " ".join(repr(features).split()) if settings is None else describe_kind(settings)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def _describe_rows(setup: Setup, state: FitState) -> str:
    if not state.n_rows:
        return "not fitted"
    if state.algorithm is None and not state.is_closed_form:
        return f"{plural(state.n_rows, 'row')} of {setup.settings.pilot_rows:,} pilot rows"
    return plural(state.n_rows, "row") + (f" ({state.n_waiting:,} waiting)" if state.n_waiting else "")


def _is_cheap(state: FitState) -> bool:
    """Return whether the method is the closed form with so few features that its interval takes milliseconds."""
    is_closed_form = state.algorithm is None and state.sums is not None
    return is_closed_form and state.features is not None and state.features.n_features <= _MOST_FEATURES


def _find_means(evaluator: Evaluator, state: FitState, known: FitSummary | None) -> _Means:
    """Return the means that the rows determine and that do not take long to compute."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if not _is_cheap(state):
                return _find_known_means(evaluator, state, known)
            policy = evaluator.policy_value(level=_LEVEL) if evaluator.has_policy_value else None
            return _Means(evaluator.mean_value(_LEVEL), policy, evaluator.spread().doubt)
        except (VrtdError, ArithmeticError, ValueError):
            return _Means()


def _find_known_means(evaluator: Evaluator, state: FitState, known: FitSummary | None) -> _Means:
    """Return the means of a closed form that was solved earlier, with intervals if these are known."""
    episodes = state.episodes
    if not state.is_closed_form or state.algorithm is not None or known is None or not known.is_solved:
        return _Means()
    assert episodes is not None
    solution, has_starts = known.solution, evaluator.has_policy_value
    if known.has_interval and solution.why_no_interval is None:
        policy = mean_over_starts(known, "closed_form").intervals(_LEVEL).first if has_starts else None
        mean = mean_over_states(known, "closed_form").intervals(_LEVEL).first
        return _Means(mean, policy, known.spread("closed_form").doubt)
    return _Means(
        Interval(float(known.mean_phi("closed_form") @ solution.theta), nan, nan),
        Interval(float(episodes.starts.mean @ solution.theta), nan, nan) if has_starts else None,
    )


def _describe_interval(interval: Interval) -> str:
    value, low, high = interval
    return f"{value:.4g}" + ("" if isnan(low) else f" [{low:.4g}, {high:.4g}]")


def _values(evaluator: Evaluator, state: FitState, known: FitSummary | None) -> Floats:
    """Return the finite values of the states (and actions) in the first rows; none if they take long to compute."""
    solution = known.solution if state.algorithm is None and known is not None and known.is_solved else None
    if state.buffer is None or not (_is_cheap(state) or state.algorithm is not None or solution is not None):
        return np.empty(0)
    with np.errstate(all="ignore"):
        try:
            theta = evaluator.theta_ if solution is None else solution.theta
            values = np.asarray(state.buffer.phi[: state.n_sampled] @ theta, dtype=np.float64)
        except (VrtdError, ArithmeticError, ValueError):
            return np.empty(0)
    return values[np.isfinite(values)]


def _draw(values: Floats, mean: Interval | None, what: str, axes: Axes) -> None:
    axes.hist(values, bins=_N_BINS, color=PALETTE[0], alpha=0.8)
    if mean is not None and np.isfinite(mean).all():
        axes.axvspan(mean.low, mean.high, color=PALETTE[1], alpha=0.3, linewidth=0)
    if mean is not None and np.isfinite(mean.value):
        axes.axvline(mean.value, color=PALETTE[1], linewidth=1.5)
    finish_axes(axes, f"value of the {what} in the first {len(values):,} rows", "rows", legend="")
