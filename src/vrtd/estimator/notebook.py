"""How an evaluator shows itself: on one line, and in a notebook as a table with a figure of its values."""

from __future__ import annotations

import warnings
from functools import partial
from math import isnan, nan
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vrtd.arrays import Floats
from vrtd.errors import VrtdError
from vrtd.estimator.means import mean_over_states
from vrtd.estimator.model_file import feature_settings
from vrtd.estimator.spread import FitSummary
from vrtd.estimator.state import FitState, Setup
from vrtd.features import Features
from vrtd.features.specs import describe_kind
from vrtd.plots import PALETTE, finish_axes
from vrtd.report.notebook import build_summary
from vrtd.report.numbers import describe_settings, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vrtd.estimator.evaluator import Evaluator

_MOST_FEATURES = 64  # with which the closed form and its interval take milliseconds
_LEVEL = 0.95
_N_BINS = 40
_MOST_CHARACTERS = 70  # of features


class _MeanValue(NamedTuple):
    value: float
    low: float = nan  # nan: the interval takes long
    high: float = nan
    doubt: str | None = None  # why it has not converged

    @property
    def has_interval(self) -> bool:
        return not isnan(self.low)

    def __str__(self) -> str:
        return f"{self.value:.4g}" + (f" [{self.low:.4g}, {self.high:.4g}]" if self.has_interval else "")


def describe_fit(evaluator: Evaluator, setup: Setup, state: FitState, known: FitSummary | None) -> str:
    """Describe an evaluator on one line.

    `evaluator` is a copy, so that nothing is remembered of the question. `known` is what was computed before.
    """
    parts = [f"{_describe_method(setup, state)}, {_describe_rows(setup, state)}"]
    if state.features is None:
        parts.append(f"features {_describe_features(setup.features)}; discount {setup.discount:g}")
    else:
        parts[0] += f", {plural(state.features.n_features, 'feature')}"
    mean = _mean_value(evaluator, state, known)
    if mean is not None:
        parts.append(f"mean value {mean}")
    if mean is not None and mean.has_interval:
        parts.append("converged" if mean.doubt is None else "not converged")
    return f"Evaluator({'; '.join(parts)})"


def build_fit_summary(evaluator: Evaluator, setup: Setup, state: FitState, known: FitSummary | None) -> str:
    """Return the same as HTML, with a histogram of the values."""
    mean, values = _mean_value(evaluator, state, known), _values(evaluator, state, known)
    features = setup.features if state.features is None else state.features
    n = "" if state.features is None else f"{features.n_features:,}: "
    entries = {
        "algorithm": _describe_method(setup, state),
        "rows": _describe_rows(setup, state),
        "features": n + _describe_features(features),
        "discount": f"{setup.discount:g}",
        "mean value": "" if mean is None else f"{mean}" + (f", {_LEVEL:.0%} interval" if mean.has_interval else ""),
        "converged": "" if mean is None or not mean.has_interval else f"no: {mean.doubt}" if mean.doubt else "yes",
        "warnings": "; ".join(state.log_warnings),
        "remarks": "; ".join((*state.log_remarks, *state.remarks)),
    }
    return build_summary("Evaluator", entries, partial(_draw, values, mean) if values.size else None)


def _describe_method(setup: Setup, state: FitState) -> str:
    if state.learner is not None:
        return describe_settings(state.learner.algorithm.settings)
    if state.sums is not None:
        return "closed form"
    given, settings = setup.settings.algorithm, setup.settings
    name = given if isinstance(given, str) else describe_settings(given.settings)
    sizes = {"step_size": settings.step_size, "batch_size": settings.batch_size}
    return ", ".join([name, *(f"{key} {value}" for key, value in sizes.items() if value != "auto")])


def _describe_features(features: Features) -> str:
    settings = feature_settings(features)
    text = " ".join(repr(features).split()) if settings is None else describe_kind(settings)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def _describe_rows(setup: Setup, state: FitState) -> str:
    if not state.n_rows:
        return "not fitted"
    if state.learner is None and state.sums is None:
        return f"{plural(state.n_rows, 'row')} of {setup.settings.pilot_rows:,} pilot rows"
    return plural(state.n_rows, "row") + (f" ({state.n_waiting:,} waiting)" if state.n_waiting else "")


def _is_cheap(state: FitState) -> bool:
    """Return whether the closed form is what was learned, and its interval takes milliseconds."""
    is_closed_form = state.learner is None and state.sums is not None
    return is_closed_form and state.features is not None and state.features.n_features <= _MOST_FEATURES


def _mean_value(evaluator: Evaluator, state: FitState, known: FitSummary | None) -> _MeanValue | None:
    """Return the mean value with its interval, or as much of them as does not take long and the rows give."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if not _is_cheap(state):
                return _find_known_mean(state, known)
            mean, doubt = evaluator.mean_value(_LEVEL), evaluator.spread().doubt
        except (VrtdError, ArithmeticError, ValueError):
            return None
    return _MeanValue(*mean, doubt)


def _find_known_mean(state: FitState, known: FitSummary | None) -> _MeanValue | None:
    """Return what was computed before of the mean value of a closed form."""
    if state.learner is not None or state.sums is None or known is None or not known.is_solved:
        return None
    solution = known.solution
    if not known.has_interval or solution.why_no_interval is not None:
        return _MeanValue(float(state.sums.mean_phi @ solution.theta))
    mean = mean_over_states(known, "closed_form").intervals(_LEVEL).first
    return _MeanValue(*mean, known.spread("closed_form").doubt)


def _values(evaluator: Evaluator, state: FitState, known: FitSummary | None) -> Floats:
    """Return the finite values of the states in the first rows; none where they take long."""
    solution = known.solution if state.learner is None and known is not None and known.is_solved else None
    if state.buffer is None or not (_is_cheap(state) or state.learner is not None or solution is not None):
        return np.empty(0)
    with np.errstate(all="ignore"):
        try:
            theta = evaluator.theta_ if solution is None else solution.theta
            values = np.asarray(state.buffer.phi[: state.n_sampled] @ theta, dtype=np.float64)
        except (VrtdError, ArithmeticError, ValueError):
            return np.empty(0)
    return values[np.isfinite(values)]


def _draw(values: Floats, mean: _MeanValue | None, axes: Axes) -> None:
    axes.hist(values, bins=_N_BINS, color=PALETTE[0], alpha=0.8)
    if mean is not None and np.isfinite(mean[:3]).all():
        axes.axvspan(mean.low, mean.high, color=PALETTE[1], alpha=0.3, linewidth=0)
    if mean is not None and np.isfinite(mean.value):
        axes.axvline(mean.value, color=PALETTE[1], linewidth=1.5)
    finish_axes(axes, f"value of the states in the first {len(values):,} rows", "rows", legend="")
