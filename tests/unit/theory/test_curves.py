"""Exact curves against simulation, with planted bugs, against moments and all paths; curves as results."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import vrtd
from tests.helpers.statistics import z_limit, z_scores
from tests.helpers.table import two_states
from vrtd.algorithms import Algorithm
from vrtd.errors import InvalidInputError
from vrtd.metrics import METRICS
from vrtd.theory import exact_curve, stationary_second_moment, td_iid_moments, vrtd_iid_moments
from vrtd.theory.markov import MarkovTD

OUTPUTS = ("random", "last", "average")
RANDOM, TINY = vrtd.problems.random_mdp(seed=0), two_states()
THETA_0 = [1.0, -1.0, 0.5, 2.0]
HARMONIC, PIECEWISE = vrtd.Harmonic(c=4.0, t0=20.0), vrtd.Piecewise((10, 20), (0.2, 0.1, 0.05))
EXPONENTIAL = vrtd.Exponential(0.4, 30)


class Case(NamedTuple):
    problem: Any
    algorithm: Any
    sampling: str
    checkpoints: list[int]
    start: dict[str, Any]
    n_runs: int = 200_000

    @property
    def forms(self) -> tuple[Any, ...]:
        """The forms of the true problem: a planted bug must not move what errors are measured from."""
        return tuple(METRICS[name](self.problem) for name in METRICS)

    @property
    def arguments(self) -> dict[str, Any]:
        named = {"sampling": self.sampling, "n_gradients": self.checkpoints[-1], "checkpoints": self.checkpoints}
        return named | self.start | {"metrics": self.forms}


# Many runs of few short epochs: there the means of squared errors are close to normal.
CASES = {
    "td iid": Case(RANDOM, vrtd.TD(0.1), "iid", [7, 60], {"theta_0": THETA_0}),
    "td markov": Case(RANDOM, vrtd.TD(0.1), "markov", [7, 60], {"theta_0": THETA_0}),
    "td from a state": Case(RANDOM, vrtd.TD(0.1), "markov", [2, 30], {"initial": 7}),
    "td from a law": Case(RANDOM, vrtd.TD(0.1), "markov", [2, 30], {"initial": [0.5, 0.3, 0.2] + [0.0] * 47}),
    "td harmonic iid": Case(RANDOM, vrtd.TD(HARMONIC), "iid", [7, 40], {}),
    "td harmonic markov": Case(RANDOM, vrtd.TD(HARMONIC), "markov", [7, 40], {}),
    "td piecewise iid": Case(RANDOM, vrtd.TD(PIECEWISE), "iid", [15, 40], {}),
    "td piecewise markov": Case(RANDOM, vrtd.TD(PIECEWISE), "markov", [15, 40], {}),
    "td average iid": Case(RANDOM, vrtd.TD(0.1, average=True), "iid", [7, 60], {"theta_0": THETA_0}),
    "td average markov": Case(RANDOM, vrtd.TD(0.1, average=True), "markov", [7, 60], {"theta_0": THETA_0}),
    "richardson iid": Case(RANDOM, vrtd.RichardsonTD(0.1, levels=2), "iid", [14, 120], {"theta_0": THETA_0}),
    "richardson markov": Case(RANDOM, vrtd.RichardsonTD(0.1, burn_in=20), "markov", [21, 180], {"theta_0": THETA_0}),
    "vrtd growing": Case(
        RANDOM, vrtd.VRTD(0.1, 5, growth=2.0, n_steps=8), "iid", [10, 28], {"theta_0": THETA_0}, 400_000
    ),
    "vrtd of one": Case(RANDOM, vrtd.VRTD(0.1, 1), "markov", [2, 30], {"initial": 7}),
} | {
    name: case
    for output in OUTPUTS
    for name, case in {
        f"vrtd iid {output}": Case(
            RANDOM, vrtd.VRTD(0.1, 5, output=output), "iid", [10, 40], {"theta_0": THETA_0}, 400_000
        ),
        f"vrtd markov {output}": Case(
            TINY, vrtd.VRTD(0.2, 3, output=output), "markov", [6, 24], {"theta_0": [-1.0], "initial": 1}, 800_000
        ),
    }.items()
}
# The approximation of Algorithm 2 is looked at after two epochs and near its stationary state.
BATCHES = {
    vrtd.VRTD(0.1, 10): (4000, [40, 4000]),
    vrtd.VRTD(0.1, 50): (4000, [200, 6000]),
    vrtd.VRTD(0.1, 500): (2000, [2000, 20_000]),
    vrtd.VRTD(0.05, 100, growth=4.0, n_steps=400): (4000, [1000, 9800]),
}
N_STATISTICS = sum(len(c.checkpoints) * len(METRICS) + c.problem.n_features for c in CASES.values()) + 2 * len(BATCHES)
LIMIT = z_limit(N_STATISTICS)


def wrong_step(case: Case, factor: float) -> Case:
    match case.algorithm.step_size:
        case vrtd.Harmonic(c, t0, power):
            step: Any = vrtd.Harmonic(c * factor, t0, power)
        case vrtd.Piecewise(boundaries, values):
            step = vrtd.Piecewise(boundaries, tuple(value * factor for value in values))
        case number:
            step = number * factor
    return case._replace(algorithm=dataclasses.replace(case.algorithm, step_size=step))


def wrong_discount(case: Case, factor: float) -> vrtd.Result:
    mrp = case.problem.mrp
    gamma = float(mrp.edges.discount[0]) * factor
    wrong = vrtd.MarkovRewardProcess(mrp.P, mrp.edges.reward.reshape(mrp.n_states, -1), gamma)
    return exact_curve(vrtd.LinearProblem(wrong, case.problem.phi), case.algorithm, **case.arguments)


def exact(case: Case) -> vrtd.Result:
    return exact_curve(case.problem, case.algorithm, **case.arguments)


def worst_score(simulated: vrtd.Result, curve: vrtd.Result) -> float:
    """Over every checkpoint and metric, and every coordinate of the last theta."""
    errors = z_scores(simulated.curves.reshape(simulated.n_runs, -1), curve.curves.ravel())
    return float(np.abs(np.concatenate([errors, z_scores(simulated.theta, curve.theta[0])])).max())


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_simulation_agrees_and_one_percent_would_be_seen(case: Case) -> None:
    simulated = vrtd.simulate(case.problem, case.algorithm, n_runs=case.n_runs, seed=11, **case.arguments)
    curve = exact(case)
    assert curve.provenance["method"] == "exact"
    assert worst_score(simulated, curve) < LIMIT
    assert worst_score(simulated, exact(wrong_step(case, 1.01))) > LIMIT
    assert worst_score(simulated, wrong_discount(case, 0.99)) > LIMIT
    if "initial" in case.start:
        elsewhere = case._replace(start=case.start | {"initial": "stationary"})
        assert worst_score(simulated, exact(elsewhere)) > LIMIT
    if isinstance(case.algorithm, vrtd.VRTD) and case.algorithm.batch_size > 1:
        for output in set(OUTPUTS) - {case.algorithm.output}:
            other = case._replace(algorithm=dataclasses.replace(case.algorithm, output=output))
            assert worst_score(simulated, exact(other)) > LIMIT


@pytest.mark.statistical
@pytest.mark.parametrize("algorithm", BATCHES, ids=["10", "50", "500", "growing"])
def test_simulation_agrees_with_the_approximation_within_five_percent(algorithm: Any) -> None:
    n_runs, axis = BATCHES[algorithm]
    arguments = {"n_gradients": axis[-1], "checkpoints": axis}
    summary = vrtd.simulate(RANDOM, algorithm, n_runs=n_runs, seed=3, **arguments).summary()
    curve = exact_curve(RANDOM, algorithm, **arguments)
    assert curve.provenance["method"].startswith("approximation: ")
    expected = curve.values("squared_error")[0]
    assert (np.abs(summary.mean - expected) < 0.05 * expected + LIMIT * summary.standard_error).all()
    # Algorithm 1's error is far from that.
    independent = exact_curve(RANDOM, algorithm, sampling="iid", **arguments).values("squared_error")[0, -1]
    assert abs(summary.mean[-1] - independent) > 0.05 * independent + LIMIT * summary.standard_error[-1]


def at(case: Case, checkpoints: Any, **changes: Any) -> vrtd.Result:
    return exact_curve(case.problem, case.algorithm, **case.arguments | {"checkpoints": checkpoints} | changes)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_curve_does_not_depend_on_its_checkpoints(case: Case) -> None:
    whole = at(case, np.arange(case.checkpoints[-1] + 1))
    assert whole.n_gradients.tolist() == list(range(case.checkpoints[-1] + 1))
    np.testing.assert_allclose(exact(case).curves[0], whole.curves[0, case.checkpoints], rtol=1e-9)
    np.testing.assert_allclose(exact(case).theta, whole.theta, rtol=1e-9)
    for number, value in zip(case.forms, whole.curves[0, 0], strict=True):
        assert value == pytest.approx(number(np.array(case.start.get("theta_0", np.zeros(case.problem.n_features)))))
    shorter = at(case, [case.checkpoints[0]], n_gradients=case.checkpoints[0])
    np.testing.assert_allclose(shorter.curves[0, -1], whole.curves[0, case.checkpoints[0]], rtol=1e-9)


@pytest.mark.parametrize("checkpoints", [1, 2, 7, 200, [0, 3, 3, 20], [5]])
@pytest.mark.parametrize("sampling", ["iid", "markov"])
@pytest.mark.parametrize("algorithm", [vrtd.TD(0.1), vrtd.VRTD(0.1, 5), vrtd.VRTD(0.1, 1)], ids=["td", "vrtd", "one"])
def test_both_axes_are_those_of_simulate(algorithm: Any, sampling: Any, checkpoints: Any) -> None:
    named = {"sampling": sampling, "n_gradients": 33, "checkpoints": checkpoints, "metrics": ("squared_error", "neu")}
    curve, simulated = (
        exact_curve(RANDOM, algorithm, **named),
        vrtd.simulate(RANDOM, algorithm, n_runs=2, **named),
    )
    np.testing.assert_array_equal(curve.n_gradients, simulated.n_gradients)
    np.testing.assert_array_equal(curve.n_samples, simulated.n_samples)
    assert curve.curves.shape == simulated.curves[:1].shape
    assert curve.theta.shape == simulated.theta[:1].shape
    assert curve.metrics == simulated.metrics
    for key in ("algorithm", "problem", "sampling", "theta_0", "initial"):
        assert curve.provenance[key] == simulated.provenance[key]


@pytest.mark.parametrize(
    "schedule",
    [
        0.1,
        HARMONIC,
        EXPONENTIAL,
        PIECEWISE,
        vrtd.Piecewise((1, 2, 39), (0.3, 0.2, 0.1, 0.05)),
        vrtd.Piecewise((500,), (0.1, 0.2)),
    ],
)
def test_td_has_its_moments_with_every_schedule(schedule: Any) -> None:
    curve = exact_curve(
        RANDOM, vrtd.TD(schedule), sampling="iid", n_gradients=40, checkpoints=np.arange(41), theta_0=THETA_0
    )
    steps = [schedule(t) if callable(schedule) else schedule for t in range(40)]
    moments = td_iid_moments(RANDOM, steps, 40, THETA_0)
    np.testing.assert_allclose(curve.values("squared_error")[0], moments.squared_error, rtol=1e-11)
    np.testing.assert_allclose(curve.theta[0], moments.mean[-1], rtol=1e-11)


@pytest.mark.parametrize("schedule", [HARMONIC, EXPONENTIAL, PIECEWISE, vrtd.Piecewise((1, 300), (0.3, 0.2, 0.1))])
def test_td_on_a_trajectory_follows_every_schedule(schedule: Any) -> None:
    curve = exact_curve(RANDOM, vrtd.TD(schedule), n_gradients=400, checkpoints=np.arange(401), initial=3)
    recursion = MarkovTD(RANDOM)
    Y = recursion.start(np.zeros(4), np.eye(50)[3])
    errors = [np.trace(Y.sum(axis=0)[:4, :4])]
    for t in range(400):
        Y = recursion.update(Y, schedule(t))
        errors.append(np.trace(Y.sum(axis=0)[:4, :4]))
    np.testing.assert_allclose(curve.values("squared_error")[0], errors, rtol=1e-9)
    np.testing.assert_allclose(curve.theta[0], Y.sum(axis=0)[:4, 4] + RANDOM.theta_star, rtol=1e-9)


@pytest.mark.parametrize("sampling", ["iid", "markov"])
def test_the_average_of_iterates_is_that_of_all_paths(sampling: Any) -> None:
    mrp, phi = TINY.mrp, TINY.phi
    e, first = mrp.edges, mrp.stationary if sampling == "iid" else np.array([0.0, 1.0])
    A = phi[e.origin, 0] * (e.discount * phi[e.successor, 0] - phi[e.origin, 0])
    b, n, a, theta_0 = e.reward * phi[e.origin, 0], 5, 0.3, 0.8
    mean, square = np.zeros(n + 1), np.zeros(n + 1)
    star = TINY.theta_star[0]
    for path in itertools.product(range(e.origin.size), repeat=n):
        p = first[e.origin[path[0]]] * e.probability[path[0]]
        for x, y in itertools.pairwise(path):
            here = mrp.stationary[e.origin[y]] if sampling == "iid" else e.successor[x] == e.origin[y]
            p = p * here * e.probability[y]
        theta, iterates = theta_0, []
        for x in path:
            theta = theta + a * (A[x] * theta + b[x])
            iterates.append(theta)
        averages = np.array([theta_0, *np.cumsum(iterates) / np.arange(1, n + 1)])
        mean, square = mean + p * averages, square + p * (averages - star) ** 2
    start = {} if sampling == "iid" else {"initial": 1}
    curve = exact_curve(
        TINY, vrtd.TD(a, average=True), sampling=sampling, n_gradients=n, checkpoints=np.arange(n + 1),
        theta_0=[theta_0], **start,
    )  # fmt: skip
    np.testing.assert_allclose(curve.values("squared_error")[0], square, rtol=1e-11)
    assert curve.theta[0, 0] == pytest.approx(mean[-1], rel=1e-11)


@pytest.mark.parametrize("output", OUTPUTS)
def test_vrtd_moves_at_the_end_of_an_epoch(output: Any) -> None:
    curve = exact_curve(
        RANDOM, vrtd.VRTD(0.1, 5, output=output), sampling="iid", n_gradients=59, checkpoints=np.arange(60)
    )
    moments = vrtd_iid_moments(RANDOM, 0.1, 5, 5, np.zeros(4), output)
    np.testing.assert_allclose(curve.values("squared_error")[0], moments.squared_error[np.arange(60) // 10], rtol=1e-11)
    np.testing.assert_allclose(curve.theta[0], moments.mean[-1], rtol=1e-11)


@pytest.mark.parametrize("average", [False, True])
def test_the_mean_of_theta_is_a_power(average: bool) -> None:
    B = np.eye(4) + 0.1 * RANDOM.A
    powers = [np.linalg.matrix_power(B, t) @ (THETA_0 - RANDOM.theta_star) for t in range(1, 31)]
    expected = RANDOM.theta_star + (np.mean(powers, axis=0) if average else powers[-1])
    td = vrtd.TD(0.1, average=average)
    curve = exact_curve(RANDOM, td, sampling="iid", n_gradients=30, theta_0=THETA_0, checkpoints=3)
    np.testing.assert_allclose(curve.theta[0], expected, rtol=1e-11)


def test_long_curves_end_at_the_stationary_moment() -> None:
    for algorithm, limit in {
        vrtd.TD(0.1): stationary_second_moment(RANDOM, 0.1),
        vrtd.VRTD(0.1, 50): stationary_second_moment(RANDOM, 0.1, 50),
    }.items():
        curve = exact_curve(RANDOM, algorithm, sampling="iid", n_gradients=10**9, checkpoints=3)
        assert curve.values("squared_error")[0, -1] == pytest.approx(limit.trace(), rel=1e-9)
    curve = exact_curve(RANDOM, vrtd.TD(0.1), n_gradients=10**6, checkpoints=3)
    assert curve.values("squared_error")[0, -1] == pytest.approx(MarkovTD(RANDOM).stationary(0.1).trace(), rel=1e-9)
    tiny = exact_curve(TINY, vrtd.VRTD(0.1, 8), n_gradients=10**6, checkpoints=2, initial=1)
    assert tiny.values("squared_error")[0, -1] == pytest.approx(0.2463712927, abs=1e-9)


def test_the_longest_curves_do_not_drift() -> None:
    """The moment of a stationary state stays where it is, whatever the budget."""
    for algorithm, limit in ((vrtd.TD(0.1), 0.3480492002), (vrtd.VRTD(0.1, 8), 0.2463712927)):
        curve = exact_curve(TINY, algorithm, n_gradients=2**53, checkpoints=2)
        assert curve.values("squared_error")[0, -1] == pytest.approx(limit, abs=1e-9)


def test_metrics_are_expectations_of_their_forms() -> None:
    """Of every form, also of one whose matrix is not symmetric and whose centre is not theta_star."""
    rng = np.random.default_rng(0)
    odd = vrtd.QuadraticForm("odd", rng.normal(size=(4, 4)), rng.normal(size=4), 3.0)
    named = {"sampling": "iid", "n_gradients": 30, "theta_0": THETA_0, "checkpoints": np.arange(31)}
    curve = exact_curve(RANDOM, vrtd.TD(0.1), metrics=(*METRICS, odd), **named)
    moments = td_iid_moments(RANDOM, 0.1, 30, THETA_0)
    for i, form in enumerate([*(metric(RANDOM) for metric in METRICS.values()), odd]):
        u = moments.mean - RANDOM.theta_star
        covariance = moments.second - u[:, :, None] * u[:, None, :]
        expected = [np.trace(form.matrix @ C) + form(m) for C, m in zip(covariance, moments.mean, strict=True)]
        np.testing.assert_allclose(curve.curves[0, :, i], expected, rtol=1e-9)


def test_the_method_is_on_record() -> None:
    def method(problem: Any, algorithm: Any, **named: Any) -> str:
        return str(exact_curve(problem, algorithm, n_gradients=100, **named).provenance["method"])

    assert method(RANDOM, vrtd.TD(0.1)) == "exact"
    assert method(RANDOM, vrtd.VRTD(0.1, 5), sampling="iid") == "exact"
    assert method(RANDOM, vrtd.VRTD(0.1, 1)) == "exact"
    assert method(TINY, vrtd.VRTD(0.1, 5)) == method(TINY, vrtd.VRTD(0.1, 5), method="exact") == "exact"
    approximation = method(RANDOM, vrtd.VRTD(0.1, 5))
    assert approximation.startswith("approximation: ")
    assert method(TINY, vrtd.VRTD(0.1, 5), method="approximate") == approximation


def test_exact_and_approximate_curves_of_a_tiny_chain_are_near_but_not_equal() -> None:
    named = {"n_gradients": 800, "checkpoints": 21, "theta_0": [3.0]}
    both = [
        exact_curve(TINY, vrtd.VRTD(0.05, 8), method=method, **named).values("squared_error")[0]
        for method in ("exact", "approximate")
    ]
    np.testing.assert_allclose(both[1], both[0], rtol=0.02)  # measured: 0.6 %
    assert np.abs(both[1] / both[0] - 1).max() > 1e-4


def test_forcing_the_inner_sampling_that_is_the_default_changes_nothing() -> None:
    for problem, sampling, inner in ((RANDOM, "iid", "fresh"), (TINY, "markov", "resample")):
        plain, forced = (
            exact_curve(problem, vrtd.VRTD(0.1, 4, inner=choice), sampling=sampling, n_gradients=100)
            for choice in (None, inner)
        )
        np.testing.assert_array_equal(plain.curves, forced.curves)


def test_along_a_trajectory_averaged_td_keeps_a_bias_that_independent_samples_do_not() -> None:
    """Successive A_x of a sticky chain are correlated: the average of a constant step tends elsewhere."""
    mrp = vrtd.MarkovRewardProcess([[0.95, 0.05], [0.1, 0.9]], [[1.0, 0.0], [0.0, 2.0]], 0.9)
    problem, n = vrtd.LinearProblem(mrp, [[1.0], [0.5]]), 10**7

    def error(sampling: str) -> float:
        curve = vrtd.theory.exact_curve(
            problem, vrtd.TD(0.2, average=True), sampling=sampling, n_gradients=n, checkpoints=[n]
        )
        return float(curve.values("squared_error")[0, -1])

    assert error("markov") > 5 * error("iid")


@functools.cache
def example_curve() -> vrtd.Result:
    return exact_curve(RANDOM, vrtd.VRTD(0.1, 5), n_gradients=500, checkpoints=6, metrics=("squared_error", "neu"))


def test_a_curve_is_drawn_beside_a_simulation() -> None:
    named = {"n_gradients": 500, "checkpoints": 6}
    axes = vrtd.simulate(RANDOM, vrtd.TD(0.1), n_runs=20, **named).plot()
    exact_curve(RANDOM, vrtd.TD(0.1), **named).plot(axes)
    example_curve().plot(axes, label="M = 5")
    example_curve().plot(axes, metric="neu", x="n_samples")
    assert axes.get_legend_handles_labels()[1] == [
        "td, step_size 0.1",
        "td, step_size 0.1 (exact)",
        "M = 5 (approximation)",
        "vrtd, step_size 0.1, batch_size 5 (approximation)",
    ]  # fmt: skip
    line = axes.get_lines()[2]
    np.testing.assert_array_equal(line.get_ydata(), example_curve().values("squared_error")[0])
    np.testing.assert_array_equal(line.get_xdata(), example_curve().n_gradients)
    axes.figure.canvas.draw()


def test_a_curve_survives_its_file(tmp_path: Path) -> None:
    example_curve().save(tmp_path / "x.npz")
    loaded = vrtd.load(tmp_path / "x.npz")
    assert loaded.metrics == example_curve().metrics
    assert loaded.provenance == example_curve().provenance
    for name in ("n_gradients", "n_samples", "curves", "theta", "diverged_at"):
        assert getattr(loaded, name).tobytes() == getattr(example_curve(), name).tobytes()
    with pytest.raises(InvalidInputError, match="start must come from the same"):
        vrtd.simulate(RANDOM, vrtd.VRTD(0.1, 5), n_runs=1, n_gradients=500, start=loaded)


def test_a_curve_is_a_table_without_standard_errors(tmp_path: Path) -> None:
    example_curve().to_csv(tmp_path / "x.csv")
    rows = [line.split(",") for line in (tmp_path / "x.csv").read_text().splitlines()]
    table = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    assert [row["metric"] for row in table] == ["squared_error"] * 6 + ["neu"] * 6
    assert [float(row["mean"]) for row in table] == example_curve().curves[0].T.ravel().tolist()
    assert [int(row["n_samples"]) for row in table] == example_curve().n_samples.tolist() * 2
    assert {row["standard_error"] for row in table} == {""}


def test_arrays_are_read_only_and_theta_0_is_left_alone() -> None:
    theta_0 = np.ones(4)
    curve = exact_curve(RANDOM, vrtd.TD(0.1), n_gradients=10, theta_0=theta_0)
    assert (theta_0 == 1.0).all()
    assert theta_0.flags.writeable
    for array in (curve.curves, curve.theta, curve.n_gradients, curve.n_samples, curve.diverged_at):
        assert not array.flags.writeable


@pytest.mark.parametrize(
    ("problem", "algorithm", "sampling"),
    [
        (RANDOM, vrtd.TD(5.0), "iid"),
        (RANDOM, vrtd.TD(5.0), "markov"),
        (RANDOM, vrtd.TD(5.0, average=True), "markov"),
        (RANDOM, vrtd.TD(vrtd.Piecewise((100, 10_000), (0.1, 5.0, 0.1))), "iid"),
        (RANDOM, vrtd.VRTD(4.0, 5), "iid"),
        (RANDOM, vrtd.VRTD(6.0, 5), "markov"),
        (TINY, vrtd.VRTD(20.0, 5), "markov"),
    ],
)
def test_an_unstable_step_is_seen_when_numbers_overflow(problem: Any, algorithm: Any, sampling: Any) -> None:
    curve = exact_curve(problem, algorithm, sampling=sampling, n_gradients=20_000, checkpoints=401)
    values = curve.values("squared_error")[0]
    gone = int(np.flatnonzero(curve.n_gradients == curve.diverged_at[0])[0])
    assert gone > 1
    assert np.isfinite(values[:gone]).all()
    assert values[gone - 1] > 1e30
    assert np.isnan(values[gone:]).all()
    assert np.isnan(curve.theta).all()
    assert curve.status.tolist() == ["diverged"]
    curve.plot()


def test_an_unstable_step_is_seen_without_metrics() -> None:
    curve = exact_curve(RANDOM, vrtd.TD(5.0), sampling="iid", n_gradients=20_000, metrics=())
    assert np.isnan(curve.theta).all()
    assert curve.status.tolist() == ["diverged"]


def test_without_metrics_there_is_a_theta() -> None:
    curve = exact_curve(RANDOM, vrtd.TD(0.1), sampling="iid", n_gradients=30, metrics=(), theta_0=THETA_0)
    assert curve.curves.shape == (1, 31, 0)
    np.testing.assert_allclose(curve.theta[0], td_iid_moments(RANDOM, 0.1, 30, THETA_0).mean[-1])


def test_a_stable_step_has_not_diverged() -> None:
    assert example_curve().diverged_at.tolist() == [-1]
    assert example_curve().status.tolist() == ["ok"]
    assert example_curve().n_runs == 1


@dataclasses.dataclass(frozen=True)
class Lazy(Algorithm):
    """An algorithm whose moments nobody knows."""

    name = "lazy"
    kernels = vrtd.TD.kernels
    n_vectors = 2

    def params(self) -> Any:
        return vrtd.TD(0.1).params()

    def options(self) -> Any:
        return vrtd.TD(0.1).options()

    @property
    def largest_step_size(self) -> float:
        return 0.1


def wide(d: int) -> Any:
    return vrtd.problems.random_mdp(n_states=d, n_features=d, normalize=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: exact_curve(RANDOM, vrtd.TD(0.1, radius=3.0)),
            r"without projection only, but radius is 3\.0. Drop the radius, or simulate",
        ),
        (lambda: exact_curve(RANDOM, vrtd.VRTD(0.1, 5, radius=3.0)), "without projection"),
        (
            lambda: exact_curve(RANDOM, vrtd.VRTD(0.1, 5, inner="resample"), sampling="iid"),
            "Algorithm 1 on independent.*inner='resample' was combined with iid samples. Drop inner",
        ),
        (
            lambda: exact_curve(RANDOM, vrtd.VRTD(0.1, 5, inner="fresh")),
            "Algorithm 2 on a trajectory, but inner='fresh' was combined with markov samples",
        ),
        (
            lambda: exact_curve(RANDOM, vrtd.VRTD(0.1, 5), method="exact"),
            'which 50 states with batch_size 5 exceed. Use the approximation, method="approximate", or simulate',
        ),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), method="guess"), "method must be one of .*got 'guess'"),
        (
            lambda: exact_curve(RANDOM, vrtd.VRTD(0.1, 500), n_gradients=999),
            "n_gradients must be at least 1000, which is one epoch, but is 999",
        ),
        (
            lambda: exact_curve(wide(65), vrtd.TD(0.1), sampling="iid", n_gradients=10),
            "limited to 64 features, but there are 65. Simulate instead, or use fewer",
        ),
        (
            lambda: exact_curve(wide(33), vrtd.TD(0.1, average=True), sampling="iid", n_gradients=10),
            "limited to 32 features, but there are 33",
        ),
        (
            lambda: exact_curve(wide(33), vrtd.VRTD(0.1, 2), sampling="iid", n_gradients=10),
            "limited to 32 features, but there are 33",
        ),
        (lambda: exact_curve(wide(33), vrtd.VRTD(0.1, 2), n_gradients=10), "limited to 32 features, but there are 33"),
        (
            lambda: exact_curve(RANDOM, Lazy()),
            "known for TD, RichardsonTD and VRTD, but not for lazy. Simulate instead",
        ),
        (lambda: exact_curve(RANDOM, "td"), "algorithm must be an Algorithm, but got 'td'"),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), sampling="online"), "sampling must be one of"),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), n_gradients=0), "n_gradients must be a whole number"),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), checkpoints=0), "checkpoints must be a whole number"),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), n_gradients=9, checkpoints=[10]), r"checkpoints .* in 0 \.\. 9"),
        (
            lambda: exact_curve(RANDOM, vrtd.TD(0.1), theta_0=[1.0]),
            r"theta_0 must have the shape \(4,\), but got \(1,\)",
        ),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), initial=50), r"initial must be a state in 0 \.\. 49, but got 50"),
        (
            lambda: exact_curve(RANDOM, vrtd.TD(0.1), sampling="iid", initial=3),
            "initial has no effect on independent samples, but got 3",
        ),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), metrics=("error",)), "metrics must be one of"),
        (lambda: exact_curve("chain", vrtd.TD(0.1)), "problem must be a LinearProblem, but is of type str"),
    ],
)
def test_bad_arguments_of_a_curve_are_refused(call: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()
