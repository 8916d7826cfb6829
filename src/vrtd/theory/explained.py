"""How much of the value function linear features explain, as far as a sample can show it.

The misfit e(s) = V(s) - phi(s).theta obeys e(s) = E[delta + discount e(s') | s], delta being the TD error of theta: it
is the value function of the rewards delta. Whether it is 0 can only be seen by telling states apart in another way than
by phi.theta. Here states are told apart by cells: equal observations (or equal rows of phi, when no observations are
given) are one cell, and where there are too many of them they are clustered. On the cells the equation is solved in
closed form, and what the noise of that solution adds to E[e^2] is taken away.

So this estimates the misfit that the cells can see. When every state has its own cell, as in a finite problem whose
states are visited often, that is the misfit itself. When states share a cell (`exact` is False, or the features alone
tell states apart and some are alike), what differs inside of a cell is not seen: the share then tends to be too large.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import Floats, check_theta
from vrtd.errors import InvalidInputError
from vrtd.problems import Transitions
from vrtd.series import LEAST_WINDOWS, clip_negative, lag_covariance, lag_window
from vrtd.theory.sample_noise import check_rows

Indices = NDArray[np.int64]

# A cell is to be seen this often on average; more cells than this are not told apart.
_VISITS, _MOST_CELLS = 25, 300
_ROUNDING = 1e-18  # of the mean square of V: a variance below it is rounding


class Explained(NamedTuple):
    """Share of the variance of V over the sample's states that phi.theta explains, and what it misses."""

    share: float  # 1 - E[e^2] / Var V, in [0, 1]; nan when V does not vary
    share_error: float  # its standard error
    misfit: float  # sqrt(E[e^2]), in units of value
    misfit_error: float
    n_cells: int
    exact: bool  # every distinct observation is a cell
    remark: str


def value_explained(
    sample: Transitions,
    theta: ArrayLike | None = None,
    *,
    observations: ArrayLike | None = None,
    next_observations: ArrayLike | None = None,
) -> Explained:
    """What phi.theta explains of the value function; with theta None, what the sample's own fixed point explains.

    `observations` and `next_observations` (P, ...) tell states apart that the features do not: give them where they
    are known. A theta that has not converged is judged as it is.

    >>> import vrtd
    >>> problem = vrtd.problems.boyan_chain()
    >>> found = value_explained(vrtd.record(problem, 5000, shuffle=False), problem.theta_star)
    >>> found.exact, found.share + 4 * found.share_error > 1.0
    (True, True)
    """
    check_rows(sample)
    if (observations is None) != (next_observations is None):
        raise InvalidInputError(
            "observations and next_observations must come together", "one of them", "pass both or none"
        )
    now, then = (sample.phi, sample.phi_next) if observations is None else (observations, next_observations)
    if theta is None:
        sample = sample.reduce_rank()
    discount, weight, psi = sample.discount, sample.weight, sample.psi
    known = sample.theta_star if theta is None else check_theta("theta", theta, sample.n_features)
    cells, next_cells, exact = _cells(_matrix("observations", now, sample), _matrix("next_observations", then, sample))
    n, m = len(sample), int(cells.max()) + 1

    delta = sample.reward + psi @ known
    system = np.zeros((m, m))
    np.add.at(system, (cells, cells), weight / n)
    seen = next_cells >= 0  # a cell that is only ever arrived at has no estimate: its misfit counts as 0
    np.subtract.at(system, (cells[seen], next_cells[seen]), (weight * discount)[seen] / n)
    system += 1e-12 * np.eye(m) * np.trace(system) / m
    inverse = np.linalg.inv(system)
    misfit = inverse @ (np.bincount(cells, weight * delta, minlength=m) / n)
    ahead = np.where(seen, misfit[np.maximum(next_cells, 0)], 0.0)
    residual = weight * (delta + discount * ahead - misfit[cells])
    influence = inverse[:, cells] * residual  # (m, n) what each row did to the misfit of each cell
    if theta is None:
        to_theta = np.zeros((m, sample.n_features))
        np.add.at(to_theta, cells, weight[:, None] * psi / n)
        moved = -np.linalg.solve(sample.A, (sample.left * delta[:, None]).T)
        influence = influence + (inverse @ to_theta) @ moved

    visits = np.bincount(cells, minlength=m) / n
    value = sample.phi @ known + misfit[cells]
    # Residuals on cells of their own are not correlated with the past; those of a theta that misses something are.
    window = 0 if theta is not None else lag_window((np.sqrt(visits)[:, None] * influence).T) or n // LEAST_WINDOWS
    covariance = clip_negative(lag_covariance(influence.T, window)) / n
    noise = float(visits @ np.diag(covariance))
    square = float(visits @ misfit**2) - noise
    variance = float(value.var()) - (noise - float(visits @ covariance @ visits))
    by_cell = np.bincount(cells, value - value.mean(), minlength=m) / n
    to_square = misfit[cells] ** 2 - misfit[cells] @ misfit[cells] / n + 2.0 * (visits * misfit) @ influence
    to_variance = (value - value.mean()) ** 2 - value.var() + 2.0 * by_cell @ influence
    chance = 2.0 * float((np.outer(visits, visits) * covariance**2).sum())  # the noise of a square of noise
    rms = float(np.sqrt(max(square, 0.0)))
    square_error = float(np.sqrt(_error(to_square) ** 2 + chance))
    scale = float(np.sqrt(max(rms**2, square_error)))
    what = "distinct observations" if exact else "clusters of similar observations"
    remark = f"what the features explain is judged on {m} {what}"
    if observations is None:
        remark += ", by their features: states with the same features count as one"
    variance_error = float(np.sqrt(_error(to_variance) ** 2 + chance))
    rms_error = square_error / (2.0 * scale) if scale else 0.0
    if not value.var() > _ROUNDING * float(np.square(value).mean()):
        return Explained(np.nan, np.nan, rms, rms_error, m, exact, f"{remark}; V is constant")
    if square - 2.0 * square_error > variance + 2.0 * variance_error:
        return Explained(0.0, 0.0, rms, rms_error, m, exact, f"{remark}; phi.theta misses more than V varies")
    if not variance > 2.0 * variance_error:
        return Explained(np.nan, np.nan, rms, rms_error, m, exact, f"{remark}; the variance of V is not told from 0")
    ratio = square / variance
    share = float(np.clip(1.0 - ratio, 0.0, 1.0))
    share_error = float(np.sqrt(_error((to_square - ratio * to_variance) / variance) ** 2 + chance / variance**2))
    return Explained(share, min(share_error, 1.0), rms, rms_error, m, exact, remark)


def _matrix(name: str, values: Any, sample: Any) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.shape[:1] != (len(sample),):
        raise InvalidInputError(f"{name} must have {len(sample)} rows", array.shape, "pass one row per transition")
    return np.ascontiguousarray(array.reshape(len(sample), -1)) + 0.0  # -0.0 and 0.0 are the same state


def _cells(now: Floats, then: Floats) -> tuple[Indices, Indices, bool]:
    """The cell of each row and of its successor, -1 where a successor's cell is never left, and whether all differ."""
    n = len(now)
    keys = np.concatenate([now, then])
    joined = np.unique(keys.view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))).ravel(), return_inverse=True)
    label = joined[1].ravel()
    count = int(np.unique(label[:n]).size)
    exact = count <= min(_MOST_CELLS, n // _VISITS)
    if not exact:
        from scipy.cluster.vq import kmeans2, vq

        spread = now.std(axis=0)
        scaled, scaled_next = (x[:, spread > 0] / spread[spread > 0] for x in (now, then))
        k = max(1, min(_MOST_CELLS, n // (2 * _VISITS)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an empty cluster is no matter
            centres = kmeans2(scaled, k, iter=10, minit="points", seed=0)[0]
        label = np.concatenate([vq(scaled, centres)[0], vq(scaled_next, centres)[0]])
    visited = np.unique(label[:n])
    place = np.full(int(label.max()) + 1, -1, dtype=np.int64)
    place[visited] = np.arange(visited.size)
    return place[label[:n]], place[label[n:]], exact


def _error(influence: Floats) -> float:
    """Standard error of a mean of correlated rows."""
    n = len(influence)
    centred = influence - influence.mean()
    window = lag_window(centred[:, None]) or n // LEAST_WINDOWS
    least = 0.1 * float(centred @ centred) / n
    return float(np.sqrt(max(float(lag_covariance(centred[:, None], window)[0, 0]), least) / n))
