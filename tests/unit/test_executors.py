"""Tasks on executors: order, shared data, errors, lost workers."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from tests.helpers.tasks import Shuffled
from vrtd.errors import InvalidInputError, WorkerError
from vrtd.executors import ProcessExecutor, run_tasks, tasks
from vrtd.executors.processes import _answer


def name(i: int) -> str:
    return f"task {i}"


def add(shared: Any, number: int) -> Any:
    return shared + number


def fail_at_three(shared: Any, number: int) -> int:
    if number == 3:
        raise ValueError("three is not a number")
    return number


def process_of(shared: Any, seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


def end_process(shared: Any, number: int) -> int:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def print_something(shared: Any, number: int) -> int:
    print("text that is not a result")
    return number


@pytest.fixture(autouse=True)
def import_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes import the functions of this file."""
    paths = str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


@pytest.fixture
def processes() -> Iterator[ProcessExecutor]:
    with ProcessExecutor(2) as executor:
        yield executor


def test_each_task_gives_one_result(processes: ProcessExecutor) -> None:
    results = dict(run_tasks(processes, add, 10, ((i,) for i in range(50)), name))
    assert results == {i: 10 + i for i in range(50)}


def test_large_shared_data_are_sent_once_to_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(Executor):
        def __init__(self) -> None:
            self.pool, self.n_sent = ThreadPoolExecutor(1), 0

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            self.n_sent += any(isinstance(value, bytes) for value in args)
            return self.pool.submit(fn, *args, **kwargs)

    tasks._kept.clear()
    large, small = Counting(), Counting()
    data = np.arange(200_000.0)
    results = dict(run_tasks(large, add, data, [(i,) for i in range(20)], name))
    assert all(np.array_equal(results[i], data + i) for i in range(20))
    assert large.n_sent <= tasks._FIRST_AHEAD  # those that were on their way before the data arrived
    assert dict(run_tasks(small, add, 1, [(i,) for i in range(20)], name))[3] == 4
    assert small.n_sent == 20
    tasks._kept.clear()


def test_tasks_are_made_when_workers_can_take_them(processes: ProcessExecutor) -> None:
    made = []

    def make_tasks() -> Iterator[tuple[int]]:
        for i in range(1000):
            made.append(i)
            yield (i,)

    results = run_tasks(processes, add, 0, make_tasks(), name)
    next(results)
    assert len(made) <= tasks._FIRST_AHEAD + 2
    assert len(list(results)) == 999


def test_an_error_names_the_task(processes: ProcessExecutor) -> None:
    with pytest.raises(WorkerError, match=r"task 3 failed: ValueError: three is not a number") as caught:
        list(run_tasks(processes, fail_at_three, None, [(i,) for i in range(6)], name))
    assert isinstance(caught.value.__cause__, ValueError)
    assert dict(run_tasks(processes, add, 0, [(1,)], name)) == {0: 1}  # the executor still works


def test_a_lost_process_is_an_error() -> None:
    with ProcessExecutor(1) as executor:
        with pytest.raises(WorkerError, match=r"A worker ended unexpectedly .* exit code -9"):
            list(run_tasks(executor, end_process, None, [(i,) for i in range(3)], name))
        with pytest.raises(WorkerError, match="A worker ended unexpectedly"):
            list(run_tasks(executor, add, 0, [(1,)], name))


def test_all_processes_work_and_prints_do_not_disturb(processes: ProcessExecutor) -> None:
    assert len({result for _, result in run_tasks(processes, process_of, None, [(0.2,)] * 4, name)}) == 2
    assert dict(run_tasks(processes, print_something, None, [(5,)], name)) == {0: 5}


def test_tasks_that_have_not_begun_are_cancelled(processes: ProcessExecutor) -> None:
    results = run_tasks(processes, process_of, None, [(0.05,)] * 1000, name)
    next(results)
    began = time.monotonic()
    results.close()
    processes.submit(os.getpid).result()
    assert time.monotonic() - began < 5.0


def test_shared_data_must_be_portable(processes: ProcessExecutor) -> None:
    with pytest.raises(InvalidInputError, match="cannot be sent to another process"):
        list(run_tasks(processes, add, lambda: None, [(1,)], name))


def test_an_error_that_cannot_be_pickled_is_described() -> None:
    is_error, error = pickle.loads(_answer(pickle.dumps((open, ("/nowhere",), {}))))
    assert is_error
    assert isinstance(error, FileNotFoundError)


class TwoArgumentsError(Exception):
    """An error that can be pickled but not restored."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} {two}")


def fail_strangely(shared: Any, number: int) -> None:
    raise TwoArgumentsError("not", "restorable")


def end_executor(shared: Any, number: int) -> None:
    raise CancelledError


def test_an_error_that_cannot_be_restored_is_an_error(processes: ProcessExecutor) -> None:
    with pytest.raises(WorkerError, match="task 0 failed: TypeError: "):
        list(run_tasks(processes, fail_strangely, None, [(0,)], name))
    assert dict(run_tasks(processes, add, 0, [(1,)], name)) == {0: 1}


def test_a_task_that_the_executor_cancels_is_an_error() -> None:
    with ThreadPoolExecutor(1) as executor, pytest.raises(WorkerError, match=r"task 0 was cancelled by the executor\."):
        list(run_tasks(executor, end_executor, None, [(0,)], name))


def test_after_the_end_no_calls_are_accepted(processes: ProcessExecutor) -> None:
    waiting = [processes.submit(time.sleep, 60) for _ in range(4)]
    while not waiting[1].running():
        time.sleep(0.01)
    processes.shutdown(cancel_futures=True)
    assert [future.cancelled() for future in waiting] == [False, False, True, True]
    assert isinstance(waiting[0].exception(), BrokenExecutor)
    with pytest.raises((RuntimeError, BrokenExecutor)):
        processes.submit(time.sleep, 0)


def test_linear_algebra_has_one_thread_while_tasks_run() -> None:
    """Also if a worker runs them in several threads."""
    code = """
    from concurrent.futures import ThreadPoolExecutor
    import scipy.linalg
    from tests.helpers.tasks import count_threads
    from vrtd.executors import run_tasks
    print(count_threads(None, 0), end=" ")
    with ThreadPoolExecutor(3) as executor:
        print({count for _, count in run_tasks(executor, count_threads, None, [(i,) for i in range(12)], str)})
    """
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    ended = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, env=environment)
    assert ended.stdout == "2 {1}\n"


def test_tasks_of_a_sequence_are_submitted_at_once() -> None:
    class Counting(Shuffled):
        n_submitted = 0

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            self.n_submitted += 1
            return super().submit(fn, *args, **kwargs)

    for some, expected in (([(i,) for i in range(50)], 50), (((i,) for i in range(50)), tasks._FIRST_AHEAD + 2)):
        with Counting(seed=0) as executor:
            results = run_tasks(executor, add, 0, some, name)
            next(results)
            assert expected - 2 <= executor.n_submitted <= expected
            assert len(list(results)) == 49


def test_a_process_whose_caller_was_killed_ends_silently() -> None:
    script = dedent(
        """
        import os, subprocess, sys, time
        from vrtd.executors import ProcessExecutor
        executor = ProcessExecutor(1)
        executor.submit(time.sleep, 0).result()
        executor.submit(time.sleep, 0.5)
        time.sleep(0.2)
        print(executor._processes[0].pid, flush=True)
        os.kill(os.getpid(), 9)
        """
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)  # waits for both
    assert child.returncode == -signal.SIGKILL
    assert int(child.stdout) > 0
    assert child.stderr == ""
