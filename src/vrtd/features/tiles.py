"""Tile coding: several grids over the box, each with another offset."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.checks import check_count
from vrtd.features.bounded import Bounded, as_sizes, check_length
from vrtd.features.features import MOST_DENSE, MOST_SPARSE
from vrtd.sparse import indicator_rows


@dataclass(frozen=True)
class Tiles(Bounded):
    """Tile coding: in each of several grids, 1 for the tile that contains the observation and 0 for all others.

    Tiling i is shifted along dimension j by i (2j + 1) / n_tilings of a tile, modulo 1. These are the asymmetric
    offsets 1, 3, 5, ... A tile is 1 / (tiles - 1 + 1 / n_tilings) of the box, so that every tiling covers the box with
    exactly ``tiles`` tiles. Observations outside the bounds are moved to them.

    Parameters
    ----------
    n_tilings : int, default=8
        Number of tilings. It should be a power of 2, and at least 4 times the number of dimensions.
    tiles : int or sequence of int, default=8
        Number of tiles along each dimension, or one number for all dimensions.
    low, high : float or sequence of float, optional
        Bounds of the observations, one number per dimension. ``bind`` takes bounds that are None or infinite from data.

    References
    ----------
    Sutton, R. S., Barto, A. G. (2018), Reinforcement Learning: An Introduction, 2nd edition, section 9.5.4.

    Examples
    --------
    >>> Tiles(2, 2, low=0, high=1)(np.array([0.0, 0.5, 1.0])).tolist()
    [[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 1.0]]
    """

    n_tilings: int = 8
    tiles: Sequence[int] | int = 8

    kind = "tiles"
    clips = True
    most = MOST_SPARSE
    fewer = "Use fewer tiles along each dimension, or fewer tilings."

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
        """Return the number of tiles along each dimension.

        Parameters
        ----------
        k : int
            Number of dimensions.

        Returns
        -------
        tuple of int
            The k numbers.
        """
        return self.tiles if isinstance(self.tiles, tuple) else (self.tiles,) * k  # type: ignore[return-value]

    def _count(self, k: int) -> int:
        return self.n_tilings * prod(self.grid(k))

    @property
    def is_sparse(self) -> bool:
        """Whether rows are sparse."""
        return self.low is not None and self.n_features > MOST_DENSE

    @property
    def largest_norm(self) -> float:
        """Upper bound of the norm of every row."""
        return sqrt(self.n_tilings)  # the norm of every row

    def _fill(self, x: Floats, out: NDArray[np.floating[Any]], work: Floats) -> None:  # noqa: ARG002
        bad = np.isnan(x).any(axis=0)
        x = np.where(np.isnan(x), 0.0, x)
        rows, tiles = np.arange(x.shape[1]), prod(self.grid(len(x)))
        out[...] = 0.0
        for tiling, tile in enumerate(self._find(x)):
            out[rows, tiling * tiles + tile] = 1.0
        out[bad] = np.nan

    def _find(self, x: Floats) -> Iterator[NDArray[np.intp]]:
        """Yield the tile of each observation in each tiling."""
        grid, n = self.grid(len(x)), self.n_tilings
        for tiling in range(n):
            tile = np.zeros(x.shape[1], np.intp)
            for j, size in enumerate(grid):
                # in units of 1/n of a tile, in which a shift is a whole number
                parts = x[j] * (n * (size - 1) + 1) + tiling * (2 * j + 1) % n
                tile = tile * size + np.minimum((parts / n).astype(np.intp), size - 1)
            yield tile

    def _sparse_rows(self, x: Floats, dtype: np.dtype[Any]) -> Any:
        bad, tiles = np.asarray(np.isnan(x).any(axis=0)), prod(self.grid(len(x)))
        found = self._find(np.where(np.isnan(x), 0.0, x))
        places = np.stack([tiling * tiles + tile for tiling, tile in enumerate(found)], axis=1)
        return indicator_rows(places, ~bad, self.n_features, dtype)
