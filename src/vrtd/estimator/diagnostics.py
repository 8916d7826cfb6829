"""Diagnostics of a fit: whether it has converged, and how large each source of error is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from vrtd.arrays import Floats
from vrtd.errors import InvalidInputError, SingularSystemError
from vrtd.estimator.auto_settings import CLOSED_FORM
from vrtd.estimator.doubly_robust import DoublyRobust
from vrtd.estimator.learner import Learner, ThetaPath
from vrtd.estimator.least_squares import ROWS_PER_FEATURE
from vrtd.estimator.means import check_returns
from vrtd.estimator.overlap import Overlap
from vrtd.estimator.recursion_spread import RecursionSpread
from vrtd.estimator.spread import Limit, Spread
from vrtd.estimator.summary import FitSummary
from vrtd.features import Auto, FromTransformer, Identity, TargetFeatures, table_of
from vrtd.plots import METRIC_LABELS, new_panels
from vrtd.problems import Transitions
from vrtd.report.numbers import plural
from vrtd.series import block_covariances
from vrtd.sparse import is_sparse, mean_of, part_of, squared_norms
from vrtd.theory import autocorrelation_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vrtd.theory.explained import Explained


# Values are far from the closed form of the sample if they differ by more than this many of its standard errors. If
# "auto" chose the step, this share of the distance of the start is added.
_MOST_STANDARD_ERRORS, _MOST_LEFT = 10.0, 0.05
LEAST_CHECKED = 256  # rows; with fewer the closed form itself is too uncertain for a check
_ROUNDING = 1e-8  # relative to the values
_WINDOWS = 10.0  # a segment must be this many correlation times long to show the correlation
_LEAST_EXPLAINED = 0.5  # share of the variance of V; below it there is a warning
_MOST_POOLED = 0.01  # share of rows in states that share a value; above it there is a warning
_MOST_LACKING = 0.01  # mean number of features that a row lacks; above it there is a warning
_MOST_LISTED = 5  # features that a remark lists
_MOST_UNSEEN, _MOST_SHOWN = 10_000, 20  # unseen features that are listed, and shown by repr
_MOST_EXPLAINED = 10_000  # rows; more would take memory and add little accuracy
_REMEDIES: dict[str, str] = {
    "rows": "Use more data, or lower pilot_rows.",
    "transient": "Use more data or the closed form, or a larger step if you chose it.",
    "bias": "Use a smaller step, or VRTD.",
    "variance": "Use a larger batch, a smaller step, or the closed form.",
    "budget": "Use more data: with these rows no method is much more accurate.",
    "features": "Use richer features: more data will not help.",
}
# Only for features that are taken as they are, by default.
_NO_CONSTANT = (
    "no combination of the features is constant, so that a state whose features are all 0 has the value 0. Add a "
    "column of ones, or pass features='standardised'"
)
_NAMES = {
    "transient": "initial transient",
    "bias": "bias of the step size",
    "variance": "avoidable noise",
    "budget": "unavoidable noise",
    "features": "misfit of the features",
}


@dataclass(frozen=True, eq=False)
class Curve:
    """NEU and MSPBE of theta along the run, estimated on the sample.

    The floors are the expected values at theta_star, and nan if they are not known.
    """

    n_rows: NDArray[np.int64]  # (K,)
    neu: Floats  # (K,)
    mspbe: Floats  # (K,)
    neu_floor: float
    mspbe_floor: float


@dataclass(frozen=True, eq=False, repr=False)
class Diagnostics:
    """Diagnostics of a fit.

    Errors are root mean squares over the states of the sample, in units of value.

    Attributes
    ----------
    status : {"waiting", "learning"}
        ``"waiting"`` before the pilot rows are complete.
    converged : bool or None
        True if no test found a reason to doubt the intervals. False means that the rows are too few or change too
        slowly for an interval, or, except for the closed form, that the initial transient is too large. None if nothing
        is learned yet, or if no interval is known.
    limit : {"rows", "transient", "bias", "variance", "budget", "features"} or None
        Largest error source. ``"rows"`` stands for too few rows to begin.
    errors : dict of str to float
        Estimated error from each source.
    n_rows : int
        Number of rows received.
    n_waiting : int
        Number of rows that have not changed theta yet.
    settings : dict
        Name and settings of the algorithm.
    n_features : int or None
        Number of features d.
    rank : int or None
        Rank of the features on the sample.
    unseen : tuple of int
        Features that were 0 in every row of the sample. For a table, these are the states that were not visited. Of a
        million features, the first 10,000 are listed (see ``lists_all_unseen``).
    condition_number : float or None
        Condition number of the features on the sample.
    largest_norm : float or None
        Largest norm of a row of features. Assumption 2 of the paper requires at most 1.
    decay_rate : float or None
        Decay rate of the slowest direction: minus the largest real part of an eigenvalue of A.
    autocorrelation : float or None
        Integrated autocorrelation time tau of the TD noise, in rows.
    effective_rows : float or None
        Effective sample size, the number of rows divided by tau.
    explained : float or None
        Share of the variance of the values that the features represent.
    explained_error : float or None
        Standard error of ``explained``.
    overlap : Overlap or None
        Overlap of the log with the target policy.
    doubly_robust : DoublyRobust or None
        Doubly robust value of the target policy, a check on the features.
    n_passes, n_products : int or None
        Passes over the log, and products with A, of the closed form with more than 4,096 features.
    residual : float or None
        Norm of A theta + b relative to its norm at theta_0, for the same closed form.
    warnings : tuple of str
        Reasons why the results may be unreliable, without the final period.
    remarks : tuple of str
        Remarks on the log, the settings and the estimates, without the final period.
    curve : Curve or None
        NEU and MSPBE along the run. None for the closed form, and with O(d) work per row.
    """

    status: Literal["waiting", "learning"]
    converged: bool | None
    limit: Limit | None
    errors: dict[Limit, float]
    n_rows: int
    n_waiting: int
    settings: dict[str, Any]
    n_features: int | None
    rank: int | None = None
    unseen: tuple[int, ...] = ()
    condition_number: float | None = None
    largest_norm: float | None = None
    decay_rate: float | None = None
    autocorrelation: float | None = None
    effective_rows: float | None = None
    explained: float | None = None
    explained_error: float | None = None
    overlap: Overlap | None = None
    doubly_robust: DoublyRobust | None = None
    n_passes: int | None = None
    n_products: int | None = None
    residual: float | None = None
    warnings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    curve: Curve | None = field(default=None, repr=False)

    def __repr__(self) -> str:
        """Return the attributes; of many unseen features, only the first few."""
        shown = {each.name: repr(getattr(self, each.name)) for each in fields(self) if each.repr}
        if len(self.unseen) > _MOST_SHOWN:
            shown["unseen"] = f"({', '.join(map(str, self.unseen[:_MOST_SHOWN]))}, ... {len(self.unseen):,} in all)"
        return f"Diagnostics({', '.join(f'{name}={value}' for name, value in shown.items())})"

    @property
    def verdict(self) -> str:
        """Whether the fit has converged, in a few words."""
        if self.status == "waiting":
            return "Nothing is learned yet"
        return {True: "Converged", False: "Not converged", None: "Convergence unknown"}[self.converged]

    @property
    def explanation(self) -> str:
        """Largest error source and what to do about it, in a few sentences; empty if there is nothing to report."""
        if self.status == "waiting":
            return f"{self.n_waiting:,} rows wait until the pilot rows are complete. {_REMEDIES['rows']}"
        lines = []
        if self.limit is not None:
            is_noise = self.settings["name"] == CLOSED_FORM and self.limit == "variance"
            remedy = _REMEDIES["budget" if is_noise else self.limit]  # the closed form has no step and no batch
            lines.append(f"Largest error source: {_NAMES[self.limit]} ({self.errors[self.limit]:.3g}). {remedy}")
        if self.overlap is not None and self.errors and "features" not in self.errors:
            lines.append("The misfit of the features was not estimated and may be larger.")
        if self.n_waiting:
            lines.append(f"{self.n_waiting:,} of {self.n_rows:,} rows are not used yet: their batch is incomplete.")
        return " ".join(lines)

    @property
    def lists_all_unseen(self) -> bool:
        """Whether ``unseen`` lists all features that were always 0, rather than the first ones."""
        return len(self.unseen) < _MOST_UNSEEN

    @property
    def text(self) -> str:
        """Diagnostics in words: the verdict, the explanation, warnings and remarks."""
        notes = (f"{capitalise(note)}." for note in (*self.warnings, *self.remarks))
        return " ".join([f"{self.verdict}.", *filter(None, [self.explanation]), *notes])

    def as_dict(self) -> dict[str, Any]:
        """Return the diagnostics as plain values, for JSON.

        Returns
        -------
        dict
            The attributes and ``text``, with lists for arrays and None for numbers that are not finite.
        """
        plain: dict[str, Any] = to_json(asdict(self) | {"text": self.text})
        return plain

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot NEU along the run, and its floor.

        Parameters
        ----------
        ax : Axes, default=None
            Matplotlib axes to draw on. The default is a new figure.

        Returns
        -------
        Axes
            The axes with the curve.

        Raises
        ------
        InvalidInputError
            If there is no curve, because the fit used the closed form or O(d) work per row.
        """
        if self.curve is None:
            raise InvalidInputError(
                "There is no learning curve: the closed form and algorithms with O(d) work per row record none.",
                "Fit with algorithm='td' or 'vrtd', and without cost='linear'.",
            )
        axes = new_panels(1)[0] if ax is None else ax
        axes.plot(self.curve.n_rows, self.curve.neu, label="NEU on the sample")
        if self.curve.neu_floor > 0.0:
            axes.axhline(self.curve.neu_floor, color="0.4", linestyle="--", linewidth=1, label="floor of the sample")
        axes.set_yscale("log")
        axes.set_xlabel("rows")
        axes.set_ylabel(METRIC_LABELS["neu"])
        axes.grid(alpha=0.25)
        axes.legend(frameon=False)
        return axes


def diagnose(summary: FitSummary) -> Diagnostics:
    """Return the diagnostics of a fit, from its first rows, the spread of its estimate and its path."""
    state, learner = summary.state, summary.state.learner
    common: dict[str, Any] = {
        "n_rows": state.n_rows,
        "n_waiting": state.n_waiting,
        "settings": _settings_of(summary),
    }
    notes = [*state.log_remarks, *state.remarks, *_lowered_steps(learner)]
    warnings = data_doubts(summary)
    if not state.n_sampled:
        return Diagnostics(
            "waiting", None, "rows", {}, n_features=None, warnings=tuple(warnings), remarks=tuple(notes), **common
        )
    note, lacks_features = _describe_transformer(summary)
    if note is not None and not lacks_features:
        notes.append(note)
    if state.iterative is not None:
        fit = state.iterative
        common |= {"n_passes": fit.n_passes, "n_products": fit.n_products, "residual": fit.residual}
        notes.append(f"least squares was solved by {fit.description}")
        warnings += [] if fit.doubt is None else [fit.doubt]
        if fit.is_overfitted:
            notes.append(
                f"there are fewer than {ROWS_PER_FEATURE} rows for each feature that is not always 0, so that least "
                "squares follows the noise of the rows. cost='linear' may have smaller errors"
            )
    if summary.is_run_linearly or state.iterative is not None or summary.setup.settings.cost == "linear":
        return _diagnose_linearly(summary, warnings, notes, common)
    sample, reduced, spread = summary.sample, summary.reduced, None
    try:
        reason = summary.why_no_interval(None)
        spread = summary.spread(None) if reason is None else None
    except InvalidInputError as error:  # the rest of the diagnostics can still be computed
        reason = str(error).removesuffix(".")
    if reason is not None:
        notes.append(f"no interval: {reason}")
    is_unseen = ~(sample.phi != 0.0).any(axis=0) if state.visited is None else ~state.visited
    unseen = np.flatnonzero(is_unseen).tolist()
    converged, explained, tau = None, None, None
    errors: dict[Limit, float] = {}
    limit: Limit | None = None
    try:
        tau = autocorrelation_time(reduced)
    except InvalidInputError as error:
        notes.append(f"the autocorrelation is not known: {error}".removesuffix("."))
    if state.segment is not None and (tau is None or _WINDOWS * max(tau.tau, 1.0) > state.segment):
        notes.append(
            f"the noise may be correlated over more than the {state.segment} consecutive rows of each environment, so "
            "that intervals may be too short. Use longer segments"
        )
    if spread is not None:
        errors, is_noise = spread.errors(sample.phi, state.n_distinct), True
        try:
            explained = _explain_values(summary)
        except SingularSystemError as error:
            notes.append(f"the misfit of the features is not known: {error}".removesuffix("."))
        if explained is not None:
            is_noise = not explained.misfit > 2.0 * explained.misfit_error
            if not explained.exact:
                notes.append(explained.remark)
            errors["features"] = explained.misfit
            if explained.share + 2.0 * explained.share_error < _LEAST_EXPLAINED and not is_noise:
                warnings.append(
                    f"the features represent only {100 * explained.share:.0f} % of the variance of the values, so that "
                    "values and intervals may be far from V. Use richer features"
                )
        converged = spread.converged(sample.phi)
        # The misfit does not count if it may be noise of its own estimate.
        judged = {name: error for name, error in errors.items() if name != "features" or not is_noise}
        limit, largest = max(judged.items(), key=lambda error: error[1])
        if not largest > 0.0:
            limit = None
        if spread.doubt is not None:
            warnings.append(f"the intervals are unreliable: {spread.doubt}")
        returns = check_returns(summary)
        if returns is not None and returns.doubt is not None:
            warnings.append(returns.doubt)
        rare = sorted(set(spread.rare.tolist()) - set(unseen))
        if rare:
            few = ", ".join(map(str, rare[:_MOST_LISTED])) + (", ..." if len(rare) > _MOST_LISTED else "")
            notes.append(f"too rarely nonzero for an interval: {plural(len(rare), 'feature')} ({few})")
    return Diagnostics(
        "learning",
        converged,
        limit,
        errors,
        n_features=sample.n_features,
        rank=sample.rank,
        unseen=tuple(unseen),
        condition_number=sample.condition_number,
        largest_norm=float(np.sqrt(np.square(sample.phi).sum(axis=1).max())),
        decay_rate=float(-np.linalg.eigvals(reduced.A).real.max()),
        autocorrelation=None if tau is None else tau.tau,
        effective_rows=None if tau is None else state.n_distinct / tau.tau,
        explained=None if explained is None else explained.share,
        explained_error=None if explained is None else explained.share_error,
        overlap=summary.overlap,
        doubly_robust=summary.doubly_robust,
        warnings=tuple(warnings),
        remarks=tuple(notes),
        curve=None if learner is None else _curve(sample.basis, reduced, spread, learner.path),
        **common,
    )


def _settings_of(summary: FitSummary) -> dict[str, Any]:
    """Return the settings in use; for the closed form, and before settings are chosen, those that were passed."""
    algorithm = summary.state.algorithm or summary.setup.settings.algorithm
    return {"name": algorithm} if isinstance(algorithm, str) else algorithm.settings


def _diagnose_linearly(
    summary: FitSummary, warnings: list[str], notes: list[str], common: dict[str, Any]
) -> Diagnostics:
    """Return the diagnostics of a fit with O(d) work per row, without d x d matrices."""
    phi, reason = summary.visited_phi.astype(np.float64, copy=False), summary.why_no_interval(None)
    known: dict[str, Any] = {"converged": None, "limit": None, "errors": {}, "n_features": phi.shape[1]}
    sizes = squared_norms(phi) if is_sparse(phi) else np.square(phi).sum(axis=1)
    known["largest_norm"] = float(np.sqrt(sizes.max()))
    if reason is not None:
        notes.append(f"no interval: {reason}")
    else:
        spread = summary.spread(None)
        errors = spread.errors(phi, summary.state.n_distinct)
        if summary.is_run_linearly:
            errors = _split_excess(errors, summary.linear_estimate.excess)
        limit = max(errors, key=lambda name: errors[name])
        known |= {
            "converged": spread.converged(phi),
            "errors": errors,
            "unseen": tuple(spread.unseen[:_MOST_UNSEEN].tolist()),
        }
        known["limit"] = limit if errors[limit] > 0.0 else None
        if spread.doubt is not None:
            warnings.append(f"the intervals are unreliable: {spread.doubt}")
        returns = check_returns(summary)
        if returns is not None and returns.doubt is not None:
            warnings.append(returns.doubt)
    known |= {"overlap": summary.overlap, "doubly_robust": summary.doubly_robust}
    return Diagnostics("learning", warnings=tuple(warnings), remarks=tuple(notes), **known, **common)


def _split_excess(errors: dict[Limit, float], excess: float) -> dict[Limit, float]:
    """Split the excess over the noise, which is the initial transient, from the parts of an error."""
    left = excess / (1.0 + excess)
    noise: dict[Limit, float] = {name: float(error * np.sqrt(1.0 - left)) for name, error in errors.items()}
    return noise | {"transient": float(np.sqrt(left * sum(error**2 for error in errors.values())))}


def _explain_values(summary: FitSummary) -> Explained | None:
    """Return how much of the values the features explain; None for features of states and actions.

    The estimate identifies states by their observations and follows the transitions of the log. The values of states
    and actions follow the target policy instead; `doubly_robust` checks their features.
    """
    from vrtd.theory.explained import value_explained

    state, some = summary.state, summary.sample.part(0, _MOST_EXPLAINED)
    if isinstance(state.features, TargetFeatures):
        return None
    tables = (state.observations, state.next_observations)
    seen, seen_next = (None if values is None else values[: len(some)] for values in tables)
    return value_explained(some, observations=seen, next_observations=seen_next)


def data_doubts(summary: FitSummary) -> list[str]:
    """Return the reasons why values from these rows and features may be unreliable with any algorithm."""
    state, doubts = summary.state, list(summary.state.log_warnings)
    if not state.n_sampled:
        return doubts
    given, used = (
        each.features if isinstance(each, TargetFeatures) else each for each in (summary.setup.features, state.features)
    )
    is_default = isinstance(given, Auto) and isinstance(used, Identity)
    if is_default and not summary.has_constant:
        doubts.append(_NO_CONSTANT)
    table = table_of(state.features)
    if table is not None and table.other:
        mean = mean_of(summary.first_phi) if state.sums is None else state.sums.mean_phi
        pooled = float(mean[table.n_features - 1 :: table.n_features].sum())
        if pooled > _MOST_POOLED:
            doubts.append(
                f"{100 * pooled:.2g} % of the rows are in states that do not occur in the pilot rows. All these states "
                "share one value. Pass the number of states: features='tabular:N'"
            )
    note, lacks_features = _describe_transformer(summary)
    if note is not None and lacks_features:
        doubts.append(note)
    if summary.overlap is not None:
        doubts += summary.overlap.doubts
    if summary.doubly_robust is not None and summary.doubly_robust.doubt is not None:
        doubts.append(summary.doubly_robust.doubt)
    return doubts


def _describe_transformer(summary: FitSummary) -> tuple[str | None, bool]:
    """Return a note if a transformer was fitted to the pilot rows only, and whether values of later rows lack features.

    An encoder gives each pilot row the same number of features that are 1. If their mean number is smaller, values that
    are not among the pilot rows have none.
    """
    state, given = summary.state, summary.setup.features
    n_pilot, inner = state.n_pilot or 0, given.features if isinstance(given, TargetFeatures) else given
    if not (isinstance(inner, FromTransformer) and inner.needs_data) or state.n_distinct <= n_pilot:
        return None, False
    fitted = f"the transformer {type(inner.transformer).__name__} was fitted to the first {n_pilot:,} rows"
    phi: Any = csr_array(part_of(summary.first_phi, 0, n_pilot))
    is_flag = np.ones(phi.shape[1], np.bool_)
    is_flag[phi.indices[(phi.data != 0.0) & (phi.data != 1.0)]] = False
    n_flags = phi @ is_flag
    expected = float(n_flags[0])
    lacking = expected - float(summary.mean_phi(None)[is_flag].sum())
    if inner is not given or n_flags.min() < n_flags.max() or not lacking > _MOST_LACKING:
        return f"{fitted}. Fit it to all rows first if it learns a vocabulary", False
    return (
        f"{fitted}, and {100 * lacking / expected:.2g} % of all values that it encodes have no feature, because they "
        "do not occur there. Fit it to all rows first",
        True,
    )


def _lowered_steps(learner: Learner | None) -> list[str]:
    """Return a remark if the step size was lowered during the run."""
    phases = () if learner is None else learner.phases
    steps = [phase.algorithm.largest_step_size or 0.0 for phase in phases if phase.is_lowered]
    if not steps:
        return []
    often = "once" if len(steps) == 1 else f"{len(steps)} times"
    return [f"the step size was lowered {often} because of rows with large features; its minimum was {min(steps):.3g}"]


@np.errstate(over="ignore", invalid="ignore")  # a run that diverged is infinitely far away
def distance_doubt(summary: FitSummary, theta: Floats) -> str | None:
    """Return a message if values are too far from the closed form of the sample, or None.

    With a step that "auto" chose, the initial transient must be small. With a step that the user chose, the transient
    and the noise of the step may be as large as the values, but the run must not diverge.
    """
    sample, theta_0 = summary.sample, summary.theta_0
    n, B = len(sample), sample.basis
    if n < 2 * sample.rank:
        return None
    reduced = summary.reduced
    try:
        closed_form = reduced.theta_star
    except SingularSystemError:
        return None
    far, start, size = (
        float(np.sqrt(np.maximum(u @ reduced.C @ u, 0.0)))  # of values, root mean square over the sample
        for u in (B.T @ theta - closed_form, B.T @ theta_0 - closed_form, closed_form)
    )
    own, _ = block_covariances(reduced.merged_influence)
    error = float(np.sqrt((own * reduced.C).sum()))
    allowed = _MOST_LEFT * start if summary.setup.settings.chooses_step else max(start, size)
    if not far > allowed + _MOST_STANDARD_ERRORS * error + _ROUNDING * size:
        return None
    return (
        f"the root-mean-square distance of the values from the closed form of the first {n:,} rows is {far:.3g}, and "
        f"its standard error is {error:.3g}"
    )


def _curve(B: Floats, rows: Transitions, spread: Spread | None, path: ThetaPath) -> Curve:
    """Compute the curve in coordinates of the basis B; the floor needs the moments of the recursion."""
    A, C = rows.A, rows.C
    updates = np.array(path.theta) @ B @ A.T + rows.b
    optimal = B.T @ spread.optimal @ B if isinstance(spread, RecursionSpread) else np.full_like(A, np.nan)
    long_run = A @ optimal @ A.T / len(rows)
    projected = np.linalg.solve(C, updates.T).T
    return Curve(
        np.array(path.n_rows),
        np.square(updates).sum(axis=1),
        (updates * projected).sum(axis=1),
        float(np.trace(long_run)),
        float(np.trace(np.linalg.solve(C, long_run))),
    )


def capitalise(sentence: str) -> str:
    """Return the sentence with a capital letter, unless it begins with the name of a file or of code."""
    is_name = not {*".:/"}.isdisjoint(sentence.split(maxsplit=1)[0])
    return sentence if is_name else f"{sentence[0].upper()}{sentence[1:]}"


def to_json(value: Any) -> Any:
    """Return a value with lists for arrays and tuples, and None for numbers that are not finite, for JSON."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
