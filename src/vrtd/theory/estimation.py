"""Increments estimated from a sample of transitions, with bootstrap replicates and the autocorrelation time."""

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

# Number of blocks of the bootstrap. Fewer than the least do not show the spread between them.
_MOST_BLOCKS, _LEAST_BLOCKS = 200, 20
# Limit on the size of the lag covariances of all blocks.
_MOST_NUMBERS = 30_000_000


class AutocorrelationTime(NamedTuple):
    """Integrated autocorrelation time of the TD noise, with a confidence interval.

    The effective sample size of n consecutive transitions is ``n / tau``. The time is
    ``tau = tr(A^-1 Sigma_long_run A^-T) / tr(A^-1 Sigma A^-T)``. It is a proxy for the mixing constants of the bounds,
    which cannot be estimated from a sample: it describes the TD noise, not every function of the chain.

    Attributes
    ----------
    tau : float
        The estimate. Values below 1 mean that successive errors partly cancel.
    low, high : float
        Ends of the confidence interval.
    block : int
        Transitions per block; the estimate compares the means of the blocks.
    proxy : str
        Text that marks the number as a proxy.
    """

    tau: float
    low: float
    high: float
    block: int
    proxy: str = "a proxy for the mixing time, not a bound"


def autocorrelation_time(sample: Transitions, confidence: float = 0.95) -> AutocorrelationTime:
    """Estimate the integrated autocorrelation time of the TD noise ``A^-1 g_x(theta_star)`` on a trajectory.

    Parameters
    ----------
    sample : Transitions
        Consecutive transitions.
    confidence : float, default=0.95
        Confidence level of the interval.

    Returns
    -------
    AutocorrelationTime
        Estimate and interval.

    Raises
    ------
    InvalidInputError
        If the sample is too short for its correlation, or if there is no noise.

    Examples
    --------
    >>> import vrtd
    >>> time = autocorrelation_time(vrtd.record(vrtd.problems.random_mdp(), 50_000, shuffle=False))
    >>> time.low < 128 / 342 < time.high  # the exact ratio
    True
    """
    from scipy.stats import chi2

    check_full_rank(sample)
    check_level(confidence, "confidence")
    _, blocks = _split(sample, correlated=True)
    noise = np.linalg.solve(sample.A, sample.noise.T).T
    if not np.abs(noise).max() > 0.0:
        raise InvalidInputError(
            "the TD noise of the sample is 0 in every row, so it has no autocorrelation time.",
            "Pass transitions with noise.",
        )
    # The means of blocks that are longer than the correlation are nearly independent. Their total variance is a
    # weighted sum of chi-squares, which is approximated by one chi-square with the same variance (Satterthwaite).
    means = np.array([noise[block].mean(axis=0) for block in blocks])
    covariance = np.cov(means.T).reshape(noise.shape[1], -1)
    if not np.trace(covariance) > 0.0:
        problem = "the TD noise of the sample has the same mean in every block, so it has no autocorrelation time."
        raise InvalidInputError(problem, "Pass more transitions.")
    degrees = (len(blocks) - 1) * float(np.trace(covariance) ** 2 / (covariance**2).sum())
    tau = float(np.trace(covariance) * len(sample) / len(blocks) / (noise**2).mean(axis=0).sum())
    tail = (1.0 - confidence) / 2.0
    low, high = (tau * degrees / float(chi2.isf(q, degrees)) for q in (tail, 1.0 - tail))
    return AutocorrelationTime(tau, low, high, len(sample) // len(blocks))


class _LagSums(Correlation):
    """Lag covariances up to a window; beyond it they are taken as 0."""

    def __init__(self, lags: Floats) -> None:
        self._lags = lags  # (K, d (d + 1), d (d + 1)) C_1, ..., C_K

    def within(self, batch_size: float) -> Floats:
        """Sum the lag covariances with the weights of pairs inside a batch."""
        k = np.arange(1, len(self._lags) + 1)
        weights = np.ones(len(k)) if batch_size == inf else np.maximum(0.0, 1.0 - k / batch_size)
        return np.asarray(np.tensordot(weights, self._lags, 1))

    def between(self, batch_size: int, decay: Floats) -> Floats:
        """Sum the lag covariances with the weights of pairs from two batches."""
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
    """Yield the moments of bootstrap samples, which are drawn block by block."""
    yield from _weigh_blocks(sample, sampling, [np.random.default_rng(seed)] * n_replicates)


def _weigh_blocks(
    sample: Transitions, sampling: ChainSampling, draws: list[np.random.Generator | None]
) -> Iterator[Increments]:
    """Yield the moments for each draw of blocks; None weights all rows equally."""
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
                f"A is singular on a bootstrap sample of the {n} transitions.",
                "Use more transitions, or drop features that are rarely non-zero.",
            ) from None
        # (theta, 1) = move (u, 1) changes the coordinates from theta to the error u.
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
    """Return (blocks, window, d (d + 1), d (d + 1)), the mean products of rows that are k = 1..window apart.

    A pair belongs to the block of its first row. So the last block lacks the pairs that would end after the sample.
    """
    n, width = Z.shape
    if len(blocks) * window * width**2 > _MOST_NUMBERS:
        raise InvalidInputError(
            f"the covariances of {len(blocks)} blocks over {window} lags would have {width**2} numbers each, more than "
            f"{_MOST_NUMBERS:.0e} in total.",
            "Use fewer features, or plan with the chain.",
        )
    lags = np.empty((len(blocks), window, width, width))
    for b, block in enumerate(blocks):
        for k in range(1, window + 1):
            first = Z[block.start : min(block.stop, n - k)]
            lags[b, k - 1] = first.T @ Z[block.start + k : block.stop + k] / (block.stop - block.start)
    return lags


def _split(sample: Transitions, correlated: bool, numbers_per_lag: int = 1) -> tuple[int, list[slice]]:
    """Return the number of correlated lags of the noise A^-1 g_x, and blocks that are longer than these lags."""
    largest = np.linalg.eigvals(sample.A).real.max()
    if correlated and largest >= 0.0:
        raise InvalidInputError(
            f"A of the sample must have eigenvalues with negative real parts, but the largest real part is "
            f"{largest:.3g}.",
            "Use more transitions, or other features.",
        )
    n, count, window = len(sample), 0, sample.lag_window if correlated else 0
    if window is not None:
        fitting = max(_LEAST_BLOCKS, _MOST_NUMBERS // (max(1, window) * numbers_per_lag))
        count = min(_MOST_BLOCKS, fitting, n // max(1, 2 * window))
    if window is None or count < _LEAST_BLOCKS:
        length = "a correlation longer than the sample" if window is None else f"a correlation over {window} of them"
        raise InvalidInputError(
            f"the sample must have at least {_LEAST_BLOCKS} nearly independent blocks, "
            f"but has {n} transitions with {length}.",
            "Use more transitions.",
        )
    ends = np.linspace(0, n, count + 1).round().astype(int).tolist()
    return window, [slice(a, b) for a, b in pairwise(ends)]
