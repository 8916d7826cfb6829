"""What no step size passes and no method beats: the limit of mean-square stability and the instance-optimal error."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms.algorithm import ChainSampling
from vrtd.checks import check_choice, check_exact_count
from vrtd.errors import InvalidInputError
from vrtd.linear_system import LinearSystem
from vrtd.theory.increments import Increments, correlated_increments, independent_increments, long_run_noise
from vrtd.theory.markov import MarkovTD
from vrtd.theory.moments import Output, check_vrtd_features, epoch_maps, fixed_point, td_terms
from vrtd.theory.on_policy import check_system

__all__ = [
    "approximation_limit",
    "increments_of",
    "instance_optimal",
    "optimal_error",
    "stability_limit",
    "stable_below",
]

Floats = NDArray[np.float64]

_HALVINGS = 60
_TRUSTED = 0.05  # relative error of an approximation
_SMALL, _LARGE = 1e-3, 0.1  # of the stability limit: where it is measured, and where trust ends


def increments_of(system: LinearSystem, sampling: ChainSampling) -> Increments:
    """Moments of the transitions that this sampling gives."""
    check_choice("sampling", sampling, get_args(ChainSampling))
    return independent_increments(system) if sampling == "iid" else correlated_increments(system)


def instance_optimal(system: LinearSystem, sampling: ChainSampling = "markov") -> float:
    """tr(A^-1 Sigma A^-T): n times the squared error, in the long run, of the best that n samples allow.

    Sigma is the covariance of g_x(theta_star); on a trajectory its long-run covariance, with every lag. It is what
    solving the sample's own A theta + b = 0 attains, and no method does better that uses a transition only through A_x
    and b_x, as TD, VRTD and LSTD do. (From independent samples, one that knows that their states are stationary under
    the very chain it estimates can: it reaches the value of a trajectory.)

    >>> from vrtd.problems import random_mdp
    >>> system = LinearSystem(*random_mdp())
    >>> [round(instance_optimal(system, sampling)) for sampling in ("iid", "markov")]
    [342, 128]
    """
    check_choice("sampling", sampling, get_args(ChainSampling))
    return _optimal(system.A, long_run_noise(system, sampling))


def optimal_error(increments: Increments) -> float:
    """The same from moments, which may be estimated."""
    return _optimal(increments.A, increments.long_run_covariance())


def _optimal(A: Floats, noise: Floats) -> float:
    half = np.linalg.solve(A, noise)
    return float(np.trace(np.linalg.solve(A, half.T)))


def stability_limit(
    system: LinearSystem, sampling: ChainSampling = "iid", batch_size: int = 1, output: Output = "random"
) -> float:
    """The step size below which E|theta - theta_star|^2 stays bounded: TD's, or VRTD's with this batch size.

    VRTD on a trajectory is judged by the approximation of Algorithm 2 (`exact_curve` says what it leaves out).

    >>> from vrtd.problems import random_mdp
    >>> round(stability_limit(LinearSystem(*random_mdp())), 2)
    1.14
    """
    check_system(system)
    check_choice("sampling", sampling, get_args(ChainSampling))
    check_choice("output", output, get_args(Output))
    check_exact_count("batch_size", batch_size)
    M = int(batch_size)
    norm = float((system.phi**2).sum(axis=1).max())
    if M == 1 and sampling == "markov":
        return _crossing(MarkovTD(system).radius, norm)
    if M > 1:
        check_vrtd_features(system.n_features, output)
    increments = increments_of(system, sampling)
    if M == 1:
        return stable_below(increments, norm)
    return _crossing(lambda step: _radius(epoch_maps(increments, step, [M], output)[M].later), norm)


def approximation_limit(system: LinearSystem) -> float:
    """The step size up to which the approximation of Algorithm 2 is trusted, to about 5 %.

    Its error is of first order in the step, and largest for small batches. So it is measured where the truth is known:
    on the stationary error of TD, the approximation with a batch of one, at a small step; 5 % of error are then
    extrapolated, and never more than a tenth of the stability limit.

    >>> from vrtd.problems import random_mdp
    >>> round(approximation_limit(LinearSystem(*random_mdp())), 3)
    0.068
    """
    increments, d = correlated_increments(system), system.n_features
    limit = stable_below(increments, float((system.phi**2).sum(axis=1).max()))
    step = _SMALL * limit
    approximation = fixed_point(epoch_maps(increments, step, [1], "last")[1].later, d, f"step_size {step}")
    true, near = float(np.trace(MarkovTD(system).stationary(step))), float(np.trace(approximation))
    error = abs(true / near - 1.0) if near > 0.0 else 0.0  # without noise both are 0
    return min(_LARGE * limit, step * _TRUSTED / max(error, 1e-12))


def stable_below(increments: Increments, largest_norm: float) -> float:
    """The stability limit of TD on independent transitions with these moments; `largest_norm` is that of |phi|^2."""
    still, first, second = td_terms(increments)
    return _crossing(lambda step: _radius(still + step * first + step**2 * second), largest_norm)


def _radius(T: Floats) -> float:
    inner = T[:-1, :-1]  # all but the 1 of y
    return float(np.abs(np.linalg.eigvals(inner)).max()) if np.isfinite(inner).all() else np.inf


def _crossing(radius: Callable[[float], float], largest_norm: float) -> float:
    """The step at which the radius passes 1, looked for from above."""
    from scipy.optimize import brentq

    def excess(step: float) -> float:
        return min(radius(step), 2.0) - 1.0

    with np.errstate(over="ignore", invalid="ignore"):
        high = 4.0 / largest_norm
        while excess(high) < 0.0:
            high *= 2.0
        low = high / 2.0
        for _ in range(_HALVINGS):
            if excess(low) < 0.0:
                break
            low, high = low / 2.0, low
        else:
            raise InvalidInputError(
                "some step size must be mean-square stable, which needs A with eigenvalues of negative real part",
                f"none down to {low:.3g}",
                "use the chain's own stationary distribution, or other features",
            )
        return float(brentq(excess, low, high, xtol=1e-12 * low, rtol=1e-12))
