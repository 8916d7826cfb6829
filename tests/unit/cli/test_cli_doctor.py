"""`vrtd doctor`: what it finds, what it misses, how it ends."""

import json
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import vrtd
import vrtd.engine
from vrtd.cli import main
from vrtd.cli.doctor import NEEDED
from vrtd.cli.libraries import EXTRAS

ROOT = Path(__file__).parents[3]
# No extra of the tests installs these; each with the end of the commands that need it, in the order of commands.
ABSENT = {name: end for name, end in {"numba_cuda": " cuda", "ray": " ray"}.items() if find_spec(name) is None}


def test_doctor_reports_libraries_cache_and_processor(capsys):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    assert report["vrtd"] == vrtd.__version__
    assert report["threads"] >= 1
    assert report["cpu"]
    assert report["libraries"]["numpy"] == {"version": np.__version__, "problem": None, "install": None}
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for name in ("python", "vrtd", *NEEDED, *EXTRAS, "cache", "cpu", "threads", "gpu"):
        assert any(line.split()[:1] == [name] for line in shown.splitlines())
    works = {"works": True, "missing": [], "install": None}
    extras = ",".join(EXTRAS[name] for name in ABSENT)
    last = f"Some commands do not work. Run: pip install 'vrtd[{extras}]'" if ABSENT else "All commands work."
    assert shown.endswith(f"\n\n{last}\n")
    for command, use in report["commands"].items():
        lacks = [name for name, end in ABSENT.items() if command.endswith(end)]
        without = {
            "works": False,
            "missing": lacks,
            "install": f"pip install 'vrtd[{''.join(map(EXTRAS.get, lacks))}]'",
        }
        assert use == (without if lacks else works)
    for name in report["commands"]:
        assert re.search(
            rf"^vrtd {name} +{'works$' if report['commands'][name]['works'] else 'does'}", shown, re.MULTILINE
        )


def test_doctor_finds_the_cache_of_the_loops(tmp_path):
    code = "import sys, json; from vrtd.cli import main; sys.exit(main(['doctor', '--json']))"
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "PATH": ""}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    cache = json.loads(found.stdout)["cache"]
    assert cache["writable"]
    assert Path(cache["folder"]).is_relative_to(tmp_path)


def test_doctor_without_a_cache(capsys, monkeypatch):
    monkeypatch.setattr("vrtd.kernels.jit.cache_folder", lambda _: None)
    assert main(["doctor"]) == 0
    assert "Set NUMBA_CACHE_DIR" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "code", "install"),
    [("numba", 1, "pip install --upgrade vrtd numba"), ("matplotlib", 0, "pip install 'vrtd[plot]'")],
)
def test_doctor_names_what_is_missing(capsys, monkeypatch, name, code, install):
    monkeypatch.setitem(sys.modules, name, None)
    assert main(["doctor"]) == code
    assert install in capsys.readouterr().out
    assert main(["doctor", "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] == (code == 0)
    assert report["libraries"][name]["install"] == install


def test_doctor_says_which_commands_work(capsys, monkeypatch):
    for name in ("pyarrow", "gymnasium"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["doctor", "--json"]) == 0
    commands = json.loads(capsys.readouterr().out)["commands"]
    working = {name for name, use in commands.items() if use["works"] and not name.endswith((" ray", " cuda"))}
    drawing = {f"{name}{option}" for name in ("simulate", "sweep", "plan") for option in ("", " --figure")}
    on_dask = {f"{name} --executor dask" for name in ("simulate", "sweep", "reproduce")}
    assert working == drawing | on_dask | {"reproduce", "lab"}
    assert commands["evaluate --env"]["missing"] == ["pyarrow", "gymnasium"]
    assert commands["evaluate --env"]["install"] == "pip install 'vrtd[data,gym]'"
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "vrtd compare                    does not work without pyarrow. Run: pip install 'vrtd[data]'" in shown
    extras = ",".join(["data,gym", *(EXTRAS[name] for name in ABSENT)])
    assert shown[-1] == f"Some commands do not work. Run: pip install 'vrtd[{extras}]'"


def test_no_command_works_without_numba(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    assert main(["doctor", "--json"]) == 1
    commands = json.loads(capsys.readouterr().out)["commands"]
    assert not any(use["works"] for use in commands.values())
    assert commands["simulate"]["install"] == "pip install --upgrade vrtd numba"
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.endswith("\n\nA required library is missing.\n")


@pytest.mark.parametrize(
    "line", ["simulate --runs 2", "simulate --help", "evaluate --data a.csv --discount 0.9", "plan --budget 9"]
)
def test_every_command_says_what_it_needs_and_does_not_find(line):
    code = "import sys; sys.modules['numba'] = None; from vrtd.cli import main; sys.exit(main(sys.argv[1:]))"
    ended = subprocess.run([sys.executable, "-c", code, *line.split()], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2
    command = f"vrtd: error: vrtd {line.split()[0]}"
    assert ended.stderr == (
        f"{command} does not work without numba. Run: pip install --upgrade vrtd numba (details: vrtd doctor)\n"
    )


def test_the_libraries_that_a_command_lacks_are_listed(capsys, monkeypatch):
    for name in ("matplotlib", "pyarrow", "gymnasium"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["doctor"]) == 0
    assert "does not work without matplotlib, pyarrow, gymnasium. Run: " in capsys.readouterr().out


def test_doctor_knows_every_extra():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(EXTRAS.values()) == set(extras) - {"all", "docs", "test"}
