"""Types of Arrow columns and conversion of their entries to NumPy arrays, without a copy if possible."""

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
    """Table with the Arrow C stream, as those of polars, pandas, DuckDB and pyarrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


@contextmanager
def translate_table_errors() -> Iterator[None]:
    """Translate every error of the conversion of a table to or from Arrow into a DataError."""
    try:
        yield
    except VrtdError:
        raise
    except Exception as error:  # from pandas, polars, DuckDB or pyarrow
        what = f"{type(error).__name__}: {'; '.join(map(str, error.args))}"
        raise DataError(
            f"A column of the table cannot be converted to Arrow: {' '.join(what.split()):.300}.",
            "Convert the column, or name others.",
        ) from error


class ColumnType(NamedTuple):
    """Content of a column."""

    words: str  # must be the same in all parts of a log
    is_category: bool = False
    is_integer: bool = False
    row_shape: tuple[int, ...] | None = ()  # shape of one entry; None: only the rows show it


TEXT = ColumnType("text", is_category=True)


def find_types(schema: Any, columns: Columns, where: str) -> dict[str, ColumnType]:
    """Return the type of each column, and raise for a type that cannot be used.

    Observations and actions may be numbers, lists of numbers, text and categories. Episodes and columns of the order
    may be numbers, text or times. All other columns must be numbers.
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
        raise DataError(f"{where} must hold numbers, text or times, but has type {kind}.", "Name another column.")
    return ColumnType(words, row_shape=None)


def _find_type(kind: Any, where: str, is_observation: bool) -> ColumnType:
    types, words = library().types, str(kind)
    if types.is_dictionary(kind):
        kind = kind.value_type
        if is_observation and _is_nested(kind):
            raise DataError(
                f"{where} must have categories that are text or numbers, but has categories of type {kind}.",
                "Convert the column to text, e.g. with astype(str).",
            )
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
        content = "numbers or categories" if is_observation else "numbers"
        raise DataError(
            f"{where} must hold {content}, but has type {kind}.", "Convert or rename the column, or name another one."
        )
    return ColumnType(words, is_integer=types.is_integer(kind), row_shape=shape)


def _is_nested(kind: Any) -> bool:
    """Return whether entries have parts, like lists and the intervals of pandas."""
    storage = kind.storage_type if isinstance(kind, library().BaseExtensionType) else kind
    return bool(library().types.is_nested(storage))


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is text."""
    types = library().types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def is_list(kind: Any) -> bool:
    """Return whether an Arrow type is a list."""
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
    """Return the entries of a column, (n,) or (n, k) for lists, as a masked array if there are nulls."""
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
                f"The lists of {piece.where}, column {name}, must have the same length, but there are "
                f"{lengths[odd[0]]} entries in row {piece.first_row + odd[0] // int(np.prod(shape[1:]))} "
                f"and {lengths[0]} before.",
                "Pad the lists, or split the column.",
            )
        shape.append(int(lengths[0]))
        if is_null is not None:
            is_null = np.repeat(is_null[..., np.newaxis], shape[-1], axis=-1)
        array = array.flatten()


def _to_whole_numbers(array: Any, name: str, piece: Piece) -> Any:
    """Return decimals as whole multiples of their last digit, which keeps their order and differences."""
    pyarrow = library()
    wide = array.cast(pyarrow.decimal128(38, array.type.scale))
    words = np.frombuffer(wide.buffers()[1], np.int64).reshape(-1, 2)[wide.offset : wide.offset + len(wide)]
    is_null = wide.is_null().to_numpy(zero_copy_only=False)
    bad = np.flatnonzero((words[:, 1] != words[:, 0] >> 63) & ~is_null)
    if bad.size:
        raise DataError(
            f"{piece.where}, column {name}, must hold decimals with at most 18 digits, "
            f"but has {array[int(bad[0])]} in row {piece.first_row + bad[0]}.",
            "Convert the column to text or to 64-bit integers.",
        )
    return pyarrow.array(words[:, 0], mask=is_null)


def _replace_nulls(array: Any, nulls: NDArray[np.bool_]) -> Any:
    """Replace nulls by an arbitrary value, so that the type and the shape do not change."""
    types = library().types
    if types.is_integer(array.type) or types.is_boolean(array.type):
        return array.fill_null(False if types.is_boolean(array.type) else 0)
    if not is_list(array.type):
        return array
    rows = np.arange(nulls.size)
    return array.take(library().array(np.where(nulls, rows[~nulls][0], rows)))


def _mask_lists(kind: Any, shape: list[int]) -> NDArray[Any]:
    """Return a masked array for lists that are all null, with one entry if their length is not fixed."""
    while is_list(kind):
        shape = [*shape, kind.list_size if library().types.is_fixed_size_list(kind) else 1]
        kind = kind.value_type
    return np.ma.MaskedArray(np.zeros(shape, kind.to_pandas_dtype()), True)


def to_numpy(array: Any, name: str, piece: Piece) -> NDArray[Any]:
    """Return the entries of a column, (n,) or (n, k) for lists, and raise if one is null."""
    entries = to_masked(array, name, piece)
    if isinstance(entries, np.ma.MaskedArray):
        row = int(np.argmax(np.ma.getmaskarray(entries).reshape(len(entries), -1).any(axis=1)))
        raise DataError(
            f"{piece.where}, column {name}, is null in row {piece.first_row + row}.",
            "Fill in the value, or drop the row.",
        )
    return entries
