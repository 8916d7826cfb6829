"""Columns of Arrow: what they hold, and their entries as NumPy arrays, without a copy where that is possible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError, VrtdError
from vrtd.logs.blocks import Piece
from vrtd.logs.columns import ANY_KIND, KEYS, Columns
from vrtd.tables import library


@runtime_checkable
class ArrowStream(Protocol):
    """A table that speaks the Arrow C stream: of polars, pandas, DuckDB or pyarrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


@contextmanager
def translate_table_errors() -> Iterator[None]:
    """Make one error of whatever a library raises when a table cannot be converted to Arrow, or from there."""
    try:
        yield
    except VrtdError:
        raise
    except Exception as error:  # of pandas, polars, DuckDB or pyarrow
        what = f"{type(error).__name__}: {'; '.join(map(str, error.args))}"
        must = "the columns of the table that are used must be of types that Arrow has"
        raise DataError(must, f"{' '.join(what.split()):.300}", "convert the column, or name others") from error


class ColumnType(NamedTuple):
    """What a column holds. `words` must be the same in all parts of a log."""

    words: str
    is_category: bool = False
    is_integer: bool = False
    row_shape: tuple[int, ...] | None = ()  # of the numbers in a row; None: only the rows tell


TEXT = ColumnType("text", is_category=True)


def find_types(schema: Any, columns: Columns, where: str) -> dict[str, ColumnType]:
    """Return what each column holds. Raise unless that can be used.

    Observations and actions may be numbers, lists of them, text and categories. Episodes and order may be text or
    times. All else are numbers.
    """
    found: dict[str, ColumnType] = {}
    for field, names in columns.by_field.items():
        for name in names:
            kind = schema.field(name).type
            if field in KEYS:
                found.setdefault(name, _find_key_type(kind, f"{where}, column {name},"))
            else:
                found.setdefault(name, _find_type(kind, f"{where}, column {name},", field in ANY_KIND))
    return found


def _find_key_type(kind: Any, where: str) -> ColumnType:
    types, words = library().types, str(kind)
    if types.is_dictionary(kind):
        kind = kind.value_type
    if _is_nested(kind) or types.is_null(kind):
        raise DataError(f"{where} must hold numbers, text or times", f"type {kind}", "name another")
    return ColumnType(words, row_shape=None)


def _find_type(kind: Any, where: str, is_observation: bool) -> ColumnType:
    types, words = library().types, str(kind)
    if types.is_dictionary(kind):
        kind = kind.value_type
        if is_observation and _is_nested(kind):
            must, do = f"{where} must have categories that are text or numbers", "convert it to text: astype(str)"
            raise DataError(must, f"categories of type {kind}", do)
        if is_observation and not is_text(kind):
            return ColumnType(f"category of {kind}", is_category=True)
    if is_observation and is_text(kind):
        return TEXT
    shape: tuple[int, ...] | None = ()
    while is_observation and is_list(kind):
        size = kind.list_size if types.is_fixed_size_list(kind) else None
        shape = None if shape is None or size is None else (*shape, size)
        kind = kind.value_type
    if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
        must, do = f"{where} must hold numbers", "convert or rename it, or name another"
        raise DataError(must + (" or categories" if is_observation else ""), f"type {kind}", do)
    return ColumnType(words, is_integer=types.is_integer(kind), row_shape=shape)


def _is_nested(kind: Any) -> bool:
    """Return whether entries have parts, as lists and the intervals of pandas do."""
    storage = kind.storage_type if isinstance(kind, library().BaseExtensionType) else kind
    return bool(library().types.is_nested(storage))


def is_text(kind: Any) -> bool:
    types = library().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_list(kind: Any) -> bool:
    types = library().types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def to_text(array: Any) -> Any:
    """Return the entries of a category as an Arrow array of text.

    >>> import pyarrow
    >>> to_text(pyarrow.array([2, 1, 2]).dictionary_encode()).to_pylist()
    ['2', '1', '2']
    """
    pyarrow = library()
    if pyarrow.types.is_dictionary(array.type):
        return array.dictionary.cast(pyarrow.string()).take(array.indices)
    return array.cast(pyarrow.string())


def to_masked(array: Any, name: str, piece: Piece) -> NDArray[Any]:
    """Return the entries of a column: (n,) or, of lists, (n, k). An array with nulls becomes a masked array."""
    types, shape = library().types, [len(array)]
    is_null: NDArray[np.bool_] | None = None
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if types.is_decimal(array.type):
        array = _to_whole_numbers(array, name, piece)
    elif types.is_time(array.type):
        array = array.cast(f"int{array.type.bit_width}")
    while True:
        if array.null_count:
            nulls = array.is_null().to_numpy(zero_copy_only=False)
            if is_list(array.type) and nulls.all():
                return _mask_lists(array.type, shape)
            is_null = nulls.reshape(shape) if is_null is None else is_null | nulls.reshape(shape)
            array = _replace_nulls(array, nulls)
        if not is_list(array.type):
            entries: NDArray[Any] = array.to_numpy(zero_copy_only=False).reshape(shape)
            return entries if is_null is None else np.ma.MaskedArray(entries, is_null)
        from pyarrow.compute import list_value_length

        lengths = list_value_length(array).to_numpy(zero_copy_only=False)
        odd = np.flatnonzero(lengths != lengths[0])
        if odd.size:
            raise DataError(
                f"the lists of {piece.where}, column {name}, must have one length",
                f"{lengths[odd[0]]} entries in row {piece.first_row + odd[0] // int(np.prod(shape[1:]))} "
                f"and {lengths[0]} before",
                "pad them, or split the column",
            )
        shape.append(int(lengths[0]))
        if is_null is not None:
            is_null = np.repeat(is_null[..., np.newaxis], shape[-1], axis=-1)
        array = array.flatten()


def _to_whole_numbers(array: Any, name: str, piece: Piece) -> Any:
    """Return decimals as multiples of their last digit: no two of them become equal, and their order stays."""
    pyarrow = library()
    wide = array.cast(pyarrow.decimal128(38, array.type.scale))
    words = np.frombuffer(wide.buffers()[1], np.int64).reshape(-1, 2)[wide.offset : wide.offset + len(wide)]
    is_null = wide.is_null().to_numpy(zero_copy_only=False)
    bad = np.flatnonzero((words[:, 1] != words[:, 0] >> 63) & ~is_null)
    if bad.size:
        must = f"{piece.where}, column {name}, must hold decimals with at most 18 digits"
        what = f"{array[int(bad[0])]} in row {piece.first_row + bad[0]}"
        raise DataError(must, what, "convert the column to text, or to whole numbers of 64 bits")
    return pyarrow.array(words[:, 0], mask=is_null)


def _replace_nulls(array: Any, nulls: NDArray[np.bool_]) -> Any:
    """Return the array with any value of its type in the place of nulls, so that its type and shape stay."""
    types = library().types
    if types.is_integer(array.type) or types.is_boolean(array.type):
        return array.fill_null(False if types.is_boolean(array.type) else 0)
    if not is_list(array.type):
        return array
    rows = np.arange(nulls.size)
    return array.take(library().array(np.where(nulls, rows[~nulls][0], rows)))


def _mask_lists(kind: Any, shape: list[int]) -> NDArray[Any]:
    """Return lists that are all null. Those of any length get one entry: how long they are, other rows tell."""
    while is_list(kind):
        shape = [*shape, kind.list_size if library().types.is_fixed_size_list(kind) else 1]
        kind = kind.value_type
    return np.ma.MaskedArray(np.zeros(shape, kind.to_pandas_dtype()), True)


def to_numpy(array: Any, name: str, piece: Piece) -> NDArray[Any]:
    """Return the entries of a column: (n,) or, of lists, (n, k). Raise if one is null."""
    entries = to_masked(array, name, piece)
    if isinstance(entries, np.ma.MaskedArray):
        row = int(np.argmax(np.ma.getmaskarray(entries).reshape(len(entries), -1).any(axis=1)))
        must = f"{piece.where}, column {name}, must have a value in every row"
        raise DataError(must, f"null in row {piece.first_row + row}", "fill or drop that row")
    return entries
