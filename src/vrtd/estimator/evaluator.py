"""The estimator: rows of a log in, values with intervals out, in one pass."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from copy import copy
from typing import Any, Literal, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike

from vrtd.algorithms import Algorithm
from vrtd.arrays import real_array
from vrtd.checks import check_count, check_flag, check_fraction
from vrtd.errors import DataError, DataWarning, InvalidInputError, SingularSystemError
from vrtd.estimator.auto_settings import AutoSettings, Cost, default_pilot_rows
from vrtd.estimator.diagnostics import data_doubts
from vrtd.estimator.fit import check_ends, decide, receive
from vrtd.estimator.learner import batch_rows
from vrtd.estimator.model_file import decode_arguments, decode_state, read_model, write_model
from vrtd.estimator.notebook import build_fit_summary, describe_fit
from vrtd.estimator.state import FitState, Setup, goes_on_from
from vrtd.estimator.value_function import ValueFunction
from vrtd.features import ObservationSpace, TargetFeatures, as_features, as_pair_features, as_target
from vrtd.features.auto import guess_space
from vrtd.logs import Chunk, Log
from vrtd.logs.log import checked_chunks
from vrtd.logs.reading import ReadOptions, as_log, describe_start
from vrtd.progress import RowProgressBar, show_progress

ProgressCallback = Callable[[int, int | None], None]  # rows done, and rows in all if that is known


class Evaluator(ValueFunction):
    """Values of a policy from transitions that were made under it, linear in features.

    Parameters
    ----------
    algorithm : str or Algorithm, default "auto"
        "auto" takes the closed form where `cost` allows it, and VRTD with batches that grow otherwise. "closed_form" is
        the least-squares solution of all rows. Otherwise the name of an algorithm in `vrtd.algorithms.REGISTRY` that
        can learn from a log, or an algorithm with settings of its own: `vrtd.VRTD(0.1, 500)`. Settings of "vrtd",
        "richardson_td" and "td" are chosen automatically. Other names run with the defaults of their class.
    features : default "auto"
        A `vrtd.features.Features`, a name such as "rbf:20", an (S, d) table, a function, or a scikit-learn transformer;
        None or "identity" if observations are features already. "auto" chooses by what the observations are: a table of
        numbered states, standardised columns with a constant, or features of a box; arrays with two dimensions are
        features already. What features take from data they take from the pilot rows.
    discount : float
        The discount gamma; 0 is used where a transition terminates.
    step_size, batch_size : number or "auto"
        Settings of "vrtd" and "td". "auto" decides when `pilot_rows` rows have come, for `n_samples` rows in all.
    n_samples : int, optional
        The number of rows that will come. Without it, "auto" decides for four times the rows so far, again and again:
        batches grow with the data.
    cost : {"auto", "linear", "quadratic"}, default "auto"
        What work and memory per row are allowed, in the number of features d. "linear": O(d), and no matrix larger
        than 705 x 705, for any d: "vrtd" with batches that grow by default, or "richardson_td". "quadratic": O(d^2),
        which is the closed form by default. "auto": quadratic up to 512 features, or 900 states of a table, and linear
        beyond.
    pilot_rows : int, optional
        Rows from which "auto" decides, and from which features take what they need. Default: 5000, or 1000 with
        cost="linear"; fewer where observations are large.
    theta_0 : array of shape (d,), optional
        Where learning starts. Default: zeros.
    closed_form : bool or "auto", default False
        Sum up the closed form of every row beside another algorithm, with d^2 operations per row, for comparison.
        "auto": if there are at most 512 features, or 900 states of a table.
    seed : int, default 0
        Seed of the algorithm's own draws.
    target : optional
        The policy whose values are learned, where the log was made by another one: (S, A) probabilities or (S,) actions
        of numbered states, a function of a batch of observations that returns (n, A) probabilities or (n,) actions, or
        an object with `predict`. The log must have actions. Features are then those of a state and an action, by
        default each feature of the state for each action; a function of observations and actions may be passed. With
        propensities in the log, features are those of states, and rows are weighted by importance ratios. See
        `vrtd.features.as_target`.

    Notes
    -----
    The rows alone decide on the result: it is the same in every bit however they are split over calls of `partial_fit`.
    One thread at a time may use an evaluator.

    Examples
    --------
    >>> import numpy as np
    >>> import vrtd
    >>> problem = vrtd.problems.random_mdp(seed=0)
    >>> rows = vrtd.record(problem, 50_000, seed=1, shuffle=False)
    >>> log = vrtd.logs.from_arrays(rows.phi, rows.reward, rows.phi_next)
    >>> evaluator = vrtd.Evaluator(features="identity", discount=0.95).fit(log)
    >>> values = evaluator.predict(problem.phi, return_interval=0.95)
    >>> exact = problem.phi @ problem.theta_star
    >>> bool(np.mean((values.low < exact) & (exact < values.high)) > 0.9)
    True
    """

    def __init__(
        self,
        algorithm: str | Algorithm = "auto",
        *,
        features: Any = "auto",
        discount: float,
        step_size: float | Literal["auto"] = "auto",
        batch_size: int | Literal["auto"] = "auto",
        n_samples: int | None = None,
        cost: Cost = "auto",
        pilot_rows: int | None = None,
        theta_0: ArrayLike | None = None,
        closed_form: bool | Literal["auto"] = False,
        seed: int = 0,
        target: Any = None,
    ) -> None:
        n_pilot = default_pilot_rows(cost) if pilot_rows is None else pilot_rows
        settings = AutoSettings(algorithm, step_size, batch_size, n_samples, n_pilot, cost)
        policy = None if target is None else as_target(target)
        if policy is None or isinstance(features, TargetFeatures):
            given = as_features(features)
        else:
            given = TargetFeatures(as_pair_features(features), policy)
        check_fraction("discount", discount)
        if closed_form != "auto":
            check_flag("closed_form", closed_form)
            if closed_form and cost == "linear":
                must = "the closed form of every row takes d^2 operations per row"
                raise InvalidInputError(must, "closed_form=True with cost='linear'", "drop one of the two")
        check_count("seed", seed, least=0)
        theta = None if theta_0 is None else real_array("theta_0", theta_0)
        self._given = Setup(settings, given, float(discount), theta, closed_form, int(seed), policy)
        self._reset()

    def _reset(self) -> None:
        self._setup = self._given
        self._state = FitState()
        self._known = None

    def __copy__(self) -> Self:
        other = self.__class__.__new__(self.__class__)
        vars(other).update(vars(self))
        other._state = self._state.trim()  # with buffers of its own for rows to come
        return other

    # Learning

    def fit(
        self,
        data: Any,
        *,
        n_passes: int = 1,
        progress: ProgressCallback | bool | None = None,
        **columns: Unpack[ReadOptions],
    ) -> Self:
        """Learn from a log from the start, and forget what was learned before.

        Parameters
        ----------
        data : Log, Chunk, table, or path
            Where the transitions come from: a log or a chunk of `vrtd.logs`, a table of pandas, polars, pyarrow or
            DuckDB, a dict of columns, or files, as `vrtd.logs.read` takes them.
        n_passes : int, default 1
            How often to go through the log.
        progress : bool or callable, optional
            True shows a bar on stderr. A function is called with the rows done and the rows in all passes, which are
            None if that is not known.
        **columns
            For a table or files: the columns, their order and what is missing, as for `vrtd.logs.read`.

        Warns
        -----
        ConvergenceWarning
            If the values are far from the closed form of the first rows.
        DataWarning
            If many rows were dropped, or no feature is constant.
        """
        check_count("n_passes", n_passes)
        self._reset()
        log = as_log(data, columns)
        with show_progress(progress, RowProgressBar, describe_start(columns)) as report:
            for k in range(n_passes):
                self._read(log, report, k, n_passes)
                self._state = decide(self._setup, self._state, is_all=True)  # a log shorter than pilot_rows
        if not self._state.n_rows:
            raise _no_rows()
        check_ends(self._setup, self._state)
        if self._state.learner is None and self._state.linear is None:
            self._solve()  # rows that do not determine the parameters are an error here
        self._warn_of_data()
        self._warn_if_far()
        return self

    def partial_fit(
        self, data: Any, *, progress: ProgressCallback | bool | None = None, **columns: Unpack[ReadOptions]
    ) -> Self:
        """Learn from more rows, which continue those before unless the last of these ended an episode.

        It takes what `fit` takes. If an error or Ctrl-C stops it, what was learned from the pieces before is kept.
        """
        log = as_log(data, columns, self._state.space)
        with show_progress(progress, RowProgressBar, describe_start(columns)) as report:
            self._read(log, report)
        return self

    def _read(self, log: Log | Chunk, progress: ProgressCallback | None, k: int = 0, n_passes: int = 1) -> None:
        """Read a log for the k-th time of several, from 0. The next pass does not continue the last row of this one."""
        is_over, repeats, before = k < n_passes - 1, k > 0, self._state.n_rows
        chunks: Iterable[Chunk]
        if isinstance(log, Chunk):
            log.check()
            chunks = (log.mark_truncated(slice(-1, None)) if is_over else log,)
            space: ObservationSpace | None = guess_space(log.observations)
        else:
            chunks, space = checked_chunks(log, is_over), log.space
        state = self._state if before else self._state._replace(space=space)
        goes_on = goes_on_from(state) and not (isinstance(log, Log) and log.knows_first)
        for chunk in chunks:
            if not state.n_rows:
                self._setup = self._given.fit_to(space, chunk)
            elif goes_on and chunk.starts is not None and chunk.n_rows:
                chunk = chunk._replace(starts=np.append(False, chunk.starts[1:]))
            goes_on = goes_on and not chunk.n_rows
            for learned in receive(self._setup, state, chunk, repeats):
                self._state = state = learned
                if progress is not None:
                    n_done = state.n_rows - (0 if repeats else before)
                    progress(n_done, None if log.n_rows is None else n_passes * log.n_rows)
        if isinstance(log, Chunk):
            return
        state = self._state
        self._state = state._replace(
            log_remarks=tuple(dict.fromkeys((*state.log_remarks, *log.remarks, *self._cut(log)))),
            log_warnings=tuple(dict.fromkeys((*state.log_warnings, *log.warnings))),
            segment=log.segment or state.segment,
        )
        if self._state.n_rows == before:
            raise _no_rows()

    def _cut(self, log: Log) -> list[str]:
        """Return a remark if batches cut the segments of a vector of environments."""
        size = None if self._state.learner is None else batch_rows(self._state.learner.algorithm)
        if log.segment is None or size is None or size % log.segment == 0 or log.segment % size == 0:
            return []
        return [f"batches of {size} rows cut segments of {log.segment}: use a multiple of it"]

    def _solve(self) -> None:
        try:
            _ = self._summary.solution
        except SingularSystemError as error:
            if self._setup.target is None:
                raise
            do = "bring rows in which the target's actions are taken, or other features; or drop propensity"
            raise SingularSystemError(error.must, error.got, do) from None

    def _warn_of_data(self) -> None:
        """Warn of what makes an answer from these rows and features doubtful."""
        for doubt in data_doubts(self._summary):
            warnings.warn(doubt, DataWarning, stacklevel=3)

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one .npz file without pickled objects, from which learning goes on as if it had never stopped.

        Features and targets of your own code (a function, a transformer) are not written: give them to `load` again.
        """
        write_model(path, self._setup, self._state)

    @classmethod
    def load(cls, path: str | os.PathLike[str], features: Any = None, target: Any = None) -> Self:
        """Read a model that `save` wrote; `features` and `target` where they were of your own code."""
        with read_model(path) as tree:
            evaluator = cls(**decode_arguments(tree, path, features, target))
            evaluator._state = state = decode_state(tree, evaluator._setup)
            if state.waiting:
                evaluator._setup = evaluator._given.fit_to(state.space, state.waiting[0])
        return evaluator

    def __repr__(self) -> str:
        return describe_fit(copy(self), self._setup, self._state, self._present)

    def _repr_html_(self) -> str:
        return build_fit_summary(copy(self), self._setup, self._state, self._present)


def _no_rows() -> DataError:
    return DataError("a log must hold a transition", "none", "check the file, and remarks of rows dropped")
