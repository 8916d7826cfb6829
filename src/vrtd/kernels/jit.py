"""Compilation and caching of kernels. Only this file knows Numba's options."""

from __future__ import annotations

import hashlib
import math
import os
import pickle
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from threading import Lock
from types import FunctionType
from typing import Any, ClassVar

from vrtd.errors import VrtdError

try:
    import numba
except ValueError as error:  # of an environment variable
    raise VrtdError(f"Numba cannot be loaded: {error} Check the environment variables NUMBA_...") from None
from llvmlite import ir
from numba import carray
from numba.core import caching, cgutils, config
from numba.core import types as numba_types
from numba.core.types.containers import BaseTuple
from numba.extending import intrinsic

from vrtd.kernels.digest import digest

# Full fastmath would fold isfinite to True and disable the check for diverged runs.
_FASTMATH = {"contract", "reassoc", "nsz"}
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
_CONFIG_LOCK = Lock()
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

#: Placeholder in a template for a kernel that `specialise` or `rebind` fills in.
UNBOUND: Any = None

if config.DISABLE_JIT:
    raise VrtdError("vrtd needs compiled loops, but NUMBA_DISABLE_JIT is set in the environment. Unset it.")


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a kernel that is inlined into the source of the loop that calls it.

    Inlining the compiled code instead (forceinline) would be too late: Numba optimises each function separately first,
    when it does not know enough about sizes and overlapping memory to keep a workspace in registers.
    """
    return numba.njit(inline="always", fastmath=_FASTMATH, **_OPTIONS)(function)


def dynamics(function: Callable[..., Any]) -> Any:
    """Compile a kernel of an environment with exact IEEE arithmetic, so it can match another implementation exactly.

    It is compiled separately from the loop, whose arithmetic may be reordered. ``fastmath=False`` keeps it from
    inheriting the loop's setting.
    """
    return numba.njit(forceinline=True, fastmath=False, **_OPTIONS)(function)


def compiled(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls, without fastmath and cached on disk."""
    return _cached(numba.njit(**_OPTIONS)(function))


def specialise(template: Callable[..., Any], name: str, bindings: Mapping[str, Any]) -> Callable[..., Any]:
    """Compile ``template`` with some of its globals replaced. The same bindings give the same loop.

    Numba freezes globals as constants, so this binds a loop to its kernels at no cost. Functions passed as arguments,
    closures and jitclasses would have the same effect but compile again in every process.
    """
    return _specialise(template, name, tuple(bindings.items()))


@cache
def _specialise(template: Callable[..., Any], name: str, bindings: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    function = rebind(template, dict(bindings))
    function.__qualname__ = f"{name}_{digest(function)[:16]}"  # Numba names its cache files after it
    loop: Callable[..., Any] = _cached(numba.njit(fastmath=_FASTMATH, **_OPTIONS)(function))
    return loop


@contextmanager
def short_vectors() -> Iterator[None]:
    """Let LLVM vectorise unrolled arithmetic in everything compiled inside this context, which Numba leaves off."""
    with _CONFIG_LOCK:
        before = config.SLP_VECTORIZE
        config.SLP_VECTORIZE = 1
        try:
            yield
        finally:
            config.SLP_VECTORIZE = before


def cache_folder(function: Callable[..., Any]) -> str | None:
    """Return the folder with the compiled code of this function, or None if no folder is writable."""
    try:
        return str(_CheckedCache(function).cache_path)
    except RuntimeError:
        return None


def rebind(template: Callable[..., Any], bindings: dict[str, Any]) -> FunctionType:
    """Return a copy of a plain function with some globals replaced."""
    if not isinstance(template, FunctionType):
        raise TypeError("template must be a plain function")
    return FunctionType(template.__code__, {**template.__globals__, **bindings})


@kernel
def stack_array(shape, dtype):
    """Return an array of constant shape, of 8-byte numbers, on the stack of the calling function."""
    return carray(stack_words(shape), shape, dtype)


@intrinsic
def stack_words(typing_context, shape):
    """Reserve 8-byte words on the stack of the calling function and return their address.

    LLVM sees that nothing else points there, so a small workspace of known size is kept in registers, which is twice
    as fast as an array on the heap.
    """
    if not all(isinstance(n, numba_types.IntegerLiteral) for n in shape):
        return None

    def codegen(context, builder, signature, arguments):
        size = math.prod(n.literal_value for n in shape)
        words = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(64), size))
        words.align = 64
        return builder.bitcast(words, ir.IntType(8).as_pointer())

    return numba_types.voidptr(shape), codegen


@intrinsic
def borrow(typing_context, value):
    """Return the same array, or tuple with arrays, without reference counts, which cost atomic operations.

    Use it for arguments of the calling function, whose caller keeps them alive.
    """

    def codegen(context, builder, signature, arguments):
        return _borrowed(context, builder, value, arguments[0])

    return value(value), codegen


@intrinsic
def fma(typing_context, x, y, z):
    """Return x y + z, rounded once: one instruction on most machines, and the same bits on all."""

    def codegen(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return numba_types.float64(*[numba_types.float64] * 3), codegen


@intrinsic
def rint(typing_context, x):
    """Return the nearest whole number as a float, of two equally near ones the even one."""

    def codegen(context, builder, signature, arguments):
        return builder.call(builder.module.declare_intrinsic("llvm.rint", [ir.DoubleType()]), arguments)

    return numba_types.float64(numba_types.float64), codegen


@intrinsic
def prefetch(typing_context, array, index):
    """Load the cache line of a number of a contiguous array ahead of its use. This has no other effect."""

    def codegen(context, builder, signature, arguments):
        kind, byte = signature.args[0], ir.IntType(8).as_pointer()
        numbers = context.make_array(kind)(context, builder, value=arguments[0]).data
        address = builder.bitcast(builder.gep(numbers, [arguments[1]]), byte)
        i32 = ir.IntType(32)
        signature_of_load = ir.FunctionType(ir.VoidType(), [byte, i32, i32, i32])
        load = builder.module.declare_intrinsic("llvm.prefetch", [byte], signature_of_load)
        builder.call(load, [address, i32(1), i32(3), i32(1)])  # for writing, into all levels, of data
        return context.get_dummy_value()

    return numba_types.void(array, index), codegen


@intrinsic
def with_width(typing_context, array, width):
    """Return a borrowed matrix of known width. A constant width makes the address of a row a shift.

    Matrices whose rows are not adjacent are only borrowed.
    """

    def codegen(context, builder, signature, arguments):
        value = _borrowed(context, builder, array, arguments[0])
        if array.layout != "C":
            return value
        matrix = context.make_array(array)(context, builder, value=value)
        columns = context.cast(builder, arguments[1], width, numba_types.intp)
        rows, _ = cgutils.unpack_tuple(builder, matrix.shape)
        matrix.shape = cgutils.pack_array(builder, [rows, columns])
        matrix.strides = cgutils.pack_array(builder, [builder.mul(columns, matrix.itemsize), matrix.itemsize])
        return matrix._getvalue()

    return array(array, width), codegen


def _borrowed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Clear the owner of an array, or of each array in a tuple, so that Numba counts no references."""
    if isinstance(kind, numba_types.Array):
        array = context.make_array(kind)(context, builder, value=value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        return array._getvalue()
    if isinstance(kind, BaseTuple):
        for i, inner in enumerate(kind):
            item = _borrowed(context, builder, inner, builder.extract_value(value, i))
            value = builder.insert_value(value, item, i)
        return value
    context.nrt.incref(builder, kind, value)  # other counted objects get a new reference
    return value


class _UserProvided(caching.UserProvidedCacheLocator):
    """The folder in NUMBA_CACHE_DIR, if it belongs to the user."""

    def ensure_cache_path(self) -> None:
        super().ensure_cache_path()
        _claim_folder(self.get_cache_path())


class _InTree(caching.InTreeCacheLocator):
    """The folder __pycache__ beside the source, if it belongs to the user."""

    def ensure_cache_path(self) -> None:
        super().ensure_cache_path()
        _claim_folder(self.get_cache_path())


class _UserWide(caching.UserWideCacheLocator):
    """The folder of the user's caches."""

    def ensure_cache_path(self) -> None:
        super().ensure_cache_path()
        _claim_folder(self.get_cache_path())


class _OwnCache(caching.CompileResultCacheImpl):
    _locator_classes: ClassVar = (_UserProvided, _InTree, _UserWide)


def _claim_folder(path: str) -> None:
    """Let no one else write to a folder; raise PermissionError, so that Numba takes another one, if it is not ours."""
    if os.name != "posix":
        return
    status = os.stat(path)
    if status.st_uid != os.geteuid():
        raise PermissionError(f"{path} belongs to another user.")
    if status.st_mode & _OTHERS_WRITE:
        os.chmod(path, stat.S_IMODE(status.st_mode) & ~_OTHERS_WRITE)


def _read_own(path: str) -> bytes:
    """Return the content of a file that only the user can have written; its pickles run code."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        if os.name == "posix" and (status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE):
            raise PermissionError(f"{path} can be written by another user.")
        return file.read()


class _CheckedFile(caching.IndexDataCacheFile):
    """Cache file of Numba with a checksum: damaged machine code is recompiled and does not crash."""

    def _load_index(self) -> Any:
        with suppress(FileNotFoundError):
            _read_own(self._index_path)
        return super()._load_index()

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[Any]:
        with super()._open_for_write(filepath) as file:
            if os.name == "posix":
                os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) & ~_OTHERS_WRITE)
            yield file

    def _save_data(self, name: str, data: Any) -> None:
        payload = self._dump(data)
        with self._open_for_write(self._data_path(name)) as file:
            file.write(hashlib.sha256(payload).digest() + payload)

    def _load_data(self, name: str) -> Any:
        content = _read_own(self._data_path(name))
        if hashlib.sha256(content[32:]).digest() != content[:32]:
            raise OSError(f"The cache file {name} is damaged.")
        return pickle.loads(content[32:])  # noqa: S301 - Numba's own cache, which only the user can write


class _CheckedCache(caching.FunctionCache):
    _impl_class = _OwnCache

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        locator = self._impl.locator
        self._cache_file = _CheckedFile(
            cache_path=self._cache_path,
            filename_base=self._impl.filename_base,
            source_stamp=locator.get_source_stamp(),
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # unpickling a damaged or foreign file can raise anything
            self._forget()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception:  # a full disk or a damaged index; the compiled code itself is fine
            self._forget()

    def _forget(self) -> None:
        with suppress(OSError):  # the folder is not writable: the next process tries again
            self._cache_file.flush()


def _cached(dispatcher: Any) -> Any:
    try:
        dispatcher._cache = _CheckedCache(dispatcher.py_func)
    except RuntimeError:  # no writable folder for a cache: compile in every process
        pass
    except (AttributeError, TypeError):  # other internals of Numba: use its cache, without checksums
        dispatcher.enable_caching()
    return dispatcher
