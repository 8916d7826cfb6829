"""What the first rows show of a problem: the sample on which settings, intervals and diagnostics rest."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import InvalidInputError
from vrtd.estimator.least_squares import solve_scaled
from vrtd.estimator.rows import Rows
from vrtd.theory import TransitionSample
from vrtd.theory.rows import TransitionRows, block_correlation, block_covariances, block_means

__all__ = ["Pilot", "rows_that_fit"]

Floats = NDArray[np.float64]

# Of the sample. Intervals need more rows than settings do: rare rewards must have come often enough.
_MOST_ROWS, _MOST_BYTES = 50_000, 1 << 25
_LEAST_SIZE = 1e-60
_OUTSIDE = 1e-6  # share of a row's square that may lie outside of what the sample spans
_LEAST_ROWS = 10  # of the sample in which a feature is not 0, for intervals
_MOST_BLOCKS, _LEAST_BLOCKS, _LEAST_BLOCK = 256, 64, 4  # blocks that show the correlation, and rows in each
_MERGED = 4  # blocks that are taken together for a variance, so that adjacent ones are nearly independent
_RANK_TOLERANCE = 1e-5  # of the largest singular value: directions below it are not learned in any number of rows


def rows_that_fit(n_features: int, observation_bytes: int) -> int:
    """How many of the first rows are kept as a sample, with their observations."""
    return max(1, min(_MOST_ROWS, _MOST_BYTES // max(16 * n_features, 2 * observation_bytes)))


class Pilot:
    """Consecutive rows, with coordinates in which their features have full rank.

    TD methods from any theta_0 never leave theta_0 + span of the feature rows, and are the same in every orthonormal
    basis of it: `basis` (d, r) turns dependent features, and states that were never seen, into r that are not.
    """

    def __init__(
        self, rows: Rows, observations: tuple[NDArray[Any], NDArray[Any]], discount: float, theta_0: Floats
    ) -> None:
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
        gram = phi.T @ phi
        self._gram = gram
        norms = np.sqrt(np.diag(gram))
        used = np.flatnonzero(norms > 0.0)
        if not used.size:
            raise InvalidInputError(
                "some feature must not be 0 on every row",
                f"only zeros in the first {len(reward):,} rows",
                "bring other features",
            )
        # The rank is judged with all columns of one size: a small scale is no dependence.
        values, vectors = np.linalg.eigh(gram[np.ix_(used, used)] / np.outer(norms[used], norms[used]))
        kept = values > _RANK_TOLERANCE**2 * values[-1]
        self.rank = int(kept.sum())
        self.condition_number = float(np.sqrt(values[-1] / values[kept][0]))
        self.basis = _complement(vectors[:, ~kept] / norms[used, None], used, len(norms))
        self.rare = (rows.phi != 0.0).sum(axis=0) < _LEAST_ROWS  # too seldom for their noise to be known
        self._discount = np.where(rows.terminated, 0.0, discount)
        # What theta_0 has outside of the span never changes: it is a part of the reward.
        self._outside = theta_0 - self.basis @ (self.basis.T @ theta_0)
        if self.rank < len(norms):
            reward = reward + (self._discount[:, None] * phi_next - phi) @ self._outside
        self._phi_next, self._reward, self._weighted, self._rows = phi_next, reward, phi, rows

    @cached_property
    def sample(self) -> TransitionSample:
        """In the coordinates of `basis`."""
        return TransitionSample(self._weighted @ self.basis, self._reward, self._phi_next @ self.basis, self._discount)

    @cached_property
    def rows(self) -> TransitionRows:
        """As they are, with their weights, in the coordinates of `basis`."""
        r = self._rows
        weight = r.weight if r.weight.size else None
        return TransitionRows(r.phi @ self.basis, r.reward, r.phi_next @ self.basis, self._discount, weight)

    @cached_property
    def theta_star(self) -> Floats:
        """(d,) the closed form of the sample; nan where there is none."""
        return np.asarray(self.basis @ self._solution[0] + self._outside)

    @cached_property
    def influence(self) -> Floats:
        """(B, d) by how much each block of rows moves the closed form of the sample: block means of -A^-1 g_x."""
        return np.asarray(self._solution[1] @ self.basis.T)

    @property
    def merged_influence(self) -> Floats:
        """(B / 4, d) the same of longer blocks."""
        return block_means(self.influence, self._n_blocks // _MERGED)

    @cached_property
    def _solution(self) -> tuple[Floats, Floats]:
        """The closed form and its block influence in the coordinates of `basis`."""
        phi, n = self._weighted, len(self)
        psi = self._discount[:, None] * self._phi_next - phi
        if self.rank < phi.shape[1]:
            phi, psi = phi @ self.basis, psi @ self.basis
        A, b, size = phi.T @ psi / n, phi.T @ self._reward / n, np.sqrt(np.square(phi).mean(axis=0))
        try:
            theta = -solve_scaled(A, b, size)
            noise = block_means(phi * (self._reward + psi @ theta)[:, None], self._n_blocks)
            return theta, -solve_scaled(A, noise.T, size).T
        except np.linalg.LinAlgError:
            return np.full(self.rank, np.nan), np.full((self._n_blocks, self.rank), np.nan)

    @property
    def _n_blocks(self) -> int:
        return _MERGED * max(2, min(_MOST_BLOCKS, len(self) // _LEAST_BLOCK) // _MERGED)

    @cached_property
    def effective_blocks(self) -> float:
        """How many independent blocks the slowest direction is worth, of at most 256; nan for fewer than 256 rows.

        Block means that follow an AR(1) process with correlation k are worth B (1 - k) / (1 + k) independent ones. The
        directions are those of the features, on which A rests, and those of the influence, on which the values rest.
        """
        B, scale = self._n_blocks, self.phi.std(axis=0)
        if B < _LEAST_BLOCKS:
            return float("nan")
        scaled = self.phi / np.where(scale > 0.0, scale, 1.0)
        centred = scaled - scaled.mean(axis=0)
        metric = np.linalg.pinv(centred.T @ centred / len(self), rcond=_RANK_TOLERANCE**2, hermitian=True)
        k = max(0.0, block_correlation(block_means(centred, B), metric))
        if np.isfinite(self.influence).all():
            k = max(k, block_correlation(self.influence, self._second_moment))
        return B * (1.0 - k) / (1.0 + k)

    @cached_property
    def _second_moment(self) -> Floats:
        """(d, d) the mean of phi phi^T."""
        gram = self.phi.T @ self.phi if self._rows.weight.size else self._gram
        return np.asarray(gram / len(self))

    @np.errstate(over="ignore", invalid="ignore")  # a run that diverged is infinitely far away
    def value_distance(self, theta: Floats) -> float:
        """Root mean square of phi.(theta - theta_star) over the sample."""
        u = theta - self.theta_star
        return float(np.sqrt(np.maximum(u @ self._second_moment @ u, 0.0)))

    @cached_property
    def value_error(self) -> float:
        """Root mean square over the sample of the standard error of phi.theta_star."""
        own, _ = block_covariances(self.merged_influence)
        return float(np.sqrt((own * self._second_moment).sum()))

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
        known: NDArray[np.bool_] = np.square(outside).sum(axis=1) <= _OUTSIDE * np.square(phi).sum(axis=1)
        return known


def _complement(null: Floats, used: NDArray[np.int64], d: int) -> Floats:
    """(d, r) an orthonormal basis of what is orthogonal to the null vectors of the used features and to the others."""
    unused = np.setdiff1d(np.arange(d), used)
    if not null.size and not unused.size:
        return np.eye(d)
    directions = np.zeros((d, null.shape[1] + unused.size))
    directions[used, : null.shape[1]] = null
    directions[unused, null.shape[1] + np.arange(unused.size)] = 1.0
    Q = np.linalg.qr(directions, mode="complete")[0]
    return np.ascontiguousarray(Q[:, directions.shape[1] :])
