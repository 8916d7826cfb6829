"""Overlap of a log with a target policy: the number of rows on which the value of the policy rests.

With A = mean w phi (discount phi' - phi)^T, b = mean w phi r and theta = -A^-1 b, the value nu.theta is the mean of
zeta r over the rows, with zeta = -w phi.A^-T nu. So zeta is the weight of a row in the estimate.
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

#: Most rows of the log that are used.
MOST_ROWS = 20_000
_MOST_STATES, _LEAST_STATES = 2000, 200  # states for which rows with the target's actions are counted
_MOST_PAIRS = 20_000  # of such a state and an action
_LEAST_INFORMATIVE = 10.0  # informative rows below which an action is hardly logged
_SURE, _LEAST_MISS = 4.0, 0.02  # a warning needs a mean ratio off 1 by this many standard errors and by this much
# The result is doubtful with a smaller effective sample size, or with a larger share of hardly logged actions. In small
# decision processes, all logs whose 95 % intervals had a coverage below 92 % exceeded one of these limits.
_LEAST_EFFECTIVE, _MOST_HARDLY = 100.0, 0.1
# The share was at most 0.08 with features that represent the values. It was 0.2 to 0.4 where the value of CartPole with
# 140 to 400 features was off by more than its interval.
_MOST_NEGATIVE = 0.1
_ROUNDING = 1e-9  # of the largest weight
_PROPENSITIES = "the propensities are not the probabilities with which the log's policy took the logged actions"
_REMEDY = "Use more rows, or a log in which these actions are taken more often"


class TargetSample(NamedTuple):
    """The first rows of a log, from which the values of a target policy are learned."""

    target: Target
    features: Features  # TargetFeatures; features of states if rows have importance ratios
    rows: Transitions
    observations: NDArray[Any]
    next_observations: NDArray[Any]
    action: NDArray[Any]
    state_phi: Floats  # (n, d) features of the states under the target
    starts: NDArray[np.bool_]  # (n,) states over which the value is averaged
    n_rows: int  # of the whole log

    @property
    def nu(self) -> Floats:
        """Mean features (d,) of the states over which the value is averaged."""
        return np.asarray(self.state_phi[self.starts].mean(axis=0))

    @property
    def scale(self) -> float:
        """Number of rows in the log per row of the sample."""
        return max(self.n_rows / len(self.rows), 1.0)


@dataclass(frozen=True)
class Overlap:
    """Overlap of a log with a target policy, estimated from the first rows and scaled to the whole log.

    Attributes
    ----------
    n_rows : int
        The number of rows in the log.
    effective_rows : float
        The effective sample size ``(sum |zeta|)^2 / sum zeta^2`` of the weights zeta of the rows.
    largest_weight : float
        The largest weight of a row, as a share of all weights.
    negative_weight : float or None
        The share of all weights that is negative. A weight stands for the ratio of how often the target policy and the
        log visit a state, so no weight is negative if the features can represent this ratio. None without
        bootstrapping, because the weights of a regression may be negative.
    hardly_logged : float
        The share of the target's actions about which fewer than 10 rows carry information, by the features or in cells
        of similar states.
    effective_ratios : float or None
        The effective sample size of the importance ratios; None if there are no ratios.
    largest_ratio : float or None
        The largest importance ratio.
    mean_ratio : float or None
        The mean importance ratio, which is 1 up to noise if the propensities are right and the log has all actions.
    mean_ratio_error : float or None
        The standard error of ``mean_ratio``.
    """

    n_rows: int
    effective_rows: float
    largest_weight: float
    negative_weight: float | None
    hardly_logged: float
    effective_ratios: float | None = None
    largest_ratio: float | None = None
    mean_ratio: float | None = None
    mean_ratio_error: float | None = None

    @property
    def doubts(self) -> list[str]:
        """Reasons to doubt the value of the target policy."""
        doubts = []
        if self.effective_rows < 1.0:
            doubts.append(f"no row carries information about the value of the target policy. {_REMEDY}")
        elif self.effective_rows < _LEAST_EFFECTIVE:
            doubts.append(
                f"the value of the target policy rests on few of the {self.n_rows:,} rows (effective sample size "
                f"{self.effective_rows:.0f}), so intervals may be too short. {_REMEDY}"
            )
        if self.negative_weight is not None and self.negative_weight > _MOST_NEGATIVE:
            doubts.append(
                "the features do not represent which states the target policy visits "
                f"({100 * self.negative_weight:.0f} % of the row weights are negative), so its value may be off by "
                "more than the interval says. Compare with other features, or use the log of a policy that is closer "
                "to the target"
            )
        if self.hardly_logged > _MOST_HARDLY:
            doubts.append(
                f"{100 * self.hardly_logged:.0f} % of the target's actions were hardly logged (fewer than "
                f"{_LEAST_INFORMATIVE:.0f} rows carry information about them), so their values are not known well. "
                f"{_REMEDY}"
            )
        if self._doubt_of_ratios is not None:
            doubts.append(self._doubt_of_ratios)
        return doubts

    @property
    def _doubt_of_ratios(self) -> str | None:
        """Why the propensities are doubtful, or None."""
        mean, error = self.mean_ratio, self.mean_ratio_error
        if mean is None or error is None or abs(mean - 1.0) <= max(_LEAST_MISS, _SURE * error):
            return None
        problem = f"importance ratios have mean {number(mean, 3)} instead of 1"
        if mean > 1.0:
            return f"{problem}: {_PROPENSITIES}. Correct the column, or drop propensity"
        return (
            f"{problem}: the target takes actions that the log's policy never takes, or {_PROPENSITIES}. Check the "
            "column, or use a log in which these actions are taken"
        )

    def describe(self) -> dict[str, str]:
        """Return the numbers with their labels, for a page.

        Returns
        -------
        dict
            Texts by label.
        """
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
    """Return the overlap of the rows with the target; None if the rows do not determine its value."""
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
        return Overlap(*common, _uncovered_share(sample, features))
    ratio = sample.rows.weight
    error = float(ratio.std() / np.sqrt(len(ratio)))
    of_ratios = sample.scale * _effective(ratio), float(ratio.max()), float(ratio.mean()), error
    return Overlap(*common, _unlikely_share(sample), *of_ratios)


def weigh_rows(rows: Transitions, nu: Floats) -> Floats | None:
    """Return zeta (n,) with nu.theta = mean(zeta reward) for the closed form theta; None if it is not finite."""
    direction = solve_transposed(rows, nu)
    zeta = None if direction is None else -(rows.left @ direction)
    return zeta if zeta is not None and np.isfinite(zeta).all() else None


def solve_transposed(rows: Transitions, nu: Floats) -> Floats | None:
    """Return A^-T nu (d,), or (d, k) for columns nu, in the span of the rows; None if A is 0 or not finite."""
    B, reduced = rows.basis, rows.reduce_rank()
    if not rows.rank:
        return np.zeros_like(nu)
    solver = least_norm_solver(reduced.A.T, np.sqrt(np.diag(reduced.C)))
    if solver is None:
        return None
    return np.asarray(solver(nu) if reduced is rows else B @ solver(B.T @ nu))


def _effective(weight: Floats) -> float:
    return float(weight.sum() ** 2 / np.square(weight).sum()) if weight.any() else 0.0


def _uncovered_share(sample: TargetSample, features: TargetFeatures) -> float:
    """Return the share of hardly logged actions of the target, by the features or in cells of states."""
    rows, n_actions = sample.rows, features.n_actions or 0
    inverse = invert_gram(rows)
    is_table = table_of(features) is not None  # the states of a table are cells already
    cells = None if is_table else make_cells(sample.observations, sample.action, n_actions)

    def count(at: NDArray[np.int64], actions: NDArray[Any]) -> Floats:
        phi = np.asarray(features.of_pairs(sample.observations[at], actions), np.float64)
        informative = count_informative(rows, inverse, phi)
        return informative if cells is None else np.minimum(informative, cells.count(at, actions))

    return _share_of_few(sample, n_actions, count)


def _share_of_few(
    sample: TargetSample, n_actions: int, count: Callable[[NDArray[np.int64], NDArray[Any]], Floats]
) -> float:
    """Return the share of the target's actions, in states of the sample, for which `count` is small."""
    n, most = len(sample.rows), min(_MOST_STATES, max(_LEAST_STATES, _MOST_PAIRS // max(n_actions, 1)))
    rows, share = np.arange(0, n, -(-n // most)), 0.0
    for at, action, probability in _list_actions(sample.target, n_actions, sample.observations[rows]):
        informative = sample.scale * count(rows[at], action)
        share += float(probability[informative < _LEAST_INFORMATIVE].sum())
    return share / len(rows)


def _list_actions(
    target: Target, n_actions: int, observations: NDArray[Any]
) -> Iterator[tuple[NDArray[np.int64], NDArray[Any], Floats]]:
    """Yield (rows, actions, probabilities) for each discrete action of the target, or for each of its draws."""
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


def count_informative(rows: Transitions, inverse_gram: Floats, phi: Floats) -> Floats:
    """Return the number of rows that carry information about phi.theta, for each row of phi.

    It is 1 / (phi^T G^-1 phi) with G the sum of phi phi^T. For a table these are the visits. It is 0 if phi is not in
    the span of the rows.
    """
    leverage = np.einsum("ni,ni->n", phi @ inverse_gram, phi)
    informative = np.divide(1.0, leverage, out=np.full(len(phi), np.inf), where=leverage > 0.0)
    return np.where(rows.spans(phi), informative, 0.0)


def _unlikely_share(sample: TargetSample) -> float:
    """Return the share of hardly logged actions of the target if rows have importance ratios.

    The number of informative rows for an action is its propensity times the number for its state.
    """
    rows, is_taken = sample.rows, sample.rows.weight > 0.0
    if not is_taken.any():
        return 1.0
    ratio = rows.weight[is_taken]
    propensity = sample.target.probability_of(sample.observations[is_taken], sample.action[is_taken]) / ratio
    informative = sample.scale * propensity * count_informative(rows, invert_gram(rows), sample.state_phi[is_taken])
    hardly = float(ratio[informative < _LEAST_INFORMATIVE].sum() / ratio.sum())
    n_actions = max(sample.target.count_actions(sample.observations), int(sample.action.max()) + 1)
    if table_of(sample.features) is not None:
        cells = make_cells_of_table(sample.state_phi.argmax(axis=1), sample.action, n_actions)
    else:
        cells = make_cells(sample.observations, sample.action, n_actions)
    return hardly if cells is None else max(hardly, _share_of_few(sample, n_actions, cells.count))
