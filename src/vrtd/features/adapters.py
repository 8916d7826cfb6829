"""A user's function, array or scikit-learn transformer as features."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import check_count
from vrtd.errors import DataError, InvalidInputError, MissingExtraError
from vrtd.features.features import Features, check_most, unbound
from vrtd.features.identity import Identity
from vrtd.features.rows import as_rows, check_finite, finite_rows, row_dtype
from vrtd.features.specs import parse
from vrtd.features.tabular import Table

# Others' code sees this many observations at once, always: a matrix product rounds a row differently with the number
# of rows that come with it.
_BLOCK = 256
_TRIED = 8  # rows on which `bind` tries whether each is treated by itself
_TOLERANCE = 1e-4


@dataclass(frozen=True)
class FromFunction(Features):
    """phi(s) from a function of yours: (n, ...) observations -> (n, d) rows, each of its own observation alone.

    It is called with 256 observations at a time, the last one repeated where there are fewer. `bind` tries it on a
    few: rows that depend on the others are refused.

    >>> FromFunction(lambda s: np.stack([s, s * s], axis=1)).bind(np.arange(9.0))(np.array([3.0])).tolist()
    [[3.0, 9.0]]
    """

    function: Callable[[NDArray[Any]], Any]
    n: int | None = None  # d; None: found by bind

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidInputError("function must be callable", f"{self.function!r:.60}", "pass a function")
        _check_n(self, self.n)

    def bind(self, observations: NDArray[Any]) -> Self:
        n = _tried(self.function, observations, self.n)
        return self if n == self.n else replace(self, n=n)

    @property
    def n_features(self) -> int:
        return _known(self, self.n)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        return _rows(self.function, observations, self.n_features)

    @property
    def settings(self) -> dict[str, Any]:
        _refuse_to_store("a function")


@dataclass(frozen=True)
class FromTransformer(Features):
    """phi(s) from a scikit-learn transformer or pipeline. One that is not fitted is fitted by `bind`, on a copy."""

    transformer: Any
    n: int | None = None  # d; None: found by bind

    def __post_init__(self) -> None:
        if not _transforms(self.transformer):
            raise InvalidInputError(
                "transformer must be an object with a method transform",
                f"{self.transformer!r:.60}",
                "pass e.g. RBFSampler(n_components=50, random_state=0)",
            )
        _check_n(self, self.n)

    @property
    def needs_data(self) -> bool:
        return not _is_fitted(self.transformer)

    def bind(self, observations: NDArray[Any]) -> Self:
        rows = as_rows(observations)
        transformer = self.transformer
        if not _is_fitted(transformer):
            _check_some(rows)
            check_finite(rows, "a transformer is fitted to")
            transformer = deepcopy(transformer).fit(rows)
        fitted = replace(self, transformer=transformer)
        return replace(fitted, n=_tried(fitted._transform, rows, self.n))

    @property
    def n_features(self) -> int:
        return _known(self, self.n)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        return _rows(self._transform, as_rows(observations), self.n_features)

    def _transform(self, rows: NDArray[Any]) -> Any:
        try:
            return self.transformer.transform(rows)
        except ValueError as error:
            raise InvalidInputError(
                "the transformer must accept the observations",
                f"its message {str(error)!r:.200}",
                "fit it to such ones",
            ) from error

    @property
    def settings(self) -> dict[str, Any]:
        _refuse_to_store("a transformer")


def as_features(value: Any) -> Features:
    """Features from what a user may pass: None (observations as they are), Features, a description such as "rbf:20", an
    (S, d) array for states, a scikit-learn transformer, a function.

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
    if not isinstance(value, type):
        if _transforms(value):
            return FromTransformer(value)
        if callable(value):
            return FromFunction(value)
    raise InvalidInputError(
        "features must be None, Features, a description such as 'rbf:20', an (S, d) array, a function or an object "
        "with a method transform",
        f"an array of shape {value.shape}" if isinstance(value, np.ndarray) else f"{value!r:.60}",
        "pass one of them; of a class, an instance",
    )


def _transforms(value: Any) -> bool:
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


def _check_n(features: Features, n: Any) -> None:
    if n is not None:
        check_count("n", n)
        object.__setattr__(features, "n", int(n))
        check_most(int(n), "make fewer features")


def _known(features: Features, n: int | None) -> int:
    if n is None:
        raise unbound(features, "the number of features")
    return n


def _check_some(observations: Any) -> None:
    if np.ndim(observations) == 0 or len(observations) == 0:
        raise DataError("there must be an observation to try the features on", "none", "pass observations")


def _tried(function: Callable[[NDArray[Any]], Any], observations: Any, n: int | None) -> int:
    """How many features the function makes, after a look at whether it keeps rows apart."""
    _check_some(observations)
    few = np.asarray(observations)[:_TRIED]
    check_finite(few, "features are tried on")
    width = int(_asked(function, few, n).shape[1])
    together = _rows(function, few, width)
    close = _TOLERANCE * float(np.abs(together).max())
    for row in range(len(few)):
        if not np.allclose(_rows(function, few[row : row + 1], width), together[row], rtol=_TOLERANCE, atol=close):
            raise InvalidInputError(
                "features of an observation must not depend on the others that come with it",
                f"another row {row} when it came alone",
                "take means, ranges and the like beforehand, and keep them fixed",
            )
    return width


def _rows(function: Callable[[NDArray[Any]], Any], observations: Any, n: int) -> NDArray[np.floating[Any]]:
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
        made[good] = _asked(function, whole, n)[: len(block)][good]
        wrong = good & ~finite_rows(made)
        if wrong.any():
            raise DataError(
                "features of a finite observation must be finite",
                f"a row {start + int(np.argmax(wrong))} that is not",
                "repair the function or the observation",
            )
    return out


def _asked(function: Callable[[NDArray[Any]], Any], observations: NDArray[Any], n: int | None) -> NDArray[Any]:
    """What the function makes of them, (n, d)."""
    from scipy.sparse import issparse

    made: Any = function(observations)
    if issparse(made):
        check_most(made.shape[1], "make fewer features")  # type: ignore[attr-defined]
        made = made.toarray()  # type: ignore[attr-defined]
    rows = np.asarray(made)
    if rows.dtype.kind not in "biuf" or rows.ndim != 2 or rows.shape != (len(observations), n or rows.shape[1]):
        raise InvalidInputError(
            f"features of {len(observations)} observations must be numbers of shape ({len(observations)}, {n or 'd'})",
            f"an array of {rows.dtype} of shape {rows.shape}",
            "return a row for each observation, always equally long",
        )
    if rows.shape[1] == 0:
        raise InvalidInputError("there must be at least one feature", "none", "return at least one column")
    check_most(rows.shape[1], "make fewer features")
    return rows


def _refuse_to_store(what: str) -> NoReturn:
    raise InvalidInputError(
        "features must be made of plain values to be stored", what, "keep your own code and pass it again when loading"
    )
