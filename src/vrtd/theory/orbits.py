"""E|theta - theta_star|^2 after any number of epochs, and the first number at which it is small enough."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

import numpy as np

from vrtd.arrays import Floats
from vrtd.theory.increments import Increments, lag_operator
from vrtd.theory.markov import MarkovTD
from vrtd.theory.moments import EpochMap, td_terms
from vrtd.theory.symmetric import corner, pack

# A trajectory of TD is in its slow subspace after this many updates, or is not followed further.
_MOST_EARLY = 20_000
# Beyond this many moments of all states, their matrix is too large to be squared again and again.
_MOST_MOMENTS = 600


class Errors(ABC):
    """Predicted errors after any number of epochs, the updates of TD being epochs."""

    early: Floats  # errors of the first epochs, that of theta_0 among them

    @abstractmethod
    def error(self, k: int) -> float:
        """Return the error after k epochs; inf once it has overflowed, or where nothing is predicted."""

    def first_below(self, target: float, most: int) -> int | None:
        """Return the least number of epochs, up to `most`, after which the error is at most `target`.

        Beyond the first epochs it is found by doubling and bisection, which takes the error to fall once it has begun
        to.
        """
        early = self.early
        hits = np.flatnonzero(early[: most + 1] <= target)
        if hits.size:
            return int(hits[0])
        start, span = len(early) - 1, 1  # start + 2^k epochs take one product of an orbit
        low, high = min(start, most), min(start + span, most)
        while high < most and self.error(high) > target:
            low, span = high, 2 * span
            high = min(start + span, most)
        if self.error(high) > target:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.error(middle) > target else (low, middle)
        return high


class Orbit(Errors):
    """The errors of the first epochs one by one, then those of T^k x."""

    def __init__(self, early: Floats, x: Floats, T: Floats, trace: Floats, mass: Floats | None = None) -> None:
        """`early` ends with the error at x; `trace` . pack(Y) = E|u|^2; `mass` . x = 1 but for rounding, if given."""
        self.early, self._x, self._trace, self._mass = early, x, trace, mass
        self._squares = [T]

    def error(self, k: int) -> float:
        if k < len(self.early):
            return float(self.early[k])
        x = self._x
        with np.errstate(over="ignore", invalid="ignore"):
            rest = k - len(self.early) + 1
            for bit in range(rest.bit_length()):
                if bit == len(self._squares):
                    self._squares.append(self._squares[-1] @ self._squares[-1])
                if rest >> bit & 1:
                    x = self._squares[bit] @ x
            error = float(self._trace @ x) / (1.0 if self._mass is None else float(self._mass @ x))
        return error if np.isfinite(error) else np.inf


def epoch_orbit(increments: Increments, epoch: EpochMap, theta_0: Floats) -> Orbit:
    """Of VRTD from theta_0."""
    x, trace = increments.start(theta_0), _trace(increments.n_features)
    with np.errstate(over="ignore", invalid="ignore"):
        then = epoch.first @ x
        early = np.array([trace @ x, trace @ then])
    return Orbit(np.where(np.isfinite(early), early, np.inf), then, epoch.later, trace)


class TDOrbits:
    """Of TD for any step size: exact for independent transitions.

    For those of a trajectory an approximation to first order in the step: noise with its long-run covariance.
    """

    def __init__(self, increments: Increments, theta_0: Floats) -> None:
        self._terms = td_terms(increments)
        d = increments.n_features
        if increments.correlation is not None:
            lags = increments.correlation.within(np.inf)
            self._terms[2][corner(d + 1, d)] += lag_operator(lags, d)
            # What an update adds is remembered: E[Z_k y_k] = (Z + step sum_j E[(A_j - A) Z_0]) y, drift and bias.
            remembered = np.einsum("mpjm->jp", lags.reshape(d, d + 1, d, d + 1)[..., :d])
            self._terms[2][:] += td_terms(replace(increments, mean=remembered, correlation=None))[1]
        self._x, self._trace = increments.start(theta_0), _trace(d)

    def __call__(self, step_size: float) -> Orbit:
        still, first, second = self._terms
        T = still + step_size * first + step_size**2 * second
        return Orbit(np.array([self._trace @ self._x]), self._x, T, self._trace)


def markov_td_orbit(recursion: MarkovTD, step_size: float, theta_0: Floats, initial: Floats) -> Errors:
    """Return the errors of TD along a trajectory: exact, where it is `Followed` up to a number of updates only."""
    trace, start = _trace(recursion.n_features), recursion.start(theta_0, initial)
    found = recursion.until_slow(start, step_size, _MOST_EARLY)
    if found is not None:
        totals, T = found
        return Orbit(totals @ trace, totals[-1], T, trace)
    if recursion.n_moments > _MOST_MOMENTS:
        return Followed(recursion, step_size, start, trace)
    x, traces = pack(start).ravel(), np.tile(trace, len(start))
    mass = np.tile(np.eye(1, len(trace), len(trace) - 1).ravel(), len(start))
    return Orbit(np.array([traces @ x]), x, recursion.dense(step_size), traces, mass)


class Followed(Errors):
    """TD on a large chain without slow modes that could be found (a large step, or slow mixing): update by update.

    Beyond `reach` updates the errors are those of `later`, or unknown.
    """

    reach: ClassVar[int] = 4000
    later: Errors | None = None

    def __init__(self, recursion: MarkovTD, step_size: float, start: Floats, trace: Floats) -> None:
        self._recursion, self._step, self._Y, self._trace = recursion, step_size, start, trace
        self._errors = [float(trace @ pack(start.sum(axis=0)))]
        self.early = np.array(self._errors)

    def error(self, k: int) -> float:
        if k > self.reach:
            return np.inf if self.later is None else self.later.error(k)
        with np.errstate(over="ignore", invalid="ignore"):
            while len(self._errors) <= k and self._errors[-1] < np.inf:
                self._Y = self._recursion.update(self._Y, self._step)
                error = float(self._trace @ pack(self._Y.sum(axis=0)))
                self._errors.append(error if np.isfinite(error) else np.inf)
        return self._errors[min(k, len(self._errors) - 1)]

    def first_below(self, target: float, most: int) -> int | None:
        n = super().first_below(target, min(most, self.reach))
        if n is not None or most <= self.reach or self.later is None:
            return n
        n = self.later.first_below(target, most)
        return None if n is None else max(n, self.reach + 1)


def _trace(d: int) -> Floats:
    weights = np.zeros((d + 1, d + 1))
    weights[:d, :d] = np.eye(d)
    return pack(weights)
