"""Transitions: what they mean, their rank, what is refused, and epochs whose batches grow."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

import vrtd
from vrtd.algorithms import Epoch
from vrtd.errors import DataError, InvalidInputError, SingularSystemError
from vrtd.logs import Chunk
from vrtd.theory import autocorrelation_time
from vrtd.theory.sample_noise import MeanSquare, drift, why_unstable
from vrtd.theory.settings import settings_for

PROBLEM = vrtd.problems.random_mdp(seed=0)


def some_data(n: int = 20, d: int = 3, **changes: Any) -> vrtd.Transitions:
    rng = np.random.default_rng(0)
    phi, phi_next = rng.normal(size=(2, n, d))
    arrays = {
        "phi": phi,
        "reward": rng.normal(size=n),
        "phi_next": phi_next,
        "discount": np.where(rng.random(n) < 0.3, 0.0, 0.9),
        "weight": rng.uniform(0.0, 2.0, n),
    }
    return vrtd.Transitions(**(arrays | changes))


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
    assert repr(data) == "Transitions(20 rows, 3 features)"


def test_quantities_of_weighted_rows_are_plain_sums() -> None:
    """Each against a loop over the rows, weights included."""
    data, S = some_data(40), np.diag([1.0, 2.0, 3.0])
    theta, left_square, square, noise = data.theta_star, np.zeros((3, 3)), np.zeros((3, 3)), []
    for phi, reward, phi_next, discount, weight in zip(
        data.phi, data.reward, data.phi_next, data.discount, data.weight, strict=True
    ):
        psi = discount * phi_next - phi
        A_x = weight * np.outer(phi, psi)
        left_square += weight**2 * np.outer(phi, phi) / 40
        square += A_x @ S @ A_x.T / 40
        noise.append(weight * phi * (reward + psi @ theta))
    exact = {"rtol": 1e-11, "atol": 1e-13}
    np.testing.assert_allclose(data.left_square, left_square, **exact)
    np.testing.assert_allclose(np.trace(data.update_form @ S) * np.trace(left_square), np.trace(square), **exact)
    np.testing.assert_allclose(MeanSquare(data)(S), square, **exact)
    np.testing.assert_allclose(data.noise, np.sqrt(40 / 37) * np.array(noise), **exact)
    np.testing.assert_allclose(data.noise_covariance, data.noise.T @ data.noise / 40, **exact)
    np.testing.assert_allclose(
        data.influence, -np.linalg.solve(data.A, np.array(noise).reshape(8, 5, 3).mean(axis=1).T).T, **exact
    )
    np.testing.assert_allclose(data.merged_influence, data.influence.reshape(2, 4, 3).mean(axis=1), **exact)


def test_drift_is_the_sum_over_lags() -> None:
    """sum over k = 1..K of E[(A_k - A) g_0], by a double loop."""
    data = some_data(400)
    total, window = np.zeros(3), data.summed_lags
    for i in range(400):
        for k in range(max(0, i - window), i):
            total += (np.outer(data.left[i], data.psi[i]) - data.A) @ data.noise[k] / 400
    assert window >= 5
    np.testing.assert_allclose(drift(data), total, rtol=1e-9, atol=1e-12)


def test_rows_end_where_they_terminate_or_where_it_is_said() -> None:
    data = some_data()
    assert data.ends.tolist() == (data.discount == 0.0).tolist()
    ends = np.arange(20) % 4 == 1
    assert some_data(ends=ends).ends.tolist() == ends.tolist()


def test_a_part_and_trusted_rows_copy_nothing() -> None:
    data = some_data()
    part = data.part(5, 12)
    assert len(part) == 7
    assert part.is_weighted
    for name in ("phi", "reward", "phi_next", "discount", "weight", "ends"):
        assert np.shares_memory(getattr(part, name), getattr(data, name))
        assert np.array_equal(getattr(part, name), getattr(data, name)[5:12])
    assert data.part(0, 20) is data
    single = np.ones((2, 1), np.float32)
    rows = vrtd.Transitions.wrap(single, np.ones(2), single, np.full(2, 0.5), None, np.zeros(2, bool))
    assert rows.phi is single
    assert not rows.is_weighted
    assert rows.weight.tolist() == [1.0, 1.0]
    assert rows.A.dtype == np.float64


# Rank


def dependent(distance: float = 0.0, scale: Any = 1.0, weight: Any = None) -> vrtd.Transitions:
    """Five features of which the last is the first plus `distance` times something else."""
    rng = np.random.default_rng(3)
    phi, phi_next = (np.column_stack([x[:, :4], x[:, 0] + distance * x[:, 4]]) for x in rng.normal(size=(2, 300, 5)))
    return vrtd.Transitions(scale * phi, rng.normal(size=300), scale * phi_next, 0.9, weight)


@pytest.mark.parametrize(("distance", "rank"), [(1.0, 5), (1e-4, 5), (1e-7, 4), (0.0, 4)])
@pytest.mark.parametrize("scale", [1.0, 1e-6, [1.0, 1e-8, 1e4, 1.0, 1e-3]], ids=str)
@pytest.mark.parametrize("weight", [None, 2.0])
def test_one_rule_of_rank(distance: float, rank: int, scale: Any, weight: float | None) -> None:
    """Features are compared when each has a mean square of 1, so their scales do not matter; every function that
    asks for the rank has the same answer."""
    rows = dependent(distance, np.asarray(scale), None if weight is None else np.full(300, weight))
    assert rows.rank == rank
    assert rows.basis.shape == (5, rank)
    assert rows.reduce_rank().n_features == rank
    assert rows.spans(rows.phi).all()
    found = settings_for(rows, 1000)
    assert bool(found.remarks) == (rank < 5)
    if rank < 5:
        for function in (autocorrelation_time, lambda sample: vrtd.plan(sample, target_error=0.1)):
            with pytest.raises(
                InvalidInputError, match="phi must have full column rank 5 on the sample, but has rank 4"
            ):
                function(rows)


def test_the_basis_is_orthonormal_and_spans_the_rows() -> None:
    rows = dependent()
    B = rows.basis
    np.testing.assert_allclose(B.T @ B, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(rows.phi @ B @ B.T, rows.phi, atol=1e-12)
    null = np.array([1.0, 0.0, 0.0, 0.0, -1.0])
    np.testing.assert_allclose(B.T @ null, 0.0, atol=1e-12)
    np.testing.assert_allclose(rows.outside(3.0 * null + rows.phi[0]), 3.0 * null, atol=1e-11)
    assert rows.spans(np.vstack([rows.phi[0], null, rows.phi[1] + 0.1 * null])).tolist() == [True, False, False]
    whole = some_data()
    assert whole.basis.tolist() == np.eye(3).tolist()
    assert whole.outside(np.ones(3)).tolist() == [0.0] * 3


def test_the_condition_number_is_that_of_scaled_features_on_their_span() -> None:
    rows = some_data(50, weight=None)
    scaled = rows.phi / np.sqrt((rows.phi**2).mean(axis=0))
    assert rows.condition_number == pytest.approx(np.linalg.cond(scaled), rel=1e-9)
    assert dependent(scale=np.array([1.0, 1e-8, 1e4, 1.0, 1.0])).condition_number < 10.0


@pytest.mark.parametrize("theta_0", [None, [1.0, -2.0, 3.0, 0.5, 4.0]])
def test_reduced_rows_have_the_fixed_point_of_td_from_theta_0(theta_0: Any) -> None:
    """TD moves in the span only. So its fixed point is theta_0 outside of the span, and A theta + b = 0 inside.

    Successors lie outside of the span, so that what theta_0 has there counts.
    """
    known = dependent()
    rows = vrtd.Transitions(known.phi, known.reward, np.random.default_rng(4).normal(size=(300, 5)), 0.9)
    start = np.zeros(5) if theta_0 is None else np.array(theta_0)
    reduced = rows.reduce_rank(None if theta_0 is None else start)
    assert reduced.rank == reduced.n_features == 4
    theta = rows.basis @ reduced.theta_star + rows.outside(start)
    np.testing.assert_allclose(rows.A @ theta + rows.b, 0.0, atol=1e-12)
    np.testing.assert_allclose(rows.outside(theta - start), 0.0, atol=1e-12)
    assert np.array_equal(reduced.ends, rows.ends)
    whole = some_data()
    assert whole.reduce_rank() is whole


def test_a_start_outside_of_the_span_shifts_the_rewards() -> None:
    phi, then = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    rows = vrtd.Transitions(phi, [1.0, 2.0], then, 0.5)
    assert rows.rank == 1
    assert rows.reduce_rank(np.array([0.0, 4.0])).reward.tolist() == [3.0, 2.0]
    assert rows.outside(np.array([0.0, 4.0])).tolist() == [0.0, 4.0]


def test_rows_of_zeros_have_rank_0() -> None:
    zeros = vrtd.Transitions(np.zeros((30, 2)), np.ones(30), np.zeros((30, 2)), 0.9)
    assert (zeros.rank, zeros.basis.shape, zeros.condition_number) == (0, (2, 0), np.inf)
    assert zeros.reduce_rank(np.ones(2)).n_features == 0
    assert zeros.outside(np.array([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert why_unstable(zeros.reduce_rank()) == "all features are 0"
    assert zeros.spans(np.array([[0.0, 0.0], [1.0, 0.0]])).tolist() == [True, False]
    with pytest.raises(SingularSystemError, match="A of the transitions must be invertible"):
        zeros.theta_star  # noqa: B018


@pytest.mark.parametrize(
    ("phi", "reward", "name"), [(1e70, 1.0, "features"), (1e-70, 1.0, "features"), (1.0, 1e70, "rewards")]
)
def test_sizes_that_cannot_be_squared_have_no_rank(phi: float, reward: float, name: str) -> None:
    rows = vrtd.Transitions(np.full((9, 1), phi), np.full(9, reward), np.full((9, 1), phi), 0.9)
    with pytest.raises(
        InvalidInputError, match=f"{name} must have a magnitude between 1e-60 and 1e.60, but the largest is .*. Rescale"
    ):
        rows.rank  # noqa: B018


# Arrays


def test_the_callers_arrays_are_copied_and_ours_cannot_be_written() -> None:
    phi = np.ones((2, 1))
    data = vrtd.Transitions(phi, [1.0, 2.0], 0.5 * phi, 0.9)
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
        ({"phi": np.ones(20)}, r"phi must have the shape \(n, d\), but got \(20,\). Pass one row per transition"),
        ({"phi": np.ones((0, 3))}, r"phi must have the shape \(n, d\), but got \(0, 3\)"),
        ({"phi": np.full((20, 3), np.nan)}, r"phi must be finite, but got nan at index \(0, 0\)"),
        (
            {"reward": np.ones(19)},
            r"reward must have the shape \(20,\), but got \(19,\). Pass one number per row of phi",
        ),
        ({"phi_next": np.ones((20, 2))}, r"phi_next must have the shape \(20, 3\), but got \(20, 2\). Match phi"),
        ({"discount": np.ones(3)}, r"discount must have the shape \(20,\)"),
        ({"discount": 1.5}, r"discount must lie in \[0, 1\], but got 1.5 in row 0. Correct that row"),
        ({"discount": -0.5}, r"discount must lie in \[0, 1\], but got -0.5 in row 0"),
        ({"weight": np.arange(20.0) - 1.0}, "weight must be non-negative, but got -1.0 in row 0. Correct that row"),
        ({"weight": "many"}, "weight must be an array of real numbers"),
        ({"weight": np.ones(19)}, r"weight must have the shape \(20,\), but got \(19,\)"),
        (
            {"ends": np.ones(19, bool)},
            r"ends must have the shape \(20,\), but got \(19,\). Pass one flag per transition",
        ),
    ],
)
def test_bad_rows_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        some_data(**changes)


def test_rows_without_a_single_solution_are_refused() -> None:
    with pytest.raises(
        SingularSystemError, match=r"A of the transitions must be invertible, .* from 2 rows\. Use more rows"
    ):
        some_data(2).theta_star  # noqa: B018


@pytest.mark.parametrize(
    ("problem", "arguments", "message"),
    [
        (
            some_data(),
            {"sampling": "iid"},
            "sampling of a Transitions must be 'dataset', but got 'iid'. Drop sampling, or pass 'dataset'",
        ),
        (some_data(), {"initial": 1}, "initial has no effect on a Transitions, but got 1. Drop initial"),
        (PROBLEM, {"sampling": "dataset"}, r"but got 'dataset'\. Draw rows first: vrtd.record\(problem, n_rows\)"),
        (some_data(), {"metrics": ("value_error",)}, "The value error needs the"),
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
    message = r"cursors of the start must be below n_rows=40, .* Run the simulation again"
    with pytest.raises(InvalidInputError, match=message):
        vrtd.simulate(data, vrtd.TD(0.1), **arguments, start=beyond)
    other = vrtd.record(PROBLEM, 40, seed=4)
    with pytest.raises(InvalidInputError, match="start must come from the same problem"):
        vrtd.simulate(other, vrtd.TD(0.1), **arguments, start=start)


# Batches that grow


def counted(epoch: Epoch, n_epochs: int) -> list[tuple[int, int]]:
    """(epochs that are closed, samples that are drawn) after 0, 1, 2, ... pseudo-gradients, one by one."""
    shapes = itertools.chain(epoch.warmup, itertools.repeat((epoch.n_absorb, epoch.n_steps)))
    samples, path = 0, []
    for closed, (size, n_steps) in zip(range(n_epochs), shapes, strict=False):
        for _ in range(size):
            path += [(closed, samples)] * epoch.gradients_per_absorb
            samples += 1
        for _ in range(n_steps):
            path += [(closed, samples)] * epoch.gradients_per_step
            samples += epoch.inner_samples == "fresh"
    return [*path, (n_epochs, samples)]


@pytest.mark.parametrize(
    "epoch",
    [
        Epoch(10, 4, "fresh", warmup=((1, 4), (3, 4), (9, 4))),
        Epoch(10, 4, "resample", warmup=((2, 4), (6, 4))),
        Epoch(10, 0, "fresh", warmup=((5, 0),)),
        Epoch(10, 20, "resample", warmup=((2, 4), (6, 12))),
        Epoch(10, 15, "fresh", warmup=((3, 4), (4, 6))),
        Epoch(7, 3, "fresh", gradients_per_absorb=2, gradients_per_step=3, warmup=((2, 1), (4, 3), (6, 5))),
        Epoch(7, 3, "fresh"),
        Epoch(0, 1, "fresh"),
        Epoch(0, 1, "fresh", warmup=((5, 1),)),
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
    assert epoch.warmup == ((6, 12), (12, 24), (24, 48))
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


def test_noise_and_influence_need_rows() -> None:
    rows = vrtd.Transitions([[1.0]], [1.0], [[0.5]], 0.9)
    with pytest.raises(InvalidInputError, match="more rows than features, but there are 1 rows and 1 features"):
        _ = rows.noise_covariance
    with pytest.raises(InvalidInputError, match="influence needs at least 8 rows, but there are 1"):
        _ = rows.influence


@pytest.mark.parametrize("bad", [None, np.float64(1.0), [1.0]])
def test_a_chunk_that_lacks_an_array_is_refused(bad: Any) -> None:
    flags = np.zeros(1, bool)
    with pytest.raises(DataError, match="The field 'observations' of a chunk must be an array, but is"):
        Chunk(bad, np.ones(1), np.ones((1, 1)), flags, flags).check()


def test_fewer_rows_than_features_have_the_span_of_these_rows() -> None:
    """Rows of weight 0 do not count, nor features that are 0; sizes of features do not matter."""
    rng = np.random.default_rng(5)
    phi = rng.normal(size=(7, 12)) * 10.0 ** rng.integers(-1, 2, 12)
    phi[3], phi[:, 4] = phi[1] + phi[2], 0.0
    weight = np.ones(7)
    weight[6] = 0.0
    rows = vrtd.Transitions(phi, np.ones(7), phi, 0.5, weight)
    assert rows.rank == 5
    np.testing.assert_allclose(rows.basis.T @ rows.basis, np.eye(5), atol=1e-12)
    assert rows.spans(phi).tolist() == [True] * 6 + [False]
    assert np.all(rows.basis[4] == 0.0)


@pytest.mark.parametrize("n_features", [4, 200])
def test_effective_blocks_are_few_where_features_change_slowly(n_features: int) -> None:
    """Also where there are nearly as many features as rows, so that every direction can be found in them."""
    rng = np.random.default_rng(6)
    noise, slow = rng.normal(size=(512, 2)), np.repeat(rng.normal(size=8), 64)
    mix = rng.normal(size=(3, n_features))
    fast, regimes = (
        np.cos(np.column_stack([x, noise]) @ mix + rng.uniform(0.0, 6.0, n_features)) for x in (noise[::-1, 0], slow)
    )
    few, many = (
        vrtd.Transitions(phi, noise[:, 0], np.roll(phi, -1, 0), 0.9).effective_blocks for phi in (regimes, fast)
    )
    assert few < 50.0 < 90.0 < many
