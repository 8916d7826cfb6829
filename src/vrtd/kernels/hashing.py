"""Hashes of text and of columns, which are the same in every process and on every machine.

Text is hashed byte by byte with FNV-1a in 64 bits, whose result `mix` finalises. A column, a value in a column and a
pair of columns have keys of 64 bits, which are mixed from each other. The first bits of a key are the number of a
feature, and its last bit is the sign.

K. Weinberger, A. Dasgupta, J. Langford, A. Smola, J. Attenberg (2009), Feature hashing for large scale multitask
learning, ICML: with signs, the products of two rows are unbiased.
"""

from __future__ import annotations

import numpy as np

from vrtd.kernels.jit import compiled
from vrtd.kernels.random import mix

_OFFSET, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_1, _11, _64 = np.uint64(1), np.uint64(11), np.uint64(64)


@compiled
def hash_text(content, offsets, out):
    """Write a hash of 53 bits, which a float64 holds exactly, of each text ``content[offsets[i]:offsets[i + 1]]``."""
    for i in range(out.size):
        word = _OFFSET
        for k in range(offsets[i], offsets[i + 1]):
            word = (word ^ np.uint64(content[k])) * _PRIME
        out[i] = np.float64(np.int64(mix(word) >> _11))


@compiled
def hash_rows(numbers, words, is_category, seed, bits, with_pairs, values, columns, starts):
    """Write the features of each row of numbers (n, k) in CSR form, and return their number.

    There is a constant, a feature for each number, and with ``with_pairs`` one for each pair of numbers. The feature of
    a category depends on its value, of which ``words`` has the bits. Features of value 0 are left out, and features
    that fall on the same column are added.
    """
    n, k = numbers.shape
    key, value = np.empty(k, np.uint64), np.empty(k)
    shift, at = _64 - np.uint64(bits), 0
    constant = mix(np.uint64(seed) * _GOLDEN + _1)
    for i in range(n):
        starts[i] = first = at
        at = _put(constant, 1.0, shift, values, columns, first, at)
        for j in range(k):
            key[j] = mix(constant + np.uint64(j + 1) * _GOLDEN)
            value[j] = numbers[i, j]
            if is_category[j]:
                key[j] = mix(key[j] ^ mix(words[i, j] + _GOLDEN))
                if np.isfinite(value[j]):
                    value[j] = 1.0
            at = _put(key[j], value[j], shift, values, columns, first, at)
        if with_pairs:
            for j in range(k):
                for m in range(j):
                    both = mix(key[j] * _PRIME + key[m])
                    at = _put(both, value[j] * value[m], shift, values, columns, first, at)
    starts[n] = at
    return at


@compiled
def _put(key, value, shift, values, columns, first, at):
    """Add a feature to the row that begins at ``first``, and return the end of the row."""
    if value == 0.0:
        return at
    column = np.int32(key >> shift)
    signed = value if key & _1 else -value
    for e in range(first, at):
        if columns[e] == column:
            values[e] += signed
            return at
    values[at], columns[at] = signed, column
    return at + 1
