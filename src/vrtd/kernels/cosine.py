"""The cosine as plain arithmetic, which the compiler can vectorise, unlike a call of libm.

Arguments are counted in turns: the period is 1, and subtracting whole turns is exact. The remainder r in [-1/2, 1/2] is
folded to a quarter turn about zero: cos(2 pi r) = sin(2 pi a) with ``a = 1/4 - |r|``. There, the sine is an odd minimax
polynomial with eight coefficients and a largest error of 9e-17. They were computed by the Remez algorithm with 60
digits and then rounded.
"""

from __future__ import annotations

from vrtd.kernels.jit import fma, kernel, rint

# sin(2 pi a) = a (_C1 + _C3 a^2 + ... + _C15 a^14) on [-1/4, 1/4]
_C1, _C3, _C5, _C7 = 6.28318530717958, -41.34170224039508, 81.6052492750263, -76.70585964746968
_C9, _C11, _C13, _C15 = 42.05868830539558, -15.094471616749454, 3.8169974295671563, -0.6909358876280237


@kernel
def cosine_of_turns(turns):
    """Return cos(2 pi turns) within 5e-16, for any finite argument."""
    a = 0.25 - abs(turns - rint(turns))
    a2 = a * a
    total = fma(a2, _C15, _C13)
    for c in (_C11, _C9, _C7, _C5, _C3, _C1):
        total = fma(a2, total, c)
    return a * total
