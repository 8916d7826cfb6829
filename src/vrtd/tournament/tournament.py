"""All cells of a tournament: those that are there are kept, the others are shared out among processes.

Cells with a simulator or an algorithm of the caller's own code run in the calling process, before the others.

Processes and not threads, because most of a short tournament is compilation, which takes one thread of a process at a
time.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import vrtd
from vrtd import store
from vrtd.errors import VrtdError
from vrtd.tournament.cell import TournamentSize
from vrtd.tournament.worker import Cell, cell_path, cell_settings, work

Name = tuple[str, str]  # of a cell: problem, entrant
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")  # the same bits on any machine


def cells_in(size: TournamentSize, cells: Sequence[Cell], folder: Path) -> dict[Name, dict[str, Any]]:
    """Those that were measured with this size by this code and are undamaged."""
    found = {}
    for cell in cells:
        record = store.read_record(cell_path(folder, cell))
        if record is not None and record["digest"] == store.digest(cell_settings(size, cell)):
            found[_name(cell)] = record["cell"]
    return found


def _name(cell: Cell) -> Name:
    problem, entrant = cell
    return problem.name, entrant.name


def measure(
    size: TournamentSize,
    cells: Sequence[Cell],
    folder: Path,
    processes: int,
    progress: Callable[[float, str], None] | None,
) -> dict[Name, dict[str, Any]]:
    """All these cells. Ctrl-C, or an error, ends the processes; what they have finished is in the folder."""
    done = dict.fromkeys(cells_in(size, cells, folder), 1.0)
    missing = [cell for cell in cells if _name(cell) not in done]

    def tell(problem: str, entrant: str, share: float) -> None:
        done[problem, entrant] = share
        if progress is not None:
            progress(sum(done.values()) / len(cells), f"{entrant} on {problem}")

    local = [cell for cell in missing if cell[0].is_local or cell[1].is_local]
    work(size, _with_digests(size, local), folder, tell)
    # All problems of an entrant in one process: its loop is compiled once.
    others = [cell for cell in missing if not (cell[0].is_local or cell[1].is_local)]
    entrants = list(dict.fromkeys(entrant.name for _, entrant in others))
    hands: list[list[Cell]] = [[] for _ in range(min(processes, len(entrants)))]
    for i, name in enumerate(entrants):
        hands[i % len(hands)] += [cell for cell in others if cell[1].name == name]
    news: SimpleQueue[Any] = SimpleQueue()  # lines of all workers, and None where one has no more to say
    workers: list[subprocess.Popen[bytes]] = []
    listeners: list[Thread] = []
    try:
        for hand in hands:
            workers.append(_start(size, hand, folder))
            listeners.append(Thread(target=_listen, args=(workers[-1], news), daemon=True))
            listeners[-1].start()
        n_working = len(workers)
        while n_working and not any(worker.poll() for worker in workers):
            line = news.get()
            if line is None:
                n_working -= 1
                continue
            tell(*json.loads(line))
        codes = [worker.wait() for worker in workers if worker.poll() is not None or not n_working]
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()
        for thread in listeners:
            thread.join()
    if any(codes):
        raise VrtdError(
            f"every process of the comparison must end well; got exit code {next(filter(None, codes))}; "
            f"see its message above; the same command goes on from what is finished"
        )
    return cells_in(size, cells, folder)


def _with_digests(size: TournamentSize, cells: Sequence[Cell]) -> list[tuple[Cell, str]]:
    return [(cell, store.digest(cell_settings(size, cell))) for cell in cells]


def _listen(worker: subprocess.Popen[bytes], news: SimpleQueue[Any]) -> None:
    assert worker.stdout is not None
    with worker.stdout as lines:
        for line in lines:
            news.put(line)
    worker.wait()
    news.put(None)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """A process that is started inside never sees Ctrl-C, which a terminal sends to all of them: this one ends it."""
    if sys.platform == "win32":  # has no such masks
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(size: TournamentSize, hand: list[Cell], folder: Path) -> subprocess.Popen[bytes]:
    # This very package and its libraries, and nothing that lies in the current folder (-P).
    path = str(Path(vrtd.__file__).parents[1]), os.environ.get("PYTHONPATH")
    with _deaf_to_interrupts():
        worker = subprocess.Popen(
            [sys.executable, "-P", "-m", "vrtd.tournament.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict.fromkeys(_ONE_THREAD, "1") | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
        )
    assert worker.stdin is not None
    with worker.stdin as file:
        pickle.dump((size, _with_digests(size, hand), folder.resolve()), file)
    return worker
