"""Exact error curves and moments of TD and VRTD, computed without simulation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.algorithms import (
    TD,
    VRTD,
    Algorithm,
    ChainSampling,
    RichardsonTD,
    as_schedule,
    check_sampling,
)
from vrtd.algorithms.richardson_td import extrapolation_weights
from vrtd.algorithms.vrtd import Output
from vrtd.arrays import Floats, check_theta, real_array
from vrtd.checks import check_choice, check_count, check_exact_count
from vrtd.engine.arguments import check_arguments, checkpoint_axis, start_distribution
from vrtd.engine.simulation import make_form
from vrtd.errors import InvalidInputError
from vrtd.metrics import QuadraticForm
from vrtd.problems import LinearProblem
from vrtd.result import EngineState, Result
from vrtd.theory.checks import check_problem
from vrtd.theory.enumeration import is_enumerable
from vrtd.theory.increments import independent_increments
from vrtd.theory.limits import increments_of
from vrtd.theory.moments import (
    LAST_ITERATE,
    Anchor,
    Iterates,
    Moments,
    check_epoch_map,
    check_vrtd_features,
    read_moments,
    successive_epoch_maps,
)
from vrtd.theory.paths import batch_sizes_until, enumerated_vrtd_path, follow_epochs, split_schedule, td_path
from vrtd.theory.symmetric import pack, triangle, unpack

Method = Literal["auto", "exact", "approximate"]

EXACT = "exact"
APPROXIMATION = "approximation: inner samples as if independent of the batches, whose means have exact covariances"
# Limit on the size of an array with the moments of every update or epoch.
_MOST_NUMBERS = 200_000_000


def exact_curve(
    problem: LinearProblem,
    algorithm: Algorithm,
    *,
    sampling: ChainSampling = "markov",
    n_gradients: int = 100_000,
    theta_0: ArrayLike | None = None,
    initial: int | ArrayLike = "stationary",
    metrics: Sequence[str | QuadraticForm] = ("squared_error",),
    checkpoints: int | ArrayLike = 200,
    method: Method = "auto",
) -> Result:
    """Compute the expected error curve of ``vrtd.simulate`` without simulation.

    The curve is exact for TD and RichardsonTD with any schedule, for averaged TD, and for VRTD on independent samples,
    with batches of constant or growing size. For VRTD on a trajectory (Algorithm 2) it is exact on tiny chains and an
    approximation elsewhere. The approximation is good to a few percent up to the step size of ``approximation_limit``.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    algorithm : Algorithm
        ``TD``, ``RichardsonTD`` or ``VRTD``, without projection.
    sampling : {"markov", "iid"}, default="markov"
        One trajectory, or independent samples.
    n_gradients : int, default=100_000
        Pseudo-gradients that the run evaluates.
    theta_0 : array_like of shape (n_features,), default=None
        Start. By default it is the zero vector.
    initial : "stationary", int or array_like of shape (n_states,), default="stationary"
        Distribution of the first state of the trajectory, or the first state itself.
    metrics : sequence of str or QuadraticForm, default=("squared_error",)
        Metrics to compute.
    checkpoints : int or array_like of int, default=200
        Number of recorded points, or the numbers of pseudo-gradients at which to record.
    method : {"auto", "exact", "approximate"}, default="auto"
        How to treat VRTD on a trajectory. "auto" is exact where the chain and the batch are small enough.

    Returns
    -------
    Result
        A result with one run, which holds the expected values. ``result.theta`` is the mean of theta at the end, and
        ``result.provenance["method"]`` says whether the curve is exact.

    Raises
    ------
    InvalidInputError
        If no exact moments are known for the algorithm, or if the problem is too large.

    Examples
    --------
    >>> import vrtd
    >>> problem = vrtd.problems.random_mdp(seed=0)
    >>> curve = exact_curve(problem, vrtd.TD(0.1), sampling="iid", n_gradients=80_000)
    >>> round(float(curve.values("squared_error")[0, -1]), 3)
    1.669
    """
    check_arguments(algorithm, sampling, 1, n_gradients, 0, metrics, None)
    check_sampling(algorithm, sampling)
    check_choice("method", method, (EXACT, "approximate", "auto"))
    check_choice("sampling", sampling, get_args(ChainSampling))
    check_problem(problem)
    distribution, d = start_distribution(problem, sampling, initial), problem.n_features
    theta = check_theta("theta_0", theta_0, d)
    forms = [make_form(metric, problem) for metric in metrics]
    epoch = algorithm.epoch(sampling)
    if n_gradients < epoch.least_gradients:
        raise InvalidInputError(
            f"n_gradients must be at least {epoch.least_gradients}, which is one epoch, but is {n_gradients}.",
            "Raise n_gradients or lower the batch size.",
        )
    if np.ndim(checkpoints) == 0:
        check_count("checkpoints", checkpoints)
    axis = checkpoint_axis(checkpoints, 0, int(n_gradients))
    counts, place = np.unique(epoch.epochs_at(axis), return_inverse=True)
    n_epochs, label = int(counts[-1]), EXACT
    match algorithm:
        case TD(radius=radius) | VRTD(radius=radius) if radius is not None:
            raise InvalidInputError(
                f"exact moments exist for methods without projection only, but radius is {radius}.",
                "Drop the radius, or simulate.",
            )
        case TD(step_size, _, average):
            iterates = Iterates(weights=(1.0,)) if average else LAST_ITERATE
            steps = split_schedule(as_schedule(step_size), n_epochs)
            Y = td_path(problem, steps, sampling, counts, theta, distribution, iterates)
        case RichardsonTD(step_size, levels, burn_in):
            iterates = Iterates(int(levels), tuple(extrapolation_weights(levels).tolist()))
            steps = split_schedule(as_schedule(step_size), n_epochs)
            Y = td_path(problem, steps, sampling, counts, theta, distribution, iterates, int(burn_in))
        case VRTD(step_size, 1) if sampling == "markov" and not algorithm.grows:
            Y = td_path(problem, [(float(step_size), 0, n_epochs)], sampling, counts, theta, distribution)
        case VRTD(step_size, batch_size):
            if epoch.inner_samples != ("fresh" if sampling == "iid" else "resample") and (
                batch_size > 1 or algorithm.grows
            ):
                raise InvalidInputError(
                    "exact moments exist for Algorithm 1 on independent samples and for Algorithm 2 on a trajectory, "
                    f"but inner={algorithm.inner!r} was combined with {sampling} samples.",
                    "Drop inner, or simulate.",
                )
            check_vrtd_features(d, algorithm.returned)
            sizes = batch_sizes_until(epoch, n_epochs)
            if sampling == "markov" and (
                method == EXACT or (method == "auto" and all(is_enumerable(problem, M) for M in reversed(sizes)))
            ):
                path = enumerated_vrtd_path(problem, algorithm, sizes, counts, theta, distribution)
            else:
                if sampling == "markov":
                    label = APPROXIMATION
                    if not np.array_equal(distribution, problem.mrp.stationary):
                        raise InvalidInputError(
                            f'initial must be "stationary" for the approximation of Algorithm 2, but is {initial!r}.',
                            "Drop initial, or simulate.",
                        )
                increments, n_steps = increments_of(problem, sampling), algorithm.n_steps
                first, later = successive_epoch_maps(increments, step_size, sizes, algorithm.returned, n_steps)
                path = follow_epochs(increments.start(theta), first, later, counts)
            Y = unpack(path, d + 1)
        case _:
            raise InvalidInputError(
                f"exact moments are known for TD, RichardsonTD and VRTD, but not for {algorithm.name}.",
                "Simulate instead.",
            )

    with np.errstate(over="ignore", invalid="ignore"):
        curves = _errors(Y, problem.theta_star, forms)[None, place]
    theta_end = Y[-1:, :-1, -1] + problem.theta_star
    finite = np.isfinite(Y).reshape(len(Y), -1).min(axis=1)
    gone = np.flatnonzero(~(np.isfinite(curves[0]).all(axis=-1) & finite[place]))
    if gone.size:
        curves[0, gone[0] :] = theta_end[:] = np.nan
    provenance = {
        "algorithm": algorithm.settings,
        "problem": problem.digest,
        "sampling": sampling,
        "method": label,
        "n_runs": 1,
        "theta_0": theta.tolist(),
        "initial": np.asarray(initial).tolist(),
    }
    return Result(
        axis,
        epoch.samples_at(axis),
        tuple(form.name for form in forms),
        curves,
        theta_end,
        np.array([axis[gone[0]] if gone.size else -1]),
        provenance,
        EngineState(np.zeros((1, 0)), *[np.zeros((1, 0), np.uint64)] * 3),
    )


def td_iid_moments(problem: LinearProblem, step_size: ArrayLike, n_updates: int, theta_0: ArrayLike) -> Moments:
    """Compute the exact moments of TD on independent samples after every update.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    step_size : float or array_like of shape (n_updates,)
        Step size, or one step size per update.
    n_updates : int
        Number of updates.
    theta_0 : array_like of shape (n_features,)
        Start.

    Returns
    -------
    Moments
        Mean and second moment after ``0, ..., n_updates`` updates.

    Examples
    --------
    >>> from vrtd.problems import random_mdp
    >>> moments = td_iid_moments(random_mdp(), 0.1, 2000, [0.0] * 4)
    >>> round(float(moments.squared_error[-1]), 2)
    1.67
    """
    check_exact_count("n_updates", n_updates, least=0)
    n, steps = int(n_updates), real_array("step_size", step_size)
    if steps.shape not in ((), (n,)):
        raise InvalidInputError(
            f"step_size must be a number or have the shape ({n},), but has the shape {steps.shape}.",
            "Pass one step size, or n_updates of them.",
        )
    if not (steps > 0.0).all():
        k = int(np.flatnonzero(~(steps > 0.0).ravel())[0])
        raise InvalidInputError(
            f"step_size must be positive, but is {steps.flat[k]} at update {k}.", "Pass numbers above 0."
        )
    check_problem(problem)
    theta = check_theta("theta_0", theta_0, problem.n_features)
    counts = _count_all(n, problem.n_features)
    parts = [(float(steps), 0, n)] if steps.ndim == 0 else [(a, k, k + 1) for k, a in enumerate(steps.tolist())]
    Y = td_path(problem, parts, "iid", counts, theta, problem.state_distribution)
    return read_moments(pack(Y), problem.theta_star)


def vrtd_iid_moments(
    problem: LinearProblem,
    step_size: float,
    batch_size: int,
    n_epochs: int,
    theta_0: ArrayLike,
    output: Output = "random",
    anchor: Anchor = "batch",
) -> Moments:
    """Compute the exact moments of the anchor of VRTD on independent samples (Algorithm 1) after every epoch.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    step_size : float
        Step size.
    batch_size : int
        Transitions per batch, and inner steps per epoch.
    n_epochs : int
        Number of epochs.
    theta_0 : array_like of shape (n_features,)
        Start.
    output : {"random", "last", "average", "tail"}, default="random"
        Iterate that becomes the next anchor: a random one of the M inner iterates, the last one, the mean of all, or
        the mean of the second half.
    anchor : {"batch", "mean"}, default="batch"
        Pseudo-gradient at the anchor: the mean over the batch, or the exact mean. With the exact mean the error
        converges to 0.

    Returns
    -------
    Moments
        Mean and second moment after ``0, ..., n_epochs`` epochs.

    Examples
    --------
    >>> from vrtd.problems import random_mdp
    >>> moments = vrtd_iid_moments(random_mdp(), 0.1, 50, 400, [0.0] * 4)
    >>> round(float(moments.squared_error[-1]), 2)
    1.06
    """
    check_exact_count("n_epochs", n_epochs, least=0)
    check_problem(problem)
    theta = check_theta("theta_0", theta_0, problem.n_features)
    check_vrtd_features(problem.n_features, output)
    counts = _count_all(int(n_epochs), problem.n_features)
    increments = independent_increments(problem)
    epoch = check_epoch_map(increments, step_size, batch_size, output, anchor)
    return read_moments(epoch.orbit(increments.start(theta), counts), problem.theta_star)


def _count_all(n: int, d: int) -> NDArray[np.int64]:
    """Return 0, ..., n, or raise if that many moments of d features are too large for memory."""
    if (n + 1) * triangle(d + 1) > _MOST_NUMBERS:
        raise InvalidInputError(
            f"the moments of every update would be {n + 1} x {triangle(d + 1)} numbers, more than {_MOST_NUMBERS:.0e}.",
            "Use exact_curve, which keeps the checkpoints only.",
        )
    return np.arange(n + 1)


def _errors(Y: Floats, theta_star: Floats, forms: Sequence[QuadraticForm]) -> Floats:
    """Return (C, n_metrics), the mean of each form; theta - centre is `extended` times y."""
    columns = np.empty((len(Y), len(forms)))
    for i, form in enumerate(forms):
        extended = np.column_stack([np.eye(len(theta_star)), theta_star - form.centre])
        columns[:, i] = np.einsum("kij,ij->k", Y, extended.T @ form.matrix @ extended) + form.offset
    return columns
