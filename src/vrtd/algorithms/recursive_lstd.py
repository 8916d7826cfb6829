"""Least-squares TD(lambda) with the inverse P of ridge s I + A kept up to date (Sherman and Morrison), so that theta is
there after every sample for d^2 operations, what `LSTD` with the same ridge solves for:

    z_t = rho_t (c_{t-1} lambda z_{t-1} + phi_t),   psi_t = phi_t - gamma_t phi'_t
    k = P z / (1 + psi.P z),   theta += k (r - psi.theta),   P -= k (P^T psi)^T,   P_0 = I / (ridge s)

The scale s = |phi|^2 + |gamma phi'|^2 is that of the first sample whose features are not all zero. There the
denominator is positive if ridge > rho / 2, as |phi.gamma phi'| <= s / 2. A ridge much below lets it come near 0, which
costs digits for good: unlike a sum, an inverse keeps its errors.

S. J. Bradtke, A. G. Barto (1996), Linear least-squares algorithms for temporal difference learning, Machine Learning.
The update is derived here from the sums of `LSTD`, with which it is tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from vrtd.algorithms._base.algorithm import Kernels
from vrtd.algorithms._base.least_squares import LeastSquaresMethod, update_trace
from vrtd.arrays import Floats
from vrtd.kernels.jit import kernel


class RecursiveLSTDState(NamedTuple):
    theta: Floats
    z: Floats
    psi: Floats
    gain: Floats  # k of the sample before, whose change of P is still due
    row: Floats  # P^T psi of the sample before
    new_row: Floats
    P: Floats  # (d d,) row by row
    memory: Floats  # two numbers: c of the sample before, and s


@kernel
def recursive_lstd_views(workspace, d):
    n = 6 * d + d * d
    theta, z, psi = workspace[:d], workspace[d : 2 * d], workspace[2 * d : 3 * d]
    gain, row, new_row = workspace[3 * d : 4 * d], workspace[4 * d : 5 * d], workspace[5 * d : 6 * d]
    return RecursiveLSTDState(theta, z, psi, gain, row, new_row, workspace[6 * d : n], workspace[n:])


@kernel
def recursive_lstd_step(params, options, state, x, t, epoch):
    theta, z, psi, gain, P = state.theta, state.z, state.psi, state.gain, state.P
    row, new_row, d = state.row, state.new_row, state.theta.size
    if update_trace(z, psi, state.memory, params.trace_decay, x):  # P was zero, and so were all features
        for i in range(d):
            P[i * d + i] = 1.0 / (params.ridge * state.memory[1])
    # One sweep over P, which is what it costs: the change that is due, P z and P^T psi.
    for i in range(d):
        new_row[i] = 0.0
    for i in range(d):
        due, psi_i, product = gain[i], psi[i], 0.0
        for j in range(d):
            p = P[i * d + j] - due * row[j]
            P[i * d + j] = p
            product += p * z[j]
            new_row[j] += psi_i * p
        gain[i] = product
    denominator, error = 1.0, x.reward
    for i in range(d):
        denominator += psi[i] * gain[i]
        error -= psi[i] * theta[i]
    for i in range(d):
        gain[i] /= denominator
        theta[i] += gain[i] * error
        row[i] = new_row[i]


@dataclass(frozen=True)
class RecursiveLSTD(LeastSquaresMethod):
    """Least-squares temporal difference learning, theta after every sample.

    >>> RecursiveLSTD(trace_decay=0.5).epoch("markov").n_gradients
    1
    """

    ridge: Annotated[float, "pulls towards theta_0; relative to the squared norms of the first features"] = 1.0

    name = "recursive_lstd"
    kernels = Kernels(recursive_lstd_views, recursive_lstd_step)
    n_vectors = 6
    n_matrices = 1
