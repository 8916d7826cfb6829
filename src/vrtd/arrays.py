"""What every door of the package asks of an array: real, finite, and the caller's own left alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.errors import InvalidInputError

Floats = NDArray[np.float64]
Array = TypeVar("Array", bound=NDArray[Any])

#: A row of probabilities may miss 1 by this much; a private copy is then normalised.
ROW_SUM_TOLERANCE = 1e-8
CACHE_LINE = 64  # bytes


def frozen(array: Array) -> Array:
    """`array`, made read-only; only for arrays that nobody else owns."""
    array.flags.writeable = False
    return array


def real_array(name: str, value: ArrayLike, finite: bool = True) -> Floats:
    """A private float64 copy of `value`.

    >>> real_array("R", [1, 2])
    array([1., 2.])
    >>> real_array("R", [1.0, float("nan")])
    Traceback (most recent call last):
    vrtd.errors.InvalidInputError: R must be finite; got nan at index (1,); remove or repair that entry
    """
    try:
        raw = np.asarray(value)
        if raw.dtype.kind not in "biuf":
            raise TypeError
        array = np.array(raw, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        what = f"{type(value).__name__} {value!r:.60}"
        raise InvalidInputError(f"{name} must be an array of real numbers", what, "pass numbers") from None
    if finite and not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        got = f"{array[place]} at index {place}"
        raise InvalidInputError(f"{name} must be finite", got, "remove or repair that entry")
    return array


def check_theta(name: str, theta: ArrayLike | None, n_features: int) -> Floats:
    """Return a private copy of the parameters `theta`, one number per feature; zeros for None.

    >>> check_theta("theta_0", None, 2)
    array([0., 0.])
    """
    if theta is None:
        return np.zeros(n_features)
    array = real_array(name, theta)
    if array.shape != (n_features,):
        must = f"{name} must have the shape ({n_features},)"
        raise InvalidInputError(must, array.shape, "pass one number per feature")
    return array


def check_row_sums(name: str, sums: Floats, axes: Sequence[str]) -> None:
    """Raise unless every entry of `sums` is 1 within the tolerance; `axes` name the indices of a row."""
    bad = np.argwhere(~(np.abs(sums - 1.0) <= ROW_SUM_TOLERANCE))
    if bad.size:
        place = ", ".join(f"{axis} {i}" for axis, i in zip(axes, bad[0], strict=True))
        must = f"each row of {name} must sum to 1 within {ROW_SUM_TOLERANCE:g}"
        got = f"the sum {float(sums[tuple(bad[0])])!r} at {place}"
        raise InvalidInputError(must, got, "compute it in float64 and divide it by its sum")


def check_probabilities(name: str, value: ArrayLike, shape: tuple[int, ...], axes: Sequence[str]) -> Floats:
    """Return distributions along the last axis, divided by their sums; `axes` name the indices of an entry.

    >>> check_probabilities("policy", [[1, 0], [0.5, 0.5]], (2, 2), ("state", "action"))
    array([[1. , 0. ],
           [0.5, 0.5]])
    """
    array = real_array(name, value)
    if array.shape != shape:
        raise InvalidInputError(f"{name} must have the shape {shape}", array.shape, "reshape it")
    bad = np.argwhere(array < 0.0)
    if bad.size:
        place = ", ".join(f"{axis} {i}" for axis, i in zip(axes, bad[0], strict=True))
        raise InvalidInputError(f"{name} must be non-negative", f"{array[tuple(bad[0])]} at {place}", "correct it")
    sums = array.sum(axis=-1, keepdims=True)
    check_row_sums(name, sums[..., 0] if len(axes) > 1 else sums, axes[:-1] or ("row",))
    array /= sums
    return array


def aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    """Return a writeable C-contiguous copy that starts at a cache line: a load that crosses two lines costs twice."""
    room = np.empty(array.nbytes + CACHE_LINE, np.uint8)
    first = -room.ctypes.data % CACHE_LINE
    copy = room[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
