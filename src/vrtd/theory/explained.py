"""Share of the variance of the value function that linear features explain, estimated from a sample.

The misfit e(s) = V(s) - phi(s).theta satisfies e(s) = E[delta + discount e(s') | s], where delta is the TD error of
theta. So e is the value function for the rewards delta. To estimate it, states are assigned to cells: equal
observations (or equal rows of phi, without observations) form one cell, and they are clustered if there are too many.
The equation is solved in closed form on the cells, and the part of E[e^2] that is due to the noise of the solution is
subtracted.

So this estimates the misfit at the resolution of the cells. If every state has its own cell, as in a finite problem
whose states are visited often, that is the misfit itself. If states share a cell (`exact` is False, or the features of
some states are equal), differences inside a cell are ignored, and the share tends to be too large.
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
from vrtd.sparse import is_scipy_sparse
from vrtd.theory.sample_noise import check_rows

Indices = NDArray[np.int64]

# Least average number of rows per cell, and largest number of cells.
_VISITS, _MOST_CELLS = 25, 300
_ROUNDING = 1e-18  # share of the mean square of V; a smaller variance is rounding


class Explained(NamedTuple):
    """Share of the variance of V over the states of the sample that phi.theta explains, and the misfit.

    Attributes
    ----------
    share : float
        ``1 - E[e^2] / Var V``, in [0, 1]; nan if V is constant.
    share_error : float
        Standard error of ``share``.
    misfit : float
        ``sqrt(E[e^2])``, in units of value.
    misfit_error : float
        Standard error of ``misfit``.
    n_cells : int
        Number of cells.
    exact : bool
        Whether every distinct observation has its own cell.
    remark : str
        Text that says how states were distinguished, and why a share is missing.
    """

    share: float
    share_error: float
    misfit: float
    misfit_error: float
    n_cells: int
    exact: bool
    remark: str


def value_explained(
    sample: Transitions,
    theta: ArrayLike | None = None,
    *,
    observations: ArrayLike | None = None,
    next_observations: ArrayLike | None = None,
) -> Explained:
    """Estimate the share of the variance of the value function that ``phi.theta`` explains.

    Parameters
    ----------
    sample : Transitions
        Consecutive transitions.
    theta : array_like of shape (n_features,), default=None
        Parameters to judge. By default it is the solution of the TD equation of the sample.
    observations, next_observations : array_like or sparse matrix of shape (n_rows, ...), default=None
        States of the transitions. Pass both, or neither. They distinguish states that have equal features.

    Returns
    -------
    Explained
        Share and misfit with standard errors.

    Examples
    --------
    >>> import vrtd
    >>> problem = vrtd.problems.boyan_chain()
    >>> explained = value_explained(vrtd.record(problem, 5000, shuffle=False), problem.theta_star)
    >>> explained.exact, explained.share + 4 * explained.share_error > 1.0
    (True, True)
    """
    check_rows(sample)
    if (observations is None) != (next_observations is None):
        raise InvalidInputError(
            "observations and next_observations must be passed together, but one is missing.", "Pass both or neither."
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
    seen = next_cells >= 0  # a cell that is never left has no estimate, so its misfit is taken as 0
    np.subtract.at(system, (cells[seen], next_cells[seen]), (weight * discount)[seen] / n)
    system += 1e-12 * np.eye(m) * np.trace(system) / m
    inverse = np.linalg.inv(system)
    misfit = inverse @ (np.bincount(cells, weight * delta, minlength=m) / n)
    ahead = np.where(seen, misfit[np.maximum(next_cells, 0)], 0.0)
    residual = weight * (delta + discount * ahead - misfit[cells])
    influence = inverse[:, cells] * residual  # (m, n) influence of each row on the misfit of each cell
    if theta is None:
        to_theta = np.zeros((m, sample.n_features))
        np.add.at(to_theta, cells, weight[:, None] * psi / n)
        moved = -np.linalg.solve(sample.A, (sample.left * delta[:, None]).T)
        influence = influence + (inverse @ to_theta) @ moved

    visits = np.bincount(cells, minlength=m) / n
    value = sample.phi @ known + misfit[cells]
    # For a given theta the residuals are martingale differences. The error of an estimated theta adds correlated terms.
    window = 0 if theta is not None else lag_window((np.sqrt(visits)[:, None] * influence).T) or n // LEAST_WINDOWS
    covariance = clip_negative(lag_covariance(influence.T, window)) / n
    noise = float(visits @ np.diag(covariance))
    square = float(visits @ misfit**2) - noise
    variance = float(value.var()) - (noise - float(visits @ covariance @ visits))
    by_cell = np.bincount(cells, value - value.mean(), minlength=m) / n
    to_square = misfit[cells] ** 2 - misfit[cells] @ misfit[cells] / n + 2.0 * (visits * misfit) @ influence
    to_variance = (value - value.mean()) ** 2 - value.var() + 2.0 * by_cell @ influence
    chance = 2.0 * float((np.outer(visits, visits) * covariance**2).sum())  # variance of the squared noise
    rms = float(np.sqrt(max(square, 0.0)))
    square_error = float(np.sqrt(_error(to_square) ** 2 + chance))
    scale = float(np.sqrt(max(rms**2, square_error)))
    what = "distinct observations" if exact else "clusters of similar observations"
    remark = f"the explained share is estimated from {m} {what}"
    if observations is None:
        remark += ", which are compared by their features: states with equal features count as one"
    variance_error = float(np.sqrt(_error(to_variance) ** 2 + chance))
    rms_error = square_error / (2.0 * scale) if scale else 0.0
    if not value.var() > _ROUNDING * float(np.square(value).mean()):
        return Explained(np.nan, np.nan, rms, rms_error, m, exact, f"{remark}; V is constant")
    if square - 2.0 * square_error > variance + 2.0 * variance_error:
        return Explained(0.0, 0.0, rms, rms_error, m, exact, f"{remark}; the misfit is larger than the variation of V")
    if not variance > 2.0 * variance_error:
        return Explained(
            np.nan, np.nan, rms, rms_error, m, exact, f"{remark}; the variance of V is not significantly above 0"
        )
    ratio = square / variance
    share = float(np.clip(1.0 - ratio, 0.0, 1.0))
    share_error = float(np.sqrt(_error((to_square - ratio * to_variance) / variance) ** 2 + chance / variance**2))
    return Explained(share, min(share_error, 1.0), rms, rms_error, m, exact, remark)


def _matrix(name: str, values: Any, sample: Any) -> Floats:
    array = np.asarray(values.toarray() if is_scipy_sparse(values) else values, dtype=np.float64)
    if array.shape[:1] != (len(sample),):
        raise InvalidInputError(
            f"{name} must have {len(sample)} rows, but has the shape {array.shape}.", "Pass one row per transition."
        )
    return np.ascontiguousarray(array.reshape(len(sample), -1)) + 0.0  # -0.0 and 0.0 are the same state


def _cells(now: Floats, then: Floats) -> tuple[Indices, Indices, bool]:
    """Return the cell of each row, the cell of its successor, and whether all observations have their own cell.

    The cell of a successor is -1 if no row begins there.
    """
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
            warnings.simplefilter("ignore")  # empty clusters do no harm
            centres = kmeans2(scaled, k, iter=10, minit="points", seed=0)[0]
        label = np.concatenate([vq(scaled, centres)[0], vq(scaled_next, centres)[0]])
    visited = np.unique(label[:n])
    place = np.full(int(label.max()) + 1, -1, dtype=np.int64)
    place[visited] = np.arange(visited.size)
    return place[label[:n]], place[label[n:]], exact


def _error(influence: Floats) -> float:
    """Return the standard error of a mean of correlated rows."""
    n = len(influence)
    centred = influence - influence.mean()
    window = lag_window(centred[:, None]) or n // LEAST_WINDOWS
    least = 0.1 * float(centred @ centred) / n
    return float(np.sqrt(max(float(lag_covariance(centred[:, None], window)[0, 0]), least) / n))
