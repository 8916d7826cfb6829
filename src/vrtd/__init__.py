"""Policy evaluation with variance-reduced temporal difference learning.

Everything below is imported when it is first used: `import vrtd` loads no library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vrtd import algorithms, errors, experiments, features, logs, metrics, problems, sources, theory
    from vrtd.algorithms import *  # noqa: F403 - every algorithm, without a list of them here
    from vrtd.algorithms import Constant, Harmonic, Piecewise
    from vrtd.engine import record, simulate
    from vrtd.estimator import Evaluator
    from vrtd.metrics import QuadraticForm
    from vrtd.problems import MDP, DataSet, LinearProblem, MarkovRewardProcess, Simulator
    from vrtd.report import compare, evaluate, reproduce
    from vrtd.result import Result, load
    from vrtd.theory import plan

__version__ = "0.1.0"

_HOMES = {
    "Constant": "vrtd.algorithms",
    "Harmonic": "vrtd.algorithms",
    "Piecewise": "vrtd.algorithms",
    "record": "vrtd.engine",
    "simulate": "vrtd.engine",
    "Evaluator": "vrtd.estimator",
    "QuadraticForm": "vrtd.metrics",
    "DataSet": "vrtd.problems",
    "LinearProblem": "vrtd.problems",
    "MDP": "vrtd.problems",
    "MarkovRewardProcess": "vrtd.problems",
    "compare": "vrtd.report",
    "evaluate": "vrtd.report",
    "reproduce": "vrtd.report",
    "Result": "vrtd.result",
    "load": "vrtd.result",
    "Simulator": "vrtd.problems",
    "plan": "vrtd.theory",
}
_MODULES = ("algorithms", "errors", "experiments", "features", "logs", "metrics", "problems", "sources", "theory")

__all__ = [
    "MDP",
    "TD",  # noqa: F405
    "VRTD",  # noqa: F405
    "Constant",
    "DataSet",
    "Evaluator",
    "Harmonic",
    "LinearProblem",
    "MarkovRewardProcess",
    "Piecewise",
    "QuadraticForm",
    "Result",
    "Simulator",
    "algorithms",
    "compare",
    "errors",
    "evaluate",
    "experiments",
    "features",
    "load",
    "logs",
    "metrics",
    "plan",
    "problems",
    "record",
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
    if not name.startswith("_") and name in (algorithms := _algorithms()):
        return algorithms[name]
    raise AttributeError(f"module 'vrtd' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)  # without the other algorithms, whose names a library would have to be loaded for


def _algorithms() -> dict[str, Any]:
    """Every algorithm, and what one is made of."""
    module = import_module("vrtd.algorithms")
    parts = {name: getattr(module, name) for name in ("REGISTRY", "Algorithm", "Epoch", "Kernels")}
    return parts | {algorithm.__name__: algorithm for algorithm in module.REGISTRY.values()}
