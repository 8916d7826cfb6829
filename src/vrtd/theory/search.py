"""The one search over settings: the best step size, batch size and number of epochs for any predictor.

The cost of settings is sample_cost M times the number of epochs, in pseudo-gradients or samples: sample_cost is what a
row of a batch costs, its inner step included. Grids come first, because the least cost has several valleys (small
batches and many epochs, large batches and few); what they find is then refined on the scale on which epochs are
counted. How much work that is differs:

- `Search` refines thoroughly and gives the least cost or the least error to a percent or so: the planner's.
- `refine_grid` stays near a grid that the predictor fills at once: for settings that are decided while data come in.
- `TargetSearch` shares one grid between many targets: for Table 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil, exp, inf, log, log2
from typing import NamedTuple

import numpy as np

from vrtd.arrays import Floats
from vrtd.theory.orbits import Errors
from vrtd.theory.predictions import EpochPredictor, ErrorPredictor, StepPredictor

#: Plans beyond this cost are not looked for: months at the speed of any machine.
MOST_COST = 10**15
LEAST_BATCH = 2  # of VRTD: a batch of one is TD
_SMALLEST_STEP = 1e-15  # of the largest
_GOLDEN = (5**0.5 - 1) / 2
# Of `refine_grid`: the factor between steps, and how many are tried around the best.
STEP_RATIO, _FINE_STEPS = 1.7, 9
# Of `TargetSearch`: numbers of epochs, steps that are each half the one before, doublings of the batch size about that
# of one perfect epoch, and how many cells are refined.
_EPOCHS, _N_STEPS, _SMALLER, _LARGER, _CANDIDATES = (1, 2, 3, 4, 6, 10), 14, 5, 3, 2
_ROOM = [0.03 * 1.5**k for k in range(9)]  # how far steps are below the one whose floor is the target
_SMALL_STEP, _FIRST_ORDER = 1e-4, 0.1  # of the largest
_AROUND = (0.75, 0.85, 1.0, 1.15)


class Goal(NamedTuple):
    """A target for the error at the least cost, or the least error within a budget."""

    target: float | None = None
    budget: int | None = None


class Found(NamedTuple):
    """Settings, what they cost, and the error with which they end."""

    step_size: float
    batch_size: int
    n_epochs: int
    cost: float
    error: float


class Search:
    """The best settings of TD and of VRTD; VRTD's steps and batches may be limited."""

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

        `polish`: use the predictor's better and dearer prediction in the end.
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
            if any(coarse(probe) > 2.0 * score(probe) for probe in probes) or not best <= 1.2 * before:  # misled
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
        if goal.budget < self._least_batch * self._sample_cost:
            return None
        found = self._least_error(goal.budget)
        return found if found.error < inf else None

    def _orbits(self, step: float, sizes: Sequence[int]) -> Mapping[int, Errors]:
        """Return the errors of the batch sizes that are allowed; of none if the step is not."""
        allowed = [M for M in sizes if self._least_batch <= M]
        if not allowed or step > self._largest_step * (1.0 + 1e-12):
            return {}
        return self._predictor.errors(step, allowed)

    def _error(self, M: int, n: int, step: float) -> float:
        orbits = self._orbits(step, [M])
        return orbits[M].error(n) if orbits else inf

    def _error_along(self, n: int, product: float, M: int) -> float:
        """Return the error for a batch size, the step times the batch size being given."""
        return self._error(M, n, product / M)

    def _found(self, step: float, M: int, n: int, error: float) -> Found:
        return Found(step, M, n, float(self._sample_cost * M * n), error)

    def _least_cost(self, target: float) -> Found | None:
        optimal = self._predictor.optimal
        # One batch of optimal/target samples would do if every sample were used as well as can be.
        largest = 1 << 48 if optimal is None else 64 + int(8.0 * optimal / target)
        sizes = [2**k for k in range(1, largest.bit_length() + 1)]
        cells: dict[int, Found] = {}  # the best of each batch size

        def try_step(step: float) -> float:
            best = inf
            for M, errors in self._orbits(step, sizes).items():
                known = cells[M].cost if M in cells else MOST_COST
                n = errors.first_below(target, int(known / (self._sample_cost * M)))
                if n is not None and n > 0:
                    found = self._found(step, M, n, errors.error(n))
                    if M not in cells or (found.cost, found.error) < (known, cells[M].error):
                        cells[M] = found
                    best = min(best, found.cost)
            return best

        _descend(try_step, self._largest_step, ratio=1.4, patience=30)
        ranked = sorted(cells.values(), key=lambda found: found.cost)
        cheapest = {cell.n_epochs: cell for cell in reversed(ranked)}
        few = [cheapest[n] for n in (1, 2, 3) if n in cheapest]  # sizes are coarse for them
        best = ranked[0] if ranked else None
        for cell in dict.fromkeys([*ranked[:4], *few]):
            cell = self._fewest_epochs(cell, target)
            best = min(best or cell, cell, key=lambda found: found.cost)
            for n in _neighbours(cell.n_epochs):
                found = self._smallest_batch(cell, n, target, best.cost)
                best = min(best, found or best, key=lambda found: found.cost)
        return None if best is None else self._fewest_epochs(best, target)

    def _least_error(self, budget: int) -> Found:
        cost = self._sample_cost
        most = budget // (2 * cost)
        epochs = sorted({min(most, round(1.35**k)) for k in range(1 + round(log(most) / log(1.35)))})
        by_size = {M: budget // (cost * M) for M in {budget // (cost * n) for n in epochs}}  # the most epochs
        cells: dict[int, Found] = {}

        def try_step(step: float) -> float:
            orbits = self._orbits(step, list(by_size))
            errors = {M: orbits[M].error(n) if M in orbits else inf for M, n in by_size.items()}
            for M, error in errors.items():
                if M not in cells or error < cells[M].error:
                    cells[M] = self._found(step, M, by_size[M], error)
            return min(errors.values())

        _descend(try_step, self._largest_step, ratio=1.4, patience=30)
        ranked = sorted(cells.values(), key=lambda found: found.error)
        best = ranked[0]
        for cell in ranked[:2]:
            for n in _neighbours(cell.n_epochs):
                M = budget // (cost * n)
                if M >= LEAST_BATCH:
                    step, error = _refine(partial(self._error, M, n), cell.step_size * cell.batch_size / M, inf, 1.6, 9)
                    best = min(best, self._found(step, M, n, error), key=lambda found: found.error)
        return best

    def _fewest_epochs(self, cell: Found, target: float) -> Found:
        """Find the step that needs the fewest epochs with the same batch size."""
        M = cell.batch_size

        def epochs(step: float) -> float:
            orbits = self._orbits(step, [M])
            return _crossing(orbits[M], target, cell.n_epochs) if orbits else inf

        step, n = _refine(epochs, cell.step_size, epochs(cell.step_size), width=1.5, evaluations=8)
        return self._found(step, M, ceil(n), self._error(M, ceil(n), step))

    def _smallest_batch(self, cell: Found, n: int, target: float, cost: float) -> Found | None:
        """Find the smallest batch with which n epochs reach the target at less than `cost`, the step being free.

        For n epochs the best step times the batch size hardly changes, so the two are refined in turn.
        """
        high = int((cost - 1) // (self._sample_cost * n))
        if high < LEAST_BATCH:
            return None
        product = cell.step_size * cell.batch_size
        for width, evaluations in ((1.8, 8), (1.4, 7), (1.15, 6)):
            step, error = _refine(partial(self._error, high, n), product / high, inf, width, evaluations)
            if error > target:
                break
            product = step * high
            high = _bisect(partial(self._error_along, n, product), target, 1, high, 500)
        error = self._error_along(n, product, high)
        return None if error > target else self._found(product / high, high, n, error)


def refine_grid(predictor: ErrorPredictor, steps: Floats, cells: Sequence[tuple[int, int]], errors: Floats) -> Found:
    """Find the least of the errors on a grid, and refine its step; steps fall by STEP_RATIO, a single one is kept."""
    i, j = np.unravel_index(errors.argmin(), errors.shape)
    M, n = cells[int(i)]
    fine = steps
    if len(steps) > 1:
        fine = np.minimum(steps[j] * np.geomspace(1 / STEP_RATIO, STEP_RATIO, _FINE_STEPS), steps[0])
    near = predictor.grid(fine, [(M, n)])[0]
    k = int(near.argmin())
    return Found(float(fine[k]), M, n, M * n, float(near[k]))


class TargetSearch:
    """The fewest pseudo-gradients for several targets; errors of VRTD on a grid of settings are shared by all of them.

    It is leaner than `Search` and uses what is known of the optimum. TD is best with a step whose floor is somewhat
    below the target. VRTD is best with a few long epochs, or with many of the shortest, M = 2. Few epochs: errors on
    the grid are interpolated, and the batch is then made just large enough. What is returned does reach the target, and
    costs a few percent more than the least, at most.
    """

    def __init__(self, predictor: EpochPredictor, targets: Sequence[float]) -> None:
        self._predictor = predictor
        first, last = (round(log2(max((predictor.optimal or 0.0) / t, 2.0))) for t in (max(targets), min(targets)))
        sizes = [2**k for k in range(max(1, first - _SMALLER), last + _LARGER + 1)]
        steps = np.array([predictor.largest_vrtd_step * 0.5**k for k in range(_N_STEPS)])
        errors = predictor.grid(steps, [(M, n) for n in _EPOCHS for M in sizes])
        self._errors = errors.reshape(len(_EPOCHS), len(sizes), len(steps)).swapaxes(1, 2)
        self._sizes, self._steps = np.log(sizes), np.log(steps)

    def td(self, target: float) -> Found:
        """Find the step with a cheap prediction; how many updates it takes is as exact as can be had."""
        predict, cheap, largest = self._predictor.by_step(1), self._predictor.cheap_td, self._predictor.largest_step
        step, n = _best_step(cheap or predict, largest, target)
        if cheap is not None:
            # It is of first order in the step: others are tried where that is large.
            shares = _AROUND if step > _FIRST_ORDER * largest else (1.0,)
            n, step = min((_needed(predict, share * step, target), share * step) for share in shares)
        return Found(step, 1, n, n, predict(step).error(n))

    def vrtd(self, target: float, enough: float = 0.0) -> Found:
        """Find the better of few epochs and, unless these cost less than `enough`, of the shortest."""
        found = [self._smallest_batch(target, *start) for start in self._starts(target)]
        best = min((each for each in found if each is not None), key=lambda each: each.cost, default=None)
        if best is None or best.cost > enough:
            step, n = _best_step(self._predictor.by_step(2), self._predictor.largest_vrtd_step, target)
            if best is None or 4 * n < best.cost:
                best = Found(step, 2, n, 4 * n, self._predictor.by_step(2)(step).error(n))
        return best

    def _starts(self, target: float) -> list[tuple[float, float, int]]:
        """Return (step, batch size, epochs) of the most promising few, interpolated."""
        ranked = []
        for n, errors in zip(_EPOCHS, self._errors, strict=True):
            needed = np.array([_interpolate(self._sizes, row, target) for row in errors])
            at, least = _lowest(self._steps, needed)
            if least < inf:
                ranked.append((log(n) + least, (exp(at), exp(least), n)))
        return [start for _, start in sorted(ranked)[:_CANDIDATES]]

    def _smallest_batch(self, target: float, step: float, start: float, n: int) -> Found | None:
        """Find the smallest batch with which n epochs of this step reach the target, to a part in a thousand."""

        def error(M: int) -> float:
            return self._predictor.by_step(M)(step).error(n)

        low, high = 1, max(2, ceil(1.02 * start))
        while error(high) > target:
            low, high = high, 2 * high
            if high > 16.0 * start + 16.0:
                return None
        high = _bisect(error, target, max(low, high // 2), high, 1000)
        return Found(step, high, n, 2 * high * n, error(high))


def _best_step(predict: StepPredictor, largest: float, target: float) -> tuple[float, int]:
    """Return the step with which the target is reached in the fewest updates or epochs, and their number."""
    from scipy.optimize import brentq

    def above(x: float) -> float:
        return log(min(predict(exp(x)).error(MOST_COST), 1e300) / target)

    low, high = log(_SMALL_STEP * largest), log(largest)
    low -= max(0.0, 1.0 + above(low))  # floors of small steps are proportional to them
    most = exp(high if above(high) <= 0.0 else brentq(above, low, high, xtol=1e-3))
    counts = [_needed(predict, most * (1.0 - room), target) for room in _ROOM]
    between = exp(_lowest(np.log(_ROOM), np.log(counts))[0])
    n, room = min(*zip(counts, _ROOM, strict=True), (_needed(predict, most * (1.0 - between), target), between))
    return most * (1.0 - room), n


def _needed(predict: StepPredictor, step: float, target: float) -> int:
    n = predict(step).first_below(target, MOST_COST)
    return MOST_COST if n is None else n


def _interpolate(x: Floats, errors: Floats, target: float) -> float:
    """Return where along x the errors fall to the target; inf if they do not."""
    below = np.flatnonzero(errors <= target)
    if below.size == 0:
        return inf
    k = int(below[0])
    if k == 0 or not errors[k - 1] < inf:
        return float(x[k])
    share = log(errors[k] / target) / log(errors[k] / errors[k - 1])
    return float(x[k] + share * (x[k - 1] - x[k]))


def _lowest(x: Floats, y: Floats) -> tuple[float, float]:
    """Return where y is least and how low, by the parabola about the lowest point; x is evenly spaced."""
    i = int(y.argmin())
    if not (0 < i < len(x) - 1 and np.isfinite(y[i - 1 : i + 2]).all()):
        return float(x[i]), float(y[i])
    rise, curvature = 0.5 * (y[i - 1] - y[i + 1]), y[i - 1] - 2.0 * y[i] + y[i + 1]
    shift = rise / curvature if curvature > 0.0 else 0.0
    return float(x[i] + shift * (x[i + 1] - x[i])), float(y[i] - 0.5 * shift * rise)


def _crossing(errors: Errors, target: float, most: int) -> float:
    """Return where between two numbers of epochs the error passes the target: whole numbers are too coarse."""
    n = errors.first_below(target, most)
    if n is None or n == 0:
        return inf if n is None else 0
    before, after = errors.error(n - 1), errors.error(n)
    fraction = log(before / target) / log(before / after) if 0.0 < after < before < inf else 1.0
    return n - 1 + min(max(fraction, 1e-9), 1.0)


def _bisect(error: Callable[[int], float], target: float, low: int, high: int, accuracy: int) -> int:
    """Return the smallest number with an error at the target, to a part in `accuracy`; `high` is, `low` is not."""
    while high - low > max(1, high // accuracy):
        middle = max(low + 1, (low + high) // 2) if low > high // 4 else max(low + 1, high * 3 // 4)
        low, high = (low, middle) if error(middle) <= target else (middle, high)
    return high


def _neighbours(n: int) -> list[int]:
    """Return numbers of epochs to look at around n: all close ones, and some further away."""
    return sorted({max(1, k) for k in (n - 2, n - 1, n, n + 1, n + 2, round(0.7 * n), round(0.85 * n), round(1.2 * n))})


def _descend(
    score: Callable[[float], float], largest: float, ratio: float = 2.0, patience: int = 5
) -> tuple[float, float]:
    """Try smaller and smaller steps, until none has been better for a while; return the best and its score."""
    step, best_step, best = largest, largest, inf
    misses = 0
    while step > _SMALLEST_STEP * largest and (best == inf or misses < patience):
        value = score(step)
        misses += 1
        if value < best:
            best_step, best, misses = step, value, 0
        step /= ratio
    return best_step, best


def _follow(score: Callable[[float], float], step: float) -> tuple[float, float]:
    """Refine around the step, and go on from there as long as the best lies at the edge."""
    width, best = 2.0, inf
    for _ in range(6):
        before = step
        step, best = _refine(score, step, best, width, evaluations=8)
        if abs(log(step / before)) < 0.7 * log(width):
            break
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
