"""Measurement of all cells of a tournament: finished cells are kept, and an executor computes the others.

Cells with a simulator, with an algorithm of the caller's own class, or on a GPU run first, in the calling process, one
after the other: a cell with enough runs to gain from a GPU fills it.

Without an executor, processes of this machine share the cells, and not threads, because most of a short tournament is
compilation, which uses one thread per process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from vrtd import store
from vrtd.engine.device import DeviceName
from vrtd.executors import ProcessExecutor, run_tasks
from vrtd.lazy import cached_property
from vrtd.tournament.cell import Cell, Cells, TournamentSize, measure_cell
from vrtd.tournament.entrants import Entrant
from vrtd.tournament.problems import Loaded, TournamentProblem

Pair = tuple[TournamentProblem, Entrant]  # of one cell


@dataclass(frozen=True)
class Tournament:
    """What a process needs to measure any of some cells. It loads a problem once."""

    size: TournamentSize
    problems: Mapping[str, TournamentProblem]
    entrants: Mapping[str, Entrant]

    @cached_property
    def loaded(self) -> dict[str, Loaded]:
        """The problems that this process has loaded, by name."""
        return {}


def measure_pair(
    tournament: Tournament,
    problem: str,
    entrant: str,
    tell: Callable[[float], None] = lambda _: None,
    device: DeviceName = "cpu",
) -> Cell:
    """Measure the cell of a problem and an entrant, given by their names."""
    if problem not in tournament.loaded:
        tournament.loaded[problem] = tournament.problems[problem].load()
    return measure_cell(tournament.loaded[problem], tournament.entrants[entrant], tournament.size, tell, device)


def cell_path(folder: Path, pair: Pair) -> Path:
    """Return the file of a cell."""
    problem, entrant = pair
    return folder / f"{problem.name}-{entrant.name}.json"


def cell_settings(size: TournamentSize, pair: Pair, device: DeviceName = "cpu") -> dict[str, Any]:
    """Return everything that determines a cell, except the code of this package."""
    problem, entrant = pair
    settings = {**vars(size), "problem": problem.identity or problem.name, "entrant": entrant.identity}
    used = _device_of(pair, device)
    return settings if used == "cpu" else {**settings, "device": used}  # the numbers differ by rounding


def load_cells(
    size: TournamentSize, pairs: Sequence[Pair], folder: Path, device: DeviceName = "cpu"
) -> dict[tuple[str, str], Cell]:
    """Return the undamaged cells that were measured with this size and this code."""
    cells = {}
    for pair in pairs:
        record = store.read_record(cell_path(folder, pair))
        if record is not None and record["digest"] == store.digest(cell_settings(size, pair, device)):
            cells[pair[0].name, pair[1].name] = Cell.from_json(record["cell"])
    return cells


def measure(
    size: TournamentSize,
    pairs: Sequence[Pair],
    folder: Path,
    executor: Executor | None,
    processes: int,
    progress: Callable[[float, str], None] | None,
    device: DeviceName = "cpu",
) -> Cells:
    """Return the cells of all pairs. Each is written when it is finished, and stays after Ctrl-C or an error."""
    finished = load_cells(size, pairs, folder, device)
    missing = [pair for pair in pairs if _names(pair) not in finished]
    n_done = len(pairs) - len(missing)

    def tell(pair: Pair, share: float) -> None:
        if progress is not None:
            progress((n_done + share) / len(pairs), _describe(pair))

    def keep(pair: Pair, cell: Cell) -> None:
        nonlocal n_done
        settings = cell_settings(size, pair, device)
        record = {"digest": store.digest(settings), "settings": settings, "cell": asdict(cell)}
        store.write_record(record, cell_path(folder, pair))
        n_done += 1
        tell(pair, 0.0)

    here = [pair for pair in missing if _is_local(pair, device)]
    tournament = _gather(size, here)
    for pair in here:
        keep(pair, measure_pair(tournament, *_names(pair), partial(tell, pair), _device_of(pair, device)))
    # All entrants on the first problem come first, so that most loops are compiled once and then loaded from the cache.
    there = [pair for pair in missing if not _is_local(pair, device)]
    if there:
        tasks = [_names(pair) for pair in there]
        workers = ProcessExecutor(min(processes, len(there))) if executor is None else nullcontext(executor)
        with workers as running:
            for i, cell in run_tasks(running, measure_pair, _gather(size, there), tasks, lambda i: _describe(there[i])):
                keep(there[i], cell)
    return load_cells(size, pairs, folder, device)


def _gather(size: TournamentSize, pairs: Sequence[Pair]) -> Tournament:
    return Tournament(size, {each.name: each for each, _ in pairs}, {each.name: each for _, each in pairs})


def _names(pair: Pair) -> tuple[str, str]:
    return pair[0].name, pair[1].name


def _describe(pair: Pair) -> str:
    return f"{pair[1].name} on {pair[0].name}"


def _is_local(pair: Pair, device: DeviceName) -> bool:
    return any(each.is_local for each in pair) or _device_of(pair, device) != "cpu"


def _device_of(pair: Pair, device: DeviceName) -> DeviceName:
    """Return the device for a cell: the CPU if each run has a data set of its own, because it would be one launch."""
    return "cpu" if pair[1].uses_data_set else device
