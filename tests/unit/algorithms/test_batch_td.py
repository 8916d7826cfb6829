"""Methods for a fixed data set: they reach its own solution, as fast as promised, by the gradients they claim."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy.linalg import eigh

import vrtd
from tests.helpers.statistics import FAMILY_RATE
from tests.helpers.table import ROWS, Row, two_states
from tests.reference import batch
from tests.reference.batch import Rows, gradients, mean_gradients, signed_steps
from tests.reference.sampling import AlgorithmIndex
from vrtd.algorithms import Epoch, Kernels
from vrtd.algorithms.saga import saga_absorb, saga_step, saga_views
from vrtd.errors import AccuracyError, AccuracyWarning, InvalidInputError, SingularSystemError
from vrtd.kernels.jit import kernel
from vrtd.theory import SaddleSteps, saddle_steps

SADDLE_ROWS = [row for row in ROWS if row.reference.__module__ == batch.__name__ and row.id != "vrtd-dataset"]
each_row = pytest.mark.parametrize("row", SADDLE_ROWS, ids=lambda row: row.id)


def weighted_data(n: int = 40, d: int = 4) -> vrtd.Transitions:
    """Off-policy rows of no chain: A need not be negative definite."""
    rng = np.random.default_rng(2)
    phi, phi_next = rng.normal(size=(2, n, d)) / np.sqrt(d)
    discount, weight = np.where(rng.random(n) < 0.2, 0.0, 0.9), rng.uniform(0.0, 2.0, n)
    return vrtd.Transitions(phi, rng.normal(size=n), phi_next, discount, weight)


@cache  # not at import: to record compiles a loop
def data_of(name: str) -> vrtd.Transitions:
    match name:
        case "two":
            return vrtd.record(two_states(), n_rows=40)
        case "weighted":
            return weighted_data()
        case _:
            return vrtd.record(vrtd.problems.LIBRARY[name](), n_rows=300)


@cache
def two_steps() -> SaddleSteps:
    return saddle_steps(data_of("two"))


def simulate(data: vrtd.Transitions, algorithm: Any, n_gradients: int, **arguments: Any) -> vrtd.Result:
    defaults: dict[str, Any] = {"n_runs": 4, "seed": 5, "checkpoints": 11}
    return vrtd.simulate(data, algorithm, sampling="dataset", n_gradients=n_gradients, **(defaults | arguments))


# The solution


@pytest.mark.parametrize(
    ("name", "algorithm", "n_gradients"),
    [
        ("random_mdp", vrtd.PrimalDual(5.0, 0.5), 1_200_000),
        ("random_mdp", vrtd.SVRG(0.1, 0.1), 120_000),
        ("random_mdp", vrtd.BatchingSVRG(0.1, 0.1, batch_size=30), 120_000),
        ("random_mdp", vrtd.SCSG(0.1, 0.1, batch_size=300), 240_000),
        ("random_mdp", vrtd.GrowingSCSG(0.1, 0.1, batch_size=30), 240_000),
        ("random_mdp", vrtd.SAGA(0.1, 0.1), 60_000),
        ("boyan_chain", vrtd.PrimalDual(5.0, 1.5), 600_000),
        ("boyan_chain", vrtd.SVRG(0.3, 0.3), 60_000),
        ("boyan_chain", vrtd.BatchingSVRG(0.3, 0.3, batch_size=30), 60_000),
        ("boyan_chain", vrtd.SCSG(0.3, 0.3, batch_size=300), 120_000),
        ("boyan_chain", vrtd.GrowingSCSG(0.3, 0.3, batch_size=30), 120_000),
        ("boyan_chain", vrtd.SAGA(0.3, 0.3), 60_000),
    ],
    ids=lambda case: getattr(case, "name", None),
)
def test_tuned_steps_reach_the_solution_of_the_data(name: str, algorithm: Any, n_gradients: int) -> None:
    data = data_of(name)
    result = simulate(data, algorithm, n_gradients)
    assert np.abs(result.theta - data.theta_star).max() < 1e-10


@each_row
def test_weights_and_discounts_of_rows(row: Row) -> None:
    data = weighted_data()
    epoch = row.algorithm.epoch("dataset", 40)
    n = row.n_epochs * (epoch.n_absorb + epoch.n_steps) if epoch.random_length else epoch.gradients_until(row.n_epochs)
    result = simulate(data, row.algorithm, int(n))
    index = AlgorithmIndex(5, 3)
    outputs = row.reference(row.algorithm, "dataset", Rows(data, 5, 3), index, np.zeros(4), row.n_epochs)
    np.testing.assert_allclose(result.theta[3], outputs[-1], rtol=1e-12, atol=1e-12)


def test_the_batch_gradient_draws_nothing() -> None:
    theta = simulate(data_of("random_mdp"), vrtd.PrimalDual(5.0, 0.5), 30_000).theta
    np.testing.assert_allclose(theta, np.tile(theta[0], (4, 1)), rtol=1e-12)


# The theory


def matrices(data: vrtd.Transitions, steps: SaddleSteps) -> Any:
    """I - alpha G and all I - alpha G_x, in (theta, w), written out."""
    psi = data.weight[:, None] * (data.discount[:, None] * data.phi_next - data.phi)
    A, C = data.phi[:, :, None] * psi[:, None, :], data.phi[:, :, None] * data.phi[:, None, :]
    alpha, beta = steps.step_size, steps.step_size_w
    each = np.eye(2 * data.n_features) - np.concatenate(
        [
            np.concatenate([0.0 * C, alpha * A.transpose(0, 2, 1)], axis=2),
            np.concatenate([-beta * A, beta * C], axis=2),
        ],
        axis=1,
    )
    return each.mean(axis=0), each


@pytest.mark.parametrize("name", ["two", "random_mdp", "boyan_chain", "weighted"])
def test_the_inequalities_of_the_proof_hold(name: str) -> None:
    data = data_of(name)
    steps = saddle_steps(data)
    full, each = matrices(data, steps)
    P, m = steps.norm, 2 * data.n_features
    assert np.linalg.eigvalsh(P)[0] > 0.0
    assert eigh(full.T @ P @ full, P, eigvals_only=True)[-1] <= steps.pass_factor
    rate = 8.0 / 7.0 * (1.0 - steps.pass_factor)
    assert steps.n_steps == pytest.approx(8.0 / rate, abs=1.0)
    moves = each - np.eye(m)  # alpha G_x; alpha is q / 8 s with the least s
    second = np.einsum("nji,jk,nkl->il", moves, P, moves, optimize=True) / len(each)
    assert eigh(second, P, eigvals_only=True)[-1] == pytest.approx(rate / 8.0, rel=1e-6)
    # An inner step from an anchor: (z, y) -> (I - alpha G_x) z + alpha (G_x - G) y.
    both = np.concatenate([each, full - each], axis=2)
    mean = np.einsum("nji,jk,nkl->il", both, P, both, optimize=True) / len(each)
    allowed = np.zeros((2 * m, 2 * m))
    allowed[:m, :m], allowed[m:, m:] = (1.0 - 0.75 * rate) * P, 0.25 * rate * P
    root = np.linalg.inv(np.linalg.cholesky(np.kron(np.eye(2), P)))
    assert np.linalg.eigvalsh(root @ (allowed - mean) @ root.T)[0] >= -1e-12


@pytest.mark.parametrize("output", ["last", "random"])
def test_an_epoch_with_all_rows_contracts_by_its_factor(output: str) -> None:
    """The exact second moment after an epoch, from any anchor."""
    theory_steps = two_steps()
    full, each = matrices(data_of("two"), theory_steps)
    step = np.block([[np.zeros((2, 2)), np.zeros((2, 2))], [np.zeros((2, 2)), np.eye(2)]])
    steps = np.broadcast_to(step, (len(each), 4, 4)).copy()
    steps[:, :2] = np.concatenate([each, full - each], axis=2)
    moments = np.einsum("nij,nkl->ikjl", steps, steps).reshape(16, 16) / len(each)  # of (z, y) (z, y)^T
    anchors = [np.outer(v, v) for v in ([1.0, 0.0], [0.0, 1.0], [1.0, 1.0])]
    factors = []
    for anchor in anchors:
        moment, values = np.kron(np.ones((2, 2)), anchor).ravel(), []
        for _ in range(theory_steps.n_steps):
            moment = moments @ moment
            values.append(np.trace(theory_steps.norm @ moment.reshape(4, 4)[:2, :2]))
        factors.append((values[-1] if output == "last" else np.mean(values)) / np.trace(theory_steps.norm @ anchor))
    assert max(factors) <= theory_steps.epoch_factor


def with_theory_steps(algorithm: Any) -> Any:
    return replace(algorithm, step_size=two_steps().step_size, step_size_w=two_steps().step_size_w)


def simulate_with_bound(algorithm: Any, n_epochs: int, factor: float, start: float) -> tuple[Any, Any]:
    """V's part that theta alone decides, at the ends of epochs, and the theory's bound on the mean of V."""
    data, P = data_of("two"), two_steps().norm
    own = vrtd.QuadraticForm("v", np.atleast_2d(P[0, 0] - P[0, 1] ** 2 / P[1, 1]), data.theta_star)
    epoch = algorithm.epoch("dataset", data.n_rows)
    counts = np.linspace(len(epoch.warmup), n_epochs, 21).astype(np.int64)
    axis = epoch.gradients_until(counts)
    result = simulate(data, algorithm, int(axis[-1]), metrics=(own,), checkpoints=axis)
    return result, np.outer(np.ones(4), start * factor ** (counts - counts[0]).astype(float))


def start_of_v() -> float:
    return float(two_steps().norm[0, 0] * data_of("two").theta_star[0] ** 2)


def start_of_saga() -> float:
    """The memory is of the gradients at the start; those in theta are zero there and at the solution."""
    data, steps = data_of("two"), two_steps()
    left = (data.discount * data.phi_next[:, 0] - data.phi[:, 0]) * data.theta_star[0]
    d_0 = float(np.mean(steps.norm[1, 1] * (steps.step_size_w / steps.step_size * left * data.phi[:, 0]) ** 2))
    return start_of_v() + 4.0 * data.n_rows * steps.step_size**2 * d_0


PROVEN = ("primal_dual", "svrg", "saga")


@pytest.mark.parametrize("name", PROVEN)
def test_the_theorys_steps_converge_linearly_as_promised(name: str) -> None:
    """By Markov's inequality no value lies above the bound on its mean / rate, but for that rate."""
    steps = two_steps()
    algorithm, n_epochs, factor, start = {
        "primal_dual": (vrtd.PrimalDual(), 14_000, steps.pass_factor, start_of_v()),
        "svrg": (vrtd.SVRG(n_steps=steps.n_steps), 80, steps.epoch_factor, start_of_v()),
        "saga": (vrtd.SAGA(), 60_000, steps.step_factor, start_of_saga()),
    }[name]
    result, bound = simulate_with_bound(with_theory_steps(algorithm), n_epochs, factor, start)
    assert np.abs(result.theta - data_of("two").theta_star).max() < 1e-10
    floor = 1e-24 * start  # of rounding
    assert np.all(result.values("v") <= bound * len(bound.ravel()) * len(PROVEN) / FAMILY_RATE + floor)
    if name == "primal_dual":  # nothing is random
        assert np.all(result.values("v") <= bound * (1.0 + 1e-9) + floor)


@pytest.mark.parametrize("name", ["batching_svrg", "growing_scsg"])
def test_growing_batches_reach_the_solution_with_the_theorys_steps(name: str) -> None:
    data, n_steps = data_of("two"), two_steps().n_steps
    algorithm = with_theory_steps(
        vrtd.BatchingSVRG(n_steps=n_steps, batch_size=7)
        if name == "batching_svrg"
        else vrtd.GrowingSCSG(batch_size=7, steps_per_row=-(-n_steps // data.n_rows))
    )
    n = int(algorithm.epoch("dataset", data.n_rows).gradients_until(80))
    assert np.abs(simulate(data, algorithm, n).theta - data.theta_star).max() < 1e-10


@dataclass(frozen=True)
class NeverAll(vrtd.BatchingSVRG):
    """A planted bug: the last batch misses a row."""

    def epoch(self, sampling: Any, n_rows: int = 0) -> Epoch:
        return super().epoch(sampling, n_rows)._replace(n_absorb=n_rows - 1)


def test_a_batch_that_never_reaches_all_rows_stops_at_a_floor() -> None:
    algorithm = with_theory_steps(NeverAll(n_steps=two_steps().n_steps, batch_size=7))
    result, bound = simulate_with_bound(algorithm, 80, two_steps().epoch_factor, start_of_v())
    assert np.abs(result.theta - data_of("two").theta_star).min() > 1e-5
    assert np.all(result.values("v")[:, -1] > bound[:, -1] * len(bound.ravel()) * len(PROVEN) / FAMILY_RATE)


# The gradients


def full_steps(data: vrtd.Transitions, algorithm: Any, z: Any, n: int) -> Any:
    samples = Rows(data, 0, 0).samples
    for _ in range(n):
        z = z + signed_steps(algorithm) * mean_gradients(samples, *z)
    return z


@pytest.mark.parametrize(
    ("algorithm", "n_steps"),
    [(vrtd.SVRG(0.5, 0.2, n_steps=2), 2), (vrtd.SAGA(0.5, 0.2), 1)],
    ids=["svrg", "saga"],
)
def test_the_mean_over_all_rows_of_a_step_is_that_of_the_full_gradient(algorithm: Any, n_steps: int) -> None:
    """From one state after 30 epochs, in 400 runs that differ in the rows of the next. The first inner step of SVRG is
    the full gradient's whatever its row; the row of the last one is averaged out."""
    data, n_runs = weighted_data(), 400
    before, after = algorithm.epoch("dataset", 40).gradients_until(np.array([30, 31])).tolist()
    start = simulate(data, algorithm, before, n_runs=n_runs)
    one = np.tile(start.state.workspaces[0], (n_runs, 1))
    start = replace(start, state=start.state._replace(workspaces=one))
    result = simulate(data, algorithm, after - before, n_runs=n_runs, start=start)
    by_row: dict[int, Any] = {}
    for run in range(n_runs):
        draw = Rows(data, 5, run)
        row = [draw.any_row() for _ in range(31 * n_steps)][-1]
        by_row[row] = result.state.workspaces[run, :8].reshape(2, 4)
    assert len(by_row) == 40
    ends, expected = list(by_row.values()), full_steps(data, algorithm, one[0, :8].reshape(2, 4), n_steps)
    np.testing.assert_allclose(np.mean(ends, axis=0), expected, rtol=1e-11, atol=1e-13)
    assert np.std(ends, axis=0).min() > 1e-6  # single steps are not


def test_a_pass_is_the_full_gradient_from_wherever_it_starts() -> None:
    data, theta = weighted_data(), np.ones(4)
    z = np.array([theta, np.zeros(4)])
    for algorithm, n in ((vrtd.PrimalDual(4.0, 0.5), 3), (vrtd.SVRG(0.5, 0.2, n_steps=1), 3)):
        n_gradients = int(algorithm.epoch("dataset", 40).gradients_until(n))
        result = simulate(data, algorithm, n_gradients, theta_0=theta)
        assert len(set(result.state.cursors.ravel().tolist())) > 1
        expected = full_steps(data, algorithm, z, n)
        for workspace in result.state.workspaces:
            np.testing.assert_allclose(workspace[:8].reshape(2, 4), expected, rtol=1e-12)


def directions(data: vrtd.Transitions) -> Any:
    return data.discount[:, None] * data.phi_next - data.phi, data.phi


def remembered(data: vrtd.Transitions, workspace: Any) -> Any:
    """SAGA's memory as gradients, and its means: (n, 2, d) and (2, d)."""
    psi, phi = directions(data)
    s, e = workspace[16:].reshape(-1, 2).T
    return np.stack([s[:, None] * psi, e[:, None] * phi], axis=1), workspace[8:16].reshape(2, 4)


def test_the_memory_of_saga_is_that_of_the_transcription() -> None:
    data, algorithm = weighted_data(), vrtd.SAGA(0.5, 0.2)
    for n_steps in (1, 30, 200):
        result = simulate(data, algorithm, data.n_rows + n_steps)
        *_, (z, memory) = batch.saga_path(algorithm, Rows(data, 5, 2), np.zeros(4), n_steps)
        found, means = remembered(data, result.state.workspaces[2])
        np.testing.assert_allclose(found, memory, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(means, memory.mean(axis=0), rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(result.state.workspaces[2, :8].reshape(2, 4), z, rtol=1e-11, atol=1e-13)


@kernel
def forgetful_step(params, options, state, x, t, epoch):  # type: ignore[no-untyped-def]
    saga_step(params, options, state, x, t, epoch)
    for i in range(state.theta.size):
        state.g_theta[i] = 0.0
        state.g_w[i] = 0.0


@dataclass(frozen=True)
class Forgetful(vrtd.SAGA):
    """A planted bug: the means are not updated."""

    name: ClassVar[str] = "forgetful_saga"
    kernels: ClassVar[Kernels] = Kernels(saga_views, forgetful_step, absorb=saga_absorb)


def test_means_that_are_not_updated_are_seen() -> None:
    data = data_of("random_mdp")
    result = simulate(data, Forgetful(0.1, 0.1), 60_000)
    assert np.abs(result.theta - data.theta_star).min() > 1e-3
    memory, means = remembered(data, result.state.workspaces[0])
    assert np.abs(memory.mean(axis=0) - means).max() > 1e-3


def test_the_gradients_are_those_of_the_saddle_function() -> None:
    """The transcriptions' gradients against differences of w.(A theta + b) - 1/2 w.C w."""
    data, rng = weighted_data(), np.random.default_rng(3)
    theta, w = rng.normal(size=(2, 4))

    def value(theta: Any, w: Any) -> float:
        return float(w @ (data.A @ theta + data.b) - 0.5 * w @ data.C @ w)

    step = 1e-4 * np.eye(4)
    found = mean_gradients(Rows(data, 0, 0).samples, theta, w)
    by_difference = [
        [(value(theta + h, w) - value(theta - h, w)) / 2e-4 for h in step],
        [(value(theta, w + h) - value(theta, w - h)) / 2e-4 for h in step],
    ]
    np.testing.assert_allclose(found, by_difference, rtol=1e-8, atol=1e-8)
    at_the_saddle_point = gradients(Rows(data, 0, 0).samples[0], data.theta_star, np.zeros(4))
    assert np.abs(at_the_saddle_point).max() > 1e-3  # of one row; the mean is zero
    np.testing.assert_allclose(mean_gradients(Rows(data, 0, 0).samples, data.theta_star, np.zeros(4)), 0.0, atol=1e-14)


@pytest.mark.parametrize(
    ("batch_size", "growth", "ramp"),
    [(3, 1.1, (3, 4, 5, 6, 7)), (2, 2.0, (2, 4)), (1, 2.5, (1, 2, 5)), (8, 2.0, ()), (100, 2.0, ())],
)
def test_batches_grow_to_all_rows(batch_size: int, growth: float, ramp: tuple[int, ...]) -> None:
    for kind in (vrtd.BatchingSVRG, vrtd.GrowingSCSG):
        epoch = kind(batch_size=batch_size, growth=growth).epoch("dataset", 8)
        assert ([size for size, _ in epoch.warmup], epoch.n_absorb) == (list(ramp), 8)


# What is refused


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: vrtd.PrimalDual(0.0), "step_size must be a positive, finite number, but got 0.0"),
        (lambda: vrtd.SAGA(0.1, -1.0), "step_size_w must be a positive, finite number, but got -1.0"),
        (lambda: vrtd.SVRG(n_steps=0), "n_steps must be a whole number of at least 1, but got 0"),
        (lambda: vrtd.BatchingSVRG(n_steps=0), "n_steps must be a whole number of at least 1, but got 0"),
        (lambda: vrtd.GrowingSCSG(steps_per_row=0), "steps_per_row must be a whole number of at least 1, but got 0"),
        (lambda: vrtd.SCSG(batch_size=0), "batch_size must be a whole number of at least 1, but got 0"),
        (lambda: vrtd.BatchingSVRG(batch_size=0), "batch_size must be a whole number of at least 1, but got 0"),
        (
            lambda: vrtd.GrowingSCSG(growth=1.0),
            "growth must be above 1, or batches never reach all rows, but got 1.0. Pass a factor such as 2",
        ),
        (lambda: vrtd.GrowingSCSG(growth=np.nan), "growth must be a positive, finite number, but got nan"),
        (
            lambda: saddle_steps(two_states()),
            "data must be Transitions, but is of type LinearProblem. Build them, or draw them with vrtd.record",
        ),
    ],
)
def test_bad_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_steps_need_a_single_solution() -> None:
    with pytest.raises(SingularSystemError, match="A of the transitions must be invertible"):
        saddle_steps(vrtd.record(vrtd.problems.random_mdp(), n_rows=2))


def test_steps_that_promise_nothing_are_refused() -> None:
    rng = np.random.default_rng(0)
    phi = rng.normal(size=(50, 2)) @ np.array([[1.0, 1.0], [0.0, 1e-6]])
    data = vrtd.Transitions(phi, rng.normal(size=50), 0.1 * phi, 0.9)
    with (
        pytest.raises(AccuracyError, match=r"the proven rate of .* per step is too small for double precision"),
        pytest.warns(AccuracyWarning, match="condition number"),
    ):
        saddle_steps(data)
