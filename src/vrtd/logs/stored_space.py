"""Storage of the observation space of a log in the files of `write`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod

from vrtd.errors import DataError
from vrtd.features.spaces import ObservationSpace, read_space
from vrtd.logs.arrow_values import ColumnType
from vrtd.logs.columns import Columns, Missing

#: Name of the space in the metadata of a Parquet file and among the arrays of an npz file.
SPACE_KEY = "vrtd.space"


def pack_space(space: ObservationSpace, names: list[str]) -> bytes:
    """Return JSON with a space and the names of the columns that it describes."""
    return json.dumps({"columns": names, "space": space.settings}).encode()


def unpack_space(
    content: bytes | None, columns: Columns, kinds: Mapping[str, ColumnType], missing: Missing, where: str
) -> ObservationSpace | None:
    """Return the space that a file holds, or None if it has none or the space describes other columns.

    The space is ignored if missing numbers are filled in, because that adds numbers to observations.
    """
    if content is None or missing == "indicator":
        return None
    try:
        stored = json.loads(content)
        names, space = stored["columns"], read_space(stored["space"])
    except (ValueError, LookupError, TypeError) as error:
        raise _damage(where, f"{type(error).__name__}: {error}") from None
    ours = list(columns.by_field["observations"])
    if names != ours:
        return None
    shapes = [kinds[name].row_shape for name in ours]
    n_numbers = sum(prod(shape) for shape in shapes if shape is not None)
    if None not in shapes and space.n_numbers not in (None, n_numbers):
        raise _damage(where, f"it has {space.n_numbers} numbers, but a row has {n_numbers}")
    return space


def _damage(where: str, reason: str) -> DataError:
    return DataError(
        f"The description of the observations in {where} is damaged: {reason.rstrip('.'):.200}.",
        "Write the file again.",
    )
