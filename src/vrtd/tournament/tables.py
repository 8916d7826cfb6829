"""The cells of a tournament as tidy tables: a row for each thing that was measured."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from vrtd.tables import Table, table

Cells = Mapping[tuple[str, str], Mapping[str, Any]]


def curve_table(cells: Cells) -> Table:
    """Mean error over the reported runs, against what it took."""
    return table(
        {
            **labels,
            "metric": found["metric"],
            "n_samples": found["n_samples"][i],
            "n_gradients": n_gradients,
            "seconds": n_gradients * cell["seconds_per_gradient"],
            "mean": found["mean"][i],
            "standard_error": found["standard_error"][i],
            "n_diverged": found["n_diverged"][i],
            "n_runs": len(found["finals"]),
            "initial_error": found["initial_error"],
            "least_error": found["least_error"],
        }
        for labels, cell, found in _each(cells)
        for i, n_gradients in enumerate(found["n_gradients"])
    )


def tuning_table(cells: Cells) -> Table:
    """Every setting that was tried; `is_shown` are those that differ from the chosen one in the main field alone."""
    return table(
        {
            **labels,
            "trial": i,
            "main_field": cell["main"],
            "main": cell["trials"][i]["main"],
            "settings": json.dumps(cell["trials"][i]["settings"], sort_keys=True),
            **trial,
            "is_chosen": i == found["chosen"],
            "is_shown": bool(cell["main"])
            and cell["trials"][i]["combination"] == cell["trials"][found["chosen"]]["combination"],
        }
        for labels, cell, found in _each(cells)
        for i, trial in enumerate(found["trials"])
    )


def run_table(cells: Cells) -> Table:
    """The error at the end of each reported run."""
    return table(
        {**labels, "run": run, "error": error}
        for labels, _, found in _each(cells)
        for run, error in enumerate(found["finals"])
    )


def _each(cells: Cells) -> Iterator[tuple[dict[str, str], Mapping[str, Any], Mapping[str, Any]]]:
    for (problem, entrant), cell in cells.items():
        for aim, found in cell["aims"].items():
            yield {"problem": problem, "aim": aim, "algorithm": entrant}, cell, found
