"""Polynomials: all monomials up to a total degree."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import combinations_with_replacement
from math import comb, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.checks import check_count
from vrtd.features.bounded import Bounded


@dataclass(frozen=True)
class Polynomial(Bounded):
    """Monomials x_1^e_1 ... x_k^e_k with e_1 + ... + e_k <= degree.

    x in [0, 1]^k is the observation, scaled by its bounds. Observations outside the bounds are moved to them. The
    monomials are sorted by degree, and within a degree by the powers of the first dimension: 1, x, y, x^2, xy, y^2.

    Parameters
    ----------
    degree : int
        Largest total degree.
    low, high : float or sequence of float, optional
        Bounds of the observations, one number per dimension. ``bind`` takes bounds that are None or infinite from data.

    Examples
    --------
    >>> Polynomial(2, low=(0, 0), high=(1, 1))(np.array([[0.5, 0.1]])).round(3).tolist()
    [[1.0, 0.5, 0.1, 0.25, 0.05, 0.01]]
    """

    degree: int

    kind = "polynomial"
    clips = True
    fewer = "Lower the degree."

    def _check_sizes(self) -> None:
        object.__setattr__(self, "degree", check_count("degree", self.degree, least=0))

    def _count(self, k: int) -> int:
        return comb(k + self.degree, self.degree)

    @property
    def largest_norm(self) -> float:
        """Upper bound of the norm of every row."""
        return sqrt(self.n_features)  # at high, where all features are 1

    @property
    def _n_work(self) -> int:
        return self.n_features

    def _fill(self, x: Floats, out: NDArray[np.floating[Any]], work: Floats) -> None:
        work[0] = 1.0 + 0.0 * x.sum(axis=0)  # NaN where x is NaN
        for column, (parent, dimension) in enumerate(_products(len(x), self.degree), start=1):
            np.multiply(work[parent], x[dimension], out=work[column])
        out[...] = work.T


@cache
def _products(k: int, degree: int) -> tuple[tuple[int, int], ...]:
    """Return each monomial except the constant as an earlier one (its number) times a dimension."""
    place: dict[tuple[int, ...], int] = {(): 0}
    products = []
    for total in range(1, degree + 1):
        for factors in combinations_with_replacement(range(k), total):
            place[factors] = len(place)
            products.append((place[factors[:-1]], factors[-1]))
    return tuple(products)
