"""Errors and moments in the modes of A of a sample, where an epoch is one factor per pair of modes.

With A = V diag(lambda) V^-1, u = V y and q = 1 + a lambda, an epoch of VRTD with the output "average" multiplies the
mean of y_i by e_i = mean over t of q_i^t. It changes Y = E[y y^H] entry by entry:

    Y' = T o Y + K o N / M + (K m(T o Y) / M + R m(W)) o C

N is the long-run covariance of the noise at theta_star, and C is the covariance of the features, both in the
coordinates of the modes. The last term is the noise that grows with the error. In it E[A_x S A_x^T] is approximated by
m(S) C, where m(S) = tr(Psi S) is such that the trace is exact. K m(T o Y)/M is the noise of the mean over the batch.
The inner loop uses the same A as that mean, so the part of the error that the epoch removes adds no noise. R m(W) is
the noise of drawing rows in the inner loop, where W is the second moment of theta - theta_anchor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.problems import Transitions
from vrtd.series import LEAST_WINDOWS, clip_negative, lag_covariance, lag_window
from vrtd.theory.predictions import ErrorPredictor
from vrtd.theory.sample_noise import MeanSquare, drift, why_unstable

Complex = NDArray[np.complex128]
ModalOutput = Literal["random", "last", "average"]  # outputs of VRTD with a prediction by modes

# Eigenvectors up to this condition number lose at most half of the digits of a second moment.
_MOST_CONDITION = 1e4
_PERTURBATIONS = (0.0, 1e-7, 1e-5, 1e-4, 1e-3, 1e-2)
# Power iteration: iterations with few and with many features, tolerance, and number of rows with many features.
_ITERATIONS, _FEW_ITERATIONS, _TOLERANCE, _MOST_ROWS = 60, 6, 1e-3, 2000
_SMALL = 64  # more features than this are many
# Below this, a mode has moved so little that differences of its powers are rounding.
_STILL = 1e-5
# Modes with close eigenvalues are merged, so that at most about this many remain.
_MOST_MODES = 24
_MOST_REMEMBERED = 20.0
_MOST_SHARE = 0.95  # share of the largest step; the noise of inner draws stops growing there


class Modes(NamedTuple):
    """Eigenvalues and eigenvectors of A."""

    values: Complex  # (r,)
    vectors: Complex  # (r, r)
    inverse: Complex

    def seen(self, X: Floats) -> Complex:
        """Return V^-1 X V^-H, a covariance in the coordinates of the modes."""
        inside: Complex = self.inverse @ X @ self.inverse.conj().T
        return inside

    def back(self, Y: Complex) -> Floats:
        """Return V Y V^H, which is real."""
        outside: Floats = (self.vectors @ Y @ self.vectors.conj().T).real
        return outside


def find_modes(rows: Transitions) -> Modes | str:
    """Return the modes of A of the sample, or a text that says why there are none.

    If the eigenvectors are nearly dependent, A is perturbed by less than its statistical error.
    """
    reason = why_unstable(rows)
    if reason is not None:
        return reason
    A = rows.A
    values, vectors = np.linalg.eigh(rows.left_square)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    rough = np.random.default_rng(0).standard_normal(A.shape) / np.sqrt(len(A))
    for size in _PERTURBATIONS if len(A) <= _SMALL else _PERTURBATIONS[::2]:
        near = A + size * root @ rough @ root if size else A
        lam, V = np.linalg.eig(near)
        if lam.real.max() < 0.0 and np.linalg.cond(V) <= _MOST_CONDITION:
            return Modes(lam.astype(complex), V.astype(complex), np.linalg.inv(V).astype(complex))
    return "the modes of A are degenerate on the sample"


def largest_stable_step(rows: Transitions, modes: Modes, square: MeanSquare | None = None) -> float:
    """Return the step above which the second moment of TD's error grows, with independent draws of the rows.

    S -> a (A S + S A^T) + a^2 E[A_x S A_x^T] has the eigenvalue 0 at a = 1 / radius of L^-1 E[A_x . A_x^T], with L(S) =
    -A S - S A^T. This map is positive, so power iteration from the identity converges to its radius. ``square`` is the
    map E[A_x . A_x^T] of the rows, if it is known.
    """
    small = rows.n_features <= _SMALL
    if square is None or not small:
        square = MeanSquare(rows, 1 if small else max(1, len(rows) // _MOST_ROWS))
    divisor = -(modes.values[:, None] + modes.values.conj()[None, :])
    S, radius = modes.back(modes.seen(rows.left_square) / divisor), 0.0
    S /= np.trace(S)
    for _ in range(_ITERATIONS if small else _FEW_ITERATIONS):
        S = modes.back(modes.seen(square(S)) / divisor)
        before, radius = radius, float(np.trace(S))
        if not radius > 0.0 or not np.isfinite(radius):
            return np.inf
        S /= radius
        if abs(radius - before) <= _TOLERANCE * radius:
            break
    return 1.0 / radius


class Pairs(NamedTuple):
    """Factors of pairs of modes for one batch size, (..., r, r), for steps (...,); a batch of 1 is an update of TD."""

    T: Complex  # Y -> Y
    K: Complex  # noise of the mean over the batch
    R: Complex  # noise of one inner draw, summed as in the output
    B: Complex  # mean of (1 - q^t)(1 - conj q^t): Y -> W
    means: Complex  # (..., r) factor of E y per epoch
    # The noise of TD grows with the error before the update, that of an epoch with the error after it.
    seen: Complex | float
    seen_mean: Complex | float


def find_pairs(
    values: Complex, steps: NDArray[Any], batch_size: int, output: ModalOutput, largest_step: float = np.inf
) -> Pairs:
    """Return the factors for modes with these eigenvalues; near ``largest_step`` the noise of inner draws grows."""
    M, a = int(batch_size), np.asarray(steps, dtype=np.float64)
    move = a[..., None] * values  # q - 1
    if M == 1:
        q = 1.0 + move
        T = q[..., :, None] * q.conj()[..., None, :]
        square = np.broadcast_to((a * a).astype(complex)[..., None, None], T.shape)
        return Pairs(T, square, np.zeros_like(T), np.zeros_like(T), q, 1.0, 1.0)
    z = M * move
    still = np.abs(z) < _STILL
    done: Complex = -np.expm1(M * _log1p(move))  # 1 - q^M
    e: Complex = np.where(still, 1.0 + z * (M + 1) / (2 * M), (1.0 + move) * done / -z)
    half = np.where(still, a[..., None] * (M + 1) / 2.0, (e - 1.0) / values)

    def both(x: Complex) -> Complex:
        product: Complex = x[..., :, None] * x.conj()[..., None, :]
        return product

    lam, aa = both(values), (a * a)[..., None, None]
    fall = -(move[..., :, None] + move.conj()[..., None, :] + both(move))  # 1 - p, p = q conj(q)
    fallen: Complex = -np.expm1(M * _log1p(-fall))  # 1 - p^M
    mean: Complex = (1.0 - fall) * fallen / (M * fall)
    B = mean - e[..., :, None] - e.conj()[..., None, :] + 1.0
    pair_still = np.maximum(np.abs(z)[..., :, None], np.abs(z)[..., None, :]) < 10.0 * _STILL
    summed: Complex = np.where(pair_still, aa * (M + 1) * (2 * M + 1) / 6.0, B / lam)
    B = summed * lam
    if output == "average":
        T, K, R, means = both(e), both(half), summed / M, e
    elif output == "last":
        T, K, R, means = 1.0 - fallen, both(-done / values), aa * fallen / fall, 1.0 - done
    else:
        T, K, means = mean, summed, e
        R = np.where(pair_still, aa * (M + 1) / 2.0, aa * (1.0 - mean) / fall)
    R = R / (1.0 - np.minimum(a / largest_step, _MOST_SHARE))[..., None, None]
    return Pairs(T, K, R, B, means, T, means)


def _log1p(z: Complex) -> Complex:
    """Return log(1 + z), accurate for small complex z, for which NumPy's log1p is not."""
    with np.errstate(divide="ignore"):
        size = 0.5 * np.log1p(2.0 * z.real + np.abs(z) ** 2)
    return np.asarray(size + 1j * np.arctan2(z.imag, 1.0 + z.real))


def stretches(T: Complex, n: int) -> Iterator[tuple[int, Complex, Complex, Complex]]:
    """Yield n epochs in stretches of lengths L = 1, 1, 2, 4, ..., with falling lengths at the end.

    Each item has L, T^L, the sum of T^l over l < L, and the sum of these sums. So noise that is constant within a
    stretch is summed in closed form.
    """
    top = n.bit_length() - 1
    powers = [(T, np.ones_like(T), np.zeros_like(T))]
    for bit in (0, *range(top), *(bit for bit in reversed(range(top)) if n >> bit & 1)):
        if bit == len(powers):
            T, S, Q = powers[-1]
            powers.append((T * T, S * (1.0 + T), Q * (1.0 + T) + (1 << bit - 1) * S))
        yield 1 << bit, *powers[bit]


class SampleModes:
    """A sample in the coordinates of the modes of its A, as the recursion of second moments needs it."""

    def __init__(self, rows: Transitions, modes: Modes, theta_0: Floats, square: MeanSquare | None = None) -> None:
        self.rows, self.modes, self.u = rows, modes, theta_0 - rows.theta_star
        self.y = modes.inverse @ self.u
        self.lam = modes.values[:, None] * modes.values.conj()[None, :]
        self.N, self.C = modes.seen(rows.long_run_covariance), modes.seen(rows.left_square)
        self.settled = -(modes.inverse @ drift(rows)) / modes.values  # limit of the mean of TD, divided by the step
        self.largest_step = largest_stable_step(rows, modes, square)

    def weigh(self, form: Floats) -> Complex:
        """Return V^H form V."""
        weight: Complex = self.modes.vectors.conj().T @ form @ self.modes.vectors
        return weight


class ModalPredictor(ErrorPredictor):
    """Predictor of E|theta - theta_star|^2 from a sample, for many steps at once.

    ``initial`` is the estimated error of theta_0, without the noise of theta_star.
    """

    def __init__(self, sample: SampleModes, output: ModalOutput) -> None:
        rows, modes, y = sample.rows, sample.modes, sample.y
        # theta_star of the sample is noisy. The part that this noise adds to the square of a mode is subtracted.
        power, spread = np.abs(y) ** 2, np.diag(sample.N / sample.lam).real / len(rows)
        y = y * np.sqrt(np.maximum(0.0, 1.0 - spread / np.maximum(power, 1e-300)))
        group = _groups(modes.values)
        gather = (group[:, None] == np.arange(group.max() + 1)).astype(float)
        self._values = np.array([-np.exp(np.log(-modes.values[group == g]).mean()) for g in range(group.max() + 1)])

        def weigh(form: Floats) -> list[Complex]:
            """Return the sources of the second moment (start, noise, features), weighted by the form."""
            weight = sample.weigh(form).T
            return [gather.T @ (weight * source) @ gather for source in (np.outer(y, y.conj()), sample.N, sample.C)]

        self._m = weigh(rows.update_form)
        self._form, self._weights, self._value_weights = np.eye(len(y)), weigh(np.eye(len(y))), weigh(rows.C)
        start = (modes.vectors @ y).real
        self.initial = float(np.linalg.norm(start) ** 2)
        self._sample, self._output, self._remembered = sample, output, remembered(rows, start)

    def of_values(self) -> ModalPredictor:
        """Return the predictor of E(phi.(theta - theta_star))^2."""
        predictor = copy(self)
        predictor._form, predictor._weights = self._sample.rows.C, self._value_weights
        return predictor

    def grid(self, steps: Floats, cells: Sequence[tuple[int, int]]) -> Floats:
        """Return the errors as an array (cells, steps), for all steps at once."""
        return np.array([self._errors(steps, M, n) for M, n in cells])

    @np.errstate(over="ignore", invalid="ignore")  # unstable steps have an infinite error
    def _errors(self, steps: Floats, M: int, n: int) -> Floats:
        sample = self._sample
        pairs = find_pairs(self._values, steps, M, self._output, sample.largest_step)
        by_batch = (self._remembered / M) * pairs.K
        inner = pairs.B / (self._values[:, None] * self._values.conj()[None, :]) / M
        start, noise, features = np.ones_like(pairs.T), np.zeros_like(pairs.T), np.zeros_like(pairs.T)
        m = self._m
        for L, T, S, Q in stretches(pairs.T, n):
            state = start * S / L, (noise * S + pairs.K * Q / M) / L, features * S / L
            whole = sum((w * x for w, x in zip(m, state, strict=True)), np.zeros_like(T))
            m_batch, m_inner = _sum(pairs.seen * whole), _sum(pairs.B * whole + m[1] * inner)
            fed = by_batch * m_batch[..., None, None] + pairs.R * m_inner[..., None, None]
            again = _sum(m[2] * (pairs.seen * by_batch) * Q) / L + _sum(m[2] * pairs.B * pairs.R * Q) / L
            fed = fed / np.maximum(1.0 - again, 0.02)[..., None, None]
            start, noise, features = T * start, T * noise + pairs.K * S / M, T * features + fed * S
        total = sum(_sum(w * x) for w, x in zip(self._weights, (start, noise, features), strict=True))
        errors: Floats = np.where(np.isfinite(total), np.maximum(total, 0.0), np.inf)
        if M == 1:
            settled = steps[..., None] * sample.settled * (1.0 - (1.0 + steps[..., None] * sample.modes.values) ** n)
            bias = (settled @ sample.modes.vectors.T).real
            errors += ((bias @ self._form) * bias).sum(axis=-1)
        return errors


def _sum(x: Complex) -> Floats:
    total: Floats = x.sum(axis=(-1, -2)).real
    return total


def _groups(values: Complex) -> NDArray[np.int64]:
    """Return the group of each eigenvalue; groups are close in modulus and angle, and conjugates are not merged."""
    if len(values) <= _MOST_MODES:
        return np.arange(len(values))
    logs = np.log(-values)
    for width in 1.2 ** np.arange(-40, 40):
        keys = np.column_stack([np.round(logs.real / width), np.round(logs.imag / width)])
        found = np.unique(keys, axis=0, return_inverse=True)[1].ravel()
        if found.max() < _MOST_MODES:
            return np.asarray(found, dtype=np.int64)
    return np.zeros(len(values), dtype=np.int64)


def remembered(rows: Transitions, u: Floats) -> float:
    """Return the factor by which correlation multiplies the noise that grows with the error, at the initial error."""
    series = rows.left * (rows.psi @ u)[:, None]
    series = series - series.mean(axis=0)
    plain = float((series**2).sum()) / len(series)
    if not plain > 0.0:
        return 1.0
    window = lag_window(series) or len(series) // LEAST_WINDOWS
    total = float(np.trace(clip_negative(lag_covariance(series, window))))
    return float(np.clip(total / plain, 1.0 / _MOST_REMEMBERED, _MOST_REMEMBERED))
