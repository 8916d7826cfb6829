"""Mean and covariance of what TD or VRTD ends with, plugged in from a sample: the basis of its intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.checks import check_choice, check_exact_count, check_positive
from vrtd.errors import InvalidInputError
from vrtd.theory.modal import remembered, stretches
from vrtd.theory.modes import Modes, Pairs, eigen_modes, epoch_pairs, largest_stable_step, td_pairs
from vrtd.theory.moments import Output
from vrtd.theory.rows import Statistics, TransitionRows, long_run_covariance, statistics_of
from vrtd.theory.sample import TransitionSample

__all__ = ["RecursionMoments", "recursion_moments"]

Floats = NDArray[np.float64]
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
    sample: TransitionSample | TransitionRows,
    legs: Sequence[tuple[float, int, int]],
    theta_0: ArrayLike | None = None,
    output: Output = "average",
) -> RecursionMoments:
    """Moments after `legs`, each (step_size, batch_size, n_epochs), run one after the other along a trajectory.

    A batch of 1 is an update of TD. The sample's A, long-run covariance and E[A_x S A_x^T] are plugged in; how an epoch
    turns them into moments is said in `vrtd.theory.modes`. Directions that the sample does not reach stay where they
    are: they have no variance, and nothing is known of their mean.

    >>> import vrtd
    >>> sample = TransitionSample.draw(vrtd.problems.random_mdp(), 5000)
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
    statistics = statistics_of(sample, theta_0)
    modes = eigen_modes(statistics) if statistics.reason is None else None
    d = sample.n_features
    if modes is None:
        unknown, square = np.full(d, np.nan), np.full((d, d), np.nan)
        return RecursionMoments(
            unknown, square, unknown, square, square, statistics.reason or "the modes of A are degenerate on the sample"
        )
    remark = None
    if statistics.window is None:
        remark = f"correlation outlasts the sample of {len(statistics)} rows: the covariance is too small"
    y = modes.inverse @ (statistics.theta_0 - statistics.theta_star)
    settled = -(modes.inverse @ statistics.drift) / modes.values  # where the mean of TD settles, over the step
    recursion = _Recursion(statistics, modes)
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
    half = np.linalg.solve(statistics.A, statistics.long_run)
    optimal = np.linalg.solve(statistics.A, half.T)
    return RecursionMoments(
        statistics.lift(mean),
        statistics.lift(_symmetric(covariance)),
        statistics.lift(statistics.theta_star) + statistics.outside,
        statistics.lift(_symmetric(optimal)),
        statistics.lift(((modes.vectors * kept) @ modes.inverse).real),
        remark,
    )


class _Recursion:
    """Y' = T o Y + K o N / M + noise that grows with the error (`vrtd.theory.modes`), in stretches of epochs."""

    def __init__(self, statistics: Statistics, modes: Modes) -> None:
        self._statistics, self._modes = statistics, modes
        self._N, self._C = modes.seen(statistics.long_run), modes.seen(statistics.C)
        self._form = modes.vectors.conj().T @ statistics.shape @ modes.vectors
        self._lam = modes.values[:, None] * modes.values.conj()[None, :]
        self._td_error = float((statistics.reward + statistics.psi @ statistics.theta_star).std())
        self._limit = largest_stable_step(statistics, modes)
        self._remembered = remembered(statistics, statistics.theta_0 - statistics.theta_star)

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
        statistics, u = self._statistics, (self._modes.vectors @ y).real
        moved = statistics.psi @ u
        if np.sqrt((moved**2).mean()) < _NEGLIGIBLE * self._td_error:
            return self._N
        series = statistics.left * moved[:, None]
        series = series - series.mean(axis=0) + statistics.noise
        return self._modes.seen(
            long_run_covariance(series, statistics.window or len(series) // 10, clip=statistics.rank <= _MOST_EXACT)
        )

    def _square(self, Y: Complex) -> Complex:
        """E[A_x S A_x^T] - A S A^T in the coordinates of the modes."""
        if self._statistics.rank <= _MOST_EXACT:
            return self._modes.seen(self._statistics.square(self._modes.back(Y))) - self._lam * Y
        grown: Complex = float((self._form.T * Y).sum().real) * self._C - self._lam * Y
        return grown


def _symmetric(X: Floats) -> Floats:
    return (X + X.T) / 2.0
