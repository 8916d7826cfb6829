"""Ray as an executor. Skipped where Ray is not installed: it is not an extra of the tests, because it is large."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Executor, wait
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.distributed_work import fit_in_partitions, sweep_in_groups, write_log
from tests.helpers.tasks import begin_and_end, running
from tests.helpers.tournament import NOWHERE, SIZE, some_cells, standard, without_seconds
from vrtd.cli import main
from vrtd.engine import blocks
from vrtd.errors import InvalidInputError, WorkerError
from vrtd.executors import run_tasks
from vrtd.problems import random_mdp
from vrtd.tournament import ENTRANTS, tournament

ray = pytest.importorskip("ray")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # pipes to the processes of Ray
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=[1, 2])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
        with vrtd.executors.ray(request.param) as executor:
            yield executor
    assert not ray.is_initialized()


def simulate(**options: Any) -> vrtd.Result:
    return vrtd.simulate(random_mdp(), vrtd.VRTD(0.1, 20), n_runs=301, n_gradients=20_000, **options)


def check_same(ours: vrtd.Result, expected: vrtd.Result) -> None:
    pairs = zip((ours.curves, ours.theta, *ours.state), (expected.curves, expected.theta, *expected.state), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def test_a_simulation_gives_the_same_bits(executor: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "_GRADIENTS_PER_CALL", 500_000)
    check_same(simulate(executor=executor), simulate(threads=1))


def test_cells_are_the_same(executor: Executor, tmp_path: Path) -> None:
    pairs = [("random-mdp", "td"), ("baird", "recursive_lstd")]
    found = tournament.measure(SIZE, standard(*pairs), tmp_path, executor, 1, None)
    assert all(without_seconds(found[pair]) == without_seconds(some_cells()[pair]) for pair in pairs)


def test_a_sweep_is_the_same(executor: Executor) -> None:
    assert sweep_in_groups(executor) == sweep_in_groups(None, threads=1)


def test_a_fit_is_the_same(executor: Executor, tmp_path: Path) -> None:
    write_log(tmp_path)
    assert fit_in_partitions(tmp_path, executor) == fit_in_partitions(tmp_path, None)


def test_a_killed_worker_changes_nothing(executor: Executor, tmp_path: Path) -> None:
    """The task that was lost runs again, and no other."""
    results = run_tasks(executor, begin_and_end, tmp_path, [(i, 0.2) for i in range(8)], str)
    found = dict([next(results)])
    while not running(tmp_path):
        pass
    os.kill(running(tmp_path)[0], signal.SIGKILL)
    assert found | dict(results) == {i: i * i for i in range(8)}
    assert len(list(tmp_path.glob("*.begun"))) <= 8 + 1


def test_an_error_is_that_of_the_task(executor: Executor, tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match=r"^td on nowhere failed: KeyError: 'nowhere'\. Fix") as caught:
        tournament.measure(SIZE, [(NOWHERE, ENTRANTS["td"])], tmp_path, executor, 1, None)
    assert isinstance(caught.value.__cause__, KeyError)


def test_calls_that_have_not_begun_are_cancelled(executor: Executor, tmp_path: Path) -> None:
    results = run_tasks(executor, begin_and_end, tmp_path, [(i, 0.2) for i in range(50)], str)
    next(results)
    results.close()
    wait([executor.submit(os.getpid)])
    assert len(list(tmp_path.glob("*.begun"))) < 20


def test_a_connection_is_used_and_left_open(executor: Executor) -> None:
    with vrtd.executors.ray() as other:
        assert other.submit(divmod, 7, 2).result() == (3, 1)
    assert ray.is_initialized()
    assert executor.submit(divmod, 7, 2).result() == (3, 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_workers": 0}, "n_workers must be a whole number of at least 1"),
        ({"n_workers": 2, "address": "auto"}, "n_workers=2 has no effect together with address='auto'"),
    ],
)
def test_refused_arguments(arguments: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        vrtd.executors.ray(**arguments)


def test_the_command_line_uses_the_connection(executor: Executor, capsys: Any) -> None:
    assert main(["simulate", "--runs", "4", "--gradients", "2000", "--executor", "ray", "--quiet"]) == 0
    assert "squared_error" in capsys.readouterr().out


def test_a_ray_that_is_started_listens_on_loopback_only() -> None:
    code = """
    import psutil, vrtd
    with vrtd.executors.ray(1) as executor:
        executor.submit(divmod, 7, 2).result()
        ours = {psutil.Process().pid, *(process.pid for process in psutil.Process().children(recursive=True))}
        sockets = [each for each in psutil.net_connections("tcp") if each.pid in ours and each.status == "LISTEN"]
        print(*sorted({each.laddr.ip.removeprefix("::ffff:") for each in sockets}))
    """
    ended = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)
    assert ended.stdout == "127.0.0.1\n"
