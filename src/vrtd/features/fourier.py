"""Cosines of linear functions of the observation: the Fourier basis of a box, and random Fourier features."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import pi, sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats, frozen
from vrtd.checks import check_count, check_positive, require
from vrtd.features.bounded import Bounded
from vrtd.lazy import cached_property


@dataclass(frozen=True)
class Fourier(Bounded):
    """Fourier basis: cos(pi c.x) for all c in {0, ..., order}^k.

    x in [0, 1]^k is the observation, scaled by its bounds. Observations outside the bounds are moved to them. The first
    feature is the constant, and the coefficient of the last dimension changes fastest.

    Parameters
    ----------
    order : int
        Largest coefficient. There are (order + 1)^k features in k dimensions.
    low, high : float or sequence of float, optional
        Bounds of the observations, one number per dimension. ``bind`` takes bounds that are None or infinite from data.

    References
    ----------
    Konidaris, G., Osentoski, S., Thomas, P. (2011), Value function approximation in reinforcement learning using the
    Fourier basis, AAAI.

    Examples
    --------
    >>> Fourier(2, low=0, high=1)(np.array([0.5])).round(12).tolist()
    [[1.0, 0.0, -1.0]]
    """

    order: int

    kind = "fourier"
    clips = True
    fewer = "Lower the order, or choose features that do not form a grid, e.g. rff."

    def _check_sizes(self) -> None:
        object.__setattr__(self, "order", check_count("order", self.order, least=0))

    def _count(self, k: int) -> int:
        return int((self.order + 1) ** k)

    @property
    def largest_norm(self) -> float:
        """Upper bound of the norm of every row."""
        return sqrt(self.n_features)  # at low, where all features are 1

    def _fill(self, x: Floats, out: NDArray[np.floating[Any]], work: Floats) -> None:  # noqa: ARG002
        from vrtd.features.loops import waves

        waves(x, self._frequency, frozen(np.zeros(out.shape[1])), 1.0, out)
        out[:, 0] = 1.0 + 0.0 * x.sum(axis=0)  # exactly 1, and NaN where x is NaN

    @cached_property
    def _frequency(self) -> Floats:
        """Frequencies in turns, (k, d): half of c, since the period is 2."""
        coefficients = list(product(range(self.order + 1), repeat=self.n_dimensions))
        return frozen(np.ascontiguousarray(np.array(coefficients, np.float64).T / 2.0))


@dataclass(frozen=True)
class RandomFourier(Bounded):
    """Random Fourier features sqrt(2/n) cos(w.x + c), with w ~ N(0, 2 bandwidth I) and c ~ U[0, 2 pi].

    x is the observation, scaled by its bounds to [0, 1]^k. Observations outside the bounds are not moved. The product
    phi(x).phi(x') approximates the kernel ``exp(-bandwidth |x - x'|^2)``. With the same seed and dimensions, a larger n
    begins with the same w and c.

    Parameters
    ----------
    n : int
        Number of features.
    low, high : float or sequence of float, optional
        Bounds of the observations, one number per dimension. ``bind`` takes bounds that are None or infinite from data.
    bandwidth : float, default=5.0
        Bandwidth of the kernel. A larger bandwidth separates closer observations.
    seed : int, default=0
        Seed of w and c.

    References
    ----------
    Rahimi, A., Recht, B. (2007), Random features for large-scale kernel machines, NeurIPS.

    Examples
    --------
    >>> RandomFourier(100, seed=1).bind(np.zeros((5, 3)))(np.zeros((5, 3))).shape
    (5, 100)
    """

    n: int
    bandwidth: float = field(default=5.0, kw_only=True)
    seed: int = field(default=0, kw_only=True)

    kind = "rff"
    fewer = "Lower n."

    def _check_sizes(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n))
        object.__setattr__(self, "bandwidth", check_positive("bandwidth", self.bandwidth))
        object.__setattr__(self, "seed", check_count("seed", self.seed, least=0))
        require(self.seed < 2**64, f"seed must be below 2**64, but got {self.seed}.", "Pass a smaller number.")

    def _check_dimensions(self, k: int) -> None:
        # The frequencies are not stored, but drawn again in every process.
        require(
            self.n * k <= 2**22,
            f"n times the number of dimensions must be at most 2**22, but is {self.n} times {k}.",
            self.fewer,
        )

    def _count(self, k: int) -> int:  # noqa: ARG002
        return self.n

    @property
    def largest_norm(self) -> float:
        """Upper bound of the norm of every row."""
        return sqrt(2.0)

    def _fill(self, x: Floats, out: NDArray[np.floating[Any]], work: Floats) -> None:  # noqa: ARG002
        from vrtd.features.loops import waves

        waves(x, *self._frequency_and_phase, sqrt(2.0 / self.n), out)

    @cached_property
    def _frequency_and_phase(self) -> tuple[Floats, Floats]:
        """Frequencies w (k, n) and phases c (n,) in turns.

        They are computed from the raw words of the generator, which NumPy guarantees never to change. Its distributions
        may change, and a stored model would then have other features.
        """
        k = self.n_dimensions
        words = np.random.PCG64(self.seed).random_raw(self.n * (k + 1)).reshape(self.n, k + 1)
        uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52  # inside (0, 1)
        frequency = np.empty((k, self.n))
        for j, row in enumerate(uniform):
            frequency[:, j] = [NormalDist().inv_cdf(u) for u in row[:-1].tolist()]
        frequency *= sqrt(2.0 * self.bandwidth) / (2.0 * pi)
        return frozen(frequency), frozen(np.ascontiguousarray(uniform[:, -1]))
