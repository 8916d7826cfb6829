"""Calls of the user's code with a fixed number of rows, so that the split of a log does not change any bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import require
from vrtd.errors import DataError
from vrtd.features.features import (
    MOST_DENSE,
    MOST_SPARSE,
    check_finite,
    check_most,
    check_some,
    finite_rows,
    row_dtype,
)
from vrtd.sparse import as_sparse_rows, is_sparse, join_tables, make_rows, part_of, to_sparse
from vrtd.sparse import finite_rows as all_finite_rows

# The user's code is always called with this many rows, because the number of rows changes how a matrix product rounds.
BLOCK = 256
FEWER = "Compute fewer features."
TRY = "test the features", "Pass observations."
_TRIED = 8  # rows with which `bind` tests whether each row is treated independently
_TOLERANCE = 1e-4


def blocks_of(rows: NDArray[np.intp]) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield row numbers in blocks of at most ``BLOCK``, and the same padded to ``BLOCK`` by repeating the last one.

    >>> some, whole = next(blocks_of(np.array([3, 7])))
    >>> some.tolist(), whole[:4].tolist(), len(whole)
    ([3, 7], [3, 7, 7, 7], 256)
    """
    for start in range(0, len(rows), BLOCK):
        some = rows[start : start + BLOCK]
        yield some, np.pad(some, (0, BLOCK - len(some)), mode="edge")


def call_in_blocks(function: Callable[..., Any], arrays: tuple[Any, ...], n: int, as_sparse: bool = False) -> Any:
    """Return the n features that the user's code computes from observations, or from observations and actions.

    Rows that are not finite give NaN and are not passed to the code, which may refuse them or hide them. `as_sparse`
    asks for sparse rows.
    """
    arrays = tuple(map(np.asarray, arrays))
    good = np.logical_and.reduce([finite_rows(array) for array in arrays])
    if as_sparse:
        return _call_sparsely(function, arrays, good, n)
    out = np.full((len(good), n), np.nan, row_dtype(arrays[0]))
    for rows, whole in blocks_of(np.flatnonzero(good)):
        out[rows] = _call(function, tuple(array[whole] for array in arrays), n)[: len(rows)]
        finite = finite_rows(out[rows])
        require(
            finite.all(),
            f"The features of row {rows[np.argmin(finite)]} are not finite, although its observation is.",
            "Fix the feature function, or drop the row.",
            DataError,
        )
    return out


def _call_sparsely(function: Callable[..., Any], arrays: tuple[Any, ...], good: NDArray[np.bool_], n: int) -> Any:
    """Return sparse rows, with NaN in one column for rows that are not finite."""
    dtype, found = row_dtype(arrays[0]), []
    for rows, whole in blocks_of(np.flatnonzero(good)):
        called = _call(function, tuple(array[whole] for array in arrays), n, keeps_sparse=True)
        part = part_of(called if is_sparse(called) else to_sparse(called), 0, len(rows))
        finite = all_finite_rows(part)
        require(
            finite.all(),
            f"The features of row {rows[np.argmin(finite)]} are not finite, although its observation is.",
            "Fix the feature function, or drop the row.",
            DataError,
        )
        found.append(part.astype(dtype, copy=False))
    bad = int((~good).sum())
    found.append(make_rows(np.full(bad, np.nan, dtype), np.zeros(bad, np.int32), np.arange(bad + 1, dtype=np.int32), n))
    order = np.empty(len(good), np.intp)
    order[np.append(np.flatnonzero(good), np.flatnonzero(~good))] = np.arange(len(good))
    return join_tables(found)[order]


def try_on(
    function: Callable[..., Any], arrays: tuple[Any, ...], n: int | None, keeps_sparse: bool = True
) -> tuple[int, bool]:
    """Return the number of features of the function, and whether its rows are sparse.

    It is tested whether the function treats each row independently. `keeps_sparse` is whether rows may be sparse.
    """
    for array in arrays:
        check_some(array, *TRY)
    few = tuple(np.asarray(array)[:_TRIED] for array in arrays)
    check_finite(few[0], TRY[0])
    found = _call(function, few, n, keeps_sparse)
    width, as_sparse = int(found.shape[1]), is_sparse(found)
    together = call_in_blocks(function, few, width, as_sparse)
    close = _TOLERANCE * float(abs(together).max())
    for row in range(len(few[0])):
        alone = call_in_blocks(function, tuple(array[row : row + 1] for array in few), width, as_sparse)
        require(
            abs(alone - together[[row]]).max() <= close,
            f"The feature function must treat each observation independently, but row {row} changes when passed alone.",
            "Compute means, ranges and similar quantities beforehand, and keep them fixed.",
        )
    return width, as_sparse


def _call(
    function: Callable[..., Any], arrays: tuple[NDArray[Any], ...], n: int | None, keeps_sparse: bool = False
) -> Any:
    """Return the (n, d) rows that the function computes."""
    from scipy.sparse import issparse

    answer: Any = function(*arrays)
    is_sparse_answer = issparse(answer)
    answer = cast("Any", answer)
    if is_sparse_answer and keeps_sparse and answer.ndim == 2 and answer.shape[1] > MOST_DENSE:
        check_most(answer.shape[1], FEWER, most=MOST_SPARSE)
        rows: Any = as_sparse_rows("features", answer)
    else:
        rows = np.asarray(answer.toarray() if is_sparse_answer else answer)
        check_most(rows.shape[1] if rows.ndim == 2 else 0, FEWER)
    count = len(arrays[0])
    fits = rows.dtype.kind in "biuf" and rows.ndim == 2 and rows.shape == (count, n or rows.shape[1])
    require(
        fits,
        f"The features of {count} observations must be numbers of shape ({count}, {n or 'd'}), but the feature "
        f"function returned {rows.dtype} of shape {rows.shape}.",
        "Return one row per observation, always of the same length.",
    )
    require(rows.shape[1] > 0, "The feature function returned no features.", "Return at least one column.")
    return rows
