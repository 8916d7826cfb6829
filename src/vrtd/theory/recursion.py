"""Mean and covariance of the final iterate of TD or VRTD, estimated from a sample; confidence intervals use them."""

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
from vrtd.theory.modal import ModalOutput, Pairs, SampleModes, find_modes, find_pairs, remembered, stretches
from vrtd.theory.sample_noise import MeanSquare, check_rows

Complex = NDArray[np.complex128]

# Up to this many features E[A_x S A_x^T] is computed from the rows. Beyond, it is a multiple of C with the right trace.
_MOST_EXACT = 48
# The noise at theta_star is used while the mean of theta changes TD errors by less than this share.
_NEGLIGIBLE = 0.02


class RecursionMoments(NamedTuple):
    """Moments of ``u = theta - theta_star`` at the end of a run, for d features.

    All moments are nan if the sample does not determine them; ``remark`` then says why.

    Attributes
    ----------
    mean : ndarray of shape (d,)
        ``E u``: the initial transient, and the bias of TD on a trajectory.
    covariance : ndarray of shape (d, d)
        Covariance of ``u``.
    theta_star : ndarray of shape (d,)
        Solution of the TD equation of the sample.
    optimal : ndarray of shape (d, d)
        ``A^-1 Gamma A^-T``, which is n times the covariance of the closed form.
    left : ndarray of shape (d, d)
        The matrix by which the run multiplies an error of the start, in the mean.
    remark : str or None
        Why the moments are missing or inaccurate.
    """

    mean: Floats
    covariance: Floats
    theta_star: Floats
    optimal: Floats
    left: Floats
    remark: str | None = None


def recursion_moments(
    sample: Transitions,
    legs: Sequence[tuple[float, int, int]],
    theta_0: ArrayLike | None = None,
    output: ModalOutput = "average",
) -> RecursionMoments:
    """Estimate the moments of TD or VRTD at the end of a run on a trajectory.

    The estimates use A, the long-run covariance of the noise and ``E[A_x S A_x^T]`` of the sample. The module
    ``vrtd.theory.modal`` has the equations. Directions that the sample does not span stay at theta_0: their variance
    is 0, and their mean is unknown.

    Parameters
    ----------
    sample : Transitions
        Consecutive transitions.
    legs : sequence of tuple (step_size, batch_size, n_epochs)
        The parts of the run, in order. A batch of 1 is an update of TD.
    theta_0 : array_like of shape (n_features,), default=None
        Start. By default it is the zero vector.
    output : {"average", "random", "last"}, default="average"
        Iterate that an epoch of VRTD returns.

    Returns
    -------
    RecursionMoments
        Mean and covariance, and the optimal covariance.

    Examples
    --------
    >>> import vrtd
    >>> sample = vrtd.record(vrtd.problems.random_mdp(), 5000, shuffle=False)
    >>> moments = recursion_moments(sample, [(0.02, 5000, 4)])
    >>> bool(1.0 < 20_000 * np.trace(moments.covariance) / np.trace(moments.optimal) < 4.0)
    True
    """
    check_choice("output", output, get_args(ModalOutput))
    for leg in legs:
        if len(leg) != 3:
            raise InvalidInputError(
                f"each leg must be (step_size, batch_size, n_epochs), but one is {leg!r}.", "Pass three numbers."
            )
        check_positive("step_size", leg[0])
        check_exact_count("batch_size", leg[1])
        check_exact_count("n_epochs", leg[2], least=0)
    check_rows(sample)
    d = sample.n_features
    start = check_theta("theta_0", theta_0, d)
    rows, B = sample.reduce_rank(start), sample.basis
    modes = find_modes(rows)
    if isinstance(modes, str):
        unknown, square = np.full(d, np.nan), np.full((d, d), np.nan)
        return RecursionMoments(unknown, square, unknown, square, square, modes)
    remark = None
    if rows.lag_window is None:
        remark = f"the noise is correlated over more than the sample of {len(rows)} rows: the covariance is too small"
    exact = MeanSquare(rows) if rows.n_features <= _MOST_EXACT else None
    system = SampleModes(rows, modes, B.T @ start, exact)
    recursion = _Recursion(system, exact)
    y = system.y
    Y, biased, kept = np.outer(y, y.conj()), np.zeros_like(y), np.ones_like(y)
    for step, M, n in legs:
        if n:
            pairs = find_pairs(modes.values, np.asarray(float(step)), M, output, system.largest_step)
            Y, y = recursion.run(Y, y, pairs, int(M), int(n))
            kept = kept * pairs.means**n
            biased = biased * pairs.means**n + (step * system.settled * (1.0 - pairs.means**n) if M == 1 else 0.0)
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
    """The recursion Y' = T o Y + K o N / M + (noise that grows with the error), in stretches of epochs.

    `vrtd.theory.modal` has the equations.
    """

    def __init__(self, system: SampleModes, exact: MeanSquare | None) -> None:
        rows = system.rows
        self._system, self._exact, self._form = system, exact, system.weigh(rows.update_form)
        self._td_error = float((rows.reward + rows.psi @ rows.theta_star).std())
        self._remembered = remembered(rows, system.u)

    @np.errstate(over="ignore", invalid="ignore")
    def run(self, Y: Complex, y: Complex, pairs: Pairs, M: int, n: int) -> tuple[Complex, Complex]:
        inner = self._system.N / self._system.lam / M
        sums = [np.ones_like(y)]  # sums of powers of the factor of the mean per epoch, for lengths 1, 2, 4, ...
        for L, T, S, Q in stretches(pairs.T, n):
            if 1 << len(sums) == L:
                sums.append(sums[-1] * (1.0 + pairs.means ** (L // 2)))
            # At the mean of theta the noise has every lag. Deviations from the mean add noise of independent rows.
            middle = pairs.seen_mean * y * sums[L.bit_length() - 1] / L
            noise = pairs.K * self._noise_at(middle) / M
            fed: Complex = np.zeros_like(Y)
            for _ in range(3):  # a fixed point: the noise fed into a stretch depends on the moments it causes
                mean = (Y * S + (noise + fed) * Q) / L
                around = pairs.seen * mean - np.outer(middle, middle.conj())
                fed = self._remembered / M * pairs.K * self._square(around)
                if M > 1:
                    fed = fed + pairs.R * self._square(pairs.B * (mean + inner))
            Y, y = T * Y + (noise + fed) * S, pairs.means**L * y
        return Y, y

    def _noise_at(self, y: Complex) -> Complex:
        """Return the long-run covariance of g_x at theta_star + V y, in the coordinates of the modes."""
        rows, modes = self._system.rows, self._system.modes
        moved = rows.psi @ (modes.vectors @ y).real
        if np.sqrt((moved**2).mean()) < _NEGLIGIBLE * self._td_error:
            return self._system.N
        series = rows.left * moved[:, None]
        series = series - series.mean(axis=0) + rows.noise
        covariance = lag_covariance(series, rows.summed_lags)
        return modes.seen(covariance if self._exact is None else clip_negative(covariance))

    def _square(self, Y: Complex) -> Complex:
        """Return E[A_x S A_x^T] - A S A^T in the coordinates of the modes."""
        system = self._system
        if self._exact is not None:
            return system.modes.seen(self._exact(system.modes.back(Y))) - system.lam * Y
        grown: Complex = float((self._form.T * Y).sum().real) * system.C - system.lam * Y
        return grown


def _symmetric(X: Floats) -> Floats:
    return (X + X.T) / 2.0
