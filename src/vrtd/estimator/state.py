"""How a fit stands: the arguments of an evaluator, and one immutable state with the first rows of the log.

Settings, intervals and diagnostics rest on these rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import VRTD, Algorithm
from vrtd.arrays import Floats
from vrtd.errors import DataError, InvalidInputError, NotFittedError
from vrtd.estimator.auto_settings import CLOSED_FORM, AutoSettings, is_cheap
from vrtd.estimator.episodes import Episodes
from vrtd.estimator.learner import Learner
from vrtd.estimator.least_squares import Sums
from vrtd.estimator.linear_state import LinearFit
from vrtd.estimator.rows import append
from vrtd.features import Features, ObservationSpace, Target, TargetFeatures, complete
from vrtd.logs import Chunk
from vrtd.logs.log import all_observations
from vrtd.problems import Transitions

# Intervals need more rows than settings do: rare rewards must have come often enough.
_MOST_ROWS, _MOST_BYTES = 50_000, 1 << 25
_LINEAR_ROWS = 200  # of the sample of a `LinearFit`, which keeps rows of its own
_LEAST_PILOT, _PILOT_BYTES = 200, 1 << 25  # of the observations that wait
_MOST_ASKED = 5000  # observations for which a target is asked how many actions it has


@dataclass(frozen=True, eq=False)
class Setup:
    """The arguments of an evaluator, checked."""

    settings: AutoSettings
    features: Features  # as they were given, perhaps not bound yet
    discount: float
    theta_0: Floats | None
    closed_form: bool | Literal["auto"]  # whether to sum up the closed form of every row beside another algorithm
    seed: int
    target: Target | None = None  # the policy whose values are learned, if it is not that of the log

    def fit_to(self, space: ObservationSpace | None, chunk: Chunk) -> Setup:
        """Return the setup for a log that begins with this chunk: features for its observations.

        With propensities, values of states are learned with importance ratios, else those of states and actions.
        """
        features: Any = self.features
        if self.target is None and chunk.propensity is not None:
            raise InvalidInputError(
                "propensities are for the values of a target policy", "no target", "pass target=..."
            )
        if self.target is not None and chunk.action is None:
            must, do = "the values of a target policy need the actions of the log", "name their column: action=..."
            raise InvalidInputError(must, "a log without actions", do)
        if self.target is not None and chunk.propensity is None and chunk.weight is not None:
            must = "with a target policy, weights are made of propensities"
            raise InvalidInputError(must, "weights", "name the propensities: propensity=..., or drop weight")
        if self.target is not None and space is not None and space.actions and chunk.n_rows:
            _check_words(self.target, space.actions, chunk.observations[:_MOST_ASKED])
        if isinstance(features, TargetFeatures) and chunk.propensity is not None:
            features = features.features
            if not isinstance(features, Features):
                must = "with propensities, features must be those of observations"
                raise InvalidInputError(must, "a function of actions, too", "drop propensity, or pass other features")
            if self.target is not None and chunk.n_rows:
                self.target.check_on(chunk.observations)
        row_bytes = chunk.observations.dtype.itemsize * max(1, int(np.prod(chunk.observations.shape[1:])))
        n = min(self.settings.pilot_rows, max(_LEAST_PILOT, _PILOT_BYTES // row_bytes))
        return replace(self, features=complete(features, space), settings=replace(self.settings, pilot_rows=n))

    def resolve(self, features: Features | None) -> Setup:
        """Return the setup with the algorithm that "auto" stands for, with these bound features.

        It is the closed form while that costs little or may cost much, otherwise VRTD with batches that grow.
        """
        if features is None or not self.settings.is_auto:
            return self
        cost = self.settings.cost
        is_quadratic = cost == "quadratic" or (cost == "auto" and is_cheap(features))
        return self._with_closed_form if is_quadratic else self._with_growing_vrtd

    @cached_property
    def _with_closed_form(self) -> Setup:
        return replace(self, settings=replace(self.settings, algorithm=CLOSED_FORM))

    @cached_property
    def _with_growing_vrtd(self) -> Setup:
        return replace(self, settings=replace(self.settings, algorithm=VRTD.name, cost="linear"))

    def needs_sums(self, features: Features) -> bool:
        """Return whether the closed form of every row is summed up; "auto": if it costs little."""
        if self.settings.is_closed_form or self.closed_form != "auto":
            return self.settings.is_closed_form or bool(self.closed_form)
        return is_cheap(features) and self.settings.cost != "linear"


def _check_words(target: Target, words: Sequence[str], observations: NDArray[Any]) -> None:
    """Raise if the target has more actions than the log has words: then its numbers mean other words."""
    n = target.count_actions(observations)
    if n > len(words):
        raise InvalidInputError(
            "actions of the target policy must be numbered as the words of the log are, in the order of the alphabet",
            f"{n} actions, and {len(words)} words: {', '.join(words[:10])}",
            "leave out the actions that the log does not have: it says nothing about them",
        )


class FitState(NamedTuple):
    """How a fit stands."""

    # What every piece changes, first: `fit` sets these by position.
    n_rows: int = 0  # received
    n_distinct: int = 0  # without those of later passes
    terminates: bool = False  # whether a transition has terminated; only kept for a discount of 1
    learner: Learner | None = None
    linear: LinearFit | None = None
    sums: Sums | None = None
    visited: NDArray[np.bool_] | None = None  # states, where features are a table of them
    episodes: Episodes | None = None  # of the first pass

    n_pilot: int | None = None  # rows that waited before features and settings were decided
    n_expected: int | None = None  # rows in all, if it is known that no more will come
    is_weighted: bool | None = None  # None: no row has come
    is_checked: bool = False  # whether the step that was asked for has been checked
    remarks: tuple[str, ...] = ()  # on settings
    log_remarks: tuple[str, ...] = ()  # of the logs that were read
    log_warnings: tuple[str, ...] = ()
    space: ObservationSpace | None = None  # of the first log
    segment: int | None = None  # consecutive steps of one of several environments that come together
    waiting: tuple[Chunk, ...] = ()  # rows before features or settings are decided
    features: Features | None = None  # bound
    buffer: Transitions | None = None  # its first `n_sampled` rows are the sample: the first rows of the log
    n_sampled: int = 0
    capacity: int = 1  # of the sample; known when the first row has come
    observations: NDArray[Any] | None = None  # of the buffer's rows
    next_observations: NDArray[Any] | None = None
    action: NDArray[Any] | None = None  # where the log has actions
    starts: NDArray[np.bool_] | None = None  # first rows of episodes

    @property
    def n_waiting(self) -> int:
        """Rows that wait, for the pilot or the rest of their batch, and have not moved theta."""
        if self.learner is not None:
            return self.learner.n_waiting
        return 0 if self.sums is not None or self.linear is not None else self.n_rows

    @property
    def algorithm(self) -> Algorithm | None:
        """The algorithm with its present settings; None for the closed form, and before they are decided on."""
        run = self.learner or self.linear
        return None if run is None else run.algorithm

    def trim(self) -> FitState:
        """Return the state with its buffers cut to the rows in use."""
        learner, linear, sums, n = self.learner, self.linear, self.sums, self.n_sampled
        if learner is not None:
            learner = learner._replace(buffer=_cut(learner.buffer, learner.n_waiting), loop=None)
        if linear is not None:
            reservoir = linear.reservoir
            reservoir = reservoir._replace(buffer=_cut(reservoir.buffer, reservoir.n_kept))
            linear = linear._replace(reservoir=reservoir, loops=None)
        if sums is not None:
            sums = sums._replace(buffer=_cut(sums.buffer, sums.n_waiting), held=_cut(sums.held, sums.n_summed))
        return self._replace(
            learner=learner,
            linear=linear,
            sums=sums,
            buffer=_cut(self.buffer, n),
            observations=None if self.observations is None else self.observations[:n],
            next_observations=None if self.next_observations is None else self.next_observations[:n],
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
        got = f"{state.n_rows:,} of {setup.settings.pilot_rows:,} pilot rows" if state.n_rows else "none"
        raise NotFittedError("an evaluator must have seen rows", got, "call fit or partial_fit, or pass theta_0")
    return np.zeros(features.n_features)


def bind_features(setup: Setup, chunks: Sequence[Chunk]) -> Features:
    """Return the features with what they take from the rows of these chunks."""
    features, observations = setup.features, all_observations(chunks)
    if isinstance(features, TargetFeatures):
        return features.bind_pairs(observations, np.concatenate([chunk.action for chunk in chunks]))
    return features.bind(observations)


def usable_features(setup: Setup, state: FitState) -> Features | None:
    """Return the features, also before the pilot rows have come if they take nothing from data."""
    if state.features is None and state.waiting and not setup.features.needs_data:
        return setup.features.bind(state.waiting[0].observations)
    return state.features


def keep_until(state: FitState, last: int, rows: Transitions, chunk: Chunk, repeats: bool) -> FitState:
    """Keep the rows before `last` that are not kept yet; pilot rows are."""
    if repeats or (state.n_sampled == state.capacity and state.buffer is not None):
        return state
    first = max(0, state.n_sampled - state.n_rows)
    return state if first >= last else keep_rows(state, rows.part(first, last), chunk.part(first, last))


def keep_rows(state: FitState, rows: Transitions, chunk: Chunk) -> FitState:
    """Keep the first rows of the log, and their observations, as far as the buffer allows."""
    if state.observations is not None:
        check_alike(chunk.observations, state.observations)
    row_bytes = max(16 * rows.n_features, 2 * chunk.observations[:1].nbytes)
    is_linear = state.linear is not None and state.sums is None and chunk.action is None
    most = _LINEAR_ROWS if is_linear else _MOST_ROWS
    size = max(1, min(most, _MOST_BYTES // row_bytes))
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
            buffers[name] = _longer(getattr(state, name), first, values, size)
            buffers[name][first:last] = values[:n]
    buffer = append(state.buffer, first, rows.part(0, n), size)
    return state._replace(buffer=buffer, n_sampled=last, capacity=size, **buffers)


def check_alike(values: NDArray[Any], before: NDArray[Any], what: str = "observations") -> None:
    """Raise unless the observations or actions have the type and the shape of those before."""
    if values.dtype != before.dtype:
        raise DataError(
            f"{what} of all parts of a log must be of one type, {before.dtype}", values.dtype, "convert them"
        )
    if values.shape[1:] != before.shape[1:]:
        raise DataError(
            f"{what} must have one shape, {before.shape[1:]} per row",
            values.shape[1:],
            f"keep {what} of different shapes apart",
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
    """Return whether rows that come next go on from the last row, as far as that tells."""
    if state.waiting:
        return not state.waiting[-1].ends[-1]
    return state.episodes is not None and state.episodes.is_open


def is_same_log(one: FitState, other: FitState) -> bool:
    """Return whether two fits have received the same rows, as far as their number and the first ones tell."""
    if one.n_distinct != other.n_distinct or one.buffer is None or other.buffer is None:
        return False
    n = min(one.n_sampled, other.n_sampled)
    columns = [(getattr(one.buffer, name)[:n], getattr(other.buffer, name)[:n]) for name in ("reward", "ends")]
    if not all(np.array_equal(a, b) for a, b in columns):
        return False
    seen = [(one.observations, other.observations), (one.next_observations, other.next_observations)]
    pairs = [(a[:n], b[:n]) for a, b in seen if a is not None and b is not None]
    if all(a.shape == b.shape for a, b in pairs):
        return all(np.array_equal(a, b) for a, b in pairs)
    return bool(np.ptp(one.buffer.reward[:n]) > 0.0)  # other columns of the same rows; equal rewards tell nothing


def sample_of(state: FitState, n_rows: int | None = None) -> Transitions:
    """Return the first rows of the log, as many as are kept, or `n_rows` of them, in float64."""
    if state.buffer is None:
        raise NotFittedError("an evaluator must have seen rows", "none", "call fit or partial_fit")
    n = state.n_sampled if n_rows is None else min(n_rows, state.n_sampled)
    sample = state.buffer.part(0, n).as_float64()
    if sample.rank == 0:
        raise InvalidInputError(
            "some feature must not be 0 on every row", f"only zeros in the first {n:,} rows", "use other features"
        )
    return sample
