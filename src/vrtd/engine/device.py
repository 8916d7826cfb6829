"""Runs on a GPU: one thread per run, in the same loop as on the CPU (`vrtd.engine.loop`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import check_choice, require
from vrtd.engine.blocks import (
    Job,
    Progress,
    allocate_outputs,
    available_threads,
    calls,
    make_forms,
    warmup_shapes,
)
from vrtd.engine.loop import LANE_PER_RUN, Outputs, advance, bind_loop, is_local, name_loop
from vrtd.errors import DeviceError, MissingExtraError
from vrtd.result import EngineState
from vrtd.sources.source import Slots

DeviceName = Literal["cpu", "cuda", "auto"]

# Between two launches, progress is shown and Ctrl-C takes effect.
_SECONDS_PER_LAUNCH = 0.25
_FIRST_GRADIENTS = 1_000_000_000  # of the first launch, of all runs together
_SHARE_OF_MEMORY = 0.5  # of the free memory of the device

# The GPU gains if its threads are busy, and if the CPU would take longer than a loop takes to compile.
_LEAST_RUNS = 16_384
_LEAST_SECONDS = 5.0
_CPU_RATE = 2e8  # pseudo-gradients per second of one core with four features


class Device(Protocol):
    """What the engine needs of a GPU: `vrtd.kernels.cuda.Gpu`."""

    name: str

    @property
    def free_memory(self) -> int:
        """Number of free bytes."""

    def bind(self, tables: Any, pads: bool, n_features: int) -> tuple[dict[str, Any], Any, int]:
        """Return bindings of the loop, the tables on the device, and the bytes of shared memory that they take.

        If ``pads``, matrices may get one column more. With ``n_features`` above 0, ``tables.phi`` holds so many
        features of each state, which may be stored in another form.
        """

    def compile(self, template: Callable[..., Any], name: str, bindings: Mapping[str, Any]) -> Any:
        """Return a loop that is compiled at its first launch."""

    def is_compiled(self, loop: Any) -> bool:
        """Return whether a loop has been launched before."""

    def put(self, value: Any) -> Any:
        """Return a copy of an array, or of each array of a tuple, on the device."""

    def empty(self, shape: tuple[int, ...], dtype: Any, order: Literal["C", "F"] = "C") -> Any:
        """Return an array on the device without contents."""

    def get(self, array: Any) -> Any:
        """Return a copy of an array in the memory of the CPU."""

    def launch(self, loop: Any, n_runs: int, shared_bytes: int, arguments: tuple[Any, ...]) -> None:
        """Run a loop with one thread per run, and wait until it is done."""


def choose_device(
    device: Any, n_runs: int, n_gradients: int, n_features: int, executor: Executor | None = None
) -> Device | None:
    """Return the GPU if it is to be used, or None for the CPU."""
    name: DeviceName = check_choice("device", device, get_args(DeviceName))
    both = f"device={name!r} has no effect together with executor, whose workers use the CPU."
    require(name == "cpu" or executor is None, both, "Drop one of them.")
    if name == "cuda":
        return open_gpu()
    cpu_seconds = n_runs * n_gradients * max(n_features / 4, 1.0) / (_CPU_RATE * available_threads())
    if name == "cpu" or n_runs < _LEAST_RUNS or cpu_seconds < _LEAST_SECONDS:
        return None
    try:
        return open_gpu()
    except (DeviceError, MissingExtraError):
        return None


def open_gpu() -> Device:
    """Return the current GPU. Raise if there is none that can be used."""
    from vrtd.kernels.cuda import Gpu

    return Gpu()


def describe_gpu() -> dict[str, str | None]:
    """Return the name of the GPU, or None and the reason why there is none that can be used."""
    try:
        return {"name": open_gpu().name, "problem": None}
    except (DeviceError, MissingExtraError) as error:
        return {"name": None, "problem": str(error)}


@dataclass
class DeviceLoop:
    """Compiled loop of a job on a device, with the arrays that all runs share."""

    job: Job
    device: Device
    loop: Any
    params: Any
    tables: Any
    shared_bytes: int
    shapes: Any  # batch sizes and numbers of steps
    forms: Any
    epochs_per_launch: int = 1


def prepare_on_device(job: Job, state: EngineState, device: Device) -> DeviceLoop:
    """Return the loop for this job, compiled by a launch without checkpoints."""
    algorithm, source = job.algorithm, job.source
    few = source.is_chain and is_local(algorithm, job.epoch, source, job.specialised)
    pads = not source.uses_slots  # a matrix of a simulator may have any meaning
    bindings, tables, shared_bytes = device.bind(source.data, pads, source.n_features if few else 0)
    bindings = bind_loop(algorithm, job.epoch, source, job.specialised) | bindings
    name = f"gpu_{name_loop(algorithm, job.epoch, source, job.specialised)}"
    loop = device.compile(advance, name, bindings | LANE_PER_RUN)
    params, forms = device.put(algorithm.params()), device.put(make_forms(job))
    ready = DeviceLoop(job, device, loop, params, tables, shared_bytes, device.put(warmup_shapes(job.epoch)), forms)
    if not device.is_compiled(loop):
        _advance(ready, _take(state, slice(0, 1)), np.empty(0, np.int64), None)
    return ready


def run_on_device(ready: DeviceLoop, state: EngineState, progress: Progress | None) -> Outputs:
    """Take all runs through all checkpoints, changing ``state`` in place."""
    job, n_runs = ready.job, len(state.workspaces)
    outputs = allocate_outputs(job, n_runs)
    part_size = max(int(_SHARE_OF_MEMORY * ready.device.free_memory / _bytes_per_run(job)), 1)
    ready.epochs_per_launch = max(_FIRST_GRADIENTS // (job.epoch.n_gradients * min(n_runs, part_size)), 1)
    total = max(n_runs * job.n_gradients, 1)
    for first in range(0, n_runs, part_size):
        block = slice(first, min(first + part_size, n_runs))

        def report(n_gradients: int, first: int = first, n: int = block.stop - block.start) -> None:
            if progress is not None:
                progress((first * job.n_gradients + n * n_gradients) / total)

        part, written = _advance(ready, _take(state, block), job.epochs, report)
        for whole, piece in zip((*state, *outputs), (*part, *written), strict=True):
            whole[block] = piece[: block.stop - block.start]
    return outputs


def _take(state: EngineState, block: slice) -> EngineState:
    """Return the state of some runs; a single run is repeated, because the order of one row in memory is undefined."""
    repeated = [block.start] * 2
    return state.map(lambda array: array[repeated if block.stop - block.start == 1 else block])


def _advance(
    ready: DeviceLoop, state: EngineState, epochs: NDArray[np.int64], report: Callable[[int], None] | None
) -> tuple[EngineState, Outputs]:
    """Take some runs through these checkpoints, and return their state and outputs. Without any, only compile."""
    job, device, n = ready.job, ready.device, len(state.workspaces)
    local = is_local(job.algorithm, job.epoch, job.source, job.specialised)
    # Threads access the same entry of neighbouring runs together, which is fast where these are neighbours in memory.
    workspaces = state.workspaces if local else np.asfortranarray(state.workspaces)
    on_device = device.put(state._replace(workspaces=workspaces).map(_with_order))
    slots, batch = _make_slots(job, device, n), _make_batch(job, device, n)
    outputs = Outputs(
        device.empty((n, epochs.size, len(job.forms)), np.float64),
        device.empty((n, job.source.n_features), np.float64),
        device.put(np.full(n, -1)),
    )
    inputs = ready.params, ready.tables, slots, batch, on_device, *ready.shapes, ready.forms
    position = job.epoch_0
    if not epochs.size:
        device.launch(ready.loop, n, ready.shared_bytes, (*inputs, position, device.put(epochs), 0, outputs))
    for targets, checkpoint in calls(epochs, position, lambda: ready.epochs_per_launch):
        clock = time.perf_counter()
        arguments = *inputs, position, device.put(targets), checkpoint, outputs
        device.launch(ready.loop, n, ready.shared_bytes, arguments)
        n_epochs = int(targets[-1]) - max(position, 0)
        position = int(targets[-1])
        if n_epochs > 0:  # aim at launches of equal time
            wanted = n_epochs * _SECONDS_PER_LAUNCH / max(time.perf_counter() - clock, 1e-6)
            ready.epochs_per_launch = max(int(min(wanted, 4 * n_epochs)), 1)
        if report is not None:
            report(job.gradients_between(job.epoch_0, position))
    return EngineState(*map(device.get, on_device)), Outputs(*map(device.get, outputs))


def _with_order(array: Any) -> Any:
    """Return an array in C or Fortran order, copied if it is a part of another one."""
    return array if array.flags.f_contiguous else np.ascontiguousarray(array)


def _make_batch(job: Job, device: Device, n_runs: int) -> Any:
    """Return room for the handles of the batches, one column per run."""
    n_rows = job.largest_batch if job.epoch.inner_samples == "resample" else 0
    return device.empty((n_rows, n_runs), _handle_type(job))


def _handle_type(job: Job) -> Any:
    """Return the smallest type of number that holds a handle; a slot is a handle of a simulator."""
    return np.uint16 if (job.source.n_handles or job.largest_batch + 1) <= 2**16 else np.uint32


def _make_slots(job: Job, device: Device, n_runs: int) -> Slots:
    """Return the storage for transitions and random subsets, in which neighbouring runs are neighbours."""
    source = job.source
    n_lanes, n_slots = (n_runs, job.largest_batch + 1) if source.uses_slots else (0, 0)
    reward, discount, carry = (device.empty((n_lanes, n_slots), np.float64, "F") for _ in range(3))
    phi = device.empty((n_lanes, 2 * n_slots, source.n_features), np.float64, "F")
    rows = np.arange(source.n_rows if job.epoch.subset else 0, dtype=np.uint32)
    order = device.put(np.asfortranarray(np.broadcast_to(rows, (n_runs, rows.size))))
    return Slots(phi, reward, discount, carry, order)


def _bytes_per_run(job: Job) -> int:
    """Return the memory that one run takes on the device."""
    source, d = job.source, job.source.n_features
    numbers = job.algorithm.workspace_size(d, source.n_rows) + source.cursor_size + 5 + d
    numbers += job.epochs.size * len(job.forms)
    if source.uses_slots:
        numbers += (job.largest_batch + 1) * (2 * d + 3)
    subset = source.n_rows if job.epoch.subset else 0
    batch = job.largest_batch if job.epoch.inner_samples == "resample" else 0
    return int(8 * numbers + 4 * subset + np.dtype(_handle_type(job)).itemsize * batch)
