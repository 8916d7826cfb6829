"""Limits: the instance-optimal error, the largest stable step size, and where the error settles in the long run."""

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
_TRUSTED = 0.05  # relative error of an approximation
_SMALL, _LARGE = 1e-3, 0.1  # of the stability limit: where it is measured, and where trust ends
_DRIFT_CHANGE = 0.01  # relative change of the drift that may be neglected
_NO_NOISE = 1e-20  # of |theta_star|^2: rounding


def increments_of(problem: LinearProblem, sampling: ChainSampling) -> Increments:
    """Moments of the transitions that this sampling gives."""
    check_choice("sampling", sampling, get_args(ChainSampling))
    return independent_increments(problem) if sampling == "iid" else correlated_increments(problem)


def instance_optimal(problem: LinearProblem, sampling: ChainSampling = "markov") -> float:
    """tr(A^-1 Sigma A^-T): n times the squared error, in the long run, of the best that n samples allow.

    Sigma is the covariance of g_x(theta_star); on a trajectory its long-run covariance, with every lag. It is what
    solving the sample's own A theta + b = 0 attains, and no method does better that uses a transition only through A_x
    and b_x, as TD, VRTD and LSTD do. (From independent samples, one that knows that their states are stationary under
    the very chain it estimates can: it reaches the value of a trajectory.)

    >>> from vrtd.problems import random_mdp
    >>> problem = random_mdp()
    >>> [round(instance_optimal(problem, sampling)) for sampling in ("iid", "markov")]
    [342, 128]
    """
    check_choice("sampling", sampling, get_args(ChainSampling))
    return _optimal(problem.A, long_run_noise(problem, sampling))


def optimal_error(increments: Increments) -> float:
    """Return the same from moments, which may be estimated."""
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
    """(d, d) limit of E[u u^T] for VRTD; for TD with the default batch size of 1.

    On a trajectory with batches above 1 (Algorithm 2) it is exact on tiny chains; elsewhere `method="approximate"` must
    be asked for. With the `anchor` "mean" (independent samples only) the limit is 0.

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
            'anchor "mean" is for independent samples', f"sampling {sampling!r}", "drop one of them"
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
    """(d,) the mean of what TD or RichardsonTD returns along a trajectory, in the long run, minus theta_star.

    TD with the step a, averaged or not, has the bias a c_1 + a^2 c_2 + ...; RichardsonTD cancels all terms before that
    with a^levels. From independent samples there is no bias.

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
                "the bias is known for TD without projection and RichardsonTD", algorithm.name, "simulate instead"
            )
    schedule = as_schedule(step_size)
    if not isinstance(schedule, Constant):
        raise InvalidInputError("a bias in the long run is that of a constant step", repr(schedule), "pass a number")
    recursion = MarkovTD(problem)
    means = [recursion.stationary_mean(2.0**m * schedule.value) for m in range(len(weights))]
    return frozen(weights @ np.stack(means))


def stability_limit(
    problem: LinearProblem, sampling: ChainSampling = "iid", batch_size: int = 1, output: Output = "random"
) -> float:
    """The step size below which E|theta - theta_star|^2 stays bounded: TD's, or VRTD's with this batch size.

    VRTD on a trajectory is judged by the approximation of Algorithm 2 (`exact_curve` says what it leaves out).

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
    """The step size up to which the approximation of Algorithm 2 is trusted, to about 5 %.

    Its error is of first order in the step a. The limit is the least of three steps:

    - a tenth of the stability limit;
    - the step at which the error in the long run is 5 %. It is measured where the truth is known, on TD (a batch of
      one) at a small step, and extrapolated;
    - the step at which the neglected change of the drift A is 1 %. To first order the drift is A + a C between batches
      and about A + (a/3) V inside them, with C = sum_{k>0} E[(A_k - A)(A_0 - A)] and V the same sum over all lags k,
      so the change is a max(|A^-1 C|, |A^-1 V|/3). A change of 1 % moves the error by about 5 % by the time that the
      initial error has fallen to 2 % of itself, and by 2 to 3 % more for each further factor of seven.

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
    """The relative change of the drift that the approximation neglects, over the step."""
    edges, A, d = problem.mrp.edges, problem.A, problem.n_features
    phi, psi = problem.phi[edges.origin], zeta(problem)[:, :d]
    weight = problem.state_distribution[edges.origin] * edges.probability * (phi * psi).sum(axis=1)
    lags = correlation.within(np.inf).reshape(d, d + 1, d, d + 1)[:, :d, :, :d]
    C = np.einsum("mpjm->jp", lags)
    V = (weight[:, None] * phi).T @ psi - A @ A + C + np.einsum("jmmp->jp", lags)
    between, inside = (float(np.linalg.norm(np.linalg.solve(A, X), 2)) for X in (C, V))
    return max(between, inside / 3.0)


def stable_below(increments: Increments, largest_norm: float) -> float:
    """The stability limit of TD on independent transitions with these moments; `largest_norm` is that of |phi|^2."""
    still, first, second = td_terms(increments)
    return _crossing(lambda step: inner_radius(still + step * first + step**2 * second), largest_norm)


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
