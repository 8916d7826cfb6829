"""A process that measures cells: `python -m vrtd.comparison.worker`, told what to do by a JSON object on its input.

It prints a line for each share of its work that is done. Cells are files, so whatever ends it, what is finished stays.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from vrtd.comparison.cell import Plan, measure_cell
from vrtd.comparison.entrants import ENTRANTS
from vrtd.comparison.problems import PROBLEMS
from vrtd.experiments import store

__all__ = ["cell_path", "cell_settings", "work"]


def cell_path(folder: Path, problem: str, entrant: str) -> Path:
    return folder / f"{problem}-{entrant}.json"


def cell_settings(plan: Plan, problem: str, entrant: str) -> dict[str, Any]:
    """All that decides a cell, beside the code."""
    return {**vars(plan), "problem": problem, "entrant": entrant}


def work(plan: Plan, cells: Iterable[Sequence[str]], folder: Path, tell: Callable[[str, str, float], None]) -> None:
    """Measure these (problem, entrant, digest) and keep each as soon as it is finished."""
    loaded: dict[str, Any] = {}
    for problem, entrant, digest in cells:
        if problem not in loaded:
            loaded[problem] = PROBLEMS[problem].load()
        settings = cell_settings(plan, problem, entrant)
        measured = measure_cell(loaded[problem], ENTRANTS[entrant], plan, partial(tell, problem, entrant))
        record = {"digest": digest, "settings": settings, "cell": measured}
        store.write_record(record, cell_path(folder, problem, entrant))


def main() -> None:
    def tell(problem: str, entrant: str, share: float) -> None:
        print(json.dumps([problem, entrant, share]), flush=True)

    try:
        task = json.loads(sys.stdin.read())
    except ValueError:  # the process that waits for this one was interrupted before it had told all
        sys.exit(130)
    try:
        work(Plan(**task["plan"]), task["cells"], Path(task["folder"]), tell)
    except (KeyboardInterrupt, BrokenPipeError):  # the process that waits for this one is interrupted, or gone
        sys.exit(130)


if __name__ == "__main__":
    main()
