"""What a simulation returns: every run's curve, its end, its status, and where it all came from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.checks import check_choice, require
from vrtd.errors import ResultFileError
from vrtd.files import check_regular, read_arrays, write_arrays, write_at_once
from vrtd.plots import AXIS_LABELS, draw_curve, new_panels
from vrtd.report.notebook import build_summary
from vrtd.report.numbers import describe_settings, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
COLUMNS = ("n_gradients", "n_samples", "mean", "standard_error", "q05", "q25", "q50", "q75", "q95", "n_diverged")
CSV_HEADER = ",".join(("metric", *COLUMNS))
_FORMAT = "vrtd-result-1"
_ARRAYS = ("n_gradients", "n_samples", "curves", "theta", "diverged_at")


class EngineState(NamedTuple):
    """Where every run stands after its last closed epoch: all that is needed to go on."""

    workspaces: Floats
    cursors: NDArray[Any]
    environment: NDArray[np.uint64]
    algorithm: NDArray[np.uint64]

    def map(self, function: Callable[[NDArray[Any]], NDArray[Any]]) -> EngineState:
        """The state with `function` applied to each array."""
        return EngineState(*(function(array) for array in self))


class Summary(NamedTuple):
    """Statistics over the runs that have not diverged, at each checkpoint."""

    mean: Floats  # (C,)
    standard_error: Floats  # (C,)
    quantiles: Floats  # (5, C) for QUANTILES
    n_diverged: NDArray[np.int64]  # (C,) runs left out because they have diverged
    n_runs: int

    def __repr__(self) -> str:
        fall, n = _describe_fall(self.mean, self.standard_error), len(self.mean)
        note = f", {self.n_diverged[-1]:,} diverged" if n and self.n_diverged[-1] else ""
        return f"Summary({plural(self.n_runs, 'run')}{note}, {plural(n, 'checkpoint')}; mean {fall})"


@dataclass(frozen=True, eq=False)
class Result:
    """Curves of independent runs. The arrays are read-only.

    `provenance` names the algorithm, the problem's digest, the sampling, the seed and the versions.
    """

    n_gradients: NDArray[np.int64]  # (C,) pseudo-gradients as the paper counts them
    n_samples: NDArray[np.int64]  # (C,) transitions drawn
    metrics: tuple[str, ...]
    curves: Floats  # (n_runs, C, n_metrics); NaN from the checkpoint on at which a run is seen to diverge
    theta: Floats  # (n_runs, d) what the algorithm returns at the end; NaN for a diverged run
    diverged_at: NDArray[np.int64]  # (n_runs,) pseudo-gradients at which the run was first seen to have diverged, or -1
    provenance: Mapping[str, Any]
    state: EngineState = field(repr=False)

    def __post_init__(self) -> None:
        for array in (self.n_gradients, self.n_samples, self.curves, self.theta, self.diverged_at, *self.state):
            array.flags.writeable = False

    @property
    def n_runs(self) -> int:
        return len(self.theta)

    @property
    def status(self) -> NDArray[np.str_]:
        """(n_runs,) "ok" or "diverged"; a diverged run calls for a smaller step size or a projection."""
        return np.where(self.diverged_at < 0, "ok", "diverged")

    def values(self, metric: str) -> Floats:
        """(n_runs, C)"""
        name = check_choice("metric", metric, self.metrics)
        return self.curves[:, :, self.metrics.index(name)]

    def summary(self, metric: str | None = None) -> Summary:
        """Mean, standard error and quantiles over runs, with the number of runs that have diverged and are left out."""
        values = self.values(metric if metric is not None else self._first_metric())
        mean, standard_error, count = _average(values)
        alive = np.isfinite(values)
        quantiles = np.full((len(QUANTILES), values.shape[1]), np.nan)
        whole, some = count == self.n_runs, (count > 0) & (count < self.n_runs)  # many times faster without NaN
        quantiles[:, whole] = np.quantile(values[:, whole], QUANTILES, axis=0)
        quantiles[:, some] = np.nanquantile(np.where(alive, values, np.nan)[:, some], QUANTILES, axis=0)
        return Summary(mean, standard_error, quantiles, self.n_runs - count, self.n_runs)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        metric: str | None = None,
        x: Literal["n_gradients", "n_samples"] = "n_gradients",
        label: str | None = None,
    ) -> Axes:
        """The mean over runs with a band of two standard errors; `ax.figure.savefig` writes it to a file.

        The label names the algorithm and its settings unless another is given.
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
        """Write one .npz file without pickled objects, at once or not at all."""
        header = {"format": _FORMAT, "metrics": self.metrics, "provenance": dict(self.provenance)}
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays |= {f"state_{name}": array for name, array in self.state._asdict().items()}
        write_arrays(path, header, arrays)

    def columns(self, metric: str | None = None) -> dict[str, list[Any]]:
        """The summary of a metric over the checkpoints as lists of plain numbers; None where there is no finite one."""
        summary = self.summary(metric)
        statistics = (summary.mean, summary.standard_error, *summary.quantiles)
        plain = ([value if isfinite(value) else None for value in column.tolist()] for column in statistics)
        columns = (self.n_gradients.tolist(), self.n_samples.tolist(), *plain, summary.n_diverged.tolist())
        return dict(zip(COLUMNS, columns, strict=True))

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the summary of every metric as a table: the data behind a figure."""
        lines = [CSV_HEADER]
        for metric in self.metrics:
            rows = zip(*self.columns(metric).values(), strict=True)
            lines += [",".join([metric, *("" if cell is None else repr(cell) for cell in row)]) for row in rows]
        with write_at_once(path) as file:
            file.write("\n".join([*lines, ""]).encode())

    def _first_metric(self) -> str:
        do = "simulate with metrics=(...), or look at theta"
        require(self.metrics, "a metric must have been recorded", "none", do)
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
        """How many runs there are, or how the curve was computed."""
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
    with np.errstate(all="ignore"):  # 0 runs have no mean, 1 run has no standard error, huge errors have inf
        mean = shift + np.where(alive, values - shift, 0.0).sum(axis=0) / count  # equal values: exactly their mean
        spread = np.where(alive, values - mean, 0.0)
        standard_error = np.sqrt((spread**2).sum(axis=0) / (count - 1) / count)
    return mean, standard_error, count


def _describe_fall(mean: Floats, standard_error: Floats) -> str:
    """Return the first mean and the last one, with its standard error where there is one."""
    if not len(mean):
        return "of nothing"
    error = f" ± {standard_error[-1]:.2g}" if isfinite(standard_error[-1]) else ""
    return f"{mean[0]:.4g} -> {mean[-1]:.4g}{error}"


def load(path: str | os.PathLike[str]) -> Result:
    """Read a result that `Result.save` wrote."""
    check_regular(path)
    content = Path(path).read_bytes()
    try:
        header, arrays = read_arrays(content, _FORMAT)
        state = EngineState(*(arrays[f"state_{name}"] for name in EngineState._fields))
        n_gradients, n_samples, curves, theta, diverged_at = (arrays[name] for name in _ARRAYS)
        metrics, provenance = tuple(header["metrics"]), dict(header["provenance"])
        n_runs, n_checkpoints = len(theta), len(n_gradients)
        lengths = {len(array) for array in (diverged_at, *state)}
        expected = (n_runs, n_checkpoints, len(metrics)), (n_checkpoints,), {n_runs}
        if (curves.shape, n_samples.shape, lengths) != expected:
            raise ValueError("arrays whose shapes do not agree")
    except Exception as error:
        raise ResultFileError(
            f"{path} must be a result that this version of vrtd wrote; got a file that does not read as one ({error}); "
            "check the path, or run the simulation again"
        ) from error
    return Result(n_gradients, n_samples, metrics, curves, theta, diverged_at, provenance, state)
