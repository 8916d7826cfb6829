"""On how many rows of a log the value of a target policy rests.

With A = mean w phi (discount phi' - phi)^T, b = mean w phi r and theta = -A^-1 b, the value nu.theta is the mean of
zeta r over the rows, zeta = -w phi.A^-T nu: zeta is the weight of a row in the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.estimator.cells import make_cells, make_cells_of_table
from vrtd.features import Features, Target, TargetFeatures, table_of
from vrtd.problems import Transitions
from vrtd.report.numbers import number, plural
from vrtd.solving import least_norm_solver

#: Rows of the log that are looked at.
MOST_ROWS = 20_000
_MOST_STATES, _LEAST_STATES = 2000, 200  # that are asked for the rows which tell of the target's actions
_MOST_PAIRS = 20_000  # of such a state and an action
_LEAST_TOLD = 10.0  # rows that must tell of an action
_SURE, _LEAST_MISS = 4.0, 0.02  # standard errors, and by how much, the mean of importance ratios must miss 1
# Below so many effective rows, or above this share of actions that were hardly logged, the answer is in doubt. In small
# decision processes whose 95 % intervals held the truth less than 92 % of the time, all logs were beyond one of them.
_LEAST_EFFECTIVE, _MOST_HARDLY = 100.0, 0.1
# Where features represent the values, the share was at most 0.08. Where CartPole's value was off by more than its
# interval with 140 to 400 features, it was 0.2 to 0.4.
_MOST_NEGATIVE = 0.1
_ROUNDING = 1e-9  # of the largest weight
_PROPENSITIES = "the propensities are not the probabilities with which the log's policy took the logged actions"
_REMEDY = "bring more rows, or a log in which these actions are taken more often"


class TargetSample(NamedTuple):
    """The first rows of a log, from which the values of a target policy are learned."""

    target: Target
    features: Features  # TargetFeatures, or those of states where rows have importance ratios
    rows: Transitions
    observations: NDArray[Any]
    next_observations: NDArray[Any]
    action: NDArray[Any]
    state_phi: Floats  # (n, d) features of the states under the target
    starts: NDArray[np.bool_]  # (n,) states over which the value is averaged
    n_rows: int  # of the whole log

    @property
    def nu(self) -> Floats:
        """(d,) mean features of the states over which the value is averaged."""
        return np.asarray(self.state_phi[self.starts].mean(axis=0))

    @property
    def scale(self) -> float:
        """Rows of the log for each row of the sample."""
        return max(self.n_rows / len(self.rows), 1.0)


@dataclass(frozen=True)
class Overlap:
    """How much of a log tells of a target policy. Numbers of rows are for the whole log, as the first rows show it."""

    n_rows: int  # of the log
    effective_rows: float  # (sum |zeta|)^2 / sum zeta^2: rows of equal weight that would tell as much
    largest_weight: float  # of one of the first rows, as a share of all
    #: Share of all weights that is negative. Weights stand for how much more often the target policy visits a state
    #: than the log does, so that none are negative with features that can represent this ratio. None where nothing is
    #: bootstrapped: weights of a regression may be negative.
    negative_weight: float | None
    #: Share of the target's actions of which fewer than 10 rows tell: by the features, or in cells of similar states.
    hardly_logged: float
    effective_ratios: float | None = None  # effective rows of the importance ratios; None: there are none
    largest_ratio: float | None = None
    mean_ratio: float | None = None  # 1 but for noise, if propensities are right and the log has all actions
    mean_ratio_error: float | None = None  # its standard error

    @property
    def doubts(self) -> list[str]:
        """Why the answer rests on too few rows."""
        doubts = []
        if self.effective_rows < 1.0:
            doubts.append(f"no row tells what the target policy is worth; {_REMEDY}")
        elif self.effective_rows < _LEAST_EFFECTIVE:
            doubts.append(
                f"the value of the target policy rests on few of the {self.n_rows:,} rows: they tell as much as "
                f"{self.effective_rows:.0f} of equal weight, and intervals may be too short; {_REMEDY}"
            )
        if self.negative_weight is not None and self.negative_weight > _MOST_NEGATIVE:
            doubts.append(
                f"the features do not tell where the target policy leads ({100 * self.negative_weight:.0f} % of the "
                "weights of rows are negative), so that its value may be off by more than the interval says; compare "
                "with other features, or bring a log of a policy that is more like the target"
            )
        if self.hardly_logged > _MOST_HARDLY:
            doubts.append(
                f"{100 * self.hardly_logged:.0f} % of the target's actions were hardly logged (fewer than "
                f"{_LEAST_TOLD:.0f} rows tell of them), so that their values are not known well; {_REMEDY}"
            )
        if self._doubt_of_ratios is not None:
            doubts.append(self._doubt_of_ratios)
        return doubts

    @property
    def _doubt_of_ratios(self) -> str | None:
        """Why the propensities are not trusted."""
        mean, error = self.mean_ratio, self.mean_ratio_error
        if mean is None or error is None or abs(mean - 1.0) <= max(_LEAST_MISS, _SURE * error):
            return None
        says = f"importance ratios have mean {number(mean, 3)} and not 1"
        if mean > 1.0:
            return f"{says}: {_PROPENSITIES}; correct the column, or leave propensity out"
        return (
            f"{says}: the target takes actions that the log's policy never takes, or {_PROPENSITIES}; check the "
            "column, or bring a log in which these actions are taken"
        )

    def describe(self) -> dict[str, str]:
        """Return labels and values for a page."""
        lines = {
            "Effective sample size": f"{number(self.effective_rows, 3)} of {plural(self.n_rows, 'row')}",
            "Largest weight of a row": f"{100 * self.largest_weight:.3g} % of all weights",
            "Hardly logged": f"{100 * self.hardly_logged:.3g} % of the target's actions",
        }
        if self.negative_weight is not None:
            lines["Negative weights"] = f"{100 * self.negative_weight:.3g} % of all weights"
        if self.effective_ratios is not None and self.largest_ratio is not None and self.mean_ratio is not None:
            lines["Importance ratios"] = (
                f"effective sample size {number(self.effective_ratios, 3)}, mean {number(self.mean_ratio, 3)}, "
                f"the largest {number(self.largest_ratio, 3)}"
            )
        return lines


def measure_overlap(sample: TargetSample) -> Overlap | None:
    """Return how much the rows tell of the target; None where they do not determine its value."""
    zeta = weigh_rows(sample.rows, sample.nu)
    if zeta is None:
        return None
    size, features = np.abs(zeta), sample.features
    effective = sample.scale * _effective(size)
    largest = float(size.max() / size.sum()) if size.any() else 1.0
    is_negative = zeta < -_ROUNDING * size.max()
    negative = float(size[is_negative].sum() / size.sum()) if size.any() and sample.rows.discount.any() else None
    common = sample.n_rows, effective, largest, negative
    if isinstance(features, TargetFeatures):
        return Overlap(*common, _untold_share(sample, features))
    ratio = sample.rows.weight
    error = float(ratio.std() / np.sqrt(len(ratio)))
    of_ratios = sample.scale * _effective(ratio), float(ratio.max()), float(ratio.mean()), error
    return Overlap(*common, _unlikely_share(sample), *of_ratios)


def weigh_rows(rows: Transitions, nu: Floats) -> Floats | None:
    """Return zeta (n,), so that nu.theta = mean(zeta reward) for the closed form theta; None if that is not known."""
    direction = solve_transposed(rows, nu)
    zeta = None if direction is None else -(rows.left @ direction)
    return zeta if zeta is not None and np.isfinite(zeta).all() else None


def solve_transposed(rows: Transitions, nu: Floats) -> Floats | None:
    """Return A^-T nu (d,), or (d, k) for columns nu, in the span of the rows; None if A is not finite, or 0."""
    B, reduced = rows.basis, rows.reduce_rank()
    if not rows.rank:
        return np.zeros_like(nu)
    solver = least_norm_solver(reduced.A.T, np.sqrt(np.diag(reduced.C)))
    if solver is None:
        return None
    return np.asarray(solver(nu) if reduced is rows else B @ solver(B.T @ nu))


def _effective(weight: Floats) -> float:
    return float(weight.sum() ** 2 / np.square(weight).sum()) if weight.any() else 0.0


def _untold_share(sample: TargetSample, features: TargetFeatures) -> float:
    """Return the share of the target's actions of which few rows tell: by the features, or in cells of states."""
    rows, n_actions = sample.rows, features.n_actions or 0
    inverse = invert_gram(rows)
    is_table = table_of(features) is not None  # its states are cells
    cells = None if is_table else make_cells(sample.observations, sample.action, n_actions)

    def count(at: NDArray[np.int64], actions: NDArray[Any]) -> Floats:
        phi = np.asarray(features.of_pairs(sample.observations[at], actions), np.float64)
        told = count_telling(rows, inverse, phi)
        return told if cells is None else np.minimum(told, cells.count(at, actions))

    return _share_of_few(sample, n_actions, count)


def _share_of_few(
    sample: TargetSample, n_actions: int, count: Callable[[NDArray[np.int64], NDArray[Any]], Floats]
) -> float:
    """Return the share of the target's actions in states of the sample for which `count` is small."""
    n, most = len(sample.rows), min(_MOST_STATES, max(_LEAST_STATES, _MOST_PAIRS // max(n_actions, 1)))
    rows, share = np.arange(0, n, -(-n // most)), 0.0
    for at, action, probability in _list_actions(sample.target, n_actions, sample.observations[rows]):
        told = sample.scale * count(rows[at], action)
        share += float(probability[told < _LEAST_TOLD].sum())
    return share / len(rows)


def _list_actions(
    target: Target, n_actions: int, observations: NDArray[Any]
) -> Iterator[tuple[NDArray[np.int64], NDArray[Any], Floats]]:
    """Yield which observations may have another action of the target, these actions, and their probabilities."""
    n = len(observations)
    if n_actions:
        p = target.probabilities(observations, n_actions)
        for a in range(n_actions):
            at = np.flatnonzero(p[:, a] > 0.0)
            if at.size:
                yield at, np.full(at.size, a), p[at, a]
    else:
        draws = target.draws(observations)
        m = draws.shape[1]
        for j in range(m):
            yield np.arange(n), draws[:, j], np.full(n, 1.0 / m)


def invert_gram(rows: Transitions) -> Floats:
    """Return the pseudo-inverse (d, d) of the sum of phi phi^T."""
    B = rows.basis
    return np.asarray(B @ np.linalg.inv(B.T @ rows.C @ B) @ B.T / len(rows))


def count_telling(rows: Transitions, inverse_gram: Floats, phi: Floats) -> Floats:
    """Return how many rows tell of phi.theta, for each row of phi: 1 / (phi^T G^-1 phi) with G the sum of phi phi^T.

    For a table these are the visits. Where phi is not in the span of the rows, none do.
    """
    leverage = np.einsum("ni,ni->n", phi @ inverse_gram, phi)
    told = np.divide(1.0, leverage, out=np.full(len(phi), np.inf), where=leverage > 0.0)
    return np.where(rows.spans(phi), told, 0.0)


def _unlikely_share(sample: TargetSample) -> float:
    """Return the same share where rows have importance ratios.

    Of the rows that tell of a state, the propensity of an action is the share that tells of it.
    """
    rows, is_taken = sample.rows, sample.rows.weight > 0.0
    if not is_taken.any():
        return 1.0
    ratio = rows.weight[is_taken]
    propensity = sample.target.probability_of(sample.observations[is_taken], sample.action[is_taken]) / ratio
    told = sample.scale * propensity * count_telling(rows, invert_gram(rows), sample.state_phi[is_taken])
    hardly = float(ratio[told < _LEAST_TOLD].sum() / ratio.sum())
    n_actions = max(sample.target.count_actions(sample.observations), int(sample.action.max()) + 1)
    if table_of(sample.features) is not None:
        cells = make_cells_of_table(sample.state_phi.argmax(axis=1), sample.action, n_actions)
    else:
        cells = make_cells(sample.observations, sample.action, n_actions)
    return hardly if cells is None else max(hardly, _share_of_few(sample, n_actions, cells.count))
