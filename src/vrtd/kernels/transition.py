"""A transition x as algorithms see it, and its pseudo-gradient.

g_x(theta) = A_x theta + b_x, with A_x = phi (gamma phi' - phi)^T.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from vrtd.kernels.jit import kernel


class Transition(NamedTuple):
    """What one sample tells: features are never copied, only pointed at."""

    phi: Any  # (n, d) table of feature rows: the states of a chain, the rows of a log, what a simulator just computed
    row: Any  # phi[row] are the features of the state that was left
    phi_next: Any  # the same table, or, for a log, that of the successors
    row_next: Any  # phi_next[row_next] are the features of the state that was reached
    reward: Any
    discount: Any  # gamma; 0 where the transition terminates
    weight: Any  # importance ratio; 1 on policy
    carry: Any  # the discount of a trace: `discount`, or 0 where the next sample does not go on from this one


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
