"""Observations that a user has values computed of: tables and arrays become arrays like those of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import count, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError, InvalidInputError
from vrtd.features.spaces import Column, ObservationSpace
from vrtd.logs.arrow_values import ArrowStream, ColumnType, find_types
from vrtd.logs.blocks import Gap, Piece
from vrtd.logs.columns import Columns
from vrtd.logs.encoding import Encoder, find_first_gap, to_values
from vrtd.tables import library

_MOST_NAMED = 8  # columns in a message


def as_observations(space: ObservationSpace, given: Any) -> NDArray[Any]:
    """Return observations like those of the log that the space describes.

    Parameters
    ----------
    space : ObservationSpace
        `Log.space` of the log.
    given : table, mapping or array
        A table or arrays by name, as for `encode`. Anything else is an array with a row for each observation.

    Returns
    -------
    ndarray
        One row for each observation.
    """
    if isinstance(given, ArrowStream | Mapping):
        return encode(space, given)
    do = f"pass a table with the columns {_list(space)}" if space.columns else "pass an array of numbers"
    try:
        array = np.asarray(given)
    except ValueError:
        must = "observations must have equally many numbers each"
        raise InvalidInputError(must, f"{given!r:.60}", do) from None
    if array.dtype.kind not in "biuf":
        raise InvalidInputError("observations must be numbers, or a table", f"{given!r:.60}", do)
    n_numbers = space.n_numbers
    if array.ndim == 1 and n_numbers is not None and n_numbers > 1:
        must = f"observations must have {n_numbers} numbers each, which is the shape (n, {n_numbers})"
        raise InvalidInputError(must, f"the shape {array.shape}", "pass a list with one row for each observation")
    return array


def as_actions(space: ObservationSpace, given: Any) -> NDArray[Any]:
    """Return actions like those of the log that the space describes: numbers, also of words that it knows.

    >>> as_actions(ObservationSpace("states", actions=("left", "right")), ["right", "left"]).tolist()
    [1, 0]
    """
    must = "actions must be an array with one for each observation"
    try:
        actions = np.asarray(given)
    except ValueError:  # rows of different lengths
        raise InvalidInputError(must, f"{given!r:.60}", "pass rows of one length") from None
    if actions.ndim == 0:
        do = "pass a list of them; a level is passed as return_interval=0.95"
        raise InvalidInputError(must, f"{given!r:.60}", do)
    if actions.dtype.kind not in "UO":
        return actions
    numbers = {word: number for number, word in enumerate(space.actions)}
    unknown = [word for word in actions.ravel().tolist() if not isinstance(word, str) or word not in numbers]
    if unknown:
        known = f"one of {', '.join(space.actions)}" if numbers else "a number, as in the log"
        raise DataError(f"every action must be {known}", repr(unknown[0]), "pass actions of the log")
    return np.array([numbers[word] for word in actions.tolist()], np.int64)


def encode(space: ObservationSpace, table: Any) -> NDArray[Any]:
    """Return the observations of a table, as those of the log that the space describes.

    Parameters
    ----------
    space : ObservationSpace
        `Log.space` of a log.
    table : table or mapping
        A table of polars, pandas, DuckDB or pyarrow, or arrays by name, with at least the columns of the log. It may
        have the numbers of an observation instead, with the names that they have in the files of `vrtd.evaluate`.

    Returns
    -------
    ndarray
        One row of numbers for each row of the table, or one state.

    Raises
    ------
    DataError
        If a column is not there, is of another type, or lacks a value that is not filled in. A missing category counts
        as "other", like a value that is no level.
    """
    reader = _open_table(space, table)
    space = _match_columns(space, reader.schema.names)
    names = _find_names(space, reader.schema.names)
    for name in names:
        if reader.schema.names.count(name) > 1:
            raise DataError("the table must have each column once", f"{name!r} several times", "rename one")
    is_state = space.kind == "states" and len(names) == 1
    columns = Columns(names[0] if is_state else names)
    types = find_types(reader.schema, columns, "the table")
    _check_categories(space, names, types)
    encoder, n_numbers = Encoder(space, "indicator"), len(space.names or ())
    gaps: list[Gap] = []
    first, found = 0, []
    for batch in reader:
        piece = Piece("the table", columns.by_field, first, batch.num_rows)
        values = [to_values(batch.column(name), name, piece, types[name]) for name in names]
        where = piece.column("observations")
        rows = encoder.encode(values[0] if is_state else values, "observations", piece, gaps)
        lacking = find_first_gap(gaps, piece)
        if lacking is not None:
            must = "a column of numbers must have a value in every row, unless the log had missing ones there"
            raise DataError(must, f"no value at {lacking[1]}", "fill it in")
        if not is_state and rows.shape[1:] != (n_numbers,):
            must = f"{where} must have {n_numbers} numbers a row, as the log has"
            raise DataError(must, rows.shape[1:], "pass observations of the same kind")
        found.append(rows.astype(np.float64, copy=False) if space.kind == "columns" else rows)
        first += batch.num_rows
    if not first:
        raise DataError("the table must have rows", "none", "pass a table with a row for each observation")
    return np.concatenate(found)


def _open_table(space: ObservationSpace, table: Any) -> Any:
    pyarrow = library()
    must = "observations must be a table, arrays by name, or an array with a row for each observation"
    if isinstance(table, Mapping):
        try:
            table = pyarrow.table(dict(table))
        except (TypeError, ValueError) as error:  # a single observation, or arrays of different lengths
            raise InvalidInputError(must, f"a {type(table).__name__} ({error})", _advise(space)) from None
    if not isinstance(table, ArrowStream):
        do = "pass a table of polars, pandas >= 2.2, DuckDB or pyarrow"
        raise InvalidInputError("a table must have the Arrow C stream", f"a {type(table).__name__}", do)
    try:
        return pyarrow.RecordBatchReader.from_stream(table)
    except (TypeError, ValueError):  # one column, not a table
        raise InvalidInputError(must, f"a {type(table).__name__}, which is one column", _advise(space)) from None


def _advise(space: ObservationSpace) -> str:
    """Return what to pass for observations of this space."""
    if space.columns:
        return f"pass a table with the columns {_list(space)}, or an array of numbers"
    return "pass an array of numbers"


def _list(space: ObservationSpace) -> str:
    names = [column.name for column in space.columns]
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _match_columns(space: ObservationSpace, there: Sequence[str]) -> ObservationSpace:
    """Return the space with the columns that a table has: those of the log, or its numbers as `vrtd.evaluate` calls
    them."""
    if space.columns:
        names, are_there = space.names or (), {*there}
        is_like_log = all(column.name in are_there for column in space.columns)
        return space if is_like_log or not are_there.issuperset(names) else _with_columns(space, names)
    n_numbers = space.n_numbers
    single = [name for name in ("state", "observation") if name in there and n_numbers in (None, 1)]
    names = tuple(takewhile(there.__contains__, (f"observation_{j}" for j in count())))
    if single or (names and n_numbers in (None, len(names))):
        return _with_columns(space, single[:1] or names)
    last = "..." if n_numbers is None else f"observation_{n_numbers - 1}"
    must = (
        f"the table must have the columns observation_0 to {last}"
        if n_numbers != 1
        else ("the table must have the column observation")
    )
    raise DataError(must, ", ".join(map(repr, there)) or "no columns", "rename them, or pass an array")


def _with_columns(space: ObservationSpace, names: Sequence[str]) -> ObservationSpace:
    return space._replace(columns=tuple(map(Column, names)))


def _find_names(space: ObservationSpace, there: Sequence[str]) -> tuple[str, ...]:
    names = tuple(column.name for column in space.columns)
    vectors = names[0].removesuffix("_0")
    if names[0] not in there and vectors in there and names == tuple(f"{vectors}_{j}" for j in range(len(names))):
        return (vectors,)
    for name in names:
        if name not in there:
            near = get_close_matches(name, there, n=1, cutoff=0.5)
            do = f"did you mean {near[0]!r}?" if near else "add it"
            raise DataError(f"the table must have a column {name!r}", ", ".join(map(repr, there)) or "no columns", do)
    return names


def _check_categories(space: ObservationSpace, names: Sequence[str], types: Mapping[str, ColumnType]) -> None:
    for name, column in zip(names, space.columns, strict=False):
        if types[name].is_category != (column.levels is not None):
            must = f"the table, column {name}, must hold {'numbers' if column.levels is None else 'a category'}"
            raise DataError(must, types[name].words, "convert it to what the log had")
