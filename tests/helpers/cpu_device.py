"""A device that runs the loop of a GPU on the CPU, so that it is tested where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from vrtd.kernels.jit import kernel, specialise


@kernel
def one():
    return 1


class CpuDevice:
    """Stand-in for `vrtd.kernels.cuda.Gpu`: memory of its own, and a loop in which one thread takes run by run."""

    name = "CPU as a device"

    def __init__(self, free_memory: int = 1 << 30) -> None:
        self.free_memory = free_memory
        self.launches: list[int] = []  # the number of runs of each

    def bind(self, tables: Any, pads: bool, n_features: int) -> tuple[dict[str, Any], Any, int]:
        return {"group_stride": one}, self.put(tables), 0

    def compile(self, template: Callable[..., Any], name: str, bindings: Mapping[str, Any]) -> Any:
        return specialise(template, name, bindings)

    def is_compiled(self, loop: Any) -> bool:
        return bool(loop.signatures)

    def put(self, value: Any) -> Any:
        if isinstance(value, tuple):
            items = [self.put(each) for each in value]
            return type(value)(*items) if type(value) is not tuple else tuple(items)
        return value.copy(order="K") if isinstance(value, np.ndarray) else value

    def empty(self, shape: tuple[int, ...], dtype: Any, order: Any = "C") -> Any:
        array = np.empty(shape, dtype, order)
        array.fill(np.nan if array.dtype.kind == "f" else 1)  # what a GPU leaves there is not zero
        return array

    def get(self, array: Any) -> Any:
        return array.copy()

    def launch(self, loop: Any, n_runs: int, shared_bytes: int, arguments: tuple[Any, ...]) -> None:
        self.launches.append(n_runs)
        loop(*arguments)
