"""What the planner answers: settings, what they cost, what error they end with, and advice in words."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import TD, VRTD, ChainSampling
from vrtd.arrays import Floats
from vrtd.plots import AXIS_LABELS, METRIC_LABELS, new_panels
from vrtd.report.notebook import build_summary
from vrtd.tables import table, write_csv
from vrtd.theory.predictions import Prediction

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Mode = Literal["guaranteed", "exact", "estimated"]
Objective = Literal["gradients", "samples"]

_UNITS = {"gradients": "pseudo-gradients", "samples": "samples"}
_NEEDS = {"guaranteed": "is sure to need at most", "exact": "needs", "estimated": "needs about"}
_IS = {"guaranteed": "is at most", "exact": "is", "estimated": "is about"}


class Check(NamedTuple):
    """A simulation of a plan whose prediction is an approximation."""

    error: float
    standard_error: float
    n_runs: int


@dataclass(frozen=True, eq=False)
class Choice:
    """The best settings found for one algorithm, and the error with which they end."""

    algorithm: TD | VRTD
    n_epochs: int
    n_gradients: int
    n_samples: int
    error: float  # E|theta - theta_star|^2 at the end: simulated where there is a check, else predicted or bounded
    prediction: Prediction  # how the error was predicted
    interval: tuple[float, float] | None  # of the error, when it is estimated
    check: Check | None  # of the error, when it is an approximation
    curve_epochs: NDArray[np.int64] = field(repr=False)  # (K,)
    curve_error: Floats = field(repr=False)  # (K,) predicted after so many epochs

    def cost(self, objective: Objective) -> int:
        return self.n_gradients if objective == "gradients" else self.n_samples

    @property
    def text(self) -> str:
        """The settings in words, with the name of the algorithm."""
        return f"{'TD' if isinstance(self.algorithm, TD) else 'VRTD'} with {self.settings}"

    @property
    def settings(self) -> str:
        """The settings in words."""
        if isinstance(self.algorithm, TD):
            return f"step {self.algorithm.step_size:.4g}"
        a, M, n = self.algorithm.step_size, self.algorithm.batch_size, self.n_epochs
        return f"step {a:.4g}, batch {M:,}, {n:,} epoch{'s' * (n != 1)}"

    @property
    def basis(self) -> str:
        """What the error is, in a word."""
        return self.prediction.basis if self.interval is None else "estimate"

    @property
    def method(self) -> str:
        """How the error was predicted, in words."""
        ignores_radius = self.algorithm.radius is not None and self.prediction.basis != "bound"
        text = self.prediction.describe("if the radius is never reached" if ignores_radius else "")
        return text if self.interval is None else f"estimate: {text}"

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        plain = {key: getattr(self, key) for key in ("n_epochs", "n_gradients", "n_samples", "error", "method")}
        interval = None if self.interval is None else list(self.interval)
        check = None if self.check is None else self.check._asdict()
        return {"algorithm": self.algorithm.settings, **plain, "interval": interval, "check": check}

    def __repr__(self) -> str:
        return f"Choice({self.text}; {self._outcome})"

    @property
    def _outcome(self) -> str:
        """What it costs and what error it ends with, in words."""
        cost = f"{self.n_gradients:,} pseudo-gradients, {self.n_samples:,} samples"
        ends = "" if self.interval is None else f" [{self.interval[0]:.4g}, {self.interval[1]:.4g}]"
        return f"{cost}; squared error {self.error:.4g}{ends} ({self.basis})"


@dataclass(frozen=True, eq=False)
class Plan:
    """What `plan` found: VRTD's best settings, TD's best beside them, and which of the two to use.

    `td` or `vrtd` is None when it cannot do what was asked for.
    """

    mode: Mode
    sampling: ChainSampling
    objective: Objective
    target_error: float | None
    budget: int | None
    initial_error: float  # |theta_0 - theta_star|^2, estimated where theta_star is
    confidence: float | None  # of the intervals
    td: Choice | None
    vrtd: Choice | None

    @property
    def best(self) -> Choice:
        """The cheaper of the two, or the one with the smaller error; TD when they tie."""
        choices = self._choices.values()
        return min(choices, key=lambda choice: choice.error if self.budget else choice.cost(self.objective))

    @property
    def advice(self) -> str:
        """Which to use, in words."""
        best, unit = self.best, _UNITS[self.objective]
        other, name = (self.vrtd, "VRTD") if best is self.td else (self.td, "TD")
        if self.budget is not None:
            text = f"its squared error {_IS[self.mode]} {best.error:.4g} after {self.budget:,} {unit}"
            rest = "" if other is None else f"'s {_IS[self.mode]} {other.error:.4g} at best ({other.settings})"
        else:
            cost, dearer = best.cost(self.objective), 0 if other is None else other.cost(self.objective)
            text = f"it {_NEEDS[self.mode]} {cost:,} {unit}"
            times = f"{dearer / max(1, cost):.3g} times as many"
            rest = "" if other is None else f" {_NEEDS[self.mode]} {dearer:,} ({other.settings}), {times}"
        return f"Use {best.text}: {text}; {name}{rest or ' cannot do it'}."

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        keys = ("mode", "sampling", "objective", "target_error", "budget", "initial_error", "confidence", "advice")
        chosen = {"td": None, "vrtd": None} | {name: choice.as_dict() for name, choice in self._choices.items()}
        return {key: getattr(self, key) for key in keys} | {"use": self.best.algorithm.name} | chosen

    def plot(self, ax: Axes | None = None) -> Axes:
        """The predicted curves with the target or the budget; `ax.figure.savefig` writes it to a file."""
        axes = new_panels(1)[0] if ax is None else ax
        for choice in self._choices.values():
            x, error = self._curve(choice)
            # An epoch shows nothing until it closes; where not every one is a point, a step would be of many.
            style = "steps-post" if len(x) > choice.n_epochs else "default"
            (line,) = axes.plot(x, error, drawstyle=style, label=f"{choice.text} ({choice.basis})")
            if choice.interval is not None:
                axes.plot([x[-1]] * 2, choice.interval, color=line.get_color(), marker="_", linewidth=1.0)
            axes.plot(x[-1], error[-1], "o", color=line.get_color(), markersize=4)
        if self.target_error is not None:
            axes.axhline(self.target_error, color="0.4", linestyle="--", linewidth=1, zorder=1, label="target")
        if self.budget is not None:
            axes.axvline(self.budget, color="0.4", linestyle="--", linewidth=1, zorder=1, label="budget")
        axes.set_xlim(left=0)
        axes.set_yscale("log")
        axes.set_xlabel(AXIS_LABELS[f"n_{self.objective}"])
        axes.set_ylabel(METRIC_LABELS["squared_error"])
        axes.grid(alpha=0.25)
        # Above the axes, where it hides nothing.
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, frameon=False, fontsize="small")
        return axes

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the predicted curves: the data behind the figure."""
        rows = (
            {"algorithm": name, f"n_{self.objective}": count, "squared_error": error}
            for name, choice in self._choices.items()
            for count, error in zip(*self._curve(choice), strict=True)
        )
        write_csv(table(rows), path)

    def __repr__(self) -> str:
        return f"Plan({self.mode}, {self.sampling}, {self._goal})\n  {self.advice}"

    def _repr_html_(self) -> str:
        entries = {"goal": self._goal, "how": f"{self.mode}, {self.sampling} sampling", "advice": self.advice}
        chosen = {name.upper(): f"{choice.settings}; {choice._outcome}" for name, choice in self._choices.items()}
        return build_summary("Plan", entries | chosen, self.plot)

    @property
    def _goal(self) -> str:
        if self.budget is not None:
            return f"budget of {self.budget:,} {_UNITS[self.objective]}"
        return f"target_error {self.target_error:.4g} with the fewest {_UNITS[self.objective]}"

    @property
    def _choices(self) -> dict[str, Choice]:
        return {choice.algorithm.name: choice for choice in (self.td, self.vrtd) if choice is not None}

    def _curve(self, choice: Choice) -> tuple[NDArray[np.int64], Floats]:
        per_epoch = choice.cost(self.objective) // choice.n_epochs
        return choice.curve_epochs * per_epoch, choice.curve_error
