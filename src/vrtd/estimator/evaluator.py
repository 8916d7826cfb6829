"""The estimator: rows of a log in, values with intervals out, in one pass."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any, Literal, Self, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.algorithms import Algorithm, check_sampling
from vrtd.arrays import real_array
from vrtd.checks import check_choice, check_count, check_flag, check_level
from vrtd.errors import ConvergenceWarning, DataError, InvalidInputError, NotFittedError
from vrtd.estimator.chunks import chunks_of, ended
from vrtd.estimator.diagnostics import LEAST_CHECKED, Diagnostics, diagnose, distance_doubt
from vrtd.estimator.least_squares import LeastSquares
from vrtd.estimator.model_file import as_algorithm, as_settings, damaged, read_model, write_model
from vrtd.estimator.pilot import Pilot
from vrtd.estimator.run import Run, settings_of
from vrtd.estimator.schedule import Schedule
from vrtd.estimator.spread import Intervals, Spread, closed_form_spread, mean_interval, recursion_spread
from vrtd.features import Features, as_features, from_settings
from vrtd.logs import Chunk, Log

__all__ = ["Evaluator"]

Floats = NDArray[np.float64]
Method = Literal["recursion", "closed form"]


class Evaluator:
    """Values of a policy from transitions that were made under it, linear in features.

    - `algorithm`: "vrtd", "td", "lstd" (the closed form), or one with settings of its own: `vrtd.VRTD(0.1, 500)`.
    - `features`: a `vrtd.features.Features`, a name such as "rbf:20", an (S, d) table, a function, or a scikit-learn
      transformer; None when observations are features already. What it takes from data it takes from the pilot rows.
    - `discount`: gamma; 0 is used where a transition terminates.
    - `step_size`, `batch_size`: "auto" decides on them when `pilot_rows` rows have come, for `n_samples` rows in all.
      If that is not given, it decides for four times the rows so far, again and again: batches grow with the data.
    - `closed_form`: sum up the closed form of every row too, d^2 operations a row, for its interval beside the other.

    The rows alone decide on the result: it is the same in every bit however they are split over calls of `partial_fit`.
    One thread at a time may use an evaluator.

    >>> import vrtd
    >>> problem = vrtd.problems.random_mdp(seed=0)
    >>> sample = vrtd.theory.TransitionSample.draw(problem, 50_000, seed=1)
    >>> log = vrtd.logs.from_arrays(sample.phi, sample.reward, sample.phi_next)
    >>> evaluator = vrtd.Evaluator(discount=0.95, n_samples=50_000).fit(log)
    >>> found = evaluator.predict(problem.phi, return_interval=0.95)
    >>> exact = problem.phi @ problem.theta_star
    >>> bool(np.mean((found.low < exact) & (exact < found.high)) > 0.9)
    True
    """

    def __init__(
        self,
        algorithm: str | Algorithm = "vrtd",
        *,
        features: Any = None,
        discount: float,
        step_size: float | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        n_samples: int | None = None,
        pilot_rows: int = 5000,
        theta_0: ArrayLike | None = None,
        closed_form: bool = False,
        seed: int = 0,
    ) -> None:
        self._schedule = Schedule(algorithm, step_size, batch_size, n_samples, pilot_rows)
        if isinstance(algorithm, Algorithm):
            check_sampling(algorithm, "markov")  # refuses at once what cannot learn from a log
        self._given = as_features(features)
        self._discount = _check_discount(discount)
        check_flag("closed_form", closed_form)
        check_count("seed", seed, least=0)
        self._theta_0 = None if theta_0 is None else real_array("theta_0", theta_0)
        self._closed_form, self._seed = bool(closed_form) or self._schedule.is_closed_form, int(seed)
        self._reset()

    def _reset(self) -> None:
        arguments = (self._given, self._discount, self._theta_0, self._closed_form, self._seed)
        self._run = Run(self._schedule.anew(), *arguments)
        self._remarks: list[str] = []
        self._segment: int | None = None  # steps of one of several environments that come together
        self._spreads: dict[str, tuple[int, Spread]] = {}

    # Learning

    def fit(
        self, log: Log | Chunk, *, n_passes: int = 1, progress: Callable[[int, int | None], None] | None = None
    ) -> Self:
        """Learn from a log from the start, forgetting what was learned before; `progress` gets rows done and in all.

        A `ConvergenceWarning` says if the result is far from the closed form of the first rows.
        """
        check_count("n_passes", n_passes)
        self._reset()
        for k in range(n_passes):
            self._run.repeats = k > 0
            self._read(log, progress, is_over=k < n_passes - 1)
            self._run.decide()  # a log shorter than pilot_rows is all there is
        self._run.repeats = False
        self._run.check_ends()
        self._warn_if_far()
        return self

    def partial_fit(self, log: Log | Chunk, *, progress: Callable[[int, int | None], None] | None = None) -> Self:
        """Learn from more rows, which go on from those before unless the last of these ended an episode. What an error
        or Ctrl-C stops keeps what was learned from the pieces before."""
        self._read(log, progress, is_over=False)
        return self

    def _read(self, log: Log | Chunk, progress: Callable[[int, int | None], None] | None, is_over: bool) -> None:
        """`is_over`: what comes next does not go on from the last row."""
        if isinstance(log, Chunk):
            self._run.receive(ended(log) if is_over else log)
            if progress is not None:
                progress(len(log.rewards), len(log.rewards))
            return
        if not isinstance(log, Log):
            raise InvalidInputError(
                "log must be a Log or a Chunk", type(log).__name__, "make one with vrtd.logs: from_arrays, read, ..."
            )
        before, total = self._run.n_rows, log.n_rows
        for chunk in chunks_of(log, is_over):
            self._run.receive(chunk, None if progress is None else lambda: progress(self._run.n_rows - before, total))
        self._segment = log.segment or self._segment
        self._remarks += [remark for remark in (*log.remarks, *self._cut(log)) if remark not in self._remarks]
        if self._run.n_rows == before:
            raise DataError("a log must hold a transition", "none", "check the file, and remarks of rows dropped")

    def _cut(self, log: Log) -> list[str]:
        """A remark where batches cut the segments of a vector of environments."""
        size = None if self._run.learner is None else self._run.learner.batches.size
        if log.segment is None or size is None or size % log.segment == 0 or log.segment % size == 0:
            return []
        return [f"batches of {size} rows cut segments of {log.segment}: use a multiple of it"]

    # What was learned

    @property
    def n_features(self) -> int:
        return (self._given if self._run.features is None else self._run.features).n_features

    @property
    def features(self) -> Features:
        """As they are used: with what was taken from data."""
        features = self._run.usable_features
        if features is None:
            raise NotFittedError(
                "an evaluator must have received its pilot rows",
                f"{self._run.n_rows:,} of {self._schedule.pilot_rows:,}",
                "call partial_fit with more rows, lower pilot_rows, or call fit with all rows",
            )
        return features

    @property
    def theta_(self) -> Floats:
        """(d,) the parameters; theta_0 before anything is learned."""
        if self._run.learner is not None:
            return self._run.learner.theta.copy()
        if self._run.least_squares is not None:
            return self._run.least_squares.solve().theta
        return self._run.start()

    @property
    def n_rows_(self) -> int:
        """Transitions received."""
        return self._run.n_rows

    @property
    def n_waiting_(self) -> int:
        """Transitions that wait, for the pilot or the rest of their batch, and have not moved theta."""
        if self._run.learner is not None:
            return self._run.learner.batches.n_waiting
        return 0 if self._run.least_squares is not None else self._run.n_rows

    @property
    def algorithm_(self) -> Algorithm | None:
        """With the settings that are in use now; None for the closed form, and before they are decided on."""
        return None if self._run.learner is None else self._run.learner.legs[-1].algorithm

    @overload
    def predict(self, observations: Any, return_interval: None = None, *, method: Method | None = None) -> Floats: ...

    @overload
    def predict(self, observations: Any, return_interval: float, *, method: Method | None = None) -> Intervals: ...

    def predict(
        self, observations: Any, return_interval: float | None = None, *, method: Method | None = None
    ) -> Floats | Intervals:
        """phi(s).theta for each observation; with `return_interval` (say 0.95) also the ends of intervals for
        phi(s).theta_star, which is V(s) only where the features can represent it.

        `method`: "recursion" (TD, VRTD: the moments of its own recursion) or "closed form" (least squares on all rows
        where they are summed up, else on the pilot rows).
        """
        phi = np.asarray(self.features(np.asarray(observations)), dtype=np.float64)
        if return_interval is None:
            self._warn_if_far(is_frequent=True)
            return np.asarray(phi @ self.theta_)
        return self.spread(method).of(phi, check_level(return_interval))

    def theta_interval(self, level: float = 0.95, *, method: Method | None = None) -> Intervals:
        """Of each parameter."""
        return self.spread(method).of(np.eye(self.n_features), check_level(level))

    def mean_value(self, level: float = 0.95, *, method: Method | None = None) -> Intervals:
        """Of the value averaged over the states of the log. For a closed form of all rows it is the mean over the
        states that the policy visits, whose shares are estimated, too; else over those of the sample as they are."""
        spread, sums = self.spread(method), self._run.least_squares
        if spread.pilot is not None or sums is None:
            return spread.of(self._run.pilot().phi.mean(axis=0)[None], check_level(level))
        return mean_interval(spread, sums.solve(), sums.mean_phi, check_level(level))

    def spread(self, method: Method | None = None) -> Spread:
        """What the intervals are made of."""
        check_choice("method", method, (None, *get_args(Method)))
        method = method or ("closed form" if self._schedule.is_closed_form else "recursion")
        spread = self._spread(method)
        if method == "recursion" and not spread.converged(self._run.pilot().phi):
            why = spread.doubt or "what is left of the start exceeds half the width of the interval"
            warnings.warn(
                f"not converged: {why}; bring more rows, or take the interval of the closed form: method='closed form'",
                ConvergenceWarning,
                stacklevel=3,
            )
        if method == "closed form" and spread.doubt is not None:
            warnings.warn(f"{spread.doubt}; bring more rows", ConvergenceWarning, stacklevel=3)
        return spread

    def _warn_if_far(self, is_frequent: bool = False) -> None:
        """Warn if the values are further from the closed form of the sample than noise explains."""
        learner = self._run.learner
        if learner is None or self._trace_decay > 0.0 or self._run.n_sampled < LEAST_CHECKED:
            return
        pilot = self._usable_pilot(is_frequent)
        if pilot is None:
            return
        reason = distance_doubt(pilot, learner.theta, self._run.start(), self._schedule.chooses_step)
        if reason is not None:
            warnings.warn(
                f"not converged: {reason}; bring more rows, or take the closed form: algorithm='lstd'",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _usable_pilot(self, is_frequent: bool = False) -> Pilot | None:
        """The sample, unless nothing can be computed from it; an older one will do for frequent checks."""
        try:
            return self._run.recent_pilot() if is_frequent else self._run.pilot()
        except InvalidInputError:
            return None

    @property
    def _trace_decay(self) -> float:
        """lambda of the algorithm: with traces it has another fixed point than the closed form."""
        algorithm = self._schedule.algorithm
        return float(algorithm.settings.get("trace_decay", 0.0)) if isinstance(algorithm, Algorithm) else 0.0

    def _spread(self, method: Method) -> Spread:
        known = self._spreads.get(method)
        if known is None or known[0] != self._run.n_rows:
            known = self._spreads[method] = self._run.n_rows, self._new_spread(method)
        return known[1]

    def _new_spread(self, method: Method) -> Spread:
        if method == "closed form":
            if self._trace_decay > 0.0:
                raise InvalidInputError(
                    "the closed form is that without traces, which is another point",
                    f"trace_decay {self._trace_decay:g}",
                    'evaluate with algorithm="lstd" for its interval',
                )
            if self._run.least_squares is not None:
                return closed_form_spread(self._run.least_squares.solve(), self._usable_pilot())
            sums = LeastSquares(self._discount, self._run.start())
            sums.feed(self._run.sample)
            return closed_form_spread(sums.solve(), self._usable_pilot())
        if self._schedule.is_closed_form:
            raise InvalidInputError("the closed form has no recursion", method, "drop the method")
        if self._run.learner is None:
            raise NotFittedError(
                "settings must have been decided on",
                f"{self._run.n_rows:,} of {self._schedule.pilot_rows:,} pilot rows",
                "bring more rows, or lower pilot_rows",
            )
        return recursion_spread(self._run.learner, self._run.pilot(), self._run.start(), self._run.n_distinct)

    @property
    def diagnostics_(self) -> Diagnostics:
        """Has it converged, and what limits it."""
        pilot = spread = None
        remarks = [*self._run.schedule.remarks, *self._lowered(), *self._remarks]
        if self._run.n_sampled:
            pilot = self._run.pilot()
            try:
                spread = self._spread("closed form" if self._schedule.is_closed_form else "recursion")
            except InvalidInputError as error:  # poor data must not hide what else is known
                remarks.append(f"no interval: {error}")
        algorithm = self.algorithm_
        return diagnose(
            n_rows=self._run.n_rows,
            n_distinct=self._run.n_distinct,
            n_waiting=self.n_waiting_,
            n_features=None if pilot is None else pilot.phi.shape[1],
            settings={"name": self._schedule.algorithm} if algorithm is None else algorithm.settings,
            remarks=remarks,
            segment=self._segment,
            unseen=None if self._run.visited is None else np.flatnonzero(~self._run.visited).tolist(),
            pilot=pilot,
            spread=spread,
            path=None if self._run.learner is None else self._run.learner.path,
        )

    def _lowered(self) -> list[str]:
        """A remark on steps that were lowered on the way."""
        legs = [] if self._run.learner is None else self._run.learner.legs
        steps = [leg.algorithm.largest_step_size or 0.0 for leg in legs if leg.is_lowered]
        if not steps:
            return []
        often = "once" if len(steps) == 1 else f"{len(steps)} times"
        return [f"the step was lowered {often}, to {min(steps):.3g} at the least, for rows with large features"]

    @property
    def discount(self) -> float:
        return self._discount

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one .npz file without pickled objects, from which learning goes on as if it had never stopped.

        Features of your own code (a function, a transformer) are not written: give them to `load` again.
        """
        schedule, start = self._schedule, self._theta_0
        algorithm = schedule.algorithm
        tree: dict[str, Any] = {
            "arguments": {
                "algorithm": as_settings(algorithm) if isinstance(algorithm, Algorithm) else algorithm,
                "step_size": schedule.step_size,
                "batch_size": schedule.batch_size,
                "n_samples": schedule.n_samples,
                "pilot_rows": schedule.pilot_rows,
                "discount": self._discount,
                "closed_form": self._closed_form,
                "seed": self._seed,
                **({} if start is None else {"theta_0": start}),
            },
            "given": settings_of(self._given),
            "remarks": self._remarks,
            "segment": self._segment,
            "run": self._run.stored(),
        }
        write_model(path, tree)

    @classmethod
    def load(cls, path: str | os.PathLike[str], features: Any = None) -> Self:
        """Read a model that `save` wrote; `features` where they were of your own code."""
        tree = read_model(path)
        try:
            arguments = dict(tree["arguments"])
            name = arguments.pop("algorithm")
            given = tree["given"]
            if given is None and features is None:
                raise InvalidInputError(
                    f"{path} was fitted with features of the user's own code", "no features", "pass features=..."
                )
            evaluator = cls(
                name if isinstance(name, str) else as_algorithm(name),
                features=from_settings(given) if features is None else features,
                **arguments,
            )
            evaluator._remarks, evaluator._segment = [str(remark) for remark in tree["remarks"]], tree["segment"]
            evaluator._run.restore(tree["run"])
        except InvalidInputError:
            raise
        except Exception as error:  # a header or arrays that do not fit each other
            raise damaged(path, error) from error
        return evaluator


def _check_discount(discount: Any) -> float:
    is_number = np.ndim(discount) == 0 and not isinstance(discount, bool)
    number = float(real_array("discount", discount)) if is_number else np.nan
    if not 0.0 <= number <= 1.0:
        raise InvalidInputError("discount must be a number in [0, 1]", repr(discount), "pass e.g. 0.95")
    return number
