"""Increments estimated from a sample of transitions, their uncertainty, and how strongly the noise is correlated."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf
from typing import NamedTuple

import numpy as np

from vrtd.algorithms import ChainSampling
from vrtd.arrays import Floats
from vrtd.checks import check_level
from vrtd.errors import InvalidInputError
from vrtd.problems import Transitions
from vrtd.theory.increments import Correlation, Increments
from vrtd.theory.sample_noise import check_full_rank
from vrtd.theory.symmetric import operator, outer, quadratic

# The bootstrap draws whole blocks of the sample; fewer say nothing of the spread between them.
_MOST_BLOCKS, _LEAST_BLOCKS = 200, 20
# Covariances of blocks that are held at once.
_MOST_NUMBERS = 30_000_000


class AutocorrelationTime(NamedTuple):
    """By what factor correlation makes n transitions worth fewer (or more, below 1) independent ones, with an interval.

    tau = tr(A^-1 Sigma_long_run A^-T) / tr(A^-1 Sigma A^-T). A proxy for the mixing constants of the bounds, which a
    sample cannot give: it sees what the TD noise does, not how fast every function of the chain mixes.
    """

    tau: float
    low: float
    high: float
    block: int  # transitions in a block, whose means were compared
    proxy: str = "a proxy for mixing: it bounds nothing"


def autocorrelation_time(sample: Transitions, confidence: float = 0.95) -> AutocorrelationTime:
    """Integrated autocorrelation time of the TD noise A^-1 g_x(theta_star) along consecutive transitions.

    >>> import vrtd
    >>> found = autocorrelation_time(vrtd.record(vrtd.problems.random_mdp(), 50_000, shuffle=False))
    >>> found.low < 128 / 342 < found.high  # the exact ratio
    True
    """
    from scipy.stats import chi2

    check_full_rank(sample)
    check_level(confidence, "confidence")
    _, blocks = _split(sample, correlated=True)
    noise = np.linalg.solve(sample.A, sample.noise.T).T
    if not np.abs(noise).max() > 0.0:
        raise InvalidInputError(
            "the TD noise of a sample must not vanish", "0 on every row", "there is nothing to time"
        )
    # Means over blocks that outlast the correlation are nearly independent; their total variance is a weighted sum of
    # chi-squares, taken as one with as many degrees of freedom as matches its variance (Satterthwaite).
    means = np.array([noise[block].mean(axis=0) for block in blocks])
    covariance = np.cov(means.T).reshape(noise.shape[1], -1)
    if not np.trace(covariance) > 0.0:
        must = "the TD noise of a sample must not have the same mean in every block"
        raise InvalidInputError(must, "blocks that do not differ", "there is nothing to time")
    degrees = (len(blocks) - 1) * float(np.trace(covariance) ** 2 / (covariance**2).sum())
    tau = float(np.trace(covariance) * len(sample) / len(blocks) / (noise**2).mean(axis=0).sum())
    tail = (1.0 - confidence) / 2.0
    low, high = (tau * degrees / float(chi2.isf(q, degrees)) for q in (tail, 1.0 - tail))
    return AutocorrelationTime(tau, low, high, len(sample) // len(blocks))


class _LagSums(Correlation):
    """Lag covariances up to a window, beyond which they are taken as 0."""

    def __init__(self, lags: Floats) -> None:
        self._lags = lags  # (K, d (d + 1), d (d + 1)) C_1, ..., C_K

    def within(self, batch_size: float) -> Floats:
        k = np.arange(1, len(self._lags) + 1)
        weights = np.ones(len(k)) if batch_size == inf else np.maximum(0.0, 1.0 - k / batch_size)
        return np.asarray(np.tensordot(weights, self._lags, 1))

    def between(self, batch_size: int, decay: Floats) -> Floats:
        k, M = np.arange(1, len(self._lags) + 1), batch_size
        total: Floats = np.zeros_like(self._lags[0])
        power = np.eye(len(decay))
        for j in range(1, len(k) // M + 2):
            common = np.tensordot(np.maximum(0.0, M - np.abs(k - j * M)), self._lags, 1)
            total += (power @ common.reshape(len(decay), -1)).reshape(common.shape)
            power = power @ decay
        return total


def estimate_increments(sample: Transitions, sampling: ChainSampling) -> Increments:
    """Estimate the moments from all rows of the sample."""
    return next(_weigh_blocks(sample, sampling, [None]))


def bootstrap_increments(
    sample: Transitions, sampling: ChainSampling, n_replicates: int, seed: int
) -> Iterator[Increments]:
    """Yield the moments of samples that are drawn again, block by block, from this one."""
    yield from _weigh_blocks(sample, sampling, [np.random.default_rng(seed)] * n_replicates)


def _weigh_blocks(
    sample: Transitions, sampling: ChainSampling, draws: list[np.random.Generator | None]
) -> Iterator[Increments]:
    """Yield the moments for each draw of blocks; None weighs all rows alike."""
    n, d = len(sample), sample.n_features
    zeta = np.column_stack([sample.psi, sample.reward])
    Z = np.einsum("ni,nj->nij", sample.left, zeta).reshape(n, -1)
    window, blocks = _split(sample, sampling == "markov", Z.shape[1] ** 2)
    rows = np.array([block.stop - block.start for block in blocks]) / n
    means = np.array([Z[block].mean(axis=0) for block in blocks])
    squares = np.array(
        [outer(sample.left[block]).T @ quadratic(zeta[block]) / (block.stop - block.start) for block in blocks]
    )
    lags = _block_lags(Z, blocks, window) if window else None
    alike = np.full(len(blocks), 1.0 / len(blocks))
    for rng in draws:
        weight = rows if rng is None else rng.multinomial(len(blocks), alike) / len(blocks)
        mean = np.tensordot(weight, means, 1).reshape(d, d + 1)
        try:
            theta_star = -np.linalg.solve(mean[:, :d], mean[:, d])
        except np.linalg.LinAlgError:
            raise InvalidInputError(
                "a sample must determine theta_star when it is drawn again", f"{n} transitions", "bring more of them"
            ) from None
        # (theta, 1) = move (u, 1): from coordinates of theta to those of the error.
        move = np.eye(d + 1)
        move[:d, d] = theta_star
        square = np.tensordot(weight, squares, 1) @ _congruence(move)
        mean = mean @ move
        mean[:, d] = 0.0
        correlation = None
        if lags is not None:
            four = np.tensordot(weight, lags, 1).reshape(window, d, d + 1, d, d + 1)
            centred = np.einsum("kipjq,pP,qQ->kiPjQ", four, move, move, optimize=True)
            centred = centred.reshape(window, d * (d + 1), -1) - np.outer(mean, mean)
            correlation = _LagSums(centred)
        yield Increments(theta_star, mean, square, correlation)


def _congruence(move: Floats) -> Floats:
    """Return the packed map Y -> move Y move^T."""
    return operator(lambda Y: move @ Y @ move.T, len(move))


def _block_lags(Z: Floats, blocks: list[slice], window: int) -> Floats:
    """(blocks, window, d (d + 1), d (d + 1)) mean products of rows k apart, k = 1..window.

    A pair belongs to the block of its first row, so the last block lacks the pairs that would end after the sample.
    """
    n, width = Z.shape
    if len(blocks) * window * width**2 > _MOST_NUMBERS:
        raise InvalidInputError(
            f"covariances of {len(blocks)} blocks over {window} lags must be at most {_MOST_NUMBERS:.0e} numbers",
            f"{width**2} for each, with this many features",
            "use fewer features, or plan with the chain",
        )
    lags = np.empty((len(blocks), window, width, width))
    for b, block in enumerate(blocks):
        for k in range(1, window + 1):
            first = Z[block.start : min(block.stop, n - k)]
            lags[b, k - 1] = first.T @ Z[block.start + k : block.stop + k] / (block.stop - block.start)
    return lags


def _split(sample: Transitions, correlated: bool, numbers_per_lag: int = 1) -> tuple[int, list[slice]]:
    """Return the number of correlated lags of the noise A^-1 g_x, and blocks that outlast them."""
    largest = np.linalg.eigvals(sample.A).real.max()
    if correlated and largest >= 0.0:
        raise InvalidInputError(
            "the sample's A must be stable, with eigenvalues of negative real part",
            f"{largest:.3g} as the largest",
            "use more transitions, or other features",
        )
    n, count, window = len(sample), 0, sample.lag_window if correlated else 0
    if window is not None:
        fitting = max(_LEAST_BLOCKS, _MOST_NUMBERS // (max(1, window) * numbers_per_lag))
        count = min(_MOST_BLOCKS, fitting, n // max(1, 2 * window))
    if window is None or count < _LEAST_BLOCKS:
        what = "a correlation that outlasts it" if window is None else f"correlation over {window} of them"
        raise InvalidInputError(
            f"a sample must hold {_LEAST_BLOCKS} stretches that are nearly independent",
            f"{n} transitions with {what}",
            "bring more transitions",
        )
    ends = np.linspace(0, n, count + 1).round().astype(int).tolist()
    return window, [slice(a, b) for a, b in pairwise(ends)]
