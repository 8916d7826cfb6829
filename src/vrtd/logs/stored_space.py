"""What the observations of a log are, kept in the file that `write` makes of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import prod

from vrtd.errors import DataError
from vrtd.features.spaces import ObservationSpace, read_space
from vrtd.logs.arrow_values import ColumnType
from vrtd.logs.columns import Columns, Missing

#: Its name in the metadata of a Parquet file, and among the arrays of an npz file.
SPACE_KEY = "vrtd.space"


def pack_space(space: ObservationSpace, names: list[str]) -> bytes:
    """Return JSON with a space and the columns of the observations that it describes."""
    return json.dumps({"columns": names, "space": space.settings}).encode()


def unpack_space(
    content: bytes | None, columns: Columns, kinds: Mapping[str, ColumnType], missing: Missing, where: str
) -> ObservationSpace | None:
    """Return the space that a file holds; None where it holds none, or that of other columns than those that are read.

    It is not used where missing numbers are filled in, because that adds numbers to observations.
    """
    if content is None or missing == "indicator":
        return None
    try:
        found = json.loads(content)
        names, space = found["columns"], read_space(found["space"])
    except (ValueError, LookupError, TypeError) as error:
        raise _damage(where, f"{type(error).__name__}: {error}") from None
    ours = list(columns.by_field["observations"])
    if names != ours:
        return None
    shapes = [kinds[name].row_shape for name in ours]
    n_numbers = sum(prod(shape) for shape in shapes if shape is not None)
    if None not in shapes and space.n_numbers not in (None, n_numbers):
        raise _damage(where, f"{space.n_numbers} numbers for {n_numbers} in a row")
    return space


def _damage(where: str, got: str) -> DataError:
    must = f"the description of the observations in {where} must be as it was written"
    return DataError(must, f"{got:.200}", "the file is damaged: write it again")
