"""`vrtd.reproduce`: what is written, what is kept, and what happens when it is stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers import small_experiments
from tests.helpers.notebooks import check_repr, read_summary
from tests.helpers.small_experiments import EXPERIMENTS, is_whole, measured, tables_of
from vrtd import store
from vrtd.errors import InvalidInputError, MissingExtraError
from vrtd.files import locked
from vrtd.paper import experiment, stored
from vrtd.paper.evidence import CONFIDENCE, NumberCheck
from vrtd.paper.experiment import Runner


@pytest.fixture(autouse=True)
def small(monkeypatch: Any) -> None:
    small_experiments.install(monkeypatch)


def test_all_is_written_and_linked(tmp_path: Any) -> None:
    found = vrtd.reproduce(out=tmp_path / "new" / "r", n_runs=4)
    folder = found.out
    assert is_whole(folder)
    assert [finding.verdict for finding in found.findings] == ["holds"] * 3
    claims = json.loads((folder / "claims.json").read_text())
    assert [claim["name"] for claim in claims] == ["first", "second", "first-and-second"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["n_runs"], manifest["seed"]) == (4, 0)
    assert {verdict: n for verdict, n in manifest["verdicts"].items() if n} == {"holds": 3}
    assert set(manifest["versions"]) == {"vrtd", "python", "numpy", "scipy", "numba", "matplotlib"}
    assert manifest["experiments"]["first"]["settings"] == {"n_runs": 4, "seed": 0}
    assert manifest["experiments"]["first"]["cost"]["n_gradients"] == 400
    page = (folder / "report.html").read_text(encoding="utf-8")
    for link in ("figures/first-panel.svg", "data/first-curve.csv"):
        assert (folder / link).is_file()
        assert f'href="./{link}"' in page
    assert found.as_dict()["report"] == str(folder / "report.html")


def test_the_manifest_has_the_digest_of_the_record(tmp_path: Any) -> None:
    manifest = vrtd.reproduce(out=tmp_path, n_runs=4).manifest
    for name in ("first", "second"):
        record = json.loads((tmp_path / "data" / f"{name}.json").read_bytes())
        assert manifest["experiments"][name]["digest"] == record["digest"] == store.digest({"n_runs": 4, "seed": 0})
        assert manifest["experiments"][name]["cost"] == record["cost"]
    assert manifest["confidence"] == CONFIDENCE


def test_a_part_judges_only_what_rests_on_it(tmp_path: Any) -> None:
    found = vrtd.reproduce(["second"], out=tmp_path, n_runs=4)
    assert measured == ["second"]
    assert [finding.claim.name for finding in found.findings] == ["second"]
    assert (
        found.manifest["n_statements"] == 3
    )  # confidence is shared among all, so that a verdict does not depend on it
    found = vrtd.reproduce(["first"], out=tmp_path, n_runs=4)
    assert measured == ["second", "first"]
    assert len(found.findings) == 3  # the other is still there


def test_what_is_finished_is_kept(tmp_path: Any) -> None:
    vrtd.reproduce(out=tmp_path, n_runs=4)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").iterdir()}
    vrtd.reproduce(out=tmp_path, n_runs=4)
    assert measured == ["first", "second"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "data").iterdir()} == before


@pytest.mark.parametrize("change", [{"n_runs": 6}, {"seed": 1}])
def test_other_settings_are_measured_anew(tmp_path: Any, change: dict[str, int]) -> None:
    vrtd.reproduce(out=tmp_path, n_runs=4)
    old = tables_of(tmp_path)
    found = vrtd.reproduce(["first"], out=tmp_path, **{"n_runs": 4} | change)
    assert measured == ["first", "second", "first"]
    assert [finding.claim.name for finding in found.findings] == ["first"]  # the second has other settings: not mixed
    assert list(found.manifest["experiments"]) == ["first"]
    assert tables_of(tmp_path)["first-curve.csv"] != old["first-curve.csv"]
    assert "Title of second" not in found.report.read_text(encoding="utf-8")


def test_other_code_or_libraries_measure_anew(tmp_path: Any, monkeypatch: Any) -> None:
    vrtd.reproduce(out=tmp_path, n_runs=4)
    monkeypatch.setattr(store, "_code", lambda: "another")
    vrtd.reproduce(out=tmp_path, n_runs=4)
    monkeypatch.setattr(store, "versions", lambda: {"numpy": "another"})
    vrtd.reproduce(out=tmp_path, n_runs=4)
    assert measured == ["first", "second"] * 3


def _replaced_by_a_pipe(path: Any) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: (data / "first-curve.csv").write_text("n_gradients,mean\n0,1.0\n"),
        lambda data: (data / "first-curve.csv").unlink(),
        lambda data: (data / "first.json").write_text("{"),
        lambda data: (data / "first.json").write_text("[]"),
        lambda data: (data / "first.json").write_bytes(b"\xff\xfe"),
        lambda data: (data / "first.json").write_text("[" * 100_000),
        lambda data: (data / "first.json").write_text((data / "first.json").read_text().replace('"curve"', '"other"')),
        lambda data: _replaced_by_a_pipe(data / "first.json"),
        lambda data: _replaced_by_a_pipe(data / "first-curve.csv"),
        lambda data: (data / "first.json").unlink(),
    ],
)
def test_damage_is_measured_anew(tmp_path: Any, damage: Any) -> None:
    vrtd.reproduce(out=tmp_path, n_runs=4)
    whole = tables_of(tmp_path)
    damage(tmp_path / "data")
    vrtd.reproduce(out=tmp_path, n_runs=4)
    assert measured == ["first", "second", "first"]
    assert tables_of(tmp_path) == whole


def test_the_same_bits_for_any_threads_and_from_a_file(tmp_path: Any) -> None:
    vrtd.reproduce(out=tmp_path / "1", n_runs=9, threads=1)
    vrtd.reproduce(out=tmp_path / "2", n_runs=9, threads=3)
    vrtd.reproduce(out=tmp_path / "2", n_runs=9)  # from the files
    for name in ("claims.json", "figures/first-panel.svg"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    assert tables_of(tmp_path / "1") == tables_of(tmp_path / "2")


def test_an_interruption_keeps_what_is_finished_and_reports_on_it(tmp_path: Any, monkeypatch: Any) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setitem(EXPERIMENTS, "second", replace(EXPERIMENTS["second"], measure=interrupted))
    with pytest.raises(KeyboardInterrupt):
        vrtd.reproduce(out=tmp_path, n_runs=4)
    assert is_whole(tmp_path)
    assert "Title of first" in (tmp_path / "report.html").read_text(encoding="utf-8")
    monkeypatch.undo()
    small_experiments.install(monkeypatch)
    assert len(vrtd.reproduce(out=tmp_path, n_runs=4).findings) == 3
    assert measured == ["second"]


@pytest.mark.parametrize("error", [MemoryError("no room"), KeyboardInterrupt()])
def test_what_is_finished_survives_a_failure_with_other_settings(tmp_path: Any, monkeypatch: Any, error: Any) -> None:
    def failing(*_: Any) -> Any:
        raise error

    vrtd.reproduce(out=tmp_path, n_runs=4)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    monkeypatch.setitem(EXPERIMENTS, "first", replace(EXPERIMENTS["first"], measure=failing))
    with pytest.raises(type(error)):
        vrtd.reproduce(out=tmp_path, n_runs=6)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_one_folder_has_one_setting(tmp_path: Any) -> None:
    vrtd.reproduce(out=tmp_path, n_runs=4)
    vrtd.reproduce(["second"], out=tmp_path, n_runs=6)
    names = {path.name for part in ("data", "figures") for path in (tmp_path / part).iterdir()}
    assert names == {"second.json", "second-curve.csv", "second-panel.svg"}


def test_a_folder_that_another_process_uses_is_refused(tmp_path: Any) -> None:
    with (
        locked(tmp_path),
        pytest.raises(InvalidInputError, match=r"is in use by another process. Wait until it has ended, or choose"),
    ):
        vrtd.reproduce(out=tmp_path, n_runs=4)
    assert vrtd.reproduce(out=tmp_path, n_runs=4).report.is_file()


def test_a_folder_that_was_only_begun_is_ours(tmp_path: Any) -> None:
    (tmp_path / ".manifest.json.1.1.tmp").touch()
    assert vrtd.reproduce(out=tmp_path, n_runs=4).report.is_file()


def test_files_of_others_are_never_removed(tmp_path: Any) -> None:
    (tmp_path / "mine" / "data").mkdir(parents=True)
    (tmp_path / "mine" / "data" / "first-mine.csv").touch()
    with pytest.raises(InvalidInputError, match=r"holds something else\. Name another folder"):
        vrtd.reproduce(out=tmp_path / "mine", n_runs=4)
    vrtd.reproduce(out=tmp_path / "ours", n_runs=4)
    mine = [tmp_path / "ours" / name for name in ("notes.txt", "data/first-mine.csv", "figures/first-mine.svg")]
    for path in mine:
        path.touch()
    vrtd.reproduce(["second"], out=tmp_path / "ours", n_runs=6)
    assert all(path.exists() for path in mine)
    assert not (tmp_path / "ours" / "data" / "first-curve.csv").exists()


def test_a_checksum_is_of_what_was_measured(tmp_path: Any, monkeypatch: Any) -> None:
    """Not of what another process may have put there since."""
    write_csv = stored.write_csv

    def overwritten(table: Any, path: Any) -> Any:
        content = write_csv(table, path)
        path.write_text("n_gradients,mean\n0,1.0\n")
        return content

    monkeypatch.setattr(stored, "write_csv", overwritten)
    vrtd.reproduce(["first"], out=tmp_path, n_runs=4)
    monkeypatch.setattr(stored, "write_csv", write_csv)
    vrtd.reproduce(["first"], out=tmp_path, n_runs=4)
    assert measured == ["first", "first"]


def test_two_threads_draw_the_same_and_leave_the_style_alone(tmp_path: Any) -> None:
    import matplotlib

    size = matplotlib.rcParams["font.size"]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda name: vrtd.reproduce(out=tmp_path / name, n_runs=4), "ab"))
    assert matplotlib.rcParams["font.size"] == size
    a, b = ([(path.name, path.read_bytes()) for path in sorted((each.out / "figures").iterdir())] for each in found)
    assert a == b


def test_one_name_may_be_plain_text(tmp_path: Any) -> None:
    assert list(vrtd.reproduce("second", out=tmp_path, n_runs=4).manifest["experiments"]) == ["second"]


def test_progress_goes_from_nothing_to_all(tmp_path: Any) -> None:
    told: list[tuple[float, str]] = []
    vrtd.reproduce(out=tmp_path, n_runs=40, progress=lambda share, name: told.append((share, name)))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)
    assert [name for _, name in told] == sorted(name for _, name in told)
    assert {name for _, name in told} == {"first", "second"}


def test_a_folder_with_something_else_is_left_alone(tmp_path: Any) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(InvalidInputError, match="must be new, empty or that of an earlier reproduction"):
        vrtd.reproduce(out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(InvalidInputError, match="must be new, empty"):
        vrtd.reproduce(out=tmp_path / "thesis.tex")
    (tmp_path / "manifest.json").write_text('{"format": "another"}')
    with pytest.raises(InvalidInputError, match=r"holds something else\. Name another folder"):
        vrtd.reproduce(out=tmp_path)
    assert measured == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"names": ["figure-9"]}, "Did you mean 'figure-5'?"),
        ({"n_runs": 1}, "n_runs must be a whole number of at least 2, but got 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0, but got -1"),
        ({"threads": 0}, "threads must be a whole number of at least 1, but got 0"),
    ],
)
def test_bad_arguments_leave_nothing_behind(tmp_path: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        vrtd.reproduce(out=tmp_path / "r", **arguments)
    assert not (tmp_path / "r").exists()


def test_without_matplotlib_nothing_begins(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'vrtd\[plot\]'"):
        vrtd.reproduce(out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


REPRODUCE = """
import sys, time
from dataclasses import replace
import pytest
from tests.helpers import small_experiments
import vrtd
with pytest.MonkeyPatch.context() as patch:
    small_experiments.install(patch)
    if "hang" in sys.argv:
        second = small_experiments.EXPERIMENTS["second"]
        patch.setitem(small_experiments.EXPERIMENTS, "second", replace(second, measure=lambda *_: time.sleep(600)))
    vrtd.reproduce(out=sys.argv[1], n_runs=4)
    print(small_experiments.measured)
"""


@pytest.mark.slow
def test_a_killed_reproduction_goes_on(tmp_path: Any) -> None:
    """kill -9 while the second experiment is measured, which does not end by itself: there is nothing to race with."""
    command, root = [sys.executable, "-c", REPRODUCE], Path(__file__).parents[2]
    process = subprocess.Popen([*command, str(tmp_path / "killed"), "hang"], cwd=root)
    while not (tmp_path / "killed" / "data" / "first.json").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    assert process.wait() < 0
    done = [
        subprocess.run([*command, str(tmp_path / name)], cwd=root, check=True, capture_output=True, text=True).stdout
        for name in ("killed", "whole")
    ]
    assert done == ["['second']\n", "['first', 'second']\n"]
    assert tables_of(tmp_path / "killed") == tables_of(tmp_path / "whole")
    assert (tmp_path / "killed" / "claims.json").read_bytes() == (tmp_path / "whole" / "claims.json").read_bytes()


def test_costs_are_those_of_the_runner_and_are_kept(tmp_path: Any, monkeypatch: Any) -> None:
    runner = Runner()
    runner.n_gradients, runner.seconds, runner.compile_seconds = 1, 2.0, 3.0
    still = replace(small_experiments.EXPERIMENTS["first"], measure=lambda settings, runner: {"t": {"x": np.arange(2)}})
    found, kept = stored.measure(still, {}, tmp_path, runner), stored.load(still, {}, tmp_path)
    assert found.cost == {"n_gradients": 1, "seconds": 2.0, "compile_seconds": 3.0}
    assert kept.cost == found.cost


def random_claims(monkeypatch: Any, estimate: float) -> None:
    """Claims with intervals, so that a verdict depends on how the confidence is shared."""
    c = NumberCheck("a", "q", estimate, 0.1, 50, below=1.0, basis="simulated")
    claims = tuple(replace(each, evidence=lambda _: [c]) for each in small_experiments.CLAIMS)
    monkeypatch.setattr("vrtd.paper.experiments.all_claims", lambda: claims)


def test_a_part_is_judged_as_it_is_in_the_whole(tmp_path: Any, monkeypatch: Any) -> None:
    random_claims(monkeypatch, 0.5)
    part, whole = (vrtd.reproduce(names, out=tmp_path / str(len(names)), n_runs=4) for names in (["first"], []))
    assert part.findings[0].as_dict() == whole.findings[0].as_dict()


def test_runs_needed_are_those_of_the_reproduction(tmp_path: Any, monkeypatch: Any) -> None:
    random_claims(monkeypatch, 0.95)
    few, many = (vrtd.reproduce(["first"], out=tmp_path / str(n), n_runs=n).findings[0].runs_needed for n in (4, 40))
    assert many == pytest.approx(10 * few, rel=0.02)


def test_threads_and_weights_are_used(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(
        small_experiments.EXPERIMENTS, "second", replace(small_experiments.EXPERIMENTS["second"], weight=3.0)
    )
    simulate, told, seen = experiment.simulate, list[Any](), list[Any]()

    def watched(*arguments: Any, threads: Any = None, **rest: Any) -> Any:
        seen.append(threads)
        return simulate(*arguments, threads=threads, **rest)

    monkeypatch.setattr(experiment, "simulate", watched)
    vrtd.reproduce(out=tmp_path, n_runs=4, threads=2, progress=lambda share, name: told.append((share, name)))
    assert seen == [2, 2]
    assert next(share for share, name in told if name == "second") == 0.25
    assert told[-1] == (1.0, "second")


def test_a_reproduction_is_shown_on_one_line_and_in_notebooks(tmp_path: Any) -> None:
    found = vrtd.reproduce("first", out=tmp_path / "<b>", n_runs=4)
    text = check_repr(found, 200 + len(str(tmp_path)))
    assert text.startswith("Reproduction(1 experiment, 4 runs, seed 0; 1 claim: 1 holds; 0 observations; ")
    assert text.endswith("report.html)")
    assert read_summary(found).entries["report"] == str(found.report)
