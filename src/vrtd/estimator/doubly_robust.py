"""The doubly robust value of a target policy, as a check on the features.

J = nu.theta is right if phi.theta represents the values of the policy. J + mean(zeta delta), delta being the TD errors
of theta and zeta the weights of the rows (`overlap`), is right if either these values or zeta are. With zeta of the
features themselves the correction is 0, since the closed form makes mean(w phi delta) 0. So zeta comes from richer
features; the two values then differ by more than noise only if the features miss something. The weights of one half of
the rows come from the other half, so that the correction has mean 0 where the features miss nothing.
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
from vrtd.estimator.estimates import Interval, Parts, estimate_from_parts
from vrtd.estimator.overlap import TargetSample, solve_transposed, weigh_rows
from vrtd.features import Features, RandomFourier, Tabular, TargetFeatures, table_of
from vrtd.features.features import as_rows
from vrtd.problems import Transitions
from vrtd.report.numbers import interval, number, percent, plural
from vrtd.series import block_means
from vrtd.solving import least_norm_solver

_MOST_FEATURES = 400  # of the checked features and the further ones, so that it takes less than a second
_MOST_FURTHER = 120  # further features, over all actions
_LEAST_FURTHER = 4  # of an action
_ROWS_OF_FEATURE = 25  # rows that there must be for each further feature
_MOST_DIRECTIONS, _ROWS_OF_DIRECTION = 20, 100  # of further features; rows that there must be for each
_LEAST_VARIANCE, _ROUNDING = 0.01, 1e-12  # of a direction, as a share of all
_PENALTY = 4.0  # times the variance of a number of the system, 1/n, and the number of directions
_MOST_NUMBERS = 64  # of an observation; of more, such as pixels, distances say little
_BANDWIDTH = 0.5  # over the number of numbers: distances of one standard deviation are told apart
_BLOCKS = 64
_LEVEL, _CHECKED_LEVEL = 0.95, 0.999
_LEAST_DIFFERENCE = 0.01  # of the size of the values, below which a difference does not matter


@dataclass(frozen=True)
class DoublyRobust:
    """The value of a target policy from the first rows of a log, and a check on it."""

    n_rows: int  # from which it comes
    n_further: int  # directions of further features
    plug_in: float  # nu.theta
    value: float  # the doubly robust one
    low: float  # with confidence 0.95
    high: float
    least_difference: float  # of the value less the plug-in one, with confidence 0.999
    largest_difference: float
    agrees: bool  # whether they differ by no more than noise, or by too little to matter

    @property
    def doubt(self) -> str | None:
        """Why the features are not trusted, or None."""
        if self.agrees:
            return None
        return (
            f"the features do not represent the values of the target policy: on the first {self.n_rows:,} rows they "
            f"give {number(self.plug_in, 4)}, and the doubly robust value differs from that by {self._difference}, "
            "more than noise explains; bring richer features"
        )

    def describe(self) -> dict[str, str]:
        """Return labels and values for a page."""
        return {
            "Plug-in value": number(self.plug_in, 4),
            "Doubly robust value": self._robust,
            "Difference": self._difference,
            "Verdict": "they agree" if self.agrees else "they differ: the features miss something",
            "Rests on": f"the first {plural(self.n_rows, 'row')}, {plural(self.n_further, 'further direction')}",
        }

    @property
    def _difference(self) -> str:
        found = interval(self.value - self.plug_in, self.least_difference, self.largest_difference)
        return "{} ({} interval {} to {})".format(found[0], percent(_CHECKED_LEVEL), *found[1:])

    @property
    def _robust(self) -> str:
        value, low, high = interval(self.value, self.low, self.high)
        return f"{value} [{low}, {high}]"


def check_doubly_robust(sample: TargetSample) -> DoublyRobust | None:
    """Compare the value with the doubly robust one; None where no richer features are known, or rows are too few."""
    further = _further_features(sample)
    if further is None or not sample.rows.rank:
        return None
    rows, nu = sample.rows, sample.nu
    own, theta, directions = weigh_rows(rows, nu), _solve(rows), _directions(further, sample)
    if own is None or theta is None or directions is None:
        return None
    zeta = _cross_weigh(sample, directions)
    if zeta is None:
        return None
    delta, value = rows.reward + rows.psi @ theta, sample.state_phi @ theta
    # theta is an estimate, too, whose noise moves the correction.
    moved = weigh_rows(rows, rows.psi.T @ zeta / len(rows))
    correction = (zeta if moved is None else zeta + moved) * delta
    plug_in, difference = float(nu @ theta), float(correction.mean())
    noise = own * delta + sample.starts / sample.starts.mean() * (value - plug_in)
    apart = _interval(difference, correction, _CHECKED_LEVEL)
    robust = _interval(plug_in + difference, noise + correction, _LEVEL)
    matters = abs(difference) > _LEAST_DIFFERENCE * float(np.sqrt(np.square(value[sample.starts]).mean()))
    agrees = not matters or apart.low <= 0.0 <= apart.high
    return DoublyRobust(len(rows), directions.of_rows.shape[1], plug_in, *robust, apart.low, apart.high, agrees)


def _further_features(sample: TargetSample) -> Features | None:
    """Return features that tell states, or pairs of states and actions, apart; None where there are none to add."""
    features, target, observations = sample.features, sample.target, sample.observations
    n_actions = features.n_actions if isinstance(features, TargetFeatures) else None
    most = min(_MOST_FURTHER, len(sample.rows) // _ROWS_OF_FEATURE, _MOST_FEATURES - features.n_features)
    most //= n_actions or 1
    if table_of(features) is not None or most < _LEAST_FURTHER or prod(observations.shape[1:]) > _MOST_NUMBERS:
        return None  # nothing is richer than a table
    numbers = np.asarray(as_rows(observations), np.float64)
    if n_actions == 0:
        numbers = np.concatenate([numbers, sample.action.reshape(len(numbers), -1)], axis=1)
    further = _tell_apart(observations, numbers, most)
    return further if n_actions is None or further is None else TargetFeatures(further, target, n_actions)


@np.errstate(over="ignore", invalid="ignore")
def _tell_apart(observations: NDArray[Any], numbers: Floats, most: int) -> Features | None:
    """Return a table of few numbered states, or else random Fourier features of standardised numbers."""
    is_number = numbers.shape[1] == 1 and observations.dtype.kind in "iu"
    if is_number and observations.min() >= 0 and observations.max() < most:
        return Tabular(int(observations.max()) + 1, other=True)
    mean, scale = numbers.mean(axis=0), numbers.std(axis=0)
    high = np.where(mean + scale > mean, mean + scale, mean + 1.0 + np.abs(mean))  # of a constant, any scale will do
    if not np.isfinite(high).all():
        return None
    bandwidth = _BANDWIDTH / numbers.shape[1]
    return RandomFourier(most, low=tuple(mean.tolist()), high=tuple(high.tolist()), bandwidth=bandwidth)


class _Directions(NamedTuple):
    """Further features, uncorrelated and of mean square 1 on the rows, and uncorrelated with the checked ones."""

    of_states: Floats  # (n, k)
    of_rows: Floats
    following: Floats


def _directions(further: Features, sample: TargetSample) -> _Directions | None:
    """Return the directions in which further features vary most beside the checked ones."""
    rows = sample.rows
    of_states = np.asarray(further(sample.observations), np.float64)
    of_rows = of_states
    if isinstance(further, TargetFeatures):
        of_rows = np.asarray(further.of_pairs(sample.observations, sample.action), np.float64)
    following, goes_on = np.zeros_like(of_rows), rows.discount > 0.0
    if goes_on.any():
        following[goes_on] = further(sample.next_observations[goes_on])
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
    """Return the part of zeta (n,) that is along the directions: that of each half of the rows from the other half."""
    n = len(sample.rows)
    halves = slice(0, n // 2), slice(n // 2, n)
    coefficients = [_weigh_directions(sample, directions, half) for half in reversed(halves)]
    parts = [-(directions.of_rows[half] @ x) for half, x in zip(halves, coefficients, strict=True) if x is not None]
    return sample.rows.weight * np.concatenate(parts) if len(parts) == len(halves) else None


def _weigh_directions(sample: TargetSample, directions: _Directions, half: slice) -> Floats | None:
    """Solve the transposed system of both kinds of features, by some of the rows, for the part along the directions.

    What the rows do not resolve counts as 0: the system is solved with a penalty of the size of its noise.
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
    """Return an estimate that the rows move by `by_row`, with its interval from block means."""
    parts = Parts(block_means(by_row[:, None], _BLOCKS)[:, 0], len(by_row) // _BLOCKS)
    return estimate_from_parts(np.array([value]), parts).intervals(level).first
