"""The base class of features, which map each observation to a row of R^d, and checks that all features share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields
from math import prod
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import check_unmasked
from vrtd.checks import check_count, require
from vrtd.errors import DataError, InvalidInputError
from vrtd.features.spaces import ObservationSpace

#: Most features in dense rows that may be computed from observations, and most features in sparse rows.
MOST_FEATURES, MOST_SPARSE = 4096, 1 << 24
#: Rows with more features than this are sparse if most features are 0. Shorter rows are faster as dense ones.
MOST_DENSE = 512

Value = TypeVar("Value")


class Features(ABC):
    """Base class of features: a map from n observations to (n, d) rows.

    Features are first bound to data by ``bind``, and then called with observations. Their parameters are plain values,
    and they are never changed: ``bind`` returns new features.

    Notes
    -----
    The row of an observation must not depend, in any bit, on the observations that are passed with it. Any split of a
    log then gives the same parameters. float32 observations give float32 rows, all others float64. An observation that
    is not finite gives a row that is not finite, or a ``DataError``.

    A subclass that can be stored is a frozen dataclass with a ``kind``.

    Examples
    --------
    >>> import numpy as np
    >>> from vrtd.features import Tabular
    >>> features = Tabular().bind(np.array([0, 1, 2]))
    >>> features.n_features, features(np.array([2])).tolist()
    (3, [[0.0, 0.0, 1.0]])
    """

    kind: ClassVar[str] = ""  # name of the features in `settings`; "" for features that cannot be stored

    def bind(self, observations: NDArray[Any]) -> Features:  # noqa: ARG002
        """Return these features with everything that they take from data, such as a range or a scale.

        Only bound features can be called.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations.

        Returns
        -------
        Features
            The bound features, or the features themselves if they take nothing from data.
        """
        return self

    @property
    def needs_data(self) -> bool:
        """Whether ``bind`` takes more than the shape of the observations from data."""
        return False

    @property
    @abstractmethod
    def n_features(self) -> int:
        """Number of features d.

        An ``InvalidInputError`` is raised if it is not known before the features are bound.
        """

    @property
    def is_sparse(self) -> bool:
        """Whether rows are sparse; only bound features know."""
        return False

    @property
    def largest_norm(self) -> float | None:
        """Upper bound of the norm of every row, or None if it is not known."""
        return None

    @abstractmethod
    def __call__(self, observations: Any) -> Any:
        """Return the rows of observations.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations.

        Returns
        -------
        ndarray or csr_array of shape (n, d)
            The rows: a C-contiguous array, or sparse rows if ``is_sparse``.
        """

    @property
    def settings(self) -> dict[str, Any]:
        """Plain values from which ``from_settings`` builds the same features.

        They have the form ``{"kind": ..., ...}``, with arrays as lists. An ``InvalidInputError`` is raised if the
        features are made of your own code.
        """
        require(self.kind, *not_stored(type(self).__name__))
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"kind": self.kind} | {name: _plain(value) for name, value in values.items()}


def not_stored(kind: str) -> tuple[str, str]:
    """Return problem and remedy for features that are made of the user's own code."""
    problem = f"{kind} features cannot be stored, because they are made of your own code."
    return problem, "Keep the code, and pass it when loading."


def _plain(value: Any) -> Any:
    """Return ``value`` as plain values that JSON stores without changing a bit."""
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
    """Raise unless ``value`` is a Features object."""
    require(
        isinstance(value, Features),
        f"features must be a Features object, but got {type(value).__name__}.",
        "Wrap it with vrtd.features.as_features.",
    )


def check_dense(features: Features, what: str) -> None:
    """Raise if the rows of bound features are too long to be dense."""
    require(
        not features.is_sparse or features.n_features <= MOST_FEATURES,
        f"{what} needs dense features, but the rows of {type(features).__name__} with {features.n_features:,} features "
        "are sparse.",
        "Use fewer features." if what != "A target policy" else "Use fewer features, or log propensities.",
    )


def set_count(features: Features, name: str, remedy: str, most: int = MOST_FEATURES) -> None:
    """Check the field with the number of features, unless it is None, and convert it to int."""
    value = getattr(features, name)
    if value is not None:
        object.__setattr__(features, name, check_count(name, value))
        check_most(int(value), remedy, most=most)


def check_most(n: int, remedy: str, what: str = "features", most: int = MOST_FEATURES) -> None:
    """Raise if rows are too long, before any array of their length is allocated."""
    if n > most:
        large = n.bit_length() > 60  # a grid in many dimensions: the number would fill the screen
        count = f"more than 10**{(n.bit_length() - 1) * 3 // 10}" if large else n
        raise InvalidInputError(f"The number of {what} must be at most {most}, but is {count}.", remedy)


def check_bound(features: Features, what: str, value: Value | None) -> Value:
    """Return ``value``, or raise if it is None because the features are not bound yet."""
    require(
        value is not None,
        f"{type(features).__name__} features must be bound before use, to determine {what}.",
        "Call features.bind(observations) and use the result.",
    )
    return value  # type: ignore[return-value]


def row_dtype(observations: NDArray[Any]) -> np.dtype[Any]:
    """Return the dtype of the rows of features: float32 for float32 observations, float64 for all others."""
    return np.dtype(np.float32 if observations.dtype == np.float32 else np.float64)


def as_rows(observations: Any) -> NDArray[np.floating[Any]]:
    """Return observations as (n, k) C-contiguous float32 or float64 rows.

    An array that has this form already is returned without a copy.

    >>> as_rows(np.arange(3)).tolist()
    [[0.0], [1.0], [2.0]]
    """
    check_unmasked("observations", observations)
    array = np.asarray(observations)
    if array.ndim == 2 and array.dtype.char in "fd" and array.flags.c_contiguous and array.size:  # rows of a stream
        return array
    require(
        array.dtype.kind in "biuf",
        f"observations must be real numbers, but have dtype {array.dtype}.",
        "Pass an array of floats.",
        DataError,
    )
    width = prod(array.shape[1:])
    require(
        array.ndim > 0 and width > 0,
        f"observations must have at least one number per row, but have the shape {array.shape}.",
        "Pass an array of shape (n,) or (n, k).",
        DataError,
    )
    return np.ascontiguousarray(array.reshape(len(array), width), dtype=row_dtype(array))


def check_width(rows: NDArray[Any], n_dimensions: int) -> None:
    """Raise unless the (n, k) rows have as many numbers as the features expect."""
    require(
        rows.shape[1] == n_dimensions,
        f"observations must have the shape (n, {n_dimensions}) for these features, but have (n, {rows.shape[1]}).",
        "Pass observations with as many numbers as those to which the features were bound.",
        DataError,
    )


def check_some(observations: Any, purpose: str, remedy: str) -> None:
    """Raise if there is no observation to take values from, or to test the features on."""
    is_some = np.ndim(observations) > 0 and len(observations) > 0
    require(is_some, f"At least one observation is needed to {purpose}, but there is none.", remedy, DataError)


def finite_rows(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which rows, of any shape, have only finite numbers."""
    if rows.dtype.kind != "f":
        return np.ones(len(rows), np.bool_)
    good: NDArray[np.bool_] = np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
    return good


def check_finite(rows: NDArray[Any], purpose: str) -> None:
    """Raise if a row is not finite, and name the first number that is not."""
    good = finite_rows(rows)
    if not good.all():
        row = int(np.argmin(good))
        column = int(np.argmin(np.isfinite(rows[row].ravel())))
        raise DataError(
            f"observations must be finite to {purpose}, but got {rows[row].ravel()[column]} in row {row}, "
            f"column {column}.",
            "Fix or drop that row.",
        )
