"""Calls of others' code, always with the same number of rows, so that no bit depends on how rows are split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import require
from vrtd.errors import DataError
from vrtd.features.features import check_finite, check_most, check_some, finite_rows, row_dtype

# Others' code sees this many rows at once, always: a matrix product rounds a row differently with the number of rows
# that come with it.
BLOCK = 256
FEWER = "make fewer features"
TRY = "try the features on", "pass observations"
_TRIED = 8  # rows on which `bind` tries whether each is treated by itself
_TOLERANCE = 1e-4


def blocks_of(rows: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield numbers of rows, at most `BLOCK` at a time, and the same with the last repeated so that they are `BLOCK`.

    >>> some, whole = next(blocks_of(np.array([3, 7])))
    >>> some.tolist(), whole[:4].tolist(), len(whole)
    ([3, 7], [3, 7, 7, 7], 256)
    """
    for start in range(0, len(rows), BLOCK):
        some = rows[start : start + BLOCK]
        yield some, np.pad(some, (0, BLOCK - len(some)), mode="edge")


def call_in_blocks(function: Callable[..., Any], arrays: tuple[Any, ...], n: int) -> NDArray[np.floating[Any]]:
    """Return the n features that others' code makes of rows: of observations, or of observations and actions.

    Rows that are not finite give NaN. The code does not see them: it may refuse them, or hide them.
    """
    arrays = tuple(map(np.asarray, arrays))
    good = np.logical_and.reduce([finite_rows(array) for array in arrays])
    out = np.full((len(good), n), np.nan, row_dtype(arrays[0]))
    for rows, whole in blocks_of(np.flatnonzero(good)):
        out[rows] = _call(function, tuple(array[whole] for array in arrays), n)[: len(rows)]
        finite = finite_rows(out[rows])
        must, got = "features of a finite observation must be finite", f"a row {rows[np.argmin(finite)]} that is not"
        require(finite.all(), must, got, "repair the function or the observation", DataError)
    return out


def try_on(function: Callable[..., Any], arrays: tuple[Any, ...], n: int | None) -> int:
    """Return how many features the function makes, after a look at whether it keeps rows apart."""
    for array in arrays:
        check_some(array, *TRY)
    few = tuple(np.asarray(array)[:_TRIED] for array in arrays)
    check_finite(few[0], "features are tried on")
    width = int(_call(function, few, n).shape[1])
    together = call_in_blocks(function, few, width)
    close = _TOLERANCE * float(np.abs(together).max())
    must = "features of an observation must not depend on the others that come with it"
    do = "take means, ranges and the like beforehand, and keep them fixed"
    for row in range(len(few[0])):
        alone = call_in_blocks(function, tuple(array[row : row + 1] for array in few), width)
        same = np.allclose(alone, together[row], rtol=_TOLERANCE, atol=close)
        require(same, must, f"another row {row} when it came alone", do)
    return width


def _call(function: Callable[..., Any], arrays: tuple[NDArray[Any], ...], n: int | None) -> NDArray[Any]:
    """Return what the function makes of rows, (n, d)."""
    from scipy.sparse import issparse

    made: Any = function(*arrays)
    if issparse(made):
        check_most(made.shape[1], FEWER)  # type: ignore[attr-defined]
        made = made.toarray()  # type: ignore[attr-defined]
    rows = np.asarray(made)
    count = len(arrays[0])
    fits = rows.dtype.kind in "biuf" and rows.ndim == 2 and rows.shape == (count, n or rows.shape[1])
    must = f"features of {count} observations must be numbers of shape ({count}, {n or 'd'})"
    got, do = (
        f"an array of {rows.dtype} of shape {rows.shape}",
        "return a row for each observation, always equally long",
    )
    require(fits, must, got, do)
    require(rows.shape[1] > 0, "there must be at least one feature", "none", "return at least one column")
    check_most(rows.shape[1], FEWER)
    return rows
