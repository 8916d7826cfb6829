"""Formats of a simulation result: text, JSON and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from vrtd.result import Result

_ROWS = 11


def as_json(result: Result, problem: Mapping[str, Any], files: Mapping[str, Path]) -> dict[str, Any]:
    """Return the result as plain JSON."""
    return dict(result.provenance) | {
        "problem": {**problem, "digest": result.provenance["problem"]},
        "n_diverged": int((result.diverged_at >= 0).sum()),
        "gradients_per_second": _speed(result),
        "metrics": {metric: result.columns(metric) for metric in result.metrics},
        "files": {kind: str(path) for kind, path in files.items()},
    }


def as_json_together(
    results: Mapping[str, Result], problem: Mapping[str, Any], files: Mapping[str, Path], stored: Mapping[str, Path]
) -> dict[str, Any]:
    """Return the results of several algorithms as plain JSON, with one entry each."""
    entries = {name: as_json(result, problem, {}) for name, result in results.items()}
    for name, entry in entries.items():
        entry["files"] = {"out": str(stored[name])} if name in stored else {}
    shared = {kind: str(path) for kind, path in files.items() if kind != "out"}
    return {"algorithms": entries, "files": shared}


def header_of(together: bool) -> str:
    """Return the first line of the table of curves, which for several algorithms names them in a column."""
    from vrtd.result import CSV_HEADER

    return f"algorithm,{CSV_HEADER}" if together else CSV_HEADER


def write_together(results: Mapping[str, Result], path: Path) -> None:
    """Write the table of curves of several algorithms."""
    from vrtd.files import write_at_once

    lines = [header_of(True)]
    for name, result in results.items():
        lines += [f"{name},{line}" for line in result.csv_lines()]
    with write_at_once(path) as file:
        file.write("\n".join([*lines, ""]).encode())


def as_text(result: Result, problem: Mapping[str, Any]) -> str:
    """Return the settings and a table of errors per metric."""
    provenance = result.provenance
    lines = [
        f"problem    {listed(problem)}",
        f"algorithm  {listed(provenance['algorithm'])}",
        f"runs       {result.n_runs}, {provenance['sampling']} sampling, seed {provenance['seed']}",
    ]
    heads = f"{'pseudo-gradients':>16}{'samples':>12}{'mean +- standard error':>27}{'median':>11}{'diverged':>10}"
    last = len(result.n_gradients) - 1
    for metric in result.metrics:
        lines += ["", metric, heads]
        columns = result.columns(metric)
        for i in sorted({round(last * k / (_ROWS - 1)) for k in range(_ROWS)}):
            row = {name: column[i] for name, column in columns.items()}
            mean, error, median = (_number(row[name]) for name in ("mean", "standard_error", "q50"))
            spread = f"{mean:>13} +- {error:<10}"
            lines.append(f"{row['n_gradients']:>16}{row['n_samples']:>12}{spread}{median:>11}{row['n_diverged']:>10}")
    total = result.n_runs * int(result.n_gradients[-1])
    speed = f"{total:.3g} pseudo-gradients in {provenance['seconds']:.3g} s, {_speed(result):.3g} per second"
    return "\n".join([*lines, "", speed])


def draw(panels: Sequence[Axes], results: Sequence[Result], problem: Mapping[str, Any]) -> Any:
    """Draw one panel per metric with a curve per result, and return the figure."""
    first = results[0]
    for panel, metric in zip(panels, first.metrics, strict=True):
        for result in results:
            result.plot(panel, metric=metric)
    figure = panels[0].figure
    algorithm = f"{listed(first.provenance['algorithm'])}; " if len(results) == 1 else ""
    title = f"{listed(problem)}\n{algorithm}{first.provenance['sampling']} sampling, {first.n_runs} runs"
    figure.suptitle(title, fontsize="small")
    return figure


def listed(settings: Mapping[str, Any]) -> str:
    """Return settings as text, with the name first."""
    name, *rest = settings.items()
    return ", ".join([name[1], *(f"{key} {value}" for key, value in rest if value is not None)])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _speed(result: Result) -> float:
    return float(result.n_runs * result.n_gradients[-1] / result.provenance["seconds"])
