"""The phase diagram: its cells, its limits, its files."""

import json
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

import vrtd
from vrtd.errors import InvalidInputError
from vrtd.theory import (
    approximation_limit,
    exact_curve,
    phase_diagram,
    stability_limit,
    vrtd_iid_bound,
    vrtd_markov_bound,
)

PROBLEM = vrtd.problems.random_mdp(n_states=10, n_features=2, normalize=True)
RANDOM = vrtd.problems.random_mdp()
BUDGET = 3000
RNG = np.random.default_rng(0)
CYCLE = vrtd.LinearProblem(
    vrtd.MarkovRewardProcess(np.roll(np.eye(6), 1, axis=1), RNG.random((6, 6)), 0.9), RNG.random((6, 2)) / 2.0
)
STILL = vrtd.LinearProblem(vrtd.MarkovRewardProcess([[0.5, 0.5], [0.3, 0.7]], [1.0, 1.0], 0.5), [[1.0], [1.0]])


@pytest.fixture(scope="module", params=["iid", "markov"])
def diagram(request: Any) -> Any:
    return phase_diagram(PROBLEM, budget=BUDGET, sampling=request.param, n_steps=9)


def test_cells_are_exact_errors(diagram: Any) -> None:
    assert diagram.batch_sizes[:5].tolist() == [1, 2, 3, 4, 6]
    assert BUDGET // 4 < diagram.batch_sizes[-1] <= BUDGET // 2
    for i in (0, 4, 7):
        for j in (0, 1, 5, len(diagram.batch_sizes) - 1):
            step, M = float(diagram.step_sizes[i]), int(diagram.batch_sizes[j])
            algorithm = vrtd.TD(step) if M == 1 else vrtd.VRTD(step, M)
            curve = exact_curve(
                PROBLEM, algorithm, sampling=diagram.sampling, n_gradients=BUDGET, checkpoints=1, method="approximate"
            )
            expected = curve.values("squared_error")[0, -1]
            assert diagram.error[i, j] == pytest.approx(expected, rel=1e-7)


def test_the_best_cell_is_the_least_that_is_trusted(diagram: Any) -> None:
    step, batch, error = diagram.best
    trusted = np.ones(diagram.error.shape, bool)
    if diagram.sampling == "markov":
        assert diagram.trusted == approximation_limit(PROBLEM)
        trusted[diagram.step_sizes > diagram.trusted, 1:] = False
    else:
        assert diagram.trusted is None
    assert error == diagram.error[trusted].min()
    i, j = diagram.step_sizes.tolist().index(step), diagram.batch_sizes.tolist().index(batch)
    assert diagram.error[i, j] == error
    assert 0 < i < 8  # the range of steps holds the optimum


def test_the_stability_limit_divides_the_map(diagram: Any) -> None:
    assert diagram.stability[0] == pytest.approx(stability_limit(PROBLEM, diagram.sampling), rel=1e-6)
    assert diagram.stability[1] == pytest.approx(stability_limit(PROBLEM, diagram.sampling, 2), rel=1e-6)
    beyond = diagram.step_sizes > 1.2 * diagram.stability[0]  # TD makes many updates: its error has exploded there
    assert beyond.any()
    assert (diagram.error[beyond, 0] > 1e3 * diagram.initial_error).all()
    inside = diagram.step_sizes < 0.5 * diagram.stability.min()
    assert (diagram.error[inside] < 2.0 * diagram.initial_error).all()


def test_admissible_regions_are_the_theorems(diagram: Any) -> None:
    theorems: dict[str, Any] = {
        "iid": {
            "Theorem 1, corrected": partial(vrtd_iid_bound, form="corrected"),
            "Theorem 1, sharpened": partial(vrtd_iid_bound, form="sharp"),
        },
        "markov": {"Theorem 2, corrected": partial(vrtd_markov_bound, form="corrected")},
    }[diagram.sampling]
    assert set(diagram.admissible) == set(theorems)
    for name, theorem in theorems.items():
        mask = diagram.admissible[name]
        assert not mask[:, 0].any()  # TD is not theirs
        for i in (0, 5, 8):
            for j in (1, 8, len(diagram.batch_sizes) - 1):
                bound = theorem(PROBLEM, diagram.step_sizes[i], int(diagram.batch_sizes[j]), np.zeros(2))
                assert mask[i, j] == bound.valid
    if diagram.sampling == "iid":
        assert diagram.admissible["Theorem 1, sharpened"].any()


def test_files_and_picture(diagram: Any, tmp_path: Any) -> None:
    read = json.loads(json.dumps(diagram.as_dict(), allow_nan=False))
    assert read["best"]["error"] == diagram.best[2]
    assert np.shape(read["error"]) == diagram.error.shape
    diagram.to_csv(tmp_path / "map.csv")
    lines = (tmp_path / "map.csv").read_text().splitlines()
    assert lines[0].startswith('step_size,batch_size,squared_error,stable,"Theorem')
    assert len(lines) == 1 + diagram.error.size
    axes = diagram.plot()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert "stability limit" in labels
    assert any(label.startswith("best: ") for label in labels)
    assert any(label.startswith("Theorem") for label in labels)
    axes.figure.savefig(tmp_path / "map.png")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 3}, "budget must be at least 4, which is one epoch with a batch of two, but is 3"),
        ({"budget": 0}, "budget must be a whole number of at least 1, but got 0"),
        ({"budget": 2**53 + 1}, r"budget must be at most 2\*\*53"),
        ({"budget": 100, "n_steps": 1}, "n_steps must be a whole number of at least 2"),
        ({"budget": 100, "sampling": "both"}, "sampling must be one of"),
        ({"budget": 100, "theta_0": [0.0]}, r"theta_0 must have the shape \(2,\)"),
    ],
)
def test_bad_arguments_are_refused(options: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        phase_diagram(PROBLEM, **options)


@pytest.mark.statistical
def test_the_approximation_is_trusted_where_it_is_good() -> None:
    """At the limit, batches of 4 and 64 are approximated to a few percent, on a fast and on a slow chain."""
    mrp = PROBLEM.mrp
    lazy = vrtd.MarkovRewardProcess(0.8 * np.eye(10) + 0.2 * mrp.P, mrp.mean_reward, 0.95)
    for problem in (PROBLEM, vrtd.LinearProblem(lazy, PROBLEM.phi)):
        limit = approximation_limit(problem)
        assert limit <= 0.1 * stability_limit(problem) * (1 + 1e-9)
        curves = [
            exact_curve(problem, algorithm, n_gradients=20_000, checkpoints=1).values("squared_error")[0, -1]
            for algorithm in (vrtd.VRTD(limit, 4), vrtd.VRTD(limit, 64))
        ]
        simulated = [
            vrtd.simulate(problem, vrtd.VRTD(limit, M), n_gradients=20_000, n_runs=4000, checkpoints=1).summary()
            for M in (4, 64)
        ]
        for exact, summary in zip(curves, simulated, strict=True):
            assert abs(summary.mean[-1] - exact) <= 0.06 * exact + 7.0 * summary.standard_error[-1]


@pytest.fixture(scope="module")
def markov_map() -> Any:
    return phase_diagram(PROBLEM, budget=3000, n_steps=9)


def test_trust_limits_the_best_cell_of_vrtd_and_not_that_of_td(markov_map: Any) -> None:
    beyond = int(np.flatnonzero(markov_map.step_sizes > markov_map.trusted)[0])
    for column, expected in ((0, (beyond, 0)), (3, (0, 3))):
        error = np.ones_like(markov_map.error)
        error[beyond, column], error[0, 3] = 0.1, 0.5
        i, j = expected
        assert replace(markov_map, error=error).best == (
            markov_map.step_sizes[i], markov_map.batch_sizes[j], error[i, j]
        )  # fmt: skip


@pytest.mark.parametrize("output", ["last", "average"])
def test_a_map_is_of_its_output(output: Any) -> None:
    found = phase_diagram(PROBLEM, budget=300, sampling="iid", output=output, n_steps=3)
    assert found.stability[1] == pytest.approx(stability_limit(PROBLEM, "iid", 2, output), rel=1e-6)
    algorithm = vrtd.VRTD(float(found.step_sizes[1]), 4, output=output)
    curve = exact_curve(PROBLEM, algorithm, sampling="iid", n_gradients=300, checkpoints=1)
    assert found.error[1, 3] == pytest.approx(curve.values("squared_error")[0, -1], rel=1e-7)


def test_the_csv_says_which_cells_are_stable(markov_map: Any, tmp_path: Any) -> None:
    markov_map.to_csv(tmp_path / "map.csv")
    rows = [line.split(",") for line in (tmp_path / "map.csv").read_text().splitlines()[1:]]
    stable = np.array([int(row[3]) for row in rows]).reshape(markov_map.error.shape)
    assert (stable == (markov_map.step_sizes[:, None] < markov_map.stability)).all()
    assert markov_map.as_dict()["stability"] == markov_map.stability.tolist()


def test_the_limit_of_td_is_drawn_over_its_own_column(markov_map: Any) -> None:
    lines = {line.get_label(): line for line in markov_map.plot().get_lines()}
    x, y = lines["stability limit"].get_data()
    assert (y[:3] == markov_map.stability[0]).all()
    assert x[3:].tolist() == markov_map.batch_sizes[1:].tolist()
    assert y[3:].tolist() == markov_map.stability[1:].tolist()


@pytest.mark.parametrize("sampling", ["iid", "markov"])
def test_features_that_are_too_large_leave_the_paper_s_theorems_no_region(sampling: Any) -> None:
    phi = 1.1 * RANDOM.phi / np.linalg.norm(RANDOM.phi, axis=1).max()
    found = phase_diagram(vrtd.LinearProblem(RANDOM.mrp, phi), budget=10**9, sampling=sampling, n_steps=4)
    for name, mask in found.admissible.items():
        assert mask.any() == (name == "Theorem 1, sharpened")


def test_no_theorem_covers_the_last_iterate() -> None:
    found = phase_diagram(PROBLEM, budget=3000, sampling="iid", output="last", n_steps=9)
    assert not any(mask.any() for mask in found.admissible.values())


def test_a_periodic_chain_has_a_map() -> None:
    found = phase_diagram(CYCLE, budget=100, n_steps=3)
    assert not found.admissible["Theorem 2, corrected"].any()


@pytest.mark.parametrize("theta_0", ["theta_star", None])
def test_a_map_without_error_is_drawn(theta_0: Any) -> None:
    """From theta_star itself, or of a chain without noise: the colours need a positive range."""
    problem = PROBLEM if theta_0 else STILL
    start = PROBLEM.theta_star if theta_0 else None
    phase_diagram(problem, budget=10_000, sampling="iid", theta_0=start, n_steps=6).plot().figure.canvas.draw()
