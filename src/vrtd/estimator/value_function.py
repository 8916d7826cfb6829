"""Values of states, of actions and of the policy that a fit has learned, with intervals."""

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
from vrtd.estimator.diagnostics import LEAST_CHECKED, Diagnostics, capitalise, diagnose, distance_doubt
from vrtd.estimator.episodes import LEAST_STARTS
from vrtd.estimator.estimates import Estimates, Interval, Intervals
from vrtd.estimator.means import ReturnCheck, check_returns, mean_over_starts, mean_over_states
from vrtd.estimator.spread import BlockSpread, Spread
from vrtd.estimator.state import FitState, Setup, initial_theta, is_same_log, usable_features
from vrtd.estimator.summary import FitSummary, Method
from vrtd.features import Features, ObservationSpace, TargetFeatures
from vrtd.logs.arrow_values import ArrowStream
from vrtd.logs.new_observations import as_actions, as_observations
from vrtd.sparse import is_scipy_sparse, mean_of, unit_rows

_PARAMETERS = 512  # parameters whose intervals are computed at once


class ValueFunction:
    """Linear value function ``V(s) = phi(s).theta`` that an `Evaluator` has learned.

    `Evaluator` is a subclass, so that its predictions, intervals and diagnostics are documented here.
    """

    _setup: Setup
    _state: FitState
    _known: FitSummary | None  # of this state or an earlier one

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return (self._setup.features if self._state.features is None else self._state.features).n_features

    @property
    def features(self) -> Features:
        """Features in use, with the ranges and other constants that they took from the pilot rows."""
        features = usable_features(self._setup, self._state)
        if features is None:
            raise NotFittedError(
                f"The features are not known yet: the evaluator has received {self._state.n_rows:,} "
                f"of {self._setup.settings.pilot_rows:,} pilot rows.",
                "Call partial_fit with more rows, lower pilot_rows, or call fit with all rows.",
            )
        return features

    @property
    def actions_(self) -> tuple[str, ...]:
        """Names of the actions in the log, in the order of their numbers; empty if the log has numbers."""
        return () if self._state.space is None else self._state.space.actions

    @property
    def theta_(self) -> Floats:
        """Parameters, an array of shape (d,); equal to ``theta_0`` before anything is learned."""
        if self._state.learner is not None:
            return self._state.learner.theta.copy()
        if self._state.linear is not None or self._state.sparse is not None:
            return self._summary.linear_point.theta.copy()
        if self._state.is_closed_form:
            return self._summary.solution.theta.copy()
        return initial_theta(self._setup, self._state)

    @property
    def _summary(self) -> FitSummary:
        self._known = self._present or FitSummary(self._setup, self._state, self._known)
        return self._known

    @property
    def n_rows_(self) -> int:
        """Number of transitions received."""
        return self._state.n_rows

    @property
    def n_waiting_(self) -> int:
        """Number of transitions that have not changed theta yet, because the pilot or their batch is incomplete."""
        return self._state.n_waiting

    @property
    def n_episodes_(self) -> int:
        """Number of episodes whose first state is in the log."""
        return 0 if self._state.episodes is None else self._state.episodes.n_starts

    @property
    def has_policy_value(self) -> bool:
        """Whether the log has enough episodes for `policy_value`."""
        return self.n_episodes_ >= LEAST_STARTS

    @property
    def algorithm_(self) -> Algorithm | None:
        """Algorithm with its current settings; None for the closed form and while the settings are undecided."""
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
        """Predict the values of states, or of states and actions.

        The value of a state is ``phi(s).theta``, and that of a state and an action ``phi(s, a).theta``.

        Parameters
        ----------
        observations : array_like of shape (n, ...), or table
            States to value. A table has the columns of the log, or those of the file ``values.parquet`` that
            `vrtd.evaluate` writes.
        actions : array_like of shape (n,) or (n, k), default=None
            First action in each state, to predict Q(s, a) instead of V(s). This needs features that depend on actions,
            see the parameter ``target``. Pass names of actions if the log has names.
        return_interval : float, default=None
            Confidence level of intervals, for example 0.95. The intervals are for the TD solution, which is V(s)
            only if the features can represent it. Without a level, only the values are returned.
        method : {"recursion", "closed_form"}, default=None
            Estimate that the intervals are for. ``"recursion"`` is the algorithm's own, known for TD and VRTD.
            ``"closed_form"`` is least squares on all rows if their sums are kept, and on the first rows otherwise. The
            default is the method of the fit.

        Returns
        -------
        ndarray of shape (n,), or Intervals
            Values, or with ``return_interval`` values and the bounds of their intervals. The bounds are infinite
            where the log does not determine the value, and nan if no interval is known for the algorithm.

        Raises
        ------
        NotFittedError
            If the evaluator has not received its pilot rows.
        InvalidInputError
            If there are actions, but the features do not depend on actions.

        Warns
        -----
        ConvergenceWarning
            If the values have not converged, or the intervals are unreliable.
        AccuracyWarning
            If no interval is known. The warning says why.
        """
        phi = self._features_of(observations, actions)
        if return_interval is None:
            self._warn_if_far(is_frequent=True)
            return np.asarray(phi @ self.theta_)
        level = check_level(return_interval)
        return self._estimates(phi, method).intervals(level)

    def theta_interval(self, level: float = 0.95, *, method: Method | None = None) -> Intervals:
        """Compute an interval for each parameter.

        Parameters
        ----------
        level : float, default=0.95
            Confidence level.
        method : {"recursion", "closed_form"}, default=None
            Estimate that the intervals are for, see `predict`.

        Returns
        -------
        Intervals
            The d parameters with the bounds of their intervals.
        """
        level, d, found = check_level(level), self.features.n_features, []
        for first in range(0, d, _PARAMETERS):
            n = min(_PARAMETERS, d - first)
            each: Any = unit_rows(first, n, d) if self.features.is_sparse else np.eye(n, d, first)
            found.append(self._estimates(each, method).intervals(level))
        return Intervals(*map(np.concatenate, zip(*found, strict=True)))

    def mean_value(self, level: float = 0.95, *, method: Method | None = None) -> Interval:
        """Compute the mean value of the states in the log, weighted by how often each occurs.

        Parameters
        ----------
        level : float, default=0.95
            Confidence level.
        method : {"recursion", "closed_form"}, default=None
            Estimate that the interval is for, see `predict`.

        Returns
        -------
        Interval
            Mean value and the bounds of its interval.

        Notes
        -----
        With the closed form of all rows, and with ``cost="linear"``, the mean is over all states in the log, and the
        interval accounts for their frequencies being estimates. Otherwise the mean is over the states of the first
        rows, and their frequencies are taken as exact.
        """
        level, summary = check_level(level), self._summary
        if self.why_no_interval(method) is not None:
            return self._estimates(summary.mean_phi(method)[None], method).intervals(level).first
        self._spread(method, stacklevel=3)
        return mean_over_states(summary, method).intervals(level).first

    def policy_value(self, observations: Any = None, level: float = 0.95, *, method: Method | None = None) -> Interval:
        """Compute the value of the policy: the mean value of start states.

        Parameters
        ----------
        observations : array_like of shape (n, ...), or table, default=None
            Sample of start states that is independent of the log. The default is the first states of the log's
            episodes.
        level : float, default=0.95
            Confidence level.
        method : {"recursion", "closed_form"}, default=None
            Estimate that the interval is for, see `predict`.

        Returns
        -------
        Interval
            Policy value and the bounds of its interval. The interval accounts for the sampling of the start states.
            If they are from the log, it also accounts for the correlation of their noise with that of the values.

        Raises
        ------
        InvalidInputError
            If the log has fewer than two episodes and there are no ``observations``.

        Warns
        -----
        DataWarning
            If the values of first states differ from the returns of their episodes by more than noise explains.
        """
        level = check_level(level)
        return self.policy_estimate(observations, method).intervals(level).first

    def policy_estimate(self, observations: Any = None, method: Method | None = None) -> Estimates:
        """Estimate the policy value with its standard error, from which `policy_value` computes the interval.

        Parameters
        ----------
        observations : array_like of shape (n, ...), or table, default=None
            Start states, see `policy_value`.
        method : {"recursion", "closed_form"}, default=None
            Estimate that the error is of, see `predict`.

        Returns
        -------
        Estimates
            One estimate.
        """
        if observations is not None:
            is_table = isinstance(observations, Mapping | ArrowStream) or is_scipy_sparse(observations)
            if not is_table and np.ndim(observations) == 0:
                problem = f"observations must be start states, one row for each, but is {observations!r:.60}."
                raise InvalidInputError(problem, "Pass a list of states, or level=0.95 for a confidence level.")
            phi = self._features_of(observations)
            if not phi.shape[0]:
                raise InvalidInputError("observations has no start state.", "Pass at least one.")
            n = phi.shape[0]
            spread = float(np.var(phi @ self.theta_, ddof=1)) / n if n > 1 else 0.0
            return self._estimates(mean_of(phi)[None], method, stacklevel=4).widen(spread, max(n - 1.0, 1.0))
        episodes = self._state.episodes
        if episodes is None or not self.has_policy_value:
            raise InvalidInputError(
                "The value of a policy needs the first states of at least two episodes, "
                f"but {'the log has no episodes' if self._state.n_rows else 'no rows have been received'}.",
                "Pass start states: policy_value(observations).",
            )
        if self.why_no_interval(method) is not None:
            return self._estimates(episodes.mean_start[None], method, stacklevel=4)
        self._spread(method, stacklevel=4)
        is_quick = self._summary.own_method == "closed_form"
        check = check_returns(self._summary) if is_quick else None
        if check is not None and check.doubt is not None:
            warnings.warn(f"{capitalise(check.doubt)}.", DataWarning, stacklevel=3)
        return mean_over_starts(self._summary, method)

    def estimate(self, observations: Any, actions: ArrayLike | None = None, method: Method | None = None) -> Estimates:
        """Estimate values with their standard errors, from which `predict` computes the intervals.

        Parameters
        ----------
        observations : array_like of shape (n, ...), or table
            States to value, see `predict`.
        actions : array_like of shape (n,) or (n, k), default=None
            First action in each state, see `predict`.
        method : {"recursion", "closed_form"}, default=None
            Estimate that the errors are of, see `predict`.

        Returns
        -------
        Estimates
            One estimate per observation.
        """
        return self._estimates(self._features_of(observations, actions), method)

    def has_same_rows(self, other: ValueFunction) -> bool:
        """Check whether another value function was fitted to the same rows.

        The numbers of rows and the first rows are compared.

        Parameters
        ----------
        other : ValueFunction
            The other value function.

        Returns
        -------
        bool
            Whether the rows agree.
        """
        return is_same_log(self._state, other._state)

    def _features_of(self, observations: Any, actions: ArrayLike | None = None) -> Any:
        features, space = self.features, self._state.space or ObservationSpace("features")
        rows = as_observations(space, observations)
        if actions is None:
            return features(rows).astype(np.float64, copy=False)
        if not isinstance(features, TargetFeatures):
            raise InvalidInputError(
                "actions need features that depend on actions, but the features are those of states.",
                "Drop actions, or fit with target=...",
            )
        return np.asarray(features.of_pairs(rows, as_actions(space, actions)), dtype=np.float64)

    def _estimates(self, phi: Floats, method: Method | None, stacklevel: int = 3) -> Estimates:
        """Return phi.theta and its error for each row.

        The error is infinite where the log does not determine the value, and nan where it is not known.
        """
        reason = self.why_no_interval(method)
        if reason is None:
            return self._spread(method, stacklevel + 1).estimates(phi)
        warnings.warn(f"No interval: {reason}.", AccuracyWarning, stacklevel=stacklevel)
        value, summary = np.asarray(phi @ self.theta_), self._summary
        is_known = summary.spans(phi)
        none = np.zeros_like(value)
        return Estimates(value, np.where(is_known, np.nan, np.inf), none + np.inf, none)

    def why_no_interval(self, method: Method | None = None) -> str | None:
        """Explain why no interval is known.

        Parameters
        ----------
        method : {"recursion", "closed_form"}, default=None
            Estimate that the interval would be for, see `predict`.

        Returns
        -------
        str or None
            The reason, or None if an interval is known.
        """
        method = check_choice("method", method, (None, *get_args(Method)))
        return self._summary.why_no_interval(method)

    def spread(self, method: Method | None = None) -> Spread:
        """Compute the estimate of theta and the distribution of its error.

        Parameters
        ----------
        method : {"recursion", "closed_form"}, default=None
            Estimate to describe, see `predict`.

        Returns
        -------
        Spread
            The spread, from which all intervals are computed.
        """
        return self._spread(method, stacklevel=3)

    def _spread(self, method: Method | None, stacklevel: int) -> Spread:
        method = check_choice("method", method, (None, *get_args(Method)))
        summary = self._summary
        spread = summary.spread(method)
        if not isinstance(spread, BlockSpread) and not spread.converged(summary.sample.phi):
            why = spread.doubt or "the initial transient is larger than the half-width that noise alone gives"
            warnings.warn(
                f"Not converged: {why}. Use more data, or the interval of the closed form: method='closed_form'.",
                ConvergenceWarning,
                stacklevel=stacklevel,
            )
        if isinstance(spread, BlockSpread) and spread.doubt is not None:
            message = f"The intervals are unreliable: {spread.doubt}. Use more data."
            warnings.warn(message, ConvergenceWarning, stacklevel=stacklevel)
        return spread

    def _warn_if_far(self, is_frequent: bool = False) -> None:
        """Warn if the values are further from the closed form of the sample than noise explains."""
        state, settings = self._state, self._setup.settings
        if (state.linear is not None or state.sparse is not None) and state.n_rows >= LEAST_CHECKED:
            doubt = self._summary.linear_doubt(of_intervals=False)
            if doubt is not None:
                remedy = "Use more data, other features, or the closed form: algorithm='closed_form'."
                warnings.warn(f"Not converged: {doubt}. {remedy}", ConvergenceWarning, stacklevel=3)
        if state.iterative is not None and state.iterative.doubt is not None:
            remedy = "Use other features or more data, or cost='linear'."
            warnings.warn(f"Not converged: {state.iterative.doubt}. {remedy}", ConvergenceWarning, stacklevel=3)
        if state.learner is None or settings.trace_decay > 0.0 or state.n_sampled < LEAST_CHECKED:
            return
        if settings.cost == "linear":
            return
        known = self._known
        if known is None or not is_frequent or 2 * known.state.n_sampled < state.n_sampled:
            known = self._summary  # for frequent checks, a sample of half the present rows is enough
        if not known.is_usable:
            return
        reason = distance_doubt(known, state.learner.theta)
        if reason is not None:
            warnings.warn(
                f"Not converged: {reason}. Use more data, or the closed form: algorithm='closed_form'.",
                ConvergenceWarning,
                stacklevel=3,
            )

    def check_returns(self) -> ReturnCheck | None:
        """Compare the values of the first states of episodes with the returns of these episodes.

        Returns
        -------
        ReturnCheck or None
            The comparison; None if rows have weights, or fewer than 20 episodes are known from their start on.
        """
        return check_returns(self._summary)

    @property
    def diagnostics_(self) -> Diagnostics:
        """Diagnostics of the fit: whether it has converged, and the largest source of error."""
        return diagnose(self._summary)

    @property
    def discount(self) -> float:
        """Discount factor gamma."""
        return self._setup.discount

    @property
    def _present(self) -> FitSummary | None:
        """Summary of the current state, if it has been computed."""
        return self._known if self._known is not None and self._known.state is self._state else None
