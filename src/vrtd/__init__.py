"""Policy evaluation with variance-reduced temporal difference learning.

Everything below is imported when it is first used: `import vrtd` loads no library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vrtd import algorithms, errors, experiments, features, logs, metrics, problems, sources, theory
    from vrtd.algorithms import TD, VRTD
    from vrtd.algorithms.schedules import Constant, Harmonic, Piecewise
    from vrtd.engine import simulate
    from vrtd.estimator import Evaluator
    from vrtd.linear_system import LinearSystem
    from vrtd.metrics import QuadraticForm
    from vrtd.problems import MDP, MarkovRewardProcess
    from vrtd.report import evaluate, reproduce
    from vrtd.result import Result, load
    from vrtd.sources import Simulator
    from vrtd.theory import plan

__version__ = "0.1.0"

_HOMES = {
    "TD": "vrtd.algorithms",
    "VRTD": "vrtd.algorithms",
    "Constant": "vrtd.algorithms.schedules",
    "Harmonic": "vrtd.algorithms.schedules",
    "Piecewise": "vrtd.algorithms.schedules",
    "simulate": "vrtd.engine",
    "Evaluator": "vrtd.estimator",
    "LinearSystem": "vrtd.linear_system",
    "QuadraticForm": "vrtd.metrics",
    "MDP": "vrtd.problems",
    "MarkovRewardProcess": "vrtd.problems",
    "evaluate": "vrtd.report",
    "reproduce": "vrtd.report",
    "Result": "vrtd.result",
    "load": "vrtd.result",
    "Simulator": "vrtd.sources",
    "plan": "vrtd.theory",
}
_MODULES = ("algorithms", "errors", "experiments", "features", "logs", "metrics", "problems", "sources", "theory")

__all__ = [
    "MDP",
    "TD",
    "VRTD",
    "Constant",
    "Evaluator",
    "Harmonic",
    "LinearSystem",
    "MarkovRewardProcess",
    "Piecewise",
    "QuadraticForm",
    "Result",
    "Simulator",
    "algorithms",
    "errors",
    "evaluate",
    "experiments",
    "features",
    "load",
    "logs",
    "metrics",
    "plan",
    "problems",
    "reproduce",
    "simulate",
    "sources",
    "theory",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _MODULES:
        return import_module(f"vrtd.{name}")
    raise AttributeError(f"module 'vrtd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
