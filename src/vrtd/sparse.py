"""Tables with one row per observation that are dense arrays or sparse: `scipy.sparse.csr_array`.

The functions take both kinds. Rows of a sparse table are cut without copying values, unlike by SciPy's own slices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Table = Any  # NDArray or csr_array

_ROWS_TAKEN = 4096  # are copied at once


def is_sparse(table: Table) -> TypeGuard[csr_array]:
    """Return whether a table is sparse; only arrays and sparse tables are tables."""
    return not isinstance(table, np.ndarray)


def is_scipy_sparse(value: Any) -> bool:
    """Return whether a value is a sparse matrix or array of SciPy; SciPy is not imported for other values."""
    return type(value).__module__.startswith("scipy.sparse")


def make_rows(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], width: int) -> csr_array:
    """Return sparse rows that hold these arrays."""
    from scipy.sparse import csr_array

    return csr_array((data, indices, indptr), shape=(len(indptr) - 1, width), copy=False)


def as_sparse_rows(name: str, value: Any) -> csr_array:
    """Return a sparse matrix as rows of float32 or float64, sorted and without duplicates, if possible without a copy.

    >>> from scipy.sparse import coo_array
    >>> as_sparse_rows("observations", coo_array([[0, 2], [1, 0]])).indices.tolist()
    [1, 0]
    """
    from scipy.sparse import csr_array

    if value.ndim != 2 or value.dtype.kind not in "biuf":
        raise DataError(
            f"{name} must be a sparse matrix of numbers with one row per observation, but has dtype {value.dtype} and "
            f"shape {value.shape}.",
            "Convert it." if value.ndim == 2 else "Pass a matrix with one row per observation, for example phi[[0]].",
        )
    rows = csr_array(value)
    try:
        rows.check_format(full_check=True)  # compiled loops do not check indices
    except ValueError as error:
        raise DataError(f"{name} is not a valid sparse matrix: {error}.", "Build it anew.") from None
    kind = np.float32 if rows.dtype in (np.float16, np.float32) else np.float64
    rows = rows.astype(kind, copy=False)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    return rows


def to_dense(table: Table) -> NDArray[Any]:
    """Return the rows of a table of either kind as dense ones."""
    return np.asarray(table.toarray() if is_sparse(table) else table)


def to_sparse(table: NDArray[Any]) -> csr_array:
    """Return the rows of a dense table as sparse ones."""
    from scipy.sparse import csr_array

    return csr_array(table)


def no_rows(shape: tuple[int, int]) -> csr_array:
    """Return sparse rows of zeros."""
    return make_rows(np.empty(0), np.empty(0, np.int32), np.zeros(shape[0] + 1, np.int32), shape[1])


def scale_rows(table: Table, factors: NDArray[np.float64]) -> Table:
    """Return rows multiplied by one factor each, in float64."""
    if not is_sparse(table):
        return table * factors[:, None]
    scaled = table.astype(np.float64)
    scaled.data *= np.repeat(factors, np.diff(table.indptr))
    return scaled


def divide_columns(table: Table, sizes: NDArray[np.float64]) -> Table:
    """Return the table with each column divided by one number."""
    if not is_sparse(table):
        return table / sizes
    return make_rows(table.data / sizes[table.indices], table.indices, table.indptr, table.shape[1])


def unit_rows(first: int, n: int, width: int) -> csr_array:
    """Return rows first, ..., first + n - 1 of the unit matrix."""
    return make_rows(np.ones(n), np.arange(first, first + n, dtype=np.int32), np.arange(n + 1, dtype=np.int32), width)


def indicator_rows(places: NDArray[Any], finite: NDArray[np.bool_], width: int, dtype: Any) -> csr_array:
    """Return rows that are 1 at the places (n, k), in increasing order, and NaN there if the row is not finite."""
    n, k = places.shape
    values = np.repeat(np.where(finite, 1.0, np.nan).astype(dtype), k)
    return make_rows(values, places.ravel().astype(np.int32), np.arange(0, n * k + 1, k, dtype=np.int32), width)


def part_of(table: Table, first: int, last: int) -> Table:
    """Return rows first, ..., last - 1 without copying their values."""
    if not is_sparse(table):
        return table[first:last]
    indptr = table.indptr[max(first, 0) : max(last, 0) + 1]
    if not len(indptr):
        indptr = table.indptr[:1]
    values = slice(int(indptr[0]), int(indptr[-1]))
    part = table.__class__((len(indptr) - 1, table.shape[1]), dtype=table.dtype)  # given views, SciPy may copy them
    part.data, part.indices, part.indptr = table.data[values], table.indices[values], indptr - indptr[0]
    return part


def join_tables(tables: Sequence[Table]) -> Table:
    """Concatenate tables of one kind."""
    if not is_sparse(tables[0]):
        return np.concatenate(tables)
    starts = _as_starts(np.cumsum([0, *(int(table.indptr[-1]) for table in tables)]))
    indptr = np.concatenate([table.indptr[:-1] + start for table, start in zip(tables, starts, strict=False)])
    return make_rows(
        np.concatenate([table.data for table in tables]),
        np.concatenate([table.indices for table in tables]),
        np.append(indptr, starts[-1]),
        tables[0].shape[1],
    )


def _as_starts(starts: NDArray[np.int64]) -> NDArray[Any]:
    """Return the places where rows start in 32 bits if they fit, because SciPy gives columns the same type."""
    return starts.astype(np.int32) if starts[-1] <= np.iinfo(np.int32).max else starts


def take_rows(tables: Sequence[Table], at: NDArray[np.intp]) -> Table:
    """Return rows of the concatenation of tables of one kind; other rows of sparse tables are not copied."""
    if not is_sparse(tables[0]):
        return np.concatenate(tables)[at]
    ends = np.cumsum([table.shape[0] for table in tables])
    sizes = np.concatenate([np.diff(table.indptr) for table in tables])[at]
    starts = _as_starts(np.append(0, np.cumsum(sizes, dtype=np.int64)))
    data = np.empty(starts[-1], np.result_type(*(table.dtype for table in tables)))
    indices = np.empty(starts[-1], starts.dtype)
    of_table = np.searchsorted(ends, at, side="right")
    for k, table in enumerate(tables):
        places = np.flatnonzero(of_table == k)
        for first in range(0, len(places), _ROWS_TAKEN):
            to = places[first : first + _ROWS_TAKEN]
            some = table[at[to] - (ends[k] - table.shape[0])]  # in the order of `at`
            entries = np.repeat(starts[to] - some.indptr[:-1], sizes[to]) + np.arange(some.nnz)
            data[entries], indices[entries] = some.data, some.indices
    return make_rows(data, indices, starts, tables[0].shape[1])


def replace_rows(table: Table, where: NDArray[np.bool_], others: Table) -> Table:
    """Return a copy in which some rows are those of another table of the same shape."""
    if not is_sparse(table):
        copy = table.copy()
        copy[where] = others[where]
        return copy
    n = table.shape[0]
    return join_tables([table, others])[np.where(where, n, 0) + np.arange(n)]


def are_equal(table: Table, other: Table) -> bool:
    """Return whether two tables of one kind have the same numbers."""
    if not is_sparse(table):
        return bool(np.array_equal(table, other))
    return bool(table.shape == other.shape and (table != other).nnz == 0)


def row_bytes(table: Table) -> float:
    """Return the mean size of a row in bytes."""
    n = max(1, table.shape[0])
    if not is_sparse(table):
        return float(table.dtype.itemsize * np.prod(table.shape[1:]))
    return float((table.data.nbytes + table.indices.nbytes + table.indptr.nbytes) / n)


def finite_rows(table: Table) -> NDArray[np.bool_]:
    """Return which rows have only finite numbers."""
    if not is_sparse(table):
        return np.asarray(np.isfinite(table.reshape(len(table), -1)).all(axis=1))
    bad = np.flatnonzero(~np.isfinite(table.data))
    finite = np.ones(table.shape[0], np.bool_)
    finite[np.searchsorted(table.indptr, bad, side="right") - 1] = False
    return finite


def is_all_finite(table: Table) -> bool:
    """Return whether every number is finite."""
    return bool(np.isfinite(table.data if is_sparse(table) else table).all())


def squared_norms(table: Table) -> NDArray[np.float64]:
    """Return the squared Euclidean norm of each row."""
    if not is_sparse(table):
        return np.asarray(np.einsum("ni,ni->n", table, table, dtype=np.float64))
    return np.asarray(table.astype(np.float64).power(2).sum(axis=1))


def mean_of(table: Table) -> NDArray[np.float64]:
    """Return the mean of the rows."""
    if not is_sparse(table):
        return np.asarray(table.mean(axis=0, dtype=np.float64))
    weights = table.data.astype(np.float64)
    return np.bincount(table.indices, weights, minlength=table.shape[1]) / table.shape[0]


def products(table: Table, vectors: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return the product of each row with each of the vectors (k, d), of shape (n, k)."""
    if not is_sparse(table):
        return np.asarray(table @ vectors.T)
    used, at = np.unique(table.indices, return_inverse=True)
    some = make_rows(table.data, at.astype(np.int32), table.indptr, len(used))
    return np.asarray(some @ np.ascontiguousarray(vectors[:, used].T, np.float64))


def columns_of(table: Table, columns: NDArray[np.intp]) -> Table:
    """Return the table with zeros in all other columns if it is sparse, and only these columns if it is dense."""
    if not is_sparse(table):
        return table[:, columns]
    marked = np.zeros(table.shape[1], np.bool_)
    marked[columns] = True
    return make_rows(np.where(marked[table.indices], table.data, 0.0), table.indices, table.indptr, table.shape[1])


def has_any(table: Table, columns: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Return for each row whether a number in one of these columns is not 0."""
    if not is_sparse(table):
        return np.asarray((table[:, columns] != 0.0).any(axis=1))
    marked = np.zeros(table.shape[1], np.bool_)
    marked[columns] = True
    return np.asarray(
        make_rows(marked[table.indices] & (table.data != 0.0), table.indices, table.indptr, table.shape[1]).sum(axis=1)
        > 0
    )
