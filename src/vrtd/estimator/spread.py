"""Estimates of theta with the distribution of their error, from which intervals of theta and phi(s).theta are computed.

The intervals are for phi(s)^T theta_star, which is the value V(s) only if the features can represent it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.estimator.estimates import Estimates, Intervals, Parts, estimate_from_blocks
from vrtd.problems import Transitions
from vrtd.sparse import columns_of, has_any, is_sparse, products, squared_norms

Limit = Literal["rows", "transient", "bias", "variance", "budget", "features"]  # sources of error

# Below this effective sample size an interval is unreliable. Chains that change their regime 10 to 40 times in a log
# are below it; most chains that change it 100 times are above (docs/intervals.md has the coverage of both).
_LEAST_EFFECTIVE = 50.0
#: If a value depends on features that are 0 in every row, its interval is widened by their possible contribution. If it
#: depends on more than this many visits to them, it is not determined.
MOST_OPEN = 0.5


def _span_all(phi: Floats) -> NDArray[np.bool_]:
    return np.ones(phi.shape[0], np.bool_)


def _no_features() -> NDArray[np.intp]:
    return np.empty(0, np.intp)


@dataclass(frozen=True, eq=False, kw_only=True)
class Spread(ABC):
    """Estimate of theta with the distribution of its error.

    Attributes
    ----------
    theta : ndarray of shape (d,)
        The estimate.
    influence : ndarray of shape (B, d)
        Influence of each block of rows on theta: the estimate from the block minus theta.
    ends : ndarray of shape (B,) or None
        Rows of the log up to the end of each block; None if the blocks are not made of all rows.
    spans : callable
        Function that returns for each row of features whether the log determines ``phi.theta``.
    unseen : ndarray of int
        Features that were 0 in every row.
    rare : ndarray of int
        Features that were nonzero too rarely to estimate their noise.
    leak : ndarray of shape (d, u) or None
        Dependence of ``phi.theta`` on features that were 0 in every row.
    largest : float
        Largest value that these features may contribute per visit.
    doubt : str or None
        Reason why the intervals are unreliable.
    spare : float or None
        Variance of the parameters of features that were nonzero too rarely, if they are like the others, as those of
        hashed features are. None means that nothing is known of them.
    """

    theta: Floats
    influence: Floats
    ends: NDArray[np.int64] | None = None
    spans: Callable[[Floats], NDArray[np.bool_]] = _span_all
    unseen: NDArray[np.intp] = field(default_factory=_no_features)
    rare: NDArray[np.intp] = field(default_factory=_no_features)
    leak: Floats | None = None
    largest: float = 0.0
    doubt: str | None = None
    spare: float | None = None

    def of(self, phi: Floats, level: float) -> Intervals:
        """Compute intervals for ``phi.theta``.

        Parameters
        ----------
        phi : ndarray of shape (n, d)
            Rows of features.
        level : float
            Confidence level.

        Returns
        -------
        Intervals
            One interval per row.
        """
        return self.estimates(phi).intervals(level)

    def estimates(self, phi: Floats) -> Estimates:
        """Estimate ``phi.theta`` with its standard error.

        Parameters
        ----------
        phi : ndarray of shape (n, d)
            Rows of features.

        Returns
        -------
        Estimates
            One estimate per row. The error is infinite where the log does not determine the value.
        """
        phi = phi.astype(np.float64, copy=False)
        open_share = self.open_share(phi)
        is_known = self.spans(phi) & ~has_any(phi, self.rare) & (open_share <= MOST_OPEN)
        found = self._estimates(phi)
        if self.spare is not None:
            unknown = np.append(self.unseen, self.rare)
            return found.widen(self.spare * squared_norms(columns_of(phi, unknown)))
        return found._replace(
            error=np.where(is_known, found.error, np.inf), bias=found.bias + open_share * self.largest
        )

    def open_share(self, phi: Floats) -> Floats:
        """Compute the dependence of ``phi.theta`` on features that were 0 in every row.

        Parameters
        ----------
        phi : ndarray of shape (n, d)
            Rows of features.

        Returns
        -------
        ndarray of shape (n,)
            The dependence in visits: 1 is one visit to such a feature.
        """
        return np.zeros(phi.shape[0]) if self.leak is None else np.asarray(np.abs(phi @ self.leak).sum(axis=1))

    @abstractmethod
    def _estimates(self, phi: Floats) -> Estimates:
        """Return the estimates of rows whose values the log determines."""

    @abstractmethod
    def converged(self, phi: Floats) -> bool:
        """Check whether the initial transient is small and the intervals are reliable.

        Parameters
        ----------
        phi : ndarray of shape (n, d)
            Rows of features over which root mean squares are taken.

        Returns
        -------
        bool
            Whether the transient is at most the half-width of a 95 % interval that noise alone gives, and `doubt` is
            None.
        """

    @abstractmethod
    def errors(self, phi: Floats, n_rows: int) -> dict[Limit, float]:
        """Estimate the parts of the error of ``phi.theta``.

        Parameters
        ----------
        phi : ndarray of shape (n, d)
            Rows of features over which root mean squares are taken.
        n_rows : int
            Number of distinct rows of the log.

        Returns
        -------
        dict of str to float
            Error from each source.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockSpread(Spread):
    """Spread of an unbiased estimate, from batch means; it needs no array larger than `influence`."""

    n_rows: int  # rows that the estimate uses

    def _estimates(self, phi: Floats) -> Estimates:
        by_block = self._by_block(phi)
        parts = None if self.ends is None else Parts(by_block, self.ends)
        return estimate_from_blocks(phi @ self.theta, by_block)._replace(parts=parts)

    def _by_block(self, phi: Any) -> Floats:
        return products(phi, self.influence).T if is_sparse(phi) else self.influence @ phi.T

    def converged(self, phi: Floats) -> bool:  # noqa: ARG002
        """Check whether the intervals are reliable: the estimate has no initial transient."""
        return self.doubt is None

    def errors(self, phi: Floats, n_rows: int) -> dict[Limit, float]:
        """Estimate the parts of the error of ``phi.theta``."""
        variance = float(np.square(self._estimates(phi).error).mean())
        independent = float(self._by_block(phi).var(axis=0, ddof=1).mean()) / len(self.influence)
        no_start: dict[Limit, float] = {"transient": 0.0, "bias": 0.0}
        return no_start | split_noise(variance, independent * self.n_rows / max(n_rows, 1))


def split_noise(variance: float, least: float) -> dict[Limit, float]:
    """Split a variance into the standard error that is unavoidable with these rows, and the rest."""
    return {"variance": float(np.sqrt(max(variance - least, 0.0))), "budget": float(np.sqrt(max(least, 0.0)))}


def find_slowness(rows: Transitions, n_rows: int) -> str | None:
    """Return why correlation makes an interval from `n_rows` rows unreliable, judged by `rows`, or None."""
    size = rows.effective_blocks * n_rows / len(rows)
    if np.isnan(size):
        return f"{len(rows):,} rows are too few to estimate how strongly they are correlated"
    if size >= _LEAST_EFFECTIVE:
        return None
    return f"the effective sample size of the {n_rows:,} rows is only about {size:.0f} in some direction"
