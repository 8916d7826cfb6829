"""Attacks of the campaign that end processes: kills at every step on the disk and at random times, signals, a soak.

    python benchmarks/campaign_kills.py [--quick] [--seed 0] [--commands evaluate ...]

Each command runs in a forked child, which loads no library again. A step is everything that changes a file of the
output folder: opening for writing, flushing to the disk, renaming, removing. A child is killed before its i-th step, or
after a random time. Then the same command runs again, and may be killed again, until it ends by itself. The results are
then compared, bit for bit, with those of a run that was never disturbed. Times that a result holds are left out.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

from campaign_table import Row, format_table

import vrtd
from vrtd.cli import main as command_line

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "shutil.rmtree", "ctypes.dlsym"}
_LIMIT = 60.0  # seconds that a child may take
_KILLED = -signal.SIGKILL
_ENDS = {0, 130, 143, 129, -signal.SIGINT, -signal.SIGTERM, -signal.SIGHUP}
Results = Mapping[str, bytes]


class Job(NamedTuple):
    """Command that writes a folder and can be resumed there."""

    name: str
    work: Callable[[Path], Any]
    read: Callable[[Path], Results]  # what has to be equal in the end
    prepare: Callable[[Path], Any] = lambda _: None  # an earlier result in the same folder
    is_atomic: bool = False  # a crash leaves the earlier result or the new one


def call(*arguments: str) -> Callable[[Path], Any]:
    """Return a function that calls the command line with a folder."""
    return lambda folder: command_line([*arguments, "--quiet", "--out", str(folder / "out")])


def all_files(folder: Path) -> Results:
    out = folder / "out"
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def read_reproduction(folder: Path) -> Results:
    """Return tables, figures and verdicts; records hold the time that they cost."""
    return {name: data for name, data in all_files(folder).items() if name.endswith((".csv", ".svg", "claims.json"))}


def read_sweep(folder: Path) -> Results:
    return {name: data for name, data in all_files(folder).items() if name.endswith(".csv")}


def read_comparison(folder: Path) -> Results:
    """Return the cells without their times, and the ranks."""
    files, kept = all_files(folder), {}
    for name, data in files.items():
        if name.startswith("cells/"):
            cell = json.loads(data)["cell"]
            cell.pop("seconds_per_gradient", None)
            kept[name] = repr(_without_seconds(cell)).encode()
        elif name.startswith("data/") and not name.endswith("seconds.csv"):
            kept[name] = b"" if b"seconds" in data else data
    return kept


def _without_seconds(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_seconds(item) for key, item in value.items() if "second" not in key}
    return [_without_seconds(item) for item in value] if isinstance(value, list) else value


def compare(folder: Path) -> int:
    """Compare two algorithms, in a thread, because processes would load the libraries again after every kill."""
    size = vrtd.tournament.TournamentSize(n_samples=200, n_runs=2, n_trials=4, n_tuning_runs=2, n_passes=2)
    with ThreadPoolExecutor(1) as executor:
        vrtd.compare(["random-mdp"], ["td", "recursive_lstd"], size=size, out=folder / "out", executor=executor)
    return 0


LAKE = ("evaluate", "--env", "FrozenLake-v1", "--discount", "0.5", "--samples")
SMALL = ("--algorithms", "td", "recursive_lstd", "--problems", "random-mdp", "--threads", "1")
STEPS = ("sweep", "--algorithm", "td", "--step-size", "0.01,0.1", "--problem", "boyan_chain", "--runs", "2")
JOBS = (
    Job("evaluate", call(*LAKE, "1000"), all_files, call(*LAKE, "600"), is_atomic=True),
    Job("sweep --out", call(*STEPS, "--gradients", "100"), read_sweep),
    Job("reproduce --quick", call("reproduce", "random-mdp-iid", "--quick"), read_reproduction),
    Job("compare in a thread", compare, read_comparison),
    Job("compare --quick", call("compare", "--quick", *SMALL), read_comparison),
)
# Number of kills at a step, at random steps and at random times, and of signals.
SIZES = {
    "evaluate": (1000, 200, 60, 45),
    "sweep --out": (1000, 250, 100, 45),
    "reproduce --quick": (1000, 120, 50, 12),
    "compare in a thread": (1000, 120, 50, 12),
    "compare --quick": (6, 6, 6, 3),  # worker processes load the libraries again
}
QUICK = {"evaluate": (8, 5, 0, 3), "sweep --out": (8, 5, 0, 3)}


# Children


def run(job: Job, folder: Path, at: int = 0, after: float = 0.0, sign: int = signal.SIGKILL) -> tuple[int, int]:
    """Run a job in a child, and return its exit code, negative for a signal, and its number of steps.

    The child is killed before step number `at`, or receives a signal after some seconds.
    """
    receive, send = os.pipe()
    child = os.fork()
    if not child:
        os.close(receive)
        os._exit(_serve(job, folder, at, send))
    os.close(send)
    if after:
        time.sleep(after)
        with suppress(ProcessLookupError):
            os.kill(child, sign)
    ends = time.monotonic() + _LIMIT
    while (done := os.waitpid(child, os.WNOHANG))[0] == 0:
        if time.monotonic() > ends:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise TimeoutError(f"{job.name} hangs")
        time.sleep(0.002)
    with os.fdopen(receive) as count:
        return os.waitstatus_to_exitcode(done[1]), int(count.read() or 0)


def _serve(job: Job, folder: Path, at: int, send: int) -> int:
    """Run a job in this process, and return its exit code. Its number of steps is written to a pipe."""
    n_steps = 0

    def step() -> None:
        nonlocal n_steps
        n_steps += 1
        if n_steps == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            is_change = str(arguments[0]).startswith(str(folder)) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        else:
            is_change = event in _CHANGES
        if is_change:
            step()

    flush = os.fsync

    def fsync(handle: int) -> None:
        step()
        flush(handle)

    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_DFL)
    os.fsync = fsync
    sys.addaudithook(watch)
    sys.stdout = sys.stderr = io.StringIO()
    try:
        code = job.work(folder)
        os.write(send, str(n_steps).encode())
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.__stderr__, flush=True)
        return 1
    return int(code)


# Attacks


class Target:
    """A job with its undisturbed results, and the number of steps and the seconds that it takes."""

    def __init__(self, job: Job) -> None:
        self.job, folder = job, Path(tempfile.mkdtemp())
        self.before = folder / "before"
        self.before.mkdir()
        with redirect_stdout(io.StringIO()):  # in this process, which compiles for all children
            job.prepare(self.before)
            self.old = all_files(self.before)
            shutil.copytree(self.before, folder / "whole")
            job.work(folder / "whole")
        self.new, self.wanted = all_files(folder / "whole"), job.read(folder / "whole")
        shutil.copytree(self.before, folder / "count")
        clock = time.perf_counter()
        code, self.n_steps = run(job, folder / "count")
        self.seconds = time.perf_counter() - clock
        if code or job.read(folder / "count") != self.wanted:
            raise RuntimeError(f"{job.name} has other results in a child")

    def is_whole(self, folder: Path) -> bool:
        """Return whether a crash left the earlier result or the new one, for jobs that promise this."""
        return not self.job.is_atomic or all_files(folder) in (self.old, self.new)

    def is_right(self, folder: Path) -> bool:
        """Return whether the results are the undisturbed ones, and nothing else is left."""
        return self.job.read(folder) == self.wanted and not any(
            path.name.endswith((".tmp", ".vrtd-new")) for path in folder.rglob("*")
        )


@contextmanager
def fresh(target: Target) -> Iterator[Path]:
    """Return a context with a new folder that holds the earlier result."""
    folder = Path(tempfile.mkdtemp(dir=target.before.parent))
    try:
        shutil.copytree(target.before, folder, dirs_exist_ok=True)
        yield folder
    finally:
        shutil.rmtree(folder)


def kill_at_steps(target: Target, steps: Sequence[int]) -> Row:
    """Kill before each of these steps, and resume once."""
    n_mixed = n_wrong = n_kills = 0
    for at in steps:
        with fresh(target) as folder:
            n_kills += run(target.job, folder, at)[0] == _KILLED
            n_mixed += not target.is_whole(folder)
            n_wrong += run(target.job, folder)[0] != 0 or not target.is_right(folder)
    return _row(f"kill {target.job.name} at a step", n_kills, n_wrong, n_mixed)


def kill_until_done(target: Target, n_kills: int, draw: random.Random, at_times: bool) -> Row:
    """Kill at random steps or times, again and again, until the job ends by itself."""
    n_done = n_mixed = n_wrong = 0
    while n_done < n_kills:
        with fresh(target) as folder:
            code = _KILLED
            while code == _KILLED:
                if at_times:
                    code, _ = run(target.job, folder, after=draw.uniform(0.0, 1.2 * target.seconds))
                else:
                    code, _ = run(target.job, folder, draw.randint(1, round(1.2 * target.n_steps)))
                n_done += code == _KILLED
                n_mixed += not target.is_whole(folder)
            n_wrong += code != 0 or not target.is_right(folder)
    when = "at random times" if at_times else "at random steps"
    return _row(f"kill {target.job.name} {when}", n_done, n_wrong, n_mixed)


def send_signals(target: Target, n_signals: int, draw: random.Random) -> Row:
    """Send SIGINT, SIGTERM and SIGHUP at random times, and resume once."""
    n_wrong, codes = 0, Counter[int]()
    for i in range(n_signals):
        with fresh(target) as folder:
            sign = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)[i % 3]
            code, _ = run(target.job, folder, after=draw.uniform(0.0, target.seconds), sign=sign)
            codes[code] += 1
            n_wrong += code not in _ENDS
            n_wrong += run(target.job, folder)[0] != 0 or not target.is_right(folder)
    told = ", ".join(f"{n} x {code}" for code, n in sorted(codes.items()))
    return Row(f"signal to {target.job.name}", n_signals, f"{n_wrong} final differences; exit codes {told}", n_wrong)


def _row(attack: str, n_kills: int, n_wrong: int, n_mixed: int) -> Row:
    return Row(attack, n_kills, f"{n_wrong} final differences, {n_mixed} mixtures before", n_wrong + n_mixed)


def soak(n_rounds: int) -> Row:
    """Simulate, save, load, fit and refuse a damaged file again and again: memory and descriptors stay the same."""
    problem, sizes = vrtd.problems.random_mdp(n_states=10), []
    rows = vrtd.record(problem, 500, shuffle=False)
    with tempfile.TemporaryDirectory() as folder:
        path, bad = Path(folder) / "result.npz", Path(folder) / "bad.npz"
        for _ in range(n_rounds):
            result = vrtd.simulate(problem, vrtd.TD(0.1), n_runs=2, n_gradients=100)
            result.save(path)
            bad.write_bytes(path.read_bytes()[:-40])
            vrtd.load(path)
            with suppress(vrtd.errors.ResultFileError):
                vrtd.load(bad)
            evaluator = vrtd.Evaluator(discount=0.9, features="identity", pilot_rows=100)
            evaluator.fit(vrtd.logs.from_arrays(rows.phi, rows.reward, rows.phi_next)).save(path)
            vrtd.Evaluator.load(path).predict(rows.phi[:5])
            gc.collect()
            sizes.append((_resident(), len(os.listdir("/proc/self/fd"))))
    (early, n_early), (late, n_late) = sizes[n_rounds // 3], sizes[-1]
    failed = int(late > early + 8) + int(n_late > n_early)
    return Row("soak", n_rounds, f"{early:.0f} -> {late:.0f} MiB, {n_early} -> {n_late} descriptors", failed)


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def attacks(quick: bool, seed: int, names: Sequence[str] = ()) -> list[Row]:
    """Run the attacks on these commands, or on all, and return their rows; about 1,000 kills, or a few if ``quick``."""
    draw, rows = random.Random(seed), []
    for job in JOBS:
        if (names and job.name not in names) or job.name not in (QUICK if quick else SIZES):
            continue
        n_first, n_steps, n_times, n_signals = (QUICK if quick else SIZES)[job.name]
        target = Target(job)
        try:
            every = range(1, target.n_steps + 1)
            rows.append(kill_at_steps(target, sorted(draw.sample(every, min(n_first, len(every))))))
            rows.append(kill_until_done(target, n_steps, draw, at_times=False))
            if n_times:
                rows.append(kill_until_done(target, n_times, draw, at_times=True))
            rows.append(send_signals(target, n_signals, draw))
        finally:
            shutil.rmtree(target.before.parent)
    return [*rows, soak(20 if quick else 200)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few kills of two commands")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--commands", nargs="+", default=(), choices=[job.name for job in JOBS])
    arguments = parser.parse_args()
    rows = attacks(arguments.quick, arguments.seed, arguments.commands)
    print(format_table(rows))
    return int(any(row.failures for row in rows))


if __name__ == "__main__":
    sys.exit(main())
