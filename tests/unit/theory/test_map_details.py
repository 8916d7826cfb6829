"""Details of maps, figures and files."""

import os
from dataclasses import replace

import numpy as np
import pytest

import vrtd
from vrtd.cli import main, outputs
from vrtd.errors import InvalidInputError
from vrtd.plots import draw_map, new_panels
from vrtd.theory import (
    exact_curve,
    phase_diagram,
    stability_limit,
)

RANDOM = vrtd.problems.random_mdp()
SMALL = vrtd.problems.random_mdp(n_states=10, n_features=2, normalize=True)


@pytest.fixture(scope="module")
def markov_map():
    return phase_diagram(SMALL, budget=3000, n_steps=9)


def test_trust_limits_the_best_cell_of_vrtd_and_not_that_of_td(markov_map):
    beyond = int(np.flatnonzero(markov_map.step_sizes > markov_map.trusted)[0])
    for column, expected in ((0, (beyond, 0)), (3, (0, 3))):
        error = np.ones_like(markov_map.error)
        error[beyond, column], error[0, 3] = 0.1, 0.5
        i, j = expected
        assert replace(markov_map, error=error).best == (
            markov_map.step_sizes[i], markov_map.batch_sizes[j], error[i, j]
        )  # fmt: skip


@pytest.mark.parametrize("output", ["last", "average"])
def test_a_map_is_of_its_output(output):
    found = phase_diagram(SMALL, budget=300, sampling="iid", output=output, n_steps=3)
    assert found.stability[1] == pytest.approx(stability_limit(SMALL, "iid", 2, output), rel=1e-6)
    algorithm = vrtd.VRTD(float(found.step_sizes[1]), 4, output=output)
    curve = exact_curve(SMALL, algorithm, sampling="iid", n_gradients=300, checkpoints=1)
    assert found.error[1, 3] == pytest.approx(curve.values("squared_error")[0, -1], rel=1e-7)


def test_the_csv_says_which_cells_are_stable(markov_map, tmp_path):
    markov_map.to_csv(tmp_path / "map.csv")
    rows = [line.split(",") for line in (tmp_path / "map.csv").read_text().splitlines()[1:]]
    stable = np.array([int(row[3]) for row in rows]).reshape(markov_map.error.shape)
    assert (stable == (markov_map.step_sizes[:, None] < markov_map.stability)).all()
    assert markov_map.as_dict()["stability"] == markov_map.stability.tolist()


def test_the_limit_of_td_is_drawn_over_its_own_column(markov_map):
    lines = {line.get_label(): line for line in markov_map.plot().get_lines()}
    x, y = lines["stability limit"].get_data()
    assert (y[:3] == markov_map.stability[0]).all()
    assert x[3:].tolist() == markov_map.batch_sizes[1:].tolist()
    assert y[3:].tolist() == markov_map.stability[1:].tolist()


def test_a_map_shows_what_overflows_as_the_ceiling_and_names_its_regions():
    axes = new_panels(1)[0]
    values = np.array([[0.1, 5.0], [np.inf, 0.2]])
    regions = {"here": np.array([[True, False], [False, False]]), "not": np.zeros((2, 2), bool)}
    keys = draw_map(
        axes, np.array([1, 4]), np.array([0.1, 1.0]), values,
        ceiling=2.0, x_label="", y_label="", colour_label="", regions=regions,
    )  # fmt: skip
    assert [key.get_label() for key in keys] == ["here: applies", "not: nowhere here"]
    mesh = axes.collections[0]
    assert np.ravel(mesh.get_array()).tolist() == [0.1, 2.0, 2.0, 0.2]
    assert axes.get_xlim() == pytest.approx((0.5, 8.0))  # half an octave about each centre, an octave below the first


def test_planning_leaves_linear_algebra_to_one_thread(monkeypatch, capsys):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    main(["plan", "--help"])
    assert os.environ["OPENBLAS_NUM_THREADS"] == "1"
    capsys.readouterr()


def test_a_folder_that_cannot_be_written_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(outputs.os, "access", lambda _, mode: not mode & os.W_OK)
    with pytest.raises(InvalidInputError, match="a folder that exists and can be written"):
        outputs.check_files({"data": tmp_path / "a.csv"}, "")


@pytest.mark.parametrize("sampling", ["iid", "markov"])
def test_features_that_are_too_large_leave_the_paper_s_theorems_no_region(sampling):
    phi = 1.1 * RANDOM.phi / np.linalg.norm(RANDOM.phi, axis=1).max()
    found = phase_diagram(vrtd.LinearProblem(RANDOM.mrp, phi), budget=10**9, sampling=sampling, n_steps=4)
    for name, mask in found.admissible.items():
        assert mask.any() == (name == "Theorem 1, sharpened")


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(InvalidInputError, match=r"--data must be a \.csv file"):
        outputs.check_files({"data": tmp_path / "a.csv"}, "")


RNG = np.random.default_rng(0)
CYCLE = vrtd.LinearProblem(
    vrtd.MarkovRewardProcess(np.roll(np.eye(6), 1, axis=1), RNG.random((6, 6)), 0.9), RNG.random((6, 2)) / 2.0
)
STILL = vrtd.LinearProblem(vrtd.MarkovRewardProcess([[0.5, 0.5], [0.3, 0.7]], [1.0, 1.0], 0.5), [[1.0], [1.0]])


def test_no_theorem_covers_the_last_iterate():
    found = phase_diagram(SMALL, budget=3000, sampling="iid", output="last", n_steps=9)
    assert not any(mask.any() for mask in found.admissible.values())


def test_a_periodic_chain_has_a_map():
    found = phase_diagram(CYCLE, budget=100, n_steps=3)
    assert not found.admissible["Theorem 2, corrected"].any()


@pytest.mark.parametrize("theta_0", ["theta_star", None])
def test_a_map_without_error_is_drawn(theta_0):
    """From theta_star itself, or of a chain without noise: the colours need a positive range."""
    problem = SMALL if theta_0 else STILL
    start = SMALL.theta_star if theta_0 else None
    phase_diagram(problem, budget=10_000, sampling="iid", theta_0=start, n_steps=6).plot().figure.canvas.draw()
