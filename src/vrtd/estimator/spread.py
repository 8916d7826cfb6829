"""How far an estimate may be from theta_star: intervals of theta and of phi(s).theta.

They are for phi(s).theta_star, which is the value V(s) only where the features can represent it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import TD, VRTD, Algorithm
from vrtd.arrays import Floats
from vrtd.errors import InvalidInputError, NotFittedError
from vrtd.estimator.doubly_robust import DoublyRobust, check_doubly_robust
from vrtd.estimator.episodes import LEAST_STARTS
from vrtd.estimator.estimates import Estimates, Intervals, Parts, block_degrees
from vrtd.estimator.learner import Learner
from vrtd.estimator.least_squares import Solution, add, no_sums, solve
from vrtd.estimator.overlap import MOST_ROWS, Overlap, TargetSample, measure_overlap
from vrtd.estimator.state import FitState, Setup, initial_theta, sample_of
from vrtd.features import TargetFeatures, spans_constant
from vrtd.problems import Transitions
from vrtd.series import block_covariances
from vrtd.theory.recursion import recursion_moments

Method = Literal["recursion", "closed_form"]  # what an interval is of
Limit = Literal["rows", "transient", "bias", "variance", "budget", "features"]  # what the error is mostly made of

# This many further epochs leave nothing of the start: what remains of the mean is bias.
_FOREVER = 1 << 40
# A run that is further from the closed form of the sample than this multiple of the expected distance is in doubt.
_FAR = 5.0
# Below this effective sample size an interval is in doubt. Chains that change their regime 10 to 40 times in a log are
# below it; most chains that change it 100 times are above (docs/evaluate.md has the coverage of both).
_LEAST_EFFECTIVE = 50.0
#: A value that depends on features which no row has is widened by what they may be worth. Beyond so many visits to them
#: it is not known.
MOST_OPEN = 0.5
_LEAST_ROWS = 32  # for a variance from block means
_LEAST_SEEN = 10  # rows of the sample in which a feature must not be 0, for its noise to be known


@dataclass(frozen=True, eq=False)
class Spread:
    """An estimate, its covariance, and what remains of the start (and of a bias of the method)."""

    theta: Floats  # (d,)
    covariance: Floats  # (d, d)
    remainder: Floats  # (d,) E theta - theta_star
    bias: Floats  # (d,) the part of it that stays
    optimal: Floats  # (d, d) n times the covariance of the best that n rows allow
    degrees: float  # of freedom of Student's t; inf: normal
    spans: Callable[[Floats], NDArray[np.bool_]]  # whether the log determines phi.theta, for each row phi
    unseen: NDArray[np.bool_]  # (d,) features that were always 0
    rare: NDArray[np.bool_]  # (d,) features that were not 0 at times, but too seldom
    influence: Floats  # (B, d) by how much blocks of rows move the closed form
    reference: Floats  # (d, d) covariance of the closed form of these rows from which `covariance` was made
    block: int | None = None  # rows of a block of `influence`, where these are blocks of all rows
    start_covariance: Floats | None = None  # (d, d) covariance that the unknown distance of the start adds
    leak: Floats | None = None  # (d, u) how phi.theta depends on features that no row has
    largest: float = 0.0  # value that these may have
    doubt: str | None = None  # why the interval cannot be trusted

    def of(self, phi: Floats, level: float) -> Intervals:
        """Return intervals for phi.theta, one per row."""
        return self.estimates(phi).intervals(level)

    def estimates(self, phi: Floats) -> Estimates:
        """Return phi.theta, one per row, with what is known of their errors."""
        phi = np.asarray(phi, dtype=np.float64)
        open_share = self.open_share(phi)
        is_known = self.spans(phi) & ~(phi[:, self.rare] != 0.0).any(axis=1) & (open_share <= MOST_OPEN)
        error = np.where(is_known, self.standard_error(phi), np.inf)
        parts = None if self.block is None else Parts(self.influence @ phi.T, self.block)
        bias = np.abs(phi @ self.remainder) + open_share * self.largest
        return Estimates(phi @ self.theta, error, self.degrees_of(phi), bias, parts)

    def open_share(self, phi: Floats) -> Floats:
        """Return how much of phi.theta depends on features that no row has, for each row: 1 is one visit."""
        return np.zeros(len(phi)) if self.leak is None else np.asarray(np.abs(phi @ self.leak).sum(axis=1))

    def degrees_of(self, phi: Floats) -> Floats:
        """Degrees of freedom for each row: fewer than there are blocks if its variance rests on few of them."""
        of_blocks = block_degrees((self.influence - self.influence.mean(axis=0)) @ phi.T)
        return np.where((self._inflation(phi) > 1.0) | np.isfinite(self.degrees), of_blocks, self.degrees)

    def standard_error(self, phi: Floats) -> Floats:
        """Standard error of phi.theta for each row, what is left of the start included."""
        square = self._noise(phi)
        return np.sqrt(square if self.start_covariance is None else square + _squares(phi, self.start_covariance))

    def _noise(self, phi: Floats) -> Floats:
        """Variance of phi.theta for each row."""
        return _squares(phi, self.covariance) * self._inflation(phi)

    @cached_property
    def _block_covariances(self) -> tuple[Floats, Floats]:
        return block_covariances(self.influence)

    def _inflation(self, phi: Floats) -> Floats:
        """By how much block means vary more than the reference says, at least 1: correlation over long times.

        Covariances of adjacent blocks are added where they are positive: blocks may be shorter than the correlation.
        """
        own, between = self._block_covariances
        blocks = _squares(phi, own) + _squares(phi, between)
        known = _squares(phi, self.reference)
        return np.maximum(1.0, np.divide(blocks, known, out=np.ones_like(known), where=known > 0.0))

    def converged(self, phi: Floats) -> bool:
        """Whether what is left of the start is at most half the width of a 95 % interval, on the whole, and there is no
        reason to doubt it."""
        start = _rms(phi @ self.remainder)
        if self.start_covariance is not None:
            start += float(np.sqrt(_squares(phi, self.start_covariance).mean()))
        return self.doubt is None and bool(start <= 1.96 * np.sqrt(self._noise(phi).mean()))

    def errors(self, phi: Floats, n_rows: int) -> dict[Limit, float]:
        """The parts of the error of phi.theta, root mean squares over the rows."""
        variance = np.square(self.standard_error(phi)).mean()
        least = np.einsum("ni,ij,nj->n", phi, self.optimal, phi, optimize=True).mean() / max(n_rows, 1)
        return {
            "transient": _rms(phi @ (self.remainder - self.bias)),
            "bias": _rms(phi @ self.bias),
            "variance": float(np.sqrt(max(variance - least, 0.0))),
            "budget": float(np.sqrt(max(least, 0.0))),
        }


class FitSummary:
    """What can be computed from a state of a fit, each once: its first rows, and the spread of its estimate."""

    def __init__(self, setup: Setup, state: FitState, before: FitSummary | None = None) -> None:
        self.setup, self.state = setup.resolve(state.features), state
        if before is not None and before.state.n_sampled == state.n_sampled:  # it has grown to its full size
            vars(self).update({name: value for name, value in vars(before).items() if name in ("sample", "reduced")})

    @cached_property
    def theta_0(self) -> Floats:
        return initial_theta(self.setup, self.state)

    @cached_property
    def sample(self) -> Transitions:
        """The first rows of the log."""
        return sample_of(self.state)

    @cached_property
    def reduced(self) -> Transitions:
        """The sample with features of full rank."""
        return self.sample.reduce_rank(self.theta_0)

    @property
    def is_usable(self) -> bool:
        """Whether anything can be computed from the sample."""
        try:
            return self.sample.rank > 0
        except InvalidInputError:
            return False

    @property
    def is_solved(self) -> bool:
        """Whether the closed form of all rows was computed."""
        return "solution" in vars(self)

    @property
    def has_interval(self) -> bool:
        """Whether the spread of the closed form was computed."""
        return "_closed_form" in vars(self)

    @cached_property
    def solution(self) -> Solution:
        """The closed form of all rows, where they are summed up."""
        if self.state.sums is None:
            raise NotFittedError("the rows must be summed up", "none", "pass closed_form=True")
        return solve(self.state.sums, self.theta_0, self.first_phi)

    @property
    def first_phi(self) -> NDArray[np.floating[Any]]:
        """The feature rows of the sample as they came: without the work that `sample` takes."""
        buffer = self.state.buffer
        return np.empty((0, len(self.theta_0))) if buffer is None else buffer.phi[: self.state.n_sampled]

    @cached_property
    def has_constant(self) -> bool:
        """Whether some combination of the features is constant on the sample."""
        return spans_constant(self.first_phi)

    @cached_property
    def state_phi(self) -> Floats:
        """(n, d) features of the states of the sample, which are not those of its rows if these depend on actions."""
        features, observations = self.state.features, self.state.observations
        if not isinstance(features, TargetFeatures) or observations is None:
            return self.sample.phi
        return np.asarray(features(observations[: self.state.n_sampled]), dtype=np.float64)

    @cached_property
    def overlap(self) -> Overlap | None:
        """How much of the log tells of a target policy; None without one, or where its value is not determined."""
        return None if self._target_sample is None else measure_overlap(self._target_sample)

    @cached_property
    def doubly_robust(self) -> DoublyRobust | None:
        """The doubly robust value of a target policy; None without one, or where it is not known."""
        return None if self._target_sample is None else check_doubly_robust(self._target_sample)

    @cached_property
    def _target_sample(self) -> TargetSample | None:
        state, features, n = self.state, self.state.features, min(self.state.n_sampled, MOST_ROWS)
        target = features.target if isinstance(features, TargetFeatures) else self.setup.target
        if target is None or features is None or not self.is_usable:
            return None
        assert state.observations is not None
        assert state.next_observations is not None
        assert state.action is not None
        assert state.starts is not None
        starts = state.starts[:n]
        if starts.sum() < LEAST_STARTS or self.setup.discount == 0.0:
            starts = np.ones(n, np.bool_)
        return TargetSample(
            target, features, self.sample.part(0, n), state.observations[:n], state.next_observations[:n],
            state.action[:n], self.state_phi[:n], starts, state.n_distinct,
        )  # fmt: skip

    @property
    def own_method(self) -> Method:
        return "closed_form" if self.setup.settings.is_closed_form else "recursion"

    def why_no_interval(self, method: Method | None) -> str | None:
        """Return why no interval is known, or None if one is."""
        if (method or self.own_method) == "closed_form":
            return self._closed_form_solution.why_no_interval
        learner = self.state.learner
        match None if learner is None else learner.algorithm:
            case None | VRTD(radius=None) | TD(average=False, radius=None, step_size=int() | float()):
                return None
            case algorithm:
                return (
                    f"none is known for {algorithm.name.upper()} with these settings, only for VRTD and TD with a "
                    "constant step, no radius, no average; take the closed form: algorithm='closed_form' (or "
                    "method='closed_form' of vrtd.Evaluator.predict)"
                )

    def spread(self, method: Method | None) -> Spread:
        return self._closed_form if (method or self.own_method) == "closed_form" else self._recursion

    @cached_property
    def _closed_form_solution(self) -> Solution:
        """The closed form of all rows where they are summed up, else of the sample."""
        trace_decay = self.setup.settings.trace_decay
        if trace_decay > 0.0:
            raise InvalidInputError(
                "the closed form is that without traces, which is another point",
                f"trace_decay {trace_decay:g}",
                'evaluate with algorithm="closed_form" for its interval',
            )
        if self.state.sums is not None:
            return self.solution
        sums = add(no_sums(self.sample.n_features), self.sample)
        return solve(sums, self.theta_0, self.sample.phi)

    @cached_property
    def _closed_form(self) -> Spread:
        spread = _closed_form_spread(self._closed_form_solution, self.reduced if self.is_usable else None)
        return spread if self.state.sums is None else replace(spread, block=self.solution.block)

    @cached_property
    def _recursion(self) -> Spread:
        state, settings = self.state, self.setup.settings
        if settings.is_closed_form:
            raise InvalidInputError("the closed form has no recursion", "recursion", "drop the method")
        if state.learner is None:
            raise NotFittedError(
                "settings must have been decided on",
                f"{state.n_rows:,} of {settings.pilot_rows:,} pilot rows",
                "bring more rows, or lower pilot_rows",
            )
        return _recursion_spread(self, state.learner)


def _closed_form_spread(solution: Solution, rows: Transitions | None) -> Spread:
    """Return the spread of the least-squares solution, from batch means; the sample shows how slowly rows change."""
    zero, covariance = np.zeros_like(solution.theta), solution.covariance()
    if not np.isfinite(covariance).all():
        raise InvalidInputError("squares of the TD errors must be finite", "some that are not", "scale the rewards")
    assert solution.influence is not None
    return Spread(
        solution.theta, covariance, zero, zero, solution.n_rows * covariance, solution.degrees,
        solution.spans, ~solution.seen, solution.seen & solution.rare, solution.influence, covariance,
        leak=solution.leak, largest=solution.largest,
        doubt=solution.doubt or (None if rows is None else _slowness(rows, solution.n_rows)),
    )  # fmt: skip


def _recursion_spread(summary: FitSummary, learner: Learner) -> Spread:
    """Return the spread of TD or VRTD, from the second moment of its recursion with the moments of the sample.

    Rows that come again tell nothing new: then the recursion tends to the closed form of the distinct rows, and its
    covariance is added.
    """
    sample, reduced, n_distinct = summary.sample, summary.reduced, summary.state.n_distinct
    ends = [phase.first_epoch for phase in learner.phases[1:]] + [learner.n_epochs]
    legs = [
        (*_settings(phase.algorithm), end - phase.first_epoch)
        for phase, end in zip(learner.phases, ends, strict=True)
        if end > phase.first_epoch
    ]
    algorithm, n = learner.algorithm, len(sample)
    output = algorithm.returned if isinstance(algorithm, VRTD) else "last"
    assert output != "tail"  # batches that grow have another interval
    if n < _LEAST_ROWS:
        raise InvalidInputError(f"an interval of the recursion needs at least {_LEAST_ROWS} rows", n, "bring more rows")
    B = sample.basis
    start = B.T @ summary.theta_0
    moments = recursion_moments(reduced, legs, start, output)
    if not np.isfinite(moments.covariance).all():
        raise InvalidInputError(
            "the first rows must determine a stable system for an interval of the recursion",
            moments.remark or f"moments that are not finite from {n:,} rows",
            "bring more rows or other features, or a smaller step",
        )
    stays = np.zeros(B.shape[1])
    if legs and isinstance(algorithm, TD):  # the mean of VRTD's recursion tends to theta_star, as far as a sample tells
        stays = recursion_moments(reduced, [(legs[-1][0], 1, _FOREVER)], start, output).mean
    covariance = moments.covariance
    if learner.n_rows > n_distinct:
        covariance = covariance + moments.optimal / max(n_distinct, 1)
    # theta_star of the sample is itself an estimate, and the start that much nearer or further away.
    left = moments.left @ moments.optimal @ moments.left.T / n
    optimal = B @ moments.optimal @ B.T
    blocks = reduced.merged_influence @ B.T
    n_seen = (sample.phi != 0.0).sum(axis=0)

    # One standard error more, so that the noise of block means alone seldom widens an interval.
    reference = optimal / n * (1.0 + np.sqrt(2.0 / len(blocks)))
    found = Spread(
        learner.theta.copy(), B @ covariance @ B.T, B @ moments.mean, B @ stays, optimal, np.inf,
        sample.spans, n_seen == 0, (n_seen > 0) & (n_seen < _LEAST_SEEN), blocks, reference,
        start_covariance=B @ left @ B.T,
    )  # fmt: skip
    doubt = moments.remark or _slowness(reduced, n) or _doubt(found, summary)
    return replace(found, doubt=doubt)


def _slowness(rows: Transitions, n_rows: int) -> str | None:
    """Return why correlation makes the interval doubtful, if it does."""
    size = rows.effective_blocks * n_rows / len(rows)
    if np.isnan(size):
        return f"{len(rows):,} rows are too few to show how strongly they are correlated"
    if size >= _LEAST_EFFECTIVE:
        return None
    return f"the effective sample size of the {n_rows:,} rows is only about {size:.0f} in some direction"


def _doubt(found: Spread, summary: FitSummary) -> str | None:
    """Return why the sample does not describe the run, or None."""
    sample, theta_0 = summary.sample, summary.theta_0
    moved, n = found.theta - theta_0, len(sample)
    outside = sample.outside(moved)
    if outside @ outside > 1e-6 * (moved @ moved):
        return f"later rows have features that the first {n:,} do not span"
    phi, closed_form = sample.phi, sample.basis @ summary.reduced.theta_star + sample.outside(theta_0)
    expected = _rms(found.standard_error(phi)) + _rms(phi @ found.remainder)
    expected += float(np.sqrt(_squares(phi, found.optimal / n).mean()))
    if not _rms(phi @ (found.theta - closed_form)) <= _FAR * expected:
        return f"it is not where the first {n:,} rows say that it should be"
    return None


def _settings(algorithm: Algorithm) -> tuple[float, int]:
    """Return the step and batch size of an algorithm whose moments are known."""
    if isinstance(algorithm, VRTD):
        return float(algorithm.step_size), int(algorithm.batch_size)
    assert isinstance(algorithm, TD)
    return float(algorithm.largest_step_size), 1


def _squares(phi: Floats, form: Floats) -> Floats:
    """phi^T form phi for each row, 0 where it is negative."""
    square: Floats = np.maximum(np.einsum("ni,ij,nj->n", phi, form, phi, optimize=True), 0.0)
    return square


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.square(values).mean()))
