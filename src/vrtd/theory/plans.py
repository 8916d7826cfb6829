"""Results of the planner: settings with their costs and errors, and the advice."""

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
_NEEDS = {"guaranteed": "is guaranteed to need at most", "exact": "needs", "estimated": "needs about"}
_IS = {"guaranteed": "is at most", "exact": "is", "estimated": "is about"}


class Check(NamedTuple):
    """Simulation that checks a plan whose prediction is an approximation.

    Attributes
    ----------
    error : float
        Mean squared error at the end.
    standard_error : float
        Standard error of that mean.
    n_runs : int
        Number of simulated runs.
    """

    error: float
    standard_error: float
    n_runs: int


@dataclass(frozen=True, eq=False)
class Choice:
    """Best settings of one algorithm, with their cost and error.

    Attributes
    ----------
    algorithm : TD or VRTD
        The algorithm with its settings, ready for ``vrtd.simulate``.
    n_epochs : int
        Epochs of VRTD, or updates of TD.
    n_gradients : int
        Pseudo-gradients in total.
    n_samples : int
        Samples in total.
    error : float
        ``E|theta - theta_star|^2`` at the end: simulated if there is a ``check``, otherwise predicted or bounded.
    prediction : Prediction
        How the error was predicted.
    interval : tuple of float or None
        Confidence interval of the error, if it is estimated from a sample.
    check : Check or None
        Simulation of the settings, if the prediction is an approximation.
    curve_epochs : ndarray of shape (n_points,)
        Numbers of epochs of the predicted curve.
    curve_error : ndarray of shape (n_points,)
        Predicted squared error after these epochs.
    """

    algorithm: TD | VRTD
    n_epochs: int
    n_gradients: int
    n_samples: int
    error: float
    prediction: Prediction
    interval: tuple[float, float] | None
    check: Check | None
    curve_epochs: NDArray[np.int64] = field(repr=False)
    curve_error: Floats = field(repr=False)

    def cost(self, objective: Objective) -> int:
        """Return the cost in pseudo-gradients or samples.

        Parameters
        ----------
        objective : {"gradients", "samples"}
            What to count.

        Returns
        -------
        int
            The total count.
        """
        return self.n_gradients if objective == "gradients" else self.n_samples

    @property
    def text(self) -> str:
        """Text with the name of the algorithm and its settings."""
        return f"{'TD' if isinstance(self.algorithm, TD) else 'VRTD'} with {self.settings}"

    @property
    def settings(self) -> str:
        """Text with the settings."""
        if isinstance(self.algorithm, TD):
            return f"step {self.algorithm.step_size:.4g}"
        a, M, n = self.algorithm.step_size, self.algorithm.batch_size, self.n_epochs
        return f"step {a:.4g}, batch {M:,}, {n:,} epoch{'s' * (n != 1)}"

    @property
    def basis(self) -> str:
        """Kind of the error: ``"exact"``, ``"approximation"``, ``"bound"`` or ``"estimate"``."""
        return self.prediction.basis if self.interval is None else "estimate"

    @property
    def method(self) -> str:
        """Text that says how the error was predicted."""
        ignores_radius = self.algorithm.radius is not None and self.prediction.basis != "bound"
        text = self.prediction.describe("if the radius is never reached" if ignores_radius else "")
        return text if self.interval is None else f"estimate: {text}"

    def as_dict(self) -> dict[str, Any]:
        """Return the settings, costs and errors as plain values.

        Returns
        -------
        dict
            All attributes except the curve, with the algorithm as a dictionary.
        """
        plain = {key: getattr(self, key) for key in ("n_epochs", "n_gradients", "n_samples", "error", "method")}
        interval = None if self.interval is None else list(self.interval)
        check = None if self.check is None else self.check._asdict()
        return {"algorithm": self.algorithm.settings, **plain, "interval": interval, "check": check}

    def __repr__(self) -> str:
        return f"Choice({self.text}; {self._outcome})"

    @property
    def _outcome(self) -> str:
        """Text with the cost and the error."""
        cost = f"{self.n_gradients:,} pseudo-gradients, {self.n_samples:,} samples"
        ends = "" if self.interval is None else f" [{self.interval[0]:.4g}, {self.interval[1]:.4g}]"
        return f"{cost}; squared error {self.error:.4g}{ends} ({self.basis})"


@dataclass(frozen=True, eq=False)
class Plan:
    """Result of ``vrtd.plan``: the best settings of TD and of VRTD.

    Attributes
    ----------
    mode : {"guaranteed", "exact", "estimated"}
        How errors were predicted.
    sampling : {"markov", "iid"}
        One trajectory, or independent samples.
    objective : {"gradients", "samples"}
        What the cost counts.
    target_error : float or None
        The target, if one was passed.
    budget : int or None
        The budget, if one was passed.
    initial_error : float
        ``|theta_0 - theta_star|^2``, estimated in mode ``"estimated"``.
    confidence : float or None
        Confidence level of the intervals.
    td : Choice or None
        Best settings of TD; None if no settings are suitable.
    vrtd : Choice or None
        Best settings of VRTD; None if no settings are suitable.
    """

    mode: Mode
    sampling: ChainSampling
    objective: Objective
    target_error: float | None
    budget: int | None
    initial_error: float
    confidence: float | None
    td: Choice | None
    vrtd: Choice | None

    @property
    def best(self) -> Choice:
        """The choice with the least cost or, for a budget, with the least error; TD if they tie."""
        choices = self._choices.values()
        return min(choices, key=lambda choice: choice.error if self.budget else choice.cost(self.objective))

    @property
    def advice(self) -> str:
        """Text that says which algorithm and settings to use, and how the other one compares."""
        best, unit = self.best, _UNITS[self.objective]
        other, name = (self.vrtd, "VRTD") if best is self.td else (self.td, "TD")
        if self.budget is not None:
            text = f"its squared error {_IS[self.mode]} {best.error:.4g} after {self.budget:,} {unit}"
            rest = "" if other is None else f"'s {_IS[self.mode]} {other.error:.4g} at best ({other.settings})"
        else:
            cost, higher = best.cost(self.objective), 0 if other is None else other.cost(self.objective)
            text = f"it {_NEEDS[self.mode]} {cost:,} {unit}"
            times = f"{higher / max(1, cost):.3g} times as many"
            rest = "" if other is None else f" {_NEEDS[self.mode]} {higher:,} ({other.settings}), {times}"
        return f"Use {best.text}: {text}; {name}{rest or ' has no suitable settings'}."

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON.

        Returns
        -------
        dict
            All attributes, the advice, and the name of the algorithm to use.
        """
        keys = ("mode", "sampling", "objective", "target_error", "budget", "initial_error", "confidence", "advice")
        chosen = {"td": None, "vrtd": None} | {name: choice.as_dict() for name, choice in self._choices.items()}
        return {key: getattr(self, key) for key in keys} | {"use": self.best.algorithm.name} | chosen

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the predicted curves with the target or the budget.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on. By default a new figure is made.

        Returns
        -------
        matplotlib.axes.Axes
            The axes. ``ax.figure.savefig`` writes the figure to a file.
        """
        axes = new_panels(1)[0] if ax is None else ax
        for choice in self._choices.values():
            x, error = self._curve(choice)
            # theta changes only at the end of an epoch. Steps are drawn if the curve has a point for every epoch.
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
        # The legend stands above the axes, so that it covers nothing.
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), borderaxespad=0.2, frameon=False, fontsize="small")
        return axes

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the data behind the figure, one row per point of a curve.

        Parameters
        ----------
        path : str or path-like
            Where to write the CSV file.
        """
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
