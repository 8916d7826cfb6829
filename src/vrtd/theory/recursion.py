"""Mean and covariance of what TD or VRTD ends with, plugged in from a sample: the basis of its intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import Floats, check_theta
from vrtd.checks import check_choice, check_exact_count, check_positive
from vrtd.errors import InvalidInputError
from vrtd.problems import Transitions
from vrtd.series import clip_negative, lag_covariance
from vrtd.theory.modal import remembered, stretches
from vrtd.theory.modes import Modes, Pairs, eigen_modes, epoch_pairs, largest_stable_step, td_pairs
from vrtd.theory.moments import Output
from vrtd.theory.sample_noise import MeanSquare, check_rows, drift, why_unstable

Complex = NDArray[np.complex128]

# Up to this many features E[A_x S A_x^T] is computed from the rows; beyond, its trace is right and its shape that of C.
_MOST_EXACT = 48
# The noise is that at theta_star while the mean of theta changes TD errors by less than this share.
_NEGLIGIBLE = 0.02


class RecursionMoments(NamedTuple):
    """Of u = theta - theta_star at the end; nan where the sample cannot tell, and `remark` says why."""

    mean: Floats  # (d,) E u: what remains of the start, and the bias that TD has on a trajectory
    covariance: Floats  # (d, d)
    theta_star: Floats  # (d,) the sample's own
    optimal: Floats  # (d, d) A^-1 Gamma A^-T: n times the covariance of the closed form
    left: Floats  # (d, d) what the run makes of an error of the start, in the mean
    remark: str | None = None


def recursion_moments(
    sample: Transitions,
    legs: Sequence[tuple[float, int, int]],
    theta_0: ArrayLike | None = None,
    output: Output = "average",
) -> RecursionMoments:
    """Moments after `legs`, each (step_size, batch_size, n_epochs), run one after the other along a trajectory.

    A batch of 1 is an update of TD. The sample's A, long-run covariance and E[A_x S A_x^T] are plugged in; how an epoch
    turns them into moments is said in `vrtd.theory.modes`. Directions that the sample does not reach stay where they
    are: they have no variance, and nothing is known of their mean.

    >>> import vrtd
    >>> sample = vrtd.record(vrtd.problems.random_mdp(), 5000, shuffle=False)
    >>> moments = recursion_moments(sample, [(0.02, 5000, 4)])
    >>> bool(1.0 < 20_000 * np.trace(moments.covariance) / np.trace(moments.optimal) < 4.0)
    True
    """
    check_choice("output", output, get_args(Output))
    for leg in legs:
        if len(leg) != 3:
            raise InvalidInputError("a leg must be (step_size, batch_size, n_epochs)", repr(leg), "pass three numbers")
        check_positive("step_size", leg[0])
        check_exact_count("batch_size", leg[1])
        check_exact_count("n_epochs", leg[2], least=0)
    check_rows(sample)
    d = sample.n_features
    start = check_theta("theta_0", theta_0, d)
    rows, B = sample.reduce_rank(start), sample.basis
    reason = why_unstable(rows)
    modes = eigen_modes(rows) if reason is None else None
    if modes is None:
        unknown, square = np.full(d, np.nan), np.full((d, d), np.nan)
        return RecursionMoments(
            unknown, square, unknown, square, square, reason or "the modes of A are degenerate on the sample"
        )
    remark = None
    if rows.lag_window is None:
        remark = f"correlation outlasts the sample of {len(rows)} rows: the covariance is too small"
    u = B.T @ start - rows.theta_star
    y = modes.inverse @ u
    settled = -(modes.inverse @ drift(rows)) / modes.values  # where the mean of TD settles, over the step
    recursion = _Recursion(rows, modes, u)
    Y, biased, kept = np.outer(y, y.conj()), np.zeros_like(y), np.ones_like(y)
    for step, M, n in legs:
        if n:
            pairs = td_pairs(modes.values, np.asarray(float(step))) if M == 1 else None
            pairs = pairs or epoch_pairs(modes.values, np.asarray(float(step)), M, output)
            Y, y = recursion.run(Y, y, pairs, float(step), int(M), int(n))
            kept = kept * pairs.means**n
            biased = biased * pairs.means**n + (step * settled * (1.0 - pairs.means**n) if M == 1 else 0.0)
    mean = (modes.vectors @ y).real
    covariance = modes.back(Y) - np.outer(mean, mean)
    mean = mean + (modes.vectors @ biased).real
    half = np.linalg.solve(rows.A, rows.long_run_covariance)
    optimal = np.linalg.solve(rows.A, half.T)
    return RecursionMoments(
        B @ mean,
        B @ _symmetric(covariance) @ B.T,
        B @ rows.theta_star + sample.outside(start),
        B @ _symmetric(optimal) @ B.T,
        B @ ((modes.vectors * kept) @ modes.inverse).real @ B.T,
        remark,
    )


class _Recursion:
    """Y' = T o Y + K o N / M + noise that grows with the error (`vrtd.theory.modes`), in stretches of epochs."""

    def __init__(self, rows: Transitions, modes: Modes, u: Floats) -> None:
        self._rows, self._modes = rows, modes
        self._N, self._C = modes.seen(rows.long_run_covariance), modes.seen(rows.left_square)
        self._form = modes.vectors.conj().T @ rows.update_form @ modes.vectors
        self._lam = modes.values[:, None] * modes.values.conj()[None, :]
        self._td_error = float((rows.reward + rows.psi @ rows.theta_star).std())
        self._exact = MeanSquare(rows) if rows.n_features <= _MOST_EXACT else None
        self._limit = largest_stable_step(rows, modes, self._exact)
        self._remembered = remembered(rows, u)

    def run(self, Y: Complex, y: Complex, pairs: Pairs, step: float, M: int, n: int) -> tuple[Complex, Complex]:
        T, S, Q = pairs.T, np.ones_like(pairs.T), np.zeros_like(pairs.T)  # T^L, sum of T^l, sum of those, l < L
        squares = [(T, S, Q)]
        sums = [np.ones_like(pairs.means)]  # of the powers of what an epoch makes of the mean
        inner = self._N / self._lam / M
        by_draw = pairs.R / (1.0 - min(step / self._limit, 0.95))
        seen, left_over = (1.0, 1.0) if M == 1 else (pairs.T, pairs.means)
        with np.errstate(over="ignore", invalid="ignore"):
            for bit in stretches(n):
                while bit >= len(squares):
                    (T, S, Q), L = squares[-1], 1 << len(squares) - 1
                    squares.append((T * T, S * (1.0 + T), Q * (1.0 + T) + L * S))
                    sums.append(sums[-1] * (1.0 + pairs.means**L))
                (T, S, Q), L = squares[bit], 1 << bit
                # The noise is that at the mean of theta, with every lag; around it, that of independent rows.
                middle = left_over * y * sums[bit] / L
                noise = pairs.K * self._noise_at(middle) / M
                fed: Complex = np.zeros_like(Y)
                for _ in range(3):  # what is fed into a stretch is seen by itself
                    mean = (Y * S + (noise + fed) * Q) / L
                    around = seen * mean - np.outer(middle, middle.conj())
                    fed = self._remembered / M * pairs.K * self._square(around)
                    if M > 1:
                        fed = fed + by_draw * self._square(pairs.B * (mean + inner))
                Y, y = T * Y + (noise + fed) * S, pairs.means**L * y
        return Y, y

    def _noise_at(self, y: Complex) -> Complex:
        """Long-run covariance of g_x at theta_star + V y, in the coordinates of the modes."""
        rows, u = self._rows, (self._modes.vectors @ y).real
        moved = rows.psi @ u
        if np.sqrt((moved**2).mean()) < _NEGLIGIBLE * self._td_error:
            return self._N
        series = rows.left * moved[:, None]
        series = series - series.mean(axis=0) + rows.noise
        covariance = lag_covariance(series, rows.summed_lags)
        return self._modes.seen(covariance if self._exact is None else clip_negative(covariance))

    def _square(self, Y: Complex) -> Complex:
        """E[A_x S A_x^T] - A S A^T in the coordinates of the modes."""
        if self._exact is not None:
            return self._modes.seen(self._exact(self._modes.back(Y))) - self._lam * Y
        grown: Complex = float((self._form.T * Y).sum().real) * self._C - self._lam * Y
        return grown


def _symmetric(X: Floats) -> Floats:
    return (X + X.T) / 2.0
