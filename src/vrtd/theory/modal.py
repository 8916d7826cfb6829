"""The error of TD or VRTD from the modes of a sample's A, for many steps at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.problems import Transitions
from vrtd.series import LEAST_WINDOWS, clip_negative, lag_covariance, lag_window
from vrtd.theory.modes import Modes, Pairs, epoch_pairs, td_pairs
from vrtd.theory.moments import Output
from vrtd.theory.sample_noise import drift

Complex = NDArray[np.complex128]

# Modes whose eigenvalues are close are counted as one: at most about this many are kept apart.
_MOST_MODES = 24
_MOST_REMEMBERED = 20.0


class _Sources(NamedTuple):
    """What feeds the second moment, weighed by how it shows: in the error, or in m."""

    start: Complex
    noise: Complex
    features: Complex


class ModalErrors:
    """E|theta - theta_star|^2 after k epochs, and E(phi.(theta - theta_star))^2 below it: (2, steps).

    `largest_step` is the limit of stability, `initial` the first error at the start, as far as it is not noise.
    """

    def __init__(self, rows: Transitions, theta_0: Floats, modes: Modes, largest_step: float) -> None:
        self.largest_step = largest_step
        u = theta_0 - rows.theta_star
        y, N = modes.inverse @ u, modes.seen(rows.long_run_covariance)
        lam = modes.values[:, None] * modes.values.conj()[None, :]
        # The sample's theta_star is itself noisy: what its noise adds to the square of a mode is taken away.
        power, spread = np.abs(y) ** 2, np.diag(N / lam).real / len(rows)
        kept = np.sqrt(np.maximum(0.0, 1.0 - spread / np.maximum(power, 1e-300)))
        y = y * kept
        sources = np.outer(y, y.conj()), N, modes.seen(rows.left_square)
        group = _groups(modes.values)
        self._lam = np.array([_centre(modes.values[group == g]) for g in range(group.max() + 1)])
        gather = (group[:, None] == np.arange(group.max() + 1)).astype(float)

        def weighed(form: Floats) -> _Sources:
            weight = modes.vectors.conj().T @ form @ modes.vectors
            return _Sources(*(gather.T @ (weight.T * source) @ gather for source in sources))

        self._errors, self._m = (weighed(np.eye(len(u))), weighed(rows.C)), weighed(rows.update_form)
        self.initial = float(np.linalg.norm((modes.vectors @ y).real) ** 2)
        self._C = rows.C
        self._modes, self._settled = modes, -(modes.inverse @ drift(rows)) / modes.values
        self._remembered = remembered(rows, (modes.vectors @ y).real)

    @np.errstate(over="ignore", invalid="ignore")  # a step that diverges has an infinite error
    def td(self, steps: NDArray[Any], n: int) -> Floats:
        """After n updates."""
        a = np.asarray(steps)
        biased = a[..., None] * self._settled * (1.0 - (1.0 + a[..., None] * self._modes.values) ** n)
        moved = (biased @ self._modes.vectors.T).real
        bias = np.array([(moved**2).sum(axis=-1), ((moved @ self._C) * moved).sum(axis=-1)])
        total: Floats = self._after(td_pairs(self._lam, a), a, 1, n) + bias
        return total

    @np.errstate(over="ignore", invalid="ignore")
    def vrtd(self, steps: NDArray[Any], batch_size: int, n_epochs: int, output: Output) -> Floats:
        steps = np.asarray(steps)
        return self._after(epoch_pairs(self._lam, steps, batch_size, output), steps, batch_size, n_epochs)

    def _after(self, pairs: Pairs, steps: Floats, M: int, n: int) -> Floats:
        """Epochs are taken in stretches, in each of which m is constant: 1, 1, 2, 4, ... and what is left."""
        lam = self._lam[:, None] * self._lam.conj()[None, :]
        share = np.minimum(steps / self.largest_step, 0.95)
        by_batch = (self._remembered / M) * pairs.K
        by_draw = pairs.R / (1.0 - share)[..., None, None]
        inner = pairs.B / lam / M
        start, noise, features = np.ones_like(pairs.T), np.zeros_like(pairs.T), np.zeros_like(pairs.T)
        bits = stretches(n)
        squares = [(pairs.T, np.ones_like(pairs.T), np.zeros_like(pairs.T))]  # T^L, sum of T^l, sum of those, l < L
        for bit in range(max(bits)):
            T, S, Q = squares[-1]
            squares.append((T * T, S * (1.0 + T), Q * (1.0 + T) + (1 << bit) * S))
        m = self._m
        for which in bits:
            T, S, Q = squares[which]
            L = 1 << which
            state = (
                start * S / L,
                (noise * S + pairs.K * Q / M) / L,
                features * S / L,
            )
            # TD's own noise grows with the error before the update, an epoch's with what it leaves of it.
            seen = pairs.T if M > 1 else 1.0
            whole = sum((w * x for w, x in zip(m, state, strict=True)), np.zeros_like(T))
            m_batch, m_inner = _sum(seen * whole), _sum(pairs.B * whole + m.noise * inner)
            fed = by_batch * m_batch[..., None, None] + by_draw * m_inner[..., None, None]
            again = _sum(m.features * (seen * by_batch) * Q) / L + _sum(m.features * pairs.B * by_draw * Q) / L
            fed = fed / np.maximum(1.0 - again, 0.02)[..., None, None]
            start, noise, features = T * start, T * noise + pairs.K * S / M, T * features + fed * S
        states = start, noise, features
        total = np.array([sum(_sum(w * x) for w, x in zip(form, states, strict=True)) for form in self._errors])
        return np.where(np.isfinite(total), np.maximum(total, 0.0), np.inf)


def stretches(n: int) -> list[int]:
    """Logarithms of lengths 1, 1, 2, 4, ... that sum to n, the last ones falling again."""
    bits = [0]
    while 2 << bits[-1] <= n and (1 << len(bits)) <= n:
        bits.append(len(bits) - 1)
    rest = n - (1 << len(bits) - 1)
    return bits + [bit for bit in reversed(range(rest.bit_length())) if rest >> bit & 1]


def _sum(x: Complex) -> Floats:
    total: Floats = x.sum(axis=(-1, -2)).real
    return total


def _groups(values: Complex) -> NDArray[np.int64]:
    """Which group each eigenvalue belongs to: close in logarithm and angle; conjugates stay apart and alike."""
    if len(values) <= _MOST_MODES:
        return np.arange(len(values))
    logs = np.log(-values)
    for width in 1.2 ** np.arange(-40, 40):
        keys = np.column_stack([np.round(logs.real / width), np.round(logs.imag / width)])
        found = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
        if found.max() < _MOST_MODES:
            return np.asarray(found, dtype=np.int64)
    return np.zeros(len(values), dtype=np.int64)


def _centre(values: Complex) -> complex:
    return complex(-np.exp(np.log(-values).mean()))


def remembered(rows: Transitions, u: Floats) -> float:
    """By how much correlation multiplies the noise that grows with the error, at the start's error."""
    series = rows.left * (rows.psi @ u)[:, None]
    series = series - series.mean(axis=0)
    plain = float((series**2).sum()) / len(series)
    if not plain > 0.0:
        return 1.0
    window = lag_window(series) or len(series) // LEAST_WINDOWS
    total = float(np.trace(clip_negative(lag_covariance(series, window))))
    return float(np.clip(total / plain, 1.0 / _MOST_REMEMBERED, _MOST_REMEMBERED))
