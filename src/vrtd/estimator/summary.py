"""Quantities that are computed from the state of a fit: its sample, its closed form, and the spread of its estimate."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import TD, VRTD
from vrtd.arrays import Floats
from vrtd.errors import InvalidInputError, NotFittedError
from vrtd.estimator.doubly_robust import DoublyRobust, check_doubly_robust
from vrtd.estimator.episodes import LEAST_STARTS
from vrtd.estimator.least_squares import Solution, add, no_sums, solve
from vrtd.estimator.linear_estimate import LinearEstimate, LinearPoint, estimate_linearly, estimate_point
from vrtd.estimator.overlap import MOST_ROWS, Overlap, TargetSample, measure_overlap
from vrtd.estimator.recursion_spread import RecursionSpread, measure_recursion
from vrtd.estimator.sparse_estimate import estimate_sparse_point, estimate_sparsely
from vrtd.estimator.spread import BlockSpread, Spread, find_slowness
from vrtd.estimator.state import FitState, Setup, initial_theta, sample_of
from vrtd.features import Hashed, TargetFeatures, spans_constant
from vrtd.lazy import cached_property
from vrtd.problems import Transitions
from vrtd.series import block_correlation
from vrtd.sparse import has_any, is_sparse, mean_of, part_of, to_dense

Method = Literal["recursion", "closed_form"]  # the estimate that an interval is for
# Share that the initial transient may add to the squared error: for intervals, which are widened by it, and for values.
_MOST_EXCESS, _MOST_EXCESS_OF_VALUES = 0.2, 1.0
_MOST_VALUES = 20.0  # limit of the values relative to the bound from the kept rewards; larger rewards may be rare
_MOST_CORRELATION = 3.0  # standard errors of the correlation of estimates from adjacent blocks


class FitSummary:
    """Lazily computed quantities of one state of a fit.

    Parameters
    ----------
    setup : Setup
        The arguments of the evaluator.
    state : FitState
        The state.
    before : FitSummary, default=None
        Summary of an earlier state of the same fit, whose sample is used again if it was complete.
    """

    def __init__(self, setup: Setup, state: FitState, before: FitSummary | None = None) -> None:
        self.setup, self.state = setup.resolve(state.features), state
        if before is not None and before.state.n_sampled == state.n_sampled:  # the sample is the same
            vars(self).update({name: value for name, value in vars(before).items() if name in ("sample", "reduced")})

    @cached_property
    def theta_0(self) -> Floats:
        """Initial parameters."""
        return initial_theta(self.setup, self.state)

    @cached_property
    def sample(self) -> Transitions:
        """First rows of the log, with features."""
        return sample_of(self.state)

    @cached_property
    def reduced(self) -> Transitions:
        """Sample with features of full rank."""
        return self.sample.reduce_rank(self.theta_0)

    @property
    def is_usable(self) -> bool:
        """Whether anything can be computed from the sample."""
        try:
            return self.sample.rank > 0
        except InvalidInputError:
            return False

    def spans(self, phi: Floats) -> NDArray[np.bool_]:
        """Return for each feature row whether the log determines phi.theta; with O(d) work it is not fully checked."""
        if self.is_run_linearly:
            return _has_none(self.linear_estimate.unseen, phi)
        if self.state.iterative is not None:
            return _has_none(np.flatnonzero(~self.solution.seen), phi)
        if self.setup.settings.cost == "linear":
            return np.ones(phi.shape[0], np.bool_)
        return self.sample.spans(to_dense(phi)) if self.is_usable else np.zeros(phi.shape[0], np.bool_)

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
        """Closed form of all rows, if their sums are kept."""
        if self.state.iterative is not None:
            if self.state.iterative.theta is None:
                raise NotFittedError("The fit was stopped before a first solution.", "Fit again.")
            return self.state.iterative.as_solution()
        if self.state.sums is None:
            raise NotFittedError("The closed form of all rows was not computed.", "Fit with closed_form=True.")
        return solve(self.state.sums, self.theta_0, self.first_phi)

    @property
    def first_phi(self) -> Any:
        """Feature rows of the sample in their original type, without the work that `sample` takes."""
        buffer = self.state.buffer
        return np.empty((0, len(self.theta_0))) if buffer is None else part_of(buffer.phi, 0, self.state.n_sampled)

    @cached_property
    def has_constant(self) -> bool:
        """Whether some combination of the features is constant on the sample; not checked for sparse rows."""
        return is_sparse(self.first_phi) or spans_constant(self.first_phi)

    @cached_property
    def state_phi(self) -> Any:
        """Features (n, d) of the states of the sample; those of its rows differ if they depend on actions."""
        features, observations = self.state.features, self.state.observations
        if not isinstance(features, TargetFeatures) or observations is None:
            return self.sample.phi
        return np.asarray(features(observations[: self.state.n_sampled]), dtype=np.float64)

    @cached_property
    def overlap(self) -> Overlap | None:
        """Overlap of the log with the target policy; None without one, or if its value is not determined."""
        return None if self._target_sample is None else measure_overlap(self._target_sample)

    @cached_property
    def doubly_robust(self) -> DoublyRobust | None:
        """Doubly robust value of the target policy; None without one, or if it is not known."""
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

    @cached_property
    def linear_estimate(self) -> LinearEstimate:
        """Estimate of a `LinearFit`, with its noise."""
        if self.state.sparse is not None:
            return estimate_sparsely(self.state.sparse, self.linear_point)
        assert self.state.linear is not None
        return estimate_linearly(self.state.linear, self.linear_point)

    @cached_property
    def linear_point(self) -> LinearPoint:
        """Point estimate of a `LinearFit`, without the noise, which may take more work."""
        if self.state.sparse is not None:
            return estimate_sparse_point(self.state.sparse)
        assert self.state.linear is not None
        return estimate_point(self.state.linear)

    @property
    def is_run_linearly(self) -> bool:
        """Whether the fit is a `LinearFit` or a `SparseFit`, whose estimates are corrected means over blocks."""
        return self.state.linear is not None or self.state.sparse is not None

    @cached_property
    def _kept_rows(self) -> Transitions | None:
        if self.state.sparse is not None:
            rows: Transitions = self.linear_point.inverse.rows  # sorted already
            return rows
        return None if self.state.linear is None else self.state.linear.reservoir.rows

    @property
    def own_method(self) -> Method:
        """Method of the fit."""
        return "closed_form" if self.setup.settings.is_closed_form else "recursion"

    def why_no_interval(self, method: Method | None) -> str | None:
        """Return the reason why no interval is known, or None if one is."""
        if (method or self.own_method) == "closed_form":
            return self._closed_form_solution.why_no_interval
        learner = self.state.learner
        if self.is_run_linearly:
            return self.linear_estimate.why_no_interval
        if self.setup.settings.cost == "linear":
            others = "" if self.setup.settings.is_sparse else "richardson_td, and for "
            return f"with cost='linear' one is known only for {others}vrtd with growing batches"
        match None if learner is None else learner.algorithm:
            case None | VRTD(radius=None) | TD(average=False, radius=None, step_size=int() | float()):
                return None
            case algorithm:
                return (
                    f"none is known for {algorithm.name.upper()} with these settings, only for VRTD and TD with a "
                    "constant step, no radius and no average. Use the closed form: algorithm='closed_form' (or "
                    "method='closed_form' of vrtd.Evaluator.predict)"
                )

    def spread(self, method: Method | None) -> Spread:
        """Return the estimate of theta and the distribution of its error."""
        return self._closed_form if (method or self.own_method) == "closed_form" else self._recursion

    @cached_property
    def _closed_form_solution(self) -> Solution:
        """Closed form of all rows if their sums are kept, and of the sample otherwise."""
        trace_decay = self.setup.settings.trace_decay
        if trace_decay > 0.0:
            raise InvalidInputError(
                "Closed-form intervals exist only for trace_decay=0, because traces change the fixed point, but "
                f"trace_decay is {trace_decay:g}.",
                "Use algorithm='closed_form'.",
            )
        if self.state.is_closed_form:
            return self.solution
        if self.is_run_linearly or self.setup.settings.cost == "linear":
            raise InvalidInputError(
                "method='closed_form' takes d^2 operations per row, which the cost of this fit does not allow.",
                "Drop method, or fit with cost='quadratic'.",
            )
        sums = add(no_sums(self.sample.n_features), self.sample)
        return solve(sums, self.theta_0, self.sample.phi)

    @cached_property
    def _closed_form(self) -> BlockSpread:
        solution = self._closed_form_solution
        if solution.influence is None:
            problem = f"The closed form has no interval: {solution.why_no_interval}."
            raise InvalidInputError(problem, "Use more data, or fewer features.")
        with np.errstate(over="ignore"):
            size = np.square(solution.influence).sum()
        if not np.isfinite(size):
            raise InvalidInputError("The squares of the TD errors are too large for an interval.", "Scale the rewards.")
        unseen, rare = np.flatnonzero(~solution.seen), np.flatnonzero(solution.seen & solution.rare)
        spans = solution.spans
        if self.state.iterative is not None:
            slowness, spans = self.state.iterative.doubt, partial(_has_none, unseen)
        else:
            slowness = find_slowness(self.reduced, solution.n_rows) if self.is_usable else None
        return BlockSpread(
            theta=solution.theta,
            influence=solution.influence,
            ends=np.array(solution.ends.rows) if self.state.is_closed_form else None,
            spans=spans,
            unseen=unseen,
            rare=rare,
            leak=solution.leak,
            largest=solution.largest,
            doubt=solution.doubt or slowness,
            n_rows=solution.n_rows,
        )

    @cached_property
    def _linear_spread(self) -> BlockSpread:
        found = self.linear_estimate
        doubt, most = self.linear_doubt(of_intervals=True), _MOST_CORRELATION / np.sqrt(len(found.influence))
        is_correlated = block_correlation(found.influence, self._mean_squares) > most
        if not is_correlated and found.total_phi is not None:
            phi = found.total_phi / found.n_rows_of[:, None]
            variances = phi.var(axis=0)
            weights = np.divide(1.0, variances, out=np.zeros_like(variances), where=variances > 0.0)
            is_correlated = block_correlation(phi[found.n_before :], weights) > most
        if doubt is None and is_correlated:
            doubt = f"estimates from adjacent blocks of {found.n_rows_of.mean():,.0f} rows are correlated"
        return BlockSpread(
            theta=found.theta, influence=found.influence, ends=found.ends[found.n_before :],
            unseen=found.unseen, rare=found.rare, spans=partial(_has_none, found.unseen), doubt=doubt,
            n_rows=found.n_rows, spare=self._spare_variance(found.theta, np.append(found.unseen, found.rare)),
        )  # fmt: skip

    def _spare_variance(self, theta: Floats, unknown: NDArray[np.intp]) -> float | None:
        """Return the mean square of the known parameters if features are hashed, so that no feature is special.

        Rare parameters stay near theta_0 in a `SparseFit`. The closed form has no such variance: it fits the noise of
        rare features, so that their errors do not vary like the parameters.
        """
        if not isinstance(self.state.features, Hashed):
            return None
        is_known = np.ones(len(theta), np.bool_)
        is_known[unknown] = False
        return float(np.square(theta[is_known]).mean()) if is_known.any() else None

    def linear_doubt(self, of_intervals: bool) -> str | None:
        """Return why a `LinearPoint` has not converged, or None; the limit for intervals is stricter."""
        point, discount = self.linear_point, self.setup.discount
        rows = self._kept_rows
        if rows is not None and discount < 1.0 and not rows.is_weighted:
            largest = float(np.abs(rows.reward).max()) / (1.0 - discount)
            values = float(np.sqrt(np.square(self.visited_phi @ point.theta).mean()))
            if largest > 0.0 and not values <= _MOST_VALUES * largest:
                return (
                    f"the root mean square of the values is {values:.3g}, but the rewards allow at most {largest:.3g}"
                )
        if point.excess <= (_MOST_EXCESS if of_intervals else _MOST_EXCESS_OF_VALUES):
            return None
        text = f"the initial transient adds {100 * point.excess:.0f} % to squared errors"
        return f"{text}, and intervals are widened accordingly" if of_intervals else text

    def is_linear(self, method: Method | None) -> bool:
        """Return whether the estimate of this method is a `LinearEstimate`."""
        return self.is_run_linearly and (method or self.own_method) == "recursion"

    def n_blocked(self, method: Method | None) -> int | None:
        """Return how many first rows of the log the blocks are made of; None if they are blocks of the sample."""
        if self.is_linear(method):
            return self.state.n_distinct
        if self.state.iterative is not None:
            return self.state.iterative.n_rows
        return None if self.state.sums is None else self.state.sums.n_summed

    def aligned_spread(self, method: Method | None) -> Spread:
        """Return the spread with blocks from the first row on, as in `BlockTotals`; those left out have influence 0."""
        spread = self.spread(method)
        if not self.is_linear(method):
            return spread
        found = self.linear_estimate
        influence = np.pad(spread.influence, ((found.n_before, 0), (0, 0)))
        return replace(spread, influence=influence, ends=found.ends)

    def mean_phi(self, method: Method | None) -> Floats:
        """Return the mean features of the states of the log, or of the sample if only its states are known."""
        is_linear, method = self.is_linear(method), method or self.own_method
        if self.n_blocked(method) is None or not (is_linear or method == "closed_form"):
            return mean_of(self.visited_phi)
        episodes = self.state.episodes
        if episodes is not None and episodes.states is not None:
            return episodes.states.mean
        if is_linear:
            return self.linear_estimate.mean_phi
        return self.solution.mean_phi

    @property
    def _mean_squares(self) -> Floats:
        """Mean squares (d,) of the features over the kept rows."""
        phi = self.visited_phi
        return (
            mean_of(phi.power(2))
            if is_sparse(phi)
            else np.asarray(np.square(np.asarray(phi, dtype=np.float64)).mean(axis=0))
        )

    @cached_property
    def visited_phi(self) -> Any:
        """Features (n, d) of visited states: the reservoir of a `LinearFit`, and otherwise the sample."""
        if self.state.iterative is not None:
            return self.first_phi
        rows, run = self._kept_rows, self.state.linear or self.state.sparse
        if rows is None or run is None or isinstance(self.state.features, TargetFeatures):
            return self.state_phi
        return (
            rows.phi
            if run.scale is None
            else rows.divide(1.0 / run.scale).phi
            if rows.is_sparse
            else np.asarray(rows.phi * run.scale)
        )

    @cached_property
    def _recursion(self) -> RecursionSpread | BlockSpread:
        state, settings = self.state, self.setup.settings
        if self.is_run_linearly:
            return self._linear_spread
        if settings.is_closed_form:
            raise InvalidInputError("method='recursion' does not apply to the closed form.", "Drop method.")
        if state.learner is None:
            raise NotFittedError(
                "The settings are not chosen yet: the evaluator has received "
                f"{state.n_rows:,} of {settings.pilot_rows:,} pilot rows.",
                "Use more data, or lower pilot_rows.",
            )
        return measure_recursion(state.learner, self.sample, self.reduced, self.theta_0, state.n_distinct)


def _has_none(features: NDArray[np.intp], phi: Floats) -> NDArray[np.bool_]:
    """Return for each row whether all these features are 0."""
    return ~has_any(phi, features)
