"""Search for the best step size, batch size and number of epochs, for any predictor.

The cost of settings is sample_cost M times the number of epochs, in pseudo-gradients or samples. sample_cost is the
cost of one row of a batch, including its inner step. The search begins with a grid, because the cost has several local
minima (small batches with many epochs, large batches with few). The best cells are then refined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, exp, inf, log
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from vrtd.arrays import Floats
from vrtd.theory.orbits import Errors
from vrtd.theory.predictions import EpochPredictor, ErrorPredictor, StepPredictor

#: Largest cost of a plan; a run would take months on any machine.
MOST_COST = 10**15
LEAST_BATCH = 2  # least batch of VRTD; a batch of one is TD
_SMALLEST_STEP = 1e-15  # share of the largest step
_GOLDEN = (5**0.5 - 1) / 2
# Grids: the factor between steps, and the number of smaller steps that are tried after the best.
STEP_RATIO, _PATIENCE = 1.7, 18
_FINE_STEPS = 9  # number of steps of `refine_grid` around the best
# Cells of the grid within these factors of the best are refined. Costs beyond the last factor are not computed.
_NEAR_COST, _NEAR_ERROR, _FAR_COST = 1.5, 1.1, 4.0
# The batch size is also refined for the best few cells, and for few epochs, where sizes on the grid are coarse.
_CANDIDATES, _FEW_EPOCHS = 4, 3
_LEAST_GAIN = 1e-3  # least relative gain in cost for which a number of epochs is refined


class Goal(NamedTuple):
    """A target for the error at the least cost, or the least error within a budget."""

    target: float | None = None
    budget: int | None = None


class Found(NamedTuple):
    """Settings with their cost and their final error."""

    step_size: float
    batch_size: int
    n_epochs: int
    cost: float
    error: float


_by_cost, _by_error = attrgetter("cost"), attrgetter("error")


class Search:
    """Search for the best settings of TD and VRTD; the steps and batches of VRTD may be limited."""

    def __init__(
        self,
        predictor: EpochPredictor,
        sample_cost: int = 2,
        largest_step: float | None = None,
        least_batch: int = LEAST_BATCH,
    ) -> None:
        self._predictor, self._sample_cost, self._least_batch = predictor, sample_cost, least_batch
        self._largest_step = largest_step or predictor.largest_vrtd_step

    def td(self, goal: Goal, polish: bool = True) -> Found | None:
        """Find the step with which TD reaches the target in the fewest updates, or ends with the least error.

        With ``polish``, the result is refined with the more accurate and more expensive prediction.
        """
        largest, cheap, best_known = self._predictor.largest_step, self._predictor.cheap_td, self._predictor.by_step(1)

        def score(step: float, predict: StepPredictor = best_known) -> float:
            if goal.budget is not None:
                return predict(step).error(goal.budget)
            assert goal.target is not None
            return _crossing(predict(step), goal.target, MOST_COST)

        coarse = partial(score, predict=cheap or best_known)
        step, best = _refine(coarse, *_descend(coarse, largest, patience=12), width=2.0, evaluations=12)
        if best < inf and polish and cheap is not None:
            before = best
            step, best = _follow(score, step)
            probes = [largest / share for share in (4.0, 40.0, 400.0)] if goal.budget is not None else []
            # If the cheap prediction was misleading, search again with the accurate one.
            if any(coarse(probe) > 2.0 * score(probe) for probe in probes) or not best <= 1.2 * before:
                elsewhere = _refine(score, *_descend(score, largest, ratio=1.7), width=1.7, evaluations=8)
                step, best = min((step, best), elsewhere, key=lambda found: found[1])
        if best == inf:
            return None
        n = ceil(best) if goal.budget is None else goal.budget
        return Found(step, 1, n, n, best_known(step).error(n))

    def vrtd(self, goal: Goal) -> Found | None:
        """Find the step and batch size with which VRTD reaches the target at the least cost, or has the least error."""
        if goal.target is not None:
            return self._least_cost(goal.target)
        assert goal.budget is not None
        return None if goal.budget < self._least_batch * self._sample_cost else self._least_error(goal.budget)

    def _orbits(self, step: float, sizes: Sequence[int]) -> Mapping[int, Errors]:
        """Return the errors of the allowed batch sizes, or none if the step is too large."""
        allowed = [M for M in sizes if self._least_batch <= M]
        if not allowed or step > self._largest_step * (1.0 + 1e-12):
            return {}
        return self._predictor.errors(step, allowed)

    def _error(self, M: int, n: int, step: float) -> float:
        orbits = self._orbits(step, [M])
        return orbits[M].error(n) if orbits else inf

    def _step_along(self, product: float, M: int) -> float:
        """Return the step from the product of step and batch size, limited to the largest step."""
        return min(product / M, self._largest_step)

    def _error_along(self, n: int, product: float, M: int) -> float:
        return self._error(M, n, self._step_along(product, M))

    def _found(self, step: float, M: int, n: int, error: float) -> Found:
        return Found(step, M, n, float(self._sample_cost * M * n), error)

    def _least_cost(self, target: float) -> Found | None:
        optimal = self._predictor.optimal
        # With optimal use of every sample, one batch of optimal/target samples reaches the target.
        largest = 1 << 48 if optimal is None else 64 + int(8.0 * optimal / target)
        sizes = [2**k for k in range(1, largest.bit_length() + 1)]
        cells: dict[int, Found] = {}  # the best of each batch size

        def try_step(step: float) -> float:
            best = inf
            limit = min(MOST_COST, _FAR_COST * min((cell.cost for cell in cells.values()), default=inf))
            for M, errors in self._orbits(step, sizes).items():
                known = cells.get(M)
                most = limit if known is None else min(limit, known.cost)
                n = errors.first_below(target, int(most / (self._sample_cost * M)))
                if n is not None and n > 0:
                    found = self._found(step, M, n, errors.error(n))
                    best = min(best, found.cost)
                    if known is None or (found.cost, found.error) < (known.cost, known.error):
                        cells[M] = found
            return best

        _descend(try_step, self._largest_step, STEP_RATIO, _PATIENCE)
        if not cells:
            return None
        ranked = sorted(cells.values(), key=_by_cost)
        near = [cell for cell in ranked if cell.cost < _NEAR_COST * ranked[0].cost]
        cheapest = {cell.n_epochs: cell for cell in reversed(ranked)}
        few = [cheapest[n] for n in range(1, _FEW_EPOCHS + 1) if n in cheapest]
        refined = [self._fewest_epochs(cell, target) for cell in dict.fromkeys([*near, *few])]
        refined.sort(key=_by_cost)
        best = refined[0]
        candidates = [cell for i, cell in enumerate(refined) if i < _CANDIDATES or cell.n_epochs <= _FEW_EPOCHS]
        for n, cell in _neighbours(candidates).items():
            best = self._smallest_batch(cell, n, target, best.cost) or best
        return self._fewest_epochs(best, target, width=1.1)

    def _least_error(self, budget: int) -> Found | None:
        cost = self._sample_cost
        most = budget // (2 * cost)
        epochs = sorted({min(most, round(1.35**k)) for k in range(1 + round(log(most) / log(1.35)))})
        by_size = {M: budget // (cost * M) for M in {budget // (cost * n) for n in epochs}}  # the most epochs
        cells: dict[int, Found] = {}

        def try_step(step: float) -> float:
            orbits = self._orbits(step, list(by_size))
            errors = {M: orbits[M].error(n) if M in orbits else inf for M, n in by_size.items()}
            for M, error in errors.items():
                if error < inf and (M not in cells or error < cells[M].error):
                    cells[M] = self._found(step, M, by_size[M], error)
            return min(errors.values())

        _, least = _descend(try_step, self._largest_step, STEP_RATIO, _PATIENCE)
        near = [
            self._best_step(cell.batch_size, cell.n_epochs, cell.step_size, cell.error)
            for cell in cells.values()
            if cell.error <= _NEAR_ERROR * least
        ]
        near.sort(key=_by_error)
        refined = near[:]
        for n, cell in _neighbours(near[:_CANDIDATES]).items():
            M = budget // (cost * n)
            if M >= LEAST_BATCH:
                refined.append(self._best_step(M, n, self._step_along(cell.step_size * cell.batch_size, M)))
        return min(refined, key=_by_error, default=None)

    def _best_step(self, M: int, n: int, step: float, best: float = inf) -> Found:
        """Find the step near `step` with the least error after n epochs; `best` is the error of `step`, if known."""
        step, error = _refine(partial(self._error, M, n), step, best, width=1.6, evaluations=9)
        return self._found(step, M, n, error)

    def _fewest_epochs(self, cell: Found, target: float, width: float = 1.5) -> Found:
        """Find the step that needs the fewest epochs with the same batch size."""
        M = cell.batch_size

        def epochs(step: float) -> float:
            orbits = self._orbits(step, [M])
            return _crossing(orbits[M], target, cell.n_epochs) if orbits else inf

        step, n = _refine(epochs, cell.step_size, epochs(cell.step_size), width, evaluations=8)
        return self._found(step, M, ceil(n), self._error(M, ceil(n), step))

    def _smallest_batch(self, cell: Found, n: int, target: float, cost: float) -> Found | None:
        """Find the smallest batch with which n epochs reach the target at clearly less than `cost`, for any step.

        For n epochs the product of the best step and the batch size hardly changes, so the two are refined in turn.
        """
        high = int((cost - max(1.0, _LEAST_GAIN * cost)) // (self._sample_cost * n))
        if high < LEAST_BATCH:
            return None
        product = cell.step_size * cell.batch_size
        for width in (1.3, 1.2, 1.1):
            step, error = _follow(partial(self._error, high, n), self._step_along(product, high), width)
            if error > target:
                break
            product = step * high
            high = _bisect(partial(self._error_along, n, product), target, 1, high)
        error = self._error_along(n, product, high)
        return None if error > target else self._found(self._step_along(product, high), high, n, error)


def refine_grid(predictor: ErrorPredictor, steps: Floats, cells: Sequence[tuple[int, int]], errors: Floats) -> Found:
    """Find the least error on a grid and refine its step; the steps fall by STEP_RATIO, and a single step is kept.

    It evaluates one more small grid only, so it is fast enough for settings that are chosen while data arrive.
    """
    i, j = np.unravel_index(errors.argmin(), errors.shape)
    M, n = cells[int(i)]
    fine = steps
    if len(steps) > 1:
        fine = np.minimum(steps[j] * np.geomspace(1 / STEP_RATIO, STEP_RATIO, _FINE_STEPS), steps[0])
    near = predictor.grid(fine, [(M, n)])[0]
    k = int(near.argmin())
    return Found(float(fine[k]), M, n, M * n, float(near[k]))


def _crossing(errors: Errors, target: float, most: int) -> float:
    """Return the fractional number of epochs at which the error reaches the target; whole numbers are too coarse."""
    n = errors.first_below(target, most)
    if n is None or n == 0:
        return inf if n is None else 0
    before, after = errors.error(n - 1), errors.error(n)
    fraction = log(before / target) / log(before / after) if 0.0 < after < before < inf else 1.0
    return n - 1 + min(max(fraction, 1e-9), 1.0)


def _bisect(error: Callable[[int], float], target: float, low: int, high: int) -> int:
    """Return the smallest number whose error is at most the target, to a part in a thousand.

    The error of `high` is at most the target, that of `low` is above it.
    """
    while high - low > max(1, high // 1000):
        middle = max(low + 1, (low + high) // 2) if low > high // 4 else max(low + 1, high * 3 // 4)
        low, high = (low, middle) if error(middle) <= target else (middle, high)
    return high


def _neighbours(cells: Sequence[Found]) -> dict[int, Found]:
    """Return numbers of epochs around those of the cells, each with the nearest cell."""
    numbers: dict[int, None] = {}
    for n in (cell.n_epochs for cell in cells):
        around = {n - 2, n - 1, n, n + 1, n + 2, round(0.7 * n), round(0.85 * n), round(1.2 * n)}
        numbers |= dict.fromkeys(sorted(k for k in around if k > 0))
    return {n: min(cells, key=lambda cell: abs(cell.n_epochs - n)) for n in numbers}


def _descend(
    score: Callable[[float], float], largest: float, ratio: float = 2.0, patience: int = 5
) -> tuple[float, float]:
    """Try smaller and smaller steps until none has improved the score for a while; return the best and its score."""
    step, best_step, best = largest, largest, inf
    misses = 0
    while step > _SMALLEST_STEP * largest and (best == inf or misses < patience):
        value = score(step)
        misses += 1
        if value < best:
            best_step, best, misses = step, value, 0
        step /= ratio
    return best_step, best


def _follow(score: Callable[[float], float], step: float, width: float = 1.3) -> tuple[float, float]:
    """Refine around the step; repeat around the new one with a larger width while the best lies at the edge."""
    best = score(step)
    for _ in range(6):
        before = step
        step, best = _refine(score, step, best, width, evaluations=5)
        if abs(log(step / before)) < 0.7 * log(width):
            break
        width = min(width**2, 3.0)
    return step, best


def _refine(
    score: Callable[[float], float], step: float, best: float, width: float, evaluations: int
) -> tuple[float, float]:
    """Search by golden section on a logarithmic scale, within a factor of `width`; never return worse than `best`."""
    low, high = log(step) - log(width), log(step) + log(width)
    inner, outer = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_inner, at_outer = score(exp(inner)), score(exp(outer))
    for _ in range(evaluations - 2):
        if at_inner <= at_outer:
            high, outer, at_outer = outer, inner, at_inner
            inner = high - _GOLDEN * (high - low)
            at_inner = score(exp(inner))
        else:
            low, inner, at_inner = inner, outer, at_outer
            outer = low + _GOLDEN * (high - low)
            at_outer = score(exp(outer))
    least, where = min((at_inner, inner), (at_outer, outer))
    return (exp(where), least) if least < best else (step, best)
