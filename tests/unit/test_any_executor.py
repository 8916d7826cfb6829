"""Every verb on executors of every kind: the same bits, also when workers are killed.

The tests with Dask are in this file, so that one process starts one cluster.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from distributed import Client, LocalCluster

import vrtd
from tests.helpers.distributed_work import fit_in_partitions, sweep_in_groups, write_log
from tests.helpers.tasks import Shuffled, begin_and_end, running
from tests.helpers.tournament import NOWHERE, SIZE, some_cells, standard, without_seconds
from tests.helpers.toy_simulator import ring
from vrtd.cli import main
from vrtd.engine import blocks
from vrtd.errors import InvalidInputError, StabilityWarning, WorkerError
from vrtd.executors import ProcessExecutor, run_tasks
from vrtd.kernels.jit import dynamics
from vrtd.problems import Simulator, random_mdp
from vrtd.tournament import ENTRANTS, tournament

ROOT = Path(__file__).parents[2]
KINDS = ("processes", "spawn", "dask-1", "dask-2", "shuffled")

CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "chain": lambda: {"problem": random_mdp(), "algorithm": vrtd.VRTD(0.1, 20), "n_runs": 13},
    "diverging": lambda: {"problem": random_mdp(), "algorithm": vrtd.TD(5.0), "n_runs": 11, "sampling": "iid"},
    "rows": lambda: {"problem": vrtd.record(random_mdp(), 40), "algorithm": vrtd.SCSG(0.1), "n_runs": 11},
    "simulator": lambda: {
        "problem": ring(np.random.default_rng(4).random((5, 3))), "algorithm": vrtd.TD(0.1), "n_runs": 10,
        "metrics": (vrtd.metrics.QuadraticForm("size", np.eye(3), np.zeros(3)),),
    },
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _import_tests() -> Iterator[None]:
    """Let processes import the tests, and let a small simulation consist of several blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
        patch.setattr(blocks, "_GRADIENTS_PER_CALL", 8000)
        yield


@pytest.fixture(scope="module")
def dask() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def processes() -> Iterator[Executor]:
    with ProcessExecutor(2) as executor:
        yield executor


@pytest.fixture(scope="module")
def spawn() -> Iterator[Executor]:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        yield executor


@pytest.fixture
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    kind: str = request.param
    if kind == "shuffled":
        with Shuffled(seed=0) as shuffled:
            yield shuffled
        assert shuffled.order != sorted(shuffled.order)
    elif kind.startswith("dask"):
        client: Client = request.getfixturevalue("dask")
        workers = sorted(client.scheduler_info()["workers"])[: int(kind[-1])]
        yield client.get_executor(pure=False, workers=workers)
    else:
        yield request.getfixturevalue(kind)


on_every_executor = pytest.mark.parametrize("executor", KINDS, indirect=True)


@cache
def problem_of(case: str) -> dict[str, Any]:
    return CASES[case]()


def simulate(case: str, **options: Any) -> vrtd.Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StabilityWarning)
        return vrtd.simulate(**{"n_gradients": 2000, "checkpoints": 6} | problem_of(case) | options)


@cache
def local(case: str) -> vrtd.Result:
    return simulate(case, threads=1)


def check_same(ours: vrtd.Result, expected: vrtd.Result) -> None:
    names = ("n_gradients", "n_samples", "curves", "theta", "diverged_at")
    pairs = [(getattr(ours, name), getattr(expected, name)) for name in names]
    for one, other in (*pairs, *zip(ours.state, expected.state, strict=True)):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    times = {"seconds", "compile_seconds"}
    assert {key: value for key, value in ours.provenance.items() if key not in times} == {
        key: value for key, value in expected.provenance.items() if key not in times
    }
    assert all(ours.provenance[key] > 0 for key in times)


@pytest.mark.parametrize("case", CASES)
def test_two_threads_give_the_same_bits(case: str) -> None:
    check_same(simulate(case, threads=2), local(case))


def test_a_case_diverges_and_every_case_has_several_blocks() -> None:
    assert (local("diverging").diverged_at >= 0).any()
    with Shuffled(seed=1) as executor:
        for case in CASES:
            executor.order.clear()
            simulate(case, executor=executor)
            assert len(executor.order) >= 3


@on_every_executor
@pytest.mark.parametrize("case", CASES)
def test_every_executor_gives_the_same_bits(executor: Executor, case: str) -> None:
    check_same(simulate(case, executor=executor), local(case))


@on_every_executor
def test_a_continued_simulation_gives_the_same_bits(executor: Executor) -> None:
    half = simulate("chain", executor=executor, n_gradients=1000, checkpoints=[0, 400])
    whole = simulate("chain", executor=executor, n_gradients=1000, checkpoints=[1200, 1600], start=half)
    once = simulate("chain", threads=1, checkpoints=[0, 400, 1200, 1600])
    np.testing.assert_array_equal(whole.theta, once.theta)
    np.testing.assert_array_equal(whole.curves, once.curves[:, -3:])


@on_every_executor
def test_every_executor_gives_the_same_cells(executor: Executor, tmp_path: Path) -> None:
    pairs = [("random-mdp", "td"), ("random-mdp", "recursive_lstd"), ("baird", "td"), ("baird", "recursive_lstd")]
    found = tournament.measure(SIZE, standard(*pairs), tmp_path, executor, 1, None)
    assert {pair: without_seconds(cell) for pair, cell in found.items()} == {
        pair: without_seconds(some_cells()[pair]) for pair in pairs
    }


@cache
def local_sweep() -> dict[str, bytes]:
    return sweep_in_groups(None, threads=1)


@on_every_executor
def test_every_executor_gives_the_same_sweep(executor: Executor) -> None:
    assert sweep_in_groups(executor) == local_sweep()


@on_every_executor
def test_every_executor_gives_the_same_fit(executor: Executor, tmp_path: Path) -> None:
    write_log(tmp_path)
    assert fit_in_partitions(tmp_path, executor) == fit_in_partitions(tmp_path, None)


def test_compare_takes_an_executor(dask: Client) -> None:
    compared = vrtd.compare(["random-mdp"], ["td", "vrtd"], size=SIZE, out=None, executor=dask.get_executor(pure=False))
    assert without_seconds(compared.cells["random-mdp", "td"]) == without_seconds(some_cells()["random-mdp", "td"])


def test_large_problems_travel_once_to_a_worker(dask: Client) -> None:
    """And Dask's warning about large data, which has no remedy here, is not shown."""
    rows = vrtd.record(random_mdp(n_states=10), 120_000)
    options: dict[str, Any] = {"n_runs": 6, "n_gradients": 20_000, "checkpoints": 2}
    ours = vrtd.simulate(rows, vrtd.TD(0.1), executor=dask.get_executor(pure=False), **options)
    check_same(ours, vrtd.simulate(rows, vrtd.TD(0.1), threads=1, **options))


def test_progress_grows_to_one(processes: Executor) -> None:
    shares: list[float] = []
    simulate("chain", executor=processes, progress=shares.append)
    assert shares == sorted(shares)
    assert len(shares) >= 3
    assert shares[-1] == 1.0


def test_a_killed_worker_changes_nothing(dask: Client, tmp_path: Path) -> None:
    """The tasks of the worker run again, and no others."""
    executor, n, killed = dask.get_executor(pure=False), 12, 0
    results = run_tasks(executor, begin_and_end, tmp_path, [(i, 0.1) for i in range(n)], str)
    found = dict([next(results), next(results)])
    while not killed:
        for process in running(tmp_path)[:1]:
            os.kill(process, signal.SIGKILL)
            killed = process
    found |= dict(results)
    assert found == {i: i * i for i in range(n)}
    begun = [path.stem.split("-")[:2] for path in tmp_path.glob("*.begun")]
    again = len(begun) - n
    assert 1 <= again <= sum(process == str(killed) for _, process in begun)
    _wait_for_workers(dask)

    pids = dask.run(os.getpid)
    random.seed(0)

    def kill_one(share: float) -> None:
        if share < 1.0 and pids:
            os.kill(pids.pop(random.choice(list(pids))), signal.SIGKILL)
            pids.clear()

    ours = simulate("chain", executor=executor, n_runs=301, n_gradients=20_000, progress=kill_one)
    assert not pids
    check_same(ours, simulate("chain", threads=2, n_runs=301, n_gradients=20_000))
    _wait_for_workers(dask)


def _wait_for_workers(client: Client) -> None:
    client.wait_for_workers(2, timeout=60)


def test_a_failing_block_names_its_runs(processes: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    """This simulator is found by its name in the worker, but has another form there."""
    simulator = ring(np.random.default_rng(4).random((5, 3)))
    broken = Simulator("ring", simulator.reset, simulator.transition, simulator.features, 3, 1, (1.0,))
    form = (vrtd.metrics.QuadraticForm("size", np.eye(3), np.zeros(3)),)
    told = r"^TD\(step_size=0.1.* on Simulator\('ring', 3 features\), runs \d to \d, failed: TypingError: "
    with pytest.raises(WorkerError, match=told):
        vrtd.simulate(broken, vrtd.TD(0.1), n_runs=4, n_gradients=4000, metrics=form, executor=processes)


def test_a_failing_cell_is_named(dask: Client, tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"^td on nowhere failed: KeyError: 'nowhere'"):
        tournament.measure(SIZE, [(NOWHERE, ENTRANTS["td"])], tmp_path, dask.get_executor(pure=False), 1, None)


def test_a_broken_pool_is_an_error_and_the_next_call_continues(tmp_path: Path) -> None:
    options: dict[str, Any] = {"size": SIZE, "out": tmp_path / "c"}

    def kill(share: float, what: str) -> None:
        for process in pool._processes.values():
            os.kill(process.pid, signal.SIGKILL)

    told = r"A worker ended unexpectedly .* Run the same call again: finished work"
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(WorkerError, match=told):
        vrtd.compare(["random-mdp"], ["td", "vrtd", "svrg"], executor=pool, progress=kill, **options)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "c" / "cells").iterdir()}
    assert 1 <= len(kept) < 3
    vrtd.compare(["random-mdp"], ["td", "vrtd", "svrg"], threads=1, **options)
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())


# Refused arguments


def test_a_client_is_not_an_executor(dask: Client) -> None:
    for function in (
        lambda: vrtd.simulate(random_mdp(), vrtd.TD(0.1), executor=dask),
        lambda: vrtd.compare(executor=dask, out=None),
        lambda: vrtd.reproduce(executor=dask),
    ):
        with pytest.raises(InvalidInputError, match=r"must be a concurrent.futures.Executor, .* Pass client.get_exec"):
            function()


def test_threads_and_executor_are_alternatives(processes: Executor) -> None:
    with pytest.raises(InvalidInputError, match="threads=2 has no effect together with executor"):
        vrtd.simulate(random_mdp(), vrtd.TD(0.1), executor=processes, threads=2)


def test_functions_of_a_simulator_must_have_names(processes: Executor) -> None:
    @dynamics
    def features(params: Any, state: Any, out: Any) -> None:
        out[0] = state[0]

    named = ring(np.ones((5, 1)))
    nameless = Simulator("ring", named.reset, named.transition, features, 1, 1, named.params)
    with pytest.raises(InvalidInputError, match=r"Simulator 'ring' cannot be sent .* because .*features is not a glob"):
        vrtd.simulate(nameless, vrtd.TD(0.1), metrics=(), executor=processes)


def test_classes_of_a_script_are_refused() -> None:
    code = """
    from dataclasses import dataclass
    import vrtd
    @dataclass(frozen=True)
    class Mine(vrtd.TD):
        pass
    with vrtd.executors.ProcessExecutor(1) as executor:
        try:
            vrtd.simulate(vrtd.problems.random_mdp(), Mine(0.1), executor=executor)
        except vrtd.errors.InvalidInputError as error:
            print(error)
    """
    ended = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    told = "The problem or the algorithm cannot be sent to another process: Mine is defined in the script __main__. "
    assert ended.stdout == f"{told}Define its classes and functions in a module, or drop executor.\n"


# Reproductions and the command line


def test_a_reproduction_writes_the_same_files(dask: Client, tmp_path: Path) -> None:
    found = {}
    for name, executor in (("local", None), ("dask", dask.get_executor(pure=False))):
        vrtd.reproduce("counter-example", out=tmp_path / name, n_runs=6, executor=executor)
        files = [tmp_path / name / "claims.json", *(tmp_path / name / "data").glob("*.csv")]
        found[name] = {path.name: path.read_bytes() for path in files}
    assert found["dask"] == found["local"]
    assert len(found["dask"]) >= 3


def run(capsys: Any, *options: str) -> dict[str, Any]:
    line = ["simulate", "--runs", "6", "--gradients", "4000", "--batch-size", "50", "--json", "--quiet", *options]
    assert main(line) == 0
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {key: value for key, value in shown.items() if "seconds" not in key and key != "gradients_per_second"}


def test_the_command_line_starts_workers_or_connects_to_them(dask: Client, capsys: Any) -> None:
    expected = run(capsys, "--threads", "1")
    assert run(capsys, "--executor", "processes", "--threads", "1") == expected
    assert run(capsys, "--executor", "dask", "--address", dask.scheduler.address) == expected
    assert run(capsys, "--executor", "dask", "--threads", "1") == expected
    assert dask.submit(divmod, 7, 2, pure=False).result() == (3, 1)  # the cluster at the address goes on
