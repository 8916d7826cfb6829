"""Exact curves of TD and VRTD without simulation: errors as a `Result`, which the same figures draw, and moments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.algorithms import (
    TD,
    VRTD,
    Algorithm,
    ChainSampling,
    Constant,
    Piecewise,
    Schedule,
    as_schedule,
    check_sampling,
)
from vrtd.arrays import Floats, check_theta, real_array
from vrtd.checks import check_choice, check_count, check_exact_count
from vrtd.engine.arguments import check_arguments, checkpoint_axis, start_distribution
from vrtd.engine.simulation import make_form
from vrtd.errors import InvalidInputError
from vrtd.metrics import QuadraticForm
from vrtd.problems import LinearProblem
from vrtd.result import EngineState, Result
from vrtd.theory.checks import check_features, check_problem
from vrtd.theory.enumeration import enumerated_epoch_map, is_enumerable
from vrtd.theory.increments import independent_increments
from vrtd.theory.limits import increments_of
from vrtd.theory.markov import MarkovTD
from vrtd.theory.moments import (
    Anchor,
    Moments,
    Output,
    check_epoch_map,
    check_vrtd_features,
    epoch_maps,
    read_moments,
    td_terms,
)
from vrtd.theory.symmetric import orbit, outer, pack, triangle, unpack

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

    Exact for TD, with any schedule and with averaging, and for VRTD on independent samples. VRTD on a trajectory
    (Algorithm 2) is exact on tiny chains; elsewhere, or with `method="approximate"`, an approximation, and
    `provenance["method"]` says so: within a few percent up to the step size of `approximation_limit`.

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
    if n_gradients < epoch.n_gradients:
        raise InvalidInputError(
            f"n_gradients must be at least one epoch, which counts {epoch.n_gradients}",
            n_gradients,
            "raise the budget or lower the batch size",
        )
    if np.ndim(checkpoints) == 0:
        check_count("checkpoints", checkpoints)
    axis = checkpoint_axis(checkpoints, 0, int(n_gradients))
    counts, place = np.unique(axis // epoch.n_gradients, return_inverse=True)
    label = EXACT
    match algorithm:
        case TD(radius=radius) | VRTD(radius=radius) if radius is not None:
            raise InvalidInputError(
                "exact moments must be of a method without projection, which is not linear",
                f"radius {radius}",
                "drop the radius, or simulate",
            )
        case TD(step_size, _, average):
            segments = _segments(as_schedule(step_size), int(counts[-1]))
            Y = _td(problem, segments, average, sampling, counts, theta, distribution)
        case VRTD(step_size, 1) if sampling == "markov" and not algorithm.grows:
            Y = _td(problem, [(float(step_size), 0, int(counts[-1]))], False, sampling, counts, theta, distribution)
        case VRTD(step_size, batch_size):
            a, M, output = float(step_size), int(batch_size), algorithm.returned
            if algorithm.grows or algorithm.n_steps is not None or output == "tail":
                raise InvalidInputError(
                    "exact moments of VRTD are of batches that do not grow", f"growth {algorithm.growth}", "simulate"
                )
            if epoch.inner_samples != ("fresh" if sampling == "iid" else "resample") and M > 1:
                raise InvalidInputError(
                    "exact moments are of Algorithm 1 on independent samples and Algorithm 2 on a trajectory",
                    f"inner={algorithm.inner!r} with {sampling} samples",
                    "drop inner, or simulate",
                )
            check_vrtd_features(d, output)
            if sampling == "markov" and (method == EXACT or (method == "auto" and is_enumerable(problem, M))):
                begin = outer(np.append(theta - problem.theta_star, 1.0))
                path = orbit(enumerated_epoch_map(problem, a, M, output), np.outer(distribution, begin).ravel(), counts)
                path = path.reshape(len(counts), -1, len(begin)).sum(axis=1)
                path /= path[:, -1:]
            else:
                if sampling == "markov":
                    label = APPROXIMATION
                    if not np.array_equal(distribution, problem.mrp.stationary):
                        raise InvalidInputError(
                            "the approximation of Algorithm 2 is for a first state that is stationary",
                            f"initial {initial!r}",
                            "drop initial, or simulate",
                        )
                increments = increments_of(problem, sampling)
                path = epoch_maps(increments, a, [M], output)[M].orbit(increments.start(theta), counts)
            Y = unpack(path, d + 1)
        case _:
            raise InvalidInputError("exact moments are known for TD and VRTD", algorithm.name, "simulate instead")

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
    segments = [(float(steps), 0, n)] if steps.ndim == 0 else [(a, k, k + 1) for k, a in enumerate(steps.tolist())]
    Y = _td(problem, segments or [(1.0, 0, 0)], False, "iid", counts, theta, problem.state_distribution)
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
    the mean of theta_{m,1..M}. With the `anchor` "mean" every epoch uses the exact mean pseudo-gradient instead of the
    batch's; the error then vanishes.

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


def _td(
    problem: LinearProblem,
    segments: list[tuple[float, int, int]],
    average: bool,
    sampling: ChainSampling,
    counts: NDArray[np.int64],
    theta_0: Floats,
    initial: Floats,
) -> Floats:
    """(C, d + 1, d + 1) E[y y^T] of what TD returns after each of the counts of updates."""
    d = problem.n_features
    size = (2 * d if average else d) + 1
    run: Callable[[Any, float, NDArray[np.int64]], tuple[Floats, Any]]
    if sampling == "iid":
        check_features(d, "averaged TD" if average else "TD")
        terms = td_terms(independent_increments(problem), average)
        state: Any = outer(np.concatenate([np.zeros(size - 1 - d), theta_0 - problem.theta_star, [1.0]]))
        run = partial(_run_iid, terms)
    else:
        recursion = MarkovTD(problem, average)
        recursion.check_updates(len(segments))
        state, run = recursion.start(theta_0, initial), recursion.run
    path = np.empty((len(counts), triangle(size)))
    for a, begin, end in segments:
        inside = slice(*np.searchsorted(counts, [begin, end]))
        reached, state = run(state, a, np.append(counts[inside], end) - begin)
        path[inside], path[-1] = reached[:-1], reached[-1]
    Y = unpack(path, size)
    if not average:
        return Y
    # r is the sum of the errors: the mean of the first t iterates is returned, theta_0 before the first update.
    keep, scale = np.r_[:d, 2 * d], np.ones((len(counts), d + 1))
    scale[:, :d] /= np.maximum(counts, 1)[:, None]
    averaged = Y[:, keep[:, None], keep] * scale[:, :, None] * scale[:, None, :]
    if counts[0] == 0:
        averaged[0] = Y[0, d:, d:]
    return np.asarray(averaged)


def _run_iid(
    terms: tuple[Floats, Floats, Floats], x: Floats, a: float, counts: NDArray[np.int64]
) -> tuple[Floats, Floats]:
    still, first, second = terms
    if counts[-1] == 1:  # a schedule that changes at every update: its maps are not worth forming
        new = still @ x + a * (first @ x) + a * a * (second @ x)
        return np.stack([*[x] * (len(counts) - 1), new]), new
    path = orbit(still + a * first + a * a * second, x, counts)
    return path, path[-1]


def _segments(schedule: Schedule, n: int) -> list[tuple[float, int, int]]:
    """(step, first update, end) of each stretch with one step size."""
    match schedule:
        case Constant(value):
            return [(float(value), 0, n)]
        case Piecewise(boundaries, values):
            ends = [*(b for b in boundaries if b < n), n]
            return list(zip(values, [0, *ends], ends, strict=False))
        case _:
            return [(schedule(t), t, t + 1) for t in range(n)]


def _errors(Y: Floats, theta_star: Floats, forms: Sequence[QuadraticForm]) -> Floats:
    """(C, n_metrics) the mean of each form; theta - centre is `extended` y."""
    columns = np.empty((len(Y), len(forms)))
    for i, form in enumerate(forms):
        extended = np.column_stack([np.eye(len(theta_star)), theta_star - form.centre])
        columns[:, i] = np.einsum("kij,ij->k", Y, extended.T @ form.matrix @ extended) + form.offset
    return columns
