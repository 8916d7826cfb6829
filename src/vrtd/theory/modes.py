"""Second moments of TD and VRTD mode by mode: eigenvectors of A turn an epoch into numbers, one for a pair of modes.

With A = V diag(lambda) V^-1 and u = V y, an epoch of VRTD multiplies the mean of y_i by e_i = mean over t of q_i^t,
q = 1 + a lambda (for the output "average"), and Y = E[y y^H] entry by entry:

    Y' = T o Y + K o N / M + (K m(T o Y) / M + R m(W)) o C

N is the long-run covariance of the noise at theta_star and C that of the features, both seen from V. The last term is
the noise that grows with the error: E[A_x S A_x^T] is taken as m(S) C, with m(S) = tr(Psi S) so chosen that its trace
is exact. K m(T o Y)/M is what the batch's own A makes of it (the inner loop uses the same A as the batch's mean, so
an error that the epoch removes leaves no noise behind), R m(W) what the drawing of rows in the inner loop adds, W being
the second moment of theta - theta_anchor inside.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.problems import Transitions
from vrtd.theory.moments import Output
from vrtd.theory.sample_noise import MeanSquare

Complex = NDArray[np.complex128]

# Eigenvectors up to this condition number cost no more than half of the digits of a second moment.
_MOST_CONDITION = 1e4
_PERTURBATIONS = (0.0, 1e-7, 1e-5, 1e-4, 1e-3, 1e-2)
# Power iteration: how often, how exactly, and on how many rows.
_ITERATIONS, _FEW_ITERATIONS, _TOLERANCE, _MOST_ROWS = 60, 6, 1e-3, 2000
_SMALL = 64  # features; beyond, the shorter way is taken
# Below this, a mode has moved so little that differences of its powers are rounding.
_STILL = 1e-5


class Modes(NamedTuple):
    values: Complex  # (r,)
    vectors: Complex  # (r, r)
    inverse: Complex

    def seen(self, X: Floats) -> Complex:
        """V^-1 X V^-H: a covariance in the coordinates of the modes."""
        inside: Complex = self.inverse @ X @ self.inverse.conj().T
        return inside

    def back(self, Y: Complex) -> Floats:
        """V Y V^H, which is real."""
        outside: Floats = (self.vectors @ Y @ self.vectors.conj().T).real
        return outside


def eigen_modes(rows: Transitions) -> Modes | None:
    """Of the sample's A; where its eigenvectors are nearly dependent, of a neighbour within the sample's own error."""
    A = rows.A
    values, vectors = np.linalg.eigh(rows.left_square)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    rough = np.random.default_rng(0).standard_normal(A.shape) / np.sqrt(len(A))
    for size in _PERTURBATIONS if len(A) <= _SMALL else _PERTURBATIONS[::2]:
        near = A + size * root @ rough @ root if size else A
        lam, V = np.linalg.eig(near)
        if lam.real.max() < 0.0 and np.linalg.cond(V) <= _MOST_CONDITION:
            return Modes(lam.astype(complex), V.astype(complex), np.linalg.inv(V).astype(complex))
    return None


def largest_stable_step(rows: Transitions, modes: Modes, square: MeanSquare | None = None) -> float:
    """The step at which the second moment of TD's error stops to fall, with independent draws of the rows.

    S -> a (A S + S A^T) + a^2 E[A_x S A_x^T] has the eigenvalue 0 at a = 1 / radius of L^-1 E[A_x . A_x^T], L(S) =
    -A S - S A^T: a positive map, so power iteration finds its radius from the identity. `square` is the map
    E[A_x . A_x^T] of the rows, if it is known.
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
    """Factors of pairs of modes for one batch size, (..., r, r), for steps (...,)."""

    T: Complex  # Y -> Y
    K: Complex  # noise of the batch's mean
    R: Complex  # noise of one inner draw, summed as the output does
    B: Complex  # mean of (1 - q^t)(1 - conj q^t): Y -> W
    means: Complex  # (..., r) what an epoch makes of E y
    gain: Complex  # (..., r)


def td_pairs(values: Complex, steps: NDArray[Any]) -> Pairs:
    """An update of TD as an epoch; nothing is drawn again."""
    a = np.asarray(steps)[..., None, None]
    q = 1.0 + np.asarray(steps)[..., None] * values
    T = q[..., :, None] * q.conj()[..., None, :]
    square = np.broadcast_to((a * a).astype(complex), T.shape)
    return Pairs(T, square, np.zeros_like(T), np.zeros_like(T), q, np.broadcast_to(a[..., 0] + 0j, q.shape))


def epoch_pairs(values: Complex, steps: NDArray[Any], batch_size: int, output: Output) -> Pairs:
    M, a = int(batch_size), np.asarray(steps, dtype=np.float64)
    move = a[..., None] * values  # q - 1
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
        return Pairs(both(e), both(half), summed / M, B, e, half)
    if output == "last":
        gain = -done / values
        return Pairs(1.0 - fallen, both(gain), aa * fallen / fall, B, 1.0 - done, gain)
    drawn: Complex = np.where(pair_still, aa * (M + 1) / 2.0, aa * (1.0 - mean) / fall)
    return Pairs(mean, summed, drawn, B, e, half)


def _log1p(z: Complex) -> Complex:
    """log(1 + z) to the last digit for small z, which NumPy's is not for complex ones."""
    with np.errstate(divide="ignore"):
        size = 0.5 * np.log1p(2.0 * z.real + np.abs(z) ** 2)
    return np.asarray(size + 1j * np.arctan2(z.imag, 1.0 + z.real))
