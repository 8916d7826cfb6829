"""Limits: the instance-optimal error, the largest stable step size, and the stationary error of TD and VRTD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from vrtd.algorithms import TD, Algorithm, ChainSampling, Constant, RichardsonTD, as_schedule
from vrtd.algorithms.richardson_td import extrapolation_weights
from vrtd.algorithms.vrtd import Output
from vrtd.arrays import Floats, frozen
from vrtd.checks import check_choice, check_exact_count
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem
from vrtd.theory.checks import check_problem
from vrtd.theory.enumeration import enumerated_epoch_map
from vrtd.theory.increments import (
    Correlation,
    Increments,
    correlated_increments,
    independent_increments,
    long_run_noise,
    zeta,
)
from vrtd.theory.markov import MarkovTD, stationary_by_state
from vrtd.theory.moments import (
    Anchor,
    check_epoch_map,
    check_vrtd_features,
    epoch_maps,
    fixed_point,
    inner_radius,
    td_terms,
)

_HALVINGS = 60
_TRUSTED = 0.05  # accepted relative error of the approximation
# Shares of the stability limit: the step at which the approximation is measured, and the largest trusted step.
_SMALL, _LARGE = 1e-3, 0.1
_DRIFT_CHANGE = 0.01  # relative change of the drift that may be neglected
_NO_NOISE = 1e-20  # share of |theta_star|^2 below which an error is rounding


def increments_of(problem: LinearProblem, sampling: ChainSampling) -> Increments:
    """Return the moments of the transitions under this sampling."""
    check_choice("sampling", sampling, get_args(ChainSampling))
    return independent_increments(problem) if sampling == "iid" else correlated_increments(problem)


def instance_optimal(problem: LinearProblem, sampling: ChainSampling = "markov") -> float:
    """Return the instance-optimal error, the limit of n times the least squared error that n samples allow.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    sampling : {"markov", "iid"}, default="markov"
        One trajectory, or independent samples.

    Returns
    -------
    float
        ``tr(A^-1 Sigma A^-T)``.

    Notes
    -----
    Sigma is the covariance of ``g_x(theta_star)`` for independent samples, and its long-run covariance, the sum over
    all lags, for a trajectory. LSTD, the solution of ``A theta + b = 0`` on the sample, attains this error. No method
    that uses a transition only through A_x and b_x, as TD, VRTD and LSTD do, can be better. With independent samples, a
    method that also uses that their states have the stationary distribution of the estimated chain can be better: it
    reaches the value of a trajectory.

    Examples
    --------
    >>> from vrtd.problems import random_mdp
    >>> problem = random_mdp()
    >>> [round(instance_optimal(problem, sampling)) for sampling in ("iid", "markov")]
    [342, 128]
    """
    check_choice("sampling", sampling, get_args(ChainSampling))
    return _optimal(problem.A, long_run_noise(problem, sampling))


def optimal_error(increments: Increments) -> float:
    """Return the instance-optimal error from moments, which may be estimated."""
    return _optimal(increments.A, increments.long_run_covariance())


def _optimal(A: Floats, noise: Floats) -> float:
    half = np.linalg.solve(A, noise)
    return float(np.trace(np.linalg.solve(A, half.T)))


def stationary_second_moment(
    problem: LinearProblem,
    step_size: float,
    batch_size: int = 1,
    output: Output = "random",
    anchor: Anchor = "batch",
    sampling: ChainSampling = "iid",
    method: Literal["exact", "approximate"] = "exact",
) -> Floats:
    """Compute the limit of the second moment of ``theta - theta_star`` for VRTD or TD with a constant step.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    step_size : float
        Step size.
    batch_size : int, default=1
        Transitions per batch. 1 means TD.
    output : {"random", "last", "average", "tail"}, default="random"
        Iterate that an epoch of VRTD returns.
    anchor : {"batch", "mean"}, default="batch"
        Pseudo-gradient at the anchor: the mean over the batch, or, for independent samples, the exact mean. With the
        exact mean the limit is 0.
    sampling : {"iid", "markov"}, default="iid"
        Independent samples, or one trajectory.
    method : {"exact", "approximate"}, default="exact"
        How to treat VRTD on a trajectory (Algorithm 2). The exact method works on tiny chains only.

    Returns
    -------
    ndarray of shape (n_features, n_features)
        The limit of ``E[u u^T]`` with ``u = theta - theta_star``. Its trace is the stationary squared error.

    Raises
    ------
    InvalidInputError
        If the step size is unstable, or if the chain is too large for the exact method.

    Examples
    --------
    >>> from vrtd.problems import random_mdp
    >>> problem = random_mdp()
    >>> [round(float(stationary_second_moment(problem, 0.1, M).trace()), 3) for M in (1, 50)]
    [1.669, 1.056]
    >>> round(float(stationary_second_moment(problem, 0.1, sampling="markov").trace()), 3)
    0.536
    """
    check_problem(problem)
    check_choice("method", method, ("exact", "approximate"))
    what, d = f"step_size {step_size}, batch_size {batch_size}", problem.n_features
    if sampling == "markov" and anchor != "batch":
        raise InvalidInputError(
            f'anchor="mean" needs independent samples, but sampling is {sampling!r}.', "Drop one of the two."
        )
    check_vrtd_features(d, output)
    T = check_epoch_map(increments_of(problem, sampling), step_size, batch_size, output, anchor).later
    if sampling == "iid" or (method == "approximate" and batch_size > 1):
        return frozen(fixed_point(T, d, what))
    if batch_size == 1:
        return frozen(MarkovTD(problem).stationary(float(step_size)))
    exact = enumerated_epoch_map(problem, float(step_size), int(batch_size), output)
    return frozen(stationary_by_state(exact, problem.mrp.stationary, d, what))


def limit_bias(problem: LinearProblem, algorithm: Algorithm) -> Floats:
    """Compute the bias of TD or RichardsonTD on a trajectory in the long run.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    algorithm : TD or RichardsonTD
        Algorithm with a constant step and without projection.

    Returns
    -------
    ndarray of shape (n_features,)
        The limit of ``E[theta] - theta_star``.

    Notes
    -----
    TD with the step ``a``, averaged or not, has the bias ``a c_1 + a^2 c_2 + ...``. RichardsonTD cancels all terms up
    to ``a^(levels - 1)``. With independent samples there is no bias.

    Examples
    --------
    >>> import vrtd
    >>> problem = vrtd.problems.random_mdp()
    >>> biases = [limit_bias(problem, method) for method in (vrtd.TD(0.05), vrtd.RichardsonTD(0.05))]
    >>> [f"{bias @ bias:.1e}" for bias in biases]
    ['1.7e-02', '3.3e-07']
    """
    check_problem(problem)
    match algorithm:
        case TD(step_size, None):
            weights = np.ones(1)
        case RichardsonTD(step_size, levels):
            weights = extrapolation_weights(levels)
        case _:
            raise InvalidInputError(
                f"the bias is known for TD without projection and for RichardsonTD, but not for {algorithm.name}.",
                "Simulate instead.",
            )
    schedule = as_schedule(step_size)
    if not isinstance(schedule, Constant):
        raise InvalidInputError(
            f"step_size must be constant for a bias in the long run, but is {schedule!r}.", "Pass a number."
        )
    recursion = MarkovTD(problem)
    means = [recursion.stationary_mean(2.0**m * schedule.value) for m in range(len(weights))]
    return frozen(weights @ np.stack(means))


def stability_limit(
    problem: LinearProblem, sampling: ChainSampling = "iid", batch_size: int = 1, output: Output = "random"
) -> float:
    """Return the step size below which ``E|theta - theta_star|^2`` stays bounded.

    The limit is exact, except that VRTD on a trajectory is judged by the approximation of ``exact_curve``.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    sampling : {"iid", "markov"}, default="iid"
        Independent samples, or one trajectory.
    batch_size : int, default=1
        Transitions per batch of VRTD. 1 means TD.
    output : {"random", "last", "average", "tail"}, default="random"
        Iterate that an epoch of VRTD returns.

    Returns
    -------
    float
        The step size at which the second moment begins to grow without bound.

    Raises
    ------
    InvalidInputError
        If no step size is stable, which happens if A has an eigenvalue without a negative real part.

    Examples
    --------
    >>> from vrtd.problems import random_mdp
    >>> round(stability_limit(random_mdp()), 2)
    1.14
    """
    check_problem(problem)
    check_choice("sampling", sampling, get_args(ChainSampling))
    check_choice("output", output, get_args(Output))
    check_exact_count("batch_size", batch_size)
    M = int(batch_size)
    norm = float((problem.phi**2).sum(axis=1).max())
    if M == 1 and sampling == "markov":
        return _crossing(MarkovTD(problem).radius, norm)
    if M > 1:
        check_vrtd_features(problem.n_features, output)
    increments = increments_of(problem, sampling)
    if M == 1:
        return stable_below(increments, norm)
    return _crossing(lambda step: inner_radius(epoch_maps(increments, step, [M], output)[M].later), norm)


def approximation_limit(problem: LinearProblem) -> float:
    """Return the step size up to which the approximation of Algorithm 2 is good to about 5 %.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.

    Returns
    -------
    float
        The largest trusted step size. It is a rule of thumb, not a bound.

    Notes
    -----
    The error of the approximation is of first order in the step ``a``. The limit is the least of three steps:

    - a tenth of the stability limit;
    - the step at which the error in the long run is 5 %. It is extrapolated from TD (a batch of one) at a small step,
      where the exact value is known;
    - the step at which the neglected change of the drift A is 1 %. To first order the drift is ``A + a C`` between
      batches and about ``A + (a/3) V`` inside them, with ``C = sum_{k>0} E[(A_k - A)(A_0 - A)]`` and ``V`` the same sum
      over all lags k. So the relative change is ``a max(|A^-1 C|, |A^-1 V|/3)``. A change of 1 % moves the error by
      about 5 % until the initial error has fallen to 2 % of itself, and by 2 to 3 % more for each further factor of 7.

    Examples
    --------
    >>> from vrtd.problems import random_mdp
    >>> round(approximation_limit(random_mdp()), 3)
    0.014
    """
    check_problem(problem)
    check_vrtd_features(problem.n_features, "last")
    increments, d = correlated_increments(problem), problem.n_features
    limit = stable_below(increments, float((problem.phi**2).sum(axis=1).max()))
    step = _SMALL * limit
    approximation = fixed_point(epoch_maps(increments, step, [1], "last")[1].later, d, f"step_size {step}")
    true, near = float(np.trace(MarkovTD(problem).stationary(step))), float(np.trace(approximation))
    noisy = near > _NO_NOISE * float(problem.theta_star @ problem.theta_star)
    assert increments.correlation is not None
    drift = _drift_change(problem, increments.correlation)
    settled = abs(true / near - 1.0) / step if noisy else 0.0
    return min(_LARGE * limit, _TRUSTED / max(settled, 1e-300), _DRIFT_CHANGE / max(drift, 1e-300))


def _drift_change(problem: LinearProblem, correlation: Correlation) -> float:
    """Return the relative change of the drift that the approximation neglects, divided by the step."""
    edges, A, d = problem.mrp.edges, problem.A, problem.n_features
    phi, psi = problem.phi[edges.origin], zeta(problem)[:, :d]
    weight = problem.state_distribution[edges.origin] * edges.probability * (phi * psi).sum(axis=1)
    lags = correlation.within(np.inf).reshape(d, d + 1, d, d + 1)[:, :d, :, :d]
    C = np.einsum("mpjm->jp", lags)
    V = (weight[:, None] * phi).T @ psi - A @ A + C + np.einsum("jmmp->jp", lags)
    between, inside = (float(np.linalg.norm(np.linalg.solve(A, X), 2)) for X in (C, V))
    return max(between, inside / 3.0)


def stable_below(increments: Increments, largest_norm: float) -> float:
    """Return the stability limit of TD on independent transitions; ``largest_norm`` is the largest |phi|^2."""
    still, first, second = td_terms(increments)
    return _crossing(lambda step: inner_radius(still + step * first + step**2 * second), largest_norm)


def _crossing(radius: Callable[[float], float], largest_norm: float) -> float:
    """Return the step at which the radius passes 1, searched for from above."""
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
                f"no step size down to {low:.3g} is mean-square stable: A needs eigenvalues with negative real parts.",
                "Use the stationary distribution of the chain, or other features.",
            )
        return float(brentq(excess, low, high, xtol=1e-12 * low, rtol=1e-12))
