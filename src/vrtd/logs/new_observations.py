"""Conversion of new observations, from tables or arrays, to arrays like those of a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from itertools import count, takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import check_unmasked
from vrtd.errors import DataError, InvalidInputError
from vrtd.features.spaces import Column, ObservationSpace
from vrtd.logs.arrow_values import ArrowStream, ColumnType, find_types
from vrtd.logs.blocks import Gap, Piece
from vrtd.logs.columns import Columns
from vrtd.logs.encoding import Encoder, find_first_gap, to_values
from vrtd.sparse import as_sparse_rows, is_scipy_sparse
from vrtd.tables import library

_MOST_NAMED = 8  # columns in a message


def as_observations(space: ObservationSpace, given: Any) -> Any:
    """Convert observations to an array like those of the log.

    Parameters
    ----------
    space : ObservationSpace
        `Log.space` of the log.
    given : table, mapping or array
        Table or arrays by name, as for `encode`. Anything else is an array with one row per observation.

    Returns
    -------
    ndarray or csr_array
        One row per observation.
    """
    if is_scipy_sparse(given):  # of which one kind is a mapping
        return as_sparse_rows("observations", given)
    if isinstance(given, ArrowStream | Mapping):
        return encode(space, given)
    remedy = f"Pass a table with the columns {_list(space)}." if space.columns else "Pass an array of numbers."
    check_unmasked("observations", given)
    try:
        array = np.asarray(given)
    except ValueError:
        raise InvalidInputError(
            f"observations must all have the same number of entries, but are {given!r:.60}.", remedy
        ) from None
    if array.dtype.kind not in "biuf":
        raise InvalidInputError(f"observations must be numbers or a table, but are {given!r:.60}.", remedy)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        problem = f"observations must be finite, but got {array[place]} at index {place}."
        raise InvalidInputError(problem, "Remove or fill in that entry.")
    n_numbers = space.n_numbers
    if array.ndim == 1 and n_numbers is not None and n_numbers > 1:
        raise InvalidInputError(
            f"observations must have the shape (n, {n_numbers}), but have the shape {array.shape}.",
            "Pass a list with one row per observation.",
        )
    return array


def as_actions(space: ObservationSpace, given: Any) -> NDArray[Any]:
    """Return actions as numbers like those of the log; words are replaced by their numbers.

    >>> as_actions(ObservationSpace("states", actions=("left", "right")), ["right", "left"]).tolist()
    [1, 0]
    """
    rule = "actions must be an array with one action per observation"
    check_unmasked("actions", given)
    try:
        actions = np.asarray(given)
    except ValueError:  # rows of different lengths
        raise InvalidInputError(f"{rule}, but are {given!r:.60}.", "Pass rows of equal length.") from None
    if actions.ndim == 0:
        raise InvalidInputError(
            f"{rule}, but are {given!r:.60}.",
            "Pass a list of actions. To set a confidence level use return_interval=0.95.",
        )
    if actions.dtype.kind not in "UO":
        return actions
    numbers = {word: number for number, word in enumerate(space.actions)}
    unknown = [word for word in actions.ravel().tolist() if not isinstance(word, str) or word not in numbers]
    if unknown:
        known = f"one of {', '.join(space.actions)}" if numbers else "a number, as in the log"
        raise DataError(f"Every action must be {known}, but one is {unknown[0]!r}.", "Pass actions of the log.")
    return np.array([numbers[word] for word in actions.tolist()], np.int64)


def encode(space: ObservationSpace, table: Any) -> NDArray[Any]:
    """Return the observations of a table as numbers like those of the log.

    Parameters
    ----------
    space : ObservationSpace
        `Log.space` of the log.
    table : table or mapping
        Table of polars, pandas, DuckDB or pyarrow, or arrays by name. It has at least the columns of the log, or the
        numbers of an observation with their names in the files of `vrtd.evaluate`.

    Returns
    -------
    ndarray
        One row of numbers, or one state, per row of the table.

    Raises
    ------
    DataError
        If a column is missing, has another type, or lacks a value that cannot be filled in. A missing category counts
        as "other", like a value that is not a level.
    """
    reader = _open_table(space, table)
    space = _match_columns(space, reader.schema.names)
    names = _find_names(space, reader.schema.names)
    for name in names:
        if reader.schema.names.count(name) > 1:
            raise DataError(f"The table has several columns named {name!r}.", "Rename all but one of them.")
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
            raise DataError(
                f"A value is missing in {lacking[1]}, but the log had no missing values in this column.",
                "Fill in the value.",
            )
        if not is_state and rows.shape[1:] != (n_numbers,):
            raise DataError(
                f"{where} must have {n_numbers} numbers per row, like the log, but has the shape {rows.shape[1:]}.",
                "Pass observations like those of the log.",
            )
        found.append(rows.astype(np.float64, copy=False) if space.kind == "columns" else rows)
        first += batch.num_rows
    if not first:
        raise DataError("The table has no rows.", "Pass a table with one row per observation.")
    return np.concatenate(found)


def _open_table(space: ObservationSpace, table: Any) -> Any:
    pyarrow = library()
    rule = "observations must be a table, arrays by name, or an array with one row per observation"
    if isinstance(table, Mapping):
        try:
            table = pyarrow.table(dict(table))
        except (TypeError, ValueError) as error:  # a single observation, or arrays of different lengths
            raise InvalidInputError(
                f"{rule}, but are a {type(table).__name__} that is not a table: {error}.", _advise(space)
            ) from None
    if not isinstance(table, ArrowStream):
        raise InvalidInputError(
            f"A table must provide the Arrow C stream, but is of type {type(table).__name__}.",
            "Pass a table of polars, pandas >= 2.2, DuckDB or pyarrow.",
        )
    try:
        return pyarrow.RecordBatchReader.from_stream(table)
    except (TypeError, ValueError):  # one column, not a table
        raise InvalidInputError(
            f"{rule}, but are a {type(table).__name__}, which is a single column.", _advise(space)
        ) from None


def _advise(space: ObservationSpace) -> str:
    """Return the remedy for observations of the wrong kind."""
    if space.columns:
        return f"Pass a table with the columns {_list(space)}, or an array of numbers."
    return "Pass an array of numbers."


def _list(space: ObservationSpace) -> str:
    names = [column.name for column in space.columns]
    more = f" and {len(names) - _MOST_NAMED:,} more" if len(names) > _MOST_NAMED else ""
    return f"{', '.join(names[:_MOST_NAMED])}{more}"


def _match_columns(space: ObservationSpace, there: Sequence[str]) -> ObservationSpace:
    """Return the space with the columns of a table.

    These are the columns of the log, or the numbers of an observation with their names in files of `vrtd.evaluate`.
    """
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
    columns = "column observation" if n_numbers == 1 else f"columns observation_0 to {last}"
    raise DataError(
        f"The table must have the {columns}, but has {', '.join(map(repr, there)) or 'no columns'}.",
        "Rename its columns, or pass an array.",
    )


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
            remedy = f"Did you mean {near[0]!r}?" if near else "Add the column."
            raise DataError(
                f"The table has no column {name!r}; it has {', '.join(map(repr, there)) or 'no columns'}.", remedy
            )
    return names


def _check_categories(space: ObservationSpace, names: Sequence[str], types: Mapping[str, ColumnType]) -> None:
    for name, column in zip(names, space.columns, strict=False):
        if types[name].is_category != (column.levels is not None):
            content = "numbers" if column.levels is None else "a category"
            raise DataError(
                f"The table, column {name}, must hold {content}, but holds {types[name].words}.",
                "Convert the column to its type in the log.",
            )
