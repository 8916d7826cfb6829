"""How far an estimate may be from theta_star: intervals of theta and of phi(s).theta.

They are for phi(s).theta_star, which is the value V(s) only where the features can represent it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.estimator.estimates import Estimates, Intervals, Parts, estimate_from_blocks
from vrtd.problems import Transitions

Limit = Literal["rows", "transient", "bias", "variance", "budget", "features"]  # what the error is mostly made of

# Below this effective sample size an interval is in doubt. Chains that change their regime 10 to 40 times in a log are
# below it; most chains that change it 100 times are above (docs/evaluate.md has the coverage of both).
_LEAST_EFFECTIVE = 50.0
#: A value that depends on features which no row has is widened by what they may be worth. Beyond so many visits to them
#: it is not known.
MOST_OPEN = 0.5


def _span_all(phi: Floats) -> NDArray[np.bool_]:
    return np.ones(len(phi), np.bool_)


def _no_features() -> NDArray[np.intp]:
    return np.empty(0, np.intp)


@dataclass(frozen=True, eq=False, kw_only=True)
class Spread(ABC):
    """An estimate of theta, and what is known of its error."""

    theta: Floats  # (d,)
    influence: Floats  # (B, d) by how much each block of rows moves theta: its own estimate less theta
    block: int | None = None  # rows of a block of `influence`, where these are blocks of all rows
    spans: Callable[[Floats], NDArray[np.bool_]] = _span_all  # whether the log determines phi.theta, for each row phi
    unseen: NDArray[np.intp] = field(default_factory=_no_features)  # features that were always 0
    rare: NDArray[np.intp] = field(default_factory=_no_features)  # features that were not 0 at times, but too seldom
    leak: Floats | None = None  # (d, u) how phi.theta depends on features that no row has
    largest: float = 0.0  # value that these may have
    doubt: str | None = None  # why the interval cannot be trusted

    def of(self, phi: Floats, level: float) -> Intervals:
        """Return intervals for phi.theta, one per row."""
        return self.estimates(phi).intervals(level)

    def estimates(self, phi: Floats) -> Estimates:
        """Return phi.theta, one per row, with what is known of their errors."""
        phi = np.asarray(phi, dtype=np.float64)
        open_share = self.open_share(phi)
        is_known = self.spans(phi) & ~(phi[:, self.rare] != 0.0).any(axis=1) & (open_share <= MOST_OPEN)
        found = self._estimates(phi)
        return found._replace(
            error=np.where(is_known, found.error, np.inf), bias=found.bias + open_share * self.largest
        )

    def open_share(self, phi: Floats) -> Floats:
        """Return how much of phi.theta depends on features that no row has, for each row: 1 is one visit."""
        return np.zeros(len(phi)) if self.leak is None else np.asarray(np.abs(phi @ self.leak).sum(axis=1))

    @abstractmethod
    def _estimates(self, phi: Floats) -> Estimates:
        """Return the estimates of rows that the log determines."""

    @abstractmethod
    def converged(self, phi: Floats) -> bool:
        """Whether what is left of the start is at most half the width of a 95 % interval, on the whole, and there is no
        reason to doubt it."""

    @abstractmethod
    def errors(self, phi: Floats, n_rows: int) -> dict[Limit, float]:
        """The parts of the error of phi.theta from n distinct rows, root mean squares over the rows of phi."""


@dataclass(frozen=True, eq=False, kw_only=True)
class BlockSpread(Spread):
    """The spread of an unbiased estimate, from batch means alone: nothing in it is larger than `influence`."""

    n_rows: int  # rows that the estimate is made of

    def _estimates(self, phi: Floats) -> Estimates:
        by_block = self.influence @ phi.T
        parts = None if self.block is None else Parts(by_block, self.block)
        return estimate_from_blocks(phi @ self.theta, by_block)._replace(parts=parts)

    def converged(self, phi: Floats) -> bool:  # noqa: ARG002
        """Whether there is no reason to doubt it: nothing is left of a start."""
        return self.doubt is None

    def errors(self, phi: Floats, n_rows: int) -> dict[Limit, float]:
        """The parts of the error of phi.theta from n distinct rows, root mean squares over the rows of phi."""
        variance = float(np.square(self._estimates(phi).error).mean())
        independent = float((self.influence @ phi.T).var(axis=0, ddof=1).mean()) / len(self.influence)
        no_start: dict[Limit, float] = {"transient": 0.0, "bias": 0.0}
        return no_start | split_noise(variance, independent * self.n_rows / max(n_rows, 1))


def split_noise(variance: float, least: float) -> dict[Limit, float]:
    """Return the standard error that the rows make unavoidable, and that beyond it."""
    return {"variance": float(np.sqrt(max(variance - least, 0.0))), "budget": float(np.sqrt(max(least, 0.0)))}


def find_slowness(rows: Transitions, n_rows: int) -> str | None:
    """Return why correlation makes an interval from n rows doubtful, if it does, as these rows of the log show it."""
    size = rows.effective_blocks * n_rows / len(rows)
    if np.isnan(size):
        return f"{len(rows):,} rows are too few to show how strongly they are correlated"
    if size >= _LEAST_EFFECTIVE:
        return None
    return f"the effective sample size of the {n_rows:,} rows is only about {size:.0f} in some direction"
