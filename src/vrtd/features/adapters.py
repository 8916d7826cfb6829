"""A user's function, array or scikit-learn transformer as features."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import InvalidInputError, MissingExtraError
from vrtd.features.blocks import FEWER, TRY, call_in_blocks, try_on
from vrtd.features.features import Features, as_rows, check_bound, check_finite, check_some, set_count
from vrtd.features.identity import Identity
from vrtd.features.pairs import FromPairs
from vrtd.features.specs import parse
from vrtd.features.tabular import Table


class ForeignFeatures(Features):
    """Base of features that others' code computes: they have no kind, and cannot be stored."""

    n: int | None  # d; None: found by bind

    @property
    def n_features(self) -> int:
        return check_bound(self, "the number of features", self.n)


@dataclass(frozen=True)
class FromFunction(ForeignFeatures):
    """phi(s) from a function of yours: (n, ...) observations -> (n, d) rows, each of its own observation alone.

    It is called with 256 observations at a time, the last one repeated where there are fewer. `bind` tries it on a
    few: rows that depend on the others are refused.

    >>> FromFunction(lambda s: np.stack([s, s * s], axis=1)).bind(np.arange(9.0))(np.array([3.0])).tolist()
    [[3.0, 9.0]]
    """

    function: Callable[[NDArray[Any]], Any]
    n: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidInputError("function must be callable", f"{self.function!r:.60}", "pass a function")
        set_count(self, "n", FEWER)

    def bind(self, observations: NDArray[Any]) -> Self:
        n = try_on(self.function, (observations,), self.n)
        return self if n == self.n else replace(self, n=n)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        return call_in_blocks(self.function, (observations,), self.n_features)


@dataclass(frozen=True)
class FromTransformer(ForeignFeatures):
    """phi(s) from a scikit-learn transformer or pipeline. One that is not fitted is fitted by `bind`, on a copy."""

    transformer: Any
    n: int | None = None

    def __post_init__(self) -> None:
        if not _is_transformer(self.transformer):
            must, do = "transformer must be an object with a method transform", "pass e.g. RBFSampler(n_components=50)"
            raise InvalidInputError(must, f"{self.transformer!r:.60}", do)
        set_count(self, "n", FEWER)

    @property
    def needs_data(self) -> bool:
        return not _is_fitted(self.transformer)

    def bind(self, observations: NDArray[Any]) -> Self:
        rows = as_rows(observations)
        transformer = self.transformer
        if not _is_fitted(transformer):
            check_some(rows, *TRY)
            check_finite(rows, "a transformer is fitted to")
            transformer = deepcopy(transformer).fit(rows)
        fitted = replace(self, transformer=transformer)
        return replace(fitted, n=try_on(fitted._transform, (rows,), self.n))

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        return call_in_blocks(self._transform, (as_rows(observations),), self.n_features)

    def _transform(self, rows: NDArray[Any]) -> Any:
        try:
            return self.transformer.transform(rows)
        except ValueError as error:
            must, got = "the transformer must accept the observations", f"its message {str(error)!r:.200}"
            raise InvalidInputError(must, got, "fit it to such ones") from error


def as_features(value: Any) -> Features:
    """Features from what a user may pass: None (observations as they are), Features, a description such as "auto" or
    "rbf:20", an (S, d) array for states, a scikit-learn transformer, a function.

    >>> as_features("fourier:3")
    Fourier(low=None, high=None, order=3)
    """
    match value:
        case None:
            return Identity()
        case Features():
            return value
        case str():
            return parse(value)
        case np.ndarray() if value.ndim == 2:
            return Table(value)
        case _ if _is_transformer(value):
            return FromTransformer(value)
        case _ if callable(value) and not isinstance(value, type):
            return FromFunction(value)
    kinds = "None, Features, a description such as 'rbf:20', an (S, d) array, a function or an object with a method"
    got = f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else f"{value!r:.60}"
    raise InvalidInputError(f"features must be {kinds} transform", got, "pass one of them; of a class, an instance")


def as_pair_features(value: Any) -> Features | FromPairs:
    """Features of states and actions from what a user may pass.

    Parameters
    ----------
    value : Any
        A function of observations and actions, or whatever `as_features` takes.

    Returns
    -------
    Features or FromPairs
        `FromPairs` of a function with two required positional arguments, the features of `as_features` else.

    Examples
    --------
    >>> as_pair_features("fourier:3")
    Fourier(low=None, high=None, order=3)
    """
    if isinstance(value, FromPairs):
        return value
    is_function = callable(value) and not isinstance(value, Features | type)
    return FromPairs(value) if is_function and _count_required(value) == 2 else as_features(value)


def _count_required(function: Callable[..., Any]) -> int | None:
    """Return how many positional arguments a function needs, or None if it does not say so."""
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    is_needed = [p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters]
    return sum(is_needed)


def _is_transformer(value: Any) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "transform", None))


def _is_fitted(transformer: Any) -> bool:
    if not callable(getattr(transformer, "fit", None)):
        return True  # there is nothing to fit
    try:
        from sklearn.exceptions import NotFittedError
        from sklearn.utils.validation import check_is_fitted
    except ImportError:
        raise MissingExtraError("scikit-learn", "sklearn") from None
    try:
        check_is_fitted(transformer)
    except NotFittedError:
        return False
    return True
