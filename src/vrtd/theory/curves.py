"""Exact error curves in the shape of a simulation's result: the same figure draws both."""

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
from vrtd.arrays import Floats, check_theta
from vrtd.checks import check_choice, check_count
from vrtd.engine.arguments import as_form, check_arguments, checkpoint_axis, start_distribution
from vrtd.errors import InvalidInputError
from vrtd.metrics import QuadraticForm
from vrtd.problems import LinearProblem
from vrtd.result import EngineState, Result
from vrtd.theory.enumeration import enumerated_epoch_map, is_enumerable
from vrtd.theory.increments import Increments, correlated_increments, independent_increments
from vrtd.theory.markov import MarkovTD
from vrtd.theory.moments import Output, check_vrtd_features, epoch_maps, td_terms
from vrtd.theory.on_policy import check_problem
from vrtd.theory.size import check_features
from vrtd.theory.symmetric import orbit, outer, triangle, unpack

Method = Literal["auto", "exact", "approximate"]

EXACT = "exact"
APPROXIMATION = "approximation: inner samples as if independent of the batches, whose means have exact covariances"


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
    distribution = start_distribution(problem, sampling, initial)
    theta = check_theta("theta_0", theta_0, problem.n_features)
    forms = [as_form(metric, problem) for metric in metrics]
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
    if getattr(algorithm, "radius", None) is not None:
        raise InvalidInputError(
            "exact moments must be of a method without projection, which is not linear",
            f"radius {algorithm.settings['radius']}",
            "drop the radius, or simulate",
        )
    label = EXACT
    match algorithm:
        case TD(step_size, _, average):
            Y = _td(problem, as_schedule(step_size), average, sampling, counts, theta, distribution)
        case VRTD(step_size, batch_size, _, output, _):
            a, M = float(step_size), int(batch_size)
            if epoch.inner_samples != ("fresh" if sampling == "iid" else "resample") and M > 1:
                raise InvalidInputError(
                    "exact moments are of Algorithm 1 on independent samples and Algorithm 2 on a trajectory",
                    f"inner={algorithm.inner!r} with {sampling} samples",
                    "drop inner, or simulate",
                )
            if sampling == "iid" or M > 1:
                check_vrtd_features(problem.n_features, output)
            start = outer(np.append(theta - problem.theta_star, 1.0))
            if sampling == "iid":
                Y = _vrtd(independent_increments(problem), a, M, output, start, counts)
            elif M == 1:
                Y = _td(problem, Constant(a), False, sampling, counts, theta, distribution)
            elif method == EXACT or (method == "auto" and is_enumerable(problem, M)):
                T = enumerated_epoch_map(problem, a, M, output)
                path = orbit(T, np.outer(distribution, start).ravel(), counts)
                path = path.reshape(len(counts), -1, len(start)).sum(axis=1)
                Y = unpack(path / path[:, -1:], problem.n_features + 1)
            else:
                if not np.array_equal(distribution, problem.mrp.stationary):
                    raise InvalidInputError(
                        "the approximation of Algorithm 2 is for a first state that is stationary",
                        f"initial {initial!r}",
                        "drop initial, or simulate",
                    )
                Y = _vrtd(correlated_increments(problem), a, M, output, start, counts)
                label = APPROXIMATION
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


def _vrtd(increments: Increments, a: float, M: int, output: Output, start: Floats, counts: NDArray[np.int64]) -> Floats:
    path = epoch_maps(increments, a, [M], output)[M].orbit(start, counts)
    return unpack(path, increments.n_features + 1)


def _td(
    problem: LinearProblem,
    schedule: Schedule,
    average: bool,
    sampling: ChainSampling,
    counts: NDArray[np.int64],
    theta_0: Floats,
    initial: Floats,
) -> Floats:
    """(C, d + 1, d + 1) E[y y^T] of what TD returns after each of the counts of updates."""
    d = problem.n_features
    path = np.empty((len(counts), triangle((2 * d if average else d) + 1)))
    segments = _segments(schedule, int(counts[-1]))
    run: Callable[[Any, float, NDArray[np.int64]], tuple[Floats, Any]]
    if sampling == "iid":
        check_features(d, "averaged TD" if average else "TD")
        terms = td_terms(independent_increments(problem), average)
        state: Any = outer(np.concatenate([np.zeros(d if average else 0), theta_0 - problem.theta_star, [1.0]]))
        run = partial(_run_iid, terms)
    else:
        recursion = MarkovTD(problem, average)
        recursion.check_updates(len(segments))
        state, run = recursion.start(theta_0, initial), recursion.run
    for a, begin, end in segments:
        inside = slice(*np.searchsorted(counts, [begin, end]))
        reached, state = run(state, a, np.append(counts[inside], end) - begin)
        path[inside], path[-1] = reached[:-1], reached[-1]
    Y = unpack(path, (2 * d if average else d) + 1)
    if not average:
        return Y
    # r is the sum of the errors: the mean of the first t iterates is returned, theta_0 before the first update.
    keep = np.r_[:d, 2 * d]
    scale = np.ones((len(counts), d + 1))
    scale[:, :d] /= np.maximum(counts, 1)[:, None]
    averaged = Y[:, keep[:, None], keep] * scale[:, :, None] * scale[:, None, :]
    begin_at = np.r_[d : 2 * d + 1]
    averaged[counts == 0] = Y[:, begin_at[:, None], begin_at][counts == 0]
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
    """(C, n_metrics) E of each form: with c = theta_star - centre, tr(M E u u^T) + 2 c^T M E u + c^T M c + offset."""
    second, mean = Y[:, :-1, :-1], Y[:, :-1, -1]
    columns = []
    for form in forms:
        c = theta_star - form.centre
        symmetric = (form.matrix + form.matrix.T) / 2.0
        constant = c @ symmetric @ c + form.offset
        columns.append(np.einsum("kij,ij->k", second, symmetric) + 2.0 * mean @ symmetric @ c + constant)
    return np.stack(columns, axis=1) if columns else np.empty((len(Y), 0))
