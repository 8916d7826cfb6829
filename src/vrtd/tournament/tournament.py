"""Measurement of all cells of a tournament: finished cells are kept, and processes share the others.

Cells with a simulator, or with an algorithm of the caller's own class, run first, in the calling process.

Processes are used instead of threads because most of a short tournament is compilation, which uses one thread per
process.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

import vrtd
from vrtd import store
from vrtd.errors import VrtdError
from vrtd.tournament.cell import Cell, Cells, TournamentSize, measure_cell
from vrtd.tournament.entrants import Entrant
from vrtd.tournament.problems import TournamentProblem

Pair = tuple[TournamentProblem, Entrant]  # of one cell
# Each is set to 1, so that results are the same on any machine.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def cell_path(folder: Path, pair: Pair) -> Path:
    """Return the file of a cell."""
    problem, entrant = pair
    return folder / f"{problem.name}-{entrant.name}.json"


def cell_settings(size: TournamentSize, pair: Pair) -> dict[str, Any]:
    """Return everything that determines a cell, except the code of this package."""
    problem, entrant = pair
    return {**vars(size), "problem": problem.identity or problem.name, "entrant": entrant.identity}


def work(
    size: TournamentSize, pairs: Iterable[tuple[Pair, str]], folder: Path, tell: Callable[[str, str, float], None]
) -> None:
    """Measure cells and write each one, with the digest of its settings, as soon as it is finished."""
    loaded: dict[str, Any] = {}
    for (problem, entrant), digest in pairs:
        if problem.name not in loaded:
            loaded[problem.name] = problem.load()
        cell = measure_cell(loaded[problem.name], entrant, size, partial(tell, problem.name, entrant.name))
        settings = cell_settings(size, (problem, entrant))
        record = {"digest": digest, "settings": settings, "cell": asdict(cell)}
        store.write_record(record, cell_path(folder, (problem, entrant)))


def load_cells(size: TournamentSize, pairs: Sequence[Pair], folder: Path) -> dict[tuple[str, str], Cell]:
    """Return the undamaged cells that were measured with this size and this code."""
    cells = {}
    for pair in pairs:
        record = store.read_record(cell_path(folder, pair))
        if record is not None and record["digest"] == store.digest(cell_settings(size, pair)):
            cells[pair[0].name, pair[1].name] = Cell.from_json(record["cell"])
    return cells


def measure(
    size: TournamentSize,
    pairs: Sequence[Pair],
    folder: Path,
    processes: int,
    progress: Callable[[float, str], None] | None,
) -> Cells:
    """Return the cells of all pairs; Ctrl-C or an error ends the processes and keeps finished cells in the folder."""
    done = dict.fromkeys(load_cells(size, pairs, folder), 1.0)
    missing = [
        ((problem, entrant), store.digest(cell_settings(size, (problem, entrant))))
        for problem, entrant in pairs
        if (problem.name, entrant.name) not in done
    ]

    def tell(problem: str, entrant: str, share: float) -> None:
        done[problem, entrant] = share
        if progress is not None:
            progress(sum(done.values()) / len(pairs), f"{entrant} on {problem}")

    work(size, [each for each in missing if _is_local(each[0])], folder, tell)
    # One process measures all problems of an entrant, so that its loop is compiled once.
    tasks: dict[str, list[tuple[Pair, str]]] = {}
    for each in missing:
        if not _is_local(each[0]):
            tasks.setdefault(each[0][1].name, []).append(each)
    lines: SimpleQueue[bytes | None] = SimpleQueue()  # from all workers; None when a worker has ended
    workers: list[subprocess.Popen[bytes]] = []
    listeners: list[Thread] = []
    try:
        for i in range(min(processes, len(tasks))):
            mine = [each for task in list(tasks.values())[i::processes] for each in task]
            workers.append(_start((size, mine, folder.resolve())))
            listeners.append(Thread(target=_listen, args=(workers[-1], lines), daemon=True))
            listeners[-1].start()
        n_working = len(workers)
        while n_working and not any(worker.poll() for worker in workers):
            line = lines.get()
            if line is None:
                n_working -= 1
            else:
                tell(*json.loads(line))
        # Either all workers have ended, or one has failed. Then the others may still be running; they are terminated
        # below and their exit codes are not needed.
        codes = [worker.wait() for worker in workers if worker.poll() is not None or not n_working]
    finally:
        for worker in workers:
            worker.terminate()
            worker.wait()
        for thread in listeners:
            thread.join()
    if any(codes):
        raise VrtdError(
            f"A worker process failed with exit code {next(filter(None, codes))} (see its message above). Finished "
            "parts are kept: run the same command to continue."
        )
    return load_cells(size, pairs, folder)


def _is_local(pair: Pair) -> bool:
    return any(each.is_local for each in pair)


def _listen(worker: subprocess.Popen[bytes], lines: SimpleQueue[bytes | None]) -> None:
    assert worker.stdout is not None
    with worker.stdout as output:
        for line in output:
            lines.put(line)
    worker.wait()
    lines.put(None)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Start processes inside without Ctrl-C, which a terminal sends to all processes; the caller terminates them."""
    if sys.platform == "win32":  # has no signal masks
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(task: tuple[TournamentSize, list[tuple[Pair, str]], Path]) -> subprocess.Popen[bytes]:
    # Import this package and its libraries, and nothing from the current folder (-P).
    path = str(Path(vrtd.__file__).parents[1]), os.environ.get("PYTHONPATH")
    with _deaf_to_interrupts():
        worker = subprocess.Popen(
            [sys.executable, "-P", "-c", "from vrtd.tournament.tournament import run_worker; run_worker()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict.fromkeys(_ONE_THREAD, "1") | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
        )
    assert worker.stdin is not None
    with worker.stdin as file:
        pickle.dump(task, file)
    return worker


def run_worker() -> None:
    """Measure the cells of a pickled task on stdin, and print a line of JSON per step of progress.

    Finished cells are files, which stay however this process ends.
    """

    def tell(problem: str, entrant: str, share: float) -> None:
        print(json.dumps([problem, entrant, share]), flush=True)

    try:
        size, pairs, folder = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the parent process
    except (EOFError, pickle.UnpicklingError):
        sys.exit(130)  # the parent process was interrupted before it had sent the whole task
    try:
        work(size, pairs, folder, tell)
    except (KeyboardInterrupt, BrokenPipeError):  # the parent process was interrupted or has ended
        sys.exit(130)
