"""Correlation along a series of rows: lag windows, long-run covariance and block means."""

from __future__ import annotations

import numpy as np

from vrtd.arrays import Floats

# Lags are summed up to this many correlation times (Sokal).
_WINDOW = 5.0
#: Least number of windows that a series must hold to estimate its correlation.
LEAST_WINDOWS = 10
# Numbers that one call transforms.
_PIECE = 1 << 21
# Columns that are centred at once.
_COLUMNS = 1 << 16


def lag_window(series: Floats) -> int | None:
    """Return the smallest K with K >= 5 tau(K) (Sokal 1997), or None if the series is shorter than ten such windows.

    tau is the autocorrelation time of the sum of the components.
    """
    n = len(series)
    size = 1 << (2 * n - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    piece = max(1, _PIECE // size)
    for i in range(0, series.shape[1], piece):
        power += (np.abs(np.fft.rfft(series[:, i : i + piece], size, axis=0)) ** 2).sum(axis=1)
    autocovariance = np.fft.irfft(power, size)[:n] / n
    if not autocovariance[0] > 0.0:
        return 1
    taus = 1.0 + 2.0 * np.cumsum(autocovariance[1:]) / autocovariance[0]
    wide = np.flatnonzero(np.arange(1, n) >= _WINDOW * np.maximum(taus, 1.0))
    if not wide.size or (int(wide[0]) + 1) * LEAST_WINDOWS > n:
        return None
    return int(wide[0]) + 1


def lag_covariance(series: Floats, window: int) -> Floats:
    """Return the sum of the covariances at lags -window, ..., window, which may have negative eigenvalues."""
    n = len(series)
    sums = np.concatenate([np.zeros((1, series.shape[1])), np.cumsum(series, axis=0)])
    ends = np.minimum(np.arange(1, n + 1) + window, n)
    lags = series.T @ (sums[ends] - sums[1:]) / n
    total: Floats = series.T @ series / n + lags + lags.T
    return total


def clip_negative(covariance: Floats) -> Floats:
    """Return a symmetric matrix with its negative eigenvalues set to 0."""
    values, vectors = np.linalg.eigh(covariance)
    positive: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return positive


def block_means(series: Floats, n_blocks: int) -> Floats:
    """Return (n_blocks, k) means over consecutive blocks of equal length; trailing rows are dropped."""
    length = len(series) // n_blocks
    means: Floats = series[: n_blocks * length].reshape(n_blocks, length, -1).mean(axis=1)
    return means


def block_covariances(means: Floats) -> tuple[Floats, Floats]:
    """Return the covariance of the mean if blocks are independent, and the contribution of adjacent blocks."""
    centred = means - means.mean(axis=0)
    count = len(means) * (len(means) - 1)
    following = centred[1:].T @ centred[:-1]
    return centred.T @ centred / count, (following + following.T) / count


def block_correlation(means: Floats, metric: Floats) -> float:
    """Return the correlation of adjacent block means, with directions weighted by their variance.

    With S_0 and S_1 the covariances of block means at lags 0 and 1, and G the metric (or its diagonal), it is
    tr(G S_0 G S_1) / tr(G S_0 G S_0). Slow directions dominate, because the block means of all others are small. It is
    near 0 if blocks are much longer than the correlation time and tends to 1 if they are much shorter.

    >>> steps = np.repeat([0.0, 1.0, 0.0, 1.0], 8)[:, None]
    >>> round(block_correlation(steps, np.eye(1)), 2)
    0.78
    """
    n_columns = _COLUMNS if metric.ndim == 1 else max(1, means.shape[1])
    products = np.zeros((len(means), len(means)))  # S_0 is never formed
    for first in range(0, means.shape[1], n_columns):
        centred = means[:, first : first + n_columns]
        centred = centred - centred.mean(axis=0)
        products += (centred * metric[first : first + n_columns] if metric.ndim == 1 else centred @ metric) @ centred.T
    size = float(np.square(products).sum())
    return float((products[1:] * products[:-1]).sum()) / size if size > 0.0 else 0.0
