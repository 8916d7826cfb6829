"""What features are, a map from observations to R^d that treats every row by itself, and what all kinds share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from math import prod
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import check_count, require
from vrtd.errors import DataError, InvalidInputError
from vrtd.features.spaces import ObservationSpace

#: Rows are dense: more features than this would make every row longer than what it tells.
MOST_FEATURES = 4096

Value = TypeVar("Value")


class Features(ABC):
    """phi: observations (n, ...) -> (n, d). A subclass that can be stored is a frozen dataclass with a kind.

    The row of an observation must not depend, in any bit, on which others come with it: that is what makes every split
    of a log give the same parameters. float32 observations give float32 rows, all others float64. An observation that
    is not finite gives a row that is not finite, or a DataError; never a row that looks right.
    """

    kind: ClassVar[str] = ""  # in the settings; "" for features that cannot be stored

    def bind(self, observations: NDArray[Any]) -> Features:  # noqa: ARG002
        """The same features with what they take from data (a range, a scale) taken from these observations; itself when
        there is nothing to take. Only bound features can be called."""
        return self

    @property
    def needs_data(self) -> bool:
        """Whether `bind` takes more from the observations than their shape."""
        return False

    @property
    @abstractmethod
    def n_features(self) -> int:
        """d; an InvalidInputError before it is known."""

    @property
    def largest_norm(self) -> float | None:
        """No row is longer than this, whatever the observation; None where that is not known."""
        return None

    @abstractmethod
    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """(n, d) C-contiguous rows."""

    @property
    def settings(self) -> dict[str, Any]:
        """Plain values from which `vrtd.features.from_settings` builds the same features again, {"kind": ..., ...};
        arrays as lists. Raises InvalidInputError where that cannot be (a function of the user's)."""
        must, do = "features must be made of plain values to be stored", "keep your own code and pass it when loading"
        require(self.kind, must, type(self).__name__, do)
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind} | {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    """Return `value` as what JSON can hold without changing a bit."""
    match value:
        case Features() | ObservationSpace():
            return value.settings
        case np.ndarray():
            return value.tolist()
        case tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def check_features(value: Any) -> None:
    must, do = "features must be made of Features", "wrap it with vrtd.features.as_features"
    require(isinstance(value, Features), must, type(value).__name__, do)


def set_count(features: Features, name: str, do: str, most: int = MOST_FEATURES) -> None:
    """Check the field that says how many features there are, unless it is None, and make it an int."""
    value = getattr(features, name)
    if value is not None:
        object.__setattr__(features, name, check_count(name, value))
        check_most(int(value), do, most=most)


def check_most(n: int, do: str, what: str = "features", most: int = MOST_FEATURES) -> None:
    """Refuse rows that are too long, before anything of their length is made."""
    if n > most:
        large = n.bit_length() > 60  # a grid in many dimensions; the number itself would fill the screen
        got = f"more than 10**{(n.bit_length() - 1) * 3 // 10}" if large else n
        raise InvalidInputError(f"there must be at most {most} {what}", got, do)


def check_bound(features: Features, what: str, value: Value | None) -> Value:
    """Return `value`, which is None as long as the features are not bound."""
    must = f"{what} must be known before {type(features).__name__} features are used"
    do = "call features.bind(observations) and use what it returns"
    require(value is not None, must, "features that are not bound", do)
    return value  # type: ignore[return-value]


def row_dtype(observations: NDArray[Any]) -> np.dtype[Any]:
    """The type of the rows of features: float32 for float32 observations, float64 for all others."""
    return np.dtype(np.float32 if observations.dtype == np.float32 else np.float64)


def as_rows(observations: Any) -> NDArray[np.floating[Any]]:
    """(n, k) C-contiguous float32 or float64; the very same array where it is that already.

    >>> as_rows(np.arange(3)).tolist()
    [[0.0], [1.0], [2.0]]
    """
    array = np.asarray(observations)
    if array.ndim == 2 and array.dtype.char in "fd" and array.flags.c_contiguous and array.size:  # rows of a stream
        return array
    got, do = f"an array of {array.dtype}", "pass an array of floats"
    require(array.dtype.kind in "biuf", "observations must be real numbers", got, do, DataError)
    width = prod(array.shape[1:])
    must, do = "observations must have one row each, with at least one number", "pass an array of shape (n,) or (n, k)"
    require(array.ndim > 0 and width > 0, must, f"the shape {array.shape}", do, DataError)
    return np.ascontiguousarray(array.reshape(len(array), width), dtype=row_dtype(array))


def check_width(rows: NDArray[Any], n_dimensions: int) -> None:
    must = f"observations must have {n_dimensions} numbers each, as the features have"
    do = "pass observations of one kind, and one low and high for each number"
    require(rows.shape[1] == n_dimensions, must, rows.shape[1], do, DataError)


def check_some(observations: Any, what: str, do: str) -> None:
    """Refuse data without an observation, of which features take or try something."""
    found = np.ndim(observations) > 0 and len(observations) > 0
    require(found, f"there must be an observation to {what}", "none", do, DataError)


def finite_rows(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows, of any shape, have only finite numbers."""
    if rows.dtype.kind != "f":
        return np.ones(len(rows), np.bool_)
    good: NDArray[np.bool_] = np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
    return good


def check_finite(rows: NDArray[Any], what: str) -> None:
    good = finite_rows(rows)
    if not good.all():
        row = int(np.argmin(good))
        column = int(np.argmin(np.isfinite(rows[row].ravel())))
        got = f"{rows[row].ravel()[column]} in row {row}, column {column}"
        raise DataError(f"observations that {what} must be finite", got, "remove or repair that row")
