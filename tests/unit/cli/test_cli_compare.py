"""`vrtd compare`: what it writes and prints, and what it refuses."""

from __future__ import annotations

import json
import re
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

import vrtd
from tests.helpers.pages import check_scripts
from vrtd.cli import main
from vrtd.cli.terminal import BAD_USAGE, OK
from vrtd.errors import InvalidInputError
from vrtd.tables import parse_csv
from vrtd.tournament import ENTRANTS, PROBLEMS, QUICK_PROBLEMS, QUICK_SIZE, TournamentSize

SMALL = ["--samples", "200", "--runs", "3", "--trials", "4", "--tuning-runs", "2", "--passes", "2", "--quiet"]
ASKED = ["--problems", "random-mdp", "baird", "--algorithms", "td", "recursive_lstd", "svrg", *SMALL]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: Any) -> tuple[Path, str, str]:
    """The folder, and what was printed."""
    folder: Path = tmp_path_factory.mktemp("c") / "comparison"
    text, told = StringIO(), StringIO()
    with redirect_stdout(text), redirect_stderr(told):
        assert main(["compare", *ASKED, "--out", str(folder)]) == OK
    return folder, text.getvalue(), told.getvalue()


@pytest.fixture(scope="module")
def out(ran: tuple[Path, str, str]) -> Path:
    return ran[0]


def test_text_says_what_to_use(ran: tuple[Path, str, str]) -> None:
    out, text, told = ran
    assert re.search(r"^To solve the TD equation, use\n  d\^2 work a sample +recursive_lstd +1\.0 \[1\.0, ", text, re.M)
    assert "statistically tied: " in text
    assert text.count("mean rank over all problems") == 2
    assert text.endswith(f"wrote {out / 'report.html'}\n")
    assert told == ""
    text.encode("ascii")  # for every terminal


def test_tables_are_those_behind_the_figures(out: Path) -> None:
    curves = pyarrow.parquet.read_table(out / "curves.parquet", page_checksum_verification=True).to_pandas()
    assert set(curves.columns) >= {"problem", "aim", "algorithm", "n_samples", "n_gradients", "seconds", "mean"}
    drawn = parse_csv((out / "data" / "errors.csv").read_bytes())
    mine = curves[(curves.problem == "random-mdp") & (curves.aim == "equation")]
    assert drawn["mean"].tolist() == mine["mean"].tolist()
    for name in ("tuning", "runs", "ranks"):
        assert pyarrow.parquet.read_table(out / f"{name}.parquet").num_rows > 0
    figures = {path.stem for path in (out / "figures").iterdir()}
    assert figures == {path.stem for path in (out / "data").iterdir()}
    assert figures == {"ranks-equation", "ranks-values", "errors"}


def test_the_page_begins_with_the_answer(out: Path) -> None:
    text = (out / "report.html").read_text()
    answer = text.index("To solve the TD equation, use")
    assert answer < text.index("<img") < text.index('<h2 id="use">') < text.index('<h2 id="results">')
    assert "<b>recursive_lstd</b> (d² work a sample)" in text[answer : text.index("<img")]
    assert "3 algorithms on 2 problems, 200 samples each" in text
    assert "4 settings on every problem with 2 runs each" in text
    check_scripts(text)
    assert text.count("<figure") == 3


def test_fewer_problems_leave_no_figures_behind_and_json_is_one_object(out: Path, tmp_path: Path, capsys: Any) -> None:
    folder = shutil.copytree(out, tmp_path / "c")
    fewer = [each for each in ASKED if each != "random-mdp"]
    assert main(["compare", *fewer, "--out", str(folder), "--json"]) == OK
    found = json.loads(capsys.readouterr().out)
    assert found["manifest"]["size"] == vars(TournamentSize(200, 3, 4, 2, 2))
    assert found["manifest"]["problems"] == ["baird"]
    assert found["standings"]["values"][0]["algorithm"] == "recursive_lstd"
    assert {"situation", "why", "n_problems", "standings"} == set(found["advice"][0])
    for path in found["tables"].values():
        assert Path(path).is_file()
    assert 'id="problem-random-mdp"' in (out / "report.html").read_text()
    assert 'id="problem-random-mdp"' not in (folder / "report.html").read_text()
    kept = folder / "cells" / "random-mdp-td.json"  # it may be asked for again
    assert kept.read_bytes() == (out / "cells" / kept.name).read_bytes()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--problems", "nowhere"], "name of a problem must be one of 'random-mdp'"),
        (["--algorithms", "nobody"], "name of an algorithm must be one of 'td'"),
        (["--algorithms", "td"], r"A comparison needs at least two algorithms, but got td. Add another one"),
        (["--samples", "99"], "--samples must be a whole number of at least 100, but got 99"),
        (["--runs", "1"], "--runs must be a whole number of at least 2, but got 1"),
        (["--threads", "0"], "--threads must be a whole number of at least 1, but got 0"),
        (["--fast"], "unknown option --fast. See: vrtd compare --help"),
        (["--out", ""], "--out must be the name of a folder, but got ''"),
    ],
)
def test_bad_usage(tmp_path: Path, capsys: Any, arguments: list[str], message: str) -> None:
    assert main(["compare", "--out", str(tmp_path / "c"), *arguments]) == BAD_USAGE
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "c").exists()


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(
        InvalidInputError, match="The output folder must be new, empty or that of an earlier comparison"
    ):
        vrtd.compare(out=tmp_path)


def test_files_of_the_user_stay_and_figures_of_an_earlier_comparison_go(out: Path, tmp_path: Path, capsys: Any) -> None:
    folder = tmp_path / "c"
    shutil.copytree(out, folder)
    mine = [folder / name for name in ("figures/notes.txt", "figures/mine.svg", "data/mine.csv", "figures/deep/a.svg")]
    (folder / "figures" / "deep").mkdir()
    for path in mine:
        path.write_text("mine")
    earlier = folder / "figures" / "baird-values.svg"
    earlier.write_text("a figure that later comparisons do not have")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["figures"].append("figures/baird-values.svg")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    fewer = [word for word in ASKED if word != "baird"]
    assert main(["compare", *fewer, "--out", str(folder)]) == OK
    assert [path.read_text() for path in mine] == ["mine"] * 4
    assert (folder / "figures" / "errors.svg").exists()
    assert not earlier.exists()
    # A manifest that was changed removes nothing outside.
    victim = tmp_path / "victim.csv"
    victim.write_text("mine")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["figures"] += ["data/../../victim.csv", "../victim.csv", str(victim), 7]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert main(["compare", *fewer, "--out", str(folder)]) == OK
    assert victim.exists()
    capsys.readouterr()


def test_what_is_missing_is_told_before_the_work(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["compare", "--out", str(tmp_path / "c")]) == BAD_USAGE
    assert "pip install 'vrtd[data]'" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


def test_a_quick_look_is_a_small_size(monkeypatch: Any, capsys: Any) -> None:
    asked: dict[str, Any] = {}

    def remember(problems: Any, algorithms: Any, **rest: Any) -> Any:
        asked.update(rest, problems=problems)
        raise InvalidInputError("a.", "b.")

    monkeypatch.setattr("vrtd.tournament.compare", remember)
    main(["compare", "--quick", "--runs", "5", "--seed", "3", "--device", "auto"])
    assert vars(asked["size"]) == vars(QUICK_SIZE) | {"n_runs": 5, "seed": 3}
    assert asked["problems"] == QUICK_PROBLEMS
    assert asked["device"] == "auto"
    assert set(QUICK_PROBLEMS) < set(PROBLEMS)
    capsys.readouterr()


def test_help_names_everybody(capsys: Any) -> None:
    assert main(["compare", "--help"]) == OK
    shown = " ".join(capsys.readouterr().out.split())
    assert all(name in shown.replace("- ", "-") for name in (*ENTRANTS, *PROBLEMS))
