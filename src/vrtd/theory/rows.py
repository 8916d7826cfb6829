"""What a stretch of consecutive transitions says of the linear system A theta + b = 0, however poor it is.

A `TransitionSample` asks for features of full rank; data need not oblige (a state that was never visited). Here the
question is put to the directions that the rows do reach: with U an orthonormal basis of the span of the features,
theta moves by U v only, and theta = U v + what theta_0 has outside of the span, which never changes and only shifts the
rewards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import check_theta, real_array
from vrtd.errors import InvalidInputError
from vrtd.theory.sample import TransitionSample
from vrtd.theory.symmetric import outer, pack, quadratic, triangle, unpack

__all__ = ["Statistics", "TransitionRows", "block_correlation", "block_covariances", "block_means", "statistics_of"]

Floats = NDArray[np.float64]

# Directions in which the features have less than this share of their largest second moment are not learned.
_RANK_TOLERANCE = 1e-14
# Lags are summed up to this many correlation times (Sokal).
_WINDOW = 5.0
# The sample must hold this many windows, else it does not show its own correlation.
_LEAST_WINDOWS = 10
# A covariance with an eigenvalue below minus this share of the largest is not one.
_NEGATIVE = 1e-9
# Blocks whose means show the long-run covariance.
_BLOCKS = 64
# Numbers transformed at once.
_PIECE = 1 << 21
# Up to this many features E[A_x S A_x^T] is kept as a matrix on packed S.
_MOST_MAPPED = 24


@dataclass(frozen=True, eq=False)
class TransitionRows:
    """Consecutive transitions as a `TransitionSample` has them, but of any rank, and with importance weights."""

    phi: Floats
    reward: Floats
    phi_next: Floats
    discount: Floats | float
    weight: Floats | None = None

    def __post_init__(self) -> None:
        for field in ("phi", "reward", "phi_next", "discount"):
            object.__setattr__(self, field, np.asarray(getattr(self, field), dtype=np.float64))
        n = len(self.phi)
        object.__setattr__(self, "discount", np.broadcast_to(np.asarray(self.discount), (n,)))
        if self.weight is not None:
            object.__setattr__(self, "weight", real_array("weight", self.weight))
        vectors = [self.reward] if self.weight is None else [self.reward, self.weight]
        fitting = self.phi_next.shape == self.phi.shape and all(vector.shape == (n,) for vector in vectors)
        if self.phi.ndim != 2 or 0 in self.phi.shape or not fitting:
            raise InvalidInputError(
                "phi and phi_next must have the shape (n, d), reward and weight the shape (n,)",
                f"{self.phi.shape}, {self.phi_next.shape}, {self.reward.shape}",
                "pass one row per transition",
            )

    @property
    def n_features(self) -> int:
        return int(self.phi.shape[1])

    def __len__(self) -> int:
        return len(self.phi)


@dataclass(frozen=True, eq=False)
class Statistics:
    """The system in the directions that the rows reach: r of d."""

    left: Floats  # (P, r) weight phi
    psi: Floats  # (P, r) discount phi' - phi
    reward: Floats  # (P,)
    theta_0: Floats  # (r,)
    basis: Floats | None  # (d, r) orthonormal, or None when r = d
    outside: Floats  # (d,) what theta_0 has outside of the span

    def __len__(self) -> int:
        return len(self.left)

    @property
    def rank(self) -> int:
        return int(self.left.shape[1])

    @cached_property
    def A(self) -> Floats:
        A: Floats = self.left.T @ self.psi / len(self)
        return A

    @cached_property
    def C(self) -> Floats:
        """(r, r) E[A_x A_x^T] needs it: E[left left^T]."""
        C: Floats = self.left.T @ self.left / len(self)
        return C

    @cached_property
    def shape(self) -> Floats:
        """(r, r) Psi with tr E[A_x S A_x^T] = tr(Psi S) tr C for every S."""
        size = (self.left**2).sum(axis=1)
        Psi: Floats = (self.psi * (size / size.sum())[:, None]).T @ self.psi
        return Psi

    @cached_property
    def reason(self) -> str | None:
        """Why the rows do not determine a stable system; None when they do."""
        n, r = len(self), self.rank
        if r == 0:
            return "all features are 0"
        if n < 2 * r:
            return f"{n} rows for {r} independent features"
        if not np.linalg.cond(self.A) * r * np.finfo(np.float64).eps < 1.0:
            return "A is singular on the sample"
        values = np.linalg.eigvals(self.A).real
        if values.max() >= 0.0:
            return f"A is not stable on the sample (an eigenvalue with real part {values.max():.3g})"
        return None

    @cached_property
    def theta_star(self) -> Floats:
        """The rows' own fixed point (LSTD)."""
        return np.asarray(-np.linalg.solve(self.A, self.left.T @ self.reward / len(self)), dtype=np.float64)

    @cached_property
    def noise(self) -> Floats:
        """(P, r) g_x at theta_star; its mean is 0. Scaled for the degrees of freedom that theta_star has used up."""
        delta = self.reward + self.psi @ self.theta_star
        used = np.sqrt(len(self) / (len(self) - self.rank))
        return np.asarray(self.left * (used * delta)[:, None])

    @cached_property
    def window(self) -> int | None:
        """How many lags of the noise A^-1 g to sum; None where correlation outlasts the sample."""
        return lag_window(np.asarray(np.linalg.solve(self.A, self.noise.T).T, dtype=np.float64))

    @cached_property
    def long_run(self) -> Floats:
        """(r, r) Gamma, the long-run covariance of g_x(theta_star), positive semidefinite.

        Lags up to the window are summed. If the sum has negative directions, the window is too short, as it is for
        noise that alternates with a long period; then block means take its place.
        """
        window = self.window if self.window is not None else len(self) // _LEAST_WINDOWS
        total = long_run_covariance(self.noise, window, clip=False)
        values, vectors = np.linalg.eigh(total)
        if values[0] >= -_NEGATIVE * values[-1]:
            return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
        own, _ = block_covariances(block_means(self.noise, min(_BLOCKS, len(self))))
        return own * len(self)

    @cached_property
    def drift(self) -> Floats:
        """(r,) sum over lags k >= 1 of E[(A_k - A) g_0(theta_star)]: TD's mean settles at -step A^-1 drift.

        What an update adds is correlated with the rows that follow it.
        """
        window, n = self.window or len(self) // _LEAST_WINDOWS, len(self)
        sums = np.concatenate([np.zeros((1, self.rank)), np.cumsum(self.noise, axis=0)])
        before = sums[:-1] - sums[np.maximum(np.arange(n) - window, 0)]
        drift: Floats = self.left.T @ np.einsum("ni,ni->n", self.psi, before) / n - self.A @ before.mean(axis=0)
        return drift

    def square(self, S: Floats, rows: slice = slice(None)) -> Floats:
        """(r, r) E[A_x S A_x^T] over the rows."""
        if rows == slice(None) and self.rank <= _MOST_MAPPED:
            return unpack(self._square_map @ pack((S + S.T) / 2.0), self.rank)
        left, psi = self.left[rows], self.psi[rows]
        form = np.einsum("ni,ni->n", psi @ S, psi)
        product: Floats = (left * (form / len(left))[:, None]).T @ left
        return product

    @cached_property
    def _square_map(self) -> Floats:
        """S -> E[A_x S A_x^T] on packed matrices: few features are asked for it hundreds of times."""
        size = triangle(self.rank)
        total = np.zeros((size, size))
        piece = max(1, _PIECE // size)
        for first in range(0, len(self), piece):
            rows = slice(first, first + piece)
            total += outer(self.left[rows]).T @ quadratic(self.psi[rows])
        return total / len(self)

    def lift(self, X: Floats) -> Floats:
        """A vector or a covariance of the span in the coordinates of theta."""
        if self.basis is None:
            return X
        lifted: Floats = self.basis @ X if X.ndim == 1 else self.basis @ X @ self.basis.T
        return lifted


def statistics_of(sample: TransitionSample | TransitionRows, theta_0: ArrayLike | None) -> Statistics:
    """The system as these rows show it."""
    if not isinstance(sample, TransitionSample | TransitionRows):
        raise InvalidInputError(
            "sample must be a TransitionSample or TransitionRows", type(sample).__name__, "build one"
        )
    d = sample.n_features
    theta = check_theta("theta_0", theta_0, d)
    phi, psi = sample.phi, np.asarray(sample.discount)[:, None] * sample.phi_next - sample.phi
    weight = sample.weight if isinstance(sample, TransitionRows) else None
    left = phi if weight is None else phi * weight[:, None]
    values, vectors = np.linalg.eigh(left.T @ left / len(left))
    seen = values > _RANK_TOLERANCE * max(float(values[-1]), 0.0)
    if seen.all():
        return Statistics(left, psi, sample.reward, theta, None, np.zeros(d))
    basis = vectors[:, seen]
    inside = theta @ basis
    outside = theta - basis @ inside
    return Statistics(left @ basis, psi @ basis, sample.reward + psi @ outside, inside, basis, outside)


def lag_window(noise: Floats) -> int | None:
    """The first K with K >= 5 tau(K) (Sokal 1997), tau that of the rows' squared length; None: none in the sample."""
    n = len(noise)
    size = 1 << (2 * n - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    piece = max(1, _PIECE // size)
    for i in range(0, noise.shape[1], piece):
        power += (np.abs(np.fft.rfft(noise[:, i : i + piece], size, axis=0)) ** 2).sum(axis=1)
    autocovariance = np.fft.irfft(power, size)[:n] / n
    if not autocovariance[0] > 0.0:
        return 1
    taus = 1.0 + 2.0 * np.cumsum(autocovariance[1:]) / autocovariance[0]
    wide = np.flatnonzero(np.arange(1, n) >= _WINDOW * np.maximum(taus, 1.0))
    if not wide.size or (int(wide[0]) + 1) * _LEAST_WINDOWS > n:
        return None
    return int(wide[0]) + 1


def long_run_covariance(noise: Floats, window: int, clip: bool = True) -> Floats:
    """Covariances of lags up to the window summed; what is negative in them is set to 0 with `clip`."""
    n = len(noise)
    sums = np.concatenate([np.zeros((1, noise.shape[1])), np.cumsum(noise, axis=0)])
    ends = np.minimum(np.arange(1, n + 1) + window, n)
    lags = noise.T @ (sums[ends] - sums[1:]) / n
    total: Floats = noise.T @ noise / n + lags + lags.T
    if not clip:
        return total
    values, vectors = np.linalg.eigh(total)
    covariance: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return covariance


def block_means(series: Floats, n_blocks: int) -> Floats:
    """(n_blocks, k) means over consecutive blocks of equal length; the rows after the last one are left out."""
    length = len(series) // n_blocks
    means: Floats = series[: n_blocks * length].reshape(n_blocks, length, -1).mean(axis=1)
    return means


def block_covariances(means: Floats) -> tuple[Floats, Floats]:
    """(k, k) the covariance of the mean of independent blocks, and what the covariance of adjacent ones adds to it."""
    centred = means - means.mean(axis=0)
    count = len(means) * (len(means) - 1)
    following = centred[1:].T @ centred[:-1]
    return centred.T @ centred / count, (following + following.T) / count


def block_correlation(means: Floats, metric: Floats) -> float:
    """Correlation of adjacent block means, with directions weighted by how much the block means vary in them.

    With S_0 and S_1 the covariances of block means at lags 0 and 1, and G the metric, it is
    tr(G S_0 G S_1) / tr(G S_0 G S_0). Directions that change slowly dominate it, because block means of all others are
    small. It is near 0 if blocks are much longer than the correlation and tends to 1 if they are much shorter.

    >>> steps = np.repeat([0.0, 1.0, 0.0, 1.0], 8)[:, None]
    >>> round(block_correlation(steps, np.eye(1)), 2)
    0.78
    """
    centred = means - means.mean(axis=0)
    now = metric @ (centred.T @ centred)
    following = metric @ (centred[1:].T @ centred[:-1])
    size = float((now * now.T).sum())
    return float((now * following.T).sum()) / size if size > 0.0 else 0.0
