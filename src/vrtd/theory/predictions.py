"""The three ways to foresee the error of a plan: proven bounds, exact moments, moments estimated from a sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil, log
from typing import Any, TypeVar

import numpy as np

from vrtd.algorithms import ChainSampling
from vrtd.arrays import Floats
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem
from vrtd.theory.bounds import td_iid_bound, td_markov_bound, vrtd_iid_bound, vrtd_markov_bound
from vrtd.theory.constants import check_assumptions
from vrtd.theory.increments import Increments
from vrtd.theory.limits import increments_of, optimal_error, stability_limit, stable_below
from vrtd.theory.markov import MarkovTD
from vrtd.theory.moments import Output, epoch_maps
from vrtd.theory.orbits import Followed, TDOrbits, epoch_orbit, markov_td_orbit
from vrtd.theory.search import Errors, TDPredictor, VRTDPredictor
from vrtd.theory.statements import Bound

T = TypeVar("T")

FIRST_ORDER = "approximation: to first order in the step"
ALGORITHM_2 = "approximation: inner samples as if independent of the batches"
# On a trajectory that is only sampled, what is first-order in the step was found to be off by about this many times the
# step, as a share of TD's stability limit over the noise's correlation; steps are kept where that is a few percent.
_SECOND_ORDER, _FIRST_ORDER_SHARE = 2.5, 0.06
# The same for the drift: its relative change is kept below the first, and moves the logarithm of an error by up to some
# multiple of it, since a rate acts over several time constants.
_MOST_SHIFT, _SHIFT_EFFECT = 0.05, 5.0
_FOLLOW_SHARE = 0.1  # of TD's stability limit: larger steps are never predicted to first order
_LEAST_TAU = 0.01  # a smaller correlation time is not told from 0


@dataclass(frozen=True)
class Predictions:
    """Errors of TD and VRTD for any step and batch size, and the ranges worth searching."""

    td: TDPredictor
    td_polish: TDPredictor  # better than `td` and dearer
    vrtd: VRTDPredictor
    td_method: Callable[[float], str]  # what a prediction for this step is: exact, an approximation, a bound
    vrtd_method: str
    largest_step: float  # of TD
    largest_vrtd_step: float
    largest_batch: Callable[[float], int]  # for a target
    limit: str  # what keeps the error from falling further
    optimal: float = 0.0  # no error is below this over the number of samples, in the long run
    allowance: Callable[[float], float] = lambda _: 0.0  # relative error of an approximation at this step


def moment_predictions(increments: Increments, theta_0: Floats, output: Output, largest_step: float) -> Predictions:
    """From moments, exact or estimated; on a trajectory for steps that are small, to which they are first-order."""
    td = TDOrbits(increments, theta_0)

    def vrtd(step: float, sizes: Iterable[int]) -> dict[int, Errors]:
        with np.errstate(over="ignore", invalid="ignore"):
            maps = epoch_maps(increments, step, sizes, output)
            return {M: epoch_orbit(increments, epoch, theta_0) for M, epoch in maps.items()}

    optimal = optimal_error(increments)
    independent = increments.correlation is None
    return Predictions(
        td, td, vrtd,
        td_method=_always("exact" if independent else FIRST_ORDER),
        vrtd_method="exact" if independent else ALGORITHM_2,
        largest_step=largest_step,
        largest_vrtd_step=2.0 * largest_step if independent else largest_step,
        # One batch of optimal/target samples would do if every sample were used as well as can be.
        largest_batch=lambda target: 64 + int(8.0 * optimal / target),
        limit=f"no such method is below {optimal:.4g} / samples in the long run, the instance-optimal error",
        optimal=optimal,
    )  # fmt: skip


def exact_predictions(problem: LinearProblem, sampling: ChainSampling, theta_0: Floats, output: Output) -> Predictions:
    """From the chain; TD on a trajectory is followed exactly where the chain is small or mixes fast enough."""
    found = moment_predictions(increments_of(problem, sampling), theta_0, output, stability_limit(problem, sampling))
    if sampling == "iid":
        return found
    recursion, initial = MarkovTD(problem), problem.mrp.stationary

    @lru_cache(maxsize=64)
    def followed(step: float) -> Errors:
        exact = markov_td_orbit(recursion, step, theta_0, initial)
        if isinstance(exact, Followed) and step <= _FOLLOW_SHARE * found.largest_step:
            return _Then(exact, exact.reach, found.td(step))
        return exact  # beyond its reach a step this large is no candidate

    return replace(
        found,
        td_polish=followed,
        td_method=lambda step: FIRST_ORDER if isinstance(followed(step), _Then) else "exact",
        largest_vrtd_step=stability_limit(problem) / 2.0,
    )


def estimated_predictions(increments: Increments, theta_0: Floats, output: Output, largest_norm: float) -> Predictions:
    """From a sample, whose largest |phi|^2 is given."""
    largest = stable_below(increments, largest_norm)
    if increments.correlation is None:
        return moment_predictions(increments, theta_0, output, largest)
    plain = optimal_error(replace(increments, correlation=None))
    tau = optimal_error(increments) / plain if plain > 0.0 else 1.0
    scale = largest / max(tau, 1.0 / max(tau, _LEAST_TAU))
    # To the next order the drift is A + step C, C the sum over lags of E[(A_k - A)(A_0 - A)].
    d = increments.n_features
    lags = increments.correlation.within(np.inf).reshape(d, d + 1, d, d + 1)
    C = np.einsum("mpjm->jp", lags[:, :d, :, :d])
    shift = float(np.abs(np.linalg.eigvals(np.linalg.solve(increments.A, C))).max())
    most = min(_FIRST_ORDER_SHARE * scale, _MOST_SHIFT / max(shift, 1e-300))
    found = moment_predictions(increments, theta_0, output, most)
    return replace(found, allowance=lambda step: max(_SECOND_ORDER * step / scale, _SHIFT_EFFECT * shift * step))


def guaranteed_predictions(
    problem: LinearProblem, sampling: ChainSampling, theta_0: Floats, radius: float | None
) -> Predictions:
    """From bounds that are proven, with the chain's own constants."""
    td: Callable[[float], Bound[Any]]
    epochs: Callable[[float, int], Bound[Any]]
    if sampling == "iid":
        statements = "td_iid_bound, sharp", "vrtd_iid_bound, sharp"
        td = partial(td_iid_bound, problem, theta_0=theta_0, form="sharp")
        epochs = partial(vrtd_iid_bound, problem, theta_0=theta_0, form="sharp")
    else:
        for condition in vars(check_assumptions(problem)).values():
            if not condition.holds:
                raise InvalidInputError(condition.statement, condition.detail, 'or plan with mode="exact"')
        statements = "td_markov_bound", "vrtd_markov_bound, corrected"
        td = partial(td_markov_bound, problem, theta_0=theta_0, radius=radius)
        epochs = partial(vrtd_markov_bound, problem, theta_0=theta_0, radius=radius, form="corrected")

    def bounded(step: float) -> Errors:
        return _Bounded(td(step))

    return Predictions(
        bounded,
        bounded,
        lambda step, sizes: {M: _Bounded(epochs(step, M)) for M in sizes},
        td_method=_always(f"bound: {statements[0]}"),
        vrtd_method=f"bound: {statements[1]}",
        largest_step=1.0 / problem.lambda_A,
        largest_vrtd_step=1.0 / problem.lambda_A,
        largest_batch=_always(1 << 48),
        limit="the bounds need larger batches and smaller steps than that",
    )


def _always(value: T) -> Callable[[float], T]:
    return lambda _: value


def capped(predictions: Predictions, largest_step: float, least_batch: int = 2) -> Predictions:
    """The same, but nothing is predicted for VRTD with larger steps or smaller batches."""

    def vrtd(step: float, sizes: Iterable[int]) -> Mapping[int, Errors]:
        allowed = [M for M in sizes if least_batch <= M] if step <= largest_step * (1.0 + 1e-12) else []
        known = predictions.vrtd(step, allowed) if allowed else {}
        return {M: known.get(M, _Nothing()) for M in sizes}

    return replace(predictions, vrtd=vrtd, largest_vrtd_step=largest_step)


class _Then:
    """Exact up to `reach` updates, then to first order in the step."""

    def __init__(self, exact: Errors, reach: int, later: Errors) -> None:
        self._exact, self._reach, self._later = exact, reach, later

    def error(self, k: int) -> float:
        return (self._exact if k <= self._reach else self._later).error(k)

    def first_below(self, target: float, most: int) -> int | None:
        n = self._exact.first_below(target, min(most, self._reach))
        if n is not None or most <= self._reach:
            return n
        n = self._later.first_below(target, most)
        return None if n is None else max(n, self._reach + 1)


class _Nothing:
    def error(self, k: int) -> float:  # noqa: ARG002
        return np.inf

    def first_below(self, target: float, most: int) -> int | None:  # noqa: ARG002
        return None


class _Bounded:
    """A bound as a prediction; one that is not valid predicts nothing."""

    def __init__(self, bound: Bound[Any]) -> None:
        self._bound = bound

    def error(self, k: int) -> float:
        b = self._bound
        return b.initial * b.rate**k + b.floor if b.valid and b.rate < 1.0 else np.inf

    def first_below(self, target: float, most: int) -> int | None:
        b = self._bound
        if not b.valid or b.rate >= 1.0 or b.floor >= target:
            return None
        n = max(0, ceil(log((target - b.floor) / b.initial) / log(b.rate)))
        n += self.error(n) > target  # rounding
        return n if n <= most else None
