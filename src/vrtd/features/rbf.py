"""Gaussian bumps on a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, prod, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats, frozen
from vrtd.checks import check_flag, check_positive, require
from vrtd.features.bounded import Bounded, as_sizes, check_length
from vrtd.features.features import MOST_FEATURES, set_count
from vrtd.lazy import cached_property


@dataclass(frozen=True)
class RBF(Bounded):
    """Gaussian bumps exp(-sum_j (x_j - c_j)^2 / (2 w_j^2)) with centres c on a grid.

    x is the observation, scaled by its bounds to [0, 1]^k. The grid covers the box, including its faces. The centre of
    the last dimension changes fastest. A dimension with a single centre has it in the middle, with w_j = ``width``.

    Parameters
    ----------
    n : int, optional
        Largest number of centres. They form the largest grid whose numbers per dimension differ by at most one, with
        the larger ones first: 20 in two dimensions give 5 x 4. Pass either ``n`` or ``shape``.
    low, high : float or sequence of float, optional
        Bounds of the observations, one number per dimension. ``bind`` takes bounds that are None or infinite from data.
    shape : sequence of int, optional
        Number of centres along each dimension.
    width : float, default=1.0
        Width w_j of the bumps, in units of the distance between neighbouring centres.
    bias : bool, optional
        Whether the first feature is a constant 1. If not given, it is, unless the features are normalised.
    normalise : bool, default=False
        Divide the bumps by their sum over the centres. Observations outside the bounds are then moved to them. Without
        normalisation they are not moved, and the features decrease to 0.

    Examples
    --------
    >>> RBF(3, low=0, high=1)(np.array([0.5])).round(4).tolist()
    [[1.0, 0.6065, 1.0, 0.6065]]
    """

    n: int | None = None
    shape: Sequence[int] | None = field(default=None, kw_only=True)
    width: float = field(default=1.0, kw_only=True)
    bias: bool | None = field(default=None, kw_only=True)
    normalise: bool = field(default=False, kw_only=True)

    kind = "rbf"
    fewer = "Use fewer centres."

    def _check_sizes(self) -> None:
        passed = "neither" if self.n is None else f"n = {self.n!r:.40} and shape = {self.shape!r:.40}"
        require(
            (self.n is None) != (self.shape is None),
            f"Exactly one of n and shape must be passed, but got {passed}.",
            "Pass one of them, e.g. RBF(20).",
        )
        check_flag("normalise", self.normalise)
        if self.bias is None:
            object.__setattr__(self, "bias", not self.normalise)
        check_flag("bias", self.bias)
        object.__setattr__(self, "width", check_positive("width", self.width))
        require(
            self.width >= 0.01,
            f"width must be at least 0.01, but got {self.width}.",
            "Pass about 1, because narrow bumps leave gaps between them.",
        )
        set_count(self, "n", self.fewer)
        if self.shape is not None:
            object.__setattr__(self, "shape", as_sizes("shape", self.shape, "(5, 4)"))

    def _check_dimensions(self, k: int) -> None:
        if self.shape is not None:
            check_length("shape", self.shape, k)
        n = self._count(k)
        require(
            n * k <= 2**22,  # the work per observation
            f"The number of centres times dimensions must be at most 2**22, but there are {n} in {k} dimensions.",
            "Use rff features instead.",
        )

    def grid(self, k: int) -> tuple[int, ...]:
        """Return the number of centres along each dimension.

        Parameters
        ----------
        k : int
            Number of dimensions.

        Returns
        -------
        tuple of int
            The k numbers.
        """
        return _largest_grid(self.n, k) if self.n is not None else tuple(self.shape or ())

    def _count(self, k: int) -> int:
        return prod(self.grid(k)) + bool(self.bias)

    @property
    def largest_norm(self) -> float:
        """Upper bound of the norm of every row."""
        if self.normalise:
            return sqrt(1.0 + bool(self.bias))
        # On an infinite grid, the sum of squares is largest at a centre (a theta function). Fewer centres sum to less.
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
        """Numbers of the one-dimensional bumps of which each bump is the product, of shape (k, d)."""
        grid = self.grid(self.n_dimensions)
        factors = np.empty((len(grid), prod(grid)), np.intp)
        period, start = prod(grid), 0
        for row, size in zip(factors, grid, strict=True):
            period //= size
            row[:] = start + np.arange(prod(grid)) // period % size
            start += size
        return frozen(factors)

    def _along(self, x: Floats, bumps: Floats) -> None:
        """Write the bumps (size, b) of one dimension."""
        size = len(bumps)
        if self.normalise:
            x = np.clip(x, 0.0, 1.0)
        # In units of w_j. The centres are 0, 1, ... in units of their distance.
        gaps, first = (size - 1, 0.0) if size > 1 else (1, 0.5)
        np.subtract(x * (gaps / self.width), (np.arange(size)[:, None] + first) / self.width, out=bumps)
        bumps *= bumps
        bumps *= -0.5
        if self.normalise:
            bumps -= bumps.max(axis=0)  # so that not all underflow to 0
        np.exp(bumps, out=bumps)
        if self.normalise:
            total = np.zeros_like(x)
            for bump in bumps:  # in a fixed order, which NumPy's sum does not have for a single observation
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
