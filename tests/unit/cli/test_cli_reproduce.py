"""`vrtd reproduce`: what it prints, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

import vrtd
from tests.helpers import small_experiments
from tests.helpers.small_experiments import EXPERIMENTS, is_whole, measured
from vrtd.cli import main
from vrtd.cli.terminal import BAD_USAGE, INTERRUPTED, OK
from vrtd.paper.evidence import NumberCheck

AT_MOST = 1.0 + 1e-8


@pytest.fixture(autouse=True)
def small(monkeypatch: Any) -> None:
    small_experiments.install(monkeypatch)


def test_text_names_verdicts_and_the_report(tmp_path: Any, capsys: Any) -> None:
    assert main(["reproduce", "--runs", "4", "--out", str(tmp_path / "r"), "--quiet"]) == OK
    shown = capsys.readouterr()
    assert [line.split()[:2] for line in shown.out.splitlines()[:6:2]] == [
        ["holds", "first"], ["holds", "second"], ["holds", "first-and-second"]
    ]  # fmt: skip
    assert "must be < 1" in shown.out
    assert "last / first error (100 updates)" in shown.out
    assert "\n3 claims: 3 holds; 0 observations\n" in shown.out
    assert shown.out.endswith(f"wrote {tmp_path / 'r' / 'report.html'}\n")
    assert shown.err == ""


def test_text_is_for_every_terminal(tmp_path: Any, capsys: Any, monkeypatch: Any) -> None:
    large = NumberCheck("a", "q", -2e8, below=AT_MOST, above=-1.0)
    claim = replace(small_experiments.CLAIMS[0], evidence=lambda _: [large])
    monkeypatch.setattr("vrtd.paper.experiments.all_claims", lambda: (claim,))
    assert main(["reproduce", "first", "--runs", "4", "--out", str(tmp_path), "--quiet"]) == OK
    shown = capsys.readouterr().out
    assert "-2.00e8, must be > -1 and <= 1\n" in shown
    shown.encode("ascii")


def test_every_option_is_passed_on(tmp_path, monkeypatch):
    seen = {}
    real = vrtd.reproduce
    monkeypatch.setattr(
        "vrtd.paper.reproduction.reproduce", lambda names, **rest: seen.update(rest, names=names) or real(names, **rest)
    )
    main(["reproduce", "first", "--runs", "4", "--seed", "3", "--threads", "1", "--quiet", "--out", str(tmp_path)])
    assert seen == {
        "names": ["first"],
        "n_runs": 4,
        "seed": 3,
        "threads": 1,
        "executor": None,
        "device": "cpu",
        "out": tmp_path,
        "progress": False,
    }


def test_text_of_every_kind_and_counts(tmp_path, capsys, monkeypatch):
    first, second, third = small_experiments.CLAIMS
    kinds = (replace(first, kind="universal"), second, replace(third, kind="observation"))
    monkeypatch.setattr("vrtd.paper.experiments.all_claims", lambda: kinds)
    main(["reproduce", "--runs", "4", "--quiet", "--out", str(tmp_path)])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("no exception found      first ")
    assert shown[4].startswith("observation             first-and-second ")
    assert shown[4].endswith(", observed if < 1")
    assert shown[-2] == "2 claims: 1 holds, 1 no exception found; 1 observation"
    manifest = json.loads((tmp_path / "manifest.json").read_bytes())
    claims = json.loads((tmp_path / "claims.json").read_bytes())
    assert [claim["verdict"] for claim in claims] == ["no exception found", "holds", "observation"]
    assert {verdict: n for verdict, n in manifest["verdicts"].items() if n} == {
        "holds": 1, "no exception found": 1, "observation": 1
    }  # fmt: skip


def test_json_is_one_object(tmp_path: Any, capsys: Any) -> None:
    assert main(["reproduce", "second", "--quick", "--json", "--seed", "3", "--out", str(tmp_path)]) == OK
    found = json.loads(capsys.readouterr().out)
    assert [claim["verdict"] for claim in found["claims"]] == ["holds"]
    assert (found["manifest"]["n_runs"], found["manifest"]["seed"]) == (10, 3)
    assert found["report"] == str(tmp_path / "report.html")
    assert is_whole(tmp_path)
    assert measured == ["second"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nonsense"], "name of an experiment must be one of 'first', 'second', 'figure-1', "),
        (["--runs", "1"], "--runs must be a whole number of at least 2, but got 1"),
        (["--runs", "4", "--quick"], "not allowed with argument"),
        (["--runs", "many"], "--runs must be a whole number, but got 'many'. See: vrtd reproduce --help"),
        (["--fast"], "unknown option --fast. See: vrtd reproduce --help"),
        (["--out", ""], "--out must be the name of a folder, but got ''"),
    ],
)
def test_bad_usage(tmp_path: Any, capsys: Any, arguments: list[str], message: str) -> None:
    assert main(["reproduce", "--out", str(tmp_path / "r"), *arguments]) == BAD_USAGE
    assert message in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Any, capsys: Any) -> None:
    (tmp_path / "file").write_text("")
    assert main(["reproduce", "--out", str(tmp_path / "file" / "r")]) == BAD_USAGE
    assert capsys.readouterr().err.startswith("vrtd: error:")


def test_an_interruption_says_how_to_go_on(tmp_path: Any, capsys: Any, monkeypatch: Any) -> None:
    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setitem(EXPERIMENTS, "second", replace(EXPERIMENTS["second"], measure=interrupted))
    assert main(["reproduce", "--runs", "4", "--out", str(tmp_path)]) == INTERRUPTED
    assert f"finished parts are kept in {tmp_path}. Run the same command to continue." in capsys.readouterr().err
    assert is_whole(tmp_path)


def test_help_loads_no_optional_library() -> None:
    code = (
        "import sys; from vrtd.cli import main; main(['reproduce', '--help']); "
        "print(sorted({'matplotlib', 'pyarrow'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.endswith("[]\n")
    assert "random-mdp-iid" in shown
