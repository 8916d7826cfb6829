"""Methods that step on every sample: mean updates in closed form, the forward view of true online TD(lambda), limits,
and what off-policy samples do. All runs use loops that are not specialised: each algorithm is compiled once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import vrtd
from tests.helpers.statistics import t_limit
from tests.helpers.table import two_states
from tests.reference import gradient_td, td, traces
from tests.reference.sampling import Sample, chain_draw
from vrtd.algorithms import Kernels
from vrtd.algorithms._base.schedules import step_size_at
from vrtd.algorithms.td_lambda import td_lambda_views
from vrtd.errors import InvalidInputError, StabilityWarning
from vrtd.kernels.jit import kernel
from vrtd.kernels.transition import td_error
from vrtd.sources import chain_source

GAMMA = 0.7


def off_policy() -> tuple[Any, Any]:
    """Four states, two of which end the episode, seen under another policy."""
    rng = np.random.default_rng(4)
    P = rng.random((2, 4, 4))
    discount = np.full((2, 4, 4), GAMMA)
    discount[:, 2:] = 0.0
    mdp = vrtd.MDP(P / P.sum(axis=2, keepdims=True), rng.normal(size=(2, 4, 4)), discount)
    policy = [[0.8, 0.2], [0.3, 0.7], [0.5, 0.5], [1.0, 0.0]]
    phi = 1.5 * np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.5, -0.5, 0.5]])
    return vrtd.LinearProblem(mdp.chain(policy, behaviour=np.full((4, 2), 0.5)), phi)


PROBLEM = off_policy()
each_chain = pytest.mark.parametrize("chain", [two_states, off_policy])


def transitions(problem: vrtd.LinearProblem) -> list[tuple[int, int, float, Sample]]:
    """Every transition: from, to, how often, and what is seen of it."""
    mrp, phi, edges = problem.mrp, problem.phi, problem.mrp.edges
    return [
        (s, to, mrp.stationary[s] * p, Sample(phi[s], phi[to], r, gamma, weight))
        for s, to, p, r, gamma, weight in zip(
            edges.origin, edges.successor, edges.probability, edges.reward, edges.discount, edges.weight, strict=True
        )
    ]


def td_update(algorithm: Any, t: int, state: Any, x: Sample) -> Any:
    return (state[0] + algorithm.step_size * td.pseudo_gradient(x, state[0]),)


def double_td_update(algorithm: Any, t: int, state: Any, x: Sample) -> Any:
    return gradient_td.double_td_update(0.3, 0.4, state, x)


def no_ratio_in_w(algorithm: Any, t: int, state: Any, x: Sample) -> Any:
    """GTD2 with a bug."""
    theta, _ = gradient_td.gtd2_update(algorithm, t, state, x)
    return theta, gradient_td.gtd2_update(algorithm, t, state, x._replace(weight=1.0))[1]


def closed_form(name: str, problem: vrtd.LinearProblem, theta: Any, second: Any) -> tuple[Any, ...]:
    """What a mean update with steps 0.3 and 0.2 must give; E[rho | s] = 1, so E[rho gamma phi phi'^T] = A + C."""
    A, b, C = problem.A, problem.b, problem.C
    expected = A @ theta + b

    def towards(bootstrap: Any, own: Any) -> Any:
        return (A + C) @ bootstrap + b - C @ own

    if name == "td":
        return (theta + 0.3 * expected,)
    if name == "gtd":
        return theta - 0.3 * A.T @ second, second + 0.2 * (expected - second)
    if name == "gtd2":
        return theta - 0.3 * A.T @ second, second + 0.2 * (expected - C @ second)
    if name == "tdc":
        return theta + 0.3 * (expected - (A + C).T @ second), second + 0.2 * (expected - C @ second)
    after = theta + 0.3 * towards(second, theta)
    if name == "target-average":
        return after, second + 0.3 * 0.4 * (theta - second)
    if name == "double":
        pull = 0.3 * 0.4 * (second - theta)
        return after + pull, second + 0.3 * towards(theta, second) - pull
    return after, after if name == "target-copy" else second


PERIODIC = vrtd.TargetTD(0.3, "periodic", period=5)
# Name in `closed_form`, algorithm, its transcription, and the number of updates so far.
UPDATES = [
    ("td", vrtd.TD(0.3), td_update, 0),
    ("target-average", vrtd.TargetTD(0.3, mix=0.4), gradient_td.target_td_update, 0),
    ("target-between", PERIODIC, gradient_td.target_td_update, 3),
    ("target-copy", PERIODIC, gradient_td.target_td_update, 4),
    ("double", None, double_td_update, 0),
    ("gtd", vrtd.GTD(0.3, 0.2), gradient_td.gtd_update, 0),
    ("gtd2", vrtd.GTD2(0.3, 0.2), gradient_td.gtd2_update, 0),
    ("tdc", vrtd.TDC(0.3, 0.2), gradient_td.tdc_update, 0),
]


def largest_gap(name: str, algorithm: Any, update: Any, t: int, chain: Any) -> float:
    problem = chain()
    state = np.random.default_rng(0).normal(size=(1 if name == "td" else 2, problem.n_features))
    found = sum(often * np.array(update(algorithm, t, state, x)) for _, _, often, x in transitions(problem))
    expected = closed_form(name, problem, state[0], state[-1])
    return float(np.abs(found - np.array(expected)).max())


@each_chain
@pytest.mark.parametrize(("name", "algorithm", "update", "t"), UPDATES, ids=[row[0] for row in UPDATES])
def test_the_mean_update_is_that_of_the_problem(name: str, algorithm: Any, update: Any, t: int, chain: Any) -> None:
    assert largest_gap(name, algorithm, update, t, chain) < 1e-12


def test_the_mean_update_shows_a_planted_bug() -> None:
    assert largest_gap("gtd2", vrtd.GTD2(0.3, 0.2), no_ratio_in_w, 0, two_states) < 1e-12  # the same on-policy
    assert largest_gap("gtd2", vrtd.GTD2(0.3, 0.2), no_ratio_in_w, 0, off_policy) > 1e-2


@each_chain
@pytest.mark.parametrize("trace_decay", [0.0, 0.7, 1.0])
def test_the_mean_update_with_traces_is_that_of_the_traced_problem(chain: Any, trace_decay: float) -> None:
    """In the stationary regime, theta held: updates are linear in the trace, so its mean in each state is enough. The
    mean of true online TD(lambda) has a term of second order in alpha."""
    problem = chain()
    theta = np.random.default_rng(0).normal(size=problem.n_features)
    A, b = problem.traced(trace_decay)
    for algorithm, update, accuracy in (
        (vrtd.TDLambda(0.3, trace_decay), traces.td_lambda_update, 1e-12),
        (vrtd.TrueOnlineTD(1e-8, trace_decay), traces.true_online_td_update, 1e-6),
    ):
        carried = np.zeros_like(problem.phi)  # the mean of the trace times its carry, in each state
        for _ in range(400):  # it shrinks by 0.9 a step at least
            change, after = np.zeros_like(theta), np.zeros_like(problem.phi)
            for s, to, often, x in transitions(problem):
                arrival = () if algorithm.name == "td_lambda" else (theta @ x.phi,)
                end, z, carry = update(algorithm, 0, (theta, carried[s], 1.0, *arrival), x)[:3]
                change += often * (end - theta)
                after[to] += often * carry * z / problem.mrp.stationary[to]
            carried = after
        np.testing.assert_allclose(change / algorithm.step_size, A @ theta + b, atol=accuracy, rtol=0)


def some_episode(n: int, seed: int) -> list[Sample]:
    """A trajectory with ratios, discounts that differ, a termination and a truncation."""
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(n + 1, 3)) / 2.0
    samples = []
    for k in range(n):
        discount = 0.0 if k == 3 else rng.uniform(0.5, 1.0)
        samples.append(Sample(phi[k], phi[k + 1], rng.normal(), discount, rng.uniform(0.5, 1.5), ends=k == 6))
    return samples


@pytest.mark.parametrize("step_size", [0.4, vrtd.Harmonic(c=4.0, t0=8.0)])
@pytest.mark.parametrize("trace_decay", [0.0, 0.6, 1.0])
def test_true_online_td_is_the_online_forward_view(step_size: Any, trace_decay: float) -> None:
    algorithm, theta_0 = vrtd.TrueOnlineTD(step_size, trace_decay), np.array([1.0, -1.0, 0.5])
    for seed in range(3):
        samples = some_episode(10, seed)
        expected = traces.online_forward_view(algorithm, samples, theta_0)
        for transcription, is_equal in (
            (traces.true_online_td, True),
            (traces.td_lambda, trace_decay == 0.0),  # accumulating traces only come near
        ):
            other = algorithm if transcription is traces.true_online_td else vrtd.TDLambda(step_size, trace_decay)
            theta = transcription(other, "markov", iter(samples).__next__, None, theta_0, 10)[-1]
            gap = np.abs(theta - expected).max()
            assert gap < 1e-13 if is_equal else gap > 1e-3


def test_double_td_from_one_start_is_td() -> None:
    """Which is why the library does not have it."""
    theta = target = np.array([1.0, -1.0, 0.5])
    samples = some_episode(10, 0)
    expected = td.td(vrtd.TD(0.3), "markov", iter(samples).__next__, None, theta, 10)[-1]
    for x in samples:
        theta, target = gradient_td.double_td_update(0.3, 0.4, (theta, target), x)
    np.testing.assert_allclose(theta, expected, rtol=1e-14)
    np.testing.assert_array_equal(theta, target)


SLOW, MIDDLE, FAST = vrtd.Harmonic(c=8.0, t0=40.0), vrtd.Harmonic(c=8.0, t0=80.0), vrtd.Harmonic(c=20.0, t0=200.0)
LEARNERS = [
    (vrtd.TD(SLOW), td.td),
    (vrtd.TDLambda(SLOW, 0.7), traces.td_lambda),
    (vrtd.TrueOnlineTD(SLOW, 0.7), traces.true_online_td),
    (vrtd.TargetTD(SLOW, mix=2.0), gradient_td.target_td),
    (vrtd.TargetTD(SLOW, "periodic", period=20), gradient_td.target_td),
    (vrtd.GTD(FAST, FAST), gradient_td.gtd),
    (vrtd.GTD2(FAST, FAST), gradient_td.gtd2),
    (vrtd.TDC(MIDDLE, MIDDLE), gradient_td.tdc),
]


def simulate(algorithm: Any, n_runs: int, n_gradients: int) -> vrtd.Result:
    return vrtd.simulate(
        PROBLEM, algorithm, n_runs=n_runs, n_gradients=n_gradients, checkpoints=1, metrics=(), specialise=False
    )


@pytest.mark.parametrize(("algorithm", "transcription"), LEARNERS, ids=lambda each: getattr(each, "name", ""))
def test_ratios_and_terminations_are_those_of_the_transcription(algorithm: Any, transcription: Any) -> None:
    result = simulate(algorithm, 3, 300)
    source = chain_source(PROBLEM.mrp, PROBLEM.phi, "markov", PROBLEM.mrp.stationary)
    assert source.name == "general_markov"
    draw = chain_draw(source, "markov", 0, 2)
    outputs = transcription(algorithm, "markov", draw, None, np.zeros(3), 300)
    np.testing.assert_allclose(result.theta[2], outputs[-1], rtol=1e-12, atol=1e-12)


N_RUNS = 100


def scores_of_the_limit(algorithm: Any) -> Any:
    """Of the mean over runs, beyond a bias of the order of the last step: steps fall like 1/t."""
    trace_decay = algorithm.trace_decay if isinstance(algorithm, vrtd.TDLambda | vrtd.TrueOnlineTD) else 0.0
    theta = simulate(algorithm, N_RUNS, 100_000).theta
    error = theta.std(axis=0, ddof=1) / np.sqrt(N_RUNS)
    return np.maximum(np.abs(theta.mean(axis=0) - PROBLEM.fixed_point(trace_decay)) - SLOW(100_000), 0.0) / error


def test_every_method_finds_its_fixed_point_off_policy() -> None:
    """A family of random tests: three parameters of eight methods."""
    limit = t_limit(3 * len(LEARNERS), N_RUNS)
    for algorithm, _ in LEARNERS:
        assert scores_of_the_limit(algorithm).max() < limit, algorithm


@kernel
def uncut_td_lambda_step(params, options, state, x, t, epoch):  # type: ignore[no-untyped-def]
    theta, z = state.theta, state.z
    factor = step_size_at(params.schedule, options.schedule, epoch) * td_error(theta, x)
    for i in range(theta.size):
        z[i] = x.weight * (params.trace_decay * GAMMA * z[i] + x.phi[x.row, i])
        theta[i] += factor * z[i]


@dataclass(frozen=True)
class UncutTDLambda(vrtd.TDLambda):
    """The trace goes on over terminations."""

    name: ClassVar[str] = "uncut_td_lambda"
    kernels: ClassVar[Kernels] = Kernels(td_lambda_views, uncut_td_lambda_step)


def test_the_limits_show_a_planted_bug() -> None:
    assert scores_of_the_limit(UncutTDLambda(SLOW, 0.7)).max() > 2.0 * t_limit(3 * len(LEARNERS), N_RUNS)


def growth_on_the_star(algorithm: Any) -> tuple[Any, Any]:
    """By which factors value error and projected Bellman error have grown on Baird's star, in each of ten runs."""
    result = vrtd.simulate(
        vrtd.problems.baird(), algorithm, n_runs=10, n_gradients=20_000, theta_0=[1, 1, 1, 1, 1, 1, 10, 1],
        metrics=("value_error", "mspbe"), checkpoints=[0], specialise=False,
    )  # fmt: skip
    values, projected = (result.values(name) for name in result.metrics)
    return values[:, -1] / values[:, 0], projected[:, -1] / projected[:, 0]


def test_gradient_td_is_stable_on_bairds_star_and_td_is_not() -> None:
    """With one step size TD leaves every bound, and gradient TD solves the star. A part of the values' error stays for
    long: where they are all alike, the TD error is only 1 - gamma of them."""
    step, larger = vrtd.Harmonic(c=500.0, t0=100_000.0), vrtd.Harmonic(c=5000.0, t0=100_000.0)
    with pytest.warns(
        StabilityWarning, match="is unstable: with independent samples, the mean squared error of TD grows"
    ):
        values, projected = growth_on_the_star(vrtd.TD(step))
    assert min(values.min(), projected.min()) > 1e15
    for algorithm in (vrtd.GTD(step, larger), vrtd.GTD2(step, larger), vrtd.TDC(step, larger)):
        values, projected = growth_on_the_star(algorithm)
        assert values.max() < 0.9, algorithm
        assert projected.max() < 1e-4, algorithm


@pytest.mark.parametrize("algorithm", [vrtd.TDLambda(), vrtd.TrueOnlineTD()], ids=lambda each: each.name)
def test_traces_need_a_trajectory(algorithm: Any) -> None:
    settings = r"\(step_size 0.1, trace_decay 0.8\)"
    message = f"^{algorithm.name} {settings} needs consecutive samples, but got sampling='iid'. Use"
    with pytest.raises(InvalidInputError, match=message):
        vrtd.simulate(two_states(), algorithm, sampling="iid", n_runs=2, n_gradients=10)
    data = vrtd.record(two_states(), 10)
    with pytest.raises(InvalidInputError, match="needs consecutive samples, but got sampling='dataset'"):
        vrtd.simulate(data, algorithm, sampling="dataset", n_runs=2, n_gradients=10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: vrtd.TDLambda(0.1, 1.1), r"trace_decay must lie in \[0, 1\], but got 1.1. Pass"),
        (lambda: vrtd.TrueOnlineTD(0.1, True), r"trace_decay must lie in \[0, 1\], but got True. Pass"),
        (lambda: vrtd.TargetTD(update="sometimes"), "update must be one of 'average', 'periodic', but got 'sometimes'"),
        (
            lambda: vrtd.TargetTD(period=10),
            "period has no effect with update='average', but got 10. Drop it, or change",
        ),
        (
            lambda: vrtd.TargetTD(update="periodic", mix=0.5),
            "mix has no effect with update='periodic', but got 0.5. Drop",
        ),
        (lambda: vrtd.TargetTD(mix=0.0), "mix must be a positive, finite number, but got 0.0. Pass"),
        (
            lambda: vrtd.TargetTD(update="periodic", period=0),
            "period must be a whole number of at least 1, but got 0. Pass",
        ),
        (lambda: vrtd.GTD(0.0), "step_size must be a positive, finite number, but got 0.0. Pass"),
        (lambda: vrtd.TDC(0.1, -1.0), "step_size_w must be a positive, finite number, but got -1.0. Pass"),
    ],
)
def test_invalid_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()
