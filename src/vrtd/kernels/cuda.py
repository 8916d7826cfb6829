"""Compilation and launch of loops on a GPU. Only this file knows ``numba.cuda``; it is imported when a GPU is used."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from vrtd.errors import DeviceError, MissingExtraError
from vrtd.kernels import jit
from vrtd.kernels.digest import digest
from vrtd.kernels.transition import Transition


@contextmanager
def _newer_numpy() -> Iterator[None]:
    """Let numba-cuda be imported with a NumPy that has removed names which it mentions, or warns of what it does."""
    aliases = {"row_stack": np.vstack, "in1d": np.isin}
    missing = [name for name in aliases if name not in vars(np)]
    for name in missing:
        setattr(np, name, aliases[name])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            yield
    finally:
        for name in missing:
            delattr(np, name)


try:
    with _newer_numpy():
        import numba_cuda  # noqa: F401 - `numba.cuda` alone may be the former GPU code of Numba
        from numba import cuda
        from numba.cuda import cgutils, config, cudaimpl, types  # noqa: F401 - the third would be imported later
        from numba.cuda.cudadrv.driver import binding, driver
        from numba.cuda.extending import intrinsic
        from numba.cuda.typing.templates import infer, infer_global, make_intrinsic_template
except ImportError as error:
    raise MissingExtraError("numba_cuda", "cuda") from error

config.CUDA_LOW_OCCUPANCY_WARNINGS = 0  # the first launch, which compiles, is meant to be small
config.CUDA_DEALLOCS_COUNT = 100_000  # memory is released in bulk, because a release waits for all running loops

# Measured with benchmarks/gpu.py. More threads per multiprocessor would leave each thread too few registers.
_THREADS_PER_PROCESSOR = 1024
_BLOCKS_PER_PROCESSOR = 4
_MAX_REGISTERS = 128
_WARP = 32
_COPIES = 16  # of features: the number of banks of shared memory for 8-byte numbers
_WORD = 8


def register(function: Any, definition: Callable[..., Any]) -> None:
    """Define on a GPU what an intrinsic of `vrtd.kernels.jit` does."""
    name = definition.__name__
    template = make_intrinsic_template(function, definition, name, kwargs={"target": "cuda"})
    infer(template)
    infer_global(function, types.Function(template))


def _first_argument(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    return arguments[0]


def _borrow(typing_context: Any, value: Any) -> Any:
    return value(value), _first_argument


def _with_width(typing_context: Any, array: Any, width: Any) -> Any:
    return array(array, width), _first_argument


def _rint(typing_context: Any, x: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType()])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "__nv_rint"), arguments)

    return types.float64(types.float64), codegen


register(jit.fma, jit.fma._defn)
register(jit.rint, _rint)
register(jit.borrow, _borrow)
register(jit.with_width, _with_width)


@intrinsic
def stack_array(typing_context, shape, dtype):
    """Return an array of constant shape, of 8-byte numbers, in registers or in local memory of the thread."""
    if not all(isinstance(n, types.IntegerLiteral) for n in shape):
        return None
    sizes = [n.literal_value for n in shape]
    kind = types.Array(dtype.dtype, len(sizes), "C")

    def codegen(context, builder, signature, arguments):
        words = cgutils.alloca_once(builder, ir.ArrayType(ir.IntType(64), math.prod(sizes)))
        array = context.make_array(kind)(context, builder)
        strides = [_WORD * math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
        context.populate_array(
            array,
            data=builder.bitcast(words, array.data.type),
            shape=[context.get_constant(types.intp, n) for n in sizes],
            strides=[context.get_constant(types.intp, n) for n in strides],
            itemsize=context.get_constant(types.intp, _WORD),
            meminfo=None,
        )
        return array._getvalue()

    return kind(shape, dtype), codegen


@jit.kernel
def one_run():
    """Return the run of this thread, `vrtd.engine.loop.first_group`."""
    return cuda.grid(1)


@jit.kernel
def all_threads():
    """Return the number of threads, `vrtd.engine.loop.group_stride`."""
    return cuda.gridsize(1)


@jit.kernel
def copy_tables(data):
    """Copy the tables of the source to the shared memory of the block, `vrtd.engine.loop.stage`.

    ``data`` holds an image, the contents of all tables as words, and the tables themselves.
    """
    image, tables = data
    shared = cuda.shared.array(0, np.uint64)
    for i in range(cuda.threadIdx.x, image.size, cuda.blockDim.x):
        shared[i] = image[i]
    cuda.syncthreads()
    return in_shared_memory(shared, tables)


@intrinsic
def in_shared_memory(typing_context, shared, tables):
    """Return the tables with the addresses that they have in the image, in the order of `make_image`."""

    def codegen(context, builder, signature, arguments):
        base = context.make_array(shared)(context, builder, value=arguments[0]).data
        base = builder.bitcast(base, cgutils.voidptr_t)
        rest, word = (context.get_constant(types.intp, n) for n in (_WORD - 1, _WORD))

        def place(kind, value, offset):
            """Return a value with new addresses, and the offset behind it."""
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, value=value)
                n_bytes = builder.mul(array.nitems, array.itemsize)
                array.data = builder.bitcast(builder.gep(base, [offset]), array.data.type)
                n_words = builder.udiv(builder.add(n_bytes, rest), word)
                return array._getvalue(), builder.add(offset, builder.mul(n_words, word))
            if isinstance(kind, types.BaseTuple):
                for i, inner in enumerate(kind):
                    item, offset = place(inner, builder.extract_value(value, i), offset)
                    value = builder.insert_value(value, item, i)
            return value, offset

        return place(tables, arguments[1], context.get_constant(types.intp, 0))[0]

    return tables(shared, tables), codegen


def make_image(tables: Any) -> NDArray[np.uint64]:
    """Return the contents of all arrays of a tuple as words."""
    parts = [np.empty(0, np.uint64)]

    def add(value: Any) -> None:
        if isinstance(value, tuple):
            for each in value:
                add(each)
        elif isinstance(value, np.ndarray):
            content = value.tobytes()
            parts.append(np.frombuffer(content + bytes(-len(content) % _WORD), np.uint64))

    add(tables)
    return np.concatenate(parts)


def _pad(value: Any) -> Any:
    """Return tables in which matrices have an odd number of columns, so that columns are spread over all banks."""
    if isinstance(value, tuple):
        items = [_pad(each) for each in value]
        return type(value)(*items) if type(value) is not tuple else tuple(items)
    if isinstance(value, np.ndarray) and value.ndim == 2:
        return np.pad(value, ((0, 0), (0, 1 - value.shape[1] % 2)))
    return value


FEATURES = 1  # bound to the number of features


def read_features(x, d):
    """Return a transition whose features are in registers, read from tables with ``_COPIES`` copies of each number.

    Each thread reads a copy of its own, in a bank of its own: threads that read different rows do not wait for each
    other.
    """
    phi, phi_next = stack_array((1, FEATURES), np.float64), stack_array((1, FEATURES), np.float64)
    copy = cuda.threadIdx.x % _COPIES
    for i in range(FEATURES):
        phi[0, i] = x.phi[x.row, i * _COPIES + copy]
        phi_next[0, i] = x.phi_next[x.row_next, i * _COPIES + copy]
    return Transition(phi, 0, phi_next, 0, x.reward, x.discount, x.weight, x.carry)


@cache
def _bind_features(n_features: int) -> Any:
    return jit.kernel(jit.rebind(read_features, {"FEATURES": n_features}))


class _Running:
    """Number of loops that run at the same time, in all threads of this process."""

    def __init__(self) -> None:
        self._lock, self._n = Lock(), 0

    @contextmanager
    def counted(self) -> Iterator[int]:
        """Count a loop while it runs, and return the number with it."""
        with self._lock:
            self._n += 1
            n = self._n
        try:
            yield n
        finally:
            with self._lock:
                self._n -= 1


_RUNNING = _Running()


class Gpu:
    """The current GPU.

    Attributes
    ----------
    name : str
        Name of the GPU.
    """

    def __init__(self) -> None:
        try:
            self._device = cuda.get_current_device()
            name = self._device.name
        except Exception as error:  # no driver, no GPU, or a driver that is too old: numba-cuda raises many types
            problem = f"No GPU can be used: {type(error).__name__}: {' '.join(str(error).split())}"
            raise DeviceError(
                f"{problem.rstrip('.')}.", 'Use device="cpu", or check the output of nvidia-smi.'
            ) from None
        self.name = name.decode() if isinstance(name, bytes) else str(name)
        self._stream = cuda.stream()

    @property
    def free_memory(self) -> int:
        """Number of free bytes."""
        return int(cuda.current_context().get_memory_info().free)

    def bind(self, tables: Any, pads: bool, n_features: int) -> tuple[dict[str, Any], Any, int]:
        """Return bindings of the loop, the tables of a source on the GPU, and the bytes of shared memory they take.

        Tables that fit are copied to shared memory at the start of each launch. If ``pads``, matrices may get one
        column more there. With ``n_features`` above 0, ``tables.phi`` holds so many features of each state, which
        are read together and may be stored in another form.
        """
        bindings: dict[str, Any] = {
            "first_group": one_run,
            "group_stride": all_threads,
            "stack_array": stack_array,
        }
        forms: list[tuple[Any, dict[str, Any]]] = [(_pad(tables) if pads else tables, {})]
        if n_features > 0:
            copies = tables._replace(phi=np.repeat(tables.phi, _COPIES, axis=1))
            forms.insert(0, (copies, {"with_fixed_width": _bind_features(n_features)}))
        for form, changes in forms:
            image = make_image(form)
            if image.nbytes <= self._device.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
                bindings |= changes | {"stage": copy_tables}
                return bindings, (self.put(image), self.put(form)), image.nbytes
        return bindings, self.put(tables), 0

    def compile(self, template: Callable[..., Any], name: str, bindings: Mapping[str, Any]) -> Any:
        """Return a loop that is compiled at its first launch."""
        return _compile(template, name, tuple(bindings.items()))

    def is_compiled(self, loop: Any) -> bool:
        """Return whether a loop has been launched before."""
        return bool(loop.overloads)

    def put(self, value: Any) -> Any:
        """Return a copy of an array, or of each array of a tuple, on the GPU."""
        if isinstance(value, tuple):
            items = [self.put(each) for each in value]
            return type(value)(*items) if type(value) is not tuple else tuple(items)
        return cuda.to_device(value, self._stream) if isinstance(value, np.ndarray) else value

    def empty(self, shape: tuple[int, ...], dtype: Any, order: str = "C") -> Any:
        """Return an array on the GPU without contents."""
        return cuda.device_array(shape, dtype, order=order, stream=self._stream)

    def get(self, array: Any) -> Any:
        """Return a copy of an array in the memory of the CPU."""
        return array.copy_to_host(stream=self._stream)

    def launch(self, loop: Any, n_runs: int, shared_bytes: int, arguments: tuple[Any, ...]) -> None:
        """Run a loop with one thread per run, and wait until it is done."""
        with _RUNNING.counted() as n_running:
            threads = self._choose_threads(loop, n_runs * n_running, shared_bytes)
            launch = loop[-(-n_runs // threads), threads, self._stream, shared_bytes]
            launch.pre_launch_callbacks.append(self._reserve)
            launch(*arguments)
            self._stream.synchronize()

    def _choose_threads(self, loop: Any, n_runs: int, shared_bytes: int) -> int:
        """Return the threads per block with which a multiprocessor has enough of them, in up to four blocks.

        ``n_runs`` are those of all loops that run at the same time, under the assumption that they are alike.
        """
        device = self._device
        n_blocks = device.MAX_SHARED_MEMORY_PER_MULTIPROCESSOR // (
            shared_bytes + device.RESERVED_SHARED_MEMORY_PER_BLOCK
        )
        threads = _THREADS_PER_PROCESSOR // min(max(n_blocks, 1), _BLOCKS_PER_PROCESSOR)
        share = -(-n_runs // device.MULTIPROCESSOR_COUNT)  # few runs are distributed over all multiprocessors
        most = min((kernel.max_threads_per_block for kernel in loop.overloads.values()), default=_WARP)
        return int(min(threads, most // _WARP * _WARP, max(-(-share // _WARP), 1) * _WARP))

    def _reserve(self, kernel: Any, launch: Any) -> None:
        """Allow a kernel the shared memory of its launch, of which only 48 KiB need no permission."""
        attribute = binding.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        function = kernel._codelibrary.get_cufunc()
        driver.cuKernelSetAttribute(attribute, launch.sharedmem, function.handle, self._device.id)


@cache
def _compile(template: Callable[..., Any], name: str, bindings: tuple[tuple[str, Any], ...]) -> Any:
    function = jit.rebind(template, dict(bindings))
    function.__qualname__ = f"{name}_{digest(function)[:16]}"  # Numba names its cache files after it
    return cuda.jit(function, max_registers=_MAX_REGISTERS)
