"""The numbers of a sweep: those of `simulate`, whatever computes the cells and in which order."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.tasks import Shuffled
from tests.helpers.toy_simulator import ring
from vrtd.errors import StabilityWarning, WorkerError
from vrtd.executors import ProcessExecutor
from vrtd.sweeps import cell, groups
from vrtd.sweeps.sweep_result import SweepResult

GRID = {"step_size": [0.01, 0.1, 3.0], "batch_size": [20, 50]}
SIZE: dict[str, Any] = {"n_runs": 5, "n_gradients": 2000, "checkpoints": 3, "seed": 3}
PROBLEMS = {"boyan": vrtd.problems.boyan_chain(), "random": vrtd.problems.random_mdp(n_states=10)}


def check_equal(first: SweepResult, second: SweepResult) -> None:
    assert list(first.table) == list(second.table)
    for name, column in first.table.items():
        assert column.dtype == second.table[name].dtype
        assert column.tobytes() == second.table[name].tobytes(), name


@pytest.fixture(scope="module")
def whole() -> SweepResult:
    return vrtd.sweep(PROBLEMS, vrtd.VRTD, GRID, threads=1, **SIZE)


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessExecutor]:
    with ProcessExecutor(2) as executor:
        yield executor


@pytest.fixture
def many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a group of every two cells."""
    monkeypatch.setattr(groups, "_SECONDS", 1e-9)
    monkeypatch.setattr(groups, "_LEAST_SECONDS", 1e-9)


def test_each_cell_has_the_bits_of_simulate(whole: SweepResult) -> None:
    row = 0
    for problem in PROBLEMS.values():
        for step_size in GRID["step_size"]:
            for batch_size in GRID["batch_size"]:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", StabilityWarning)
                    result = vrtd.simulate(problem, vrtd.VRTD(step_size, batch_size), **SIZE)
                summary = result.summary()
                rows = slice(row, row + 3)
                assert whole.table["n_gradients"][rows].tolist() == result.n_gradients.tolist()
                assert whole.table["n_samples"][rows].tolist() == result.n_samples.tolist()
                assert whole.table["mean"][rows].tobytes() == summary.mean.tobytes()
                assert whole.table["standard_error"][rows].tobytes() == summary.standard_error.tobytes()
                assert whole.table["q05"][rows].tobytes() == summary.quantiles[0].tobytes()
                assert whole.table["q95"][rows].tobytes() == summary.quantiles[-1].tobytes()
                assert whole.table["n_diverged"][rows].tolist() == summary.n_diverged.tolist()
                assert set(whole.table["step_size"][rows]) == {step_size}
                assert set(whole.table["batch_size"][rows]) == {batch_size}
                row += 3
    assert row == len(whole)


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_do_not_change_a_bit(whole: SweepResult, threads: int) -> None:
    check_equal(whole, vrtd.sweep(PROBLEMS, vrtd.VRTD, GRID, threads=threads, **SIZE))


def test_threads_within_a_cell_do_not_change_a_bit(whole: SweepResult) -> None:
    check_equal(whole, vrtd.sweep(PROBLEMS, vrtd.VRTD, GRID, threads=8, **SIZE))


def test_processes_do_not_change_a_bit(whole: SweepResult, processes: ProcessExecutor) -> None:
    check_equal(whole, vrtd.sweep(PROBLEMS, vrtd.VRTD, GRID, executor=processes, **SIZE))


@pytest.mark.usefixtures("many_groups")
def test_the_order_of_completion_does_not_change_a_bit(whole: SweepResult) -> None:
    with Shuffled(seed=5) as executor:
        check_equal(whole, vrtd.sweep(PROBLEMS, vrtd.VRTD, GRID, executor=executor, **SIZE))
    assert executor.order != sorted(executor.order)


@pytest.mark.slow
def test_any_metrics_simulators_and_data_sets_can_be_swept() -> None:
    simulator = ring(np.random.default_rng(4).random((5, 3)))
    rows = vrtd.record(PROBLEMS["random"], 100)
    form = vrtd.metrics.METRICS["neu"](PROBLEMS["random"])
    size = {"n_runs": 3, "n_gradients": 400}
    on_simulator = vrtd.sweep(simulator, vrtd.TD, {"step_size": [0.1]}, **size)
    assert on_simulator.metrics == ("neu",)
    expected = vrtd.simulate(simulator, vrtd.TD(0.1), checkpoints=1, **size).summary().mean
    assert on_simulator.table["mean"].tobytes() == expected.tobytes()
    on_rows = vrtd.sweep([rows], "svrg", {"step_size": [0.1]}, **size)
    assert on_rows.table["method"].tolist() == [""]
    both = vrtd.sweep([PROBLEMS["random"]], vrtd.TD, {"step_size": [0.1]}, metrics=("mspbe", form), **size)
    expected = vrtd.simulate(PROBLEMS["random"], vrtd.TD(0.1), checkpoints=1, metrics=("mspbe", form), **size)
    assert both.table["mean"].tolist() == [expected.summary(name).mean[-1] for name in ("mspbe", "neu")]


def test_initial_parameters_and_states_are_those_of_simulate() -> None:
    size = {"n_runs": 3, "n_gradients": 40, "initial": 2}
    result = vrtd.sweep(PROBLEMS, vrtd.TD, {"step_size": [0.1]}, theta_0=1.5, **size)
    for name, problem in PROBLEMS.items():
        start = [1.5] * problem.n_features
        expected = vrtd.simulate(problem, vrtd.TD(0.1), theta_0=start, checkpoints=1, **size).summary().mean
        assert result.final("mean", name).tobytes() == expected.tobytes()


def test_a_failed_cell_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("one over zero")

    monkeypatch.setattr(cell, "run", fail)
    message = r"^td on boyan_chain with step_size 0.1 failed: ZeroDivisionError: one over zero. Fix the cause, [^.]*\.$"
    for executor in (None, ThreadPoolExecutor(1)):
        with pytest.raises(WorkerError, match=message):
            vrtd.sweep("boyan_chain", "td", {"step_size": [0.1]}, executor=executor, n_gradients=100)


def test_progress_is_reported(whole: SweepResult) -> None:
    seen: list[tuple[float, str]] = []
    vrtd.sweep(PROBLEMS, vrtd.VRTD, GRID, progress=lambda *each: seen.append(each), **SIZE)
    shares = [share for share, _ in seen]
    assert shares == sorted(shares)
    assert seen[0] == (0.0, "0 of 12 cells")
    assert seen[-1] == (1.0, "12 of 12 cells")


def test_an_error_in_a_thread_ends_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long cell in another thread is stopped, rather than finished."""
    grid = {"step_size": np.linspace(0.001, 0.01, 20)}
    n_called = 0

    def stop(share: float, _: str) -> None:
        nonlocal n_called
        n_called += 1
        if n_called > 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vrtd.sweep(PROBLEMS, "td", grid, n_runs=100, n_gradients=10**9, threads=2, progress=stop)


def test_an_executor_is_left_open() -> None:
    executor: Executor = ThreadPoolExecutor(1)
    vrtd.sweep("boyan_chain", "td", {"step_size": [0.1]}, executor=executor, n_gradients=100)
    assert executor.submit(int, 3).result() == 3
