"""The measurements of a tournament as tidy tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from vrtd.tables import Table, table
from vrtd.tournament.cell import AimResult, Cell, Cells
from vrtd.tournament.entrants import Entrant
from vrtd.tournament.standings import Standing


def make_tables(
    cells: Cells, standings: Mapping[str, Sequence[Standing]], entrants: Mapping[str, Entrant]
) -> dict[str, Table]:
    """Return all tables of a tournament by name."""
    ranks = table(
        {"aim": aim} | standing._asdict() | {"is_tuned": entrants[standing.algorithm].given is None}
        for aim, ranked in standings.items()
        for standing in ranked
    )
    return {
        "curves": curve_table(cells),
        "tuning": tuning_table(cells),
        "runs": run_table(cells),
        "ranks": ranks,
    }


def curve_table(cells: Cells) -> Table:
    """Return the mean error over the reported runs per checkpoint, with samples, pseudo-gradients and seconds."""
    return table(
        {
            **labels,
            "metric": result.metric,
            "n_samples": result.n_samples[i],
            "n_gradients": n_gradients,
            "seconds": n_gradients * cell.seconds_per_gradient,
            "mean": result.mean[i],
            "standard_error": result.standard_error[i],
            "n_diverged": result.n_diverged[i],
            "n_runs": len(result.finals),
            "initial_error": result.initial_error,
            "least_error": result.least_error,
        }
        for labels, cell, result in _results(cells)
        for i, n_gradients in enumerate(result.n_gradients)
    )


def tuning_table(cells: Cells) -> Table:
    """Return every trial; `is_shown` marks those that differ from the chosen one in the main field only."""
    return table(
        {
            **labels,
            "trial": i,
            "main_field": cell.main_field,
            "main": cell.main[i],
            "settings": json.dumps(settings, sort_keys=True),
            "error": result.trial_error[i],
            "standard_error": result.trial_standard_error[i],
            "n_diverged": result.trial_n_diverged[i],
            "is_chosen": i == result.chosen,
            "is_shown": bool(cell.main_field) and cell.combination[i] == cell.combination[result.chosen],
        }
        for labels, cell, result in _results(cells)
        for i, settings in enumerate(cell.settings)
    )


def run_table(cells: Cells) -> Table:
    """Return the final error of each reported run."""
    return table(
        {**labels, "run": run, "error": error}
        for labels, _, result in _results(cells)
        for run, error in enumerate(result.finals)
    )


def _results(cells: Cells) -> Iterator[tuple[dict[str, str], Cell, AimResult]]:
    for (problem, algorithm), cell in cells.items():
        for aim, result in cell.aims.items():
            yield {"problem": problem, "aim": aim, "algorithm": algorithm}, cell, result
