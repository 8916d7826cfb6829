"""Compiled loops of features. They are imported where they are called, because importing Numba takes long."""

from __future__ import annotations

from typing import Any

import numpy as np

from vrtd.kernels.cosine import cosine_of_turns
from vrtd.kernels.digest import digest
from vrtd.kernels.jit import compiled, fma


@compiled
def products(along: Any, factors: Any, out: Any) -> None:
    """Write out[i, j], the product of along[factors[m, j], i] over m, from the first m to the last."""
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


def _waves(x: Any, frequency: Any, phase: Any, amplitude: Any, out: Any) -> None:
    """Write out[i, j] = amplitude cos(2 pi (phase[j] + sum_m x[m, i] frequency[m, j])).

    Every number goes through the same operations in the same order wherever its row is: no sum is reordered, and only
    the marked product is fused. NumPy's matrix product guarantees neither.
    """
    turns = np.empty(phase.size)
    for i in range(x.shape[1]):
        for j in range(phase.size):
            turns[j] = phase[j]
        for m in range(x.shape[0]):
            here = x[m, i]
            for j in range(phase.size):
                turns[j] = fma(here, frequency[m, j], turns[j])
        for j in range(phase.size):
            out[i, j] = amplitude * cosine_of_turns(turns[j])


_waves.__qualname__ = f"waves_{digest(_waves)[:16]}"  # the name of the cache must change with the cosine
waves = compiled(_waves)
