"""Policy evaluation with variance-reduced temporal difference learning.

Names are imported when they are first used: ``import vrtd`` loads no library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vrtd import (
        algorithms,
        errors,
        executors,
        features,
        kernels,
        lab,
        logs,
        metrics,
        paper,
        plots,
        problems,
        sources,
        sweeps,
        theory,
        tournament,
    )
    from vrtd.algorithms import (
        GTD,
        GTD2,
        LSTD,
        REGISTRY,
        SAGA,
        SCSG,
        SVRG,
        TD,
        TDC,
        VRTD,
        Algorithm,
        BatchingSVRG,
        Constant,
        Epoch,
        Exponential,
        GrowingSCSG,
        Harmonic,
        Kernels,
        Piecewise,
        PrimalDual,
        RecursiveLSTD,
        RichardsonTD,
        TargetTD,
        TDLambda,
        TrueOnlineTD,
    )
    from vrtd.engine import record, simulate
    from vrtd.estimator import Diagnostics, Evaluator, Interval, Intervals, Sums, accumulate, difference, evaluate
    from vrtd.metrics import QuadraticForm
    from vrtd.paper.reproduction import reproduce
    from vrtd.problems import MDP, LinearProblem, MarkovRewardProcess, Simulator, Transitions
    from vrtd.result import Result, load
    from vrtd.sweeps import SweepResult, sweep
    from vrtd.theory import plan
    from vrtd.tournament import compare

__version__ = "0.1.0"

__all__ = [
    "GTD",
    "GTD2",
    "LSTD",
    "MDP",
    "REGISTRY",
    "SAGA",
    "SCSG",
    "SVRG",
    "TD",
    "TDC",
    "VRTD",
    "Algorithm",
    "BatchingSVRG",
    "Constant",
    "Diagnostics",
    "Epoch",
    "Evaluator",
    "Exponential",
    "GrowingSCSG",
    "Harmonic",
    "Interval",
    "Intervals",
    "Kernels",
    "LinearProblem",
    "MarkovRewardProcess",
    "Piecewise",
    "PrimalDual",
    "QuadraticForm",
    "RecursiveLSTD",
    "Result",
    "RichardsonTD",
    "Simulator",
    "Sums",
    "SweepResult",
    "TDLambda",
    "TargetTD",
    "Transitions",
    "TrueOnlineTD",
    "accumulate",
    "algorithms",
    "compare",
    "difference",
    "errors",
    "evaluate",
    "executors",
    "features",
    "kernels",
    "lab",
    "load",
    "logs",
    "metrics",
    "paper",
    "plan",
    "plots",
    "problems",
    "record",
    "reproduce",
    "simulate",
    "sources",
    "sweep",
    "sweeps",
    "theory",
    "tournament",
]

# Modules that are attributes. `sklearn` is not in __all__, so `from vrtd import *` works without scikit-learn.
_MODULES = {
    "algorithms", "errors", "executors", "features", "kernels", "lab", "logs", "metrics", "paper", "plots", "problems",
    "sklearn", "sources", "spark", "sweeps", "theory", "tournament",
}  # fmt: skip
# Modules of the other names. All names that are not listed here are in `vrtd.algorithms`.
_HOMES = {
    name: module
    for module, names in {
        "engine": ("record", "simulate"),
        "estimator": (
            "Diagnostics",
            "Evaluator",
            "Interval",
            "Intervals",
            "Sums",
            "accumulate",
            "difference",
            "evaluate",
        ),
        "metrics": ("QuadraticForm",),
        "paper.reproduction": ("reproduce",),
        "problems": ("LinearProblem", "MDP", "MarkovRewardProcess", "Simulator", "Transitions"),
        "result": ("Result", "load"),
        "sweeps": ("SweepResult", "sweep"),
        "theory": ("plan",),
        "tournament": ("compare",),
    }.items()
    for name in names
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"vrtd.{name}")
    if name in __all__:
        return getattr(import_module(f"vrtd.{_HOMES.get(name, 'algorithms')}"), name)
    from difflib import get_close_matches

    similar = get_close_matches(name, {*__all__, *_MODULES}, n=1)
    hint = f". Did you mean {similar[0]!r}?" if similar else ""
    raise AttributeError(f"module 'vrtd' has no attribute {name!r}{hint}", name=name)


def __dir__() -> list[str]:
    return sorted(__all__)
