"""Data sets: what they mean, where they come from, what is refused, and epochs whose batches grow."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

import vrtd
from tests import reference
from tests.toy_simulator import ring, ring_draw
from vrtd.algorithms import Epoch
from vrtd.errors import InvalidInputError, SingularSystemError
from vrtd.sources import chain_source

PROBLEM = vrtd.problems.random_mdp(seed=0)
BOYAN = vrtd.problems.boyan_chain()


def some_data(n: int = 20, d: int = 3, **changes: Any) -> vrtd.DataSet:
    rng = np.random.default_rng(0)
    phi, phi_next = rng.normal(size=(2, n, d))
    arrays = {
        "phi": phi,
        "reward": rng.normal(size=n),
        "phi_next": phi_next,
        "discount": np.where(rng.random(n) < 0.3, 0.0, 0.9),
        "weight": rng.uniform(0.0, 2.0, n),
    }
    return vrtd.DataSet(**(arrays | changes))


# What it means


def test_means_over_the_rows() -> None:
    data = some_data()
    A, b, C = np.zeros((3, 3)), np.zeros(3), np.zeros((3, 3))
    for phi, reward, phi_next, discount, weight in zip(
        data.phi, data.reward, data.phi_next, data.discount, data.weight, strict=True
    ):
        A += weight * np.outer(phi, discount * phi_next - phi) / 20
        b += weight * reward * phi / 20
        C += np.outer(phi, phi) / 20
    np.testing.assert_allclose(data.A, A, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(data.b, b, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(data.C, C, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(A @ data.theta_star + b, 0.0, atol=1e-14)


def test_one_discount_and_no_weights() -> None:
    data = some_data(discount=0.5, weight=None)
    assert data.discount.tolist() == [0.5] * 20
    assert data.weight.tolist() == [1.0] * 20
    assert repr(data) == "DataSet(20 rows, 3 features)"


def test_the_callers_arrays_are_copied_and_ours_cannot_be_written() -> None:
    phi = np.ones((2, 1))
    data = vrtd.DataSet(phi, [1.0, 2.0], 0.5 * phi, 0.9)
    phi[0, 0] = 7.0
    assert data.phi[0, 0] == 1.0
    for array in (data.phi, data.phi_next, data.reward, data.discount, data.weight, data.A, data.b, data.theta_star):
        assert not array.flags.writeable


def test_the_digest_knows_every_number() -> None:
    data = some_data()
    assert data.digest == some_data().digest
    for name in ("phi", "reward", "phi_next", "discount", "weight"):
        values = getattr(data, name).copy()
        values.flat[3] = 0.25
        assert some_data(**{name: values}).digest != data.digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"phi": np.ones(20)}, r"phi must have the shape \(n, d\); got \(20,\); pass one row a transition"),
        ({"phi": np.ones((0, 3))}, r"phi must have the shape \(n, d\); got \(0, 3\)"),
        ({"phi": np.full((20, 3), np.nan)}, r"phi must be finite; got nan at index \(0, 0\)"),
        ({"reward": np.ones(19)}, r"reward must have the shape \(20,\); got \(19,\); pass one number a row of phi"),
        ({"phi_next": np.ones((20, 2))}, r"phi_next must have the shape \(20, 3\); got \(20, 2\); match phi"),
        ({"discount": np.ones(3)}, r"discount must have the shape \(20,\)"),
        ({"discount": 1.5}, r"discount must be in \[0, 1\]; got 1.5 in row 0; repair it"),
        ({"discount": -0.5}, r"discount must be in \[0, 1\]; got -0.5 in row 0"),
        ({"weight": np.arange(20.0) - 1.0}, "weight must be non-negative; got -1.0 in row 0; repair it"),
        ({"weight": "many"}, "weight must be an array of real numbers"),
    ],
)
def test_bad_rows_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        some_data(**changes)


def test_rows_without_a_single_solution_are_refused() -> None:
    with pytest.raises(SingularSystemError, match=r"A of the data set must be invertible; .* from 2 rows; give more"):
        some_data(2).theta_star  # noqa: B018


@pytest.mark.parametrize(
    ("problem", "arguments", "message"),
    [
        (some_data(), {"sampling": "iid"}, "sampling of a DataSet must be 'dataset'; got 'iid'; drop it, or pass that"),
        (some_data(), {"initial": 1}, "a DataSet has its own start; got initial 1; drop initial"),
        (PROBLEM, {"sampling": "dataset"}, r"got 'dataset'; draw rows first: vrtd.record\(problem, n_rows\)"),
        (some_data(), {"metrics": ("value_error",)}, "the value error needs the"),
    ],
)
def test_what_does_not_go_together_is_refused(problem: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        vrtd.simulate(problem, vrtd.TD(0.1), n_runs=2, n_gradients=10, **arguments)


def test_a_start_of_other_rows_is_refused() -> None:
    data = vrtd.record(PROBLEM, 40, seed=3)
    arguments: dict[str, Any] = {"sampling": "dataset", "n_runs": 2, "n_gradients": 10}
    start = vrtd.simulate(data, vrtd.TD(0.1), **arguments)
    beyond = dataclasses.replace(start, state=start.state._replace(cursors=start.state.cursors + np.uint64(40)))
    with pytest.raises(InvalidInputError, match=r"cursors of the start must be below n_rows, 40; .* run it again"):
        vrtd.simulate(data, vrtd.TD(0.1), **arguments, start=beyond)
    other = vrtd.record(PROBLEM, 40, seed=4)
    with pytest.raises(InvalidInputError, match="start must come from the same problem"):
        vrtd.simulate(other, vrtd.TD(0.1), **arguments, start=start)


# Where it comes from


def rows_of(data: vrtd.DataSet) -> list[tuple[Any, ...]]:
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
        assert rows_of(data) == drawn(reference.chain_draw(source, sampling, 7, run), 50)
        assert data.weight.tolist() == [1.0] * 50


@pytest.mark.parametrize("sampling", ["iid", "markov"])
def test_td_has_learned_from_these_very_rows(sampling: Any) -> None:
    result = vrtd.simulate(PROBLEM, vrtd.TD(0.1), sampling=sampling, n_runs=3, n_gradients=60, seed=5)
    data = vrtd.record(PROBLEM, 60, sampling=sampling, seed=5, run=2, shuffle=False)
    theta = np.zeros(4)
    for sample in map(reference.Sample, data.phi, data.phi_next, data.reward, data.discount):
        theta = theta + 0.1 * reference.pseudo_gradient(sample, theta)
    np.testing.assert_allclose(result.theta[2], theta, rtol=1e-12, atol=1e-12)
    other = vrtd.record(PROBLEM, 60, sampling=sampling, seed=5, run=1, shuffle=False)
    assert rows_of(other) != rows_of(data)


def test_the_rows_of_a_simulator() -> None:
    simulator = ring(np.random.default_rng(4).random((5, 3)))
    data = vrtd.record(simulator, 60, seed=2, run=3, shuffle=False)
    assert rows_of(data) == drawn(ring_draw(simulator, reference.uniforms(2, 3)), 60)
    assert 0.0 in data.discount


def test_importance_ratios_are_kept() -> None:
    """Two actions of which the target policy takes the other one more often."""
    P = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.1, 0.9], [0.7, 0.3]]])
    mdp = vrtd.MDP(P, np.array([[1.0, 0.0], [0.0, 2.0]]), 0.9)
    chain = mdp.chain(np.array([[0.8, 0.2], [0.3, 0.7]]), behaviour=np.full((2, 2), 0.5))
    problem = vrtd.LinearProblem(chain, [[1.0], [0.5]])
    data = vrtd.record(problem, 50, seed=1, shuffle=False)
    draw = reference.chain_draw(chain_source(chain, problem.phi, "markov", chain.stationary), "markov", 1, 0)
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
        ({"sampling": "dataset"}, "sampling must be one of 'iid', 'markov'; got 'dataset'"),
        ({"n_rows": 0}, "n_rows must be a whole number of at least 1; got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"run": -1}, "run must be a whole number of at least 0"),
    ],
)
def test_what_cannot_be_recorded(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        vrtd.record(PROBLEM, **({"n_rows": 5} | changes))


# Batches that grow


def counted(epoch: Epoch, n_epochs: int) -> list[tuple[int, int]]:
    """(epochs that are closed, samples that are drawn) after 0, 1, 2, ... pseudo-gradients, one by one."""
    sizes = itertools.chain(epoch.ramp, itertools.repeat(epoch.n_absorb))
    samples, path = 0, []
    for closed, size in zip(range(n_epochs), sizes, strict=False):
        for _ in range(size):
            path += [(closed, samples)] * epoch.gradients_per_absorb
            samples += 1
        for _ in range(epoch.n_steps * size // epoch.n_absorb if epoch.follows else epoch.n_steps):
            path += [(closed, samples)] * epoch.gradients_per_step
            samples += epoch.inner == "fresh"
    return [*path, (n_epochs, samples)]


@pytest.mark.parametrize(
    "epoch",
    [
        Epoch(10, 4, "fresh", ramp=(1, 3, 9)),
        Epoch(10, 4, "resample", ramp=(2, 6)),
        Epoch(10, 0, "fresh", ramp=(5,)),
        Epoch(10, 20, "resample", ramp=(2, 6), follows=True),
        Epoch(10, 15, "fresh", ramp=(3, 4), follows=True),
        Epoch(7, 3, "fresh", gradients_per_absorb=2, gradients_per_step=3, ramp=(2, 4, 6)),
        Epoch(7, 3, "fresh"),
        Epoch(0, 1, "fresh"),
        Epoch(0, 1, "fresh", ramp=(5,)),
    ],
    ids=str,
)
def test_counts_of_growing_batches(epoch: Epoch) -> None:
    path = counted(epoch, 7)
    n = np.arange(len(path))
    assert epoch.epochs_at(n).tolist() == [closed for closed, _ in path]
    assert epoch.samples_at(n).tolist() == [samples for _, samples in path]
    ends = [[closed for closed, _ in path].index(k) for k in range(8)]
    assert epoch.gradients_until(np.arange(8)).tolist() == ends
    assert [int(epoch.epochs_at(k)) for k in n] == [closed for closed, _ in path]


def test_growing_batches_are_cut_and_continued_anywhere() -> None:
    """Same bits and counts, wherever a run over a ramp is taken up again."""
    data, algorithm = vrtd.record(PROBLEM, 40, seed=3), vrtd.GrowingSCSG(0.5, 0.2, 6, steps_per_row=2)
    epoch = algorithm.epoch("dataset", 40)
    assert epoch.ramp == (6, 12, 24)
    total = int(epoch.gradients_until(6)) + 5
    arguments: dict[str, Any] = {"sampling": "dataset", "n_runs": 3, "seed": 5}
    long = vrtd.simulate(data, algorithm, n_gradients=total, checkpoints=np.arange(total), **arguments)
    assert long.n_samples.tolist() == [samples for _, samples in counted(epoch, 7)[: total + 1]]
    for first in range(int(epoch.gradients_until(1)), total, 11):
        start = vrtd.simulate(data, algorithm, n_gradients=first, **arguments)
        rest = vrtd.simulate(data, algorithm, n_gradients=total - first, start=start, **arguments)
        assert rest.theta.tobytes() == long.theta.tobytes()
        assert rest.n_samples[-1] == long.n_samples[-1]


def test_progress_of_growing_batches_goes_to_1() -> None:
    shares: list[float] = []
    vrtd.simulate(
        vrtd.record(PROBLEM, 40), vrtd.GrowingSCSG(0.5, 0.2, 6, steps_per_row=2), sampling="dataset", n_runs=9,
        n_gradients=300, progress=shares.append,
    )  # fmt: skip
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
