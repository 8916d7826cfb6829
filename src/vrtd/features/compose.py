"""Features that are composed of other features."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import check_positive, require
from vrtd.errors import DataError
from vrtd.features.features import Features, check_bound, check_dense, check_features, check_most, check_some, row_dtype
from vrtd.features.selection import Selected
from vrtd.sparse import is_sparse, squared_norms, to_dense

# Rows whose norms are computed at once.
_BLOCK = 4096
_FEWER = "Stack fewer or smaller features."


@dataclass(frozen=True, init=False)
class Stack(Features):
    """Several features of the same observation side by side.

    Parameters
    ----------
    *features : Features
        The features, at least one.

    Examples
    --------
    >>> from vrtd.features import Identity, Polynomial
    >>> Stack(Identity(1), Polynomial(1, low=0, high=2))(np.array([1.0])).tolist()
    [[1.0, 1.0, 0.5]]
    """

    features: tuple[Features, ...]

    kind = "stack"

    def __init__(self, *features: Features) -> None:
        object.__setattr__(self, "features", features)
        require(features, "A Stack must have features, but got none.", "Pass at least one.")
        for part in features:
            check_features(part)

    @property
    def needs_data(self) -> bool:
        """Whether ``bind`` takes more than the shape of the observations from data."""
        return any(part.needs_data for part in self.features)

    def bind(self, observations: NDArray[Any]) -> Self:
        """Return the stack of the bound features.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations.

        Returns
        -------
        Stack
            The bound features, or the features themselves if they are bound already.
        """
        bound = type(self)(*(part.bind(observations) for part in self.features))
        for part in bound.features:
            check_dense(part, "A Stack")
        check_most(bound.n_features, _FEWER)
        return self if all(new is old for new, old in zip(bound.features, self.features, strict=True)) else bound

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return sum(part.n_features for part in self.features)

    @property
    def largest_norm(self) -> float | None:
        """Upper bound of the norm of every row, or None if it is not known."""
        norms = [part.largest_norm for part in self.features]
        return sqrt(sum(norm * norm for norm in norms if norm is not None)) if None not in norms else None

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Return the rows of observations, of shape (n, d)."""
        observations = np.asarray(observations)
        check_most(self.n_features, _FEWER)
        out = np.empty((len(observations), self.n_features), row_dtype(observations))
        start = 0
        for part in self.features:
            out[:, start : start + part.n_features] = to_dense(part(observations))
            start += part.n_features
        return out


@dataclass(frozen=True)
class Scaled(Features):
    """Features times a factor, so that ``||phi(s)|| <= 1`` as the theorems assume (Assumption 2).

    Scaling multiplies theta by 1 / factor and does not change V.

    Parameters
    ----------
    features : Features
        The features to scale.
    factor : float, optional
        Factor of the rows. If not given, ``bind`` sets it to 1 over the largest norm of the features, or, if that is
        not known, to 1 over the largest norm on the observations.

    Examples
    --------
    >>> from vrtd.features import Tabular
    >>> Scaled(Tabular(3), factor=0.5)(np.array([1])).tolist()
    [[0.0, 0.5, 0.0]]
    """

    features: Features
    factor: float | None = None

    kind = "scaled"

    def __post_init__(self) -> None:
        check_features(self.features)
        if self.factor is not None:
            object.__setattr__(self, "factor", check_positive("factor", self.factor))

    @property
    def needs_data(self) -> bool:
        """Whether ``bind`` takes more than the shape of the observations from data."""
        return self.features.needs_data or (self.factor is None and self.features.largest_norm is None)

    def bind(self, observations: NDArray[Any]) -> Self:
        """Return these features with a factor.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations, which determine the factor if the largest norm of the features is not known.

        Returns
        -------
        Scaled
            The bound features, or the features themselves if they are bound already.
        """
        features = self.features.bind(observations)
        if self.factor is not None:
            return self if features is self.features else replace(self, features=features)
        largest = features.largest_norm
        if largest is None:
            largest = _largest_norm(features, observations)
        require(
            largest > 0.0 and isfinite(1.0 / largest),
            f"Features whose largest norm is {largest} cannot be scaled.",
            "Choose other features.",
            DataError,
        )
        return replace(self, features=features, factor=1.0 / largest)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.features.n_features

    @property
    def largest_norm(self) -> float | None:
        """Upper bound of the norm of every row, or None if it is not known."""
        inner = self.features.largest_norm
        return inner * self.factor if inner is not None and self.factor is not None else None

    @property
    def is_sparse(self) -> bool:
        """Whether rows are sparse."""
        return self.features.is_sparse

    def __call__(self, observations: NDArray[Any]) -> Any:
        """Return the rows of observations, of shape (n, d)."""
        factor = check_bound(self, "the factor", self.factor)
        rows = self.features(observations)
        return rows * rows.dtype.type(factor)  # a copy: rows may be the caller's


def _largest_norm(features: Features, observations: NDArray[Any]) -> float:
    observations = np.asarray(observations)
    check_some(observations, "determine the factor", "Pass factor.")
    largest = 0.0
    for start in range(0, len(observations), _BLOCK):
        rows = features(observations[start : start + _BLOCK]).astype(np.float64)
        norms = np.sqrt(squared_norms(rows)) if is_sparse(rows) else np.linalg.norm(rows, axis=1)
        row = start + int(np.argmin(np.isfinite(norms)))
        require(
            np.isfinite(norms).all(),
            f"Features must be finite to determine the factor, but those of row {row} are not.",
            "Fix or drop that row.",
            DataError,
        )
        largest = max(largest, float(norms.max()))
    return largest


def change_parts(features: Features, change: Callable[[Features], Features]) -> Features:
    """Return the features with ``change`` applied to the parts of Stack, Scaled and Selected, or to the features."""
    match features:
        case Stack():
            return Stack(*(change_parts(part, change) for part in features.features))
        case Scaled() | Selected():
            return replace(features, features=change_parts(features.features, change))
        case _:
            return change(features)
