"""`vrtd.evaluate` when it crashes, is interrupted or cannot write: what is in the folder then."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import vrtd
from vrtd.errors import InvalidInputError
from vrtd.estimator import EvaluationInterrupted, ReportError, evaluate, evaluation
from vrtd.logs import Log, from_arrays
from vrtd.report import folder
from vrtd.report.html import Panel

NUMBERS = {"model.npz", "values.parquet", "diagnostics.json"}


class Crash(BaseException):
    """The process ends: nothing catches it."""


def log(n: int) -> Log:
    rng = np.random.default_rng(7)
    s = rng.integers(4, size=n + 1)
    return from_arrays(s[:-1], s[:-1] + rng.normal(size=n), s[1:])


def run(n: int, out: Path) -> Any:
    return evaluate(log(n), "closed_form", features="tabular:4", discount=0.5, pilot_rows=100, out=out)


def content(out: Path) -> dict[str, bytes]:
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def names(out: Path) -> set[str]:
    return {path.name for path in out.iterdir()}


@pytest.fixture(autouse=True)
def _fast_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "make_panel", lambda figure, _, *names: Panel(figure, "<svg></svg>", *names))


STEPS = [(os, "fsync"), (os, "replace"), (os, "unlink"), (os, "mkdir"), (shutil, "rmtree"), (folder, "_exchange")]


@contextmanager
def crashing(at: int) -> Iterator[None]:
    """Crash before step number `at` that changes something on the disk; nothing is changed afterwards."""
    n_done = 0

    def counted(original: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **options: Any) -> Any:
            nonlocal n_done
            n_done += 1
            if n_done == at:
                raise Crash
            return original(*args, **options) if n_done < at else None

        return step

    with ExitStack() as stack:
        for module, name in STEPS:
            stack.enter_context(patch.object(module, name, counted(getattr(module, name))))
        yield


@pytest.mark.parametrize("kind", ["alone", "with a file of the user", "current folder", "no exchange", "mounted"])
def test_a_crash_leaves_the_old_or_the_new_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Where folders cannot be exchanged, a part of one may be left, but never a mixture."""
    run(400, tmp_path / "old")
    run(600, tmp_path / "new")
    old, new = content(tmp_path / "old"), content(tmp_path / "new")
    begun = json.dumps({"format": json.loads(new["diagnostics.json"])["format"]}, indent=2).encode() + b"\n"
    if kind == "with a file of the user":
        (tmp_path / "old" / "figures" / "mine.txt").write_text("mine")
    elif kind == "no exchange":
        monkeypatch.setattr(folder, "_EXCHANGE", 1 << 20)
    elif kind == "mounted":
        monkeypatch.setattr(os.path, "ismount", lambda path: Path(path).name == "out")
    outcomes = []
    for at in range(1, 1000):
        out = tmp_path / str(at) / "out"
        shutil.copytree(tmp_path / "old", out)
        if kind == "current folder":
            monkeypatch.chdir(out)
        try:
            with crashing(at):
                run(600, out)
        except Crash:
            pass
        else:
            break
        left = {name: data for name, data in content(out).items() if not name.startswith(".vrtd-new/")}
        assert left.pop("figures/mine.txt", b"mine") == b"mine"
        left = {name: data for name, data in left.items() if not name.endswith(".tmp")}
        outcomes.append("old" if left == old else "new" if left == new else "part")
        if outcomes[-1] == "part":
            assert kind != "alone"
            assert left.pop("diagnostics.json") == begun
            assert left.items() <= old.items() or left.items() <= new.items()
        run(600, out)
        after = content(out)
        assert after.pop("figures/mine.txt", b"mine") == b"mine"
        assert after == new
        assert names(out.parent) == {"out"}  # what the crash left is removed
    assert len(outcomes) > 10
    assert outcomes[0] == "old"
    assert outcomes[-1] == "new" or kind != "alone"


def test_an_interruption_of_the_drawing_keeps_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures and the page of the earlier evaluation are gone."""
    run(400, tmp_path)

    def interrupt(*_: Any) -> str:
        next(tmp_path.parent.glob(f".{tmp_path.name}.vrtd-new/figures")).joinpath(".a.svg.1.2.tmp").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "make_panel", interrupt)
    with pytest.raises(EvaluationInterrupted) as stop:
        run(600, tmp_path)
    check_numbers(tmp_path, stop.value.evaluation)


def check_numbers(out: Path, found: Any) -> None:
    model, stored = vrtd.Evaluator.load(out / "model.npz"), json.loads((out / "diagnostics.json").read_text())
    assert found.answer.value == stored["mean_value"]["value"] == model.mean_value(0.95).value
    assert stored["data"]["n_rows"] == model.n_rows_ == 600
    assert set(content(out)) == NUMBERS


def test_an_interruption_before_the_numbers_are_known_keeps_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(evaluation, "value_states", interrupt)
    with pytest.raises(KeyboardInterrupt, match=r"the model from 600 rows is in .*model.npz"):
        run(600, tmp_path)
    assert vrtd.Evaluator.load(tmp_path / "model.npz").n_rows_ == 600
    monkeypatch.undo()
    run(600, tmp_path)  # the folder is that of an evaluation
    assert "report.html" in names(tmp_path)


@pytest.mark.parametrize("error", [ValueError("cannot set this"), MemoryError()])
def test_a_figure_that_fails_keeps_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: Any) -> str:
        raise error

    monkeypatch.setattr(evaluation, "make_panel", fail)
    with pytest.raises(ReportError, match=r"The report could not be written: \w+Error.*\. model.npz, values") as stop:
        run(600, tmp_path)
    assert stop.value.__cause__ is error
    check_numbers(tmp_path, stop.value.evaluation)


@pytest.mark.parametrize("n_written", [0, 1, 2, 4])
def test_a_full_disk_keeps_what_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_written: int) -> None:
    """Without the model, the earlier evaluation stays."""
    run(400, tmp_path / "out")
    before, sync, left = content(tmp_path / "out"), os.fsync, [n_written]

    def full(handle: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        sync(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ReportError, match=r"written: No space left on device\. .*Free space") as stop:
        run(600, tmp_path / "out")
    assert stop.value.evaluation.diagnostics.n_rows == 600
    after = content(tmp_path / "out")
    if n_written < 2:
        assert after == before
        assert "out is as it was before" in str(stop.value)
    else:
        assert vrtd.Evaluator.load(tmp_path / "out" / "model.npz").n_rows_ == 600
        assert "report.html" not in after
    assert names(tmp_path) == {"out"}


def test_a_folder_that_cannot_be_written_is_noticed_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(folder, "TemporaryFile", refuse)  # the permissions of a folder do not stop root
    monkeypatch.setattr(vrtd.Evaluator, "fit", lambda *_, **__: pytest.fail("the work began"))
    with pytest.raises(InvalidInputError, match=r"out cannot be written: Permission denied\. Change its permissions"):
        run(600, tmp_path / "out")
    assert names(tmp_path) == set()


@pytest.mark.parametrize("kind", ["dangling link", "file in the path"])
def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere" / "deep")
    out = tmp_path / ("link" if kind == "dangling link" else "file/out")
    with pytest.raises(InvalidInputError, match=rf"The output folder {out} cannot be written: "):
        run(600, out)


def test_a_link_to_a_folder_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o750)
    (tmp_path / "link").symlink_to("real")
    run(400, tmp_path / "link")
    run(600, tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert "report.html" in names(tmp_path / "real")
    assert (tmp_path / "real").stat().st_mode & 0o777 == 0o750
