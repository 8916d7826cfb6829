"""What the features of a box have in common: they see the observations scaled to the unit cube."""

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
from vrtd.features.features import Features, as_rows, check_bound, check_finite, check_most, check_some, check_width
from vrtd.features.spaces import Bounds

# Numbers in what is worked on at once, so that it stays in the cache.
_BLOCK = 1 << 17


@dataclass(frozen=True)
class Bounded(Features):
    """Features of x = (observation - low) / (high - low).

    `low` and `high` have a number for each dimension of the observation, or one number where there is one dimension.
    What is None (or infinite) is taken by `bind` from the data: their smallest and largest. Rows are computed in
    float64 and rounded once when the observations are float32.
    """

    low: Sequence[float | None] | float | None = field(default=None, kw_only=True)
    high: Sequence[float | None] | float | None = field(default=None, kw_only=True)

    clips: ClassVar[bool] = False  # whether observations outside the bounds count as on them
    fewer: ClassVar[str]  # what to do if there are too many features

    def __post_init__(self) -> None:
        low, high = as_bounds("low", self.low), as_bounds("high", self.high)
        if low is None and high is not None:
            low = (None,) * len(high)
        if high is None and low is not None:
            high = (None,) * len(low)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        self._check_sizes()
        check_most(self._count(1), self.fewer)  # there is at least one dimension
        if low is not None and high is not None:
            _check_order(low, high)
            self._check_dimensions(len(low))

    @abstractmethod
    def _check_sizes(self) -> None:
        """Raise unless the other fields are valid; make them plain."""

    def _check_dimensions(self, k: int) -> None:
        """Raise unless the features exist in k dimensions and are not too many."""
        check_most(self._count(k), self.fewer)

    @abstractmethod
    def _count(self, k: int) -> int:
        """How many features there are in k dimensions."""

    @abstractmethod
    def _fill(self, x: Floats, out: NDArray[np.floating[Any]], work: Floats) -> None:
        """Write the rows (b, d) of x (k, b), which has NaN where an observation was not finite; work (_n_work, b)."""

    @property
    def _n_work(self) -> int:
        """Numbers of workspace for each observation."""
        return 0

    @property
    def needs_data(self) -> bool:
        return self._bounds is None or any(None in bounds for bounds in self._bounds)

    def bind(self, observations: NDArray[Any]) -> Self:
        if not self.needs_data:
            return self
        rows = as_rows(observations)
        k = rows.shape[1]
        check_some(rows, "take bounds from", "pass low and high")
        lows, highs = self._bounds or ((None,) * k,) * 2
        check_width(rows, len(lows))
        self._check_dimensions(k)
        least, most = rows.min(axis=0), rows.max(axis=0)
        if not (np.isfinite(least).all() and np.isfinite(most).all()):
            check_finite(rows, "bounds are taken from")
        low, high = zip(*map(_fill_in, lows, highs, least.tolist(), most.tolist()), strict=True)
        return replace(self, low=low, high=high)

    @property
    def n_dimensions(self) -> int:
        """Numbers in an observation."""
        return len(check_bound(self, "how many numbers an observation has", self._bounds)[0])

    @property
    def n_features(self) -> int:
        return self._count(self.n_dimensions)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        bounds = check_bound(self, "low and high", None if self.needs_data else self._bounds)
        low, high = np.array(bounds, np.float64)[:, :, None]
        span = high - low
        rows = as_rows(observations)
        check_width(rows, len(low))
        out = np.empty((len(rows), self.n_features), rows.dtype)
        step = min(max(16, _BLOCK // max(out.shape[1], len(low))), max(1, len(rows)))
        work = np.empty(self._n_work * step)  # once: most of the time would go into asking for memory again
        for start in range(0, len(rows), step):
            block = np.ascontiguousarray(rows[start : start + step].T, dtype=np.float64)
            finite = np.isfinite(block)
            with np.errstate(over="ignore", invalid="ignore", under="ignore"):
                x = (block - low) / span
                if self.clips:
                    np.clip(x, 0.0, 1.0, out=x)
                if not finite.all():
                    x[~finite] = np.nan  # a bound is no answer to infinity
                self._fill(x, out[start : start + step], work[: self._n_work * x.shape[1]].reshape(-1, x.shape[1]))
        return out

    @property
    def _bounds(self) -> tuple[Bounds, Bounds] | None:
        """Low and high, as __post_init__ made them."""
        return None if self.low is None else (self.low, self.high)  # type: ignore[return-value]


def as_bounds(name: str, value: Any) -> Bounds | None:
    """A tuple with a finite number or None for each dimension."""
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    if isinstance(value, Real):
        value = (value,)
    must = f"{name} must have a number for each dimension of the observation"
    require(isinstance(value, list | tuple) and value, must, f"{value!r:.60}", "pass a list of numbers")
    return tuple(_as_bound(name, i, item) for i, item in enumerate(value))


def _as_bound(name: str, i: int, value: Any) -> float | None:
    if value is None or (isinstance(value, Real) and value == (-inf if name == "low" else inf)):
        return None
    must = f"{name}[{i}] must be a finite number, or None to take it from data"
    require(isfinite(as_number(value)), must, f"{value!r:.60}", "pass a number")
    return float(value)


def _check_order(low: Bounds, high: Bounds) -> None:
    got = f"{len(low)} and {len(high)}"
    require(len(low) == len(high), "low and high must be equally long", got, "pass one of each")
    for i, (a, b) in enumerate(zip(low, high, strict=True)):
        holds = a is None or b is None or (a < b and isfinite(b - a))
        must, got = "low must lie below high, at a finite distance", f"{a} and {b} in dimension {i}"
        require(holds, must, got, "pass the range")


def as_sizes(name: str, value: Any, example: str) -> tuple[int, ...]:
    """Return a tuple with a whole number for each dimension."""
    holds = isinstance(value, list | tuple) and len(value) > 0
    require(holds, f"{name} must have a number for each dimension", f"{value!r:.60}", f"pass e.g. {example}")
    return tuple(check_count(name, size) for size in value)


def check_length(name: str, sizes: Sequence[int], k: int) -> None:
    must, got = f"{name} must have a number for each dimension of the observation", f"{len(sizes)} for {k} dimensions"
    require(len(sizes) == k, must, got, "pass as many")


def _fill_in(low: float | None, high: float | None, least: float, most: float) -> tuple[float, float]:
    """What is not set taken from the data; where they have no extent there, an interval about (or beside) them."""
    a, b = least if low is None else low, most if high is None else high
    if a < b:
        return a, b
    if low is None and high is None:
        return a - _room(a), a + _room(a)
    return (a, a + 2.0 * _room(a)) if high is None else (b - 2.0 * _room(b), b)


def _room(value: float) -> float:
    return max(0.5, abs(value) * 2.0**-20)
