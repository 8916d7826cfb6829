"""A digest of everything on which a compiled function depends.

Numba's disk cache looks at one file and the name of a function. It does not see a change in a kernel that is inlined
from another file, in a constant, or in the variables of a closure. So the name of a loop contains this digest.
"""

from __future__ import annotations

import hashlib
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.extending import _Intrinsic


def digest(*things: Any) -> str:
    """Return a digest of functions with everything they refer to, numbers, strings, arrays, types, and tuples of them.

    >>> digest(1, (2.0, "a")) == digest(1, (2.0, "a")), digest(1) == digest(1.0)
    (True, False)
    """
    sha, seen = hashlib.sha256(), set[int]()

    def feed(thing: Any, attributes: tuple[str, ...] = ()) -> None:
        sha.update(type(thing).__name__.encode())
        match thing:
            case Dispatcher():
                feed(tuple(sorted(thing.targetoptions.items())))
                feed(thing.py_func)
            case _Intrinsic():
                feed(thing._defn)
            case FunctionType():
                if id(thing) not in seen:
                    seen.add(id(thing))
                    feed(thing.__code__)
                    feed(tuple(cell.cell_contents for cell in thing.__closure__ or ()))
                    for name in names(thing.__code__):
                        if name in thing.__globals__:
                            feed(thing.__globals__[name], names(thing.__code__))
            case CodeType():
                sha.update(thing.co_code + repr((thing.co_names, thing.co_varnames, thing.co_freevars)).encode())
                feed(thing.co_consts)
            case ModuleType():  # the functions of a module that may be used
                sha.update(thing.__name__.encode())
                for name in attributes:
                    if isinstance(vars(thing).get(name), Dispatcher):
                        feed(vars(thing)[name])
            case type():
                sha.update(f"{thing.__module__}.{thing.__qualname__}{getattr(thing, '_fields', '')}".encode())
            case set() | frozenset():  # the order of a set differs between processes
                feed(tuple(sorted(map(repr, thing))))
            case tuple():
                sha.update(repr((len(thing), getattr(thing, "_fields", ""))).encode())
                for item in thing:
                    feed(item)
            case np.ndarray():
                sha.update(repr((thing.dtype, thing.shape)).encode() + thing.tobytes())
            case bool() | int() | float() | str() | bytes() | None | np.generic():
                sha.update(repr(thing).encode())
            case _:  # anything else contributes only its type
                sha.update(type(thing).__qualname__.encode())

    for thing in things:
        feed(thing)
    return sha.hexdigest()


def names(code: CodeType) -> tuple[str, ...]:
    """Return the names that code refers to, including those in nested functions."""
    inner = (names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return tuple(dict.fromkeys([*code.co_names, *(name for part in inner for name in part)]))
