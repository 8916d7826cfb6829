"""`record`: the rows that `simulate` sees, in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.toy_simulator import ring, ring_draw
from tests.reference import td
from tests.reference.sampling import Sample, chain_draw, uniforms
from vrtd.errors import InvalidInputError
from vrtd.sources import chain_source

PROBLEM = vrtd.problems.random_mdp(seed=0)
BOYAN = vrtd.problems.boyan_chain()


def rows_of(data: vrtd.Transitions) -> list[tuple[Any, ...]]:
    columns = (data.phi.tolist(), data.phi_next.tolist(), data.reward.tolist(), data.discount.tolist())
    return list(zip(*columns, strict=True))


def drawn(draw: Any, n: int) -> list[tuple[Any, ...]]:
    samples = [draw() for _ in range(n)]
    return [(list(x[0]), list(x[1]), float(x[2]), float(x[3])) for x in samples]


@pytest.mark.parametrize("sampling", ["iid", "markov"])
@pytest.mark.parametrize("problem", [PROBLEM, vrtd.problems.boyan_chain()], ids=["dense", "sparse"])
def test_the_rows_are_those_that_simulate_sees(problem: vrtd.LinearProblem, sampling: Any) -> None:
    source = chain_source(problem.mrp, problem.phi, sampling, problem.mrp.stationary)
    for run in (0, 5):
        data = vrtd.record(problem, 50, sampling=sampling, seed=7, run=run, shuffle=False)
        assert rows_of(data) == drawn(chain_draw(source, sampling, 7, run), 50)
        assert data.weight.tolist() == [1.0] * 50


@pytest.mark.parametrize("sampling", ["iid", "markov"])
def test_td_has_learned_from_these_very_rows(sampling: Any) -> None:
    result = vrtd.simulate(PROBLEM, vrtd.TD(0.1), sampling=sampling, n_runs=3, n_gradients=60, seed=5)
    data = vrtd.record(PROBLEM, 60, sampling=sampling, seed=5, run=2, shuffle=False)
    theta = np.zeros(4)
    for sample in map(Sample, data.phi, data.phi_next, data.reward, data.discount):
        theta = theta + 0.1 * td.pseudo_gradient(sample, theta)
    np.testing.assert_allclose(result.theta[2], theta, rtol=1e-12, atol=1e-12)
    other = vrtd.record(PROBLEM, 60, sampling=sampling, seed=5, run=1, shuffle=False)
    assert rows_of(other) != rows_of(data)


def test_the_rows_of_a_simulator() -> None:
    simulator = ring(np.random.default_rng(4).random((5, 3)))
    data = vrtd.record(simulator, 60, seed=2, run=3, shuffle=False)
    assert rows_of(data) == drawn(ring_draw(simulator, uniforms(2, 3)), 60)
    assert 0.0 in data.discount


def test_importance_ratios_are_kept() -> None:
    """Two actions of which the target policy takes the other one more often."""
    P = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.1, 0.9], [0.7, 0.3]]])
    mdp = vrtd.MDP(P, np.array([[1.0, 0.0], [0.0, 2.0]]), 0.9)
    chain = mdp.chain(np.array([[0.8, 0.2], [0.3, 0.7]]), behaviour=np.full((2, 2), 0.5))
    problem = vrtd.LinearProblem(chain, [[1.0], [0.5]])
    data = vrtd.record(problem, 50, seed=1, shuffle=False)
    draw = chain_draw(chain_source(chain, problem.phi, "markov", chain.stationary), "markov", 1, 0)
    assert data.weight.tolist() == [float(draw().weight) for _ in range(50)]
    assert len(set(data.weight.tolist())) > 1


def test_where_the_trajectory_starts() -> None:
    data = vrtd.record(PROBLEM, 5, initial=7, shuffle=False)
    assert data.phi[0].tolist() == PROBLEM.phi[7].tolist()


def test_rows_are_shuffled_and_none_is_lost() -> None:
    plain, mixed = (vrtd.record(PROBLEM, 200, seed=1, shuffle=shuffle) for shuffle in (False, True))
    assert rows_of(plain) != rows_of(mixed)
    assert sorted(rows_of(plain)) == sorted(rows_of(mixed))
    assert mixed.digest == vrtd.record(PROBLEM, 200, seed=1).digest
    assert mixed.digest != vrtd.record(PROBLEM, 200, seed=1, run=1).digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sampling": "dataset"}, "sampling must be one of 'iid', 'markov', but got 'dataset'"),
        ({"n_rows": 0}, "n_rows must be a whole number of at least 1, but got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"run": -1}, "run must be a whole number of at least 0"),
    ],
)
def test_what_cannot_be_recorded(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        vrtd.record(PROBLEM, **({"n_rows": 5} | changes))


def test_ends_are_where_the_next_row_does_not_continue() -> None:
    """Terminations in order; every row of independent draws and of shuffled rows."""
    rows = vrtd.record(BOYAN, 300, seed=1, shuffle=False)
    assert rows.ends.tolist() == (rows.discount == 0.0).tolist()
    assert 0 < rows.ends.sum() < 300
    goes_on = ~rows.ends[:-1]
    assert np.array_equal(rows.phi_next[:-1][goes_on], rows.phi[1:][goes_on])
    assert vrtd.record(BOYAN, 300, seed=1).ends.all()
    assert vrtd.record(BOYAN, 300, sampling="iid", seed=1, shuffle=False).ends.all()


def test_what_is_no_chain_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="problem must be a LinearProblem or a Simulator"):
        vrtd.record(vrtd.record(PROBLEM, 5), 5)  # type: ignore[arg-type]
