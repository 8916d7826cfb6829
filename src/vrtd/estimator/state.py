"""The arguments of an evaluator, and the immutable state of a fit.

The state keeps the first rows of the log, the sample, from which settings, intervals and diagnostics are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import VRTD, Algorithm
from vrtd.arrays import Floats
from vrtd.errors import DataError, InvalidInputError, NotFittedError
from vrtd.estimator.auto_settings import CLOSED_FORM, AutoSettings, is_cheap
from vrtd.estimator.episodes import Episodes
from vrtd.estimator.iterative_least_squares import IterativeFit
from vrtd.estimator.learner import Learner
from vrtd.estimator.least_squares import MatrixSums
from vrtd.estimator.linear_state import LinearFit
from vrtd.estimator.rows import append
from vrtd.estimator.sparse_fit import SparseFit
from vrtd.features import MOST_FEATURES, Features, ObservationSpace, Target, TargetFeatures, complete
from vrtd.lazy import cached_property
from vrtd.logs import Chunk
from vrtd.logs.log import all_observations
from vrtd.problems import Transitions
from vrtd.sparse import are_equal, is_sparse, join_tables, part_of, row_bytes

# Size of the sample. Intervals need more rows than settings, because rare rewards must occur often enough.
_MOST_ROWS, _MOST_BYTES = 50_000, 1 << 25
_LINEAR_ROWS = 200  # size of the sample of a `LinearFit`, which also keeps a reservoir of rows
_LEAST_PILOT, _PILOT_BYTES = 200, 1 << 25  # limits on the observations of pilot rows
_MOST_ASKED = 5000  # observations from which the number of actions of a target is determined


@dataclass(frozen=True, eq=False)
class Setup:
    """Checked arguments of an evaluator."""

    settings: AutoSettings
    features: Features  # as passed by the user; may not be bound
    discount: float
    theta_0: Floats | None
    closed_form: bool | Literal["auto"]  # whether to compute the closed form of all rows beside another algorithm
    seed: int
    target: Target | None = None  # the policy to evaluate, if it is not that of the log
    rereads: bool = False  # whether the log can be read several times

    def fit_to(self, space: ObservationSpace | None, chunk: Chunk) -> Setup:
        """Return the setup for a log that begins with this chunk, with features for its observations.

        For a target policy, the values of states are learned with importance ratios if the log has propensities, and
        the values of states and actions otherwise.
        """
        features: Any = self.features
        if self.target is None and chunk.propensity is not None:
            raise InvalidInputError("propensity needs a target policy.", "Pass target=..., or drop propensity.")
        if self.target is not None and chunk.action is None:
            raise InvalidInputError(
                "target needs the actions of the log, but the log has none.", "Name their column: action=..."
            )
        if self.target is not None and chunk.propensity is None and chunk.weight is not None:
            raise InvalidInputError(
                "weight cannot be combined with target, because weights are computed from propensities.",
                "Name the column of the propensities: propensity=..., or drop weight.",
            )
        if self.target is not None and space is not None and space.actions and chunk.n_rows:
            _check_words(self.target, space.actions, chunk.observations[:_MOST_ASKED])
        if isinstance(features, TargetFeatures) and chunk.propensity is not None:
            features = features.features
            if not isinstance(features, Features):
                raise InvalidInputError(
                    "features must not depend on actions if the log has propensities.",
                    "Drop propensity, or pass features of observations.",
                )
            if self.target is not None and chunk.n_rows:
                self.target.check_on(chunk.observations)
        n_bytes = max(1, int(row_bytes(chunk.observations)))
        n = min(self.settings.pilot_rows, max(_LEAST_PILOT, _PILOT_BYTES // n_bytes))
        return replace(self, features=complete(features, space), settings=replace(self.settings, pilot_rows=n))

    def resolve(self, features: Features | None) -> Setup:
        """Return the setup with the algorithm that "auto" stands for with these bound features.

        It is the closed form if that is cheap or `cost` is "quadratic", and VRTD with growing batches otherwise.
        """
        if features is None:
            return self
        settings, cost = self.settings, self.settings.cost
        is_quadratic = cost == "quadratic" or (settings.is_auto and cost == "auto" and is_cheap(features))
        if features.is_sparse and not (settings.is_sparse or settings.is_closed_form or is_quadratic):
            takes_sparse_rows = settings.takes_sparse_rows and not self.needs_sums(features)
            if takes_sparse_rows or features.n_features > MOST_FEATURES:  # shorter rows can also be dense
                return self._for_sparse_rows
        if not settings.is_auto:
            return self
        return self._with_closed_form if is_quadratic else self._with_growing_vrtd

    @cached_property
    def _for_sparse_rows(self) -> Setup:
        settings = self.settings.for_sparse_rows()
        setup = replace(self, settings=settings, closed_form=self.closed_form is True)  # `begin` raises if it is
        return setup._with_growing_vrtd if settings.is_auto else setup

    @cached_property
    def _with_closed_form(self) -> Setup:
        return replace(self, settings=replace(self.settings, algorithm=CLOSED_FORM))

    @cached_property
    def _with_growing_vrtd(self) -> Setup:
        return replace(self, settings=replace(self.settings, algorithm=VRTD.name, cost="linear"))

    def needs_sums(self, features: Features) -> bool:
        """Return whether the sums of the closed form are computed; with "auto" only if that is cheap."""
        if self.is_iterative(features):
            return False
        if self.settings.is_closed_form or self.closed_form != "auto":
            return self.settings.is_closed_form or bool(self.closed_form)
        return is_cheap(features) and self.settings.cost != "linear"

    def keeps_sparse(self, features: Features) -> bool:
        """Return whether the rows of these features are learned as sparse rows."""
        return features.is_sparse and (self.settings.is_sparse or self.is_iterative(features))

    def is_iterative(self, features: Features) -> bool:
        """Return whether the closed form has too many features for a matrix, and the log can be read several times."""
        return self.settings.is_closed_form and features.n_features > MOST_FEATURES and self.rereads


def _check_words(target: Target, words: Sequence[str], observations: NDArray[Any]) -> None:
    """Raise if the target has more actions than the log has names, as their numbers may not correspond."""
    n = target.count_actions(observations)
    if n > len(words):
        raise InvalidInputError(
            f"target has {n} actions, but the log has {len(words)}, which are numbered in alphabetical order: "
            f"{', '.join(words[:10])}.",
            "Leave out the actions that are not in the log.",
        )


class FitState(NamedTuple):
    """State of a fit."""

    # The fields that every piece changes come first: `fit.update` sets them by position.
    n_rows: int = 0  # received
    n_distinct: int = 0  # without rows of later passes
    terminates: bool = False  # whether a transition has terminated; only tracked if the discount is 1
    learner: Learner | None = None
    linear: LinearFit | None = None
    sparse: SparseFit | None = None  # in place of `linear`, for sparse rows
    sums: MatrixSums | None = None
    visited: NDArray[np.bool_] | None = None  # by state, if the features are a table
    episodes: Episodes | None = None  # of the first pass

    iterative: IterativeFit | None = None  # solved after the first pass
    n_pilot: int | None = None  # rows that waited before features and settings were chosen
    n_expected: int | None = None  # total number of rows, if it is known that no more will come
    is_weighted: bool | None = None  # None before the first row
    is_checked: bool = False  # whether the step size of the user has been checked
    remarks: tuple[str, ...] = ()  # on settings
    log_remarks: tuple[str, ...] = ()  # from the logs
    log_warnings: tuple[str, ...] = ()
    space: ObservationSpace | None = None  # of the first log
    segment: int | None = None  # consecutive rows from one of several parallel environments
    waiting: tuple[Chunk, ...] = ()  # pilot rows, before features and settings are chosen
    features: Features | None = None  # bound
    buffer: Transitions | None = None  # its first `n_sampled` rows are the sample, the first rows of the log
    n_sampled: int = 0
    capacity: int = 1  # largest size of the sample; set with the first row, unless it is 0
    observations: Any | None = None  # of the buffer's rows
    next_observations: Any | None = None
    action: NDArray[Any] | None = None  # if the log has actions
    starts: NDArray[np.bool_] | None = None  # first rows of episodes

    @property
    def n_waiting(self) -> int:
        """Number of rows that have not changed theta yet, because the pilot or their batch is incomplete."""
        if self.learner is not None:
            return self.learner.n_waiting
        has_run = self.is_closed_form or self.linear is not None or self.sparse is not None
        return 0 if has_run else self.n_rows

    @property
    def is_closed_form(self) -> bool:
        """Whether the closed form of all rows is computed."""
        return self.sums is not None or self.iterative is not None

    @property
    def algorithm(self) -> Algorithm | None:
        """Algorithm with its current settings; None for the closed form and while the settings are undecided."""
        run = self.learner or self.linear or self.sparse
        return None if run is None else run.algorithm

    def with_sample_of(self, other: FitState) -> FitState:
        """Return the state with the sample of another one, to which no rows are added."""
        names = ("buffer", "n_sampled", "observations", "next_observations", "action", "starts")
        sample = {name: getattr(other, name) for name in names}
        return self._replace(**sample, capacity=other.n_sampled, is_checked=other.is_checked or not other.n_sampled)

    def trim(self) -> FitState:
        """Return the state with its buffers cut to the rows in use."""
        learner, linear, sums, n = self.learner, self.linear, self.sums, self.n_sampled
        sparse = self.sparse
        if learner is not None:
            learner = learner._replace(buffer=_cut(learner.buffer, learner.n_waiting), loop=None)
        if linear is not None:
            reservoir = linear.reservoir
            reservoir = reservoir._replace(buffer=_cut(reservoir.buffer, reservoir.n_kept))
            linear = linear._replace(reservoir=reservoir, loops=None)
        if sparse is not None:
            sparse = sparse._replace(reservoir=sparse.reservoir.compact())
        if sums is not None:
            sums = sums._replace(buffer=_cut(sums.buffer, sums.n_waiting), held=_cut(sums.held, sums.n_summed))
        return self._replace(
            learner=learner,
            linear=linear,
            sparse=sparse,
            sums=sums,
            buffer=_cut(self.buffer, n),
            observations=None if self.observations is None else part_of(self.observations, 0, n),
            next_observations=None if self.next_observations is None else part_of(self.next_observations, 0, n),
            action=None if self.action is None else self.action[:n],
            starts=None if self.starts is None else self.starts[:n],
        )


def _cut(buffer: Transitions | None, n: int) -> Transitions | None:
    return None if buffer is None or not n else buffer.part(0, n)


def initial_theta(setup: Setup, state: FitState) -> Floats:
    """Return the initial parameters."""
    if setup.theta_0 is not None:
        return setup.theta_0.copy()
    features = usable_features(setup, state)
    if features is None:
        seen = f"only {state.n_rows:,} of {setup.settings.pilot_rows:,} pilot rows" if state.n_rows else "no rows"
        raise NotFittedError(f"The evaluator has received {seen}.", "Call fit or partial_fit, or pass theta_0.")
    return np.zeros(features.n_features)


def bind_features(setup: Setup, chunks: Sequence[Chunk]) -> Features:
    """Return the features bound to the rows of these chunks, from which they take ranges and other constants."""
    features, observations = setup.features, all_observations(chunks)
    if isinstance(features, TargetFeatures):
        return features.bind_pairs(observations, np.concatenate([chunk.action for chunk in chunks]))
    return features.bind(observations)


def usable_features(setup: Setup, state: FitState) -> Features | None:
    """Return the features, or None if they depend on pilot rows that are not complete."""
    if state.features is None and state.waiting and not setup.features.needs_data:
        return setup.features.bind(state.waiting[0].observations)
    return state.features


def keep_until(state: FitState, last: int, rows: Transitions, chunk: Chunk, repeats: bool) -> FitState:
    """Add the rows before `last` to the sample, except pilot rows, which are in it already."""
    if repeats or state.n_sampled == state.capacity:
        return state
    first = max(0, state.n_sampled - state.n_rows)
    return state if first >= last else keep_rows(state, rows.part(first, last), chunk.part(first, last))


def keep_rows(state: FitState, rows: Transitions, chunk: Chunk) -> FitState:
    """Add rows and their observations to the sample, as long as it is not full."""
    if state.observations is not None:
        check_alike(chunk.observations, state.observations)
    n_bytes = 1 if rows.is_sparse else max(16 * rows.n_features, int(2 * row_bytes(chunk.observations)))
    is_linear = rows.is_sparse or (state.linear is not None and state.sums is None and chunk.action is None)
    most = _LINEAR_ROWS if is_linear else _MOST_ROWS
    size = max(1, min(most, _MOST_BYTES // n_bytes))
    first, last = state.n_sampled, min(state.n_sampled + len(rows), size)
    n, starts = last - first, chunk.starts
    if starts is None:
        goes_on = first > 0 and state.buffer is not None and not state.buffer.ends[first - 1]
        starts = np.concatenate([[not goes_on], rows.ends[:-1]])
    kept = {
        "observations": chunk.observations,
        "next_observations": chunk.successors,
        "action": chunk.action,
        "starts": starts,
    }
    buffers: dict[str, Any] = {}
    for name, values in kept.items():
        if values is not None:
            before = getattr(state, name)
            if is_sparse(values):
                some = part_of(values, 0, n)
                buffers[name] = some.copy() if before is None or not first else join_tables([before, some])
                continue
            buffers[name] = _longer(before, first, values, size)
            buffers[name][first:last] = values[:n]
    buffer = append(state.buffer, first, rows.part(0, n), size)
    return state._replace(buffer=buffer, n_sampled=last, capacity=size, **buffers)


def check_alike(values: NDArray[Any], before: NDArray[Any], what: str = "observations") -> None:
    """Raise unless the observations or actions have the type and the shape of earlier ones."""
    if values.dtype != before.dtype:
        raise DataError(
            f"{what} must have the same type in all parts of a log, but are {before.dtype} and then {values.dtype}.",
            "Convert them to one type.",
        )
    if values.shape[1:] != before.shape[1:]:
        raise DataError(
            f"{what} must have the same shape in all rows, but have {before.shape[1:]} and then {values.shape[1:]}.",
            f"Use separate logs for {what} of different shapes.",
        )


def _longer(values: NDArray[Any] | None, n: int, like: NDArray[Any], size: int) -> NDArray[Any]:
    """Return an array for `size` observations that begins with the first n of `values`."""
    if values is not None and len(values) == size:
        return values
    buffer = np.empty((size, *like.shape[1:]), like.dtype)
    if values is not None:
        buffer[:n] = values[:n]
    return buffer


def goes_on_from(state: FitState) -> bool:
    """Return whether the next rows continue the last row, as far as this is known from the last row."""
    if state.waiting:
        return not state.waiting[-1].ends[-1]
    return state.episodes is not None and state.episodes.is_open


def is_same_log(one: FitState, other: FitState) -> bool:
    """Return whether two fits have received the same rows, judged by their number and the first rows."""
    if one.n_distinct != other.n_distinct or one.buffer is None or other.buffer is None:
        return False
    n = min(one.n_sampled, other.n_sampled)
    columns = [(getattr(one.buffer, name)[:n], getattr(other.buffer, name)[:n]) for name in ("reward", "ends")]
    if not all(np.array_equal(a, b) for a, b in columns):
        return False
    seen = [(one.observations, other.observations), (one.next_observations, other.next_observations)]
    pairs = [(part_of(a, 0, n), part_of(b, 0, n)) for a, b in seen if a is not None and b is not None]
    if all(a.shape == b.shape and type(a) is type(b) for a, b in pairs):
        return all(are_equal(a, b) for a, b in pairs)
    # Other columns of the same rows. Rewards that do not vary are no evidence.
    return bool(np.ptp(one.buffer.reward[:n]) > 0.0)


def sample_of(state: FitState, n_rows: int | None = None) -> Transitions:
    """Return the sample, or its first `n_rows` rows, in float64."""
    if state.buffer is None:
        raise NotFittedError("The evaluator has received no rows.", "Call fit or partial_fit.")
    n = state.n_sampled if n_rows is None else min(n_rows, state.n_sampled)
    sample = state.buffer.part(0, n).astype(np.float64)
    if not sample.phi.data.any() if sample.is_sparse else sample.rank == 0:
        raise InvalidInputError(
            f"All features are 0 in the first {n:,} rows.",
            "Use other features.",
        )
    return sample
