"""Constants kappa and rho of geometric mixing: sup_s TV(P^t(s, .), mu) <= kappa rho^t for every t >= 0."""

from __future__ import annotations

import math

import numpy as np

from vrtd.arrays import Floats
from vrtd.errors import AccuracyError

#: The smallest rho that is reported. A smaller one hardly reduces kappa/(1 - rho), and bounds use ln(1/rho).
SMALLEST_RATE = 1e-8
#: d(t) is not followed below this. Its relative error is small, so 1e-40 is above the rounding error.
FLOOR = 1e-40


def mixing_constants(P: Floats, mu: Floats) -> tuple[float, float]:
    """Return the pair (kappa, rho) that minimises kappa/(1 - rho), for an aperiodic dense chain with one closed class.

    Let d(t) = max_s TV(P^t(s, .), mu). The smallest valid kappa at rho is max_t d(t)/rho^t. The maximum is over
    finitely many t: d(t + T) <= 2 d(T) d(t), so no larger ratio occurs after the first T with 2 d(T) <= rho^T. Hence d
    is computed only until such a T exists for the best rho, up to an excess of 1e-3 in the logarithm of the objective
    (or until d is below 1e-40, which may cost one percent). No eigenvalue is needed. In x = ln rho, the objective max_t
    (ln d(t) - t x) - ln(1 - e^x) is convex, so bisection of its slope finds the minimiser.

    Each d(t) costs a matrix product. After the first ``2 grid`` times, d is computed at ``grid`` times per doubling of
    t and held constant in between. As d never increases, the result is still an upper bound. It is loose by a few
    percent for slow chains, and by up to a half for slow chains of more than 512 states.

    >>> kappa, rho = mixing_constants(np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([4, 3]) / 7)
    >>> round(kappa, 6), round(rho, 2)  # the second eigenvalue is 0.3
    (0.571429, 0.3)
    """
    n = P.shape[0]
    grid = 1024 if n <= 128 else 256 if n <= 512 else 32
    power, stride = P, 1
    deviation = np.eye(n) - mu  # P^t - 1 mu, at t = 0
    t, next_look = 0, 1
    last, log_d = [], []  # log_d[i] bounds ln d at the i-th time and until last[i]
    promise = math.inf  # the smallest ln(2 d(T))/T so far: kappa is proved for every larger ln rho
    while True:
        d = max(0.5 * float(np.abs(deviation).sum(axis=1).max()), 1e-300)
        last.append(t + stride - 1)
        log_d.append(math.log(d))
        if t:
            promise = min(promise, math.log(2.0 * d) / t)
        if t and (d <= FLOOR or (len(last) >= next_look and promise < 0.0)):
            next_look = len(last) + max(1, len(last) // 4)
            times, logs = np.array(last, dtype=np.float64), np.array(log_d)
            best = _minimiser(times, logs)
            proved = max(best, promise)  # as the objective is convex, the proved point nearest to its minimum
            if d <= FLOOR or _objective(proved, times, logs) <= _objective(best, times, logs) + 1e-3:
                break
        if t > 2**50:
            raise AccuracyError(
                f"The chain does not approach its stationary distribution: after 2^50 steps, the distance is {d:.3g}. "
                "Use a chain that is not nearly reducible or nearly periodic."
            )
        # Large chains that have hardly begun to mix take larger strides, which do not loosen the bound.
        if t >= (16 if n > 512 and d > 0.5 else 2 * grid) * stride:
            power = power @ power
            power /= power.sum(axis=1, keepdims=True)
            stride *= 2
            last[-1] = t + stride - 1
        deviation = deviation @ power
        deviation -= deviation.sum(axis=1, keepdims=True) * mu  # rows sum to 0, so the error stays relative to d(t)
        t += stride
    log_rho = min(proved, -1e-16)
    log_kappa = float((logs - times * log_rho).max())
    return math.exp(log_kappa) * (1.0 + 1e-9), math.exp(log_rho)  # the factor covers rounding in d(t)


def _objective(x: float, times: Floats, log_d: Floats) -> float:
    return float((log_d - times * x).max()) - math.log(-math.expm1(x))


def _minimiser(times: Floats, log_d: Floats) -> float:
    """Return ln rho at the minimum of ``_objective``.

    The slope is rho/(1 - rho) minus the time that attains the maximum.
    """
    low, high = math.log(1e-16), math.log(-math.log(SMALLEST_RATE))  # bounds of ln(-x), which resolves rho near 1
    for _ in range(60):
        middle = 0.5 * (low + high)
        x = -math.exp(middle)
        if -math.exp(x) / math.expm1(x) > times[int((log_d - times * x).argmax())]:
            low = middle
        else:
            high = middle
    return -math.exp(high)
