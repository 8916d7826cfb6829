"""The best step size, batch size and number of epochs for given predictions of the error.

The cost of a plan is sample_cost M times the number of epochs, in pseudo-gradients or samples: sample_cost is what a
row of a batch costs, its inner step included. The searches know nothing of where predictions come from: they take a
function that gives the orbit of a step size (TD), or of a step size and several batch sizes (VRTD). Grids come first,
because the least cost has several valleys (small batches and many epochs, large batches and few); what they find is
then refined on the scale on which epochs are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import ceil, exp, inf, log
from typing import NamedTuple, Protocol


class Errors(Protocol):
    """Predicted errors after any number of epochs: `vrtd.theory.orbits.Orbit`, or a bound."""

    def error(self, k: int) -> float: ...

    def first_below(self, target: float, most: int) -> int | None: ...


TDPredictor = Callable[[float], Errors]
VRTDPredictor = Callable[[float, Iterable[int]], Mapping[int, Errors]]

#: Plans beyond this cost are not looked for: months at the speed of any machine.
MOST_COST = 10**15
_SMALLEST_STEP = 1e-15  # of the largest
_GOLDEN = (5**0.5 - 1) / 2


class Found(NamedTuple):
    """A plan, what it costs, and the error with which it ends."""

    step_size: float
    batch_size: int
    n_epochs: int
    cost: float
    error: float


def least_cost_td(predict: TDPredictor, polish: TDPredictor, largest_step: float, target: float) -> Found | None:
    """The step with which TD reaches the target in the fewest updates; `polish` is the dearer and better prediction."""

    def updates(step: float, predict: TDPredictor = predict) -> float:
        return _crossing(predict(step), target, MOST_COST)

    step, n = _descend(updates, largest_step, patience=12)
    if n == inf:
        return None
    step, n = _refine(updates, step, n, width=2.0, evaluations=12)
    if polish is not predict:
        polished = partial(updates, predict=polish)
        before = n
        step, n = _follow(polished, step)
        if not n <= 1.2 * before:  # the coarse prediction misled the search
            elsewhere = _refine(polished, *_descend(polished, largest_step, ratio=1.7), width=1.7, evaluations=8)
            step, n = min((step, n), elsewhere, key=lambda found: found[1])
    if n == inf:
        return None
    count = ceil(n)
    return Found(step, 1, count, count, polish(step).error(count))


def _crossing(errors: Errors, target: float, most: int) -> float:
    """Where between two numbers of epochs the error passes the target: a search must see more than whole numbers."""
    n = errors.first_below(target, most)
    if n is None or n == 0:
        return inf if n is None else 0
    before, after = errors.error(n - 1), errors.error(n)
    fraction = log(before / target) / log(before / after) if 0.0 < after < before < inf else 1.0
    return n - 1 + min(max(fraction, 1e-9), 1.0)


def least_error_td(predict: TDPredictor, polish: TDPredictor, largest_step: float, budget: int) -> Found:
    """The step with which TD's error is least after `budget` updates."""

    def error(step: float, predict: TDPredictor = predict) -> float:
        return predict(step).error(budget)

    step, least = _refine(error, *_descend(error, largest_step, patience=12), width=2.0, evaluations=12)
    if polish is not predict:
        polished, before = partial(error, predict=polish), least  # the coarse prediction may mislead the search
        step, least = _follow(polished, step)
        probes = (largest_step / 4.0, largest_step / 40.0, largest_step / 400.0)
        if any(error(probe) > 2.0 * polished(probe) for probe in probes) or not least <= 1.2 * before:  # misled
            elsewhere = _refine(polished, *_descend(polished, largest_step, ratio=1.7), width=1.7, evaluations=8)
            step, least = min((step, least), elsewhere, key=lambda found: found[1])
    return Found(step, 1, budget, budget, least)


def least_cost_vrtd(
    predict: VRTDPredictor, largest_step: float, target: float, sample_cost: int, largest_batch: int
) -> Found | None:
    """The step size, batch size and number of epochs that reach the target at the least cost."""
    sizes = [2**k for k in range(1, max(2, largest_batch).bit_length() + 1)]
    cells: dict[int, Found] = {}  # the best of each batch size

    def try_step(step: float) -> float:
        best = inf
        for M, orbit in predict(step, sizes).items():
            known = cells[M].cost if M in cells else MOST_COST
            n = orbit.first_below(target, int(known / (sample_cost * M)))
            if n is not None and n > 0:
                cost = float(sample_cost * M * n)
                if cost < known or M not in cells:
                    cells[M] = Found(step, M, n, cost, orbit.error(n))
                best = min(best, cost)
        return best

    _descend(try_step, largest_step, ratio=1.4, patience=30)
    ranked = sorted(cells.values(), key=lambda found: found.cost)
    few = [next((cell for cell in ranked if cell.n_epochs == n), None) for n in (1, 2, 3)]  # sizes are coarse for them
    best = ranked[0] if ranked else None
    for cell in dict.fromkeys([*ranked[:4], *(cell for cell in few if cell is not None)]):
        cell = _fewest_epochs(predict, cell, target, sample_cost)
        best = min(best or cell, cell, key=lambda found: found.cost)
        for n in _neighbours(cell.n_epochs):
            found = _smallest_batch(predict, cell, n, target, sample_cost, best.cost)
            best = min(best, found or best, key=lambda found: found.cost)
    return None if best is None else _fewest_epochs(predict, best, target, sample_cost)


def least_error_vrtd(predict: VRTDPredictor, largest_step: float, budget: int, sample_cost: int) -> Found:
    """The step size, batch size and number of epochs with the least error within the budget."""
    most = budget // (2 * sample_cost)
    epochs = sorted({min(most, round(1.35**k)) for k in range(1 + round(log(most) / log(1.35)))})
    sizes = {budget // (sample_cost * n) for n in epochs}
    by_size = {M: budget // (sample_cost * M) for M in sizes}  # the most epochs that cost no more
    cells: dict[int, Found] = {}

    def try_step(step: float) -> float:
        best = inf
        for M, orbit in predict(step, by_size).items():
            n = by_size[M]
            error = orbit.error(n)
            if M not in cells or error < cells[M].error:
                cells[M] = Found(step, M, n, sample_cost * M * n, error)
            best = min(best, error)
        return best

    _descend(try_step, largest_step, ratio=1.4, patience=30)
    best = min(cells.values(), key=lambda found: found.error)
    for cell in sorted(cells.values(), key=lambda found: found.error)[:2]:
        for n in _neighbours(cell.n_epochs):
            M = budget // (sample_cost * n)
            if M < 2:
                continue
            step, error = _refine(_error(predict, M, n), cell.step_size * cell.batch_size / M, inf, 1.6, 9)
            best = min(best, Found(step, M, n, sample_cost * M * n, error), key=lambda found: found.error)
    return best


def _fewest_epochs(predict: VRTDPredictor, cell: Found, target: float, sample_cost: int) -> Found:
    """The same batch size with a step that needs the fewest epochs."""
    M = cell.batch_size

    def epochs(step: float) -> float:
        return _crossing(predict(step, [M])[M], target, cell.n_epochs)

    step, n = _refine(epochs, cell.step_size, epochs(cell.step_size), width=1.5, evaluations=8)
    return Found(step, M, ceil(n), float(sample_cost * M * ceil(n)), predict(step, [M])[M].error(ceil(n)))


def _smallest_batch(
    predict: VRTDPredictor, cell: Found, n: int, target: float, sample_cost: int, cost: float
) -> Found | None:
    """The smallest batch with which n epochs reach the target at less than `cost`, the step being free.

    For n epochs the best step times the batch size hardly changes, so the two are refined in turn.
    """
    high = int((cost - 1) // (sample_cost * n))
    if high < 2:
        return None
    product = cell.step_size * cell.batch_size
    for width, evaluations in ((1.8, 8), (1.4, 7), (1.15, 6)):
        step, error = _refine(_error(predict, high, n), product / high, inf, width, evaluations)
        if error > target:
            break
        product, low = step * high, 1
        while high - low > max(1, high // 500):
            middle = max(low + 1, (low + high) // 2) if low > high // 4 else max(low + 1, high * 3 // 4)
            if _error(predict, middle, n)(product / middle) <= target:
                high = middle
            else:
                low = middle
    error = _error(predict, high, n)(product / high)
    if error > target:
        return None
    return Found(product / high, high, n, float(sample_cost * high * n), error)


def _error(predict: VRTDPredictor, M: int, n: int) -> Callable[[float], float]:
    """The error after n epochs with batches of M, as a function of the step."""
    return lambda step: predict(step, [M])[M].error(n)


def _neighbours(n: int) -> list[int]:
    """Numbers of epochs to look at around n: all close ones, and some further away."""
    return sorted({max(1, k) for k in (n - 2, n - 1, n, n + 1, n + 2, round(0.7 * n), round(0.85 * n), round(1.2 * n))})


def _descend(
    score: Callable[[float], float], largest: float, ratio: float = 2.0, patience: int = 5
) -> tuple[float, float]:
    """Smaller and smaller steps, until none has been better for a while: the best and its score."""
    step, best_step, best = largest, largest, inf
    misses = 0
    while step > _SMALLEST_STEP * largest and (best == inf or misses < patience):
        value = score(step)
        misses += 1
        if value < best:
            best_step, best, misses = step, value, 0
        step /= ratio
    return best_step, best


def _follow(score: Callable[[float], float], step: float, width: float = 2.0) -> tuple[float, float]:
    """Refine around the step, and go on from there as long as the best lies at the edge."""
    best = inf
    for _ in range(6):
        before = step
        step, best = _refine(score, step, best, width, evaluations=8)
        if abs(log(step / before)) < 0.7 * log(width):
            break
    return step, best


def _refine(
    score: Callable[[float], float], step: float, best: float, width: float, evaluations: int
) -> tuple[float, float]:
    """Golden section on a logarithmic scale, within a factor of `width` of the step; never worse than `best`."""
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
