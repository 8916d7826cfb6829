"""Gaussian bumps on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import exp, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats, frozen
from vrtd.checks import check_flag, check_positive, require
from vrtd.features.bounded import Bounded, as_sizes, check_length
from vrtd.features.features import MOST_FEATURES, set_count


@dataclass(frozen=True)
class RBF(Bounded):
    """exp(-sum_j (x_j - c_j)^2 / (2 w_j^2)) for centres c on a grid over the box, its faces included.

    `n`: at most so many centres in all, on the largest grid whose numbers for each dimension differ by one at most,
    the first ones being larger (20 in two dimensions: 5 x 4); or `shape`: how many along each dimension. w_j is `width`
    times the distance of neighbours; a single centre stands in the middle, with w_j = `width`. `normalise` divides by
    the sum over the centres, which makes the features shares; observations outside the bounds then count as on them,
    otherwise they are taken as they are and the features fade. `bias` puts a constant 1 first; unless it is given, it
    is there where features are not normalised: shares sum to 1 without it. The last dimension's centre runs fastest.

    >>> RBF(3, low=0, high=1)(np.array([0.5])).round(4).tolist()
    [[1.0, 0.6065, 1.0, 0.6065]]
    """

    n: int | None = None
    shape: Sequence[int] | None = field(default=None, kw_only=True)
    width: float = field(default=1.0, kw_only=True)
    bias: bool | None = field(default=None, kw_only=True)
    normalise: bool = field(default=False, kw_only=True)

    kind = "rbf"
    fewer = "use fewer centres"

    def _check_sizes(self) -> None:
        got = "neither" if self.n is None else f"n = {self.n!r:.40} and shape = {self.shape!r:.40}"
        require((self.n is None) != (self.shape is None), "either n or shape must be given", got, "pass one: RBF(20)")
        check_flag("normalise", self.normalise)
        if self.bias is None:
            object.__setattr__(self, "bias", not self.normalise)
        check_flag("bias", self.bias)
        object.__setattr__(self, "width", check_positive("width", self.width))
        do = "pass about 1; narrower bumps leave gaps between them"
        require(self.width >= 0.01, "width must be at least 0.01", self.width, do)
        set_count(self, "n", self.fewer)
        if self.shape is not None:
            object.__setattr__(self, "shape", as_sizes("shape", self.shape, "(5, 4)"))

    def _check_dimensions(self, k: int) -> None:
        if self.shape is not None:
            check_length("shape", self.shape, k)
        must, n = "centres times dimensions must be at most 2**22", self._count(k)  # for every observation
        require(n * k <= 2**22, must, f"{n} for {k} dimensions", "use rff features instead")

    def grid(self, k: int) -> tuple[int, ...]:
        """How many centres there are along each of k dimensions."""
        return _largest_grid(self.n, k) if self.n is not None else tuple(self.shape or ())

    def _count(self, k: int) -> int:
        return prod(self.grid(k)) + bool(self.bias)

    @property
    def largest_norm(self) -> float:
        if self.normalise:
            return sqrt(1.0 + bool(self.bias))
        # On the endless grid the squares sum to most at a centre (a theta function); fewer centres sum to no more.
        reach = int(min(7.0 * self.width, MOST_FEATURES)) + 1
        endless = 1.0 + 2.0 * sum(exp(-((m / self.width) ** 2)) for m in range(1, reach + 1))
        return sqrt(prod(min(float(size), endless) for size in self.grid(self.n_dimensions)) + bool(self.bias))

    @property
    def _n_work(self) -> int:
        return sum(self.grid(self.n_dimensions))

    def _fill(self, x: Floats, out: NDArray[np.floating[Any]], work: Floats) -> None:
        from vrtd.features.loops import products

        ends = np.cumsum(self.grid(len(x)))
        for row, bumps in zip(x, np.split(work, ends[:-1]), strict=True):
            self._along(row, bumps)  # a bump is a product of one-dimensional ones
        if self.bias:
            out[:, 0] = 1.0
        products(work, self._factors, out[:, int(bool(self.bias)) :])

    @cached_property
    def _factors(self) -> NDArray[np.intp]:
        """(k, d) which of all one-dimensional bumps a bump is made of."""
        grid = self.grid(self.n_dimensions)
        factors = np.empty((len(grid), prod(grid)), np.intp)
        period, start = prod(grid), 0
        for row, size in zip(factors, grid, strict=True):
            period //= size
            row[:] = start + np.arange(prod(grid)) // period % size
            start += size
        return frozen(factors)

    def _along(self, x: Floats, bumps: Floats) -> None:
        """The bumps (size, b) of one dimension."""
        size = len(bumps)
        if self.normalise:
            x = np.clip(x, 0.0, 1.0)
        # in units of w_j; centres are 0, 1, ... in units of their distance
        gaps, first = (size - 1, 0.0) if size > 1 else (1, 0.5)
        np.subtract(x * (gaps / self.width), (np.arange(size)[:, None] + first) / self.width, out=bumps)
        bumps *= bumps
        bumps *= -0.5
        if self.normalise:
            bumps -= bumps.max(axis=0)  # so that not all become 0
        np.exp(bumps, out=bumps)
        if self.normalise:
            total = np.zeros_like(x)
            for bump in bumps:  # one by one: NumPy's own sum has another order when there is one observation
                total += bump
            bumps /= total


def _largest_grid(n: int, k: int) -> tuple[int, ...]:
    least = 1
    while (least + 1) ** k <= n:
        least += 1
    larger = 0
    while larger + 1 < k and (least + 1) ** (larger + 1) * least ** (k - larger - 1) <= n:
        larger += 1
    return (least + 1,) * larger + (least,) * (k - larger)
