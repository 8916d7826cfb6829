"""Repeat attacks in a bounded time, and print one table: damaged files, bad inputs, hostile files, threads, kills.

    python benchmarks/campaign.py [--quick] [--seed 0]

A failure is an outcome that the package promises never to have: other numbers without a remark, an error that is not
one of vrtd, memory beyond four times the limit of declared sizes, other bits. The exit status is 1 if there is one.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from campaign_kills import attacks as kill_attacks
from campaign_table import Row, format_table

import vrtd
from vrtd.errors import VrtdError
from vrtd.files import limit_declared
from vrtd.logs import from_arrays, read, write

Content = tuple[bytes, ...]
_MOST_MEMORY = 4 * limit_declared(0)


def read_log(path: Path) -> tuple[Content, bool]:
    """Return the bits of all rows, and whether a remark says that the file cannot be verified."""
    log = read(path)
    bits: list[bytes] = []
    for chunk in log.chunks():
        bits += [array.tobytes() for array in chunk.columns.values()]
    return tuple(bits), any("integrity" in remark for remark in log.remarks)


def read_model(path: Path) -> tuple[Content, bool]:
    """Return the bits of predictions with intervals."""
    evaluator = vrtd.Evaluator.load(path)
    value, low, high = evaluator.predict(np.linspace(-1, 1, 4)[:, None] * np.ones(2), return_interval=0.9)
    return (evaluator.theta_.tobytes(), value.tobytes(), low.tobytes(), high.tobytes()), False


def read_result(path: Path) -> tuple[Content, bool]:
    """Return the bits of the curves."""
    result = vrtd.load(path)
    return (result.curves.tobytes(), result.theta.tobytes(), repr(result.summary()).encode()), False


def whole_files(folder: Path, n: int) -> dict[str, tuple[Path, Callable[[Path], tuple[Content, bool]]]]:
    """Write a small file of each format."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n + 1, 2)).round(3)
    log = from_arrays(x[:-1], x[:-1, 0], x[1:])
    for suffix in ("parquet", "npz", "csv"):
        write(log, folder / f"log.{suffix}")
    table = pq.read_table(folder / "log.parquet")
    for version in ("1.0", "2.0"):
        options: dict[str, Any] = {"write_page_checksum": True, "row_group_size": max(4, n // 4)}
        pq.write_table(table, folder / f"groups-{version}.parquet", data_page_version=version, **options)
    with h5py.File(folder / "log.hdf5", "w") as file:
        file["observations"], file["rewards"] = x[:-1], x[:-1, 0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vrtd.Evaluator(discount=0.9, features="standardised").fit(log).save(folder / "model.npz")
    vrtd.simulate(vrtd.problems.boyan_chain(), vrtd.TD(0.1), n_runs=3, n_gradients=50).save(folder / "result.npz")
    logs = ["log.parquet", "groups-1.0.parquet", "groups-2.0.parquet", "log.npz", "log.csv", "log.hdf5"]
    files: dict[str, Any] = {name: (folder / name, read_log) for name in logs}
    return files | {"model.npz": (folder / "model.npz", read_model), "result.npz": (folder / "result.npz", read_result)}


def damage(content: bytes, r: random.Random) -> bytes:
    """Return a damaged copy."""
    changed, at, n = bytearray(content), r.randrange(len(content)), r.randrange(1, 9)
    match r.randrange(6):
        case 0:
            changed[at] ^= 1 << r.randrange(8)
        case 1:
            changed[at : at + n] = r.randbytes(n)
        case 2:
            del changed[at : at + n]
        case 3:
            changed[at:at] = r.randbytes(n)
        case 4:
            del changed[at:]
        case _:
            changed[at : at + n] = bytes(n)
    return bytes(changed)


def single_bits(content: bytes, most: int, r: random.Random) -> Iterator[bytes]:
    """Yield copies with one bit flipped: all of them, or a sample."""
    numbers = range(8 * len(content))
    for number in numbers if len(numbers) <= most else r.sample(numbers, most):
        changed = bytearray(content)
        changed[number // 8] ^= 1 << number % 8
        yield bytes(changed)


def attack_file(name: str, path: Path, load: Callable[[Path], Any], copies: Iterator[bytes]) -> Row:
    """Read damaged copies of a file, and count what happens."""
    expected, counts = load(path)[0], Counter[str]()
    victim = path.with_name(f"damaged{path.suffix}")
    for copy in copies:
        victim.write_bytes(copy)
        try:
            found, is_remarked = load(victim)
        except VrtdError:
            counts["refused"] += 1
        except Exception as error:
            counts[f"{type(error).__name__}!"] += 1
        else:
            kind = "same numbers" if found == expected else "other numbers with a remark" if is_remarked else "wrong!"
            counts[kind] += 1
    victim.unlink(missing_ok=True)
    return _row(name, counts)


def _row(name: str, counts: Counter[str]) -> Row:
    words = ", ".join(f"{n:,} {word}" for word, n in counts.most_common())
    return Row(name, counts.total(), words, sum(n for word, n in counts.items() if word.endswith("!")))


def attack_files(folder: Path, quick: bool, r: random.Random) -> Iterator[Row]:
    """Damage files at random, and in every single bit."""
    for kind, (path, load) in whole_files(folder, 40).items():
        n = 10 if quick else 1250
        content = path.read_bytes()
        yield attack_file(f"random damage, {kind}", path, load, (damage(content, r) for _ in range(n)))
    for kind, (path, load) in whole_files(folder, 8).items():
        copies = single_bits(path.read_bytes(), 25 if quick else 10**9, r)
        yield attack_file(f"single bits, {kind}", path, load, copies)


BAD = (
    None,
    True,
    -1,
    0,
    1.5,
    float("nan"),
    float("inf"),
    10**30,
    "",
    "td ",
    b"x",
    [],
    [None],
    {},
    object(),
    1j,
    np.ones(0),
)
CALLS: dict[str, Callable[[Any], Any]] = {
    "simulate(problem)": lambda bad: vrtd.simulate(bad, vrtd.TD(0.1), n_runs=1, n_gradients=10),
    "simulate(algorithm)": lambda bad: vrtd.simulate(vrtd.problems.boyan_chain(), bad, n_runs=1, n_gradients=10),
    "step_size": lambda bad: vrtd.TD(bad),
    "batch_size": lambda bad: vrtd.VRTD(0.1, bad),
    "P": lambda bad: vrtd.MarkovRewardProcess(bad, [0.0, 1.0], 0.9),
    "R": lambda bad: vrtd.MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], bad, 0.9),
    "discount": lambda bad: vrtd.Evaluator(discount=bad),
    "features": lambda bad: vrtd.Evaluator(discount=0.9, features=bad),
    "observations": lambda bad: from_arrays(bad, [1.0, 2.0]),
    "reward": lambda bad: from_arrays([1.0, 2.0], bad),
    "fit": lambda bad: vrtd.Evaluator(discount=0.9).fit(bad),
}
COMMANDS = (
    "simulate --runs -1", "simulate --runs x", "simulate --step-size nan", "simulate --problem nothing", "evaluate",
    "evaluate --env Nothing-v0 --discount 0.9", "evaluate --data missing.parquet --discount 0.9", "plan --discount 2",
    "reproduce nothing", "compare --problems nothing", "sweep --grid x", "nothing", "doctor --nothing",
)  # fmt: skip


def attack_inputs(quick: bool) -> Iterator[Row]:
    """Pass values of wrong types and sizes, and wrong words on the command line."""
    counts: Counter[str] = Counter()
    for name, call in CALLS.items():
        for bad in BAD:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    call(bad)
                counts["taken"] += 1
            except VrtdError:
                counts["typed"] += 1
            except Exception as error:
                counts[f"{name} {type(error).__name__}!"] += 1
    yield _row("bad inputs, Python", counts)
    counts = Counter()
    for command in COMMANDS[:: 4 if quick else 1]:
        done = subprocess.run([sys.executable, "-m", "vrtd", *command.split()], capture_output=True, text=True)
        counts["one line" if done.returncode == 2 and "Traceback" not in done.stderr else f"{command}!"] += 1
    yield _row("bad inputs, command line", counts)


def _bomb_npz(path: Path, n_members: int) -> None:
    zeros = bytes(2**24)
    with ZipFile(path, "w", ZIP_DEFLATED, compresslevel=1) as archive:
        for i in range(n_members):
            with archive.open(f"a{i}.npy", "w") as member:
                for _ in range(32):
                    member.write(zeros)


def make_bombs(folder: Path) -> dict[str, str]:
    """Write files that declare more than they hold or refer to other files; return the call that reads each."""
    secret = folder / "secret"
    secret.write_bytes(bytes(64))
    for name, shape in (("long.hdf5", (2**40,)), ("wide.hdf5", (64, 2**23))):
        with h5py.File(folder / name, "w") as file:
            file.create_dataset("observations", shape, np.float64)
            file.create_dataset("rewards", shape[:1], np.float64)
    with h5py.File(folder / "external.hdf5", "w") as file:
        file.create_dataset("observations", (64,), np.uint8, external=[(str(secret), 0, 64)])
        file["rewards"] = np.ones(64)
    with h5py.File(folder / "link.hdf5", "w") as file:
        file["observations"] = h5py.ExternalLink(str(folder / "wide.hdf5"), "observations")
        file["rewards"] = np.ones(64)
    values = pa.ListArray.from_arrays(pa.array([0, 2**26], pa.int32()), pa.array(np.zeros(2**26)))
    pq.write_table(pa.table({"obs": values, "r": [1.0]}), folder / "list.parquet")
    _bomb_npz(folder / "zip.npz", 4)
    path = str(folder / "zip.npz")
    calls = {name: f"list(read({str(folder / name)!r}).chunks())" for name in
             ("long.hdf5", "wide.hdf5", "external.hdf5", "link.hdf5", "list.parquet")}  # fmt: skip
    return calls | {
        "model": f"vrtd.Evaluator.load({path!r})",
        "result": f"vrtd.load({path!r})",
        "policy": f"read_policy({path!r})",
    }


CHILD = """
import json
import re
import vrtd
from vrtd.errors import VrtdError
from vrtd.estimator.evaluation_source import read_policy
from vrtd.logs import read
def largest():  # in kB, of this process alone
    return int(re.search("VmHWM:\\s*([0-9]+)", open("/proc/self/status").read())[1])
before = largest()
try:
    {call}
    outcome = "accepted!"
except VrtdError:
    outcome = "refused"
except BaseException as error:
    outcome = type(error).__name__ + "!"
print(json.dumps([outcome, (largest() - before) * 1024]))
"""


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (16 * 2**30, 16 * 2**30))


def attack_with_bombs(folder: Path) -> Iterator[Row]:
    """Read hostile files in child processes, and measure their memory."""
    counts, largest = Counter[str](), 0
    for name, call in make_bombs(folder).items():
        try:
            done = subprocess.run(
                [sys.executable, "-c", CHILD.format(call=call)],
                capture_output=True, text=True, timeout=60, preexec_fn=_limit_memory,
            )  # fmt: skip
            outcome, n_bytes = json.loads(done.stdout)
        except (subprocess.TimeoutExpired, ValueError) as error:
            outcome, n_bytes = f"{name} {type(error).__name__}!", 0
        largest = max(largest, n_bytes)
        counts[outcome if n_bytes <= _MOST_MEMORY else f"{name} took {n_bytes / 1e6:,.0f} MB!"] += 1
    row = _row("hostile files", counts)
    yield row._replace(outcome=f"{row.outcome}; at most {largest / 1e6:,.0f} of {_MOST_MEMORY / 1e6:,.0f} MB")


BITS = """
import vrtd
problem = vrtd.problems.random_mdp(seed=0)
print(vrtd.simulate(problem, vrtd.VRTD(0.1, 20), n_runs=4, n_gradients=2000, metrics=()).theta.tobytes().hex())
rows = vrtd.record(problem, 4000, shuffle=False)
log = vrtd.logs.from_arrays(rows.phi, rows.reward, rows.phi_next)
evaluator = vrtd.Evaluator(vrtd.TD(0.01), features="identity", discount=0.9, closed_form=False).fit(log)
print(evaluator.theta_.tobytes().hex())
"""


def attack_threads(quick: bool) -> Iterator[Row]:
    """Run the same work with several numbers of threads of BLAS."""
    outputs = []
    for n in ("1", "2") if quick else ("1", "2", "3", "4", "8"):
        environment = os.environ | {"OPENBLAS_NUM_THREADS": n, "PYTHONWARNINGS": "ignore"}
        outputs.append(
            subprocess.run([sys.executable, "-c", BITS], capture_output=True, text=True, env=environment).stdout
        )
    counts = Counter("same bits" if output == outputs[0] and output else "other bits!" for output in outputs)
    yield _row("threads of BLAS", counts)


def main() -> int:
    """Run all attacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="few attacks of each kind")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    r, rows = random.Random(arguments.seed), list[Row]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for found in (
            attack_files(folder, arguments.quick, r),
            attack_inputs(arguments.quick),
            attack_with_bombs(folder),
            attack_threads(arguments.quick),
        ):
            for row in found:
                rows.append(row)
                print(f"{row.attack}: {row.outcome}", file=sys.stderr, flush=True)
    rows += kill_attacks(arguments.quick, arguments.seed)
    print(format_table(rows))
    return int(any(row.failures for row in rows))


if __name__ == "__main__":
    sys.exit(main())
