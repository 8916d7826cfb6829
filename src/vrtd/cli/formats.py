"""A result as text, JSON, CSV and a figure."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vrtd.result import Result

__all__ = ["CSV_HEADER", "as_csv", "as_json", "as_text", "draw", "write_at_once"]

_COLUMNS = ("n_gradients", "n_samples", "mean", "standard_error", "q05", "q25", "q50", "q75", "q95", "n_diverged")
CSV_HEADER = ",".join(("metric", *_COLUMNS))
_ROWS = 11


def as_json(result: Result, problem: Mapping[str, Any], files: Mapping[str, Path]) -> dict[str, Any]:
    return dict(result.provenance) | {
        "problem": {**problem, "digest": result.provenance["problem"]},
        "n_diverged": int((result.diverged_at >= 0).sum()),
        "gradients_per_second": _speed(result),
        "metrics": {metric: _columns(result, metric) for metric in result.metrics},
        "files": {kind: str(path) for kind, path in files.items()},
    }


def as_csv(result: Result) -> str:
    lines = [CSV_HEADER]
    for metric in result.metrics:
        rows = zip(*_columns(result, metric).values(), strict=True)
        lines += [",".join([metric, *("" if cell is None else repr(cell) for cell in row)]) for row in rows]
    return "\n".join(lines) + "\n"


def as_text(result: Result, problem: Mapping[str, Any]) -> str:
    made = result.provenance
    lines = [
        f"problem    {_listed(problem)}",
        f"algorithm  {_listed(made['algorithm'])}",
        f"runs       {result.n_runs}, {made['sampling']} sampling, seed {made['seed']}",
    ]
    heads = f"{'pseudo-gradients':>16}{'samples':>12}{'mean +- standard error':>27}{'median':>11}{'diverged':>10}"
    last = len(result.n_gradients) - 1
    for metric in result.metrics:
        lines += ["", metric, heads]
        columns = _columns(result, metric)
        for i in sorted({round(last * k / (_ROWS - 1)) for k in range(_ROWS)}):
            row = {name: column[i] for name, column in columns.items()}
            mean, error, median = (_number(row[name]) for name in ("mean", "standard_error", "q50"))
            spread = f"{mean:>13} +- {error:<10}"
            lines.append(f"{row['n_gradients']:>16}{row['n_samples']:>12}{spread}{median:>11}{row['n_diverged']:>10}")
    total, seconds = result.n_runs * int(result.n_gradients[-1]), made["seconds"]
    speed = f"{total:.3g} pseudo-gradients in {seconds:.3g} s, compilation included: {_speed(result):.3g} a second"
    return "\n".join([*lines, "", speed])


def draw(axes: Axes, result: Result, problem: Mapping[str, Any], file: IO[bytes], suffix: str) -> None:
    """One panel for each metric, on the figure of `axes`."""
    from vrtd.plots import PALETTE

    figure = axes.figure
    figure.clear()
    n = len(result.metrics)
    figure.set_size_inches(6.4, 1.0 + 3.0 * n)  # type: ignore[union-attr]
    for panel, metric in zip(figure.subplots(n, squeeze=False).flat, result.metrics, strict=True):
        panel.set_prop_cycle(color=list(PALETTE))
        result.plot(panel, metric=metric)
    title = f"{_listed(problem)}\n{_listed(result.provenance['algorithm'])}; {result.provenance['sampling']} sampling"
    figure.suptitle(title, fontsize="small")
    figure.savefig(file, format=suffix, dpi=150)  # type: ignore[union-attr]


@contextmanager
def write_at_once(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears when it is complete, or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _columns(result: Result, metric: str) -> dict[str, list[Any]]:
    """The summary of a metric as columns of plain numbers; None where there is no finite one."""
    summary = result.summary(metric)
    statistics = (summary.mean, summary.standard_error, *summary.quantiles)
    plain = ([value if isfinite(value) else None for value in column.tolist()] for column in statistics)
    columns = (result.n_gradients.tolist(), result.n_samples.tolist(), *plain, summary.n_diverged.tolist())
    return dict(zip(_COLUMNS, columns, strict=True))


def _listed(settings: Mapping[str, Any]) -> str:
    name, *rest = settings.items()
    return ", ".join([name[1], *(f"{key} {value}" for key, value in rest if value is not None)])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _speed(result: Result) -> float:
    return float(result.n_runs * result.n_gradients[-1] / result.provenance["seconds"])
