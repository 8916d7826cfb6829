"""What every algorithm must do on every source, row by row of tests/helpers/table.py. No test here is random."""

from __future__ import annotations

import dataclasses
import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest
from numba.core import event

import vrtd
from tests.helpers.table import ROWS, Row, noiseless, noiseless_rows, two_states
from tests.reference import td
from tests.reference.batch import Rows
from tests.reference.sampling import AlgorithmIndex, Sample, chain_draw
from vrtd.algorithms import REGISTRY, Algorithm, Epoch
from vrtd.engine import blocks, simulation
from vrtd.engine.loop import SMALL
from vrtd.errors import InvalidInputError
from vrtd.kernels.random import ENVIRONMENT, make_streams
from vrtd.sources import chain_source

PROBLEM = vrtd.problems.random_mdp(seed=0)
N_ROWS = 40  # of data sets
each_row = pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
each_algorithm = pytest.mark.parametrize("kind", REGISTRY.values(), ids=REGISTRY)


def rows(*names: str) -> Any:
    return pytest.mark.parametrize("row", [row for row in ROWS if row.id in names], ids=names)


@cache
def data_set() -> vrtd.Transitions:
    return vrtd.record(PROBLEM, N_ROWS, seed=3)


def is_on_rows(row: Row) -> bool:
    return row.sampling == "dataset"


def epoch_of(row: Row) -> Epoch:
    return row.algorithm.epoch(row.sampling, N_ROWS if is_on_rows(row) else 0)


def gradients(row: Row, n_epochs: int) -> int:
    """What so many epochs count; in the mean, where their lengths are random."""
    epoch = epoch_of(row)
    if epoch.random_length:
        return n_epochs * (epoch.n_absorb + epoch.n_steps)
    return int(epoch.gradients_until(n_epochs))


def transcribed(row: Row, n_epochs: int, run: int, seed: int = 5) -> list[Any]:
    """The outputs that the transcription has in one of the runs."""
    if is_on_rows(row):
        draw: Any = Rows(data_set(), seed, run)
    else:
        source = chain_source(PROBLEM.mrp, PROBLEM.phi, row.sampling, PROBLEM.mrp.stationary)
        draw = chain_draw(source, row.sampling, seed, run)
    index = AlgorithmIndex(seed, run)
    outputs: list[Any] = row.reference(row.algorithm, row.sampling, draw, index, np.zeros(4), n_epochs)
    return outputs


def run(row: Row, n_epochs: int | None = None, **changes: Any) -> vrtd.Result:
    arguments = {
        "sampling": row.sampling,
        "n_runs": 9,
        "n_gradients": gradients(row, row.n_epochs if n_epochs is None else n_epochs),
        "seed": 5,
        "metrics": ("squared_error", "mspbe"),
        "checkpoints": 7,
    }
    problem = data_set() if is_on_rows(row) else PROBLEM
    return vrtd.simulate(problem, row.algorithm, **(arguments | changes))


def assert_same_bits(left: vrtd.Result, right: vrtd.Result, runs: slice = slice(None)) -> None:
    assert left.curves[runs].tobytes() == right.curves[runs].tobytes()
    assert left.theta[runs].tobytes() == right.theta[runs].tobytes()
    for ours, theirs in zip(left.state, right.state, strict=True):
        assert ours[runs].tobytes() == theirs[runs].tobytes()


def test_every_registered_algorithm_has_rows() -> None:
    assert {type(row.algorithm) for row in ROWS} == set(REGISTRY.values())
    assert all(REGISTRY[name].name == name for name in REGISTRY)


@each_algorithm
def test_declarations_name_fields(kind: type[Algorithm]) -> None:
    names = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    assert set(kind.step_size_fields) <= set(kind.tuned) <= names
    assert {name for name in names if name.startswith("step_size")} == set(kind.step_size_fields)
    assert (kind.cost == "quadratic") == (kind.n_matrices > 0)


@each_algorithm
@pytest.mark.parametrize(("d", "n_rows"), [(1, 5), (3, 10), (8, 1)])
def test_the_state_fills_the_workspace_without_overlaps(kind: type[Algorithm], d: int, n_rows: int) -> None:
    """Kernels write without checks: a state larger than its declaration would write into the next run's."""
    n_rows = n_rows if kind.needs_data_set else 0
    places = np.arange(kind().workspace_size(d, n_rows), dtype=np.float64)
    state = kind.kernels.views.py_func(places, d)
    assert np.concatenate(state).tolist() == places.tolist()
    sizes = [d] * kind.n_vectors + [d * d] * kind.n_matrices
    assert sum(sizes) in np.cumsum([part.size for part in state])


@each_row
def test_agrees_with_the_transcription(row: Row) -> None:
    result = run(row, checkpoints=1)
    for i in (0, 1, 8):
        np.testing.assert_allclose(result.theta[i], transcribed(row, row.n_epochs, i)[-1], rtol=1e-12, atol=1e-12)


@each_row
def test_values_at_checkpoints_are_those_of_the_output(row: Row) -> None:
    result = run(row, n_epochs=5, checkpoints=[gradients(row, k) for k in range(6)], n_runs=2)
    outputs = transcribed(row, 5, 0)
    problem = data_set() if is_on_rows(row) else PROBLEM
    for name in ("squared_error", "mspbe"):
        form = vrtd.metrics.METRICS[name](problem)
        np.testing.assert_allclose(result.values(name)[0], [form(theta) for theta in outputs], rtol=1e-10)


@each_row
def test_threads_do_not_change_a_bit(row: Row) -> None:
    one = run(row, threads=1)
    for threads in (2, 3, 7):
        assert_same_bits(one, run(row, threads=threads))


@each_row
def test_blocks_and_calls_do_not_change_a_bit(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(row, threads=1)
    for gradients_per_call in (1, 100, 1000):
        monkeypatch.setattr(blocks, "_GRADIENTS_PER_CALL", gradients_per_call)
        assert_same_bits(whole, run(row, threads=2))


@each_row
def test_the_size_of_blocks_does_not_change_a_bit(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one group of runs a block to all of them in one; also when continued, and when they start elsewhere."""
    first = gradients(row, 3)
    whole = run(row, n_runs=41)
    for blocks_per_thread, threads in ((1, 1), (3, 1), (1, 2)):
        monkeypatch.setattr(blocks, "_BLOCKS_PER_THREAD", blocks_per_thread)
        assert_same_bits(whole, run(row, n_runs=41, threads=threads))
        start = run(row, n_runs=41, threads=threads, n_gradients=first)
        rest = int(whole.n_gradients[-1]) - first
        assert run(row, n_runs=41, threads=3, n_gradients=rest, start=start).theta.tobytes() == whole.theta.tobytes()


@each_row
def test_any_part_of_the_runs_can_be_run_alone(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(row, n_runs=12)
    monkeypatch.setattr(simulation, "make_streams", lambda seed, runs, purpose: make_streams(seed, runs + 4, purpose))
    part = run(row, n_runs=5)
    assert part.curves.tobytes() == whole.curves[4:9].tobytes()
    assert part.theta.tobytes() == whole.theta[4:9].tobytes()


@each_row
def test_a_run_does_not_depend_on_the_number_of_runs(row: Row) -> None:
    whole = run(row)
    for n_runs in (1, 2, 4):
        assert_same_bits(whole, run(row, n_runs=n_runs), slice(n_runs))


@each_row
def test_a_continued_run_equals_one_long_run(row: Row) -> None:
    epoch = gradients(row, 6) - gradients(row, 5)
    total = gradients(row, 6) + epoch // 2
    long = run(row, n_gradients=total, checkpoints=np.arange(total))
    for first in (gradients(row, 2), gradients(row, 2) + epoch // 3, gradients(row, 4) - 1):
        start = run(row, n_gradients=first, checkpoints=3)
        rest = run(row, n_gradients=total - first, checkpoints=5, start=start)
        assert rest.n_gradients[-1] == total
        assert rest.theta.tobytes() == long.theta.tobytes()
        for ours, theirs in zip(rest.state, long.state, strict=True):
            assert ours.tobytes() == theirs.tobytes()
        for part in (start, rest):
            _, here, there = np.intersect1d(part.n_gradients, long.n_gradients, return_indices=True)
            assert here.size >= 2
            assert part.curves[:, here].tobytes() == long.curves[:, there].tobytes()
            np.testing.assert_array_equal(part.n_samples[here], long.n_samples[there])


def words_used(result: vrtd.Result) -> list[int]:
    """Of the environment's stream, by each of nine runs."""
    fresh = make_streams(5, np.arange(9), ENVIRONMENT)
    return [
        (int(end) - int(start)) * pow(int(increment), -1, 1 << 64) % (1 << 64)
        for (start, increment), (end, _) in zip(fresh, result.state.environment, strict=True)
    ]


@pytest.mark.parametrize("row", [row for row in ROWS if epoch_of(row).random_length], ids=lambda row: row.id)
def test_counts_of_epochs_of_random_length(row: Row) -> None:
    """Each run has drawn as many rows as it counts, and one more epoch would not have fitted."""
    epoch = epoch_of(row)
    result = run(row)
    assert result.n_samples.tolist() == result.n_gradients.tolist()
    for i, words in enumerate(words_used(result)):
        index, spent, closed, absorbed = AlgorithmIndex(5, i), 0, 0, epoch.n_absorb
        while spent + (n := absorbed + index.geometric(1.0 / (absorbed + 1))) <= result.n_gradients[-1]:
            spent, closed = spent + n, closed + 1
        assert words == 1 + spent - (closed * absorbed if absorbed == N_ROWS else 0)  # all rows are not drawn


@pytest.mark.parametrize("row", [row for row in ROWS if not epoch_of(row).random_length], ids=lambda row: row.id)
def test_counts_are_what_was_drawn(row: Row) -> None:
    """The environment's stream tells how many words were used: one for the start, then one a Markov sample, two if
    i.i.d.; of a data set one a fresh sample and one a row of a subset, but none for the next rows."""
    result = run(row)
    used = words_used(result)
    epoch = epoch_of(row)
    shapes = [*epoch.warmup, *[(epoch.n_absorb, epoch.n_steps)] * row.n_epochs][: row.n_epochs]
    sizes, n_steps = [size for size, _ in shapes], sum(steps for _, steps in shapes)
    fresh_samples = n_steps * epoch.samples_per_step
    assert result.n_samples[-1] == sum(sizes) + fresh_samples
    words = {"markov": 1, "iid": 2, "dataset": 0}[row.sampling] * sum(sizes)
    words += sum(size for size in sizes if epoch.subset and size < N_ROWS)
    words += {"markov": 1, "iid": 2, "dataset": 1}[row.sampling] * fresh_samples
    assert {1 + words} == set(used)
    steps = n_steps * epoch.gradients_per_step
    assert result.n_gradients[-1] == sum(sizes) * epoch.gradients_per_absorb + steps


def without_noise(row: Row) -> tuple[Any, Any]:
    """A problem of the row's kind, and its theta_star."""
    if is_on_rows(row):
        data, theta = noiseless_rows(N_ROWS)
        np.testing.assert_allclose(data.theta_star, theta, atol=1e-9)
        return data, theta
    problem, theta = noiseless()
    np.testing.assert_allclose(problem.theta_star, theta, atol=1e-9)
    return problem, theta


@each_row
def test_theta_star_is_kept_when_no_transition_contradicts_it(row: Row) -> None:
    problem, theta = without_noise(row)
    result = vrtd.simulate(
        problem, row.algorithm, sampling=row.sampling, n_runs=3, n_gradients=gradients(row, 20), theta_0=theta
    )
    np.testing.assert_allclose(result.theta, np.tile(theta, (3, 1)), atol=1e-12)


@each_row
def test_converges_to_theta_star_when_there_is_no_noise(row: Row) -> None:
    problem, theta = without_noise(row)
    n_gradients = int(epoch_of(row).gradients_until(epoch_of(row).epochs_at(20_000)))
    result = vrtd.simulate(problem, row.algorithm, sampling=row.sampling, n_runs=3, n_gradients=n_gradients)
    np.testing.assert_allclose(result.theta, np.tile(theta, (3, 1)), atol=row.tolerance, rtol=0)


@pytest.mark.parametrize(
    "row",
    [r for r in ROWS if r.sampling == "iid" and r.mean_stays and r.algorithm.epoch("iid").inner_samples == "fresh"],
    ids=lambda row: row.id,
)
def test_theta_star_is_a_fixed_point_of_the_mean_update(row: Row) -> None:
    """The mean over every possible epoch, by enumeration of its samples and of the algorithm's own draws."""
    problem = two_states()
    mrp, phi, theta_star = problem.mrp, problem.phi, problem.theta_star
    batches = "batch_size" in {field.name for field in dataclasses.fields(row.algorithm)}
    algorithm = (
        dataclasses.replace(row.algorithm, batch_size=2) if batches else row.algorithm
    )  # few enough to enumerate
    outcomes = [
        (
            mrp.stationary[s] * mrp.edges.probability[e],
            Sample(phi[s], phi[mrp.edges.successor[e]], mrp.edges.reward[e], 0.9),
        )
        for e, s in enumerate(mrp.edges.origin)
    ]
    n_draws = int(algorithm.epoch("iid").samples_at(np.array([algorithm.epoch("iid").n_gradients]))[0])
    mean, total = np.zeros(1), 0.0
    for path in itertools.product(outcomes, repeat=n_draws):
        for chosen in (0, 1):
            samples = iter([x for _, x in path])
            _, after = row.reference(algorithm, "iid", lambda s=samples: next(s), lambda n, c=chosen: c, theta_star, 1)
            weight = 0.5 * np.prod([probability for probability, _ in path])
            mean, total = mean + weight * after, total + weight
    assert total == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(mean, theta_star, rtol=1e-12)


@each_row
def test_a_second_call_compiles_nothing(row: Row) -> None:
    run(row)
    with event.install_recorder("numba:compile") as recorder:
        run(row, n_runs=4, seed=6, n_epochs=3, metrics=("neu",), theta_0=np.ones(4), threads=2)
    assert not recorder.buffer


def assert_own_discounts_are_used(row: Row, problem: vrtd.LinearProblem, kind: str) -> None:
    source = chain_source(problem.mrp, problem.phi, row.sampling, problem.mrp.stationary)
    assert source.name == kind
    assert np.ndim(source.data.discount) == 1
    n_gradients = row.n_epochs * row.algorithm.epoch(row.sampling).n_gradients
    result = vrtd.simulate(problem, row.algorithm, sampling=row.sampling, n_runs=3, n_gradients=n_gradients, seed=5)
    draw, index = chain_draw(source, row.sampling, 5, 2), AlgorithmIndex(5, 2)
    outputs = row.reference(row.algorithm, row.sampling, draw, index, np.zeros(4), row.n_epochs)
    np.testing.assert_allclose(result.theta[2], outputs[-1], rtol=1e-12, atol=1e-12)


@rows("td-iid", "vrtd-algorithm-2")
def test_sparse_chains_with_their_own_discounts(row: Row) -> None:
    assert_own_discounts_are_used(row, vrtd.problems.boyan_chain(), f"sparse_{row.sampling}")


@rows("td-markov", "vrtd-algorithm-1")
def test_dense_chains_with_their_own_discounts(row: Row) -> None:
    gamma = np.random.default_rng(0).random((50, 50))
    gamma[3] = 0.0
    mrp = vrtd.MarkovRewardProcess(PROBLEM.mrp.P, PROBLEM.mrp.edges.reward.reshape(50, 50), gamma)
    assert_own_discounts_are_used(row, vrtd.LinearProblem(mrp, PROBLEM.phi), f"dense_{row.sampling}")


def test_an_epoch_that_the_loop_cannot_run_is_refused() -> None:
    class Stepper(vrtd.TD):
        def epoch(self, sampling: Any, n_rows: int = 0) -> Any:
            return Epoch(n_absorb=0, n_steps=5, inner_samples="fresh")

    with pytest.raises(InvalidInputError, match="An epoch without a batch must be one step on a fresh sample"):
        vrtd.simulate(PROBLEM, Stepper(0.1), n_runs=2, n_gradients=50)


def test_an_epoch_counts_what_it_declares() -> None:
    epoch = Epoch(n_absorb=3, n_steps=2, inner_samples="fresh", gradients_per_absorb=2, gradients_per_step=3)
    assert epoch.n_gradients == 12
    assert epoch.samples_at(np.arange(13)).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 3, 4, 4, 4, 5]


def test_several_rewards_of_one_transition_are_drawn_apart() -> None:
    P = np.full((2, 2, 2), 0.5)
    mdp = vrtd.MDP(P, np.array([[1.0, 1.0], [-1.0, -1.0]]), 0.5)
    phi = np.ones((2, 1))
    policy = np.full((2, 2), 0.5)
    noisy, mean = (vrtd.LinearProblem(mdp.chain(policy, average), phi) for average in (False, True))
    assert noisy.noise_covariance == pytest.approx(1.0)
    for problem, expected in ((noisy, True), (mean, False)):
        theta = vrtd.simulate(problem, vrtd.TD(0.1), n_runs=4, n_gradients=50).theta
        assert np.any(theta != 0) == expected


def test_a_batch_of_one_is_td() -> None:
    for sampling in ("iid", "markov"):
        td = vrtd.simulate(PROBLEM, vrtd.TD(0.1), sampling=sampling, n_runs=5, n_gradients=300)
        one = vrtd.simulate(PROBLEM, vrtd.VRTD(0.1, 1), sampling=sampling, n_runs=5, n_gradients=300)
        np.testing.assert_allclose(one.theta, td.theta, rtol=1e-12)
        np.testing.assert_allclose(one.curves, td.curves, rtol=1e-12)
        np.testing.assert_array_equal(one.n_samples, td.n_samples)
        np.testing.assert_array_equal(one.n_gradients, td.n_gradients)
        np.testing.assert_array_equal(one.state.environment, td.state.environment)


def test_every_algorithm_sees_the_same_transitions() -> None:
    """The k-th transition of run i depends on seed, run and sampling alone."""
    for sampling in ("iid", "markov"):
        td = vrtd.simulate(PROBLEM, vrtd.TD(0.1), sampling=sampling, n_runs=3, n_gradients=28)
        other = vrtd.simulate(PROBLEM, vrtd.VRTD(0.1, 7, inner="fresh"), sampling=sampling, n_runs=3, n_gradients=28)
        np.testing.assert_array_equal(td.state.environment, other.state.environment)
        np.testing.assert_array_equal(td.state.cursors, other.state.cursors)


@pytest.mark.parametrize("d", [1, SMALL, SMALL + 1, 33])
def test_any_number_of_features(d: int) -> None:
    """Up to SMALL features the loop is unrolled, beyond it is not: both agree with the transcription."""
    problem = vrtd.problems.random_mdp(seed=1, n_states=40, n_features=d, normalize=True)
    for algorithm, transcription in ((vrtd.TD(0.3), td.td), (vrtd.VRTD(0.3, 6), td.vrtd)):
        n = 10 * algorithm.epoch("markov").n_gradients
        result = vrtd.simulate(problem, algorithm, n_runs=3, n_gradients=n, checkpoints=1)
        draw = chain_draw(chain_source(problem.mrp, problem.phi, "markov", problem.mrp.stationary), "markov", 0, 2)
        outputs = transcription(algorithm, "markov", draw, AlgorithmIndex(0, 2), np.zeros(d), 10)
        np.testing.assert_allclose(result.theta[2], outputs[-1], rtol=1e-12, atol=1e-12)
