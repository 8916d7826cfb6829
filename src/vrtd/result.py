"""Results of simulations: the curves of all runs, their final parameters, their status and their provenance."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.checks import check_choice, require
from vrtd.errors import ResultFileError
from vrtd.files import is_out_of_memory, read_arrays, read_bytes, write_arrays, write_at_once
from vrtd.plots import AXIS_LABELS, draw_curve, new_panels
from vrtd.report.notebook import build_summary
from vrtd.report.numbers import describe_settings, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
COLUMNS = ("n_gradients", "n_samples", "mean", "standard_error", "q05", "q25", "q50", "q75", "q95", "n_diverged")
CSV_HEADER = ",".join(("metric", *COLUMNS))
_FORMAT = "vrtd-result-1"
_WHOLE, _REAL, _STREAM = (np.dtype(np.int64),), (np.dtype(np.float64),), (np.dtype(np.uint64),)
_CURSOR = (*_WHOLE, *_REAL, *_STREAM)
_TYPES = (_WHOLE, _WHOLE, _REAL, _REAL, _WHOLE, _REAL, _CURSOR, _STREAM, _STREAM)  # of the arrays and of the state
_ARRAYS = ("n_gradients", "n_samples", "curves", "theta", "diverged_at")


class EngineState(NamedTuple):
    """State of all runs after their last closed epoch, from which they can be continued.

    Attributes
    ----------
    workspaces : ndarray of shape (n_runs, n)
        Workspaces of the algorithm.
    cursors : ndarray of shape (n_runs, k)
        Positions in the source of transitions.
    environment, algorithm : ndarray of shape (n_runs, 2)
        Random streams of the environment and of the algorithm.
    """

    workspaces: Floats
    cursors: NDArray[Any]
    environment: NDArray[np.uint64]
    algorithm: NDArray[np.uint64]

    def map(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> EngineState:
        """Return a state with a function applied to each array.

        Parameters
        ----------
        function : callable
            A function from an array to an array.

        Returns
        -------
        EngineState
            The new state.
        """
        return EngineState(*(function(array) for array in self))


class Summary(NamedTuple):
    """Statistics over the runs that have not diverged, at each checkpoint.

    Attributes
    ----------
    mean : ndarray of shape (n_checkpoints,)
        Mean over the runs.
    standard_error : ndarray of shape (n_checkpoints,)
        Standard error of the mean.
    quantiles : ndarray of shape (5, n_checkpoints)
        Quantiles 0.05, 0.25, 0.5, 0.75 and 0.95 over the runs.
    n_diverged : ndarray of shape (n_checkpoints,)
        Number of runs that are left out because they have diverged.
    n_runs : int
        Number of runs, including diverged ones.
    """

    mean: Floats
    standard_error: Floats
    quantiles: Floats
    n_diverged: NDArray[np.int64]
    n_runs: int

    def __repr__(self) -> str:
        fall, n = _describe_fall(self.mean, self.standard_error), len(self.mean)
        note = f", {self.n_diverged[-1]:,} diverged" if n and self.n_diverged[-1] else ""
        return f"Summary({plural(self.n_runs, 'run')}{note}, {plural(n, 'checkpoint')}; mean {fall})"


@dataclass(frozen=True, eq=False)
class Result:
    """Curves and final parameters of independent runs. The arrays are read-only.

    Attributes
    ----------
    n_gradients : ndarray of shape (n_checkpoints,)
        Pseudo-gradients at the checkpoints, counted as in the paper.
    n_samples : ndarray of shape (n_checkpoints,)
        Transitions drawn up to the checkpoints.
    metrics : tuple of str
        Names of the recorded metrics.
    curves : ndarray of shape (n_runs, n_checkpoints, n_metrics)
        Values of the metrics. They are NaN from the checkpoint at which divergence of a run is first seen.
    theta : ndarray of shape (n_runs, d)
        Parameters that the algorithm returns at the end. They are NaN for diverged runs.
    diverged_at : ndarray of shape (n_runs,)
        Pseudo-gradients at which divergence of a run was first seen, or -1.
    provenance : mapping
        Algorithm, digest of the problem, sampling, seed, versions and times.
    state : EngineState
        State of the runs, from which `vrtd.simulate` can continue them.

    Examples
    --------
    >>> import vrtd
    >>> problem = vrtd.problems.boyan_chain()
    >>> result = vrtd.simulate(problem, vrtd.TD(0.1), n_runs=10, n_gradients=1000, checkpoints=5)
    >>> result.n_gradients
    array([   0,  250,  500,  750, 1000])
    >>> result.status.tolist()[:2]
    ['ok', 'ok']
    """

    n_gradients: NDArray[np.int64]
    n_samples: NDArray[np.int64]
    metrics: tuple[str, ...]
    curves: Floats
    theta: Floats
    diverged_at: NDArray[np.int64]
    provenance: Mapping[str, Any]
    state: EngineState = field(repr=False)

    def __post_init__(self) -> None:
        for array in (self.n_gradients, self.n_samples, self.curves, self.theta, self.diverged_at, *self.state):
            array.flags.writeable = False

    @property
    def n_runs(self) -> int:
        """Number of runs."""
        return len(self.theta)

    @property
    def status(self) -> NDArray[np.str_]:
        """Status of each run, "ok" or "diverged", of shape (n_runs,).

        If runs have diverged, use a smaller step size or a projection.
        """
        return np.where(self.diverged_at < 0, "ok", "diverged")

    def values(self, metric: str) -> Floats:
        """Return the values of a metric.

        Parameters
        ----------
        metric : str
            Name of a recorded metric.

        Returns
        -------
        ndarray of shape (n_runs, n_checkpoints)
            Values of each run at each checkpoint.
        """
        name = check_choice("metric", metric, self.metrics)
        return self.curves[:, :, self.metrics.index(name)]

    def summary(self, metric: str | None = None) -> Summary:
        """Return mean, standard error and quantiles over the runs that have not diverged.

        Parameters
        ----------
        metric : str or None, default=None
            Name of a recorded metric. None means the first one.

        Returns
        -------
        Summary
            Statistics at each checkpoint, with the number of diverged runs.
        """
        values = self.values(metric if metric is not None else self._first_metric())
        mean, standard_error, count = _average(values)
        alive = np.isfinite(values)
        quantiles = np.full((len(QUANTILES), values.shape[1]), np.nan)
        complete, partial = count == self.n_runs, (count > 0) & (count < self.n_runs)  # NaN makes quantiles slow
        quantiles[:, complete] = np.quantile(values[:, complete], QUANTILES, axis=0)
        quantiles[:, partial] = np.nanquantile(np.where(alive, values, np.nan)[:, partial], QUANTILES, axis=0)
        return Summary(mean, standard_error, quantiles, self.n_runs - count, self.n_runs)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        metric: str | None = None,
        x: Literal["n_gradients", "n_samples"] = "n_gradients",
        label: str | None = None,
    ) -> Axes:
        """Plot the mean over runs with a band of two standard errors.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or None, default=None
            Axes to draw on. None means a new figure.
        metric : str or None, default=None
            Name of a recorded metric. None means the first one.
        x : {"n_gradients", "n_samples"}, default="n_gradients"
            Quantity on the horizontal axis: pseudo-gradients or transitions drawn.
        label : str or None, default=None
            Label of the curve. None means the algorithm with its settings.

        Returns
        -------
        matplotlib.axes.Axes
            The axes. ``axes.figure.savefig(path)`` writes the figure to a file.
        """
        x = check_choice("x", x, tuple(AXIS_LABELS))
        metric = self._first_metric() if metric is None else check_choice("metric", metric, self.metrics)
        mean, standard_error, count = _average(self.values(metric))
        axes = new_panels(1)[0] if ax is None else ax
        name = label if label is not None else self._algorithm
        n_diverged, band = self.n_runs - int(count[-1]), 2 * standard_error
        note = f"{n_diverged:,} of {plural(self.n_runs, 'run')} diverged and left out" if n_diverged else ""
        how = self.provenance.get("method", note).partition(":")[0]
        xs, x_label, curve_label = getattr(self, x), AXIS_LABELS[x], f"{name} ({how})" if how else name
        draw_curve(axes, xs, mean, mean - band, mean + band, label=curve_label, x_label=x_label, metric=metric)
        return axes

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the result to an .npz file without pickled objects, atomically.

        Parameters
        ----------
        path : str or path-like
            Path of the file. ``load`` reads it.
        """
        header = {"format": _FORMAT, "metrics": self.metrics, "provenance": dict(self.provenance)}
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"state_{name}": array for name, array in self.state._asdict().items()}
        write_arrays(path, header, arrays)

    def columns(self, metric: str | None = None) -> dict[str, list[Any]]:
        """Return the summary of a metric as lists of plain numbers, one entry per checkpoint.

        Parameters
        ----------
        metric : str or None, default=None
            Name of a recorded metric. None means the first one.

        Returns
        -------
        dict of str to list
            Columns of the table that ``to_csv`` writes. Statistics that are not finite are None.
        """
        summary = self.summary(metric)
        statistics = (summary.mean, summary.standard_error, *summary.quantiles)
        plain = ([value if isfinite(value) else None for value in column.tolist()] for column in statistics)
        columns = (self.n_gradients.tolist(), self.n_samples.tolist(), *plain, summary.n_diverged.tolist())
        return dict(zip(COLUMNS, columns, strict=True))

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the summary of every metric as a CSV table, the data behind a figure.

        Parameters
        ----------
        path : str or path-like
            Path of the file.
        """
        with write_at_once(path) as file:
            file.write("\n".join([CSV_HEADER, *self.csv_lines(), ""]).encode())

    def csv_lines(self) -> list[str]:
        """Return the lines of the CSV table without the first one, which has the names of the columns.

        Returns
        -------
        list of str
            One line per metric and checkpoint.
        """
        lines = []
        for metric in self.metrics:
            rows = zip(*self.columns(metric).values(), strict=True)
            lines += [",".join([metric, *("" if cell is None else repr(cell) for cell in row)]) for row in rows]
        return lines

    def _first_metric(self) -> str:
        require(self.metrics, "No metric was recorded.", "Simulate with metrics=(...), or use theta.")
        return self.metrics[0]

    def __repr__(self) -> str:
        falls = [f"; {metric} {self._describe_fall(metric)}" for metric in self.metrics[:1]]
        return f"Result({self._algorithm}; {self._runs}, {self._sampling}{''.join(falls)})"

    def _repr_html_(self) -> str:
        entries = {
            "algorithm": self._algorithm,
            "runs": self._runs,
            "sampling": self._sampling,
            "length": f"{self.n_gradients[-1]:,} pseudo-gradients, {self.n_samples[-1]:,} samples",
        }
        falls = {metric: self._describe_fall(metric) for metric in self.metrics}
        return build_summary("Result", entries | falls, self.plot if self.metrics else None)

    @property
    def _algorithm(self) -> str:
        return describe_settings(self.provenance.get("algorithm", {}))

    @property
    def _sampling(self) -> str:
        return str(self.provenance.get("sampling", "unknown sampling"))

    @property
    def _runs(self) -> str:
        """Number of runs in words, or the method by which the curve was computed."""
        n_diverged = int((self.diverged_at >= 0).sum())
        runs = plural(self.n_runs, "run") + (f" ({n_diverged:,} diverged)" if n_diverged else "")
        return str(self.provenance.get("method", runs)).partition(":")[0]

    def _describe_fall(self, metric: str) -> str:
        mean, standard_error, _ = _average(self.values(metric)[:, [0, -1]])
        return _describe_fall(mean, standard_error)


def _average(values: Floats) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Return mean, standard error and number of the runs that have not diverged, of (n_runs, C) values."""
    alive = np.isfinite(values)
    count = alive.sum(axis=0)
    shift = np.where(count > 0, values[alive.argmax(axis=0), np.arange(values.shape[1])], 0.0)
    with np.errstate(all="ignore"):  # 0 runs have no mean, 1 run no standard error, and huge errors give inf
        mean = shift + np.where(alive, values - shift, 0.0).sum(axis=0) / count  # exact if all values are equal
        spread = np.where(alive, values - mean, 0.0)
        standard_error = np.sqrt((spread**2).sum(axis=0) / (count - 1) / count)
    return mean, standard_error, count


def _describe_fall(mean: Floats, standard_error: Floats) -> str:
    """Return the first and the last mean as text, with the standard error of the last one if it is finite."""
    if not len(mean):
        return "without checkpoints"
    error = f" ± {standard_error[-1]:.2g}" if isfinite(standard_error[-1]) else ""
    return f"{mean[0]:.4g} -> {mean[-1]:.4g}{error}"


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result that `Result.save` wrote.

    Parameters
    ----------
    path : str or path-like
        Path of the file.

    Returns
    -------
    Result
        The result, which can be continued with ``vrtd.simulate(..., start=result)``.

    Raises
    ------
    DataError
        If the file does not exist or is not readable.
    ResultFileError
        If the file is not a result of this version of vrtd, or is damaged.

    Examples
    --------
    >>> import tempfile, vrtd
    >>> result = vrtd.simulate(vrtd.problems.boyan_chain(), vrtd.TD(0.1), n_runs=2, n_gradients=100)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result.save(f"{folder}/result.npz")
    ...     vrtd.load(f"{folder}/result.npz").n_runs
    2
    """
    content = read_bytes(path)
    try:
        header, arrays = read_arrays(content, _FORMAT)
        state = EngineState(*(arrays[f"state_{name}"] for name in EngineState._fields))
        n_gradients, n_samples, curves, theta, diverged_at = (arrays[name] for name in _ARRAYS)
        metrics, provenance = tuple(header["metrics"]), dict(header["provenance"])
        n_runs, n_checkpoints = len(theta), len(n_gradients)
        lengths = {len(array) for array in (diverged_at, *state)}
        expected = (n_runs, n_checkpoints, len(metrics)), (n_checkpoints,), {n_runs}
        if (curves.shape, n_samples.shape, lengths) != expected:
            raise ValueError("the shapes of its arrays do not agree")
        arrays_in_order = (n_gradients, n_samples, curves, theta, diverged_at, *state)
        if any(array.dtype not in kinds for array, kinds in zip(arrays_in_order, _TYPES, strict=True)):
            raise ValueError("an array has another type")
        if not (n_checkpoints and theta.ndim == 2 and all(isinstance(metric, str) for metric in metrics)):
            raise ValueError("its checkpoints, parameters or names of metrics are of another form")
        if np.shape(provenance["theta_0"]) != theta.shape[1:] or "initial" not in provenance:
            raise ValueError("its initial parameters are of another form")
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ResultFileError(
            f"{path} is not a result of this version of vrtd ({error}). Check the path, or run the simulation again."
        ) from error
    return Result(n_gradients, n_samples, metrics, curves, theta, diverged_at, provenance, state)
