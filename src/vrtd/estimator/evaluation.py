"""`evaluate`: learn from a log or an environment, and write the result as one page with its files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
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
from vrtd.estimator.effects import extreme_states, value_effects
from vrtd.estimator.evaluation_result import FILES, Evaluation, EvaluationInterrupted
from vrtd.estimator.evaluation_source import check_record, list_tasks, make_title, open_source, record_rows
from vrtd.estimator.evaluator import Evaluator, ProgressCallback
from vrtd.estimator.figures import FIGURES, figures_of
from vrtd.estimator.page import EXTREMES, Facts, build_page
from vrtd.estimator.state_values import Board, LogSummary, n_states_of, value_states
from vrtd.logs import Log
from vrtd.logs.reading import ReadOptions, check_options, describe_start
from vrtd.plots import new_panels
from vrtd.progress import RowProgressBar, show_progress
from vrtd.report.folder import hold, mark, write_text
from vrtd.report.html import Panel
from vrtd.report.svg import draw_svg
from vrtd.tables import library, write_csv, write_parquet

_FORMAT = "vrtd-evaluation-3"


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
    level: float = 0.95,
    states: Any = None,
    title: str | None = None,
    names: Sequence[str] | None = None,
    shape: tuple[int, int] | None = None,
    progress: ProgressCallback | bool | None = None,
    **columns: Unpack[ReadOptions],
) -> Evaluation:
    """Learn the values of a policy, compare them with those of another one if there is one, and write a report.

    The files are `report.html`, `model.npz`, `values.parquet`, `diagnostics.json` and those in `figures/`. Ctrl-C keeps
    what was learned: the same files are written, which say so, and then it is raised again.

    Parameters
    ----------
    source : Log, table, path, str or Gymnasium environment
        Where the transitions come from: a log (see `vrtd.logs`), a table of pandas, polars, pyarrow or DuckDB, a
        dict of columns, files or a pattern as `vrtd.logs.read` takes them, the id of a Gymnasium environment, or an
        environment or vector environment, which stays open.
    algorithm : str or Algorithm, default "auto"
        As for `Evaluator`, like `discount`, `step_size`, `batch_size` and `theta_0`.
    discount : float
        The discount gamma.
    out : path
        A new or empty folder, or that of an earlier evaluation, whose files are replaced.
    policy : optional
        Of an environment: "random" (the default), an array, a function or an object with `predict` as for
        `vrtd.logs.environment.from_env`, a .npy or .npz file with an array, or installed code by name,
        "package.module:function".
    n_samples : int, optional
        Transitions to make of an environment, by default 100,000; for a log, the number of its rows if the log does not
        know it.
    n_envs : int, optional
        How many environments of this id run side by side. Default: one that is no vector environment.
    clip_actions : bool, default False
        Whether actions of a Box are clipped to its bounds. Otherwise an action outside of them is an error.
    record : path, optional
        Write the rows to this .parquet, .npz or .csv file first, and learn from there.
    features : default "auto"
        As for `Evaluator`.
    step_size, batch_size : number or "auto"
        Settings of the algorithm.
    cost : {"auto", "linear", "quadratic"}, default "auto"
        What work per row is allowed, in the number of features, as for `Evaluator`.
    pilot_rows : int, optional
        Rows from which "auto" decides. Default: as for `Evaluator`, or a quarter of the rows if that is less.
    theta_0 : array of shape (d,), optional
        Where learning starts.
    closed_form : bool or "auto"
        Whether the closed form of every row is computed beside another algorithm, for comparison; "auto": if there are
        few features.
    seed : int, default 0
        Seed of the environment, the policy and the algorithm.
    target : optional
        The policy to value, where other actions were taken: as for `Evaluator`, a .npy or .npz file with an array, or
        installed code by name, "package.module:function". The rows must have actions.
    against : Log, table or path, optional
        The log of another policy to compare with. It is read and learned from like the first one.
    against_target : optional
        Another target policy to compare with, on the same rows.
    n_passes : int, default 1
        How often to go through the rows.
    level : float, default 0.95
        Confidence level of the intervals.
    states : array, optional
        Observations to value. By default all states of a table, a grid over the log range where an observation is
        one number or two, else observations that the log begins with.
    title : str, optional
        Title of the page.
    names : sequence of str, optional
        Names of the numbers of an observation, for the axes and for the columns of `values.parquet`. Default: the names
        of the columns of a table.
    shape : (int, int), optional
        Rows and columns, where numbered states are the cells of a board. Known for some toy environments.
    progress : bool or callable, optional
        True shows a bar on stderr. A function is called with the rows done and those in all, which are None where that
        is not known.
    **columns
        For a table or files: the columns, their order and what is missing, as for `vrtd.logs.read`.

    Returns
    -------
    Evaluation
        The value of the policy, averaged over the first states of episodes, and the mean over the states of the log,
        with their intervals. All files hold the same estimates from the same method.

    Raises
    ------
    EvaluationInterrupted
        After Ctrl-C, if something was learned; it holds the evaluation.
    DivergenceError
        If the parameters leave the finite numbers.
    """
    check_options(columns, signature(evaluate).parameters)
    check_count("n_passes", n_passes)
    check_level(level)
    folder = Path(out)
    with ExitStack() as stack:
        stack.enter_context(hold(folder, _FORMAT, "evaluation", FILES["diagnostics"]))
        if record is not None:
            check_record(Path(record), folder)
        new_panels(1)  # a missing library must not cost a long run
        library()
        # Features of states and actions are tried on the pilot rows.
        tried = features if target is None and against_target is None else "auto"
        rows = stack.enter_context(open_source(source, columns, policy, n_samples, n_envs, clip_actions, tried, seed))
        tasks = list_tasks(rows, columns, target, against, against_target)
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
        warnings.simplefilter("ignore", ConvergenceWarning)  # the page says so
        warnings.filterwarnings("ignore", "no interval", AccuracyWarning)
        warnings.filterwarnings("ignore", "the values of first states", DataWarning)
        try:
            logs = [summary if task.log is rows.log else task.log for task in tasks]
            _fit(evaluators, logs, words.names, n_passes, report)
        except KeyboardInterrupt:
            evaluation = None
            with suppress(VrtdError):  # too little was learned to say anything of it
                evaluation = _report(folder, evaluators[:1], summary, words, interrupted=True)
            if evaluation is None:
                raise
            raise EvaluationInterrupted(evaluation) from None
        if isinstance(report, RowProgressBar):
            report.announce("writing the report")
        try:
            return _report(folder, evaluators, summary, words, interrupted=False)
        except KeyboardInterrupt:  # all rows are learned: finish what was begun, so that no files of two reports mix
            evaluation = _report(folder, evaluators, summary, words, interrupted=False)
            raise EvaluationInterrupted(evaluation) from None


class _Words(NamedTuple):
    """What was asked for, for the page."""

    title: str
    board: Board | None
    states: Any
    level: float
    names: tuple[str, ...]  # of the policies
    target: str | None  # name of the first one, if it is a target policy


def _fit(
    evaluators: Sequence[Evaluator],
    logs: Sequence[Log],
    names: Sequence[str],
    n_passes: int,
    report: ProgressCallback | None,
) -> None:
    """Let each evaluator learn from its log. Policies that are compared must have episodes."""
    sizes = [log.n_rows for log in logs]
    n_before, total = 0, None if None in sizes else n_passes * sum(size or 0 for size in sizes)
    for evaluator, log, name in zip(evaluators, logs, names, strict=True):
        tell = None if report is None else partial(_tell, report, n_before, total)
        evaluator.fit(log, n_passes=n_passes, progress=tell)
        n_before += evaluator.n_rows_
        if len(evaluators) > 1:
            check_episodes(evaluator, name)


def _tell(report: ProgressCallback, n_before: int, total: int | None, done: int, _own_total: int | None) -> None:
    report(n_before + done, total)


def _report(
    folder: Path, evaluators: Sequence[Evaluator], log: LogSummary, words: _Words, interrupted: bool
) -> Evaluation:
    """Compute everything first, and write when nothing can go wrong but the disk."""
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
    panels = [
        Panel(figure, draw_svg(figure, tables), f"figures/{figure.name}.svg", f"figures/{figure.name}.csv")
        for figure in figures
    ]
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
    html, files = build_page(found, facts, panels, extremes, record).html, found.files
    mark(folder, _FORMAT, ("figures",), FILES["diagnostics"])
    store.write_json({"format": _FORMAT}, files["diagnostics"])  # without an answer until every file is the new one
    for panel in panels:
        write_text(panel.svg, folder / panel.file)
        write_csv(tables[panel.figure.table], folder / panel.data)
    if extremes is not None:
        write_csv(extremes, folder / EXTREMES)
    write_parquet(valued.table, files["values"])
    evaluator.save(files["model"])
    write_text(html, files["report"])
    store.write_json(record, files["diagnostics"])
    for name in {*FIGURES, *COMPARISON_FIGURES} - {figure.name for figure in figures}:  # of an earlier evaluation
        for suffix in ("svg", "csv"):
            (folder / "figures" / f"{name}.{suffix}").unlink(missing_ok=True)
    if extremes is None:
        (folder / EXTREMES).unlink(missing_ok=True)
    return found


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
        with suppress(InvalidInputError):  # singular on these rows: the recursion's stands alone
            closed_form = answer(evaluator, (policy_value or mean_value).quantity, level, "closed_form")
    returns, diagnostics = evaluator.check_returns(), evaluator.diagnostics_
    return Evaluation(
        folder, words.target, policy_value, mean_value, closed_form, returns, comparison, diagnostics, interrupted,
        log.roles, evaluator,
    )  # fmt: skip


def _check_board(board: Board | None, n_states: int) -> Board | None:
    if board is not None and (len(board.shape) != 2 or int(np.prod(board.shape)) != n_states):
        raise InvalidInputError(
            f"shape must be the rows and columns of a board of {n_states} states", repr(board.shape), "pass e.g. (4, 4)"
        )
    return board
