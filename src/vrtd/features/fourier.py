"""The Fourier basis of a box."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import sqrt
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats, frozen
from vrtd.checks import check_count
from vrtd.features.bounded import Bounded
from vrtd.features.features import check_most


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

    kind: ClassVar[str] = "fourier"
    clips: ClassVar[bool] = True

    def _check_sizes(self) -> None:
        check_count("order", self.order, least=0)
        object.__setattr__(self, "order", int(self.order))
        self._check_dimensions(1)  # fewest

    def _check_dimensions(self, k: int) -> None:
        check_most(self._count(k), "lower the order, or choose features that need not fill a grid, e.g. rff")

    def _count(self, k: int) -> int:
        return int((self.order + 1) ** k)

    @property
    def largest_norm(self) -> float:
        return sqrt(self.n_features)  # at low, where all are 1

    def _fill(self, x: Floats, out: NDArray[np.floating[Any]], work: Floats) -> None:  # noqa: ARG002
        from vrtd.features.waves import waves

        waves(x, self._frequency, frozen(np.zeros(out.shape[1])), 1.0, out)
        out[:, 0] = 1.0 + 0.0 * x.sum(axis=0)  # the constant exactly, and NaN where x is

    @cached_property
    def _frequency(self) -> Floats:
        """(k, d) in turns: half of c, since the period is 2."""
        coefficients = list(product(range(self.order + 1), repeat=self.n_dimensions))
        return frozen(np.ascontiguousarray(np.array(coefficients, np.float64).T / 2.0))
