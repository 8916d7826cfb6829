"""Observations as rows of numbers: what every map of this room looks at."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError


def row_dtype(observations: NDArray[Any]) -> np.dtype[Any]:
    """The type of the rows of features: float32 for float32 observations, float64 for all others."""
    return np.dtype(np.float32 if observations.dtype == np.float32 else np.float64)


def as_rows(observations: Any) -> NDArray[np.floating[Any]]:
    """(n, k) C-contiguous float32 or float64; the very same array where it is that already.

    >>> as_rows(np.arange(3)).tolist()
    [[0.0], [1.0], [2.0]]
    """
    array = np.asarray(observations)
    if array.ndim == 2 and array.dtype.char in "fd" and array.flags.c_contiguous and array.size:  # rows of a stream
        return array
    if array.dtype.kind not in "biuf":
        raise DataError("observations must be real numbers", f"an array of {array.dtype}", "pass an array of floats")
    if array.ndim == 0 or prod(array.shape[1:]) == 0:
        raise DataError(
            "observations must have one row each, with at least one number",
            f"the shape {array.shape}",
            "pass an array of shape (n,) or (n, k)",
        )
    if array.ndim != 2:
        array = array.reshape(array.shape[0], prod(array.shape[1:]))
    return np.ascontiguousarray(array, dtype=row_dtype(array))


def check_width(rows: NDArray[Any], n_dimensions: int) -> None:
    if rows.shape[1] != n_dimensions:
        raise DataError(
            f"observations must have {n_dimensions} numbers each, as the features have",
            f"{rows.shape[1]}",
            "pass observations of one kind, and one low and high for each number",
        )


def finite_rows(rows: NDArray[Any]) -> NDArray[np.bool_]:
    """Which rows, of any shape, have only finite numbers."""
    if rows.dtype.kind != "f":
        return np.ones(len(rows), np.bool_)
    good: NDArray[np.bool_] = np.isfinite(rows).all(axis=tuple(range(1, rows.ndim)))
    return good


def check_finite(rows: NDArray[Any], what: str) -> None:
    good = finite_rows(rows)
    if not good.all():
        row = int(np.argmin(good))
        column = int(np.argmin(np.isfinite(rows[row].ravel())))
        raise DataError(
            f"observations that {what} must be finite",
            f"{rows[row].ravel()[column]} in row {row}, column {column}",
            "remove or repair that row",
        )
