"""Features from a user's function, array or scikit-learn transformer."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import InvalidInputError, MissingExtraError
from vrtd.features.blocks import FEWER, TRY, call_in_blocks, try_on
from vrtd.features.features import (
    MOST_SPARSE,
    Features,
    as_rows,
    check_bound,
    check_finite,
    check_some,
    set_count,
)
from vrtd.features.identity import Identity
from vrtd.features.pairs import FromPairs
from vrtd.features.specs import parse
from vrtd.features.tabular import Table


class ForeignFeatures(Features):
    """Base class of features that are computed by the user's code. They have no kind and cannot be stored."""

    n: int | None  # d, or None if `bind` determines it
    sparse: bool  # whether the user's code returns sparse rows with many features, which `bind` determines

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return check_bound(self, "the number of features", self.n)

    @property
    def is_sparse(self) -> bool:
        """Whether rows are sparse."""
        return self.sparse


@dataclass(frozen=True)
class FromFunction(ForeignFeatures):
    """Features from your own function of observations.

    The function is called with 256 observations at a time; the last one is repeated if there are fewer. Each row of the
    result must depend on its own observation only. ``bind`` tests this on a few observations.

    Parameters
    ----------
    function : callable
        Function that maps (n, ...) observations to (n, d) rows.
    n : int, optional
        Number of features d. If not given, ``bind`` determines it.
    sparse : bool, default=False
        Whether rows are sparse. ``bind`` determines it: they are if the result is a sparse matrix with more than 512
        columns.

    Examples
    --------
    >>> FromFunction(lambda s: np.stack([s, s * s], axis=1)).bind(np.arange(9.0))(np.array([3.0])).tolist()
    [[3.0, 9.0]]
    """

    function: Callable[[NDArray[Any]], Any]
    n: int | None = None
    sparse: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidInputError(f"function must be callable, but got {self.function!r:.60}.", "Pass a function.")
        set_count(self, "n", FEWER, MOST_SPARSE)

    def bind(self, observations: NDArray[Any]) -> Self:
        """Return these features with their number, after a test of the function.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations to test the function on.

        Returns
        -------
        FromFunction
            The bound features, or the features themselves if they are bound already.
        """
        n, sparse = try_on(self.function, (observations,), self.n)
        return self if (n, sparse) == (self.n, self.sparse) else replace(self, n=n, sparse=sparse)

    def __call__(self, observations: NDArray[Any]) -> Any:
        """Return the rows of observations, of shape (n, d)."""
        return call_in_blocks(self.function, (observations,), self.n_features, self.sparse)


@dataclass(frozen=True)
class FromTransformer(ForeignFeatures):
    """Features from a scikit-learn transformer or pipeline.

    Parameters
    ----------
    transformer : transformer
        Object with a method ``transform``. If it is not fitted, ``bind`` fits a copy of it.
    n : int, optional
        Number of features d. If not given, ``bind`` determines it.
    sparse : bool, default=False
        Whether rows are sparse. ``bind`` determines it: they are if the result is a sparse matrix with more than 512
        columns.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> rows = np.array([[1.0], [3.0]])
    >>> FromTransformer(StandardScaler()).bind(rows)(rows).tolist()
    [[-1.0], [1.0]]
    """

    transformer: Any
    n: int | None = None
    sparse: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not _is_transformer(self.transformer):
            raise InvalidInputError(
                f"transformer must have a method transform, but got {self.transformer!r:.60}.",
                "Pass e.g. RBFSampler(n_components=50).",
            )
        set_count(self, "n", FEWER, MOST_SPARSE)

    @property
    def needs_data(self) -> bool:
        """Whether the transformer must be fitted."""
        return not _is_fitted(self.transformer)

    def bind(self, observations: NDArray[Any]) -> Self:
        """Return these features with a fitted transformer and their number.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations to fit and test the transformer on.

        Returns
        -------
        FromTransformer
            The bound features, or the features themselves if they are bound already.
        """
        rows = as_rows(observations)
        transformer = self.transformer
        if not _is_fitted(transformer):
            check_some(rows, *TRY)
            check_finite(rows, "fit a transformer")
            transformer = deepcopy(transformer).fit(rows)
        fitted = replace(self, transformer=transformer)
        n, sparse = try_on(fitted._transform, (rows,), self.n)
        return replace(fitted, n=n, sparse=sparse)

    def __call__(self, observations: NDArray[Any]) -> Any:
        """Return the rows of observations, of shape (n, d)."""
        return call_in_blocks(self._transform, (as_rows(observations),), self.n_features, self.sparse)

    def _transform(self, rows: NDArray[Any]) -> Any:
        try:
            return self.transformer.transform(rows)
        except ValueError as error:
            raise InvalidInputError(
                f"The transformer does not accept the observations ({str(error)!r:.200}).",
                "Fit it to observations of the same kind.",
            ) from error


def as_features(value: Any) -> Features:
    """Return the features that a value stands for.

    Parameters
    ----------
    value : None, Features, str, ndarray, transformer or callable
        None for the observations themselves, features, a description such as "auto" or "rbf:20", an (S, d) array with
        one row per state, a scikit-learn transformer, or a function of observations.

    Returns
    -------
    Features
        The features, not yet bound.

    Raises
    ------
    InvalidInputError
        If the value is none of these.

    Examples
    --------
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
    shown = f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else f"{value!r:.60}"
    raise InvalidInputError(
        "features must be None, Features, a description such as 'rbf:20', an (S, d) array, a function or an object "
        f"with a method transform, but got {shown}.",
        "Pass one of them, and an instance instead of a class.",
    )


def as_pair_features(value: Any) -> Features | FromPairs:
    """Return the features of states and actions that a value stands for.

    Parameters
    ----------
    value : callable, FromPairs or any value that as_features accepts
        A function of observations and actions, or a value that ``as_features`` accepts.

    Returns
    -------
    Features or FromPairs
        ``FromPairs`` of a function with two required positional arguments, otherwise the features of ``as_features``.

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
    """Return the number of required positional arguments, or None if the function has no signature."""
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
        from sklearn.pipeline import Pipeline
        from sklearn.utils import get_tags
        from sklearn.utils.validation import check_is_fitted
    except ImportError:
        raise MissingExtraError("scikit-learn", "sklearn") from None
    if isinstance(transformer, Pipeline):  # its own check is that of the last step, also if that step needs no fit
        steps = (step for _, step in reversed(transformer.steps) if callable(getattr(step, "fit", None)))
        return _is_fitted(next((step for step in steps if get_tags(step).requires_fit), None))
    try:
        check_is_fitted(transformer)
    except NotFittedError:
        return False
    return True
