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
    machine = _describe_machine() if ok else dict.fromkeys(("folder", "threads", "cpu"))
    report = {
        "ok": ok,
        "vrtd": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "libraries": libraries,
        "cache": {"folder": machine["folder"], "writable": machine["folder"] is not None},
        "threads": machine["threads"],
        "cpu": machine["cpu"],
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


def _describe_machine() -> dict[str, Any]:
    """Return where compiled loops are kept, if Numba can write there, and what they run on."""
    from llvmlite.binding import get_host_cpu_name
    from numba import config

    from vrtd.engine.blocks import available_threads
    from vrtd.engine.loop import advance
    from vrtd.kernels.jit import cache_folder

    cpu = str(config.CPU_NAME or get_host_cpu_name())
    return {"folder": cache_folder(advance), "threads": available_threads(), "cpu": cpu}
