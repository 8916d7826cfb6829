"""Alias tables: a draw from any finite distribution takes one 64-bit word and one table cell, without a branch.

A. J. Walker (1977), An efficient method for generating discrete random variables with general distributions, ACM
Transactions on Mathematical Software 3.
"""

from __future__ import annotations

import numpy as np

from vrtd.kernels.jit import compiled, kernel

_0, _32, _LOW = np.uint64(0), np.uint64(32), np.uint64(0xFFFFFFFF)
_RANGE = 4294967296


@kernel
def pick(cells, base, n, word):
    """Return the outcome in {0, ..., n - 1} that ``word`` selects from the ``n`` cells that start at ``base``.

    The high half of the word chooses a cell. The low half decides between the index of the cell and its alias, by
    arithmetic: an unpredictable branch would cost more than everything else here.
    """
    index = ((word >> _32) * n) >> _32
    cell = cells[base + index]
    keep = _0 - np.uint64((word & _LOW) < (cell >> _32))
    return (index & keep) | (cell & _LOW & ~keep)


@compiled
def build_alias(indptr, probability):
    """Return the cells (threshold << 32 | alias) of the distributions in the rows of a CSR-like table.

    Row r is probability[indptr[r]:indptr[r + 1]]; an alias is an index within its row. A cell is chosen by 32 bits, so
    cells are not exactly equally likely. The construction uses their exact shares, so the probability of an outcome has
    an error of at most 2**-33 of each cell that contains it.
    """
    cells = np.empty(probability.size, np.uint64)
    for row in range(indptr.size - 1):
        start, n = indptr[row], indptr[row + 1] - indptr[row]
        share = np.empty(n)
        for j in range(n):
            share[j] = (((j + 1) * _RANGE + n - 1) // n - (j * _RANGE + n - 1) // n) / _RANGE
        mass = probability[start : start + n].copy()
        small, large = np.empty(n, np.int64), np.empty(n, np.int64)
        n_small = n_large = 0
        for j in range(n):
            cells[start + j] = (_LOW << _32) | np.uint64(j)  # a cell that stays as it is has itself as alias
            if mass[j] < share[j]:
                small[n_small], n_small = j, n_small + 1
            else:
                large[n_large], n_large = j, n_large + 1
        while n_small > 0 and n_large > 0:
            n_small, n_large = n_small - 1, n_large - 1
            low, high = small[n_small], large[n_large]
            threshold = min(int(mass[low] / share[low] * _RANGE + 0.5), _RANGE - 1)
            cells[start + low] = (np.uint64(threshold) << _32) | np.uint64(high)
            mass[high] -= share[low] - mass[low]
            if mass[high] < share[high]:
                small[n_small], n_small = high, n_small + 1
            else:
                large[n_large], n_large = high, n_large + 1
    return cells
