"""The verb: learn from a log, and write what came of it as one page with its files."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from vrtd import store
from vrtd.checks import check_count, check_level
from vrtd.errors import AccuracyWarning, ConvergenceWarning, InvalidInputError, VrtdError
from vrtd.estimator.diagnostics import Diagnostics
from vrtd.estimator.evaluator import Evaluator
from vrtd.estimator.figures import FIGURES, figures_of
from vrtd.estimator.observed import Observed
from vrtd.estimator.page import Answer, Facts, build_page
from vrtd.estimator.valued import Valued, n_states_of, value_states
from vrtd.files import check_regular, locked, write_at_once
from vrtd.logs import Log
from vrtd.plots import new_panels
from vrtd.report.html import Panel
from vrtd.report.svg import draw_svg
from vrtd.tables import Table, library, write_csv

_FORMAT = "vrtd-evaluation-1"
_FILES = {
    "report": "report.html",
    "model": "model.npz",
    "values": "values.parquet",
    "diagnostics": "diagnostics.json",
}


@dataclass(frozen=True)
class Evaluation:
    """What an evaluation found, and where it wrote it."""

    out: Path
    answer: Answer
    closed_form: Answer | None  # the closed form's, beside that of a recursion
    diagnostics: Diagnostics
    interrupted: bool

    @property
    def files(self) -> dict[str, Path]:
        return {kind: self.out / name for kind, name in _FILES.items()}

    @property
    def report(self) -> Path:
        return self.files["report"]

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            **_as_json(self.answer),
            "closed_form": None if self.closed_form is None else _as_json(self.closed_form),
            "interrupted": self.interrupted,
            "diagnostics": _plain(self.diagnostics.as_dict()),
            "files": {kind: str(path) for kind, path in self.files.items()},
        }


class EvaluationInterrupted(KeyboardInterrupt):
    """Ctrl-C, after what was learned until then was written."""

    def __init__(self, evaluation: Evaluation) -> None:
        super().__init__(f"interrupted after {evaluation.diagnostics.n_rows:,} rows")
        self.evaluation = evaluation


def evaluate(
    evaluator: Evaluator,
    log: Log,
    *,
    out: str | os.PathLike[str],
    level: float = 0.95,
    states: Any = None,
    n_passes: int = 1,
    progress: Callable[[int, int | None], None] | None = None,
    title: str = "Policy evaluation",
    names: Sequence[str] | None = None,
    shape: tuple[int, int] | None = None,
) -> Evaluation:
    """Fit the evaluator, and write `report.html`, `model.npz`, `values.parquet`, `diagnostics.json` and `figures/`.

    Ctrl-C keeps what was learned: the same files are written, which say so, and then it is raised again.

    Args:
        out: a new or empty folder, or that of an earlier evaluation, whose files are replaced.
        level: of the intervals.
        states: observations to value. Unless given, all states where features are of numbered ones, a grid over the
            observed range where an observation is one number or two, else observations that the log begins with.
        n_passes: over the log.
        progress: is called with the rows done and those in all, which are None where that is not known.
        title: of the page.
        names: of the numbers of an observation, for the axes and for the columns of `values.parquet`.
        shape: rows and columns, where numbered states are the cells of a board.
    """
    if not isinstance(evaluator, Evaluator):
        raise InvalidInputError("evaluator must be an Evaluator", type(evaluator).__name__, "make a vrtd.Evaluator")
    if not isinstance(log, Log):
        raise InvalidInputError("log must be a Log", type(log).__name__, "make one with vrtd.logs: from_arrays, read")
    check_count("n_passes", n_passes)
    check_level(level)
    new_panels(1)  # a missing library must not cost a long run
    library()
    with _opened(Path(out)) as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the page says so
        warnings.filterwarnings("ignore", "no interval", AccuracyWarning)
        observed = Observed(log)
        words = _Words(str(title), names, shape, states, float(level))
        try:
            evaluator.fit(observed, n_passes=n_passes, progress=_over_passes(progress, n_passes))
        except KeyboardInterrupt:
            found = None
            with suppress(VrtdError):  # too little was learned to say anything of it
                found = _report(folder, evaluator, observed, words, interrupted=True)
            if found is None:
                raise
            raise EvaluationInterrupted(found) from None
        return _report(folder, evaluator, observed, words, interrupted=False)


@dataclass(frozen=True)
class _Words:
    """What was asked for, for the page."""

    title: str
    names: Sequence[str] | None
    shape: tuple[int, int] | None
    states: Any
    level: float


def _report(folder: Path, evaluator: Evaluator, observed: Observed, words: _Words, interrupted: bool) -> Evaluation:
    """Everything is computed first, and written when nothing can go wrong but the disk."""
    valued = value_states(evaluator, observed, words.level, words.states, words.names)
    answer, closed_form = _answers(evaluator, words.level)
    diagnostics = evaluator.diagnostics_
    facts = _facts(evaluator, observed, words, interrupted)
    shape = _board(words.shape, len(valued.table["value"])) if valued.kind == "table" else None
    visited = observed.points if valued.kind in ("curve", "map") else None
    figures, tables = figures_of(valued, diagnostics, words.level, visited, shape)
    panels = [
        Panel(figure, draw_svg(figure, tables), f"figures/{figure.name}.svg", f"figures/{figure.name}.csv")
        for figure in figures
    ]
    found = Evaluation(folder, answer, closed_form, diagnostics, interrupted)
    record = {
        "format": _FORMAT,
        **{key: value for key, value in found.as_dict().items() if key != "files"},
        "discount": evaluator.discount,
        "features": _plain(facts.features),
        "data": {
            "n_rows": diagnostics.n_rows,
            "n_terminated": facts.n_terminated,
            "n_truncated": facts.n_truncated,
            "mean_reward": _plain(facts.mean_reward),
            "remarks": list(facts.data_remarks),
        },
        "versions": store.versions() | {"pyarrow": version("pyarrow")},
    }
    html = build_page(answer, closed_form, diagnostics, facts, panels, record).html
    _write(folder, found, evaluator, valued, panels, tables, html, record)
    return found


def _write(
    folder: Path,
    found: Evaluation,
    evaluator: Evaluator,
    valued: Valued,
    panels: Sequence[Panel],
    tables: Mapping[str, Table],
    html: str,
    record: Mapping[str, Any],
) -> None:
    files = found.files
    if not files["diagnostics"].is_file():  # first, so that the folder is known as ours from now on
        store.write_json({"format": _FORMAT}, files["diagnostics"])
    (folder / "figures").mkdir(exist_ok=True)
    for panel in panels:
        _write_text(panel.svg, folder / panel.file)
        write_csv(tables[panel.figure.table], folder / panel.data)
    _write_parquet(valued.table, files["values"])
    evaluator.save(files["model"])
    _write_text(html, files["report"])
    store.write_json(record, files["diagnostics"])
    for name in set(FIGURES) - {panel.figure.name for panel in panels}:  # of an earlier evaluation
        for suffix in ("svg", "csv"):
            (folder / "figures" / f"{name}.{suffix}").unlink(missing_ok=True)


def _answers(evaluator: Evaluator, level: float) -> tuple[Answer, Answer | None]:
    """The method's own, and the closed form's where it is another one."""
    own = _answer(evaluator, level, None)
    if evaluator.algorithm_ is None:  # it is the closed form
        return own, None
    closed_form = None
    with suppress(InvalidInputError):  # singular on these rows: the recursion's stands alone
        closed_form = _answer(evaluator, level, "closed_form")
    return own, closed_form


def _answer(evaluator: Evaluator, level: float, method: Any) -> Answer:
    mean, reason = evaluator.mean_value(level, method=method), evaluator.why_no_interval(method)
    how = evaluator.spread(method).method if reason is None else "none"
    return Answer(float(mean.value[0]), float(mean.low[0]), float(mean.high[0]), level, how, reason)


def _facts(evaluator: Evaluator, observed: Observed, words: _Words, interrupted: bool) -> Facts:
    features: dict[str, Any] = {}
    with suppress(InvalidInputError):  # features of the user's own code
        features = evaluator.features.settings
    return Facts(
        title=words.title,
        discount=evaluator.discount,
        features=features,
        n_features=evaluator.n_features,
        n_terminated=observed.n_terminated,
        n_truncated=observed.n_truncated,
        mean_reward=observed.reward / max(observed.n_seen, 1),
        data_remarks=observed.remarks,
        has_states=n_states_of(evaluator.features) is not None,
        interrupted=interrupted,
    )


def _board(shape: tuple[int, int] | None, n_states: int) -> tuple[int, int] | None:
    if shape is not None and (len(shape) != 2 or int(np.prod(shape)) != n_states):
        raise InvalidInputError(
            f"shape must be the rows and columns of a board of {n_states} states", repr(shape), "pass e.g. (4, 4)"
        )
    return shape


def _over_passes(
    progress: Callable[[int, int | None], None] | None, n_passes: int
) -> Callable[[int, int | None], None] | None:
    """Counts on where a new pass begins at 0."""
    if progress is None:
        return None
    before = last = 0

    def tell(done: int, total: int | None) -> None:
        nonlocal before, last
        if done <= last:  # within a pass it grows
            before += last
        last = done
        progress(before + done, None if total is None else n_passes * total)

    return tell


def _write_text(text: str, path: Path) -> None:
    with write_at_once(path) as file:
        file.write(text.encode())


def _write_parquet(table: Table, path: Path) -> None:
    from pyarrow.parquet import write_table

    pyarrow = library()
    with write_at_once(path) as file:
        write_table(pyarrow.table(dict(table)), file, write_page_checksum=True)


def check_folder(folder: Path) -> None:
    """Refuse a folder that is not new, empty, or an earlier evaluation's."""
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not _is_ours(folder))):
        raise InvalidInputError(
            "the output folder must be new, empty or that of an earlier evaluation",
            f"{folder}, which holds something else",
            "name another",
        )


@contextmanager
def _opened(folder: Path) -> Iterator[Path]:
    """A folder into which nobody else writes; a new one does not stay when nothing was written into it."""
    check_folder(folder)
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with locked(folder):
            yield folder
    finally:
        with suppress(OSError):  # not empty
            for each in missing:
                each.rmdir()


def _is_ours(folder: Path) -> bool:
    if all(path.name.startswith(f".{_FILES['diagnostics']}.") for path in folder.iterdir()):
        return True  # begun, and ended before it was known as ours
    try:
        check_regular(folder / _FILES["diagnostics"])
        return bool(json.loads((folder / _FILES["diagnostics"]).read_bytes())["format"] == _FORMAT)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _as_json(answer: Answer) -> dict[str, Any]:
    fields = {"value": answer.value, "low": answer.low, "high": answer.high, "level": answer.level}
    return {key: _plain(value) for key, value in fields.items()} | {"method": answer.method, "reason": answer.reason}


def _plain(value: Any) -> Any:
    """For JSON, which has no infinity and no tuples."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
