"""Arrays that start at a cache line: a vector load that crosses two lines costs twice."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

LINE = 64  # bytes


def aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    """A writeable C-contiguous copy whose first byte lies at a cache line."""
    room = np.empty(array.nbytes + LINE, np.uint8)
    first = -room.ctypes.data % LINE
    copy = room[first : first + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
