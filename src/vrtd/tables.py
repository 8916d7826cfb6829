"""Tables of plain columns, and CSV files that read back as the same bits."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from io import StringIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import import_extra
from vrtd.files import write_at_once

Table = dict[str, NDArray[Any]]  # columns of one length: numbers or text
Tables = Mapping[str, Table]


def library() -> Any:
    """Import pyarrow, or raise an error that says how to install it."""
    return import_extra("pyarrow", "data")


def table(rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table of rows with the same keys.

    >>> table([{"M": 50, "mean": 1.5}, {"M": 500, "mean": 0.5}])["mean"]
    array([1.5, 0.5])
    """
    rows = list(rows)
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def rows_where(whole: Table, **values: Any) -> Table:
    """Return the rows of a table whose columns have these values.

    >>> rows_where(table([{"M": 50, "mean": 1.5}, {"M": 500, "mean": 0.5}]), M=500)["mean"]
    array([0.5])
    """
    keep = np.logical_and.reduce([whole[name] == value for name, value in values.items()])
    return {name: column[keep] for name, column in whole.items()}


def rows(whole: Table) -> list[dict[str, Any]]:
    """Return the rows of a table as dictionaries.

    >>> rows({"M": np.array([50]), "mean": np.array([1.5])})
    [{'M': 50, 'mean': 1.5}]
    """
    cells = zip(*(column.tolist() for column in whole.values()), strict=True)
    return [dict(zip(whole, row, strict=True)) for row in cells]


def write_csv(whole: Table, path: str | os.PathLike[str]) -> bytes:
    """Write a table as CSV, with floats that read back as the same bits, and return the bytes written.

    A text that a spreadsheet would take for a formula gets an apostrophe in front.
    """
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_no_formula, whole))
    columns = (list(map(_no_formula, c.tolist())) if c.dtype.kind == "U" else c.tolist() for c in whole.values())
    writer.writerows(zip(*columns, strict=True))
    content = text.getvalue().encode()
    with write_at_once(path) as file:
        file.write(content)
    return content


def _no_formula(text: str) -> str:
    """Return a text that spreadsheets do not take for a formula.

    >>> [_no_formula(text) for text in ("=1+1", "-1.5", "left")]
    ["'=1+1", '-1.5', 'left']
    """
    if not text.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def write_parquet(whole: Table, path: str | os.PathLike[str]) -> None:
    """Write a table as Parquet, with checksums of its pages."""
    arrow = library()
    from pyarrow.parquet import write_table

    with write_at_once(path) as file:
        write_table(arrow.table(dict(whole)), file, write_page_checksum=True)


def parse_csv(content: bytes) -> Table:
    """Read a table that ``write_csv`` wrote. A column holds integers if possible, else floats, else text."""
    header, *rows = csv.reader(StringIO(content.decode(), newline=""))
    return {name: _column([row[i] for row in rows]) for i, name in enumerate(header)}


def _column(cells: list[str]) -> NDArray[Any]:
    for kind in (np.int64, np.float64):
        try:
            return np.array([kind(cell) for cell in cells], kind)
        except ValueError:
            pass
    return np.array(cells)
