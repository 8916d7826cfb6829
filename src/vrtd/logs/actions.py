"""Conversion of actions to arrays: words and whole numbers to int64, everything else to float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.logs.blocks import Gap, Piece, check_length, check_numbers, convert_observations, find_missing
from vrtd.logs.log import shorten
from vrtd.tables import library

NUMBER_THEM = "Number the actions 0, 1, ... in a column of their own and name that column."


class ActionCoding(NamedTuple):
    """Rules for the conversion of a column of actions to numbers."""

    words: Sequence[str] = ()  # the words of the actions 0, 1, ... in a column of text
    is_whole: bool = False  # whether floats are numbers of actions, because the format has no types
    width: int | None = None  # the length of vectors, where missing ones do not show it


def convert_actions(
    columns: Any, coding: ActionCoding, piece: Piece, gaps: list[Gap], counts_nan: bool
) -> NDArray[Any]:
    """Return the actions of a column as an array.

    Words and whole numbers become int64 (n,), fractions float64 (n,), vectors and lists of columns float64 (n, k).
    Missing entries become 0 and are added to `gaps`.
    """
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
        raise DataError(f"The action in {piece.place('action', row)}, is not finite.", "Fix or drop the row.")
    return np.asarray(vectors)


def _fill(column: Any, entry: int, piece: Piece, gaps: list[Gap], counts_nan: bool) -> NDArray[Any]:
    """Return a column of numbers with 0 where a value is missing."""
    where = piece.column("action")
    if not isinstance(column, np.ndarray):
        raise DataError(
            f"{where} must be columns of numbers, but one of them holds words.", "Name a single column of words."
        )
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
            f"Actions that are whole numbers must be 0, 1, ..., but the action is {array[row]} "
            f"in {piece.place('action', row)}.",
            "Number the actions from 0. If they are continuous, write all of them as floats, such as 1.0 and 1.5.",
        )
    return numbers


def _find_words(texts: Any, words: Sequence[str], piece: Piece, gaps: list[Gap]) -> NDArray[np.int64]:
    """Return the numbers of actions in an Arrow array of text."""
    from pyarrow import compute

    found = compute.index_in(texts, value_set=library().array(words, library().string()))
    if found.null_count > texts.null_count:
        row = compute.index(compute.and_(found.is_null(), texts.is_valid()), True).as_py()
        raise DataError(
            f"The action {texts[row].as_py()!r} in {piece.place('action', row)}, "
            f"does not occur in the first rows, which have {shorten(words)}.",
            NUMBER_THEM,
        )
    if texts.null_count:
        gaps.append(Gap("action", 0, texts.is_null().to_numpy(zero_copy_only=False)))
    return np.asarray(found.fill_null(0).to_numpy(), np.int64)
