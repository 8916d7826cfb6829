"""`progress=True`: what the bar shows where, and that every function that takes time shows one and removes it."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import vrtd
from tests.helpers import small_experiments
from tests.helpers.screens import NotebookStream, Screen, shown_texts
from tests.helpers.some_logs import DISCOUNT, chunk
from tests.helpers.tournament import SIZE, invented
from vrtd import progress
from vrtd.errors import InvalidInputError
from vrtd.progress import ProgressBar, RowProgressBar, show_progress

READY = "[..............................]   0%, starting"


def set_clock(monkeypatch: pytest.MonkeyPatch, *times: float) -> None:
    clock = iter(times)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 10.0)


@pytest.mark.parametrize("stream", [Screen(), NotebookStream()], ids=["terminal", "notebook"])
def test_a_bar_on_a_terminal_and_in_a_notebook(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO) -> None:
    set_clock(monkeypatch, 0.0, 5.0, 85.0, 85.01, 95.0)
    bar = ProgressBar(stream)
    for share in (0.1, 0.5, 0.51, 1.0):
        bar(share)
    bar.close()
    assert shown_texts(stream) == [
        READY,
        "[###...........................]  10%",
        "[###############...............]  50%, 1:40 left",
        "[##############################] 100%, 0:00 left",
        "",
        "",
    ]
    assert "\x1b" not in stream.getvalue()  # a notebook would show a part of it


def test_a_long_pause_does_not_count_for_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch of 10 % takes 60 seconds, because a loop is compiled; later ones take one second each."""
    set_clock(monkeypatch, 0.0, 1.0, 61.0, 62.0, 63.0)
    stream = Screen()
    bar = ProgressBar(stream, "sorting the rows")
    for share in (0.0, 0.1, 0.2, 0.3):
        bar(share)
    bar.announce("writing the report")
    shown = [text.split("%, ")[1:] for text in shown_texts(stream)]
    assert shown == [["sorting the rows"], [], ["9:00 left"], ["0:08 left"], ["0:07 left"], ["writing the report"]]


def test_nothing_is_left_of_a_longer_text(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, 0.0, 1.0, 2.0)
    stream = NotebookStream()
    bar = ProgressBar(stream)
    bar(None, "a long text")
    bar(None, "short")
    bar.close()
    line: list[str] = []
    for text in stream.getvalue().split("\r"):  # as a notebook does: what is written covers what stood there
        line[: len(text)] = text
        if text.startswith("short"):
            assert "".join(line).rstrip() == "short"
    assert "".join(line).strip() == ""
    assert stream.getvalue().endswith("\r")


def test_lines_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, 0.0, 5.0, 85.0, 85.01, 95.0)
    stream = io.StringIO()
    bar = ProgressBar(stream)
    for share in (0.1, 0.5, 0.51, 1.0):
        bar(share, "first")
    bar.close()
    assert stream.getvalue() == "vrtd: 50% done, 1:40 left, first\nvrtd: 100% done, 0:00 left, first\n"


@pytest.mark.parametrize(
    ("total", "expected"),
    [
        (4000, ["50% done, 1:40 left, 2,000 rows, 20 per second", "100% done, 0:00 left, 4,000 rows, 30 per second"]),
        (None, ["2,000 rows, 20 per second", "4,000 rows, 30 per second"]),
    ],
)
def test_rows_and_their_speed(monkeypatch: pytest.MonkeyPatch, total: int | None, expected: list[str]) -> None:
    set_clock(monkeypatch, 0.0, 1.0, 1.0, 51.0, 51.0, 101.0, 101.0)
    stream = io.StringIO()
    bar = RowProgressBar(stream)
    for done in (1000, 2000, 4000):
        bar(done, total)
    assert stream.getvalue().splitlines() == [f"vrtd: {line}" for line in expected]


def test_rows_that_are_used_again_are_not_counted_as_more_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, 0.0, 1.0, 1.0, 21.0, 41.0)
    stream = io.StringIO()
    bar = RowProgressBar(stream)
    bar(1000, 1000)
    bar(2000, None)
    bar(110_400, None)
    assert stream.getvalue().splitlines() == ["vrtd: all rows used 2 times", "vrtd: all rows used 110 times"]


def test_what_progress_may_be(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[float] = []
    for given, expected in ((None, None), (False, None), (told.append, told.append)):
        with show_progress(given, ProgressBar) as report:
            assert report == expected
    for wrong in (1, "yes"):
        with pytest.raises(InvalidInputError, match="progress must be True, False or a function, but got"):
            show_progress(wrong, ProgressBar)  # type: ignore[arg-type]
    monkeypatch.setattr(sys, "stderr", None)
    with show_progress(True, ProgressBar) as report:
        assert report is None


def simulate() -> None:
    vrtd.simulate(vrtd.problems.random_mdp(seed=0), vrtd.TD(0.1), n_runs=20, n_gradients=500, progress=True)


def fit(method: str) -> None:
    getattr(vrtd.Evaluator(vrtd.TD(0.05), discount=DISCOUNT), method)(chunk(0, 1000), progress=True)


def evaluate(folder: Path) -> None:
    log = vrtd.logs.from_arrays(*chunk(0, 1000)[:3])
    vrtd.evaluate(log, "closed_form", discount=DISCOUNT, out=folder, pilot_rows=500, progress=True)


def reproduce(folder: Path) -> None:
    vrtd.reproduce("first", out=folder, n_runs=4, progress=True)


def compare() -> None:
    vrtd.compare(["random-mdp"], ["td", "vrtd"], size=SIZE, out=None, progress=True)


@pytest.mark.filterwarnings("ignore::vrtd.errors.DataWarning")  # of features without a constant
@pytest.mark.parametrize(
    ("verb", "expected"),
    [
        (simulate, "[##############################] 100%"),
        (partial(fit, "fit"), "[##############################] 100%, 1,000 rows"),
        (partial(fit, "partial_fit"), "[##############################] 100%, 1,000 rows"),
        (evaluate, "[##############################] 100%, 1,000 rows"),
        (reproduce, "[##############################] 100%"),
        (compare, "[###############...............]  50%, td on random-mdp"),
    ],
    ids=["simulate", "fit", "partial_fit", "evaluate", "reproduce", "compare"],
)
def test_true_shows_a_bar_and_removes_it(
    verb: Callable[..., None], expected: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def measure(size: Any, pairs: Any, folder: Any, executor: Any, processes: Any, tell: Any, device: Any) -> Any:
        tell(0.5, "td on random-mdp")
        return invented({"random-mdp": [1.0, 2.0]})

    small_experiments.install(monkeypatch)
    monkeypatch.setattr("vrtd.tournament.comparison.measure", measure)
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_BARS", 0.0)
    monkeypatch.setattr(progress, "_clock", lambda seconds: "soon")
    stream = Screen()
    monkeypatch.setattr(sys, "stderr", stream)
    verb(*((tmp_path,) if verb in (evaluate, reproduce) else ()))
    texts = [text.replace(", soon left", "") for text in shown_texts(stream)]
    assert texts[0] == READY
    assert any(text.startswith(expected) for text in texts)
    assert texts[-1] == ""


def test_a_bar_is_removed_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Screen()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("vrtd.engine.simulation.run_blocks", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        simulate()
    assert shown_texts(stream) == [READY, "", ""]
