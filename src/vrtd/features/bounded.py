"""What the features of a box have in common: they see the observations scaled to the unit cube."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from numbers import Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.errors import DataError, InvalidInputError
from vrtd.features.features import Features, unbound
from vrtd.features.plain import plain_settings
from vrtd.features.rows import as_rows, check_finite, check_width

Bounds = tuple[float | None, ...]  # None: taken from data

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

    kind: ClassVar[str]
    clips: ClassVar[bool]  # whether observations outside the bounds count as on them

    def __post_init__(self) -> None:
        low, high = as_bounds("low", self.low), as_bounds("high", self.high)
        if low is None and high is not None:
            low = (None,) * len(high)
        if high is None and low is not None:
            high = (None,) * len(low)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)
        self._check_sizes()
        if low is not None and high is not None:
            _check_order(low, high)
            self._check_dimensions(len(low))

    @abstractmethod
    def _check_sizes(self) -> None:
        """Raise unless the other fields are valid; make them plain."""

    @abstractmethod
    def _check_dimensions(self, k: int) -> None:
        """Raise unless the features exist in k dimensions and are not too many."""

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
        return self._low is None or self._high is None or None in self._low or None in self._high

    def bind(self, observations: NDArray[Any]) -> Self:
        if not self.needs_data:
            return self
        rows = as_rows(observations)
        k = rows.shape[1]
        if len(rows) == 0:
            raise DataError("there must be an observation to take bounds from", "none", "pass low and high")
        if self._low is not None:
            check_width(rows, len(self._low))
        self._check_dimensions(k)
        least, most = rows.min(axis=0), rows.max(axis=0)
        if not (np.isfinite(least).all() and np.isfinite(most).all()):
            check_finite(rows, "bounds are taken from")
        pairs = [
            _filled(low, high, float(a), float(b))
            for low, high, a, b in zip(self._low or (None,) * k, self._high or (None,) * k, least, most, strict=True)
        ]
        return replace(self, low=tuple(low for low, _ in pairs), high=tuple(high for _, high in pairs))

    @property
    def n_dimensions(self) -> int:
        """Numbers in an observation."""
        if self._low is None:
            raise unbound(self, "how many numbers an observation has")
        return len(self._low)

    @property
    def n_features(self) -> int:
        return self._count(self.n_dimensions)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        low, span = self._origin_and_span()
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
    def settings(self) -> dict[str, Any]:
        return plain_settings(self.kind, self)

    @property
    def _low(self) -> Bounds | None:
        return self.low  # type: ignore[return-value]  # made so by __post_init__

    @property
    def _high(self) -> Bounds | None:
        return self.high  # type: ignore[return-value]

    def _origin_and_span(self) -> tuple[Floats, Floats]:
        low, high = self._low, self._high
        if low is None or high is None or None in low or None in high:
            raise unbound(self, "low and high")
        column = np.array(low, np.float64)[:, None]
        return column, np.array(high, np.float64)[:, None] - column


def as_bounds(name: str, value: Any) -> Bounds | None:
    """A tuple with a finite number or None for each dimension."""
    if value is None:
        return None
    if isinstance(value, np.ndarray):
        value = value.ravel().tolist()
    if isinstance(value, Real):
        value = (value,)
    if not isinstance(value, list | tuple) or not value:
        raise InvalidInputError(
            f"{name} must have a number for each dimension of the observation",
            f"{value!r:.60}",
            "pass a list of numbers",
        )
    return tuple(_bound(name, i, item) for i, item in enumerate(value))


def _bound(name: str, i: int, value: Any) -> float | None:
    if value is None:
        return None
    try:
        number = float("nan") if isinstance(value, bool) or not isinstance(value, Real) else float(value)
    except OverflowError:
        number = float("nan")
    if number == (float("-inf") if name == "low" else float("inf")):
        return None
    if not isfinite(number):
        raise InvalidInputError(
            f"{name}[{i}] must be a finite number, or None to take it from data", f"{value!r:.60}", "pass a number"
        )
    return number


def _check_order(low: Bounds, high: Bounds) -> None:
    if len(low) != len(high):
        raise InvalidInputError("low and high must be equally long", f"{len(low)} and {len(high)}", "pass one of each")
    for i, (a, b) in enumerate(zip(low, high, strict=True)):
        if a is not None and b is not None and not (a < b and isfinite(b - a)):
            raise InvalidInputError(
                "low must lie below high, at a finite distance", f"{a} and {b} in dimension {i}", "pass the range"
            )


def _filled(low: float | None, high: float | None, least: float, most: float) -> tuple[float, float]:
    """What is not set taken from the data; where they have no extent there, an interval about (or beside) them."""
    a, b = least if low is None else low, most if high is None else high
    if a < b:
        return a, b
    if low is None and high is None:
        return a - _room(a), a + _room(a)
    return (a, a + 2.0 * _room(a)) if high is None else (b - 2.0 * _room(b), b)


def _room(value: float) -> float:
    return max(0.5, abs(value) * 2.0**-20)
