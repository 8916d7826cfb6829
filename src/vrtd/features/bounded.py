"""The base class of the features of a box, which scale observations to the unit cube."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf, isfinite
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.checks import as_number, check_count, require
from vrtd.features.features import (
    MOST_FEATURES,
    Features,
    as_rows,
    check_bound,
    check_finite,
    check_most,
    check_some,
    check_width,
)
from vrtd.features.spaces import Bounds

# Numbers in one block of work, so that it stays in the cache.
_BLOCK = 1 << 17


@dataclass(frozen=True)
class Bounded(Features):
    """Base class of features of x = (observation - low) / (high - low).

    Rows are computed in float64, and rounded once to float32 if the observations are float32.

    Parameters
    ----------
    low, high : float or sequence of float, optional
        Bounds of the observations, one number per dimension. ``bind`` takes bounds that are None or infinite from data.
    """

    low: Sequence[float | None] | float | None = field(default=None, kw_only=True)
    high: Sequence[float | None] | float | None = field(default=None, kw_only=True)

    clips: ClassVar[bool] = False  # whether observations outside the bounds are moved to them
    fewer: ClassVar[str]  # remedy if there are too many features
    most: ClassVar[int] = MOST_FEATURES

    def __post_init__(self) -> None:
        low, high = as_bounds("low", self.low), as_bounds("high", self.high)
        if low is None and high is not None:
            low = (None,) * len(high)
        if high is None and low is not None:
            high = (None,) * len(low)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        self._check_sizes()
        check_most(self._count(1), self.fewer, most=self.most)  # there is at least one dimension
        if low is not None and high is not None:
            _check_order(low, high)
            self._check_dimensions(len(low))

    @abstractmethod
    def _check_sizes(self) -> None:
        """Raise unless the other fields are valid, and convert them to plain values."""

    def _check_dimensions(self, k: int) -> None:
        """Raise unless the features are defined in k dimensions and are not too many."""
        check_most(self._count(k), self.fewer, most=self.most)

    @abstractmethod
    def _count(self, k: int) -> int:
        """Return the number of features in k dimensions."""

    @abstractmethod
    def _fill(self, x: Floats, out: NDArray[np.floating[Any]], work: Floats) -> None:
        """Write the rows (b, d) of x (k, b), which is NaN where an observation is not finite; work is (_n_work, b)."""

    @property
    def _n_work(self) -> int:
        """Numbers of workspace per observation."""
        return 0

    @property
    def needs_data(self) -> bool:
        """Whether ``bind`` takes bounds from data."""
        return self._bounds is None or any(None in bounds for bounds in self._bounds)

    def bind(self, observations: NDArray[Any]) -> Self:
        """Return these features with the bounds that are not set taken from data.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations whose smallest and largest numbers become the bounds.

        Returns
        -------
        Bounded
            The bound features, or the features themselves if they are bound already.
        """
        if not self.needs_data:
            return self
        rows = as_rows(observations)
        k = rows.shape[1]
        check_some(rows, "determine low and high", "Pass low and high.")
        lows, highs = self._bounds or ((None,) * k,) * 2
        check_width(rows, len(lows))
        self._check_dimensions(k)
        least, most = rows.min(axis=0), rows.max(axis=0)
        if not (np.isfinite(least).all() and np.isfinite(most).all()):
            check_finite(rows, "determine low and high")
        low, high = zip(*map(_fill_in, lows, highs, least.tolist(), most.tolist()), strict=True)
        return replace(self, low=low, high=high)

    @property
    def n_dimensions(self) -> int:
        """Number of dimensions of an observation."""
        return len(check_bound(self, "the number of dimensions", self._bounds)[0])

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self._count(self.n_dimensions)

    def __call__(self, observations: NDArray[Any]) -> Any:
        """Return the rows of observations, of shape (n, d)."""
        bounds = check_bound(self, "low and high", None if self.needs_data else self._bounds)
        low, high = np.array(bounds, np.float64)[:, :, None]
        span = high - low
        rows = as_rows(observations)
        check_width(rows, len(low))
        if self.is_sparse:
            return self._sparse_rows(self._scale(rows.T.astype(np.float64), low, span), rows.dtype)
        out = np.empty((len(rows), self.n_features), rows.dtype)
        step = min(max(16, _BLOCK // max(out.shape[1], len(low))), max(1, len(rows)))
        work = np.empty(self._n_work * step)  # allocated once, because allocation would dominate the time
        for start in range(0, len(rows), step):
            block = np.ascontiguousarray(rows[start : start + step].T, dtype=np.float64)
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):
                x = self._scale(block, low, span)
                self._fill(x, out[start : start + step], work[: self._n_work * x.shape[1]].reshape(-1, x.shape[1]))
        return out

    def _scale(self, block: Floats, low: Floats, span: Floats) -> Floats:
        """Return observations (k, b) in units of the box, NaN where they are not finite."""
        finite = np.isfinite(block)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            x = (block - low) / span
        if self.clips:
            np.clip(x, 0.0, 1.0, out=x)
        if not finite.all():
            x[~finite] = np.nan  # instead of the features at a bound
        return x

    def _sparse_rows(self, x: Floats, dtype: np.dtype[Any]) -> Any:
        """Return the sparse rows of x (k, n); only for features that may be sparse."""
        raise NotImplementedError

    @property
    def _bounds(self) -> tuple[Bounds, Bounds] | None:
        """Low and high as tuples, or None."""
        return None if self.low is None else (self.low, self.high)  # type: ignore[return-value]


def as_bounds(name: str, value: Any) -> Bounds | None:
    """Return a tuple with a finite number or None for each dimension."""
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    if isinstance(value, Real):
        value = (value,)
    require(
        isinstance(value, list | tuple) and value,
        f"{name} must have one number per dimension of the observations, but got {value!r:.60}.",
        "Pass a list of numbers.",
    )
    return tuple(_as_bound(name, i, item) for i, item in enumerate(value))


def _as_bound(name: str, i: int, value: Any) -> float | None:
    if value is None or (isinstance(value, Real) and value == (-inf if name == "low" else inf)):
        return None
    require(
        isfinite(as_number(value)),
        f"{name}[{i}] must be a finite number, or None to take it from data, but got {value!r:.60}.",
        "Pass a number.",
    )
    return float(value)


def _check_order(low: Bounds, high: Bounds) -> None:
    require(
        len(low) == len(high),
        f"low and high must have the same length, but have {len(low)} and {len(high)} numbers.",
        "Pass one of each per dimension.",
    )
    for i, (a, b) in enumerate(zip(low, high, strict=True)):
        holds = a is None or b is None or (a < b and isfinite(b - a))
        require(
            holds,
            f"low must be less than high, by a finite difference, but they are {a} and {b} in dimension {i}.",
            "Pass the range of the observations.",
        )


def as_sizes(name: str, value: Any, example: str) -> tuple[int, ...]:
    """Return a tuple with a whole number per dimension."""
    holds = isinstance(value, list | tuple) and len(value) > 0
    require(holds, f"{name} must have one number per dimension, but got {value!r:.60}.", f"Pass e.g. {example}.")
    return tuple(check_count(name, size) for size in value)


def check_length(name: str, sizes: Sequence[int], k: int) -> None:
    """Raise unless there is one size per dimension."""
    require(
        len(sizes) == k,
        f"{name} must have one number per dimension of the observations, but has {len(sizes)} for {k} dimensions.",
        f"Pass {k} numbers.",
    )


def _fill_in(low: float | None, high: float | None, least: float, most: float) -> tuple[float, float]:
    """Return low and high, with what is not set taken from the data.

    If the data have no extent in the range, return an interval around them or next to the given bound.
    """
    a, b = least if low is None else low, most if high is None else high
    if a < b:
        return a, b
    if low is None and high is None:
        return a - _margin(a), a + _margin(a)
    return (a, a + 2.0 * _margin(a)) if high is None else (b - 2.0 * _margin(b), b)


def _margin(value: float) -> float:
    return max(0.5, abs(value) * 2.0**-20)
