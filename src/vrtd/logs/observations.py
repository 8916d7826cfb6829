"""Conversion of observations of Gymnasium spaces to arrays, and their description for features."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError, InvalidInputError
from vrtd.features import Column, ObservationSpace
from vrtd.logs.log import Chunk
from vrtd.problems.environments import gymnasium_library

_REPAIR = "Fix the environment or its observation space."


class _Leaf(NamedTuple):
    """Space of arrays and its path in a Dict or Tuple space."""

    path: tuple[Any, ...]  # keys of Dict spaces, indices in Tuple spaces
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    low: NDArray[Any]  # (n,) bounds of all numbers
    high: NDArray[Any]
    is_discrete: bool
    is_numbered: bool  # whether the order of the values has no meaning, so that they become one-hot beside floats

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each discrete number."""
        return tuple(int(size) for size in self.high - self.low + 1)

    @property
    def name(self) -> str:
        """Path as text."""
        return ".".join(map(str, self.path))

    def check(self, observation: Any, step: int, n_envs: int | None) -> NDArray[Any]:
        """Return an observation, or those of `n_envs` environments, as a checked array."""
        shape = self.shape if n_envs is None else (n_envs, *self.shape)
        try:
            array = np.asarray(observation)
        except ValueError:  # rows of different lengths
            array = np.empty(0, dtype=np.object_)
        # Without this check, assignment would broadcast a single number over a row and truncate fractions.
        if array.shape != shape or (
            array.dtype is not self.dtype and not np.can_cast(array.dtype, self.dtype, "same_kind")
        ):
            raise DataError(
                f"Observations must be {self.dtype} of shape {shape}, as in their space, "
                f"but the observation at step {step} is {observation!r:.80}.",
                _REPAIR,
            )
        return array

    def flatten(self, observation: Any, step: int, n_envs: int | None, as_one_hot: bool) -> NDArray[Any]:
        """Return the numbers of this part of an observation along the last axis, discrete ones perhaps as one-hot."""
        try:
            for key in self.path:
                observation = observation[key]
        except (LookupError, TypeError):
            raise DataError(
                f"The observation at step {step} lacks the part {self.name!r} of its space.", _REPAIR
            ) from None
        flat = self.check(observation, step, n_envs).reshape(*(() if n_envs is None else (n_envs,)), len(self.low))
        if not (as_one_hot and self.is_numbered):
            return flat
        if ((flat < self.low) | (flat > self.high)).any():
            raise DataError(
                f"The part {self.name!r} of the observation at step {step} is outside its space: {observation!r:.80}.",
                _REPAIR,
            )
        columns = zip(np.moveaxis(flat - self.low, -1, 0), self.sizes, strict=True)
        return np.concatenate([np.eye(size, dtype=np.int8)[column] for column, size in columns], axis=-1)


class Layout(NamedTuple):
    """Shape and type of an observation in a log, and its conversion from the observation of an environment."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    leaves: tuple[_Leaf, ...]

    @property
    def is_flattened(self) -> bool:
        """Whether observations are Dict or Tuple, whose numbers are concatenated."""
        return self.leaves[0].path != ()

    @property
    def _is_discrete(self) -> bool:
        return all(leaf.is_discrete for leaf in self.leaves)

    def allocate(self, n_rows: int) -> Chunk:
        """Allocate a chunk of `n_rows` rows to be written later."""
        observations, successors = (np.empty((n_rows, *self.shape), dtype=self.dtype) for _ in range(2))
        terminated, truncated = np.empty((2, n_rows), dtype=np.bool_)
        return Chunk(observations, np.empty(n_rows), successors, terminated, truncated)

    def check(self, observation: Any, step: int, n_envs: int | None = None) -> NDArray[Any]:
        """Return an observation, or those of `n_envs` environments, as a checked array."""
        if not self.is_flattened:
            return self.leaves[0].check(observation, step, n_envs)
        parts = [leaf.flatten(observation, step, n_envs, not self._is_discrete) for leaf in self.leaves]
        return np.concatenate(parts, axis=-1).astype(self.dtype, copy=False)

    @property
    def space(self) -> ObservationSpace:
        """Description of the observations for features. Numbers of a Dict have names."""
        if self._is_discrete:
            is_counted = all((leaf.low >= 0).all() for leaf in self.leaves)
            sizes = [int(high) + 1 for leaf in self.leaves for high in leaf.high] if is_counted else []
            return ObservationSpace("states", self._columns, tuple(sizes))
        low: list[float | None] = []
        high: list[float | None] = []
        for leaf in self.leaves:
            n = sum(leaf.sizes) if leaf.is_numbered else 0
            low += [0.0] * n if leaf.is_numbered else [_as_bound(value) for value in leaf.low]
            high += [1.0] * n if leaf.is_numbered else [_as_bound(value) for value in leaf.high]
        return ObservationSpace("box", self._columns, low=tuple(low), high=tuple(high))

    @property
    def _columns(self) -> tuple[Column, ...]:
        if not any(isinstance(key, str) for leaf in self.leaves for key in leaf.path):
            return ()  # numbers of a Tuple have no names
        return tuple(Column(name) for leaf in self.leaves for name in _names(leaf, not self._is_discrete))


def layout_of(space: Any) -> Layout:
    """Return the layout of the observations of one environment."""
    leaves = tuple(_find_leaves(space, ()))
    if not leaves:
        raise InvalidInputError(f"The observation space {space!s:.100} contains no numbers.", "Add a part to it.")
    (first, *others) = leaves
    if not first.path:
        return Layout(first.shape, first.dtype, leaves)
    if all(leaf.is_discrete for leaf in leaves):
        return Layout((sum(len(leaf.low) for leaf in leaves),), np.dtype(np.int64), leaves)
    n_numbers = sum(sum(leaf.sizes) if leaf.is_numbered else len(leaf.low) for leaf in leaves)
    return Layout((n_numbers,), np.result_type(first.dtype, *(leaf.dtype for leaf in others)), leaves)


def _find_leaves(space: Any, path: tuple[Any, ...]) -> Iterator[_Leaf]:
    spaces = gymnasium_library().spaces
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from _find_leaves(part, (*path, key))
        return
    if isinstance(space, spaces.Discrete):
        low = np.array([space.start], np.int64)
        yield _Leaf(path, (), np.dtype(np.int64), low, low + int(space.n) - 1, True, True)
    elif isinstance(space, spaces.MultiDiscrete):
        low = np.asarray(space.start, np.int64).ravel()
        high = low + np.asarray(space.nvec, np.int64).ravel() - 1
        yield _Leaf(path, tuple(space.shape), space.dtype, low, high, True, True)
    elif isinstance(space, spaces.MultiBinary):
        low = np.zeros(prod(space.shape), np.int64)
        yield _Leaf(path, tuple(space.shape), space.dtype, low, low + 1, True, False)
    elif isinstance(space, spaces.Box):
        yield _Leaf(path, tuple(space.shape), space.dtype, space.low.ravel(), space.high.ravel(), False, False)
    else:
        raise InvalidInputError(
            "The observation space must be Box, Discrete, MultiDiscrete or MultiBinary, "
            f"or a Dict or Tuple of these, but is {space!s:.100}.",
            "Convert the observations to numbers with gymnasium.wrappers.TransformObservation.",
        )


def _names(leaf: _Leaf, as_one_hot: bool) -> Iterator[str]:
    several = len(leaf.low) > 1
    for j, (low, high) in enumerate(zip(leaf.low, leaf.high, strict=True)):
        name = f"{leaf.name}[{j}]" if several else leaf.name
        if as_one_hot and leaf.is_numbered:
            yield from (f"{name}={value}" for value in range(int(low), int(high) + 1))
        else:
            yield name


def _as_bound(value: Any) -> float | None:
    return float(value) if isfinite(value) else None
