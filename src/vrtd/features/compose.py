"""Features made of features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite, sqrt
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import check_positive
from vrtd.errors import DataError, InvalidInputError
from vrtd.features.features import Features, check_most, unbound
from vrtd.features.rows import row_dtype

# Rows whose norms are taken at once.
_BLOCK = 4096


@dataclass(frozen=True, init=False)
class Stack(Features):
    """Several features of the same observation side by side.

    >>> from vrtd.features import Identity, Polynomial
    >>> Stack(Identity(1), Polynomial(1, low=0, high=2))(np.array([1.0])).tolist()
    [[1.0, 1.0, 0.5]]
    """

    features: tuple[Features, ...]

    kind: ClassVar[str] = "stack"

    def __init__(self, *features: Features) -> None:
        object.__setattr__(self, "features", features)
        if not features:
            raise InvalidInputError("a Stack must have features", "none", "pass at least one")
        for part in features:
            _check_features(part)

    @property
    def needs_data(self) -> bool:
        return any(part.needs_data for part in self.features)

    def bind(self, observations: NDArray[Any]) -> Self:
        bound = type(self)(*(part.bind(observations) for part in self.features))
        check_most(bound.n_features, "stack fewer, or smaller ones")
        return self if all(new is old for new, old in zip(bound.features, self.features, strict=True)) else bound

    @property
    def n_features(self) -> int:
        return sum(part.n_features for part in self.features)

    @property
    def largest_norm(self) -> float | None:
        norms = [part.largest_norm for part in self.features]
        return sqrt(sum(norm * norm for norm in norms if norm is not None)) if None not in norms else None

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        observations = np.asarray(observations)
        check_most(self.n_features, "stack fewer, or smaller ones")
        out = np.empty((len(observations), self.n_features), row_dtype(observations))
        start = 0
        for part in self.features:
            out[:, start : start + part.n_features] = part(observations)
            start += part.n_features
        return out

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "features": [part.settings for part in self.features]}


@dataclass(frozen=True)
class Scaled(Features):
    """factor phi(s), with ||factor phi(s)|| <= 1 as the theorems assume (Assumption 2).

    Without a `factor`, it is 1 over the largest norm the features can have; where they do not know it, 1 over the
    largest among the observations that the features are bound to. It changes theta by 1 / factor and V not at all.

    >>> from vrtd.features import Tabular
    >>> Scaled(Tabular(3), factor=0.5)(np.array([1])).tolist()
    [[0.0, 0.5, 0.0]]
    """

    features: Features
    factor: float | None = None

    kind: ClassVar[str] = "scaled"

    def __post_init__(self) -> None:
        _check_features(self.features)
        if self.factor is not None:
            check_positive("factor", self.factor)
            object.__setattr__(self, "factor", float(self.factor))

    @property
    def needs_data(self) -> bool:
        return self.features.needs_data or (self.factor is None and self.features.largest_norm is None)

    def bind(self, observations: NDArray[Any]) -> Self:
        features = self.features.bind(observations)
        if self.factor is not None:
            return self if features is self.features else replace(self, features=features)
        largest = features.largest_norm
        if largest is None:
            largest = _largest_norm(features, observations)
        if not (largest > 0.0 and isfinite(1.0 / largest)):
            raise DataError(
                "features must not all be zero to be scaled", f"{largest} as the largest norm", "choose other features"
            )
        return replace(self, features=features, factor=1.0 / largest)

    @property
    def n_features(self) -> int:
        return self.features.n_features

    @property
    def largest_norm(self) -> float | None:
        inner = self.features.largest_norm
        return inner * self.factor if inner is not None and self.factor is not None else None

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        if self.factor is None:
            raise unbound(self, "factor")
        rows = self.features(observations)
        scaled: NDArray[np.floating[Any]] = rows * rows.dtype.type(self.factor)  # anew: rows may be the caller's
        return scaled

    @property
    def settings(self) -> dict[str, Any]:
        return {"kind": self.kind, "features": self.features.settings, "factor": self.factor}


def _largest_norm(features: Features, observations: NDArray[Any]) -> float:
    observations = np.asarray(observations)
    if len(observations) == 0:
        raise DataError("there must be an observation to take the factor from", "none", "pass factor")
    largest = 0.0
    for start in range(0, len(observations), _BLOCK):
        norms = np.linalg.norm(features(observations[start : start + _BLOCK]).astype(np.float64), axis=1)
        if not np.isfinite(norms).all():
            row = start + int(np.argmax(~np.isfinite(norms)))
            raise DataError(
                "features that a factor is taken from must be finite", f"a row {row} that is not", "repair that row"
            )
        largest = max(largest, float(norms.max()))
    return largest


def _check_features(value: Any) -> None:
    if not isinstance(value, Features):
        raise InvalidInputError(
            "features must be made of Features", f"{type(value).__name__}", "wrap it with vrtd.features.as_features"
        )
