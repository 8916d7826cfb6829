"""Checks and private copies of arrays that callers pass, and products of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from vrtd.errors import InvalidInputError

Floats = NDArray[np.float64]
Array = TypeVar("Array", bound=NDArray[Any])

#: Largest accepted deviation of a sum of probabilities from 1. A private copy is then normalised.
ROW_SUM_TOLERANCE = 1e-8
#: Largest accepted size of a reward of a chain, or of a feature of a state.
LARGEST = 1e100
CACHE_LINE = 64  # bytes


def dot(x: NDArray[np.floating[Any]], y: NDArray[np.floating[Any]]) -> float:
    """Return the product of two vectors. Unlike with BLAS, its bits do not depend on the number of threads."""
    return float(np.einsum("i,i->", x, y, dtype=np.float64, casting="same_kind"))


def frozen(array: Array) -> Array:
    """Return ``array`` made read-only. Only for arrays that are not shared with a caller."""
    array.flags.writeable = False
    return array


def check_unmasked(name: str, value: Any) -> None:
    """Raise if an array, or one in a list, has masked entries. NumPy would drop the mask and use what is below it.

    >>> check_unmasked("R", np.ma.masked_array([1.0, 1e20], mask=[False, True]))
    Traceback (most recent call last):
    vrtd.errors.InvalidInputError: R has masked entries. Drop or fill them, e.g. with R.filled(value).
    """
    parts = value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part) for part in parts):
        raise InvalidInputError(f"{name} has masked entries.", f"Drop or fill them, e.g. with {name}.filled(value).")


def real_array(name: str, value: ArrayLike, finite: bool = True) -> Floats:
    """Return a private float64 copy of ``value``.

    >>> real_array("R", [1, 2])
    array([1., 2.])
    >>> real_array("R", [1.0, float("nan")])
    Traceback (most recent call last):
    vrtd.errors.InvalidInputError: R must be finite, but got nan at index (1,). Remove or correct that entry.
    """
    check_unmasked(name, value)
    try:
        raw = np.asarray(value)
        if raw.dtype.kind not in "biuf":
            raise TypeError
        array = np.array(raw, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        problem = f"{name} must be an array of real numbers, but got {type(value).__name__} {value!r:.60}."
        raise InvalidInputError(problem, "Pass numbers.") from None
    if finite and not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        problem = f"{name} must be finite, but got {array[place]} at index {place}."
        raise InvalidInputError(problem, "Remove or correct that entry.")
    return array


def check_size(name: str, array: Floats, remedy: str) -> None:
    """Raise if an entry is so large that products of three such numbers overflow.

    >>> check_size("phi", np.array([1e200]), "Scale the features.")
    Traceback (most recent call last):
    vrtd.errors.InvalidInputError: phi must be at most 1e+100 in size, but has an entry of 1e+200. Scale the features.
    """
    largest = float(np.abs(array).max(initial=0.0))
    if largest > LARGEST:
        problem = f"{name} must be at most {LARGEST:g} in size, but has an entry of {largest:.3g}."
        raise InvalidInputError(problem, remedy)


def check_theta(name: str, theta: ArrayLike | None, n_features: int) -> Floats:
    """Return a private copy of the parameters ``theta``, one number per feature. None gives zeros.

    >>> check_theta("theta_0", None, 2)
    array([0., 0.])
    """
    if theta is None:
        return np.zeros(n_features)
    array = real_array(name, theta)
    if array.shape != (n_features,):
        problem = f"{name} must have the shape ({n_features},), but got {array.shape}."
        raise InvalidInputError(problem, "Pass one number per feature.")
    return array


def check_row_sums(name: str, sums: Floats, axes: Sequence[str]) -> None:
    """Raise unless every entry of ``sums`` is 1 within the tolerance. ``axes`` names the indices of a row."""
    bad = np.argwhere(~(np.abs(sums - 1.0) <= ROW_SUM_TOLERANCE))
    if bad.size:
        place = ", ".join(f"{axis} {i}" for axis, i in zip(axes, bad[0], strict=True))
        total = float(sums[tuple(bad[0])])
        problem = (
            f"Each row of {name} must sum to 1 within {ROW_SUM_TOLERANCE:g}, but got the sum {total!r} at {place}."
        )
        raise InvalidInputError(problem, "Compute it in float64 and divide it by its sum.")


def check_probabilities(name: str, value: ArrayLike, shape: tuple[int, ...], axes: Sequence[str]) -> Floats:
    """Return distributions along the last axis, divided by their sums. ``axes`` are the names of the indices.

    >>> check_probabilities("policy", [[1, 0], [0.5, 0.5]], (2, 2), ("state", "action"))
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    array = real_array(name, value)
    if array.shape != shape:
        raise InvalidInputError(f"{name} must have the shape {shape}, but got {array.shape}.", "Reshape it.")
    bad = np.argwhere(array < 0.0)
    if bad.size:
        place = ", ".join(f"{axis} {i}" for axis, i in zip(axes, bad[0], strict=True))
        problem = f"{name} must be non-negative, but got {array[tuple(bad[0])]} at {place}."
        raise InvalidInputError(problem, "Correct that entry.")
    sums = array.sum(axis=-1, keepdims=True)
    check_row_sums(name, sums[..., 0] if len(axes) > 1 else sums, axes[:-1] or ("row",))
    array /= sums
    return array


def aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    """Return a writeable C-contiguous copy that starts at a cache line, because loads across two lines cost twice."""
    copy = aligned_empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def aligned_empty(shape: int | tuple[int, ...], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """Return a C-contiguous array, whose numbers are not set, that starts at a cache line."""
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.empty(n_bytes + CACHE_LINE, np.uint8)
    first = -memory.ctypes.data % CACHE_LINE
    return memory[first : first + n_bytes].view(dtype).reshape(shape)
