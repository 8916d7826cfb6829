"""The result of a sweep: a tidy table with views, the best settings, and figures."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd import store
from vrtd.arrays import Floats
from vrtd.checks import check_choice, import_extra
from vrtd.report.notebook import build_summary
from vrtd.report.numbers import number, plural
from vrtd.sweeps.cell import Records
from vrtd.sweeps.columns import make_table
from vrtd.sweeps.design import Design
from vrtd.tables import Table, library, write_csv, write_parquet

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVEL = 0.95  # of the comparison of all settings with the best one
_SHOWN = 8  # problems in a text


class Timing(NamedTuple):
    """Time that a sweep took. It is not part of the table.

    Attributes
    ----------
    n_computed : int
        Cells that were computed. The others were finished before.
    loop_seconds : float
        Time inside compiled loops, the sum over all workers.
    compile_seconds : float
        Time to compile loops or to load them, the sum over all workers.
    """

    n_computed: int
    loop_seconds: float
    compile_seconds: float


class BestSetting(NamedTuple):
    """Setting with the smallest mean error at the end on one problem.

    Attributes
    ----------
    setting : dict
        Values of the fields of the grid.
    mean : float
        Mean error over the runs that have not diverged.
    standard_error : float
        Standard error of the mean.
    n_diverged : int
        Runs that diverged. A setting without diverged runs comes before any setting with some.
    tied : tuple of dict
        Other settings, without diverged runs, whose errors are not significantly larger, best first.
    n_unstable : int
        Settings with diverged runs, on this problem.
    """

    setting: dict[str, Any]
    mean: float
    standard_error: float
    n_diverged: int
    tied: tuple[dict[str, Any], ...]
    n_unstable: int


@dataclass(frozen=True, eq=False)
class SweepResult:
    """Result of a sweep, a table with one row per cell, metric and checkpoint.

    Attributes
    ----------
    table : mapping of str to ndarray
        Columns: ``problem``; one per field of the grid; ``metric``; ``n_gradients``; ``n_samples``; ``n_runs``;
        ``mean``, ``standard_error`` and the quantiles ``q05`` to ``q95`` over the runs that have not diverged;
        ``n_diverged``; ``exact``, the expected error at this checkpoint; ``floor``, the expected error in the long
        run; and ``method``, which says how the last two were computed: "exact", "approximation" (good to a few
        percent), "rough approximation" (the step size is beyond ``vrtd.theory.approximation_limit``, or this limit
        costs more than the simulation of a cell), "skipped" (they would have cost more than a quarter of the
        simulation) or "" (not known).
    grid : mapping of str to tuple
        Values of each field.
    problems : tuple of str
        Names of the problems.
    metrics : tuple of str
        Names of the metrics.
    manifest : dict
        Settings, digests, versions and machine, as plain JSON.
    timing : Timing
        Cells that were computed, and the time for them.
    out : Path or None
        Folder of the sweep, None if nothing was written.

    Examples
    --------
    >>> import vrtd
    >>> result = vrtd.sweep("boyan_chain", "td", {"step_size": [0.01, 0.1]}, n_runs=10, n_gradients=1000)
    >>> list(result.table)[:5], len(result)
    (['problem', 'step_size', 'metric', 'n_gradients', 'n_samples'], 2)
    """

    table: Table = field(repr=False)
    grid: Mapping[str, tuple[Any, ...]]
    problems: tuple[str, ...]
    metrics: tuple[str, ...]
    manifest: dict[str, Any] = field(repr=False)
    timing: Timing
    out: Path | None

    def __len__(self) -> int:
        return len(self.table["problem"])

    @property
    def n_cells(self) -> int:
        """Number of cells, the combinations of problem and setting."""
        return len(self.problems) * int(np.prod([len(values) for values in self.grid.values()]))

    @cached_property
    def _values(self) -> dict[str, NDArray[Any]]:
        """Numeric columns by name, of shape (problems, settings, metrics, checkpoints)."""
        shape = len(self.problems), self.n_cells // len(self.problems), len(self.metrics), -1
        return {name: column.reshape(shape) for name, column in self.table.items()}

    def final(self, column: str, problem: str, metric: str | None = None) -> Floats:
        """Return a column at the end of the runs, as an array over the grid.

        Parameters
        ----------
        column : str
            Name of a column, such as "mean".
        problem : str
            Name of a problem.
        metric : str or None, default=None
            Name of a metric. None means the first one.

        Returns
        -------
        ndarray
            Values with one axis per field of the grid, in the order of ``grid``.
        """
        column = check_choice("column", column, tuple(self.table))
        p = self.problems.index(check_choice("problem", problem, self.problems))
        k = self._metric(metric)
        values = self._values[column][p, :, k, -1]
        return values.reshape([len(each) for each in self.grid.values()])

    def best(self, metric: str | None = None) -> dict[str, BestSetting]:
        """Return the setting with the smallest mean error at the end on each problem.

        A setting is tied with the best one if a t-test at level 0.05, divided by the number of comparisons, does not
        tell their means apart. The test treats the runs of two cells as independent. They share their random numbers,
        which in general makes differences less variable, so that more settings may be tied than the data require.

        Parameters
        ----------
        metric : str or None, default=None
            Name of a metric. None means the first one.

        Returns
        -------
        dict of str to BestSetting
            Best setting by the name of the problem.
        """
        return {problem: self._best_on(problem, metric) for problem in self.problems}

    def _best_on(self, problem: str, metric: str | None) -> BestSetting:
        from scipy.special import stdtrit

        mean, error, diverged = (
            self.final(name, problem, metric).ravel() for name in ("mean", "standard_error", "n_diverged")
        )
        order = np.lexsort((np.where(np.isfinite(mean), mean, np.inf), diverged))
        best = order[0]
        n_runs, n_others = int(self.table["n_runs"][0]), max(len(mean) - 1, 1)
        quantile = stdtrit(max(n_runs - 1, 1), 1.0 - (1.0 - _LEVEL) / 2.0 / n_others)
        with np.errstate(invalid="ignore"):
            # Of one run nothing is known about the error, so every setting is tied.
            is_known = np.isfinite(error) if n_runs > 1 else np.isfinite(mean)
            is_tied = is_known & ~(mean - mean[best] > quantile * np.hypot(error, error[best]))
        tied = [i for i in order[1:] if is_tied[i] and diverged[i] == 0]
        return BestSetting(
            self.setting(int(best)),
            float(mean[best]),
            float(error[best]),
            int(diverged[best]),
            tuple(self.setting(int(i)) for i in tied),
            int((diverged > 0).sum()),
        )

    def setting(self, i: int) -> dict[str, Any]:
        """Return a setting by its number, in the order of the rows of one problem.

        Parameters
        ----------
        i : int
            Number of the setting, from 0.

        Returns
        -------
        dict
            Values of the fields of the grid.
        """
        chosen = np.unravel_index(i, [len(values) for values in self.grid.values()])
        return {name: values[k] for (name, values), k in zip(self.grid.items(), chosen, strict=True)}

    def _metric(self, metric: str | None) -> int:
        return 0 if metric is None else self.metrics.index(check_choice("metric", metric, self.metrics))

    def plot(
        self, ax: Axes | None = None, *, metric: str | None = None, problem: str | None = None, x: str | None = None
    ) -> Axes:
        """Draw the error at the end over the grid: as curves, or as a map for two numeric fields.

        A map needs one problem and two fields with several numbers. Where floors are known, a new figure has a second
        map of them. Otherwise there is one curve per problem and combination of the other fields, with a band of two
        standard errors. Expected errors are dashed, floors are dotted, and crosses mark settings with diverged runs.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            Axes to draw on. None means a new figure.
        metric : str or None, default=None
            Name of a metric. None means the first one.
        problem : str or None, default=None
            Name of a problem. None means all, and for a map the first.
        x : str or None, default=None
            Field on the horizontal axis of curves. None means the first with several numbers, and allows a map.

        Returns
        -------
        matplotlib.axes.Axes
            The axes with the errors. ``axes.figure.savefig(path)`` writes the figure to a file.
        """
        from vrtd.sweeps.figures import draw_sweep

        name = self.metrics[self._metric(metric)]
        chosen = None if problem is None else check_choice("problem", problem, self.problems)
        return draw_sweep(self, ax, name, chosen, x)

    def to_arrow(self) -> Any:
        """Return the table as a ``pyarrow.Table``.

        Returns
        -------
        pyarrow.Table
            The table.
        """
        return library().table(dict(self.table))

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_pandas(self) -> Any:
        """Return the table as a ``pandas.DataFrame``.

        Returns
        -------
        pandas.DataFrame
            The table.
        """
        return import_extra("pandas", "data").DataFrame(dict(self.table))

    def to_polars(self) -> Any:
        """Return the table as a ``polars.DataFrame``.

        Returns
        -------
        polars.DataFrame
            The table.
        """
        return import_extra("polars", "data").DataFrame(dict(self.table))

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the table as CSV, with numbers that read back as the same bits.

        Parameters
        ----------
        path : str or path-like
            Path of the file.
        """
        write_csv(self.table, path)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Write the table as a Parquet file.

        Parameters
        ----------
        path : str or path-like
            Path of the file.
        """
        write_parquet(self.table, path)

    def as_dict(self) -> dict[str, Any]:
        """Return the best settings, the columns of the table and the manifest as plain JSON.

        Returns
        -------
        dict
            The entries "best", "table", "manifest" and "out". Numbers that are not finite are None.
        """
        best = {
            metric: {problem: each._asdict() for problem, each in self.best(metric).items()} for metric in self.metrics
        }
        return {
            "best": _plain(best),
            "table": {name: _plain(column.tolist()) for name, column in self.table.items()},
            "manifest": self.manifest,
            "out": None if self.out is None else str(self.out),
        }

    def describe_best(self, metric: str | None = None) -> dict[str, str]:
        """Return the best setting on each problem in words.

        Parameters
        ----------
        metric : str or None, default=None
            Name of a metric. None means the first one.

        Returns
        -------
        dict of str to str
            Texts by the name of the problem.
        """
        return {problem: _describe(each) for problem, each in self.best(metric).items()}

    def __repr__(self) -> str:
        lines = [f"{problem}: {text}" for problem, text in list(self.describe_best().items())[:_SHOWN]]
        return "\n  ".join([f"SweepResult({self._size})", *lines])

    def _repr_html_(self) -> str:
        best = list(self.describe_best().items())[:_SHOWN]
        entries = {"cells": self._size, **dict(best), "folder": "" if self.out is None else str(self.out)}
        return build_summary("SweepResult", entries, lambda axes: self.plot(axes))

    @property
    def _size(self) -> str:
        problems, fields = plural(len(self.problems), "problem"), ", ".join(self.grid)
        unstable = sum(int((self.final("n_diverged", problem) > 0).sum()) for problem in self.problems)
        note = f"; {unstable:,} with diverged runs" if unstable else ""
        runs = plural(int(self.table["n_runs"][0]), "run")
        return f"{plural(self.n_cells, 'cell')} of {runs}: {self.manifest['algorithm']} on {problems}, {fields}{note}"


def _describe(best: BestSetting) -> str:
    words = ", ".join(f"{name} {value}" for name, value in best.setting.items())
    text = f"{words}: {number(best.mean, 4)} ± {number(best.standard_error, 2)}"
    if best.n_diverged:
        text += f" ({plural(best.n_diverged, 'run')} diverged)"
    return f"{text}; statistically tied: {plural(len(best.tied), 'other setting')}" if best.tied else text


def _plain(value: Any) -> Any:
    """Return a value as plain JSON."""
    match value:
        case dict():
            return {name: _plain(each) for name, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case float() if not np.isfinite(value):
            return None
        case bool() | int() | float() | str() | None:
            return value
    return repr(value)


def make_result(design: Design, records: Records, timing: Timing, out: Path | None) -> SweepResult:
    """Return the result of a sweep whose cells are all measured."""
    table = make_table(design, records)
    manifest = {
        "format": "vrtd-sweep-1",
        "algorithm": design.algorithm.name,
        "grid": {name: _plain(values) for name, values in design.grid.items()},
        "problems": {name: problem.digest for name, problem in design.problems.items()},
        "sampling": dict(design.samplings),
        "n_runs": design.n_runs,
        "n_gradients": design.n_gradients,
        "checkpoints": design.checkpoints.tolist(),
        "seed": design.seed,
        "metrics": list(design.metric_names),
        **store.describe_system(),
    }
    return SweepResult(table, design.grid, design.names, design.metric_names, manifest, timing, out)
