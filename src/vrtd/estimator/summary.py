"""What can be computed from a state of a fit: its first rows, and the spread of its estimate. Each is computed once."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from vrtd.arrays import Floats
from vrtd.errors import InvalidInputError, NotFittedError
from vrtd.estimator.least_squares import Solution, add, no_sums, solve
from vrtd.estimator.spread import Spread, closed_form_spread, recursion_spread, why_no_interval
from vrtd.estimator.state import FitState, Setup, sample_of, start
from vrtd.problems import Transitions

Method = Literal["recursion", "closed_form"]  # what an interval is of


class FitSummary:
    """Quantities of one state."""

    def __init__(self, setup: Setup, state: FitState, before: FitSummary | None = None) -> None:
        self.setup, self.state = setup, state
        if before is not None and before.state.n_sampled == state.n_sampled:  # it has grown to its full size
            vars(self).update({name: value for name, value in vars(before).items() if name in ("sample", "reduced")})

    @cached_property
    def theta_0(self) -> Floats:
        return start(self.setup, self.state)

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

    @cached_property
    def solution(self) -> Solution:
        """The closed form of all rows, where they are summed up."""
        if self.state.sums is None:
            raise NotFittedError("the rows must be summed up", "none", "pass closed_form=True")
        return solve(self.state.sums, self.theta_0)

    @property
    def own_method(self) -> Method:
        return "closed_form" if self.setup.settings.is_closed_form else "recursion"

    def why_no_interval(self, method: Method | None) -> str | None:
        """Return why no interval is known for the algorithm, whatever the rows, or None if one is."""
        learner = self.state.learner
        return None if learner is None or method == "closed_form" else why_no_interval(learner.algorithm)

    def spread(self, method: Method | None) -> Spread:
        return self._closed_form if (method or self.own_method) == "closed_form" else self._recursion

    @cached_property
    def _closed_form(self) -> Spread:
        trace_decay = self.setup.settings.trace_decay
        if trace_decay > 0.0:
            raise InvalidInputError(
                "the closed form is that without traces, which is another point",
                f"trace_decay {trace_decay:g}",
                'evaluate with algorithm="closed_form" for its interval',
            )
        if self.state.sums is not None:
            solution = self.solution
        else:
            solution = solve(add(no_sums(self.sample.n_features), self.sample), self.theta_0)
        return closed_form_spread(solution, self.reduced if self.is_usable else None)

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
        return recursion_spread(state.learner, self.sample, self.reduced, self.theta_0, state.n_distinct)
