"""The estimator `Evaluator`, which learns values from the rows of a log in one pass."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike

from vrtd.algorithms import Algorithm
from vrtd.arrays import real_array
from vrtd.checks import check_count, check_flag, check_fraction
from vrtd.errors import DataError, DataWarning, InvalidInputError, SingularSystemError
from vrtd.estimator.auto_settings import AutoSettings, Cost, default_pilot_rows
from vrtd.estimator.diagnostics import capitalise, data_doubts
from vrtd.estimator.fit import check_ends, decide, read_again, receive
from vrtd.estimator.iterative_least_squares import IterativeFit, solve_iteratively
from vrtd.estimator.learner import batch_rows
from vrtd.estimator.model_file import decode_arguments, decode_state, read_model, write_model
from vrtd.estimator.notebook import build_fit_summary, describe_fit
from vrtd.estimator.partitioned_fit import Partitioned, fit_partitions, open_partitions
from vrtd.estimator.state import FitState, Setup, goes_on_from, initial_theta
from vrtd.estimator.value_function import ValueFunction
from vrtd.executors import check_executor
from vrtd.features import ObservationSpace, TargetFeatures, as_features, as_pair_features, as_target
from vrtd.features.auto import guess_space
from vrtd.features.hashed import doubt_numbers, text_for
from vrtd.logs import Chunk, Log
from vrtd.logs.log import checked_chunks
from vrtd.logs.reading import ReadOptions, as_log, describe_start
from vrtd.progress import RowProgressBar, show_progress

ProgressCallback = Callable[[int, int | None], None]  # rows done, and the total if it is known


class Evaluator(ValueFunction):
    """Linear value function estimator for logged transitions.

    It estimates the value function of the policy that made the transitions, or of another policy (see ``target``), with
    confidence intervals and diagnostics.

    Parameters
    ----------
    algorithm : str or Algorithm, default="auto"
        Learning algorithm. ``"auto"`` takes the closed form where ``cost`` allows it, and VRTD with growing batches
        otherwise. ``"closed_form"`` is the least-squares solution of all rows (LSTD); with more than 4,096 features,
        `fit` solves it by GMRES with several passes over the log. Other choices are the name of an algorithm in
        ``vrtd.algorithms.REGISTRY`` that can learn from a log, or an algorithm with settings, such as
        ``vrtd.VRTD(0.1, 500)``. The settings of ``"vrtd"``, ``"richardson_td"`` and ``"td"`` are chosen automatically.
        Other names run with the defaults of their class.
    features : Features, str, array_like, callable or transformer, default="auto"
        Features of the states. Pass a `vrtd.features.Features`, a name such as ``"rbf:20"``, an (S, d) table, a
        function, or a scikit-learn transformer. Pass None or ``"identity"`` if the observations are features already.
        ``"auto"`` chooses by the type of the observations: a table for numbered states, standardised columns with a
        constant, or features of a box. Arrays with two dimensions are taken as features. Ranges and other constants
        are computed from the pilot rows.
    discount : float
        Discount factor gamma in [0, 1]. It is replaced by 0 where a transition terminates.
    step_size : float or "auto", default="auto"
        Step size of the algorithm. ``"auto"`` chooses it from the pilot rows, for ``n_samples`` rows.
    batch_size : int or "auto", default="auto"
        Batch size of VRTD. ``"auto"`` chooses it from the pilot rows, for ``n_samples`` rows.
    n_samples : int, default=None
        Number of rows that will come in all. Without it, ``"auto"`` plans for four times the rows so far and repeats
        this, so that batches grow with the data.
    cost : {"auto", "linear", "quadratic"}, default="auto"
        Work and memory that are allowed per row, as a function of the number of features d. ``"linear"`` is O(d), with
        no matrix larger than 705 x 705 for any d: VRTD with growing batches by default, or ``"richardson_td"``.
        ``"quadratic"`` is O(d^2): the closed form by default. ``"auto"`` is quadratic up to 512 features, or 900 states
        of a table, and linear beyond.
    pilot_rows : int, default=None
        Number of rows from which ``"auto"`` chooses settings, and features take their ranges. The default is 5000, or
        1000 with ``cost="linear"``, and less if observations are large.
    theta_0 : array_like of shape (d,), default=None
        Initial parameters. The default is zeros.
    closed_form : bool or "auto", default=False
        Whether to compute the closed form of all rows too, if the algorithm is another one. It serves as a comparison
        and takes d^2 operations per row. ``"auto"`` computes it for at most 512 features, or 900 states of a table.
    seed : int, default=0
        Seed of the random numbers that the algorithm draws.
    target : array_like, callable, or object with a method predict, default=None
        Policy to evaluate, if another policy made the log. Pass an (S, A) table of probabilities or (S,) actions of
        numbered states, a function that maps a batch of observations to (n, A) probabilities or (n,) actions, or an
        object with a method ``predict``. The log must have actions. With a target, features depend on the state and
        the action: by default there is one copy of the features of the state for each action. You can also pass a
        function of observations and actions as ``features``. If the log has propensities, features depend on the state
        only, and rows are weighted by importance ratios. See `vrtd.features.as_target`.

    Notes
    -----
    The result does not depend on how the rows are split over calls of `partial_fit`: it is equal in every bit. The
    closed form of `fit` adds up more than 131,072 rows in partitions, which can change the last bits. An evaluator must
    not be used by two threads at the same time.

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
                raise InvalidInputError(
                    "closed_form=True takes d^2 operations per row, which cost='linear' does not allow.",
                    "Drop one of the two.",
                )
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
        other._state = self._state.trim()  # so that the copies do not write to the same buffers
        return other

    # Learning

    def fit(
        self,
        data: Any,
        *,
        n_passes: int = 1,
        executor: Executor | None = None,
        progress: ProgressCallback | bool | None = None,
        **columns: Unpack[ReadOptions],
    ) -> Self:
        """Learn from a log, and discard what was learned before.

        Parameters
        ----------
        data : Log, Chunk, table, or path
            Transitions to learn from: a log or a chunk of `vrtd.logs`, a table of pandas, polars, pyarrow or DuckDB, a
            dict of columns, or files that `vrtd.logs.read` can read.
        n_passes : int, default=1
            Number of passes over the log.
        executor : concurrent.futures.Executor or None, default=None
            Executor on which the partitions of a large log are fitted, for the closed form or ``cost="linear"``. The
            closed form has the same bits without an executor. With ``cost="linear"``, each partition of 131,072 rows
            or more has a run of its own, and the extrapolated estimates of all runs are averaged.
        progress : bool or callable, default=None
            Whether to show a progress bar on stderr. A function is called with the number of rows done and the total
            over all passes, which is None if it is not known.
        **columns
            Options of `vrtd.logs.read` for a table or files: the names of the columns, the order of the rows, and the
            treatment of missing values.

        Returns
        -------
        Evaluator
            The evaluator itself.

        Raises
        ------
        DataError
            If the log cannot be used. The message names the file, the column and the row where possible.
        SingularSystemError
            If the closed form was asked for, and the rows do not determine the parameters.
        DivergenceError
            If the parameters overflow, because the step size is too large.

        Warns
        -----
        ConvergenceWarning
            If the values are far from the closed form of the first rows.
        DataWarning
            If many rows were dropped, or no combination of the features is constant.
        StabilityWarning
            If the step size that was passed is too large for the pilot rows.
        """
        check_count("n_passes", n_passes)
        self._reset()
        check_executor(executor, None)
        if executor is not None:
            self._check_divisible(n_passes)
        log, given = as_log(data, columns, text=text_for(self._given.features)), replace(self._given, rereads=True)
        with show_progress(progress, RowProgressBar, describe_start(columns)) as report:
            chunks: Iterable[Chunk] | None = None
            if n_passes == 1 and isinstance(log, Log):
                partitioned, chunks = open_partitions(given, log, executor)
                if partitioned is not None:
                    return self._fit_partitions(partitioned, executor, report)
            for k in range(n_passes):
                self._read(given, log, report, k, n_passes, chunks)
                self._state = decide(self._setup, self._state, is_all=True)  # a log shorter than pilot_rows
            if self._state.iterative is not None:
                self._iterate(log, report)
        return self._check()

    def _check_divisible(self, n_passes: int) -> None:
        settings = self._given.settings
        if not (settings.is_closed_form or settings.is_auto or settings.is_linear):
            name = settings.algorithm if isinstance(settings.algorithm, str) else settings.algorithm.name
            raise InvalidInputError(
                f"executor is for the closed form and for cost='linear', but the algorithm is {name}.",
                "Drop executor, or the algorithm.",
            )
        if n_passes > 1:
            raise InvalidInputError(f"executor is for one pass, but n_passes is {n_passes}.", "Drop n_passes.")

    def _fit_partitions(self, log: Partitioned, executor: Executor | None, report: ProgressCallback | None) -> Self:
        def keep(state: FitState) -> None:
            self._state = state

        self._setup = log.setup
        self._state = fit_partitions(log, executor, report, keep)
        self._take_remarks(log.log)
        return self._check()

    def _iterate(self, log: Log | Chunk, report: ProgressCallback | None) -> None:
        """Solve the closed form with further passes over the log; Ctrl-C leaves the best solution so far."""
        state = self._state
        assert state.features is not None
        setup = self._setup.resolve(state.features)

        def keep(found: IterativeFit) -> None:
            self._state = state._replace(iterative=found)

        def tell(n_rows: int) -> None:
            if report is not None:
                report(state.n_rows + n_rows, None)

        if report is not None:
            report(state.n_rows, state.n_rows)  # files of text do not tell the number of rows before
        keep(solve_iteratively(partial(read_again, setup, state, log), initial_theta(setup, state), keep, tell))

    def _check(self) -> Self:
        """Raise or warn after a fit if the values are not determined or unreliable."""
        if not self._state.n_rows:
            raise _no_rows()
        check_ends(self._setup, self._state)
        if self._state.learner is None and self._state.linear is None and self._state.sparse is None:
            self._solve()  # raises if the rows do not determine the parameters
        self._warn_of_data()
        self._warn_if_far()
        return self

    def partial_fit(
        self, data: Any, *, progress: ProgressCallback | bool | None = None, **columns: Unpack[ReadOptions]
    ) -> Self:
        """Learn from more rows.

        They continue the rows before, unless the last of those ended an episode. If an error or Ctrl-C stops the call,
        what was learned from complete pieces of the log is kept.

        Parameters
        ----------
        data : Log, Chunk, table, or path
            Transitions to learn from, see `fit`.
        progress : bool or callable, default=None
            Whether to show a progress bar on stderr, see `fit`.
        **columns
            Options of `vrtd.logs.read` for a table or files, see `fit`.

        Returns
        -------
        Evaluator
            The evaluator itself.
        """
        if self._state.linear is not None and self._state.linear.runs is not None:
            raise InvalidInputError(
                "A fit with O(d) work per row on an executor cannot be continued, because it is a mean of runs.",
                "Fit again with all rows.",
            )
        if self._state.iterative is not None:
            raise InvalidInputError(
                "A closed form without a d x d matrix cannot be continued, because it takes passes over all rows.",
                "Fit again with all rows.",
            )
        log = as_log(data, columns, self._state.space, text_for(self._given.features))
        with show_progress(progress, RowProgressBar, describe_start(columns)) as report:
            self._read(self._given, log, report)
        return self

    def _read(
        self,
        given: Setup,
        log: Log | Chunk,
        progress: ProgressCallback | None,
        k: int = 0,
        n_passes: int = 1,
        chunks: Iterable[Chunk] | None = None,
    ) -> None:
        """Make pass k of `n_passes` over a log, counted from 0; the next pass does not continue its last row.

        `chunks` are the checked chunks of the log if their reading has begun.
        """
        is_over, repeats, before = k < n_passes - 1, k > 0, self._state.n_rows
        space: ObservationSpace | None
        if isinstance(log, Chunk):
            log.check()
            chunks = (log.mark_truncated(slice(-1, None)) if is_over else log,)
            space = guess_space(log.observations)
        else:
            chunks, space = checked_chunks(log, is_over) if chunks is None else chunks, log.space
        state = self._state if before else self._state._replace(space=space)
        goes_on = goes_on_from(state) and not (isinstance(log, Log) and log.knows_first)
        for chunk in chunks:
            if not state.n_rows:
                self._setup = given.fit_to(space, chunk)
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
        self._take_remarks(log)
        if self._state.n_rows == before:
            raise _no_rows()

    def _take_remarks(self, log: Log) -> None:
        """Keep what a log says of its last reading."""
        state = self._state
        rows = state.waiting[0].observations if state.waiting else state.observations
        doubts = (*log.warnings, *doubt_numbers(self._given.features, state.space, rows))
        self._state = state._replace(
            log_remarks=tuple(dict.fromkeys((*state.log_remarks, *log.remarks, *self._cut(log)))),
            log_warnings=tuple(dict.fromkeys((*state.log_warnings, *doubts))),
            segment=log.segment or state.segment,
        )

    def _cut(self, log: Log) -> list[str]:
        """Return a remark if batches split the segments of parallel environments."""
        size = None if self._state.learner is None else batch_rows(self._state.learner.algorithm)
        if log.segment is None or size is None or size % log.segment == 0 or log.segment % size == 0:
            return []
        return [f"batches of {size} rows split the segments of {log.segment} rows: use a multiple of {log.segment}"]

    def _solve(self) -> None:
        try:
            _ = self._summary.solution
        except SingularSystemError as error:
            if self._setup.target is None:
                raise
            remedy = "Add rows in which the actions of the target are taken, use other features, or drop propensity."
            raise SingularSystemError(error.problem, remedy) from None

    def _warn_of_data(self) -> None:
        """Warn if the rows or the features make the values unreliable."""
        for doubt in data_doubts(self._summary):
            warnings.warn(f"{capitalise(doubt)}.", DataWarning, stacklevel=3)

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to one .npz file without pickled objects.

        After `load`, learning continues as if it had not been interrupted. Functions and transformers that were passed
        as ``features`` or ``target`` are not written: pass them to `load` again.

        Parameters
        ----------
        path : str or path-like
            File to write. An existing file is replaced.
        """
        write_model(path, self._setup, self._state)

    @classmethod
    def load(cls, path: str | os.PathLike[str], features: Any = None, target: Any = None) -> Self:
        """Read a model that `save` wrote.

        Parameters
        ----------
        path : str or path-like
            File to read.
        features : callable or transformer, default=None
            Features of the model, if they were a function or a transformer.
        target : callable or object with a method predict, default=None
            Target policy of the model, if it was a function or an object.

        Returns
        -------
        Evaluator
            The evaluator as it was when it was saved.

        Raises
        ------
        ModelFileError
            If the file is not a model of this version of vrtd, or is damaged.
        """
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
    return DataError("The log has no transition.", "Check the file, and the remarks on dropped rows.")
