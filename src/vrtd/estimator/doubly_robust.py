"""The doubly robust value of a target policy, as a check of the features.

J = nu.theta is right if phi.theta represents the values of the policy. J + mean(zeta delta), with the TD errors delta
of theta and the weights zeta of the rows (see `overlap`), is right if either these values or zeta are right. With zeta
from the same features the correction is 0, because mean(w phi delta) = 0 for the closed form. So zeta comes from richer
features. The two values then differ by more than noise only if the features do not represent the values. The weights of
each half of the rows are estimated on the other half, so that the correction has mean 0 if the features are sufficient.

N. Kallus, M. Uehara (2020), Double reinforcement learning for efficient off-policy evaluation in Markov decision
processes, JMLR.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.estimator.estimates import Interval, Parts, equal_ends, estimate_from_parts
from vrtd.estimator.overlap import TargetSample, solve_transposed, weigh_rows
from vrtd.features import Features, RandomFourier, Tabular, TargetFeatures, table_of
from vrtd.features.features import as_rows
from vrtd.problems import Transitions
from vrtd.report.numbers import interval, number, percent, plural
from vrtd.series import block_means
from vrtd.solving import least_norm_solver

_MOST_FEATURES = 400  # checked and additional features, so that the check takes less than a second
_MOST_FURTHER = 120  # additional features, over all actions
_LEAST_FURTHER = 4  # additional features per action
_ROWS_OF_FEATURE = 25  # rows required per additional feature
_MOST_DIRECTIONS, _ROWS_OF_DIRECTION = 20, 100  # directions of the additional features; rows required per direction
_LEAST_VARIANCE, _ROUNDING = 0.01, 1e-12  # of a direction, as a share of the total
_PENALTY = 4.0  # multiplies the variance of an entry of the system, 1/n, and the number of directions
_MOST_NUMBERS = 64  # of an observation; distances between larger ones, such as images, are not informative
_BANDWIDTH = 0.5  # divided by the number of numbers; resolves distances of one standard deviation
_BLOCKS = 64
_LEVEL, _CHECKED_LEVEL = 0.95, 0.999
_LEAST_DIFFERENCE = 0.01  # a difference below this share of the size of the values does not matter


@dataclass(frozen=True)
class DoublyRobust:
    """Doubly robust value of a target policy, compared with the value from the features.

    Attributes
    ----------
    n_rows : int
        The number of first rows of the log that are used.
    n_further : int
        The number of directions of additional features.
    plug_in : float
        The value from the features alone, nu.theta.
    value : float
        The doubly robust value.
    low, high : float
        The ends of the 95 % interval of ``value``.
    least_difference, largest_difference : float
        The ends of the 99.9 % interval of ``value - plug_in``.
    agrees : bool
        Whether the two values differ by no more than noise, or by too little to matter.
    """

    n_rows: int
    n_further: int
    plug_in: float
    value: float
    low: float
    high: float
    least_difference: float
    largest_difference: float
    agrees: bool

    @property
    def doubt(self) -> str | None:
        """Why the features are doubtful, or None."""
        if self.agrees:
            return None
        return (
            f"the features do not represent the values of the target policy: on the first {self.n_rows:,} rows they "
            f"give {number(self.plug_in, 4)}, and the doubly robust value differs from that by {self._difference}, "
            "which is more than noise. Use richer features"
        )

    def describe(self) -> dict[str, str]:
        """Return the numbers with their labels, for a page.

        Returns
        -------
        dict
            Texts by label.
        """
        return {
            "Plug-in value": number(self.plug_in, 4),
            "Doubly robust value": self._robust,
            "Difference": self._difference,
            "Verdict": "they agree" if self.agrees else "they differ: the features do not represent the values",
            "Based on": f"the first {plural(self.n_rows, 'row')}, {plural(self.n_further, 'additional direction')}",
        }

    @property
    def _difference(self) -> str:
        value, low, high = interval(self.value - self.plug_in, self.least_difference, self.largest_difference)
        return f"{value} ({percent(_CHECKED_LEVEL)} interval {low} to {high})"

    @property
    def _robust(self) -> str:
        value, low, high = interval(self.value, self.low, self.high)
        return f"{value} [{low}, {high}]"


def check_doubly_robust(sample: TargetSample) -> DoublyRobust | None:
    """Return the doubly robust check; None if no richer features are available or there are too few rows."""
    further = _further_features(sample)
    if further is None or not sample.rows.rank:
        return None
    rows, nu = sample.rows, sample.nu
    zeta_own, theta, directions = weigh_rows(rows, nu), _solve(rows), _directions(further, sample)
    if zeta_own is None or theta is None or directions is None:
        return None
    zeta = _cross_weigh(sample, directions)
    if zeta is None:
        return None
    delta, value = rows.reward + rows.psi @ theta, sample.state_phi @ theta
    # The noise of the estimate theta also moves the correction.
    moved = weigh_rows(rows, rows.psi.T @ zeta / len(rows))
    correction = (zeta if moved is None else zeta + moved) * delta
    plug_in, difference = float(nu @ theta), float(correction.mean())
    noise = zeta_own * delta + sample.starts / sample.starts.mean() * (value - plug_in)
    apart = _interval(difference, correction, _CHECKED_LEVEL)
    robust = _interval(plug_in + difference, noise + correction, _LEVEL)
    matters = abs(difference) > _LEAST_DIFFERENCE * float(np.sqrt(np.square(value[sample.starts]).mean()))
    agrees = not matters or apart.low <= 0.0 <= apart.high
    return DoublyRobust(len(rows), directions.of_rows.shape[1], plug_in, *robust, apart.low, apart.high, agrees)


def _further_features(sample: TargetSample) -> Features | None:
    """Return additional features that distinguish states, or pairs of states and actions; None if there are none."""
    features, target, observations = sample.features, sample.target, sample.observations
    n_actions = features.n_actions if isinstance(features, TargetFeatures) else None
    most = min(_MOST_FURTHER, len(sample.rows) // _ROWS_OF_FEATURE, _MOST_FEATURES - features.n_features)
    most //= n_actions or 1
    if table_of(features) is not None or most < _LEAST_FURTHER or prod(observations.shape[1:]) > _MOST_NUMBERS:
        return None  # no features are richer than a table
    numbers = np.asarray(as_rows(observations), np.float64)
    if n_actions == 0:
        numbers = np.concatenate([numbers, sample.action.reshape(len(numbers), -1)], axis=1)
    further = _distinguish(observations, numbers, most)
    return further if n_actions is None or further is None else TargetFeatures(further, target, n_actions)


@np.errstate(over="ignore", invalid="ignore")
def _distinguish(observations: NDArray[Any], numbers: Floats, most: int) -> Features | None:
    """Return a table if there are few numbered states, or else random Fourier features of standardised numbers."""
    is_number = numbers.shape[1] == 1 and observations.dtype.kind in "iu"
    if is_number and observations.min() >= 0 and observations.max() < most:
        return Tabular(int(observations.max()) + 1, other=True)
    mean, scale = numbers.mean(axis=0), numbers.std(axis=0)
    high = np.where(mean + scale > mean, mean + scale, mean + 1.0 + np.abs(mean))  # any scale works for a constant
    if not np.isfinite(high).all():
        return None
    bandwidth = _BANDWIDTH / numbers.shape[1]
    return RandomFourier(most, low=tuple(mean.tolist()), high=tuple(high.tolist()), bandwidth=bandwidth)


class _Directions(NamedTuple):
    """Additional features with mean square 1, uncorrelated with each other and with the checked ones on the rows."""

    of_states: Floats  # (n, k)
    of_rows: Floats
    following: Floats


def _directions(further: Features, sample: TargetSample) -> _Directions | None:
    """Return the directions in which the additional features vary most, after regression on the checked ones."""
    rows = sample.rows
    of_states = np.asarray(further(sample.observations), np.float64)
    of_rows = of_states
    if isinstance(further, TargetFeatures):
        of_rows = np.asarray(further.of_pairs(sample.observations, sample.action), np.float64)
    following, continues = np.zeros_like(of_rows), rows.discount > 0.0
    if continues.any():
        following[continues] = further(sample.next_observations[continues])
    B, n, total = rows.basis, len(rows), float(np.square(of_rows).mean(axis=0).sum())
    if not np.isfinite([total, following.sum(), of_states.sum()]).all():
        return None
    known = rows.phi @ B
    explained = B @ np.linalg.solve(known.T @ known, known.T @ of_rows)
    of_states, of_rows, following = (
        psi - phi @ explained
        for psi, phi in ((of_states, sample.state_phi), (of_rows, rows.phi), (following, rows.phi_next))
    )
    values, vectors = np.linalg.eigh(of_rows.T @ of_rows / n)
    most = min(_MOST_DIRECTIONS, n // _ROWS_OF_DIRECTION)
    kept = np.flatnonzero(values > max(_LEAST_VARIANCE * values.sum(), _ROUNDING * total))[-most:]
    if not kept.size or not most:
        return None
    to_unit = vectors[:, kept] / np.sqrt(values[kept])
    return _Directions(of_states @ to_unit, of_rows @ to_unit, following @ to_unit)


def _cross_weigh(sample: TargetSample, directions: _Directions) -> Floats | None:
    """Return the part of zeta (n,) along the directions; that of each half of the rows comes from the other half."""
    n = len(sample.rows)
    halves = slice(0, n // 2), slice(n // 2, n)
    coefficients = [_weigh_directions(sample, directions, half) for half in reversed(halves)]
    parts = [-(directions.of_rows[half] @ x) for half, x in zip(halves, coefficients, strict=True) if x is not None]
    return sample.rows.weight * np.concatenate(parts) if len(parts) == len(halves) else None


def _weigh_directions(sample: TargetSample, directions: _Directions, half: slice) -> Floats | None:
    """Solve the transposed system of both kinds of features on some of the rows; return the part along the directions.

    A penalty of the size of the noise sets to 0 what the rows do not resolve.
    """
    rows, Z = sample.rows.part(half.start, half.stop), directions.of_rows[half]
    n, k = Z.shape
    left, ahead = rows.weight[:, None] * Z, rows.discount[:, None] * directions.following[half] - Z
    to_known, from_known = left.T @ rows.psi / n, rows.left.T @ ahead / n
    solved = solve_transposed(rows, np.concatenate([sample.nu[:, None], to_known.T], axis=1))
    if solved is None or not np.isfinite(solved).all():
        return None
    nu = directions.of_states[sample.starts].mean(axis=0) - from_known.T @ solved[:, 0]
    U, singular, Vt = np.linalg.svd((left.T @ ahead / n).T - from_known.T @ solved[:, 1:])
    penalty = _PENALTY * k / n
    return np.asarray(Vt.T @ (singular / (singular**2 + penalty) * (U.T @ nu)))


def _solve(rows: Transitions) -> Floats | None:
    """Return the closed form, in the span of the rows."""
    reduced = rows.reduce_rank()
    solver = least_norm_solver(reduced.A, np.sqrt(np.diag(reduced.C)))
    return None if solver is None else -(rows.basis @ solver(reduced.b))


def _interval(value: float, by_row: Floats, level: float) -> Interval:
    """Return an estimate with its interval from block means of the influence `by_row` of the rows."""
    parts = Parts(block_means(by_row[:, None], _BLOCKS)[:, 0], equal_ends(_BLOCKS, len(by_row) // _BLOCKS))
    return estimate_from_parts(np.array([value]), parts).intervals(level).first
