"""Measure the cost of learning from a log, compared with reading it, with simulation and with other tools.

    python benchmarks/evaluate.py [--json] [--quick] [--only PART ...]

All results are ratios of measurements in the same session, because machines differ and are noisy. Each measurement is
the best of several repetitions, which alternate. `asked` is the required ratio. Work of one thread is measured in CPU
seconds, which other processes disturb least. It needs pyarrow; d3rlpy is included if it is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before NumPy

import numpy as np

import vrtd
from vrtd.arrays import aligned_copy
from vrtd.engine import simulation
from vrtd.engine.simulation import run_blocks
from vrtd.engine.stream import compile_stream
from vrtd.estimator.rows import loop_columns
from vrtd.kernels.jit import short_vectors
from vrtd.kernels.random import ALGORITHM, make_streams
from vrtd.logs import Chunk

GAMMA, BATCH = 0.95, 1000
VRTD = vrtd.VRTD(0.01, BATCH, output="average")
METHODS = {"vrtd": VRTD, "td": vrtd.TD(0.01)}
DIMENSIONS = (16, 64, 256)


def seconds(call: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> float:
    began = clock()
    call()
    return clock() - began


def best(repeats: int, *calls: Callable[[], float]) -> list[float]:
    """Return the minimum of each call over repetitions; the calls alternate, so that all see the same noise."""
    return [min(column) for column in zip(*([call() for call in calls] for _ in range(repeats)), strict=True)]


# Parquet


def write_log(path: Path, n_rows: int, one_group: bool) -> None:
    """Write rows of 2 x 16 float32 features, reward and terminated; the same rows are repeated."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    rng, n = np.random.default_rng(0), min(n_rows, 1 << 18)
    columns = {f"{name}_{j}": rng.random(n, np.float32) / 4 for name in ("obs", "next_obs") for j in range(16)}
    batch = pyarrow.RecordBatch.from_pydict(columns | {"reward": rng.random(n), "terminated": rng.random(n) < 0.01})
    table = pyarrow.Table.from_batches([batch] * (n_rows // n))
    with ParquetWriter(path, batch.schema, use_dictionary=False, write_page_checksum=True) as writer:
        writer.write_table(table, row_group_size=table.num_rows if one_group else 1 << 20)


def fit_file(path: Path) -> vrtd.Evaluator:
    return vrtd.Evaluator(VRTD, discount=GAMMA).fit(vrtd.logs.read(path))


def parquet(folder: Path, quick: bool) -> dict[str, Any]:
    """Measure rows per second of learning from a file in the page cache, as a share of those of reading it."""
    from pyarrow.parquet import ParquetFile

    path = folder / "log.parquet"
    n_rows = 1 << (18 if quick else 22)
    write_log(path, n_rows, one_group=False)

    def read() -> None:
        with ParquetFile(path, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True) as file:
            assert sum(batch.num_rows for batch in file.iter_batches()) == n_rows

    fit_file(path)  # compiles
    reading, fitting = best(
        2 if quick else 9,
        lambda: seconds(read, time.perf_counter),  # Arrow reads with several threads
        lambda: seconds(lambda: fit_file(path), time.perf_counter),
    )
    path.unlink()
    return {"fit_to_read": reading / fitting, "asked": ">= 0.5", "million_rows_a_second": n_rows / fitting / 1e6}


# Linux records the peak of resident memory per process.
PEAK = """
import sys
import pyarrow.parquet, vrtd
from vrtd.engine import stream
vrtd.Evaluator, vrtd.logs.read
if len(sys.argv) > 1:
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.01, 1000, output="average"), features=None, discount=0.95)
    evaluator.fit(sys.argv[1])
    assert evaluator.n_rows_ > 0
with open("/proc/self/status") as file:
    print(next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024)
"""


def memory(folder: Path, quick: bool) -> dict[str, Any]:
    """Measure the memory of learning from a file with one row group, less that of importing the same modules."""
    path = folder / "one_group.parquet"
    write_log(path, 1 << (18 if quick else 24), one_group=True)
    size = path.stat().st_size
    fit_file(path)  # compiles

    def peak(*arguments: str) -> float:
        command = [sys.executable, "-c", PEAK, *arguments]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    idle, fitting = peak(), peak(str(path))
    path.unlink()
    return {"file_mib": size / 2**20, "mib_above_idle": fitting - idle, "asked": "<= 256", "idle_mib": idle}


# In memory


def rows(n: int, d: int, dtype: Any) -> Chunk:
    rng = np.random.default_rng(0)
    phi, phi_next = (rng.random((n, d), dtype) / np.sqrt(d).astype(dtype) for _ in range(2))
    return Chunk(phi, rng.random(n), phi_next, np.zeros(n, bool), np.zeros(n, bool))


def gradients(algorithm: Any, n: int) -> int:
    """Return the number of pseudo-gradients on n rows."""
    epoch = algorithm.epoch("markov")
    return n // max(epoch.n_absorb, 1) * epoch.n_gradients


def simulated(algorithm: Any, d: int, budget: int) -> float:
    """Return the seconds per pseudo-gradient of the simulation's compiled loop."""
    mrp = vrtd.problems.random_mdp(seed=0, n_states=300).mrp
    problem = vrtd.LinearProblem(mrp, np.random.default_rng(0).random((300, d)) / np.sqrt(d))
    n_runs, each, spent = 8, max(budget // 8 // (2 * BATCH), 1) * 2 * BATCH, 0.0

    def timed(*arguments: Any) -> Any:
        nonlocal spent
        began = time.process_time()
        outcome = run_blocks(*arguments)
        spent = time.process_time() - began
        return outcome

    simulation.run_blocks = timed  # excludes building the chain's tables and compiling
    vrtd.simulate(
        problem, algorithm, sampling="markov", n_runs=n_runs, n_gradients=each, threads=1, checkpoints=1, metrics=()
    )
    simulation.run_blocks = run_blocks
    return spent / (n_runs * each)


def in_memory(quick: bool) -> dict[str, Any]:
    """Measure the cost per pseudo-gradient of `fit`, divided by that of a simulation.

    Arrays do not fit in the processor's cache. One ratio is for the whole fit, the other for the rows after the pilot,
    on which the step size is checked.
    """
    report: dict[str, Any] = {"asked": "<= 1.5"}
    for d in DIMENSIONS:
        n = (1 << (21 if quick else 26)) // d // BATCH * BATCH
        for dtype in (np.float32, np.float64):
            chunk = rows(n, d, dtype)
            log = vrtd.logs.from_arrays(chunk.observations, chunk.reward, chunk.next_observations)
            for name, algorithm in METHODS.items():
                count = gradients(algorithm, n)
                evaluator = vrtd.Evaluator(algorithm, features=None, discount=GAMMA).fit(log)  # compiles

                def fit(evaluator: Any = evaluator, log: Any = log) -> float:
                    return seconds(lambda: evaluator.fit(log))

                def fit_more(evaluator: Any = evaluator, log: Any = log) -> float:
                    return seconds(lambda: evaluator.partial_fit(log))

                def simulate(algorithm: Any = algorithm, d: int = d, count: int = count) -> float:
                    return simulated(algorithm, d, min(count, (1 << 26) // d))

                whole, later, each = best(2 if quick else 7, fit, fit_more, simulate)
                report[f"{name}, d = {d}, {np.dtype(dtype).name}"] = {
                    "fit_to_simulation": whole / count / each,
                    "after_the_pilot_to_simulation": later / count / each,
                    "pilot_costs_so_many_rows": (whole - later) / later * n,
                    "simulation_ns": each * 1e9,
                }
    return report


def compiled_call(algorithm: Any, chunk: Chunk) -> Callable[[], bool]:
    """Return a call of the compiled loop over all rows of a chunk."""
    n, d = chunk.observations.shape
    epoch = algorithm.epoch("markov")
    loop = compile_stream(algorithm, epoch, d, False)
    state = np.zeros(algorithm.workspace_size(d))
    rows = vrtd.Transitions.wrap(
        chunk.observations, chunk.reward, chunk.next_observations, np.full(n, GAMMA), None, chunk.terminated
    )
    arguments = (
        algorithm.params(), *loop_columns(rows), 0, n // max(epoch.n_absorb, 1), 0, state, aligned_copy(state), state,
        make_streams(0, np.arange(1), ALGORITHM)[0], np.zeros(d), d, epoch.n_absorb, epoch.n_steps,
    )  # fmt: skip
    with short_vectors():
        assert loop(*arguments)
    return lambda: loop(*arguments)


def partial_fits(quick: bool) -> dict[str, Any]:
    """Measure a call of `partial_fit` with 1000 rows, divided by the compiled loop on the same rows."""
    report: dict[str, Any] = {"asked": "<= 1.3 at d >= 64, <= 10 us more at d = 16"}
    for d in DIMENSIONS:
        for dtype in (np.float32, np.float64):
            chunk = rows(BATCH, d, dtype)
            for name, algorithm in METHODS.items():
                call = compiled_call(algorithm, chunk)
                evaluator = vrtd.Evaluator(algorithm, features=None, discount=GAMMA, pilot_rows=BATCH)
                for _ in range(300):  # past the pilot, where points of the path are recorded rarely
                    evaluator.partial_fit(chunk)

                def many(once: Callable[[], Any], times: int = 20) -> float:
                    return seconds(lambda: [once() for _ in range(times)]) / times * 1e6

                whole, alone = best(
                    5 if quick else 100,
                    lambda evaluator=evaluator, chunk=chunk: many(lambda: evaluator.partial_fit(chunk)),
                    lambda call=call: many(call),
                )
                report[f"{name}, d = {d}, {np.dtype(dtype).name}"] = {
                    "to_compiled": whole / alone, "us_more": whole - alone, "compiled_us": alone,
                }  # fmt: skip
    return report


# Side by side


def numpy_lstd(phi: Any, reward: Any, phi_next: Any) -> Any:
    return np.linalg.solve(phi.T @ (phi - GAMMA * phi_next), phi.T @ reward)


def numpy_td(phi: Any, reward: Any, phi_next: Any, step: float) -> Any:
    theta = np.zeros(phi.shape[1])
    for x, r, y in zip(phi, reward, phi_next, strict=True):
        theta += step * (r + GAMMA * (y @ theta) - x @ theta) * x
    return theta


def fqe(phi: Any, reward: Any, states: Any, n_steps: int, seed: int) -> tuple[Any, float] | str:
    """Return the values of d3rlpy's fitted Q evaluation, with one action.

    It has a linear encoder of d units and a linear head, starts from random weights and draws rows with replacement.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import d3rlpy
            import torch
    except ImportError as error:
        return f"not run: {error}"
    d3rlpy.seed(seed)
    torch.set_num_threads(1)  # more threads are slower on matrices of this size
    n, d = phi.shape
    silent = d3rlpy.logging.NoopAdapterFactory()
    ends = np.zeros(n)
    ends[-1] = 1
    with open(os.devnull, "w") as nowhere:
        shown, sys.stdout = sys.stdout, nowhere
        try:
            data = d3rlpy.dataset.MDPDataset(
                phi.astype(np.float32), np.zeros((n, 1), np.int64), reward.astype(np.float32)[:, None], np.zeros(n),
                ends, action_space=d3rlpy.ActionSpace.DISCRETE, action_size=1,
            )  # fmt: skip
            policy = d3rlpy.algos.DiscreteBCConfig().create(device="cpu:0")
            policy.build_with_dataset(data)
            encoder = d3rlpy.models.VectorEncoderFactory(hidden_units=[d], activation="none")
            config = d3rlpy.ope.FQEConfig(
                learning_rate=3e-3, encoder_factory=encoder, gamma=GAMMA, batch_size=256, target_update_interval=20
            )
            learner = d3rlpy.ope.DiscreteFQE(algo=policy, config=config)
            spent = seconds(
                lambda: learner.fit(
                    data, n_steps=n_steps, n_steps_per_epoch=n_steps, show_progress=False, logger_adapter=silent
                )
            )
        finally:
            sys.stdout = shown
    return learner.predict_value(states.astype(np.float32), np.zeros((len(states), 1), np.int64)), spent


def side_by_side(quick: bool) -> dict[str, Any]:
    """Compare methods on one log by time and by the error of the values.

    The error is the root mean square over states, as a share of the standard deviation of the values.
    """
    problem = vrtd.problems.random_mdp(seed=0, n_states=100, n_features=16, gamma=GAMMA, laziness=0.8)
    phi = problem.phi.copy()
    phi[:, 0] = 1.0  # a network has a constant as well
    phi /= np.linalg.norm(phi, axis=1).max()
    problem = vrtd.LinearProblem(problem.mrp, phi)
    n = 20_000 if quick else 200_000
    sample = vrtd.record(problem, n, sampling="markov", seed=1, shuffle=False)
    log = vrtd.logs.from_arrays(sample.phi, sample.reward, sample.phi_next)
    exact, mu = phi @ problem.theta_star, problem.mrp.stationary
    spread = np.sqrt(mu @ (exact - mu @ exact) ** 2)

    def error(values: Any) -> float:
        return float(np.sqrt(mu @ (values - exact) ** 2) / spread)

    def evaluator(name: str) -> Any:
        return vrtd.Evaluator(name, discount=GAMMA, n_samples=n).fit(log).theta_

    columns = (sample.phi, sample.reward, sample.phi_next)
    methods: dict[str, Callable[[], Any]] = {
        "vrtd, auto": lambda: evaluator("vrtd"),
        "td, auto": lambda: evaluator("td"),
        "vrtd's closed form": lambda: evaluator("closed_form"),
        "NumPy LSTD, all in memory": lambda: numpy_lstd(*columns),
        "NumPy TD loop, step 0.1": lambda: numpy_td(*columns, 0.1),
    }
    thetas = {name: method() for name, method in methods.items()}  # also compiles
    spent = best(1 if quick else 3, *(lambda method=method: seconds(method) for method in methods.values()))
    report: dict[str, Any] = {"rows": n, "features": 16}
    for (name, theta), least in zip(thetas.items(), spent, strict=True):
        report[name] = {"error": error(phi @ theta), "seconds_to_numpy_lstd": least / spent[3], "seconds": least}
    n_steps = 20 if quick else 4000
    outcomes = [fqe(sample.phi, sample.reward, phi, n_steps, seed) for seed in range(1 if quick else 3)]
    reasons = [outcome for outcome in outcomes if isinstance(outcome, str)]
    if reasons:
        report["d3rlpy FQE"] = reasons[0]
        return report
    least = min(outcome[1] for outcome in outcomes)
    report[f"d3rlpy FQE, linear, {n_steps:,} steps of 256 rows"] = {
        "errors": [error(outcome[0]) for outcome in outcomes],
        "seconds_to_numpy_lstd": least / spent[3],
        "seconds": least,
    }
    return report


PARTS: dict[str, Callable[[Path, bool], dict[str, Any]]] = {
    "parquet": parquet,
    "memory": memory,
    "in_memory": lambda _, quick: in_memory(quick),
    "partial_fit": lambda _, quick: partial_fits(quick),
    "side_by_side": lambda _, quick: side_by_side(quick),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object on one line")
    parser.add_argument("--quick", action="store_true", help="small files and few repetitions, to see that it runs")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run")
    options = parser.parse_args()
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only:
            report[name] = PARTS[name](Path(folder), options.quick)
    report["machine"] = {
        "cores": len(os.sched_getaffinity(0)),
        "python": sys.version.split()[0],
        "vrtd": vrtd.__version__,
    }
    print(json.dumps(report) if options.json else json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
