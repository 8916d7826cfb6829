"""Optional libraries: the extra of vrtd that installs each, and the uses of commands that need it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

from vrtd.errors import MissingExtraError

EXTRAS = {
    "matplotlib": "plot",
    "gymnasium": "gym",
    "pyarrow": "data",
    "duckdb": "data",
    "h5py": "minari",
    "sklearn": "sklearn",
    "distributed": "dask",
    "ray": "ray",
    "numba_cuda": "cuda",
}


class Use(NamedTuple):
    """Way to call a command, with the optional libraries that it needs."""

    command: str
    options: str  # the options that distinguish this use
    libraries: tuple[str, ...]
    applies: Callable[[Mapping[str, Any]], bool]  # whether the options of a call are of this use

    @property
    def name(self) -> str:
        """The command with the options of this use."""
        return f"{self.command} {self.options}".rstrip()


def _always(_given: Mapping[str, Any]) -> bool:
    return True


def _draws(given: Mapping[str, Any]) -> bool:
    return "figure" in given


def _uses_executor(name: str, given: Mapping[str, Any]) -> bool:
    return given.get("executor") == name


def _uses_gpu(given: Mapping[str, Any]) -> bool:
    return given.get("device") == "cuda"


def _reads_hdf5(given: Mapping[str, Any]) -> bool:
    return given.get("format") in ("hdf5", "minari") or any(
        path.endswith((".h5", ".hdf5")) for path in (*given.get("data", ()), *given.get("against", ()))
    )


USES = (
    Use("evaluate", "--env", ("matplotlib", "pyarrow", "gymnasium"), lambda given: "env" in given),
    Use("evaluate", "--data", ("matplotlib", "pyarrow"), lambda given: "data" in given),
    Use("evaluate", "--data FILE.hdf5", ("matplotlib", "pyarrow", "h5py"), _reads_hdf5),
    Use("evaluate", "--data --order-by", ("matplotlib", "pyarrow", "duckdb"), lambda given: "order_by" in given),
    Use("simulate", "", (), _always),
    Use("simulate", "--figure", ("matplotlib",), _draws),
    Use("sweep", "", (), _always),
    Use("sweep", "--figure", ("matplotlib",), _draws),
    Use("plan", "", (), _always),
    Use("plan", "--figure", ("matplotlib",), _draws),
    Use("compare", "", ("matplotlib", "pyarrow"), _always),
    Use("reproduce", "", ("matplotlib",), _always),
    *(Use(command, "--device cuda", ("numba_cuda",), _uses_gpu) for command in ("simulate", "sweep")),
    Use("compare", "--device cuda", ("matplotlib", "pyarrow", "numba_cuda"), _uses_gpu),
    Use("reproduce", "--device cuda", ("matplotlib", "numba_cuda"), _uses_gpu),
    Use("lab", "", (), _always),
    *(
        Use(command, f"--executor {name}", (*needed, library), partial(_uses_executor, name))
        for command, needed in (
            ("simulate", ()),
            ("sweep", ()),
            ("evaluate", ("matplotlib", "pyarrow")),
            ("compare", ("matplotlib", "pyarrow")),
            ("reproduce", ("matplotlib",)),
        )
        for name, library in (("dask", "distributed"), ("ray", "ray"))
    ),
)


def check_libraries(command: str, given: Mapping[str, Any]) -> None:
    """Raise an error that names all optional libraries that this call needs and that are not installed."""
    uses = [use for use in USES if use.command == command and use.applies(given)]
    needed = dict.fromkeys(library for use in uses for library in use.libraries)
    missing = tuple(library for library in needed if find_spec(library) is None)
    if missing:
        raise MissingExtraError(missing, name_extras(missing))


def name_extras(libraries: Iterable[str]) -> tuple[str, ...]:
    """Return the extras of vrtd that install these libraries."""
    return tuple(dict.fromkeys(EXTRAS[library] for library in libraries))
