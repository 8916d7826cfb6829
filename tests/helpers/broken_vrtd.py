"""VRTD with a bug that is easily made: the correction of an inner step has half its weight."""

from dataclasses import dataclass
from typing import ClassVar

from vrtd import VRTD
from vrtd.algorithms import Kernels
from vrtd.algorithms.vrtd import vrtd_absorb, vrtd_begin, vrtd_close, vrtd_output, vrtd_views
from vrtd.kernels.jit import kernel
from vrtd.kernels.transition import bootstrap_difference


@kernel
def broken_vrtd_step(params, options, state, x, t, epoch):  # type: ignore[no-untyped-def]
    factor = 0.5 * params.step_size * x.weight * bootstrap_difference(state.w, x)
    for i in range(state.w.size):
        state.w[i] += factor * x.phi[x.row, i] + state.g_anchor[i]
    if t == state.numbers[0]:
        for i in range(state.w.size):
            state.chosen[i] = state.w[i]


@dataclass(frozen=True)
class BrokenVRTD(VRTD):
    name: ClassVar[str] = "broken_vrtd"
    kernels: ClassVar[Kernels] = Kernels(vrtd_views, broken_vrtd_step, vrtd_output, vrtd_absorb, vrtd_begin, vrtd_close)
