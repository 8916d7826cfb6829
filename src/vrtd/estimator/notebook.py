"""How an evaluator shows itself: on one line, and in a notebook as a table with a figure of its values."""

from __future__ import annotations

import warnings
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vrtd.arrays import Floats
from vrtd.errors import VrtdError
from vrtd.estimator.state import FitState, Setup
from vrtd.features import Features
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
    low: float
    high: float
    doubt: str | None  # why it has not converged

    def __str__(self) -> str:
        return f"{self.value:.4g} [{self.low:.4g}, {self.high:.4g}]"


def describe_fit(evaluator: Evaluator, setup: Setup, state: FitState) -> str:
    """Describe an evaluator on one line; `evaluator` is a copy, so that nothing is remembered of the question."""
    parts = [f"{_describe_method(setup, state)}, {_describe_rows(setup, state)}"]
    if state.features is None:
        parts.append(f"features {_describe_features(setup.features)}; discount {setup.discount:g}")
    else:
        parts[0] += f", {plural(state.features.n_features, 'feature')}"
    mean = _mean_value(evaluator, state)
    if mean is not None:
        parts += [f"mean value {mean}", "converged" if mean.doubt is None else "not converged"]
    return f"Evaluator({'; '.join(parts)})"


def build_fit_summary(evaluator: Evaluator, setup: Setup, state: FitState) -> str:
    """Return the same as HTML, with a histogram of the values; `evaluator` is a copy."""
    mean, values = _mean_value(evaluator, state), _values(evaluator, state)
    features = setup.features if state.features is None else state.features
    n = "" if state.features is None else f"{features.n_features:,}: "
    entries = {
        "algorithm": _describe_method(setup, state),
        "rows": _describe_rows(setup, state),
        "features": n + _describe_features(features),
        "discount": f"{setup.discount:g}",
        "mean value": "" if mean is None else f"{mean}, {_LEVEL:.0%} interval",
        "converged": "" if mean is None else f"no: {mean.doubt}" if mean.doubt else "yes",
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
    text = " ".join(repr(features).split())
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


def _mean_value(evaluator: Evaluator, state: FitState) -> _MeanValue | None:
    """Return the mean value with its interval, or None if it takes long or the rows do not give one."""
    if not _is_cheap(state):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            mean, doubt = evaluator.mean_value(_LEVEL), evaluator.spread().doubt
        except (VrtdError, ArithmeticError, ValueError):
            return None
    return _MeanValue(float(mean.value[0]), float(mean.low[0]), float(mean.high[0]), doubt)


def _values(evaluator: Evaluator, state: FitState) -> Floats:
    """Return the finite values of the states in the first rows; none where they take long."""
    if state.buffer is None or not (_is_cheap(state) or state.learner is not None):
        return np.empty(0)
    with np.errstate(all="ignore"):
        try:
            values = np.asarray(state.buffer.phi[: state.n_sampled] @ evaluator.theta_, dtype=np.float64)
        except (VrtdError, ArithmeticError, ValueError):
            return np.empty(0)
    return values[np.isfinite(values)]


def _draw(values: Floats, mean: _MeanValue | None, axes: Axes) -> None:
    axes.hist(values, bins=_N_BINS, color=PALETTE[0], alpha=0.8)
    if mean is not None and np.isfinite(mean[:3]).all():
        axes.axvspan(mean.low, mean.high, color=PALETTE[1], alpha=0.3, linewidth=0)
        axes.axvline(mean.value, color=PALETTE[1], linewidth=1.5)
    finish_axes(axes, f"value of the states in the first {len(values):,} rows", "rows", legend="")
