"""The command `vrtd doctor`: which libraries are installed, which commands work, and the machine."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Collection, Iterable
from importlib import import_module
from typing import Any

from vrtd import __version__
from vrtd.cli.libraries import EXTRAS, USES, name_extras
from vrtd.cli.outputs import JSON_HELP
from vrtd.cli.terminal import MISSING, OK

NEEDED = ("numpy", "scipy", "numba", "llvmlite")


HELP = "show what is installed and which commands work"
USAGE = "[--json]"
DESCRIPTION = "Show which libraries are installed or missing, which commands work, and what compiled loops run on."
EPILOG = None


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--json", action="store_true", help=JSON_HELP)
    parser.set_defaults(command=_doctor)


def describe_options(parser: argparse.ArgumentParser) -> None:
    """Do nothing: all options have help texts."""


def _doctor(arguments: argparse.Namespace) -> int:
    libraries = {name: _library(name) for name in (*NEEDED, *EXTRAS)}
    missing = [name for name, library in libraries.items() if library["version"] is None]
    ok = not any(name in missing for name in NEEDED)
    machine = _describe_machine() if ok else dict.fromkeys(("folder", "threads", "cpu", "gpu"))
    report = {
        "ok": ok,
        "vrtd": __version__,
        "python": platform.python_version(),
        "executable": sys.executable,
        "libraries": libraries,
        "commands": {use.name: _describe_use(use.libraries, missing) for use in USES},
        "cache": {"folder": machine["folder"], "writable": machine["folder"] is not None},
        "threads": machine["threads"],
        "cpu": machine["cpu"],
        "gpu": machine["gpu"],
    }
    print(json.dumps(report) if arguments.json else _as_text(report))
    return OK if ok else MISSING


def _as_text(report: dict[str, Any]) -> str:
    rows = [("vrtd", report["vrtd"]), ("python", f"{report['python']}, {report['executable']}")]
    for name, library in report["libraries"].items():
        need = "optional" if name in EXTRAS else "REQUIRED"
        missing = f"missing, {need} ({library['problem']}). Run: {library['install']}"
        rows.append((name, library["version"] or missing))
    if report["ok"]:
        nowhere = "no writable folder, so every process compiles again. Set NUMBA_CACHE_DIR to a folder of your own."
        folder = report["cache"]["folder"]
        rows += [("cache", f"{folder}, writable" if folder else nowhere), ("cpu", report["cpu"])]
    gpu = report["gpu"] or {"name": None, "problem": "unknown"}
    rows += [("threads", report["threads"]), ("gpu", gpu["name"] or f"none ({gpu['problem']})")]
    lines = [f"{name:<12}{value}" for name, value in rows]
    commands = report["commands"]
    lines += ["", *(f"{f'vrtd {name}':<32}{_state(each)}" for name, each in commands.items())]
    lacks = dict.fromkeys(library for each in commands.values() for library in each["missing"])
    if not report["ok"]:
        end = "A required library is missing."
    elif lacks:
        end = f"Some commands do not work. Run: {_install(lacks)}"
    else:
        end = "All commands work."
    return "\n".join([*lines, "", end])


def describe_missing() -> str | None:
    """Return which required libraries are missing and how to install them; None if there are all."""
    missing = [name for name in NEEDED if _library(name)["version"] is None]
    return _state(_describe_use((), missing)) if missing else None


def _describe_use(needed: Iterable[str], missing: Collection[str]) -> dict[str, Any]:
    """Return whether a use of a command works, the libraries that it lacks, and how to install them."""
    lacks = [name for name in (*NEEDED, *needed) if name in missing]
    return {"works": not lacks, "missing": lacks, "install": _install(lacks) if lacks else None}


def _state(use: dict[str, Any]) -> str:
    return "works" if use["works"] else f"does not work without {', '.join(use['missing'])}. Run: {use['install']}"


def _install(libraries: Collection[str]) -> str:
    """Return the command that installs the libraries."""
    needed = [name for name in libraries if name in NEEDED]
    extras = name_extras(name for name in libraries if name in EXTRAS)
    vrtd = f"'vrtd[{','.join(extras)}]'" if extras else "vrtd"
    return " ".join(["pip install", *(["--upgrade"] if needed else []), vrtd, *needed])


def _library(name: str) -> dict[str, str | None]:
    try:
        return {"version": import_module(name).__version__, "problem": None, "install": None}
    except Exception as error:  # also if installed libraries are incompatible
        return {"version": None, "problem": f"{error}", "install": _install([name])}


def _describe_machine() -> dict[str, Any]:
    """Return the cache folder of compiled loops, None if it is not writable, the number of threads, CPU and GPU."""
    from llvmlite.binding import get_host_cpu_name
    from numba import config

    from vrtd.engine.blocks import available_threads
    from vrtd.engine.device import describe_gpu
    from vrtd.engine.loop import advance
    from vrtd.kernels.jit import cache_folder

    cpu = str(config.CPU_NAME or get_host_cpu_name())
    return {"folder": cache_folder(advance), "threads": available_threads(), "cpu": cpu, "gpu": describe_gpu()}
