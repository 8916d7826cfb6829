"""Cosines of linear functions of the observation: the Fourier basis of a box, and random Fourier features."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import pi, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats, frozen
from vrtd.checks import check_count, check_positive, require
from vrtd.features.bounded import Bounded


@dataclass(frozen=True)
class Fourier(Bounded):
    """cos(pi c.x) for all c in {0, ..., order}^k, the constant first; x in [0, 1]^k.

    G. Konidaris, S. Osentoski, P. Thomas (2011), Value function approximation in reinforcement learning using the
    Fourier basis, AAAI. The last dimension's coefficient runs fastest. Observations outside the bounds count as on
    them.

    >>> Fourier(2, low=0, high=1)(np.array([0.5])).round(12).tolist()
    [[1.0, 0.0, -1.0]]
    """

    order: int

    kind = "fourier"
    clips = True
    fewer = "lower the order, or choose features that need not fill a grid, e.g. rff"

    def _check_sizes(self) -> None:
        object.__setattr__(self, "order", check_count("order", self.order, least=0))

    def _count(self, k: int) -> int:
        return int((self.order + 1) ** k)

    @property
    def largest_norm(self) -> float:
        return sqrt(self.n_features)  # at low, where all are 1

    def _fill(self, x: Floats, out: NDArray[np.floating[Any]], work: Floats) -> None:  # noqa: ARG002
        from vrtd.features.loops import waves

        waves(x, self._frequency, frozen(np.zeros(out.shape[1])), 1.0, out)
        out[:, 0] = 1.0 + 0.0 * x.sum(axis=0)  # the constant exactly, and NaN where x is

    @cached_property
    def _frequency(self) -> Floats:
        """(k, d) in turns: half of c, since the period is 2."""
        coefficients = list(product(range(self.order + 1), repeat=self.n_dimensions))
        return frozen(np.ascontiguousarray(np.array(coefficients, np.float64).T / 2.0))


@dataclass(frozen=True)
class RandomFourier(Bounded):
    """sqrt(2/n) cos(w.x + c) with w ~ N(0, 2 bandwidth I) and c ~ U[0, 2 pi]; x is in [0, 1]^k inside the bounds.

    phi(x).phi(x') approximates exp(-bandwidth |x - x'|^2): a larger bandwidth tells closer observations apart. A.
    Rahimi, B. Recht (2007), Random features for large-scale kernel machines, NeurIPS. Observations outside the bounds
    are taken as they are. With the same seed and dimensions, more features begin with the same w and c.

    >>> RandomFourier(100, seed=1).bind(np.zeros((5, 3)))(np.zeros((5, 3))).shape
    (5, 100)
    """

    n: int
    bandwidth: float = field(default=5.0, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    kind = "rff"
    fewer = "lower n"

    def _check_sizes(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n))
        object.__setattr__(self, "bandwidth", check_positive("bandwidth", self.bandwidth))
        object.__setattr__(self, "seed", check_count("seed", self.seed, least=0))
        require(self.seed < 2**64, "seed must be below 2**64", self.seed, "pass a smaller one")

    def _check_dimensions(self, k: int) -> None:
        must = "n times the numbers in an observation must be at most 2**22"  # each is drawn anew in every process
        require(self.n * k <= 2**22, must, f"{self.n} times {k}", self.fewer)

    def _count(self, k: int) -> int:  # noqa: ARG002
        return self.n

    @property
    def largest_norm(self) -> float:
        return sqrt(2.0)

    def _fill(self, x: Floats, out: NDArray[np.floating[Any]], work: Floats) -> None:  # noqa: ARG002
        from vrtd.features.loops import waves

        waves(x, *self._frequency_and_phase, sqrt(2.0 / self.n), out)

    @cached_property
    def _frequency_and_phase(self) -> tuple[Floats, Floats]:
        """w (k, n) and c (n,) in turns.

        From the raw words of the generator, which NumPy promises never to change; what it makes of them may change, and
        a stored model would then have other features.
        """
        k = self.n_dimensions
        words = np.random.PCG64(self.seed).random_raw(self.n * (k + 1)).reshape(self.n, k + 1)
        uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # inside (0, 1)
        frequency = np.empty((k, self.n))
        for j, row in enumerate(uniform):
            frequency[:, j] = [NormalDist().inv_cdf(u) for u in row[:-1].tolist()]
        frequency *= sqrt(2.0 * self.bandwidth) / (2.0 * pi)
        return frozen(frequency), frozen(np.ascontiguousarray(uniform[:, -1]))
