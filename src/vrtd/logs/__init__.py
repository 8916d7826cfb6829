"""Logs: recorded transitions, from memory or from files, in one pass or several."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vrtd.logs.arrays import from_arrays
    from vrtd.logs.environment import from_env
    from vrtd.logs.episodes import from_minari
    from vrtd.logs.log import Chunk, Log, data_set
    from vrtd.logs.reading import read
    from vrtd.logs.writing import write

_HOMES = {
    "Chunk": "vrtd.logs.log",
    "Log": "vrtd.logs.log",
    "data_set": "vrtd.logs.log",
    "from_arrays": "vrtd.logs.arrays",
    "from_env": "vrtd.logs.environment",
    "from_minari": "vrtd.logs.episodes",
    "read": "vrtd.logs.reading",
    "write": "vrtd.logs.writing",
}

__all__ = ["Chunk", "Log", "data_set", "from_arrays", "from_env", "from_minari", "read", "write"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'vrtd.logs' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
