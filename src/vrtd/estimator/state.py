"""How a fit stands: the arguments of an evaluator, and one immutable state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.errors import NotFittedError
from vrtd.estimator.auto_settings import AutoSettings
from vrtd.estimator.learner import Learner
from vrtd.estimator.least_squares import Sums
from vrtd.features import Features
from vrtd.logs import Chunk
from vrtd.problems import Transitions


@dataclass(frozen=True, eq=False)
class Setup:
    """The arguments of an evaluator, checked."""

    settings: AutoSettings
    features: Features  # as they were given, perhaps not bound yet
    discount: float
    theta_0: Floats | None
    closed_form: bool  # whether to sum up the closed form of every row
    seed: int

    @property
    def waits(self) -> bool:
        """Whether nothing can be learned before the pilot rows have come."""
        return self.settings.needs_pilot or self.features.needs_data


class FitState(NamedTuple):
    """How a fit stands."""

    # What every piece changes, first: `fit` sets these by position.
    n_rows: int = 0  # received
    n_distinct: int = 0  # without those of later passes
    terminates: bool = False  # whether a transition has terminated; only kept for a discount of 1
    learner: Learner | None = None
    sums: Sums | None = None
    visited: NDArray[np.bool_] | None = None  # states, where features are a table of them

    n_pilot: int | None = None  # rows that waited before features and settings were decided
    n_expected: int | None = None  # rows in all, if it is known that no more will come
    is_weighted: bool | None = None  # None: no row has come
    is_checked: bool = False  # whether the step that was asked for has been checked
    remarks: tuple[str, ...] = ()  # on settings
    log_remarks: tuple[str, ...] = ()  # of the logs that were read
    segment: int | None = None  # consecutive steps of one of several environments that come together
    waiting: tuple[Chunk, ...] = ()  # rows before features or settings are decided
    features: Features | None = None  # bound
    room: Transitions | None = None  # its first `n_sampled` rows are the sample: the first rows of the log
    n_sampled: int = 0
    capacity: int = 1  # of the sample; known when the first row has come
    observations: NDArray[Any] | None = None  # of the room's rows
    next_observations: NDArray[Any] | None = None

    def trim(self) -> FitState:
        """Return the state with its rooms cut to the rows in use."""
        learner, sums, n = self.learner, self.sums, self.n_sampled
        if learner is not None:
            room = None if learner.room is None or not learner.n_waiting else learner.room.part(0, learner.n_waiting)
            learner = learner._replace(room=room, loop=None)
        if sums is not None:
            room = None if sums.room is None or not sums.n_waiting else sums.room.part(0, sums.n_waiting)
            sums = sums._replace(room=room)
        return self._replace(
            learner=learner,
            sums=sums,
            room=None if self.room is None else self.room.part(0, n),
            observations=None if self.observations is None else self.observations[:n],
            next_observations=None if self.next_observations is None else self.next_observations[:n],
        )


def start(setup: Setup, state: FitState) -> Floats:
    """Return the initial parameters."""
    if setup.theta_0 is not None:
        return setup.theta_0.copy()
    features = usable_features(setup, state)
    if features is None:
        raise NotFittedError("an evaluator must have seen rows", "none", "call fit or partial_fit, or pass theta_0")
    return np.zeros(features.n_features)


def usable_features(setup: Setup, state: FitState) -> Features | None:
    """Return the features, also before the pilot rows have come if they take nothing from data."""
    if state.features is None and state.waiting and not setup.features.needs_data:
        return setup.features.bind(state.waiting[0].observations)
    return state.features
