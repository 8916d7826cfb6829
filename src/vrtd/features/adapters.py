"""A user's function, array or scikit-learn transformer as features."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import require
from vrtd.errors import DataError, InvalidInputError, MissingExtraError
from vrtd.features.features import (
    Features,
    as_rows,
    check_bound,
    check_finite,
    check_most,
    check_some,
    finite_rows,
    row_dtype,
    set_count,
)
from vrtd.features.identity import Identity
from vrtd.features.specs import parse
from vrtd.features.tabular import Table

# Others' code sees this many observations at once, always: a matrix product rounds a row differently with the number
# of rows that come with it.
_BLOCK = 256
_TRIED = 8  # rows on which `bind` tries whether each is treated by itself
_TOLERANCE = 1e-4
_TRY = "try the features on", "pass observations"
_FEWER = "make fewer features"


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
        set_count(self, "n", _FEWER)

    def bind(self, observations: NDArray[Any]) -> Self:
        n = _try_on(self.function, observations, self.n)
        return self if n == self.n else replace(self, n=n)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        return _call_in_blocks(self.function, observations, self.n_features)


@dataclass(frozen=True)
class FromTransformer(ForeignFeatures):
    """phi(s) from a scikit-learn transformer or pipeline. One that is not fitted is fitted by `bind`, on a copy."""

    transformer: Any
    n: int | None = None

    def __post_init__(self) -> None:
        if not _is_transformer(self.transformer):
            must, do = "transformer must be an object with a method transform", "pass e.g. RBFSampler(n_components=50)"
            raise InvalidInputError(must, f"{self.transformer!r:.60}", do)
        set_count(self, "n", _FEWER)

    @property
    def needs_data(self) -> bool:
        return not _is_fitted(self.transformer)

    def bind(self, observations: NDArray[Any]) -> Self:
        rows = as_rows(observations)
        transformer = self.transformer
        if not _is_fitted(transformer):
            check_some(rows, *_TRY)
            check_finite(rows, "a transformer is fitted to")
            transformer = deepcopy(transformer).fit(rows)
        fitted = replace(self, transformer=transformer)
        return replace(fitted, n=_try_on(fitted._transform, rows, self.n))

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        return _call_in_blocks(self._transform, as_rows(observations), self.n_features)

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


def _try_on(function: Callable[[NDArray[Any]], Any], observations: Any, n: int | None) -> int:
    """How many features the function makes, after a look at whether it keeps rows apart."""
    check_some(observations, *_TRY)
    few = np.asarray(observations)[:_TRIED]
    check_finite(few, "features are tried on")
    width = int(_call(function, few, n).shape[1])
    together = _call_in_blocks(function, few, width)
    close = _TOLERANCE * float(np.abs(together).max())
    must = "features of an observation must not depend on the others that come with it"
    do = "take means, ranges and the like beforehand, and keep them fixed"
    for row in range(len(few)):
        alone = _call_in_blocks(function, few[row : row + 1], width)
        same = np.allclose(alone, together[row], rtol=_TOLERANCE, atol=close)
        require(same, must, f"another row {row} when it came alone", do)
    return width


def _call_in_blocks(function: Callable[[NDArray[Any]], Any], observations: Any, n: int) -> NDArray[np.floating[Any]]:
    array = np.ascontiguousarray(observations)
    out = np.empty((len(array), n), row_dtype(array))
    for start in range(0, len(array), _BLOCK):
        block, made = array[start : start + _BLOCK], out[start : start + _BLOCK]
        good = finite_rows(block)
        made[~good] = np.nan  # others' code does not see what is not finite: it may refuse it, or hide it
        if not good.any():
            continue
        whole = np.repeat(block[good][-1:], _BLOCK, axis=0)
        whole[: len(block)][good] = block[good]
        made[good] = _call(function, whole, n)[: len(block)][good]
        wrong = good & ~finite_rows(made)
        must, got = (
            "features of a finite observation must be finite",
            f"a row {start + int(np.argmax(wrong))} that is not",
        )
        require(not wrong.any(), must, got, "repair the function or the observation", DataError)
    return out


def _call(function: Callable[[NDArray[Any]], Any], observations: NDArray[Any], n: int | None) -> NDArray[Any]:
    """What the function makes of them, (n, d)."""
    from scipy.sparse import issparse

    made: Any = function(observations)
    if issparse(made):
        check_most(made.shape[1], _FEWER)  # type: ignore[attr-defined]
        made = made.toarray()  # type: ignore[attr-defined]
    rows = np.asarray(made)
    count = len(observations)
    fits = rows.dtype.kind in "biuf" and rows.ndim == 2 and rows.shape == (count, n or rows.shape[1])
    must = f"features of {count} observations must be numbers of shape ({count}, {n or 'd'})"
    got, do = (
        f"an array of {rows.dtype} of shape {rows.shape}",
        "return a row for each observation, always equally long",
    )
    require(fits, must, got, do)
    require(rows.shape[1] > 0, "there must be at least one feature", "none", "return at least one column")
    check_most(rows.shape[1], _FEWER)
    return rows
