"""The loop of a GPU on the CPU: the same transitions and numbers as the engine of the CPU. No test here is random."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers import small_experiments
from tests.helpers.cpu_device import CpuDevice
from tests.helpers.table import ROWS, Row
from tests.helpers.toy_simulator import ring
from vrtd.cli import main
from vrtd.engine import device as engine_device
from vrtd.errors import DeviceError, InvalidInputError, MissingExtraError

PROBLEM = vrtd.problems.random_mdp(seed=0)


def loop_of(row: Row) -> Any:
    """Return what distinguishes loops: algorithms of one family have the same step."""
    epoch = row.algorithm.epoch(row.sampling, 40 if row.sampling == "dataset" else 0)
    return type(row.algorithm).kernels.step, epoch.subset, epoch.random_length


FIRST_ROWS = list({loop_of(row): row for row in reversed(ROWS)}.values())
VRTD = vrtd.VRTD(0.1, 7)


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> CpuDevice:
    stand_in = CpuDevice()
    monkeypatch.setattr(engine_device, "open_gpu", lambda: stand_in)
    return stand_in


def simulate(problem: Any = PROBLEM, algorithm: Any = VRTD, **changes: Any) -> vrtd.Result:
    arguments = {"n_runs": 5, "n_gradients": 300, "seed": 5, "checkpoints": 4, "device": "cuda"}
    return vrtd.simulate(problem, algorithm, **(arguments | changes))


def assert_agree(ours: vrtd.Result, cpu: vrtd.Result) -> None:
    """Compare two results: what is drawn is the same, and what is computed differs by rounding."""
    np.testing.assert_allclose(ours.curves, cpu.curves, rtol=1e-12)
    np.testing.assert_allclose(ours.theta, cpu.theta, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(ours.diverged_at, cpu.diverged_at)
    np.testing.assert_array_equal(ours.n_samples, cpu.n_samples)
    for name in ("environment", "algorithm"):
        assert getattr(ours.state, name).tobytes() == getattr(cpu.state, name).tobytes()
    np.testing.assert_allclose(ours.state.cursors, cpu.state.cursors, rtol=1e-12)
    np.testing.assert_allclose(ours.state.workspaces, cpu.state.workspaces, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("row", FIRST_ROWS, ids=[row.id for row in FIRST_ROWS])
def test_every_algorithm_agrees_with_the_engine_of_the_cpu(row: Row, device: CpuDevice) -> None:
    """Loops for any number of features compile fastest, and keep workspaces in the memory of the device."""
    problem = vrtd.record(PROBLEM, 40, seed=3) if row.sampling == "dataset" else PROBLEM
    ours = simulate(problem, row.algorithm, sampling=row.sampling, specialise=False)
    assert device.launches[1:]
    assert_agree(ours, simulate(problem, row.algorithm, sampling=row.sampling, device="cpu"))


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [("random_mdp", VRTD), ("boyan_chain", vrtd.TD(0.1)), ("simulator", VRTD)],
    ids=["dense", "sparse", "simulator"],
)
def test_every_source_agrees_with_the_engine_of_the_cpu(name: str, algorithm: Any) -> None:
    problem: Any = ring(np.eye(5)[:, :2] + 0.1) if name == "simulator" else vrtd.problems.LIBRARY[name](seed=0)
    arguments = {"metrics": () if name == "simulator" else ("squared_error", "mspbe")}
    ours = simulate(problem, algorithm, **arguments)
    assert_agree(ours, simulate(problem, algorithm, device="cpu", **arguments))


def test_a_run_can_move_between_devices() -> None:
    whole = simulate(device="cpu", n_gradients=600, checkpoints=[600])
    for first, then in (("cpu", "cuda"), ("cuda", "cpu"), ("cuda", "cuda")):
        rest = simulate(start=simulate(device=first), device=then, checkpoints=[600])
        assert_agree(rest, whole)


def test_parts_and_launches_do_not_change_a_bit(device: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = simulate(n_runs=7)
    monkeypatch.setattr(engine_device, "_FIRST_GRADIENTS", 1)
    monkeypatch.setattr(engine_device, "_SECONDS_PER_LAUNCH", 0.0)
    device.free_memory = 2000  # room for two runs or so
    device.launches.clear()
    shares: list[float] = []
    divided = simulate(n_runs=7, progress=shares.append)
    assert len(set(device.launches)) == 2  # the last part has another size
    assert len(device.launches) > 20
    assert divided.curves.tobytes() == whole.curves.tobytes()
    assert divided.state.workspaces.tobytes() == whole.state.workspaces.tobytes()
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_a_single_run() -> None:
    assert simulate(n_runs=1).curves.tobytes() == simulate(n_runs=3).curves[:1].tobytes()


def test_the_same_runs_diverge() -> None:
    arguments = {"sampling": "iid", "specialise": False, "n_runs": 20, "n_gradients": 3000, "checkpoints": 50}
    ours, cpu = (simulate(algorithm=vrtd.TDC(3.0, 3.0), device=device, **arguments) for device in ("cuda", "cpu"))
    assert (cpu.diverged_at >= 0).any()
    np.testing.assert_array_equal(ours.diverged_at, cpu.diverged_at)


def test_handles_are_as_small_as_possible(device: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: list[Any] = []
    empty = CpuDevice.empty

    def watch(self: CpuDevice, shape: tuple[int, ...], dtype: Any, order: Any = "C") -> Any:
        kinds.append(dtype)
        return empty(self, shape, dtype, order)

    monkeypatch.setattr(CpuDevice, "empty", watch)
    simulate()
    assert np.uint16 in kinds
    assert np.uint32 not in kinds


def test_the_result_says_where_it_was_computed() -> None:
    assert simulate().provenance["device"] == CpuDevice.name
    assert simulate(device="cpu").provenance["device"] == "cpu"


def test_auto_takes_the_gpu_for_much_work(device: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    much, runs = 10**9, engine_device._LEAST_RUNS
    assert engine_device.choose_device("auto", runs, much, 4) is device
    assert engine_device.choose_device("auto", runs - 1, much, 4) is None
    assert engine_device.choose_device("auto", runs, 10, 4) is None
    for error in (DeviceError("No GPU.", "Buy one."), MissingExtraError("numba-cuda", "cuda")):

        def fail(error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(engine_device, "open_gpu", fail)
        assert engine_device.choose_device("auto", runs, much, 4) is None
        with pytest.raises(type(error)):
            engine_device.choose_device("cuda", 1, 1, 4)


def test_wrong_devices() -> None:
    with pytest.raises(InvalidInputError, match="device must be one of 'cpu', 'cuda', 'auto'"):
        simulate(device="tpu")
    both = r"device='cuda' has no effect together with executor, whose workers use the CPU\. Drop one of them\."
    with ThreadPoolExecutor(1) as executor, pytest.raises(InvalidInputError, match=both):
        simulate(executor=executor)


def test_a_sweep_has_the_numbers_of_simulate(device: CpuDevice, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"n_runs": 5, "n_gradients": 300, "seed": 5, "exact": False, "out": tmp_path}
    grid = {"step_size": [0.1, 0.2], "batch_size": [7]}
    swept = vrtd.sweep(PROBLEM, vrtd.VRTD, grid, device="cuda", **arguments)
    assert device.launches
    expected = simulate(checkpoints=1).summary().mean[-1]
    assert swept.final("mean", "problem-1")[0, 0] == expected
    device.launches.clear()
    vrtd.sweep(PROBLEM, vrtd.VRTD, grid, device="cuda", **arguments)
    assert not device.launches  # all cells are kept
    on_cpu = vrtd.sweep(PROBLEM, vrtd.VRTD, grid, **arguments)  # these are other cells
    np.testing.assert_allclose(on_cpu.final("mean", "problem-1"), swept.final("mean", "problem-1"), rtol=1e-12)
    assert on_cpu.timing.n_computed == 2


def test_a_reproduction_on_another_device_measures_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_experiments.install(monkeypatch)
    for device, n_measured in (("cpu", 1), ("auto", 2), ("auto", 2)):  # there is little to do, which "auto" does here
        vrtd.reproduce("first", out=tmp_path, n_runs=4, device=device)
        assert len(small_experiments.measured) == n_measured


def test_a_comparison_has_the_numbers_of_the_cpu(
    device: CpuDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cell of SVRG, which uses a data set, is that of the CPU and is kept."""
    size = vrtd.tournament.TournamentSize(n_samples=100, n_runs=3, n_trials=1, n_tuning_runs=2, n_passes=2)

    def compare(where: str) -> vrtd.tournament.Comparison:
        device.launches.clear()
        algorithms = {"td": vrtd.TD(0.1), "vrtd": VRTD, "svrg": vrtd.SVRG(0.1)}
        return vrtd.compare([PROBLEM], algorithms, size=size, out=tmp_path, threads=1, device=where)

    monkeypatch.setattr(engine_device, "_LEAST_RUNS", 1)
    cpu = compare("auto")  # there is little to do
    assert not device.launches
    assert "device" not in cpu.manifest
    ours = compare("cuda")
    assert {size.n_tuning_runs, size.n_runs} <= set(device.launches)
    assert ours.manifest["device"] == CpuDevice.name
    for pair, cell in ours.cells.items():
        for aim, found in cell.aims.items():
            expected = cpu.cells[pair].aims[aim]
            np.testing.assert_allclose(found.finals, expected.finals, rtol=1e-12)
            np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
            assert found.n_samples == expected.n_samples
    assert ours.cells["problem-1", "svrg"] == cpu.cells["problem-1", "svrg"]
    assert ours.cells["problem-1", "td"] != cpu.cells["problem-1", "td"]  # at least in its time
    compare("cuda")
    assert not device.launches  # all cells are kept


def test_a_comparison_refuses_a_device_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = r"device='cuda' has no effect together with executor, whose workers use the CPU\. Drop one of them\."
    with ThreadPoolExecutor(1) as executor, pytest.raises(InvalidInputError, match=both):
        vrtd.compare(out=tmp_path / "c", executor=executor, device="cuda")
    with pytest.raises(InvalidInputError, match="device must be one of 'cpu', 'cuda', 'auto'"):
        vrtd.compare(out=tmp_path / "c", device="tpu")  # type: ignore[arg-type]

    def fail() -> None:
        raise DeviceError("No GPU.", "Buy one.")

    monkeypatch.setattr(engine_device, "open_gpu", fail)
    with pytest.raises(DeviceError, match="No GPU"):
        vrtd.compare(out=tmp_path / "c", device="cuda")
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_chooses_the_device(device: CpuDevice, capsys: pytest.CaptureFixture[str]) -> None:
    options = "--runs 5 --gradients 300 --checkpoints 4 --batch-size 7 --seed 5 --quiet --json"
    assert main(["simulate", *options.split(), "--device", "auto"]) == 0
    assert json.loads(capsys.readouterr().out)["device"] == "cpu"
    assert not device.launches
