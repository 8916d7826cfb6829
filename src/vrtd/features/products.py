"""Products of one-dimensional functions over a grid, compiled: a row is then written once, where it belongs."""

from __future__ import annotations

from typing import Any

import numpy as np

from vrtd.kernels.jit import compiled


@compiled
def products(along: Any, factors: Any, out: Any) -> None:
    """out[i, j] = the product of along[factors[m, j], i] over m, from the first m to the last"""
    here = np.empty(along.shape[0])
    row = np.empty(out.shape[1])
    for i in range(out.shape[0]):
        for c in range(here.size):
            here[c] = along[c, i]
        for j in range(row.size):
            row[j] = here[factors[0, j]]
        for m in range(1, factors.shape[0]):
            for j in range(row.size):
                row[j] *= here[factors[m, j]]
        for j in range(row.size):
            out[i, j] = row[j]
