"""The interface for compiled simulators, proven on a toy whose every transition is known."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.table import ROWS, Row
from tests.helpers.toy_simulator import LAST, ring, ring_draw
from tests.reference.sampling import AlgorithmIndex, Sample, uniforms
from tests.reference.traces import td_lambda
from vrtd.errors import InvalidInputError
from vrtd.kernels.jit import dynamics

PHI = np.random.default_rng(4).random((5, 3))
ON_TRAJECTORIES = [row for row in ROWS if row.id in ("td-markov", "vrtd-algorithm-2", "vrtd-fresh-on-markov")]
each_row = pytest.mark.parametrize("row", ON_TRAJECTORIES, ids=[row.id for row in ON_TRAJECTORIES])
DISTANCE = vrtd.QuadraticForm("distance", np.eye(3), np.zeros(3))


def run(row: Row, simulator: Any, **changes: Any) -> vrtd.Result:
    n_gradients = row.n_epochs * row.algorithm.epoch("markov").n_gradients
    arguments = {"n_runs": 5, "n_gradients": n_gradients, "seed": 2, "metrics": (DISTANCE,), "checkpoints": 4}
    return vrtd.simulate(simulator, row.algorithm, **(arguments | changes))


@pytest.mark.slow
@each_row
def test_agrees_with_the_transcription(row: Row) -> None:
    simulator = ring(PHI)
    result = run(row, simulator)
    for i in (0, 3, 4):
        draw = ring_draw(simulator, uniforms(2, i))
        outputs = row.reference(row.algorithm, "markov", draw, AlgorithmIndex(2, i), np.zeros(3), row.n_epochs)
        np.testing.assert_allclose(result.theta[i], outputs[-1], rtol=1e-12, atol=1e-12)
        assert result.values("distance")[i, -1] == pytest.approx(outputs[-1] @ outputs[-1], rel=1e-12)


@each_row
def test_threads_and_continuation_do_not_change_a_bit(row: Row) -> None:
    simulator = ring(PHI)
    whole = run(row, simulator, threads=1)
    assert run(row, simulator, threads=3).theta.tobytes() == whole.theta.tobytes()
    first = int(whole.n_gradients[-1]) // 3
    rest = int(whole.n_gradients[-1]) - first
    continued = run(row, simulator, n_gradients=rest, start=run(row, simulator, n_gradients=first))
    assert continued.theta.tobytes() == whole.theta.tobytes()


def test_a_second_simulator_with_the_same_kernels_compiles_nothing() -> None:
    from numba.core import event

    row = ON_TRAJECTORIES[0]
    run(row, ring(PHI))
    with event.install_recorder("numba:compile") as recorder:
        run(row, ring(PHI[::-1], forward=0.5))
    assert not recorder.buffer


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": ("error",)}, "metrics must be one of"),
        (
            {"sampling": "iid"},
            "sampling of a Simulator must be 'markov', but got 'iid'. Drop sampling, or pass 'markov'",
        ),
        ({"initial": 2}, "initial has no effect on a Simulator, but got 2. Drop initial"),
        ({"metrics": (vrtd.QuadraticForm("x", np.eye(2), np.zeros(2)),)}, "is for 2 features, but the problem has 3"),
    ],
)
def test_what_a_simulator_cannot_do_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        run(ON_TRAJECTORIES[0], ring(PHI), **changes)


def test_named_metrics_of_a_simulator_are_estimated_from_rows_that_no_run_sees() -> None:
    walk = ring(PHI)
    rows = vrtd.record(walk, 100_000, run=2**62, shuffle=False)
    forms = tuple(vrtd.metrics.METRICS[name](rows) for name in ("neu", "mspbe"))
    expected = run(ON_TRAJECTORIES[0], walk, metrics=forms)
    found = run(ON_TRAJECTORIES[0], walk, metrics=("neu", "mspbe"))
    for name in ("neu", "mspbe"):
        np.testing.assert_array_equal(found.values(name), expected.values(name))
    assert vrtd.simulate(walk, vrtd.TD(0.1), n_runs=2, n_gradients=10).metrics == ("neu",)


@pytest.mark.slow
def test_two_simulators_of_one_name_are_two() -> None:
    """Closures tell kernels apart, and a start from the other one is refused."""

    def walk(width: float) -> vrtd.Simulator:
        @dynamics
        def transition(params: Any, state: Any, stream: Any) -> Any:
            state[0] = width
            return width, 0.5, False

        simulator = ring(PHI)
        return dataclasses.replace(simulator, transition=transition)

    row = ON_TRAJECTORIES[0]
    one, two = (run(row, walk(width)) for width in (1.0, 2.0))
    assert not np.allclose(one.theta, two.theta)
    with pytest.raises(InvalidInputError, match="start must come from the same problem"):
        run(row, walk(2.0), start=one)
    with pytest.raises(InvalidInputError, match="start must come from the same problem"):
        run(row, ring(PHI, forward=0.5), start=run(row, ring(PHI)))


def test_bad_simulators_are_refused() -> None:
    simulator = ring(PHI)
    for params in ([1.0], "abc", (1.0, "abc"), {"a": 1}):
        with pytest.raises(InvalidInputError, match="params of a simulator must be numbers, arrays or tuples"):
            dataclasses.replace(simulator, params=params)
    with pytest.raises(InvalidInputError, match="must be compiled"):
        dataclasses.replace(simulator, reset=lambda params, state, stream: None)
    with pytest.raises(InvalidInputError, match="identifier"):
        ring(PHI, name="not a name")
    with pytest.raises(InvalidInputError, match="n_features of a simulator must be a whole number of at least 1"):
        ring(np.empty((5, 0)))


def test_no_trace_goes_on_from_an_episode_that_was_cut_short() -> None:
    phi = np.random.default_rng(0).normal(size=(5, 3)) / 2
    walk, algorithm = ring(phi), vrtd.TDLambda(0.1, 0.9)
    data = vrtd.record(walk, 400, shuffle=False)
    ends = (data.phi == phi[LAST]).all(axis=1)  # of an episode, terminated or cut short
    assert (data.discount[ends] > 0).any()
    samples = map(Sample, data.phi, data.phi_next, data.reward, data.discount, np.ones(400), ends)
    expected = td_lambda(algorithm, "markov", iter(samples).__next__, None, np.zeros(3), 400)[-1]
    found = vrtd.simulate(walk, algorithm, n_runs=1, n_gradients=400, metrics=())
    np.testing.assert_allclose(found.theta[0], expected, rtol=1e-11, atol=1e-13)


def test_params_are_read_only_copies_also_in_another_process() -> None:
    """Numba compiles another loop for arrays that can be written."""
    phi = PHI.copy()
    simulator = dataclasses.replace(ring(phi), params=ring(phi).params._replace(phi=phi))
    phi[:] = 0.0
    restored = pickle.loads(pickle.dumps(simulator))
    for each in (simulator, restored):
        assert type(each.params).__name__ == "RingParams"
        np.testing.assert_array_equal(each.params.phi, PHI)
        with pytest.raises(ValueError, match="read-only"):
            each.params.phi[0] = 1.0
    assert restored.digest == simulator.digest
    assert restored.reset is simulator.reset
    assert repr(restored) == "Simulator('ring', 3 features)"
