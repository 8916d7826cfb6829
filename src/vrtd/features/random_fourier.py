"""Random Fourier features: a Gaussian kernel in a number of columns that you choose, in any dimension."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import pi, sqrt
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats, frozen
from vrtd.checks import check_count, check_positive
from vrtd.errors import InvalidInputError
from vrtd.features.bounded import Bounded
from vrtd.features.features import check_most


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

    kind: ClassVar[str] = "rff"
    clips: ClassVar[bool] = False

    def _check_sizes(self) -> None:
        check_count("n", self.n)
        check_positive("bandwidth", self.bandwidth)
        check_count("seed", self.seed, least=0)
        if self.seed >= 2**64:
            raise InvalidInputError("seed must be below 2**64", self.seed, "pass a smaller one")
        object.__setattr__(self, "n", int(self.n))
        object.__setattr__(self, "bandwidth", float(self.bandwidth))
        object.__setattr__(self, "seed", int(self.seed))
        check_most(self.n, "lower n")

    def _check_dimensions(self, k: int) -> None:
        if self.n * k > 2**22:  # each is drawn anew in every process
            raise InvalidInputError(
                "n times the numbers in an observation must be at most 2**22", f"{self.n} times {k}", "lower n"
            )

    def _count(self, k: int) -> int:  # noqa: ARG002
        return self.n

    @property
    def largest_norm(self) -> float:
        return sqrt(2.0)

    def _fill(self, x: Floats, out: NDArray[np.floating[Any]], work: Floats) -> None:  # noqa: ARG002
        from vrtd.features.waves import waves

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
