"""`vrtd doctor`: what is installed, what is missing, and what the compiled loops will run on."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from importlib import import_module
from typing import Any

from vrtd import __version__
from vrtd.cli.terminal import MISSING, OK

NEEDED = ("numpy", "scipy", "numba", "llvmlite")
# Library: the extra of vrtd that brings it.
EXTRAS = {"matplotlib": "plot", "gymnasium": "gym", "pyarrow": "data", "h5py": "minari", "sklearn": "sklearn"}


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "doctor", help="what is installed, what is missing, and what runs will use", allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(command=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    libraries = {name: _library(name) for name in (*NEEDED, *EXTRAS)}
    ok = all(libraries[name]["version"] for name in NEEDED)
    cache = _cache_folder() if ok else None
    report = {
        "ok": ok,
        "vrtd": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "libraries": libraries,
        "cache": {"folder": cache, "writable": cache is not None},
        "threads": _threads() if ok else None,
        "cpu": _cpu_name() if ok else None,
    }
    print(json.dumps(report) if arguments.json else _as_text(report))
    return OK if ok else MISSING


def _as_text(report: dict[str, Any]) -> str:
    rows = [("vrtd", report["vrtd"]), ("python", f"{report['python']}, {report['executable']}")]
    for name, library in report["libraries"].items():
        need = "optional" if name in EXTRAS else "NEEDED"
        rows.append((name, library["version"] or f"missing, {need} ({library['problem']}); run: {library['install']}"))
    if report["ok"]:
        nowhere = "nowhere to write, so every process compiles anew; set NUMBA_CACHE_DIR to a folder of yours"
        folder = report["cache"]["folder"]
        rows += [("cache", f"{folder}, writable" if folder else nowhere), ("cpu", report["cpu"])]
    rows.append(("threads", report["threads"]))
    end = "everything needed is there" if report["ok"] else "something needed is missing"
    return "\n".join([*(f"{name:<12}{value}" for name, value in rows), "", end])


def _library(name: str) -> dict[str, str | None]:
    try:
        return {"version": import_module(name).__version__, "problem": None, "install": None}
    except Exception as error:  # also when libraries are there that do not fit together
        install = f"pip install 'vrtd[{EXTRAS[name]}]'" if name in EXTRAS else f"pip install --upgrade vrtd {name}"
        return {"version": None, "problem": f"{error}", "install": install}


def _cache_folder() -> str | None:
    """Where the compiled loops are kept; Numba has checked that it can write there."""
    from vrtd.engine.loop import advance
    from vrtd.kernels.jit import cache_folder

    return cache_folder(advance)


def _threads() -> int:
    from vrtd.engine.blocks import available_threads

    return available_threads()


def _cpu_name() -> str:
    return str(import_module("numba").config.CPU_NAME or import_module("llvmlite.binding").get_host_cpu_name())
