"""Tile coding: several grids over the box, each shifted by another part of a tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.checks import check_count
from vrtd.features.bounded import Bounded, as_sizes, check_length


@dataclass(frozen=True)
class Tiles(Bounded):
    """In each of n_tilings grids, 1 for the tile that holds the observation and 0 for all others.

    R. Sutton, A. Barto (2018), Reinforcement Learning, section 9.5.4. `tiles` along each dimension, or one number for
    all. Tiling i is shifted along dimension j by i (2j + 1) / n_tilings of a tile (whole tiles taken off): the
    asymmetric offsets 1, 3, 5, ...; n_tilings is best a power of 2 that is at least 4 times the number of dimensions.
    A tile is as large as makes every tiling cover the box with exactly `tiles`: 1 / (tiles - 1 + 1 / n_tilings) of it.
    Observations outside the bounds count as on them.

    >>> Tiles(2, 2, low=0, high=1)(np.array([0.0, 0.5, 1.0])).tolist()
    [[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 1.0]]
    """

    n_tilings: int = 8
    tiles: Sequence[int] | int = 8

    kind = "tiles"
    clips = True
    fewer = "use fewer tiles along each dimension, or fewer tilings"

    def _check_sizes(self) -> None:
        object.__setattr__(self, "n_tilings", check_count("n_tilings", self.n_tilings))
        several = isinstance(self.tiles, list | tuple)
        tiles = as_sizes("tiles", self.tiles, "(8, 8)") if several else check_count("tiles", self.tiles)
        object.__setattr__(self, "tiles", tiles)

    def _check_dimensions(self, k: int) -> None:
        if isinstance(self.tiles, tuple):
            check_length("tiles", self.tiles, k)
        super()._check_dimensions(k)

    def grid(self, k: int) -> tuple[int, ...]:
        """How many tiles there are along each of k dimensions."""
        return self.tiles if isinstance(self.tiles, tuple) else (self.tiles,) * k  # type: ignore[return-value]

    def _count(self, k: int) -> int:
        return self.n_tilings * prod(self.grid(k))

    @property
    def largest_norm(self) -> float:
        return sqrt(self.n_tilings)  # that of every row

    def _fill(self, x: Floats, out: NDArray[np.floating[Any]], work: Floats) -> None:  # noqa: ARG002
        bad = np.isnan(x).any(axis=0)
        x = np.where(np.isnan(x), 0.0, x)
        grid, n = self.grid(len(x)), self.n_tilings
        rows = np.arange(x.shape[1])
        out[...] = 0.0
        for tiling in range(n):
            tile = np.zeros(x.shape[1], np.intp)
            for j, size in enumerate(grid):
                # in parts of a tile, of which there are n: a shift is then a whole number
                parts = x[j] * (n * (size - 1) + 1) + tiling * (2 * j + 1) % n
                tile = tile * size + np.minimum((parts / n).astype(np.intp), size - 1)
            out[rows, tiling * prod(grid) + tile] = 1.0
        out[bad] = np.nan
