"""What a fit has learned: values of states, of actions and of the policy, with intervals."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, get_args, overload

import numpy as np
from numpy.typing import ArrayLike

from vrtd.algorithms import Algorithm
from vrtd.arrays import Floats
from vrtd.checks import check_choice, check_level
from vrtd.errors import AccuracyWarning, ConvergenceWarning, DataWarning, InvalidInputError, NotFittedError
from vrtd.estimator.diagnostics import LEAST_CHECKED, Diagnostics, diagnose, distance_doubt
from vrtd.estimator.episodes import LEAST_STARTS
from vrtd.estimator.estimates import Estimates, Interval, Intervals
from vrtd.estimator.means import ReturnCheck, check_returns, mean_over_starts, mean_over_states
from vrtd.estimator.spread import BlockSpread, Spread
from vrtd.estimator.state import FitState, Setup, initial_theta, is_same_log, usable_features
from vrtd.estimator.summary import FitSummary, Method
from vrtd.features import Features, ObservationSpace, TargetFeatures
from vrtd.logs.arrow_values import ArrowStream
from vrtd.logs.new_observations import as_actions, as_observations

_PARAMETERS = 512  # whose intervals are computed at once


class ValueFunction:
    """Values that are linear in features, as an `Evaluator` has learned them."""

    _setup: Setup
    _state: FitState
    _known: FitSummary | None  # of this state or an earlier one

    @property
    def n_features(self) -> int:
        return (self._setup.features if self._state.features is None else self._state.features).n_features

    @property
    def features(self) -> Features:
        """The features as they are used: with what was taken from data."""
        features = usable_features(self._setup, self._state)
        if features is None:
            raise NotFittedError(
                "an evaluator must have received its pilot rows",
                f"{self._state.n_rows:,} of {self._setup.settings.pilot_rows:,}",
                "call partial_fit with more rows, lower pilot_rows, or call fit with all rows",
            )
        return features

    @property
    def actions_(self) -> tuple[str, ...]:
        """The words of the log's actions, in the order of their numbers; empty where they are numbers."""
        return () if self._state.space is None else self._state.space.actions

    @property
    def theta_(self) -> Floats:
        """(d,) the parameters; theta_0 before anything is learned."""
        if self._state.learner is not None:
            return self._state.learner.theta.copy()
        if self._state.linear is not None:
            return self._summary.linear_point.theta.copy()
        if self._state.sums is not None:
            return self._summary.solution.theta.copy()
        return initial_theta(self._setup, self._state)

    @property
    def _summary(self) -> FitSummary:
        self._known = self._present or FitSummary(self._setup, self._state, self._known)
        return self._known

    @property
    def n_rows_(self) -> int:
        """Transitions received."""
        return self._state.n_rows

    @property
    def n_waiting_(self) -> int:
        """Transitions that wait, for the pilot or the rest of their batch, and have not moved theta."""
        return self._state.n_waiting

    @property
    def n_episodes_(self) -> int:
        """Episodes whose first state is among the transitions."""
        return 0 if self._state.episodes is None else int(self._state.episodes.starts.total[-1])

    @property
    def has_policy_value(self) -> bool:
        """Whether the log has the episodes that a policy value needs."""
        return self.n_episodes_ >= LEAST_STARTS

    @property
    def algorithm_(self) -> Algorithm | None:
        """The algorithm with its present settings; None for the closed form, and before they are decided on."""
        return self._state.algorithm

    @overload
    def predict(
        self,
        observations: Any,
        actions: ArrayLike | None = None,
        *,
        return_interval: None = None,
        method: Method | None = None,
    ) -> Floats: ...

    @overload
    def predict(
        self,
        observations: Any,
        actions: ArrayLike | None = None,
        *,
        return_interval: float,
        method: Method | None = None,
    ) -> Intervals: ...

    def predict(
        self,
        observations: Any,
        actions: ArrayLike | None = None,
        *,
        return_interval: float | None = None,
        method: Method | None = None,
    ) -> Floats | Intervals:
        """Return phi(s).theta for each observation, or phi(s, a).theta with actions, with intervals if asked for.

        Parameters
        ----------
        observations : array of shape (n, ...), or table
            States to value. A table has the columns of the log, or those of `values.parquet` of `vrtd.evaluate`.
        actions : array of shape (n,) or (n, k), optional
            Where features depend on actions (see `target`): the first action in each state, for Q(s, a). Words where
            the log has words. Without it: V(s) of the target.
        return_interval : float, optional
            Confidence level, for example 0.95. The intervals are for phi(s).theta_star, which is V(s) only where the
            features can represent it.
        method : {"recursion", "closed_form"}, optional
            What the interval is of: the algorithm's own recursion (known for TD and VRTD), or least squares on all
            rows where they are summed up, else on the first rows.

        Returns
        -------
        array of shape (n,), or Intervals
            The ends are nan, with an AccuracyWarning that says why, if no interval is known for the algorithm, and
            infinite where nothing was learned.
        """
        phi = self._features_of(observations, actions)
        if return_interval is None:
            self._warn_if_far(is_frequent=True)
            return np.asarray(phi @ self.theta_)
        level = check_level(return_interval)
        return self._estimates(phi, method).intervals(level)

    def theta_interval(self, level: float = 0.95, *, method: Method | None = None) -> Intervals:
        """Return an interval for each parameter."""
        level, d, found = check_level(level), self.features.n_features, []
        for first in range(0, d, _PARAMETERS):
            each = np.eye(min(_PARAMETERS, d - first), d, first)
            found.append(self._estimates(each, method).intervals(level))
        return Intervals(*map(np.concatenate, zip(*found, strict=True)))

    def mean_value(self, level: float = 0.95, *, method: Method | None = None) -> Interval:
        """Return the value averaged over the states of the log, with its interval.

        For the closed form of all rows, and with O(d) work per row, it is the mean over the states that are visited,
        whose shares are estimated, too; else over those of the first rows as they are.
        """
        level, summary = check_level(level), self._summary
        if self.why_no_interval(method) is not None:
            return self._estimates(summary.visited_phi.mean(axis=0)[None], method).intervals(level).first
        self._spread(method, stacklevel=3)
        return mean_over_states(summary, method).intervals(level).first

    def policy_value(self, observations: Any = None, level: float = 0.95, *, method: Method | None = None) -> Interval:
        """Return what the policy is worth: the value averaged over start states, with its interval.

        Parameters
        ----------
        observations : array of shape (n, ...), or table, optional
            Start states, a sample that was drawn apart from the log. Default: the first states of the log's episodes.
        level : float, default 0.95
            Confidence level.
        method : {"recursion", "closed_form"}, optional
            As for `predict`.

        Returns
        -------
        Interval
            It counts that the starts are a sample and, if they are the log's, how their noise is correlated with that
            of the values.
        """
        level = check_level(level)
        return self.policy_estimate(observations, method).intervals(level).first

    def policy_estimate(self, observations: Any = None, method: Method | None = None) -> Estimates:
        """Return what `policy_value` is made of."""
        if observations is not None:
            if np.ndim(observations) == 0 and not isinstance(observations, Mapping | ArrowStream):
                must, do = "observations must be start states, one row for each", "pass a list; a level is level=0.95"
                raise InvalidInputError(must, f"{observations!r:.60}", do)
            phi = self._features_of(observations)
            if not len(phi):
                raise InvalidInputError("there must be a start state", "none", "pass at least one")
            n = len(phi)
            spread = float(np.var(phi @ self.theta_, ddof=1)) / n if n > 1 else 0.0
            return self._estimates(phi.mean(axis=0)[None], method, stacklevel=4).widen(spread, max(n - 1.0, 1.0))
        episodes = self._state.episodes
        if episodes is None or not self.has_policy_value:
            raise InvalidInputError(
                "the value of a policy needs the first states of at least two episodes",
                "a log without episodes" if self._state.n_rows else "no rows",
                "pass start states: policy_value(observations)",
            )
        if self.why_no_interval(method) is not None:
            return self._estimates(episodes.starts.mean[None], method, stacklevel=4)
        self._spread(method, stacklevel=4)
        is_quick = self._summary.own_method == "closed_form"
        check = check_returns(self._summary) if is_quick else None
        if check is not None and check.doubt is not None:
            warnings.warn(check.doubt, DataWarning, stacklevel=3)
        return mean_over_starts(self._summary, method)

    def estimate(self, observations: Any, actions: ArrayLike | None = None, method: Method | None = None) -> Estimates:
        """Return what the intervals of `predict` are made of."""
        return self._estimates(self._features_of(observations, actions), method)

    def has_same_rows(self, other: ValueFunction) -> bool:
        """Return whether both were fitted to the same rows, as far as their number and the first ones tell."""
        return is_same_log(self._state, other._state)

    def _features_of(self, observations: Any, actions: ArrayLike | None = None) -> Floats:
        features, space = self.features, self._state.space or ObservationSpace("features")
        rows = as_observations(space, observations)
        if actions is None:
            return np.asarray(features(rows), dtype=np.float64)
        if not isinstance(features, TargetFeatures):
            must, do = "actions are for features that depend on them", "drop them, or fit with target=..."
            raise InvalidInputError(must, "features of states", do)
        return np.asarray(features.of_pairs(rows, as_actions(space, actions)), dtype=np.float64)

    def _estimates(self, phi: Floats, method: Method | None, stacklevel: int = 3) -> Estimates:
        """Return phi.theta for each row with its error: nan where none is known, infinite where nothing was learned."""
        reason = self.why_no_interval(method)
        if reason is None:
            return self._spread(method, stacklevel + 1).estimates(phi)
        warnings.warn(f"no interval: {reason}", AccuracyWarning, stacklevel=stacklevel)
        value, summary = np.asarray(phi @ self.theta_), self._summary
        is_known = summary.spans(phi)
        none = np.zeros_like(value)
        return Estimates(value, np.where(is_known, np.nan, np.inf), none + np.inf, none)

    def why_no_interval(self, method: Method | None = None) -> str | None:
        """Return why no interval is known, or None if one is."""
        method = check_choice("method", method, (None, *get_args(Method)))
        return self._summary.why_no_interval(method)

    def spread(self, method: Method | None = None) -> Spread:
        """Return what the intervals are made of."""
        return self._spread(method, stacklevel=3)

    def _spread(self, method: Method | None, stacklevel: int) -> Spread:
        method = check_choice("method", method, (None, *get_args(Method)))
        summary = self._summary
        spread = summary.spread(method)
        if not isinstance(spread, BlockSpread) and not spread.converged(summary.sample.phi):
            why = spread.doubt or "what is left of the start exceeds half the width of the interval"
            warnings.warn(
                f"not converged: {why}; bring more rows, or take the interval of the closed form: method='closed_form'",
                ConvergenceWarning,
                stacklevel=stacklevel,
            )
        if isinstance(spread, BlockSpread) and spread.doubt is not None:
            warnings.warn(f"{spread.doubt}; bring more rows", ConvergenceWarning, stacklevel=stacklevel)
        return spread

    def _warn_if_far(self, is_frequent: bool = False) -> None:
        """Warn if the values are further from the closed form of the sample than noise explains."""
        state, settings = self._state, self._setup.settings
        if state.linear is not None and state.n_rows >= LEAST_CHECKED:
            doubt = self._summary.linear_doubt(of_intervals=False)
            if doubt is not None:
                do = "bring more rows or other features, or take the closed form: algorithm='closed_form'"
                warnings.warn(f"not converged: {doubt}; {do}", ConvergenceWarning, stacklevel=3)
        if state.learner is None or settings.trace_decay > 0.0 or state.n_sampled < LEAST_CHECKED:
            return
        if settings.cost == "linear":
            return
        known = self._known
        if known is None or not is_frequent or 2 * known.state.n_sampled < state.n_sampled:
            known = self._summary  # a sample of half of the present rows will do for frequent checks
        if not known.is_usable:
            return
        reason = distance_doubt(known, state.learner.theta)
        if reason is not None:
            warnings.warn(
                f"not converged: {reason}; bring more rows, or take the closed form: algorithm='closed_form'",
                ConvergenceWarning,
                stacklevel=3,
            )

    def check_returns(self) -> ReturnCheck | None:
        """Compare the values of the first states of episodes with what these episodes returned.

        None where that says nothing: rows have weights, or fewer than 20 episodes are known from their start on.
        """
        return check_returns(self._summary)

    @property
    def diagnostics_(self) -> Diagnostics:
        """Has it converged, and what limits it."""
        return diagnose(self._summary)

    @property
    def discount(self) -> float:
        return self._setup.discount

    @property
    def _present(self) -> FitSummary | None:
        """What was computed from the present state."""
        return self._known if self._known is not None and self._known.state is self._state else None
