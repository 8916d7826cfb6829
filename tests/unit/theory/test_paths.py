"""Exact moments of Richardson-Romberg TD and of VRTD with growing batches: all outcomes of the transcriptions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.table import two_states
from tests.reference import td
from tests.reference.sampling import Sample
from vrtd.errors import InvalidInputError
from vrtd.theory import exact_curve
from vrtd.theory.increments import correlated_increments
from vrtd.theory.moments import successive_epoch_maps

TINY, THETA_0 = two_states(), 0.8
# Two transitions, so that many independent draws have few outcomes.
COIN = vrtd.LinearProblem(
    vrtd.MarkovRewardProcess([[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [2.0, 0.0]], 0.9), [[1.0], [0.5]]
)
STICKY = vrtd.LinearProblem(
    vrtd.MarkovRewardProcess([[0.9, 0.1], [0.2, 0.8]], [[1.0, 0.0], [0.0, 2.0]], 0.9), [[1.0], [0.5]]
)


class Choices:
    """One sequence of choices: a prefix that is given, then always the first; the others are left for later."""

    def __init__(self, prefix: tuple[int, ...], later: list[tuple[int, ...]]) -> None:
        self.made, self.later, self.position, self.probability = list(prefix), later, 0, 1.0

    def __call__(self, weights: Any) -> int:
        if self.position == len(self.made):
            self.later.extend((*self.made, i) for i in range(1, len(weights)))
            self.made.append(0)
        index = self.made[self.position]
        self.position, self.probability = self.position + 1, self.probability * float(weights[index])
        return index


def every_outcome(run: Callable[[Choices], Any]) -> Iterator[tuple[float, Any]]:
    """Yield the probability and the result of `run` for every sequence of its choices."""
    prefixes: list[tuple[int, ...]] = [()]
    while prefixes:
        choices = Choices(prefixes.pop(), prefixes)
        result = run(choices)
        yield choices.probability, result


def expected_outputs(problem: Any, algorithm: Any, sampling: str, transcription: Any, n_epochs: int) -> Any:
    """(2, n_epochs + 1) E theta and E|theta - theta_star|^2 of the transcription; a trajectory begins in state 1."""
    edges, phi = problem.mrp.edges, problem.phi
    flow = problem.mrp.stationary[edges.origin] * edges.probability
    samples = [
        Sample(*numbers)
        for numbers in zip(phi[edges.origin], phi[edges.successor], edges.reward, edges.discount, strict=True)
    ]

    def run(choose: Choices) -> Any:
        state = 1

        def draw() -> Sample:
            nonlocal state
            first, end = (0, len(flow)) if sampling == "iid" else edges.indptr[state : state + 2]
            e = first + choose((flow if sampling == "iid" else edges.probability)[first:end])
            state = int(edges.successor[e])
            return samples[e]

        return transcription(
            algorithm, sampling, draw, lambda n: choose(np.full(n, 1.0 / n)), np.array([THETA_0]), n_epochs
        )

    total = np.zeros((2, n_epochs + 1))
    for probability, outputs in every_outcome(run):
        theta = np.array(outputs)[:, 0]
        total += probability * np.stack([theta, (theta - problem.theta_star[0]) ** 2])
    return total


def check_outcomes(problem: Any, algorithm: Any, sampling: str, transcription: Any, n_epochs: int) -> None:
    epoch = algorithm.epoch(sampling)
    last = int(epoch.gradients_until(n_epochs))
    mean, square = expected_outputs(problem, algorithm, sampling, transcription, n_epochs)
    start = {} if sampling == "iid" else {"initial": 1}
    curve = exact_curve(
        problem,
        algorithm,
        sampling=sampling,
        n_gradients=last,
        checkpoints=np.arange(last + 1),
        theta_0=[THETA_0],
        **start,
    )
    assert curve.provenance["method"] == "exact"
    np.testing.assert_allclose(
        curve.values("squared_error")[0], square[epoch.epochs_at(np.arange(last + 1))], rtol=1e-10
    )
    assert curve.theta[0, 0] == pytest.approx(mean[-1], rel=1e-10)


@pytest.mark.parametrize("sampling", ["iid", "markov"])
@pytest.mark.parametrize(
    "algorithm",
    [
        vrtd.RichardsonTD(0.2, levels=2),
        vrtd.RichardsonTD(0.1, burn_in=2),
        vrtd.RichardsonTD(vrtd.Piecewise((2, 3), (0.2, 0.1, 0.05)), levels=4, burn_in=3),
        vrtd.RichardsonTD(vrtd.Harmonic(2.0, 10.0), levels=2, burn_in=1),
        vrtd.RichardsonTD(0.1, burn_in=9),
    ],
    ids=["two", "burn-in", "piecewise", "harmonic", "burning in"],
)
def test_richardson_td_has_the_moments_of_all_paths(algorithm: Any, sampling: str) -> None:
    """A wrong weight, level, burn-in or cross moment of two levels would change the second moment."""
    check_outcomes(TINY, algorithm, sampling, td.richardson_td, 4)


@pytest.mark.parametrize("output", [None, "last", "average"])
def test_growing_vrtd_has_the_moments_of_all_independent_draws(output: Any) -> None:
    """Epochs of 2 + 2 and of 4 + 3 samples: their batch, their steps and the second half of these all differ."""
    algorithm = vrtd.VRTD(0.3, 2, growth=2.0, n_steps=3, output=output)
    check_outcomes(COIN, algorithm, "iid", td.vrtd, 2)


@pytest.mark.parametrize(
    ("algorithm", "n_epochs"),
    [(vrtd.VRTD(0.3, 2, growth=1.5), 2), (vrtd.VRTD(0.3, 3, n_steps=2), 1)],
    ids=["growing", "few steps"],
)
def test_vrtd_on_a_tiny_chain_has_the_moments_of_all_paths(algorithm: Any, n_epochs: int) -> None:
    check_outcomes(TINY, algorithm, "markov", td.vrtd, n_epochs)


def test_epochs_that_are_alike_end_as_if_they_had_always_been() -> None:
    """The covariances of batches are summed pair by pair here, and in closed form for the stationary map."""
    increments = correlated_increments(STICKY)
    for output in ("random", "tail"):
        maps, later = successive_epoch_maps(increments, 0.2, [4] * 40, output)
        np.testing.assert_allclose(maps[-1], later, atol=1e-9)
        assert np.abs(maps[0] - later).max() > 0.01


def test_the_approximation_knows_the_earlier_batches_of_growing_ones() -> None:
    """Without their covariances it is 50 % high here."""
    algorithm, named = vrtd.VRTD(0.05, 2, growth=1.5), {"n_gradients": 40, "theta_0": STICKY.theta_star}
    exact, near = (
        exact_curve(STICKY, algorithm, method=method, **named).values("squared_error")[0, -1]
        for method in ("exact", "approximate")
    )
    assert near == pytest.approx(exact, rel=0.02)


def test_fixed_batches_with_tail_averages_end_at_the_stationary_moment() -> None:
    problem = vrtd.problems.random_mdp(seed=0)
    curve = exact_curve(problem, vrtd.VRTD(0.1, 50, output="tail"), sampling="iid", n_gradients=10**6, checkpoints=1)
    limit = vrtd.theory.stationary_second_moment(problem, 0.1, 50, "tail").trace()
    assert curve.values("squared_error")[0, -1] == pytest.approx(limit, rel=1e-9)


def test_long_averages_tend_to_the_limit_of_the_bias() -> None:
    for problem, step in ((TINY, 0.1), (STICKY, 0.05)):
        for method, n in ((vrtd.TD(step), 10**5), (vrtd.RichardsonTD(step, burn_in=10**5), 6 * 10**5)):
            mean = exact_curve(problem, method, n_gradients=n, checkpoints=1).theta[0] - problem.theta_star
            np.testing.assert_allclose(mean, vrtd.theory.limit_bias(problem, method), rtol=1e-8)


def test_the_bias_is_in_proportion_to_a_power_of_the_step() -> None:
    problem = vrtd.problems.random_mdp(seed=0)
    for order, method in ((1, vrtd.TD), *((k, lambda a, k=k: vrtd.RichardsonTD(a, levels=k)) for k in (2, 3, 4))):
        large, small = (np.linalg.norm(vrtd.theory.limit_bias(problem, method(a))) for a in (0.01, 0.005))
        assert np.log2(large / small) == pytest.approx(order, abs=0.1)
    squared = [np.sum(vrtd.theory.limit_bias(problem, method(0.05)) ** 2) for method in (vrtd.TD, vrtd.RichardsonTD)]
    assert squared[0] > 1e4 * squared[1]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: exact_curve(wide(17), vrtd.RichardsonTD(0.1), sampling="iid", n_gradients=30),
            "RichardsonTD with 3 levels are limited to 16 features, but there are 17",
        ),
        (
            lambda: exact_curve(wide(22), vrtd.RichardsonTD(0.1, 2), n_gradients=30),
            "limited to 21 features, but there are 22",
        ),
        (lambda: exact_curve(wide(25), vrtd.VRTD(0.1, 2, growth=2.0)), 'output="tail" are limited to 24'),
        (
            lambda: exact_curve(TINY, vrtd.RichardsonTD(0.1), n_gradients=2),
            "at least 3, which is one epoch, but is 2",
        ),
        (
            lambda: exact_curve(TINY, vrtd.VRTD(0.1, 4, growth=2.0), n_gradients=7),
            "at least 8, which is one epoch, but is 7",
        ),
        (
            lambda: exact_curve(TINY, vrtd.VRTD(0.1, 1, growth=2.0, inner="fresh")),
            "inner='fresh' was combined with markov",
        ),
        (
            lambda: vrtd.plan(TINY, budget=100, sampling="iid", mode="guaranteed", output="tail"),
            "output must be .* for the bounds, but is 'tail'",
        ),
        (
            lambda: vrtd.theory.recursion_moments(vrtd.record(TINY, 50), [(0.1, 4, 3)], output="tail"),
            "output must be one of .*got 'tail'",
        ),
        (lambda: vrtd.theory.limit_bias(TINY, vrtd.VRTD(0.1, 4)), "known for TD without.*not for vrtd. Simulate"),
        (
            lambda: vrtd.theory.limit_bias(TINY, vrtd.TD(0.1, radius=2.0)),
            "without projection and for RichardsonTD, but not for td",
        ),
        (
            lambda: vrtd.theory.limit_bias(TINY, vrtd.TD(vrtd.Harmonic(1.0, 1.0))),
            "step_size must be constant .*, but is Harmonic",
        ),
        (
            lambda: vrtd.theory.limit_bias(TINY, vrtd.RichardsonTD(9.0)),
            "diverges with step_size 9.0: the spectral radius",
        ),
        (
            lambda: vrtd.theory.limit_bias(wide(64), vrtd.TD(0.1)),
            "states x features = 3000, but there are 64 x 64. Simulate",
        ),
    ],
)
def test_what_is_not_computed_is_refused(call: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()


def wide(d: int) -> Any:
    return vrtd.problems.random_mdp(n_states=d, n_features=d, normalize=True)
