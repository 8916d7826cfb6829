"""Exact curves without simulation: errors as a `Result`, which the same figures draw, and moments."""

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
# Of the moments of every update or epoch.
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
    """The expected curve of `simulate` with the same arguments, without simulation: a `Result` with one run.

    Exact for TD and RichardsonTD, with any schedule and with averaging, and for VRTD on independent samples, with
    batches that are alike or grow. VRTD on a trajectory (Algorithm 2) is exact on tiny chains; elsewhere, or with
    `method="approximate"`, an approximation, and `provenance["method"]` says so: within a few percent up to the step
    size of `approximation_limit`.

    >>> import vrtd
    >>> problem = vrtd.problems.random_mdp(seed=0)
    >>> curve = exact_curve(problem, vrtd.TD(0.1), sampling="iid", n_gradients=80_000)
    >>> round(float(curve.values("squared_error")[0, -1]), 3)
    1.669
    """
    check_arguments(algorithm, sampling, 1, n_gradients, 0, None, metrics, None)
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
            f"n_gradients must be at least one epoch, which counts {epoch.least_gradients}",
            n_gradients,
            "raise the budget or lower the batch size",
        )
    if np.ndim(checkpoints) == 0:
        check_count("checkpoints", checkpoints)
    axis = checkpoint_axis(checkpoints, 0, int(n_gradients))
    counts, place = np.unique(epoch.epochs_at(axis), return_inverse=True)
    n_epochs, label = int(counts[-1]), EXACT
    match algorithm:
        case TD(radius=radius) | VRTD(radius=radius) if radius is not None:
            raise InvalidInputError(
                "exact moments must be of a method without projection, which is not linear",
                f"radius {radius}",
                "drop the radius, or simulate",
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
                    "exact moments are of Algorithm 1 on independent samples and Algorithm 2 on a trajectory",
                    f"inner={algorithm.inner!r} with {sampling} samples",
                    "drop inner, or simulate",
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
                            "the approximation of Algorithm 2 is for a first state that is stationary",
                            f"initial {initial!r}",
                            "drop initial, or simulate",
                        )
                increments, n_steps = increments_of(problem, sampling), algorithm.n_steps
                first, later = successive_epoch_maps(increments, step_size, sizes, algorithm.returned, n_steps)
                path = follow_epochs(increments.start(theta), first, later, counts)
            Y = unpack(path, d + 1)
        case _:
            raise InvalidInputError(
                "exact moments are known for TD, RichardsonTD and VRTD", algorithm.name, "simulate instead"
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
    """Moments of TD after 0..n_updates updates; `step_size` is a number or one per update.

    >>> from vrtd.problems import random_mdp
    >>> moments = td_iid_moments(random_mdp(), 0.1, 2000, [0.0] * 4)
    >>> round(float(moments.squared_error[-1]), 2)
    1.67
    """
    check_exact_count("n_updates", n_updates, least=0)
    n, steps = int(n_updates), real_array("step_size", step_size)
    if steps.shape not in ((), (n,)):
        raise InvalidInputError(
            f"step_size must be a number or have the shape ({n},)", steps.shape, "pass n_updates steps"
        )
    if not (steps > 0.0).all():
        k = int(np.flatnonzero(~(steps > 0.0).ravel())[0])
        raise InvalidInputError("step_size must be positive", f"{steps.flat[k]} at update {k}", "pass numbers above 0")
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
    """Moments of theta_anchor in VRTD, Algorithm 1, after 0..n_epochs epochs.

    `output` is what an epoch hands on: "random", theta_{m,t} with t uniform on 1..M; "last", theta_{m,M}; "average",
    the mean of theta_{m,1..M}; "tail", the mean of its second half. With the `anchor` "mean" every epoch uses the exact
    mean pseudo-gradient instead of the batch's; the error then vanishes.

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
    """Return 0..n, unless that many moments of d features are too many."""
    if (n + 1) * triangle(d + 1) > _MOST_NUMBERS:
        raise InvalidInputError(
            f"moments of every update must be at most {_MOST_NUMBERS:.0e} numbers",
            f"{n + 1} x {triangle(d + 1)}",
            "use exact_curve, which keeps its checkpoints only",
        )
    return np.arange(n + 1)


def _errors(Y: Floats, theta_star: Floats, forms: Sequence[QuadraticForm]) -> Floats:
    """(C, n_metrics) the mean of each form; theta - centre is `extended` y."""
    columns = np.empty((len(Y), len(forms)))
    for i, form in enumerate(forms):
        extended = np.column_stack([np.eye(len(theta_star)), theta_star - form.centre])
        columns[:, i] = np.einsum("kij,ij->k", Y, extended.T @ form.matrix @ extended) + form.offset
    return columns
