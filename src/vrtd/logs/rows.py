"""Room for the transitions of a live environment, and the check of what is written into it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError, InvalidInputError
from vrtd.logs.log import Chunk
from vrtd.problems.environments import gymnasium_library


class Layout(NamedTuple):
    """The shape and the type of one observation."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def room(self, n_rows: int) -> Chunk:
        """Allocate a chunk of `n_rows` rows that are written later."""
        return Chunk(
            observations=np.empty((n_rows, *self.shape), dtype=self.dtype),
            reward=np.empty(n_rows),
            next_observations=np.empty((n_rows, *self.shape), dtype=self.dtype),
            terminated=np.empty(n_rows, dtype=np.bool_),
            truncated=np.empty(n_rows, dtype=np.bool_),
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
