"""Predictors of the final error of given settings: proven bounds, exact moments, and moments estimated from a sample.

The fourth kind, which uses the modes of A of a sample, is in `vrtd.theory.modal`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from vrtd.algorithms import ChainSampling
from vrtd.algorithms.vrtd import Output
from vrtd.arrays import Floats
from vrtd.errors import FeatureScaleError, InvalidInputError
from vrtd.problems import LinearProblem
from vrtd.theory.bounds import td_iid_bound, td_markov_bound, vrtd_iid_bound, vrtd_markov_bound
from vrtd.theory.constants import check_assumptions
from vrtd.theory.increments import Increments
from vrtd.theory.limits import increments_of, optimal_error, stability_limit, stable_below
from vrtd.theory.markov import MarkovTD
from vrtd.theory.moments import epoch_maps
from vrtd.theory.orbits import Errors, Followed, TDOrbits, epoch_orbit, markov_td_orbit
from vrtd.theory.statements import Bound

StepPredictor = Callable[[float], Errors]

# For a sample of a trajectory, the relative error of a first-order prediction was found to be about this factor times
# the step, divided by TD's stability limit over the correlation time of the noise. Steps are limited so that this is a
# few percent.
_SECOND_ORDER, _FIRST_ORDER_SHARE = 2.5, 0.06
# The relative change of the drift is kept below the first number. It moves the logarithm of an error by up to the
# second number times the change, because a rate acts over several time constants.
_MOST_SHIFT, _SHIFT_EFFECT = 0.05, 5.0
_FOLLOW_SHARE = 0.1  # share of TD's stability limit; larger steps are never predicted to first order
_LEAST_TAU = 0.01  # a smaller correlation time is not significantly above 0


class Prediction(Enum):
    """How an error was predicted.

    Attributes
    ----------
    basis : str
        Kind of the prediction, such as ``"exact"`` or ``"bound"``.
    detail : str
        What the prediction neglects, or which bound it uses.
    """

    EXACT = "exact", ""
    FIRST_ORDER = "approximation", "to first order in the step"
    ALGORITHM_2 = "approximation", "inner samples as if independent of the batches"
    TD_IID_BOUND = "bound", "td_iid_bound, sharp"
    VRTD_IID_BOUND = "bound", "vrtd_iid_bound, sharp"
    TD_MARKOV_BOUND = "bound", "td_markov_bound"
    VRTD_MARKOV_BOUND = "bound", "vrtd_markov_bound, corrected"
    MODES = "modes of A", ""
    MODES_OF_VALUES = (
        "modes of A, minimising the error of phi.theta",
        "some directions of theta need more rows",
    )
    NONE = "fallback", ""

    def __init__(self, basis: str, detail: str) -> None:
        self.basis, self.detail = basis, detail

    def describe(self, *notes: str) -> str:
        """Return a text with the basis, the detail and further notes.

        Parameters
        ----------
        *notes : str
            Further notes. Empty ones are left out.

        Returns
        -------
        str
            The text.

        Examples
        --------
        >>> Prediction.EXACT.describe(), Prediction.FIRST_ORDER.describe("a guess")
        ('exact', 'approximation: to first order in the step; a guess')
        """
        known = [note for note in (self.detail, *notes) if note]
        return f"{self.basis}: {'; '.join(known)}" if known else self.basis


class ErrorPredictor(ABC):
    """Base of the predictors of errors of TD and VRTD. A batch of 1 is TD, whose updates count as epochs."""

    @abstractmethod
    def grid(self, steps: Floats, cells: Sequence[tuple[int, int]]) -> Floats:
        """Return the errors as an array (cells, steps); a cell is a pair (batch size, epochs)."""


class EpochPredictor(ErrorPredictor):
    """Base of the predictors of the error after every epoch, which also tell when a target is reached."""

    largest_step: float  # largest step of TD
    largest_vrtd_step: float
    limit: str  # text: why the error cannot be smaller
    # In the long run every error is at least this over the number of samples; None for bounds.
    optimal: float | None = None
    cheap_td: StepPredictor | None = None  # for a first search, if `errors` is expensive for TD
    relative_error: float = 0.0  # relative error of an approximation per unit of the step

    @abstractmethod
    def errors(self, step: float, sizes: Collection[int]) -> dict[int, Errors]:
        """Return the errors for each of the batch sizes."""

    @abstractmethod
    def prediction(self, step: float, batch_size: int) -> Prediction:
        """Return how the error is predicted for these settings."""

    def by_step(self, batch_size: int) -> StepPredictor:
        """Return the errors of one batch size as a function of the step."""
        return lambda step: self.errors(step, [batch_size])[batch_size]

    def grid(self, steps: Floats, cells: Sequence[tuple[int, int]]) -> Floats:
        """Return the errors as an array (cells, steps), from the errors of each step."""
        sizes = list(dict.fromkeys(M for M, _ in cells))
        by_step = [self.errors(step, sizes) for step in steps.tolist()]
        return np.array([[errors[M].error(n) for errors in by_step] for M, n in cells])


class MomentPredictor(EpochPredictor):
    """Predictor by moments, exact or estimated; on a trajectory it is of first order in the step."""

    def __init__(self, increments: Increments, theta_0: Floats, output: Output, largest_step: float) -> None:
        self._increments, self._theta_0, self._output = increments, theta_0, output
        self._td: StepPredictor = TDOrbits(increments, theta_0)
        self._independent = increments.correlation is None
        self.largest_step = largest_step
        self.largest_vrtd_step = 2.0 * largest_step if self._independent else largest_step
        self.optimal = optimal_error(increments)
        self.limit = f"in the long run no such method is below the instance-optimal error, {self.optimal:.4g} / samples"

    def errors(self, step: float, sizes: Collection[int]) -> dict[int, Errors]:
        """Return the errors for each of the batch sizes, from the map of one epoch."""
        errors: dict[int, Errors] = {1: self._td(step)} if 1 in sizes else {}
        batches = [M for M in sizes if M > 1]
        if batches:
            with np.errstate(over="ignore", invalid="ignore"):
                for M, epoch in epoch_maps(self._increments, step, batches, self._output).items():
                    errors[M] = epoch_orbit(self._increments, epoch, self._theta_0)
        return errors

    def prediction(self, step: float, batch_size: int) -> Prediction:  # noqa: ARG002
        """Return how the error is predicted: exactly for independent samples, otherwise to first order."""
        if self._independent:
            return Prediction.EXACT
        return Prediction.FIRST_ORDER if batch_size == 1 else Prediction.ALGORITHM_2


class _TrajectoryPredictor(MomentPredictor):
    """Predictor for trajectories of a known chain; TD is exact if the chain is small or mixes fast enough."""

    def __init__(self, problem: LinearProblem, theta_0: Floats, output: Output) -> None:
        super().__init__(increments_of(problem, "markov"), theta_0, output, stability_limit(problem, "markov"))
        self.largest_vrtd_step = stability_limit(problem) / 2.0
        recursion, initial, first_order = MarkovTD(problem), problem.mrp.stationary, self._td

        @lru_cache(maxsize=64)
        def follow(step: float) -> Errors:
            errors = markov_td_orbit(recursion, step, theta_0, initial)
            if isinstance(errors, Followed) and step <= _FOLLOW_SHARE * self.largest_step:
                errors.later = first_order(step)  # larger steps have no prediction beyond the reach
            return errors

        self.cheap_td, self._td = first_order, follow

    def prediction(self, step: float, batch_size: int) -> Prediction:
        if batch_size == 1:
            errors = self._td(step)
            if not isinstance(errors, Followed) or errors.later is None:
                return Prediction.EXACT
        return super().prediction(step, batch_size)


def exact_predictor(problem: LinearProblem, sampling: ChainSampling, theta_0: Floats, output: Output) -> EpochPredictor:
    """Return the predictor by the moments of the chain."""
    if sampling == "markov":
        return _TrajectoryPredictor(problem, theta_0, output)
    return MomentPredictor(increments_of(problem, sampling), theta_0, output, stability_limit(problem, sampling))


def sample_predictor(increments: Increments, theta_0: Floats, output: Output, largest_norm: float) -> EpochPredictor:
    """Return the predictor by the moments of a sample; ``largest_norm`` is its largest |phi|^2."""
    largest = stable_below(increments, largest_norm)
    if increments.correlation is None:
        return MomentPredictor(increments, theta_0, output, largest)
    plain = optimal_error(replace(increments, correlation=None))
    tau = optimal_error(increments) / plain if plain > 0.0 else 1.0
    scale = largest / max(tau, 1.0 / max(tau, _LEAST_TAU))
    # To the next order the drift is A + step C, where C is the sum over lags of E[(A_k - A)(A_0 - A)].
    d = increments.n_features
    lags = increments.correlation.within(np.inf).reshape(d, d + 1, d, d + 1)
    C = np.einsum("mpjm->jp", lags[:, :d, :, :d])
    shift = float(np.abs(np.linalg.eigvals(np.linalg.solve(increments.A, C))).max())
    most = min(_FIRST_ORDER_SHARE * scale, _MOST_SHIFT / max(shift, 1e-300))
    predictor = MomentPredictor(increments, theta_0, output, most)
    predictor.relative_error = max(_SECOND_ORDER / scale, _SHIFT_EFFECT * shift)
    return predictor


class BoundPredictor(EpochPredictor):
    """Predictor by proven bounds, with the constants of the chain."""

    limit = "the bounds need larger batches and smaller steps"

    def __init__(self, problem: LinearProblem, sampling: ChainSampling, theta_0: Floats, radius: float | None) -> None:
        self._problem, self._theta_0, self._radius, self._is_iid = problem, theta_0, radius, sampling == "iid"
        self.largest_step = self.largest_vrtd_step = 1.0 / problem.lambda_A
        if not self._is_iid:
            assumptions = check_assumptions(problem)
            for condition in vars(assumptions).values():
                if not condition.holds:
                    error = FeatureScaleError if condition is assumptions.bounded_features else InvalidInputError
                    raise error(
                        f"The condition that {condition.statement} fails: {condition.detail}.",
                        'Alternatively, plan with mode="exact".',
                    )

    def errors(self, step: float, sizes: Collection[int]) -> dict[int, Errors]:
        """Return the bounds for each of the batch sizes."""
        return {M: BoundErrors(self._bound(step, M)) for M in sizes}

    def prediction(self, step: float, batch_size: int) -> Prediction:  # noqa: ARG002
        """Return the bound that applies."""
        if self._is_iid:
            return Prediction.TD_IID_BOUND if batch_size == 1 else Prediction.VRTD_IID_BOUND
        return Prediction.TD_MARKOV_BOUND if batch_size == 1 else Prediction.VRTD_MARKOV_BOUND

    def _bound(self, step: float, M: int) -> Bound[Any]:
        problem, theta_0, radius = self._problem, self._theta_0, self._radius
        if self._is_iid:
            if M == 1:
                return td_iid_bound(problem, step, theta_0, form="sharp")
            return vrtd_iid_bound(problem, step, M, theta_0, form="sharp")
        if M == 1:
            return td_markov_bound(problem, step, theta_0, radius)
        return vrtd_markov_bound(problem, step, M, theta_0, radius, form="corrected")


class BoundErrors(Errors):
    """Errors by a bound; inf if the bound is not valid."""

    def __init__(self, bound: Bound[Any]) -> None:
        self._bound, self._predicts = bound, bound.valid and bound.rate < 1.0
        self.early = np.array([self.error(0)])

    def error(self, k: int) -> float:
        """Return the bound after k epochs."""
        b = self._bound
        return b.initial * b.rate**k + b.floor if self._predicts else np.inf
