"""Exact first and second moments of TD and of VRTD (Algorithm 1) on i.i.d. transitions: no simulation.

Notation: u = theta - theta_star, m = E u, S = E[u u^T], a the step size, h = g_x(theta_star), Sigma = E[h h^T],
B = I + a A, Q = E[(I + a A_x) kron (I + a A_x)]; vec is row-major, so (X kron Y) vec(S) = vec(X S Y^T).

One epoch of Algorithm 1 with batch size M moves theta_anchor by a K_t G. Here G = g_m(theta_anchor) is the batch mean
and K_{t+1} = (I + a A_x) K_t + I, K_0 = 0, is driven by the inner samples, independent of theta_anchor and G. With
M = 1 there is no inner sample (K_1 = I) and an epoch is one TD update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import frozen, real_array
from vrtd.checks import check_choice, check_count, check_positive
from vrtd.errors import InvalidInputError
from vrtd.linear_system import LinearSystem

__all__ = ["Moments", "Output", "stationary_second_moment", "td_iid_moments", "vrtd_iid_moments"]

Floats = NDArray[np.float64]
Output = Literal["random", "last", "average"]


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments along a run: `mean[k]` = E theta_k, (T+1, d), and `second[k]` = E[u_k u_k^T], (T+1, d, d)."""

    mean: Floats
    second: Floats

    @property
    def squared_error(self) -> Floats:
        """(T+1,) E|theta_k - theta_star|^2."""
        error: Floats = np.einsum("kii->k", self.second)
        return error


def td_iid_moments(system: LinearSystem, step_size: ArrayLike, n_updates: int, theta_0: ArrayLike) -> Moments:
    """Moments of TD after 0..n_updates updates; `step_size` is a number or one per update.

    m' = B m;  S' = E[(I + a A_x) S (I + a A_x)^T] + a^2 (E[A_x m h^T] + its transpose + Sigma).

    >>> from vrtd.problems import random_mdp
    >>> moments = td_iid_moments(LinearSystem(*random_mdp()), 0.1, 2000, [0.0] * 4)
    >>> round(float(moments.squared_error[-1]), 2)
    1.67
    """
    check_count("n_updates", n_updates, least=0)
    n = int(n_updates)
    steps = real_array("step_size", step_size)
    if steps.shape not in ((), (n,)):
        raise InvalidInputError(
            f"step_size must be a number or have the shape ({n},)", steps.shape, "pass n_updates steps"
        )
    steps = np.broadcast_to(steps, (n,))
    if not (steps > 0.0).all():
        k = int(np.flatnonzero(~(steps > 0.0))[0])
        raise InvalidInputError("step_size must be positive", f"{steps[k]} at update {k}", "pass numbers above 0")
    first, square, cross = _operators(system)
    sigma = system.noise_covariance.ravel()
    mean, second = _start(system, theta_0, n)
    for k, a in enumerate(steps):
        m, S = mean[k], second[k].ravel()
        mean[k + 1] = m + a * (system.A @ m)
        second[k + 1].flat = S + a * (first @ S) + a * a * (square @ S + cross @ m + sigma)
    return _moments(system, mean, second)


def vrtd_iid_moments(
    system: LinearSystem,
    step_size: float,
    batch_size: int,
    n_epochs: int,
    theta_0: ArrayLike,
    output: Output = "random",
) -> Moments:
    """Moments of theta_anchor in VRTD, Algorithm 1, after 0..n_epochs epochs.

    `output` is what an epoch hands on: "random", theta_{m,t} with t uniform on 1..M; "last", theta_{m,M}; "average",
    the mean of theta_{m,1..M}. With Kbar and K2 the first two moments of the matching K (`_epoch_moments`),

    m' = (I + a Kbar A) m;  S' = S + a Kbar A S + its transpose + a^2 K2[E G G^T],
    E[G G^T] = (1 - 1/M) A S A^T + (E[A_x S A_x^T] + E[A_x m h^T] + its transpose + Sigma) / M.

    The cost is batch_size products of (d^2, d^2) matrices, then one such product with a vector an epoch.

    >>> from vrtd.problems import random_mdp
    >>> moments = vrtd_iid_moments(LinearSystem(*random_mdp()), 0.1, 50, 400, [0.0] * 4)
    >>> round(float(moments.squared_error[-1]), 2)
    1.06
    """
    check_count("n_epochs", n_epochs, least=0)
    n = int(n_epochs)
    mean_map, second_map, mean_to_second, constant = _epoch_map(system, step_size, batch_size, output)
    mean, second = _start(system, theta_0, n)
    for k in range(n):
        mean[k + 1] = mean_map @ mean[k]
        second[k + 1].flat = second_map @ second[k].ravel() + mean_to_second @ mean[k] + constant
    return _moments(system, mean, second)


def stationary_second_moment(
    system: LinearSystem, step_size: float, batch_size: int = 1, output: Output = "random"
) -> Floats:
    """(d, d) limit of E[u u^T] for VRTD, Algorithm 1; TD with the default batch size of 1.

    >>> from vrtd.problems import random_mdp
    >>> system = LinearSystem(*random_mdp())
    >>> [round(float(stationary_second_moment(system, 0.1, M).trace()), 3) for M in (1, 50)]
    [1.669, 1.056]
    """
    with np.errstate(all="ignore"):  # an unstable inner loop overflows: the check below is for that
        _, second_map, _, constant = _epoch_map(system, step_size, batch_size, output)
    finite = bool(np.isfinite(second_map).all())
    radius = float(np.abs(np.linalg.eigvals(second_map)).max()) if finite else np.inf
    if not radius < 1.0:
        raise InvalidInputError(
            "step_size and batch_size must be mean-square stable, with a spectral radius below 1",
            f"step_size {step_size}, batch_size {batch_size} and radius {radius:.6g}",
            "lower step_size",
        )
    d = system.n_features
    limit = np.linalg.solve(np.eye(d * d) - second_map, constant)
    return frozen(np.asarray(limit, dtype=np.float64).reshape(d, d))


def _operators(system: LinearSystem) -> tuple[Floats, Floats, Floats]:
    """A kron I + I kron A, E[A_x kron A_x], and m -> vec(E[A_x m h^T] + its transpose), as matrices."""
    d = system.n_features
    eye = np.eye(d)
    first = np.kron(system.A, eye) + np.kron(eye, system.A)
    units = np.eye(d * d).reshape(d * d, d, d)
    square = np.stack([system.expected_square(unit).ravel() for unit in units], axis=1)
    cross = np.stack([2.0 * system.expected_cross(unit).ravel() for unit in eye], axis=1)
    return first, square, cross


def _epoch_map(
    system: LinearSystem, step_size: float, batch_size: int, output: Output
) -> tuple[Floats, Floats, Floats, Floats]:
    """The affine map of one epoch: m' = (0) m and vec S' = (1) vec S + (2) m + (3)."""
    check_positive("step_size", step_size)
    check_count("batch_size", batch_size)
    check_choice("output", output, get_args(Output))
    a, M = float(step_size), int(batch_size)
    d = system.n_features
    first, square, cross = _operators(system)
    eye = np.eye(d)
    Q = np.eye(d * d) + a * first + a * a * square
    Kbar, K2 = _epoch_moments(eye + a * system.A, Q, M, output)
    drift = a * Kbar @ system.A
    gradient_square = (1.0 - 1.0 / M) * np.kron(system.A, system.A) + square / M
    second_map = np.eye(d * d) + np.kron(drift, eye) + np.kron(eye, drift) + a * a * (K2 @ gradient_square)
    return eye + drift, second_map, a * a / M * (K2 @ cross), a * a / M * (K2 @ system.noise_covariance.ravel())


def _epoch_moments(B: Floats, Q: Floats, M: int, output: Output) -> tuple[Floats, Floats]:
    """E K and E[K kron K] for the K that an epoch hands on.

    K' = B_x K + I with B_x independent of K gives E K' = B E K + I and
    E[K' kron K'] = Q E[K kron K] + (B E K) kron I + I kron (B E K) + I. "last" takes them at t = M, "random" averages
    them over t = 1..M. "average" is K = R_M / M with the running sum R' = R + K', for which
    E[R kron K'] = (I kron B) E[R kron K] + E R kron I, E[R' kron K'] = E[R kron K'] + E[K' kron K'] (likewise with the
    factors exchanged) and E[R' kron R'] = E[R kron R] + E[R kron K'] + E[K' kron R] + E[K' kron K'].
    """
    d = B.shape[0]
    eye, eye2 = np.eye(d), np.eye(d * d)
    right, left = np.kron(eye, B), np.kron(B, eye)
    K, KK = np.zeros((d, d)), np.zeros((d * d, d * d))
    R, RR, RK, KR, sum_KK = np.zeros_like(K), np.zeros_like(KK), np.zeros_like(KK), np.zeros_like(KK), np.zeros_like(KK)
    for _ in range(M):
        BK = B @ K
        K, KK = BK + eye, Q @ KK + np.kron(BK, eye) + np.kron(eye, BK) + eye2
        if output == "average":
            RK, KR = right @ RK + np.kron(R, eye), left @ KR + np.kron(eye, R)
            RR = RR + RK + KR + KK
            RK, KR = RK + KK, KR + KK
        R = R + K
        sum_KK += KK
    if output == "last":
        return K, KK
    return R / M, (RR / M**2 if output == "average" else sum_KK / M)


def _start(system: LinearSystem, theta_0: ArrayLike, n: int) -> tuple[Floats, Floats]:
    d = system.n_features
    theta = real_array("theta_0", theta_0)
    if theta.shape != (d,):
        raise InvalidInputError(f"theta_0 must have the shape ({d},)", theta.shape, "pass one number per feature")
    mean, second = np.empty((n + 1, d)), np.empty((n + 1, d, d))
    mean[0] = theta - system.theta_star
    second[0] = np.outer(mean[0], mean[0])
    return mean, second


def _moments(system: LinearSystem, mean: Floats, second: Floats) -> Moments:
    return Moments(frozen(mean + system.theta_star), frozen(second))
