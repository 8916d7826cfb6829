"""Fit an evaluator to a log or an environment, and write the result as a page with its files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from functools import partial
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any, Literal, NamedTuple, Unpack

import numpy as np
from numpy.typing import ArrayLike

from vrtd import store
from vrtd.algorithms import Algorithm
from vrtd.checks import check_count, check_level
from vrtd.errors import AccuracyWarning, ConvergenceWarning, DataWarning, InvalidInputError, VrtdError
from vrtd.estimator.answers import answer
from vrtd.estimator.auto_settings import CLOSED_FORM, Cost, default_pilot_rows
from vrtd.estimator.comparison import PolicyComparison, check_episodes, compare_policies
from vrtd.estimator.comparison_figures import COMPARISON_FIGURES, comparison_figures
from vrtd.estimator.diagnostics import to_json
from vrtd.estimator.effects import extreme_states, list_states, value_effects
from vrtd.estimator.evaluation_result import FILES, Evaluation, EvaluationInterrupted, ReportError
from vrtd.estimator.evaluation_source import check_record, list_tasks, make_title, open_source, record_rows
from vrtd.estimator.evaluator import Evaluator, ProgressCallback
from vrtd.estimator.figures import FIGURES, figures_of
from vrtd.estimator.page import EXTREMES, Facts, build_page
from vrtd.estimator.state_values import Board, LogSummary, StateValues, n_states_of, value_states
from vrtd.files import as_path, reserved
from vrtd.logs import Log
from vrtd.logs.reading import ReadOptions, check_options, describe_start
from vrtd.plots import Figure, new_panels
from vrtd.progress import RowProgressBar, show_progress
from vrtd.report.folder import hold, replacement, write_text
from vrtd.report.svg import make_panel
from vrtd.tables import Table, Tables, library, write_csv, write_parquet

_FORMAT = "vrtd-evaluation-3"
_OURS = (  # all files that an evaluation can have
    *FILES.values(),
    EXTREMES,
    *(f"figures/{name}.{suffix}" for name in (*FIGURES, *COMPARISON_FIGURES) for suffix in ("svg", "csv")),
)


def evaluate(
    source: Any,
    algorithm: str | Algorithm = "auto",
    *,
    discount: float,
    out: str | os.PathLike[str],
    policy: Any = None,
    n_samples: int | None = None,
    n_envs: int | None = None,
    clip_actions: bool = False,
    record: str | os.PathLike[str] | None = None,
    features: Any = "auto",
    step_size: float | Literal["auto"] = "auto",
    batch_size: int | Literal["auto"] = "auto",
    cost: Cost = "auto",
    pilot_rows: int | None = None,
    theta_0: ArrayLike | None = None,
    closed_form: bool | Literal["auto"] = "auto",
    seed: int = 0,
    target: Any = None,
    against: Any = None,
    against_target: Any = None,
    n_passes: int = 1,
    executor: Executor | None = None,
    level: float = 0.95,
    states: Any = None,
    title: str | None = None,
    names: Sequence[str] | None = None,
    shape: tuple[int, int] | None = None,
    progress: ProgressCallback | bool | None = None,
    **columns: Unpack[ReadOptions],
) -> Evaluation:
    """Evaluate a policy from logged or simulated transitions, and write a report.

    The values of the policy are learned in one pass over the rows, with confidence intervals. With ``against`` or
    ``against_target`` the policy is also compared with another one. The folder ``out`` receives ``report.html``,
    ``model.npz``, ``values.parquet``, ``diagnostics.json`` and the folder ``figures``. If Ctrl-C interrupts the
    learning, the same files are written from the rows read so far, and they say so. If it interrupts the drawing, or
    the report cannot be drawn, the model, the values and the diagnostics are written.

    Parameters
    ----------
    source : Log, table, path, str, sequence of paths, or Gymnasium environment
        The source of the transitions: a log, a table, files, or a Gymnasium environment. A table is one of pandas,
        polars, pyarrow or DuckDB, or a dict of columns. A string is a file name or pattern, or else the id of an
        environment. An environment object, which may be a vector environment, is not closed.
    algorithm : str or Algorithm, default="auto"
        The learning algorithm: "closed_form", or one that learns from a log, such as "vrtd", "td" or "lstd". "auto"
        selects the closed form unless ``cost`` or the number of features rules it out, and VRTD with growing batches
        otherwise. An ``Algorithm`` keeps its own settings.
    discount : float
        The discount factor gamma, between 0 and 1.
    out : path
        The folder for the report, which must be new, empty or the folder of an earlier evaluation. The files of an
        earlier evaluation are replaced.
    policy : str, array, callable or object, optional
        The policy that acts in the environment. By default actions are random ("random"). An array holds (S, A)
        probabilities or (S,) actions and may be the name of a .npy or .npz file. "package.module:function" names
        installed code. Callables and objects with a method ``predict`` are described in
        ``vrtd.logs.environment.from_env``.
    n_samples : int, optional
        The number of transitions to generate in an environment, 100,000 by default. For a log, the number of its
        rows, where the log does not know it.
    n_envs : int, optional
        The number of environments that run in parallel, for an environment id. By default a single environment, not
        a vector environment, is used.
    clip_actions : bool, default=False
        Clip continuous actions to the bounds of the action space. Otherwise an action outside the bounds is an error.
    record : path, optional
        Save the generated rows to this .parquet, .npz or .csv file. The rows are then read back from the file.
    features : str, array, callable, Features or scikit-learn transformer, default="auto"
        The features of the observations, for example "tabular", "rbf:20", "fourier:5", "rff:100" or "identity".
        "auto" selects them by the kind of the observations. See ``vrtd.Evaluator``.
    step_size : float or "auto", default="auto"
        The step size of the algorithm. "auto" chooses it from the pilot rows.
    batch_size : int or "auto", default="auto"
        The batch size of VRTD. "auto" chooses it from the pilot rows.
    cost : {"auto", "linear", "quadratic"}, default="auto"
        The work allowed per row, as a function of the number of features. "auto" allows quadratic work up to 512
        features, or 900 states of a table, and linear work beyond.
    pilot_rows : int, optional
        The number of first rows from which automatic settings and features are chosen. By default 5,000, or 1,000
        with ``cost="linear"``, but at most a quarter of the rows.
    theta_0 : array of shape (d,), optional
        The initial parameters. By default all are zero.
    closed_form : bool or "auto", default="auto"
        Also compute the closed form of all rows, for comparison with another algorithm. "auto" computes it if there
        are few features.
    seed : int, default=0
        The seed of the environment, the policy and the algorithm.
    target : str, array, callable or object, optional
        The policy to evaluate, if another policy generated the rows. An array or a string is interpreted as for
        ``policy``; a callable takes a batch of observations, as for ``vrtd.Evaluator``. The rows must have actions.
    against : Log, table, path or sequence of paths, optional
        The log of another policy to compare with. It is read, and its values are learned, with the same options.
    against_target : str, array, callable or object, optional
        Another target policy to compare with, evaluated on the same rows. It is given like ``target``.
    n_passes : int, default=1
        The number of passes over the rows.
    executor : concurrent.futures.Executor, optional
        The executor on which the partitions of a large log are fitted, see ``Evaluator.fit``. The rows are read in the
        calling process, because the report counts them, and are sent to the workers.
    level : float, default=0.95
        The confidence level of the intervals.
    states : array of shape (n, ...), optional
        The observations whose values are reported. By default these are all states of a table, or a grid over the
        observed range if an observation is one or two numbers, or else the first distinct observations.
    title : str, optional
        The title of the report.
    names : sequence of str, optional
        The names of the numbers in an observation, for figures and files. By default these are the column names of a
        table.
    shape : tuple of two ints, optional
        The numbers of rows and columns of the board whose cells are the numbered states. It is known for some toy
        environments.
    progress : bool or callable, optional
        Whether to show a progress bar on stderr. A callable receives the number of rows done and the total number,
        which is None if it is unknown.
    **columns
        The columns of a table or of files, their order, and the treatment of missing values, as for
        ``vrtd.logs.read``.

    Returns
    -------
    Evaluation
        The policy value (averaged over the first states of episodes) and the mean value (averaged over all visited
        states) with their intervals, the diagnostics, and the fitted evaluator. All files hold the same estimates.

    Raises
    ------
    EvaluationInterrupted
        If Ctrl-C was pressed after something was learned. The exception holds the evaluation.
    ReportError
        If the report cannot be drawn or written, for example because the disk is full. The exception holds the
        evaluation.
    InvalidInputError
        If an argument is invalid, or if the rows do not determine the values.
    DataError
        If a row cannot be used, for example because a number is missing.
    DivergenceError
        If the parameters overflow because the step size is too large.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import vrtd
    >>> revenue = np.random.default_rng(0).exponential(size=1000)
    >>> visits = {"page": [0, 1] * 500, "revenue": revenue, "left": [False, True] * 500}
    >>> columns = {"observations": "page", "reward": "revenue", "terminated": "left"}
    >>> with tempfile.TemporaryDirectory() as out:
    ...     evaluation = vrtd.evaluate(visits, discount=0.9, out=out, **columns)
    >>> print(evaluation.policy_value)
    1.94 [1.80, 2.09]
    """
    check_options(columns, signature(evaluate).parameters)
    check_count("n_passes", n_passes)
    check_level(level)
    folder = as_path("out", out)
    with ExitStack() as stack:
        stack.enter_context(hold(folder, _FORMAT, "evaluation", FILES["diagnostics"]))
        if record is not None:
            check_record(Path(record), folder)
            stack.enter_context(reserved(Path(record)))
        new_panels(1)  # fails before the long run if Matplotlib is missing, as does the next line without pyarrow
        library()
        # Features of states and actions cannot be tried on observations alone.
        tried = features if target is None and against_target is None else "auto"
        rows = stack.enter_context(open_source(source, columns, policy, n_samples, n_envs, clip_actions, tried, seed))
        tasks = list_tasks(rows, columns, target, against, against_target, features)
        report = stack.enter_context(show_progress(progress, RowProgressBar, describe_start(columns)))
        evaluators = []
        for task in tasks:
            n = task.n_rows
            usual = default_pilot_rows(cost)
            n_pilot = usual if n is None else max(1, min(usual, n // 4))
            evaluator = Evaluator(
                algorithm, features=features, discount=discount, step_size=step_size, batch_size=batch_size,
                n_samples=None if n is None else n * n_passes, pilot_rows=n_pilot if pilot_rows is None else pilot_rows,
                cost=cost, theta_0=theta_0, closed_form=closed_form, seed=seed, target=task.target,
            )  # fmt: skip
            evaluators.append(evaluator)
        summary = LogSummary(rows.log if record is None else record_rows(rows.log, Path(record), report), names)
        words = _Words(
            make_title(rows, tasks) if title is None else str(title),
            rows.board if shape is None else Board(shape),
            states,
            float(level),
            tuple(task.name for task in tasks),
            None if tasks[0].target is None else tasks[0].name,
        )
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", ConvergenceWarning)  # these are on the page
        warnings.filterwarnings("ignore", "no interval", AccuracyWarning)
        warnings.filterwarnings("ignore", "the values of first states", DataWarning)
        try:
            logs = [summary if task.log is rows.log else task.log for task in tasks]
            _fit(evaluators, logs, words.names, n_passes, executor, report)
        except KeyboardInterrupt:
            try:
                evaluation = _report(folder, evaluators[:1], summary, words, interrupted=True)
            except ReportError:
                raise
            except VrtdError:  # too little was learned for a report
                raise KeyboardInterrupt from None
            raise EvaluationInterrupted(evaluation) from None
        if isinstance(report, RowProgressBar):
            report.announce("writing the report")
        return _report(folder, evaluators, summary, words, interrupted=False)


class _Words(NamedTuple):
    """The arguments of `evaluate` that the report needs."""

    title: str
    board: Board | None
    states: Any
    level: float
    names: tuple[str, ...]  # of the policies
    target: str | None  # name of the first policy, if it is a target policy


def _fit(
    evaluators: Sequence[Evaluator],
    logs: Sequence[Log],
    names: Sequence[str],
    n_passes: int,
    executor: Executor | None,
    report: ProgressCallback | None,
) -> None:
    """Fit each evaluator to its log. Raise if two policies are compared and a log has no episodes."""
    sizes = [log.n_rows for log in logs]
    n_before, total = 0, None if None in sizes else n_passes * sum(size or 0 for size in sizes)
    for evaluator, log, name in zip(evaluators, logs, names, strict=True):
        tell = report if report is None or len(logs) == 1 else partial(_tell, report, n_before, total)
        evaluator.fit(log, n_passes=n_passes, executor=executor, progress=tell)
        n_before += evaluator.n_rows_
        if len(evaluators) > 1:
            check_episodes(evaluator, name)


def _tell(report: ProgressCallback, n_before: int, total: int | None, done: int, _own_total: int | None) -> None:
    # Further passes of the closed form are not in the total.
    report(n_before + done, None if total is not None and n_before + done > total else total)


class _Findings(NamedTuple):
    """Everything that the files of an evaluation hold."""

    evaluation: Evaluation
    facts: Facts
    valued: StateValues
    extremes: Table | None  # the best and the worst states
    states: Mapping[str, Any]  # all states, for a reader who chooses one
    figures: Sequence[Figure]
    tables: Tables  # behind the figures
    record: Mapping[str, Any]  # the results as plain JSON


def _report(
    folder: Path, evaluators: Sequence[Evaluator], log: LogSummary, words: _Words, interrupted: bool
) -> Evaluation:
    """Write the files of an evaluation. If the page cannot be drawn, the model and the numbers are the evaluation."""
    try:
        found = _find(folder, evaluators, log, words, interrupted)
    except KeyboardInterrupt:
        with replacement(folder, _FORMAT, FILES["diagnostics"], _OURS) as new:
            evaluators[0].save(new / FILES["model"])
        model = folder / FILES["model"]
        raise KeyboardInterrupt(f"the model from {evaluators[0].n_rows_:,} rows is in {model}") from None
    try:
        with replacement(folder, _FORMAT, FILES["diagnostics"], _OURS) as new:
            stopped = _write(new, found)
    except OSError as error:
        raise ReportError(found.evaluation, error, ()) from error
    if stopped is not None:
        raise stopped
    return found.evaluation


def _find(
    folder: Path, evaluators: Sequence[Evaluator], log: LogSummary, words: _Words, interrupted: bool
) -> _Findings:
    evaluator, *others = evaluators
    valued = value_states(evaluator, log, words.level, words.states)
    comparison = compare_policies(evaluator, others[0], words.names, words.level) if others else None
    found = _collect_answers(folder, evaluator, comparison, log, words, interrupted)
    facts = Facts(
        title=words.title,
        features=found.feature_settings,
        n_terminated=log.n_terminated,
        n_truncated=log.n_truncated,
        mean_reward=log.reward / max(log.n_seen, 1),
        data_remarks=log.remarks,
        n_states=n_states_of(evaluator.features),
    )
    board = _check_board(words.board, len(valued.table["value"])) if valued.kind == "table" else None
    effects, extremes = [], None
    if valued.kind == "list" and words.states is None:  # too many numbers for a map
        effects, extremes = value_effects(evaluator, log, words.level, valued.names), extreme_states(valued, log)
    figures, tables = figures_of(valued, effects, found.diagnostics, words.level, board)
    if comparison is not None:
        more_figures, more_tables = comparison_figures(found.answer, comparison)
        figures, tables = more_figures + figures, more_tables | tables
    record = {
        "format": _FORMAT,
        **{key: value for key, value in found.as_dict().items() if key != "files"},
        "discount": evaluator.discount,
        "features": to_json(facts.features),
        "data": {
            "n_rows": found.diagnostics.n_rows,
            "n_terminated": facts.n_terminated,
            "n_truncated": facts.n_truncated,
            "mean_reward": to_json(facts.mean_reward),
            "remarks": list(facts.data_remarks),
        },
        "versions": store.versions() | {"pyarrow": version("pyarrow")},
    }
    states = list_states(valued, log, words.level)
    return _Findings(found, facts, valued, extremes, states, figures, tables, record)


def _write(folder: Path, found: _Findings) -> BaseException | None:
    """Write the files into a folder. Return an error if they are not complete but include the model."""
    kept: list[str] = []
    try:
        _write_numbers(folder, found, kept)
        _write_page(folder, found)
    except KeyboardInterrupt:
        _write_numbers(folder, found, [])
        return EvaluationInterrupted(found.evaluation)
    except Exception as error:  # Matplotlib raises almost any
        stopped = ReportError(found.evaluation, error, kept)
        if not kept:
            raise stopped from error
        stopped.__cause__ = error
        return stopped
    return None


def _write_numbers(folder: Path, found: _Findings, kept: list[str]) -> None:
    """Write the model and the numbers, and append the names of the files."""
    model, values, diagnostics = (FILES[kind] for kind in ("model", "values", "diagnostics"))
    found.evaluation.evaluator.save(folder / model)
    kept.append(model)
    write_parquet(found.valued.table, folder / values)
    kept.append(values)
    store.write_json(found.record, folder / diagnostics)
    kept.append(diagnostics)


def _write_page(folder: Path, found: _Findings) -> None:
    """Write the figures with their data, and the page."""
    (folder / "figures").mkdir(exist_ok=True)
    panels = []
    for figure in found.figures:
        panel = make_panel(figure, found.tables, f"figures/{figure.name}.svg", f"figures/{figure.name}.csv")
        write_text(panel.svg, folder / panel.file)
        write_csv(found.tables[figure.table], folder / panel.data)
        panels.append(panel)
    if found.extremes is not None:
        write_csv(found.extremes, folder / EXTREMES)
    page = build_page(found.evaluation, found.facts, panels, found.extremes, found.states, found.record)
    write_text(page.html, folder / FILES["report"])


def _collect_answers(
    folder: Path,
    evaluator: Evaluator,
    comparison: PolicyComparison | None,
    log: LogSummary,
    words: _Words,
    interrupted: bool,
) -> Evaluation:
    level = words.level
    policy_value = answer(evaluator, "policy_value", level) if evaluator.has_policy_value else None
    mean_value, closed_form = answer(evaluator, "mean_value", level), None
    if mean_value.method != CLOSED_FORM:
        with suppress(InvalidInputError):  # the closed form may be singular on these rows
            closed_form = answer(evaluator, (policy_value or mean_value).quantity, level, "closed_form")
    returns, diagnostics = evaluator.check_returns(), evaluator.diagnostics_
    return Evaluation(
        folder, words.target, policy_value, mean_value, closed_form, returns, comparison, diagnostics, interrupted,
        log.roles, evaluator,
    )  # fmt: skip


def _check_board(board: Board | None, n_states: int) -> Board | None:
    if board is not None and (len(board.shape) != 2 or int(np.prod(board.shape)) != n_states):
        raise InvalidInputError(
            f"shape must be the numbers of rows and columns of a board with {n_states} states, but is {board.shape!r}.",
            "Pass two numbers with that product, such as (4, 4) for 16 states.",
        )
    return board
