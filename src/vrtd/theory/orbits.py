"""E|theta - theta_star|^2 after any number of epochs, and the first epoch at which it reaches a target."""

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

# Largest number of updates after which the moments of TD must be in the slow subspace.
_MOST_EARLY = 20_000
# With more moments of all states than this, their matrix is too large for repeated squaring.
_MOST_MOMENTS = 600


class Errors(ABC):
    """Base of the predicted errors after any number of epochs; an update of TD counts as an epoch."""

    early: Floats  # errors of the first epochs, beginning with theta_0

    @abstractmethod
    def error(self, k: int) -> float:
        """Return the error after k epochs; inf if it has overflowed, or without a prediction."""

    def first_below(self, target: float, most: int) -> int | None:
        """Return the least number of epochs, up to ``most``, after which the error is at most ``target``.

        Beyond the first epochs it is found by doubling and bisection, on the assumption that the error then falls.
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
    """Errors of the first epochs one by one, then those of T^k x."""

    def __init__(self, early: Floats, x: Floats, T: Floats, trace: Floats, mass: Floats | None = None) -> None:
        """Store the first errors and the map.

        `early` ends with the error at x. `trace` . pack(Y) is E|u|^2. `mass` . x is 1 up to rounding; it is used to
        normalise the error.
        """
        self.early, self._x, self._trace, self._mass = early, x, trace, mass
        self._squares = [T]

    def error(self, k: int) -> float:
        """Return the error after k epochs."""
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
    """Return the errors of VRTD from theta_0."""
    x, trace = increments.start(theta_0), _trace(increments.n_features)
    with np.errstate(over="ignore", invalid="ignore"):
        then = epoch.first @ x
        early = np.array([trace @ x, trace @ then])
    return Orbit(np.where(np.isfinite(early), early, np.inf), then, epoch.later, trace)


class TDOrbits:
    """Errors of TD for any step size.

    They are exact for independent transitions. On a trajectory they are an approximation to first order in the step,
    which uses the long-run covariance of the noise.
    """

    def __init__(self, increments: Increments, theta_0: Floats) -> None:
        self._terms = td_terms(increments)
        d = increments.n_features
        if increments.correlation is not None:
            lags = increments.correlation.within(np.inf)
            self._terms[2][corner(d + 1, d)] += lag_operator(lags, d)
            # Updates are correlated with later rows: E[Z_k y_k] = (Z + step sum_j E[(A_j - A) Z_0]) y, drift and bias.
            remembered = np.einsum("mpjm->jp", lags.reshape(d, d + 1, d, d + 1)[..., :d])
            self._terms[2][:] += td_terms(replace(increments, mean=remembered, correlation=None))[1]
        self._x, self._trace = increments.start(theta_0), _trace(d)

    def __call__(self, step_size: float) -> Orbit:
        """Return the errors for this step size."""
        still, first, second = self._terms
        T = still + step_size * first + step_size**2 * second
        return Orbit(np.array([self._trace @ self._x]), self._x, T, self._trace)


def markov_td_orbit(recursion: MarkovTD, step_size: float, theta_0: Floats, initial: Floats) -> Errors:
    """Return the exact errors of TD along a trajectory; a ``Followed`` result is limited to a number of updates."""
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
    """Errors of TD on a large chain, computed update by update.

    This is used if no slow subspace was found, because the step is large or the chain mixes slowly. Beyond ``reach``
    updates the errors are those of ``later``, or unknown.
    """

    reach: ClassVar[int] = 4000
    later: Errors | None = None

    def __init__(self, recursion: MarkovTD, step_size: float, start: Floats, trace: Floats) -> None:
        self._recursion, self._step, self._Y, self._trace = recursion, step_size, start, trace
        self._errors = [float(trace @ pack(start.sum(axis=0)))]
        self.early = np.array(self._errors)

    def error(self, k: int) -> float:
        """Return the error after k updates."""
        if k > self.reach:
            return np.inf if self.later is None else self.later.error(k)
        with np.errstate(over="ignore", invalid="ignore"):
            while len(self._errors) <= k and self._errors[-1] < np.inf:
                self._Y = self._recursion.update(self._Y, self._step)
                error = float(self._trace @ pack(self._Y.sum(axis=0)))
                self._errors.append(error if np.isfinite(error) else np.inf)
        return self._errors[min(k, len(self._errors) - 1)]

    def first_below(self, target: float, most: int) -> int | None:
        """Return the least number of updates for the target, first among those that are followed."""
        n = super().first_below(target, min(most, self.reach))
        if n is not None or most <= self.reach or self.later is None:
            return n
        n = self.later.first_below(target, most)
        return None if n is None else max(n, self.reach + 1)


def _trace(d: int) -> Floats:
    weights = np.zeros((d + 1, d + 1))
    weights[:d, :d] = np.eye(d)
    return pack(weights)
