"""Least-squares TD(lambda) that updates an inverse matrix, so that theta is available after every sample.

P, the inverse of ridge s I + A, is updated by the formula of Sherman and Morrison, with d^2 operations per sample.
theta is the solution of `LSTD` with the same ridge::

    z_t = rho_t (c_{t-1} lambda z_{t-1} + phi_t),   psi_t = phi_t - gamma_t phi'_t
    k = P z / (1 + psi.P z),   theta += k (r - psi.theta),   P -= k (P^T psi)^T,   P_0 = I / (ridge s)

The scale s = ``|phi|^2 + |gamma phi'|^2`` is that of the first sample whose features are not all zero. For this sample
the denominator is positive if ridge > rho / 2, because ``|phi.gamma phi'| <= s / 2``. With a much smaller ridge the
denominator can come close to 0. The digits that this costs are never recovered, because P accumulates its errors.

S. J. Bradtke, A. G. Barto (1996), Linear least-squares algorithms for temporal difference learning, Machine Learning.
The update is derived here from the sums of `LSTD`, with which it is tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from vrtd.algorithms._base.algorithm import Kernels
from vrtd.algorithms._base.least_squares import LeastSquaresMethod, update_trace
from vrtd.arrays import Floats
from vrtd.kernels.jit import kernel


class RecursiveLSTDState(NamedTuple):
    theta: Floats
    z: Floats
    psi: Floats
    gain: Floats  # k of the previous sample, whose change of P is still to be made
    row: Floats  # P^T psi of the previous sample
    new_row: Floats
    P: Floats  # (d d,) row by row
    memory: Floats  # two numbers: c of the previous sample, and s


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
    if update_trace(z, psi, state.memory, params.trace_decay, x):  # P and all features were zero until now
        for i in range(d):
            P[i * d + i] = 1.0 / (params.ridge * state.memory[1])
    # A single pass over P, which dominates the cost, makes the pending change and computes P z and P^T psi.
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
    """Recursive least-squares temporal difference learning.

    It computes the solution of `LSTD` after every sample. One update costs of the order of d^2 operations.

    Parameters
    ----------
    trace_decay : float, default=0.0
        Trace decay lambda.
    ridge : float, default=1.0
        Ridge parameter, relative to the squared norms of the first features. The ridge pulls towards theta_0. A small
        one costs digits.

    Examples
    --------
    >>> RecursiveLSTD(trace_decay=0.5).epoch("markov").n_gradients
    1
    """

    ridge: float = 1.0

    name = "recursive_lstd"
    kernels = Kernels(recursive_lstd_views, recursive_lstd_step)
    n_vectors = 6
    n_matrices = 1
