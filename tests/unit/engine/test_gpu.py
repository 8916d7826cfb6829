"""Runs on a GPU against runs on the CPU. Where there is no GPU, `test_device.py` runs the same loop on the CPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.table import ROWS, Row
from vrtd.engine.device import choose_device, describe_gpu

GPU = describe_gpu()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(GPU["name"] is None, reason=str(GPU["problem"]))]
PROBLEM = vrtd.problems.random_mdp(seed=0)
VRTD = vrtd.VRTD(0.1, 20)


def wide(d: int) -> Any:
    return vrtd.problems.random_mdp(seed=0, n_states=max(50, d), n_features=d, normalize=True)


# Chains with few and many features, dense, sparse and large ones (whose tables do not fit in shared memory).
CASES: dict[str, Any] = {
    "16-features": (lambda: wide(16), VRTD, {}),
    "64-features": (lambda: wide(64), vrtd.VRTD(0.1, 20, radius=5.0), {}),
    "64-features-lstd": (lambda: wide(64), vrtd.LSTD(), {}),
    "300-states": (lambda: vrtd.problems.random_mdp(seed=0, n_states=300), VRTD, {}),
    "garnet": (vrtd.problems.garnet, VRTD, {}),
    "garnet-iid": (vrtd.problems.garnet, vrtd.TD(0.1), {"sampling": "iid"}),
    "off-policy": (vrtd.problems.off_policy_garnet, vrtd.TDC(0.01, 0.1), {}),
    "frozen-lake": (vrtd.problems.frozen_lake, VRTD, {}),
    "any-chain": (lambda: PROBLEM, VRTD, {"specialise": False}),
    "mountain-car": (vrtd.problems.mountain_car, vrtd.TD(0.1), {"metrics": ()}),
    "mountain-car-vrtd": (vrtd.problems.mountain_car, VRTD, {"metrics": ()}),
    "one-run": (lambda: PROBLEM, VRTD, {"n_runs": 1}),
    "many-runs": (lambda: PROBLEM, VRTD, {"n_runs": 5000, "n_gradients": 20_000}),
    "diverging": (lambda: PROBLEM, vrtd.TDC(5.0, 5.0), {"n_gradients": 3000}),
}


def simulate(problem: Any, algorithm: Any, **changes: Any) -> vrtd.Result:
    arguments = {"n_runs": 9, "n_gradients": 600, "seed": 5, "checkpoints": 7}
    return vrtd.simulate(problem, algorithm, **(arguments | changes))


def assert_agree(ours: vrtd.Result, cpu: vrtd.Result, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(ours.curves, cpu.curves, rtol=tolerance)
    np.testing.assert_allclose(ours.theta, cpu.theta, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(ours.diverged_at, cpu.diverged_at)
    np.testing.assert_array_equal(ours.n_samples, cpu.n_samples)
    for name in ("environment", "algorithm"):
        assert getattr(ours.state, name).tobytes() == getattr(cpu.state, name).tobytes()
    if ours.state.cursors.dtype == np.uint64:
        assert ours.state.cursors.tobytes() == cpu.state.cursors.tobytes()


def assert_devices_agree(problem: Any, algorithm: Any, **changes: Any) -> None:
    """Compare whole runs, and runs that begin on one device and continue on the other."""
    cpu = simulate(problem, algorithm, **changes)
    assert_agree(simulate(problem, algorithm, device="cuda", **changes), cpu)
    half = changes | {"n_gradients": changes.get("n_gradients", 600) // 2}
    for first, then in (("cpu", "cuda"), ("cuda", "cpu")):
        start = simulate(problem, algorithm, device=first, **half)
        moved = simulate(problem, algorithm, device=then, start=start, **half)
        stayed = simulate(problem, algorithm, start=simulate(problem, algorithm, **half), **half)
        assert_agree(moved, stayed)


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_every_algorithm(row: Row) -> None:
    problem = vrtd.record(PROBLEM, 40, seed=3) if row.sampling == "dataset" else PROBLEM
    assert_devices_agree(problem, row.algorithm, sampling=row.sampling, metrics=("squared_error", "mspbe"))


@pytest.mark.parametrize("name", CASES)
def test_every_source(name: str) -> None:
    problem, algorithm, changes = CASES[name]
    assert_devices_agree(problem(), algorithm, **changes)


@pytest.mark.parametrize(
    "algorithm", [vrtd.TD(0.1), vrtd.VRTD(0.1, 500), vrtd.TDC(0.05, 0.1)], ids=["td", "vrtd", "tdc"]
)
def test_long_runs(algorithm: Any) -> None:
    changes = {"n_gradients": 1_000_000, "n_runs": 16}
    cpu = simulate(PROBLEM, algorithm, **changes)
    assert_agree(simulate(PROBLEM, algorithm, device="cuda", **changes), cpu, 1e-9)


def test_the_same_seed_gives_the_same_bits_on_a_gpu() -> None:
    ours, again = (simulate(PROBLEM, VRTD, n_runs=3000, device="cuda") for _ in range(2))
    assert ours.curves.tobytes() == again.curves.tobytes()
    part = simulate(PROBLEM, VRTD, n_runs=100, device="cuda")
    assert part.curves.tobytes() == ours.curves[:100].tobytes()


def test_cells_of_a_sweep_run_at_the_same_time() -> None:
    grid = {"step_size": [0.05, 0.1, 0.2, 0.4], "batch_size": [10, 20, 40, 80]}
    arguments: dict[str, Any] = {"n_runs": 200, "n_gradients": 2000, "exact": False, "threads": 4}
    ours, cpu = (vrtd.sweep(PROBLEM, vrtd.VRTD, grid, device=device, **arguments) for device in ("cuda", "cpu"))
    np.testing.assert_allclose(*(each.final("mean", "problem-1") for each in (ours, cpu)), rtol=1e-10)


def test_auto_takes_the_gpu_for_much_work() -> None:
    assert choose_device("auto", 1 << 20, 10**7, 4) is not None
    assert choose_device("auto", 100, 10**7, 4) is None


def test_progress_is_shown_and_interrupts_take_effect() -> None:
    shares: list[float] = []

    def stop(share: float) -> None:
        shares.append(share)
        if share > 0.1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        simulate(PROBLEM, vrtd.TD(0.1), n_runs=1 << 18, n_gradients=10_000_000, device="cuda", progress=stop)
    assert 0.1 < shares[-1] < 0.9


def test_threads_share_the_gpu() -> None:
    def run(seed: int) -> Any:
        return simulate(PROBLEM, VRTD, seed=seed, device="cuda").theta

    with ThreadPoolExecutor(4) as pool:
        for seed, theta in enumerate(pool.map(run, range(8))):
            assert theta.tobytes() == run(seed).tobytes()
