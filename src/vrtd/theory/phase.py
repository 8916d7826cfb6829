"""Phase diagrams: the error after a budget over step size and batch size, with stability limits and theorems."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.algorithms import ChainSampling
from vrtd.algorithms.vrtd import Output
from vrtd.arrays import Floats, check_theta, frozen
from vrtd.checks import check_choice, check_count, check_exact_count
from vrtd.errors import InvalidInputError
from vrtd.plots import draw_map, new_panels
from vrtd.problems import LinearProblem
from vrtd.tables import write_csv
from vrtd.theory.bounds import vrtd_iid_bound, vrtd_markov_bound
from vrtd.theory.checks import check_problem, check_search
from vrtd.theory.limits import approximation_limit, stability_limit
from vrtd.theory.predictions import Prediction, exact_predictor
from vrtd.theory.search import Goal, Search
from vrtd.theory.statements import Bound

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DECADES = 4.5  # least range of step sizes below the largest
_THEOREMS: dict[str, dict[str, Callable[..., Bound[Any]]]] = {
    "iid": {
        "Theorem 1, corrected": partial(vrtd_iid_bound, form="corrected"),
        "Theorem 1, sharpened": partial(vrtd_iid_bound, form="sharp"),
    },
    "markov": {"Theorem 2, corrected": partial(vrtd_markov_bound, form="corrected")},
}


@dataclass(frozen=True, eq=False)
class PhaseDiagram:
    """Squared error after a budget of pseudo-gradients, over step size and batch size.

    The error is ``E|theta - theta_star|^2``. The batch size 1 is TD, larger batch sizes are VRTD.

    Attributes
    ----------
    budget : int
        Number of pseudo-gradients.
    sampling : {"markov", "iid"}
        One trajectory, or independent samples.
    prediction : Prediction
        How the errors of VRTD were predicted.
    step_sizes : ndarray of shape (n_steps,)
        Step sizes in increasing order.
    batch_sizes : ndarray of shape (n_sizes,)
        Batch sizes in increasing order.
    error : ndarray of shape (n_steps, n_sizes)
        Squared errors; inf where they overflow.
    stability : ndarray of shape (n_sizes,)
        Step size above which the error grows without bound. It is interpolated between some of the batch sizes.
    admissible : dict of str to ndarray of shape (n_steps, n_sizes)
        For each theorem, where its conditions hold.
    trusted : float or None
        Step size up to which the approximation of VRTD is good to about 5 %; None if the errors are exact.
    initial_error : float
        ``|theta_0 - theta_star|^2``.
    """

    budget: int
    sampling: ChainSampling
    prediction: Prediction
    step_sizes: Floats
    batch_sizes: NDArray[np.int64]
    error: Floats
    stability: Floats
    admissible: dict[str, NDArray[np.bool_]]
    trusted: float | None
    initial_error: float

    @property
    def best(self) -> tuple[float, int, float]:
        """Step size, batch size and error of the best cell, among those where the error is exact or trusted."""
        counts = np.ones(self.error.shape, bool)
        if self.trusted is not None:
            counts[self.step_sizes > self.trusted, 1:] = False
        i, j = np.unravel_index(np.argmin(np.where(counts, self.error, np.inf)), self.error.shape)
        return float(self.step_sizes[i]), int(self.batch_sizes[j]), float(self.error[i, j])

    def as_dict(self) -> dict[str, Any]:
        """Return the diagram as plain values, for JSON.

        Returns
        -------
        dict
            All attributes, and the best cell. An error that overflows is None.
        """
        names = ("budget", "sampling", "initial_error", "trusted")
        arrays = ("step_sizes", "batch_sizes", "stability")
        return {
            **{name: getattr(self, name) for name in names},
            **{name: getattr(self, name).tolist() for name in arrays},
            "method": self.prediction.describe(),
            "best": dict(zip(("step_size", "batch_size", "error"), self.best, strict=True)),
            "error": [[x if np.isfinite(x) else None for x in row] for row in self.error.tolist()],
            "admissible": {name: mask.tolist() for name, mask in self.admissible.items()},
        }

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the errors with the stability limit, the admissible regions and the best cell.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on. By default a new figure is made.

        Returns
        -------
        matplotlib.axes.Axes
            The axes.
        """
        axes = new_panels(1)[0] if ax is None else ax
        keys = draw_map(
            axes, self.batch_sizes, self.step_sizes, self.error, ceiling=self.initial_error, regions=self.admissible,
            x_label="batch size (1 is TD)", y_label="step size",
            colour_label=f"squared error after\n{self.budget:,} pseudo-gradients",
        )  # fmt: skip
        # The column of TD is separate: its limit is not the end of the line over the batch sizes of VRTD.
        column = [axes.get_xlim()[0], np.sqrt(self.batch_sizes[1]), np.nan]
        x, y = np.append(column, self.batch_sizes[1:]), np.append([self.stability[0]] * 3, self.stability[1:])
        axes.plot(x, y, color="white", linewidth=1.5, label="stability limit")
        if self.trusted is not None:
            ends = self.batch_sizes[[1, -1]]
            axes.plot(ends, [self.trusted] * 2, "w:", label="approximation good to 5 %")
        step, batch, error = self.best
        best = f"best: {error:.3g}"
        axes.plot(batch, step, "*", color="white", markeredgecolor="black", markersize=13, linestyle="none", label=best)
        axes.set_ylim(self.step_sizes[0], self.step_sizes[-1])
        handles = [*axes.get_legend_handles_labels()[0], *keys]
        # The legend stands above the map, so that it covers nothing.
        axes.legend(
            handles=handles, loc="lower left", bbox_to_anchor=(0.0, 1.02, 1.0, 0.0), mode="expand", ncols=2,
            borderaxespad=0.0, fontsize="small", facecolor="0.3", labelcolor="white",
        )  # fmt: skip
        return axes

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the data behind the figure, one row per cell.

        Parameters
        ----------
        path : str or path-like
            Where to write the CSV file.
        """
        steps, batches = np.meshgrid(self.step_sizes, self.batch_sizes, indexing="ij")
        columns = {
            "step_size": steps,
            "batch_size": batches,
            "squared_error": np.where(np.isfinite(self.error), self.error.astype(object), ""),
            "stable": (steps < self.stability).astype(int),
            **{name: mask.astype(int) for name, mask in self.admissible.items()},
        }
        write_csv({name: column.ravel() for name, column in columns.items()}, path)


def phase_diagram(
    problem: LinearProblem,
    *,
    budget: int,
    sampling: ChainSampling = "markov",
    theta_0: ArrayLike | None = None,
    output: Output = "random",
    n_steps: int = 48,
) -> PhaseDiagram:
    """Compute the squared error after a budget over step sizes and batch sizes.

    The errors are exact, except that VRTD on a trajectory uses the approximation of ``exact_curve``. Every cell spends
    the budget in whole epochs. The batch sizes are ``2^k`` and ``3 * 2^k``.

    Parameters
    ----------
    problem : LinearProblem
        Chain and features.
    budget : int
        Number of pseudo-gradients.
    sampling : {"markov", "iid"}, default="markov"
        One trajectory, or independent samples.
    theta_0 : array_like of shape (n_features,), default=None
        Start. By default it is the zero vector.
    output : {"random", "last", "average", "tail"}, default="random"
        Iterate that an epoch of VRTD returns.
    n_steps : int, default=48
        Number of step sizes.

    Returns
    -------
    PhaseDiagram
        The errors, stability limits and admissible regions.

    Examples
    --------
    >>> import vrtd
    >>> diagram = phase_diagram(vrtd.problems.random_mdp(), budget=10_000, sampling="iid", n_steps=12)
    >>> diagram.best[1]  # at this budget TD with a small step beats every batch size
    1
    """
    check_choice("sampling", sampling, tuple(_THEOREMS))
    check_choice("output", output, get_args(Output))
    check_exact_count("budget", budget)
    check_count("n_steps", n_steps, least=2)
    if budget < 4:
        raise InvalidInputError(
            f"budget must be at least 4, which is one epoch with a batch of two, but is {budget}.", "Raise it."
        )
    check_problem(problem)
    theta = check_theta("theta_0", theta_0, problem.n_features)
    check_search(problem.n_features, problem.mrp.edges.origin.size if sampling == "markov" else None)
    doubled = 2 ** np.arange(int(budget).bit_length(), dtype=np.int64)
    sizes = np.union1d(doubled, 3 * doubled)
    sizes = sizes[sizes <= budget // 2]
    predictor = exact_predictor(problem, sampling, theta, output)
    largest = predictor.largest_step
    # The smallest step lies below the best one of TD, which needs smaller steps than VRTD.
    best = Search(predictor).td(Goal(budget=int(budget)), polish=False)
    slow = largest if best is None else best.step_size / 3.0
    steps = np.geomspace(min(1.5 * largest / 10**_DECADES, slow), 1.5 * largest, n_steps)
    cells = [(M, int(budget) // (1 if M == 1 else 2 * M)) for M in sizes.tolist()]
    error = np.ascontiguousarray(predictor.grid(steps, cells).T)
    # The theorems cover neither TD nor the last iterate.
    covered = [(i, j) for i in range(n_steps) for j in range(1, len(sizes)) if output != "last"]
    admissible = {name: np.zeros(error.shape, bool) for name in _THEOREMS[sampling]}
    for name, theorem in _THEOREMS[sampling].items():
        for i, j in covered:
            admissible[name][i, j] = _applies(theorem, problem, float(steps[i]), int(sizes[j]), theta)
    known = [largest, *(stability_limit(problem, sampling, M, output) for M in sizes[1::4].tolist())]
    limits = np.exp(np.interp(np.log(sizes), np.log([1, *sizes[1::4]]), np.log(known)))
    return PhaseDiagram(
        budget=int(budget),
        sampling=sampling,
        prediction=predictor.prediction(largest, 2),
        step_sizes=frozen(steps),
        batch_sizes=frozen(sizes),
        error=frozen(error),
        stability=frozen(limits),
        admissible=admissible,
        trusted=approximation_limit(problem) if sampling == "markov" else None,
        initial_error=float(((theta - problem.theta_star) ** 2).sum()),
    )


def _applies(theorem: Callable[..., Bound[Any]], problem: LinearProblem, step: float, M: int, theta_0: Floats) -> bool:
    try:
        return theorem(problem, step, M, theta_0).valid
    except InvalidInputError:  # a constant of the theorem does not exist on this chain
        return False
