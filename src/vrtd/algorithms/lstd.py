"""Least-squares TD(lambda): sums over the samples, and a linear system that is solved at each output.

The sums and the system are::

    z_t = rho_t (c_{t-1} lambda z_{t-1} + phi_t),   A += z_t (phi_t - gamma_t phi'_t)^T,   b += z_t r_t
    (A + ridge s I) theta = b + ridge s theta_0,   s = |phi_0|^2 + |gamma_0 phi'_0|^2

c is the discount of the previous sample, or 0 if this sample does not continue it. The ridge pulls towards theta_0, so
there is a solution from the first sample on; without samples it is theta_0. The scale s comes from the first sample
whose features are not all zero, so the values do not depend on the units of the features. A sample costs d^2
operations and an output d^3: with many features, use few checkpoints.

S. J. Bradtke, A. G. Barto (1996), Linear least-squares algorithms for temporal difference learning, Machine Learning.
J. A. Boyan (1999), Least-squares temporal difference learning, ICML. The sums are derived here for a ratio and a
discount per sample, and their solution is tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from vrtd.algorithms._base.algorithm import Kernels
from vrtd.algorithms._base.least_squares import LeastSquaresMethod, solve_in_place, update_trace
from vrtd.arrays import Floats
from vrtd.kernels.jit import kernel


class LSTDState(NamedTuple):
    theta_0: Floats
    b: Floats
    z: Floats
    psi: Floats  # phi - gamma phi'
    A: Floats  # (d d,) row by row
    room: Floats  # (d d,) copy of A that the solver overwrites
    memory: Floats  # two numbers: c of the previous sample, and s


@kernel
def lstd_views(workspace, d):
    n = 4 * d + d * d
    theta_0, b, z, psi = workspace[:d], workspace[d : 2 * d], workspace[2 * d : 3 * d], workspace[3 * d : 4 * d]
    return LSTDState(theta_0, b, z, psi, workspace[4 * d : n], workspace[n : n + d * d], workspace[n + d * d :])


@kernel
def lstd_step(params, options, state, x, t, epoch):
    z, psi = state.z, state.psi
    d = z.size
    update_trace(z, psi, state.memory, params.trace_decay, x)
    for i in range(d):
        z_i = z[i]
        state.b[i] += z_i * x.reward
        for j in range(d):
            state.A[i * d + j] += z_i * psi[j]


@kernel
def lstd_output(params, options, state, epoch, out):
    """Write theta_0 + u, with (A + ridge s I) u = b - A theta_0, which is exact if there were no samples."""
    d = out.size
    ridge = params.ridge * state.memory[1] if state.memory[1] > 0.0 else 1.0  # any value, if all features were zero
    for i in range(d):
        out[i] = state.b[i]
        for j in range(d):
            out[i] -= state.A[i * d + j] * state.theta_0[j]
            state.room[i * d + j] = state.A[i * d + j]
        state.room[i * d + i] += ridge
    solve_in_place(state.room, out)
    for i in range(d):
        out[i] += state.theta_0[i]


@dataclass(frozen=True)
class LSTD(LeastSquaresMethod):
    """Least-squares temporal difference learning, LSTD(lambda).

    It has no step size. One update costs of the order of d^2 operations, and one output d^3.

    Parameters
    ----------
    trace_decay : float, default=0.0
        Trace decay lambda.
    ridge : float, default=1e-3
        Ridge parameter, relative to the squared norms of the first features. The ridge pulls towards theta_0.

    Examples
    --------
    >>> LSTD(trace_decay=0.5).epoch("markov").n_gradients
    1
    """

    name = "lstd"
    kernels = Kernels(lstd_views, lstd_step, lstd_output)
    n_vectors = 4
    n_matrices = 2
