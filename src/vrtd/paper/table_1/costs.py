"""The fewest pseudo-gradients with which TD and VRTD reach a target: best step, best batch size.

Many targets are gone through, so the search is leaner than the planner's and uses what is known of the optimum. TD is
best with a step whose floor is somewhat below the target. VRTD is best with a few long epochs, or with many of the
shortest, M = 2. Few epochs: errors on a coarse grid are interpolated, and the batch is then made just large enough.
What is returned does reach the target, and costs a few percent more than the least, at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, inf, log, log2

import numpy as np
from scipy.optimize import brentq

from vrtd.arrays import Floats
from vrtd.paper.experiment import Settings
from vrtd.paper.table_1.floors import Rows, build
from vrtd.theory.predictions import Predictions, exact_predictions
from vrtd.theory.search import MOST_COST, Errors, Found, TDPredictor

_EPOCHS = (1, 2, 3, 4, 6, 10)
_N_STEPS = 14  # each half the one before
_SMALLER, _LARGER = 5, 3  # doublings of the batch size about that of one perfect epoch
_CANDIDATES = 2
# With short epochs and small steps VRTD is TD with (2M + 1)/(3M) times the noise and (M + 1)/(4M) times the speed: at
# M = 2 it costs 20/9 times as much. They are not looked at where something costs less than this many times TD.
_SHORT_EPOCHS = 1.5
# How far steps are below the one whose floor is the target.
_ROOM = [0.03 * 1.5**k for k in range(9)]
_SMALL_STEP, _FIRST_ORDER = 1e-4, 0.1  # of the largest
_AROUND = (0.75, 0.85, 1.0, 1.15)


def costs(settings: Settings) -> Rows:
    """Tuned TD and tuned VRTD for each member of each family and each target."""
    rows = []
    for member in settings["costs"]:
        problem = build(member["problem"])
        theta_0 = np.full(problem.n_features, member["theta_0"])
        predictions = exact_predictions(problem, member["sampling"], theta_0, "random")
        initial = float(np.sum((theta_0 - problem.theta_star) ** 2))
        tuning = Tuning(predictions, [share * initial for share in member["targets"]])
        for share in member["targets"]:
            td = tuning.td(share * initial)
            vrtd = tuning.vrtd(share * initial, _SHORT_EPOCHS * td.cost)
            how = {"TD": predictions.td_method(td.step_size), "VRTD": predictions.vrtd_method}
            rows += [
                {
                    "family": member["family"], "sampling": member["sampling"], "method": method,
                    "lambda_A": problem.lambda_A, "target": share, "step_size": found.step_size,
                    "batch_size": found.batch_size, "n_epochs": found.n_epochs, "cost": int(found.cost),
                    "basis": how[method].split(":")[0],
                }
                for method, found in (("TD", td), ("VRTD", vrtd))
            ]  # fmt: skip
    return rows


class Tuning:
    """Searches for one problem and several targets; errors of VRTD on a grid of settings are shared by all targets."""

    def __init__(self, predictions: Predictions, targets: Sequence[float]) -> None:
        self._predictions = predictions
        first, last = (round(log2(max(predictions.optimal / t, 2.0))) for t in (max(targets), min(targets)))
        sizes = [2**k for k in range(max(1, first - _SMALLER), last + _LARGER + 1)]
        steps = predictions.largest_vrtd_step * 0.5 ** np.arange(_N_STEPS)
        self._errors = np.empty((len(_EPOCHS), _N_STEPS, len(sizes)))
        for i, step in enumerate(steps.tolist()):
            orbits = predictions.vrtd(step, sizes)
            self._errors[:, i] = [[orbits[M].error(n) for M in sizes] for n in _EPOCHS]
        self._sizes, self._steps = np.log(sizes), np.log(steps)

    def td(self, target: float) -> Found:
        """The step is found with a cheap prediction; how many updates it takes is as exact as can be had."""
        p = self._predictions
        step, n = _best_step(p.td, p.largest_step, target)
        if p.td_polish is not p.td:
            # The cheap one is of first order in the step: others are tried where that is large.
            shares = _AROUND if step > _FIRST_ORDER * p.largest_step else (1.0,)
            n, step = min((_needed(p.td_polish, share * step, target), share * step) for share in shares)
        return Found(step, 1, n, n, p.td_polish(step).error(n))

    def vrtd(self, target: float, enough: float = 0.0) -> Found:
        """The better of few epochs and, unless these cost less than `enough`, of the shortest."""
        found = [self._smallest_batch(target, *start) for start in self._starts(target)]
        best = min((each for each in found if each is not None), key=lambda each: each.cost, default=None)
        if best is None or best.cost > enough:

            def pairs(step: float) -> Errors:
                return self._predictions.vrtd(step, [2])[2]

            step, n = _best_step(pairs, self._predictions.largest_vrtd_step, target)
            if best is None or 4 * n < best.cost:
                best = Found(step, 2, n, 4 * n, pairs(step).error(n))
        return best

    def _starts(self, target: float) -> list[tuple[float, float, int]]:
        """(step, batch size, epochs) of the most promising few, interpolated."""
        ranked = []
        for n, errors in zip(_EPOCHS, self._errors, strict=True):
            needed = np.array([_crossing(self._sizes, row, target) for row in errors])
            at, least = _lowest(self._steps, needed)
            if least < inf:
                ranked.append((log(n) + least, (exp(at), exp(least), n)))
        return [start for _, start in sorted(ranked)[:_CANDIDATES]]

    def _smallest_batch(self, target: float, step: float, start: float, n: int) -> Found | None:
        """The smallest batch with which n epochs of this step reach the target, to a part in a thousand."""

        def error(M: int) -> float:
            return self._predictions.vrtd(step, [M])[M].error(n)

        low, high = 1, max(2, ceil(1.02 * start))
        while error(high) > target:
            low, high = high, 2 * high
            if high > 16.0 * start + 16.0:
                return None
        low = max(low, high // 2)
        while high - low > max(1, high // 1000):
            middle = (low + high) // 2
            low, high = (middle, high) if error(middle) > target else (low, middle)
        return Found(step, high, n, 2 * high * n, error(high))


def _best_step(predict: TDPredictor, largest: float, target: float) -> tuple[float, int]:
    """The step with which the target is reached in the fewest updates or epochs, and their number."""

    def above(x: float) -> float:
        return log(min(predict(exp(x)).error(MOST_COST), 1e300) / target)

    low, high = log(_SMALL_STEP * largest), log(largest)
    low -= max(0.0, 1.0 + above(low))  # floors of small steps are proportional to them
    most = exp(high if above(high) <= 0.0 else brentq(above, low, high, xtol=1e-3))
    counts = [_needed(predict, most * (1.0 - room), target) for room in _ROOM]
    between = exp(_lowest(np.log(_ROOM), np.log(counts))[0])
    n, room = min(*zip(counts, _ROOM, strict=True), (_needed(predict, most * (1.0 - between), target), between))
    return most * (1.0 - room), n


def _needed(predict: TDPredictor, step: float, target: float) -> int:
    n = predict(step).first_below(target, MOST_COST)
    return MOST_COST if n is None else n


def _crossing(x: Floats, errors: Floats, target: float) -> float:
    """Where along x the errors fall to the target; inf if they do not."""
    below = np.flatnonzero(errors <= target)
    if below.size == 0:
        return inf
    k = int(below[0])
    if k == 0 or not errors[k - 1] < inf:
        return float(x[k])
    share = log(errors[k] / target) / log(errors[k] / errors[k - 1])
    return float(x[k] + share * (x[k - 1] - x[k]))


def _lowest(x: Floats, y: Floats) -> tuple[float, float]:
    """Where y is least and how low: on the parabola through the lowest point and its neighbours; x is evenly spaced."""
    i = int(y.argmin())
    if not (0 < i < len(x) - 1 and np.isfinite(y[i - 1 : i + 2]).all()):
        return float(x[i]), float(y[i])
    rise, curvature = 0.5 * (y[i - 1] - y[i + 1]), y[i - 1] - 2.0 * y[i] + y[i + 1]
    shift = rise / curvature if curvature > 0.0 else 0.0
    return float(x[i] + shift * (x[i + 1] - x[i])), float(y[i] - 0.5 * shift * rise)
