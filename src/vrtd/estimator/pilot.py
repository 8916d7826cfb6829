"""What the first rows show of a problem: the sample on which settings, intervals and diagnostics rest."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import InvalidInputError
from vrtd.estimator.rows import Rows
from vrtd.theory import TransitionSample

__all__ = ["Pilot", "rows_that_fit"]

Floats = NDArray[np.float64]

# Of the sample. Intervals need more rows than settings do: rare rewards must have come often enough.
_MOST_ROWS, _MOST_BYTES = 50_000, 1 << 25
_LEAST_SIZE = 1e-60
_RANK_TOLERANCE = 1e-5  # of the largest singular value: directions below it are not learned in any number of rows


def rows_that_fit(n_features: int) -> int:
    """How many of the first rows are kept as a sample."""
    return max(1, min(_MOST_ROWS, _MOST_BYTES // (16 * n_features)))


class Pilot:
    """Consecutive rows, with coordinates in which their features have full rank.

    TD methods from any theta_0 never leave theta_0 + span of the feature rows, and are the same in every orthonormal
    basis of it: `basis` (d, r) turns dependent features, and states that were never seen, into r that are not.
    """

    def __init__(self, rows: Rows, observations: tuple[NDArray[Any], NDArray[Any]], discount: float) -> None:
        self.observations = observations  # (n, ...) and those of the successors: they tell states apart
        for name, values in (("features", rows.phi), ("rewards", rows.reward)):
            largest = float(np.abs(values).max(initial=0.0))
            if largest and not _LEAST_SIZE < largest < 1.0 / _LEAST_SIZE:
                raise InvalidInputError(
                    f"{name} must be of a size that can be squared and divided by, {_LEAST_SIZE:g} to "
                    f"{1.0 / _LEAST_SIZE:g}",
                    f"{largest:.3g} as the largest",
                    "scale them",
                )
        # A row with weight w is the row with all its numbers times sqrt(w).
        scale = np.sqrt(rows.weight) if rows.weight.size else np.ones(1)
        phi, phi_next, reward = rows.phi * scale[:, None], rows.phi_next * scale[:, None], rows.reward * scale
        self.phi = rows.phi.astype(np.float64)
        values, vectors = np.linalg.eigh(phi.T @ phi)
        kept = values > _RANK_TOLERANCE**2 * values[-1] if values[-1] > 0.0 else np.zeros(len(values), bool)
        if not kept.any():
            raise InvalidInputError(
                "some feature must not be 0 on every row",
                f"only zeros in the first {len(reward):,} rows",
                "bring other features",
            )
        self.rank = int(kept.sum())
        self.condition_number = float(np.sqrt(values[-1] / values[kept][0]))
        # Features that are zero throughout leave unit vectors: the others keep their own coordinates where they can.
        self.basis = np.eye(len(values)) if kept.all() else np.ascontiguousarray(vectors[:, kept])
        self._discount = np.where(rows.terminated, 0.0, discount)
        self._phi_next, self._reward, self._weighted = phi_next, reward, phi

    @cached_property
    def sample(self) -> TransitionSample:
        """In the coordinates of `basis`."""
        return TransitionSample(self._weighted @ self.basis, self._reward, self._phi_next @ self.basis, self._discount)

    def __len__(self) -> int:
        return len(self._reward)

    @property
    def largest_norm(self) -> float:
        return float(np.sqrt(np.square(self.phi).sum(axis=1).max()))

    def knows(self, phi: Floats) -> NDArray[np.bool_]:
        """Which feature rows lie in the span of the sample's: of the others it says nothing."""
        if self.rank == phi.shape[1]:
            return np.ones(len(phi), bool)
        outside = phi - (phi @ self.basis) @ self.basis.T
        known: NDArray[np.bool_] = np.square(outside).sum(axis=1) <= 1e-6 * np.square(phi).sum(axis=1)
        return known
