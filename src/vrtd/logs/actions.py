"""Actions of a log as arrays: words and whole numbers as int64, all else as float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.logs.blocks import Gap, Piece, check_length, check_numbers, convert_observations, find_missing
from vrtd.logs.log import shorten
from vrtd.tables import library

NUMBER_THEM = "number the actions 0, 1, ... in a column of their own, and name that one"


class ActionCoding(NamedTuple):
    """How the column of actions becomes numbers."""

    words: Sequence[str] = ()  # of text: those of the actions 0, 1, ...
    is_whole: bool = False  # whether floats are the numbers of actions, because the format has no types
    width: int | None = None  # of vectors; None: every one shows it


def convert_actions(
    columns: Any, coding: ActionCoding, piece: Piece, gaps: list[Gap], counts_nan: bool
) -> NDArray[Any]:
    """Return the actions of a column: int64 (n,) of words and whole numbers, float64 (n,) of fractions, float64 (n, k)
    of vectors and of a list of columns. Missing entries are put down in `gaps`, and 0 is in their place."""
    where = piece.column("action")
    if isinstance(columns, list):
        numbers = [_fill(column, j, piece, gaps, counts_nan) for j, column in enumerate(columns)]
        vectors = convert_observations(numbers, where).astype(np.float64)
    elif isinstance(columns, np.ndarray):
        array = _fill(columns, 0, piece, gaps, counts_nan)
        is_number = array.dtype.kind in "biu" or coding.is_whole
        if is_number and array.shape[1:] in ((), (1,)):
            return _to_numbers(array.reshape(-1), piece)
        vectors = np.ascontiguousarray(array, np.float64)
    else:
        return _find_words(columns, coding.words, piece, gaps)
    if vectors.ndim > 2:
        vectors = vectors.reshape(len(vectors), -1)
    is_finite = np.isfinite(vectors)
    if not is_finite.all():
        row = int(np.argwhere(~is_finite)[0][0])
        raise DataError("actions must be finite", f"another at {piece.place('action', row)}", "repair or drop that row")
    return vectors


def _fill(column: Any, entry: int, piece: Piece, gaps: list[Gap], counts_nan: bool) -> NDArray[Any]:
    """Return a column of numbers with 0 where a value is missing."""
    where = piece.column("action")
    if not isinstance(column, np.ndarray):
        raise DataError(f"{where} must be columns of numbers", "one of words", "name a single column of words")
    check_numbers(column, where, "of numbers (a table may hold words)")
    check_length(column, where, piece)
    rows = find_missing(column, counts_nan)
    if rows is None:
        return column
    gaps.append(Gap("action", entry, rows))
    filled = np.ma.getdata(column).copy()
    filled[rows] = 0
    return filled


def _to_numbers(array: NDArray[Any], piece: Piece) -> NDArray[np.int64]:
    with np.errstate(invalid="ignore"):
        numbers = array.astype(np.int64)
    is_bad = (numbers != array) | (numbers < 0)
    if is_bad.any():
        row = int(np.argmax(is_bad))
        raise DataError(
            "actions that are whole numbers must be 0, 1, ...",
            f"{array[row]} at {piece.place('action', row)}",
            "number them so; if they are continuous, write all of them as floats, such as 1.0 and 1.5",
        )
    return numbers


def _find_words(texts: Any, words: Sequence[str], piece: Piece, gaps: list[Gap]) -> NDArray[np.int64]:
    """Return the numbers of actions in an Arrow array of text."""
    from pyarrow import compute

    found = compute.index_in(texts, value_set=library().array(words, library().string()))
    if found.null_count > texts.null_count:
        row = compute.index(compute.and_(found.is_null(), texts.is_valid()), True).as_py()
        must = f"an action must be one of those that the first rows show: {shorten(words)}"
        raise DataError(must, f"{texts[row].as_py()!r} at {piece.place('action', row)}", NUMBER_THEM)
    if texts.null_count:
        gaps.append(Gap("action", 0, texts.is_null().to_numpy(zero_copy_only=False)))
    return np.asarray(found.fill_null(0).to_numpy(), np.int64)
