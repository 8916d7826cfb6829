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


def draw(panels: Sequence[Axes], result: Result, problem: Mapping[str, Any]) -> Any:
    """Draw one panel per metric and return the figure."""
    for panel, metric in zip(panels, result.metrics, strict=True):
        result.plot(panel, metric=metric)
    figure = panels[0].figure
    algorithm, sampling = listed(result.provenance["algorithm"]), result.provenance["sampling"]
    title = f"{listed(problem)}\n{algorithm}; {sampling} sampling, {result.n_runs} runs"
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
