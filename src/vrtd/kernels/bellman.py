"""Temporal differences of one transition x: g_x(theta) = A_x theta + b_x, with A_x = phi (gamma phi' - phi)^T."""

from __future__ import annotations

from vrtd.kernels.jit import kernel


@kernel
def bootstrap_difference(theta, x):
    """(gamma phi' - phi) . theta"""
    total = 0.0
    for i in range(theta.size):
        total += (x.discount * x.phi_next[x.row_next, i] - x.phi[x.row, i]) * theta[i]
    return total


@kernel
def td_error(theta, x):
    """delta = r + gamma phi'.theta - phi.theta"""
    return x.reward + bootstrap_difference(theta, x)


@kernel
def add_pseudo_gradient(total, scale, theta, x):
    """total += scale * g_x(theta), g_x(theta) = weight * delta * phi  (Section 2.2); `total` may be `theta` itself."""
    factor = scale * x.weight * td_error(theta, x)
    for i in range(theta.size):
        total[i] += factor * x.phi[x.row, i]
