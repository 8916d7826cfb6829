"""Room for the transitions of a live environment, and the check of what is written into it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError, InvalidInputError
from vrtd.problems.environments import gymnasium_library

__all__ = ["Layout", "RowBuffer", "layout_of"]


class RowBuffer(NamedTuple):
    """The first five fields of a chunk, and the number of the step of each row."""

    observations: NDArray[Any]
    rewards: NDArray[np.float64]
    next_observations: NDArray[Any]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    steps: NDArray[np.int64]


class Layout(NamedTuple):
    """The shape and the type of one observation."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def room(self, *lead: int) -> RowBuffer:
        return RowBuffer(
            observations=np.empty((*lead, *self.shape), dtype=self.dtype),
            rewards=np.empty(lead),
            next_observations=np.empty((*lead, *self.shape), dtype=self.dtype),
            terminated=np.empty(lead, dtype=np.bool_),
            truncated=np.empty(lead, dtype=np.bool_),
            steps=np.empty(lead, dtype=np.int64),
        )

    def valid(self, observation: Any, step: int, n_envs: int | None = None) -> NDArray[Any]:
        """An observation as an array, or those of `n_envs` environments."""
        shape = self.shape if n_envs is None else (n_envs, *self.shape)
        try:
            array = np.asarray(observation)
        except ValueError:  # rows of different lengths
            array = np.empty(0, dtype=np.object_)
        # Assignment alone would spread one number over a row and cut fractions off.
        if array.shape != shape or (
            array.dtype is not self.dtype and not np.can_cast(array.dtype, self.dtype, "same_kind")
        ):
            raise DataError(
                f"observations must be what their space says, {self.dtype} of shape {shape}",
                f"{observation!r:.80} at step {step}",
                "repair the environment or its observation space",
            )
        return array


def layout_of(space: Any, is_vector: bool) -> Layout:
    """The layout of the observations of one environment."""
    spaces = gymnasium_library().spaces
    if isinstance(space, spaces.Discrete):
        return Layout((), np.dtype(np.int64))
    if isinstance(space, spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary):
        return Layout(tuple(space.shape), np.dtype(space.dtype))
    wrapper = "gymnasium.wrappers.vector.FlattenObservation" if is_vector else "gymnasium.wrappers.FlattenObservation"
    raise InvalidInputError(
        "the observation space must be Box, Discrete, MultiDiscrete or MultiBinary",
        f"{space!s:.100}",
        f"flatten it: {wrapper}(env)",
    )
