"""What the lab shows are the numbers of the library, and its code makes the same ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba.core import event

import vrtd
from vrtd import theory
from vrtd.errors import DataError, InvalidInputError, StabilityWarning
from vrtd.lab.chains import CHAINS, OwnProblem
from vrtd.lab.code import write_code
from vrtd.lab.computation import MAP_STEPS, N_CHECKPOINTS, OWN, Computation
from vrtd.lab.presets import PRESETS
from vrtd.lab.problem_file import read_problem
from vrtd.lab.settings import ALGORITHMS, N_RUNS, SAMPLINGS, LabSettings

SMALL = LabSettings(n_features=2, n_gradients=1000, batch_size=20, step_size=0.2)
OPTIONS: dict[str, Any] = {"n_gradients": 1000, "checkpoints": N_CHECKPOINTS}


@pytest.fixture(scope="module")
def lab() -> Computation:
    """A lab that is ready: every loop is compiled."""
    computation, shares = Computation(), []
    computation.warm_up(shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    return computation


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    path = tmp_path / "own.npz"
    np.savez(path, P=[[0.5, 0.5], [0.1, 0.9]], R=[1.0, 0.0], gamma=0.9, phi=[[1.0, 0.0], [0.5, 1.0]])
    return path


@pytest.fixture
def no_compilation() -> Iterator[None]:
    with event.install_recorder("numba:compile") as recorder:
        yield
    assert [started.data["dispatcher"].__name__ for _, started in recorder.buffer] == []


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_runs_and_exact_means_are_those_of_the_library(lab: Computation, name: str, sampling: Any) -> None:
    settings = replace(SMALL, sampling=sampling, algorithm=name, chain_seed=3, seed=7)
    problem, algorithm = vrtd.problems.random_mdp(seed=3, n_features=2), settings.build(name)
    result = vrtd.simulate(problem, algorithm, sampling=sampling, n_runs=N_RUNS, seed=7, specialise=False, **OPTIONS)
    answer = lab.runs(settings, name)
    assert {key: answer[key] for key in result.columns()} == result.columns()
    assert answer["curves"] == result.values("squared_error")[:12].tolist()
    assert answer["plane"]["ends"] == result.theta[:300].tolist()
    np.testing.assert_allclose(answer["plane"]["mean"][-1], result.theta.mean(axis=0), rtol=1e-9)
    for path, theta in zip(answer["plane"]["paths"], result.theta[:6], strict=True):
        assert path[0] == pytest.approx([0.0, 0.0], abs=1e-12)
        assert path[-1] == pytest.approx(theta.tolist(), rel=1e-9)
    exact = theory.exact_curve(problem, algorithm, sampling=sampling, **OPTIONS)
    shown = lab.exact(settings, name)
    assert shown["values"] == exact.values("squared_error")[0].tolist()
    if sampling == "markov" and name in ("td_averaged", "richardson_td"):
        bias = theory.limit_bias(problem, algorithm)
        assert shown["settles"] == (problem.theta_star + bias).tolist()
        assert shown["settles_error"] == pytest.approx(bias @ bias, rel=1e-12)
    else:
        assert shown["settles"] is None


def test_bounds_are_those_of_the_library(lab: Computation) -> None:
    settings = PRESETS["counter_example"].settings
    answer = lab.runs(replace(settings, n_gradients=8000), "vrtd")
    exact = lab.exact(replace(settings, n_gradients=8000), "vrtd")["values"]
    problem = CHAINS["coin"].build(settings)
    epochs = np.array(answer["n_gradients"]) // 4000
    printed, corrected, sharp = answer["bounds"]
    for shown, form, radius in ((printed, "printed", 1.0), (corrected, "corrected", 1.0), (sharp, "sharp", None)):
        bound = theory.vrtd_iid_bound(problem, 0.02, 2000, [0.0], radius, form=form)  # type: ignore[arg-type]
        assert shown["values"] == bound.curve(2)[epochs].tolist()
        assert (shown["floor"], shown["holds"], shown["reasons"]) == (bound.floor, bound.valid, list(bound.reasons))
    assert printed["conditions"]
    assert not printed["holds"]
    assert exact[-1] > printed["values"][-1]  # which Theorem 1 excludes
    assert exact[-1] < sharp["values"][-1] < corrected["values"][-1]


def test_a_bound_that_does_not_exist_says_why(lab: Computation) -> None:
    answer = lab.runs(replace(SMALL, chain="random_walk", sampling="markov"), "vrtd")  # without a contraction
    assert [bound["floor"] for bound in answer["bounds"]] == [None, None]
    assert all(bound["reasons"] for bound in answer["bounds"])
    problem = vrtd.problems.off_policy_garnet(n_states=10, n_features=2)
    own = Computation(OwnProblem(problem, None))
    settings = replace(own.first_settings(), n_gradients=400, batch_size=10, step_size=0.01)
    bounds = own.runs(settings, "vrtd")["bounds"]
    assert [(bound["values"], bound["floor"]) for bound in bounds] == [(None, None)] * 3
    assert all("on-policy chains only" in bound["reasons"][0] for bound in bounds)
    assert (
        own.exact(settings, "vrtd")["reason"]
        == own.map(settings)["reason"]
        == "The theory covers on-policy chains only."
    )
    code = write_code(settings, own.chains[OWN], problem)
    assert not any(word in code for word in ("bound", "exact", "phase_diagram"))


def test_the_map_is_that_of_the_library_and_is_computed_once(lab: Computation) -> None:
    diagram = theory.phase_diagram(CHAINS["coin"].build(SMALL), budget=1000, sampling="iid", n_steps=MAP_STEPS["iid"])
    shown = lab.map(replace(SMALL, chain="coin"))
    assert shown == diagram.as_dict() | {"reason": ""}
    assert lab.map(replace(SMALL, chain="coin", step_size=0.7, batch_size=90, algorithm="td", seed=5)) is shown
    assert lab.map(replace(SMALL, chain="coin", discount=0.4)) is not shown


def test_averaged_td_settles_off_the_mark_and_extrapolation_comes_back(lab: Computation) -> None:
    settings = PRESETS["bias"].settings
    averaged, extrapolated = (lab.exact(settings, name)["settles_error"] for name in settings.shown)
    assert averaged > 100 * extrapolated


def test_runs_that_diverge_are_counted_and_not_hidden(lab: Computation) -> None:
    settings = replace(PRESETS["divergence"].settings, step_size=3.0)
    with pytest.warns(StabilityWarning):
        answer = lab.runs(settings, "td")
    assert answer["n_diverged"][-1] == N_RUNS
    assert answer["mean"][-1] is None
    assert answer["plane"]["mean"][-1] == [None, None]
    assert lab.exact(settings, "td")["values"][-1] is None


def test_nothing_is_compiled_after_the_warm_up(lab: Computation, no_compilation: None) -> None:
    for chain in CHAINS:
        for sampling in ("iid", "markov"):
            settings = replace(SMALL, chain=chain, sampling=sampling, n_features=3, n_gradients=400, batch_size=10)  # type: ignore[arg-type]
            for name in ALGORITHMS:
                lab.runs(replace(settings, algorithm=name), name)
            lab.exact(settings, "td")
    for preset in PRESETS.values():
        if preset.settings.algorithm != "td":
            lab.exact(preset.settings, preset.settings.algorithm)
    lab.map(replace(SMALL, sampling="markov", n_gradients=500))


@pytest.mark.parametrize("name", ["counter_example", "growing", "bias"])
def test_the_code_makes_the_same_numbers(
    lab: Computation, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = replace(PRESETS[name].settings, n_gradients=8000)
    if name == "growing":
        settings = replace(settings, chain="coin", also=("td",))
    code = write_code(settings, CHAINS[settings.chain], lab.problem(settings))
    made: dict[str, Any] = {}
    exec(code, made)
    for algorithm in settings.shown:
        answer, result = lab.runs(settings, algorithm), made["results"][ALGORITHMS[algorithm]]
        assert answer["mean"] == result.columns()["mean"]
        if algorithm == settings.algorithm:
            for shown in answer["bounds"]:
                assert shown["floor"] == made["bounds"][shown["label"]].floor
    assert lab.exact(settings, settings.algorithm)["values"] == made["exact"].values("squared_error")[0].tolist()
    assert lab.map(settings) == made["diagram"].as_dict() | {"reason": ""}
    assert {path.name for path in tmp_path.iterdir()} == {"curves.png", "map.png"}


def test_the_code_of_a_slow_exact_mean_leaves_it_out(lab: Computation) -> None:
    settings = LabSettings(algorithm="richardson_td", sampling="markov", n_gradients=1000)
    assert "exact" not in write_code(settings, CHAINS["random_mdp"], lab.problem(settings))
    assert lab.exact(settings, "richardson_td")["reason"].endswith("takes too long with more than two features.")


def test_large_problems_have_runs_but_no_exact_mean_and_no_map() -> None:
    problem = vrtd.problems.random_mdp(n_features=11)
    computation = Computation(OwnProblem(problem, None))
    settings = replace(computation.first_settings(), n_gradients=500, batch_size=20, step_size=0.05)
    assert computation.runs(settings, "td")["n_diverged"][-1] == 0
    assert computation.exact(settings, "td")["values"] is None
    assert "too long" in computation.map(settings)["reason"]
    code = write_code(settings, computation.chains[OWN], problem)
    assert "exact" not in code
    assert "phase_diagram" not in code
    compile(code, "lab", "exec")


def test_an_own_problem_is_read_and_its_discount_can_be_moved(own_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computation = Computation(OwnProblem(read_problem(own_file), str(own_file)))
    first = computation.first_settings()
    assert (first.chain, first.discount, computation.chains[OWN].label) == (OWN, 0.9, "own.npz, 2 states")
    for discount in (0.9, 0.5):
        settings = replace(first, discount=discount)
        made: dict[str, Any] = {"np": np, "vrtd": vrtd}
        exec(computation.chains[OWN].code(settings), made)
        np.testing.assert_allclose(made["problem"].A, computation.problem(settings).A, rtol=1e-14)
        assert made["problem"].mrp.digest == computation.problem(settings).mrp.digest


def test_a_problem_with_several_discounts_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "own.npz"
    np.savez(path, P=[[0.5, 0.5], [0.1, 0.9]], R=[1.0, 0.0], gamma=[[0.9, 0.0], [0.9, 0.9]], phi=[[1.0], [0.5]])
    own = OwnProblem(read_problem(path), str(path))
    chain = own.as_chain()
    assert chain.uses == ()
    assert chain.build(LabSettings(discount=0.3)) is own.problem
    assert chain.code(LabSettings()) == f"problem = vrtd.lab.read_problem({str(path)!r})"
    assert "that you passed" in OwnProblem(own.problem, None).as_chain().code(LabSettings())


def test_files_that_hold_no_problem_are_refused(tmp_path: Path, own_file: Path) -> None:
    with pytest.raises(DataError, match=r"none\.npz does not exist"):
        read_problem(tmp_path / "none.npz")
    (tmp_path / "text.npz").write_text("P")
    with pytest.raises(DataError, match="damaged, truncated or of another format"):
        read_problem(tmp_path / "text.npz")
    np.savez(tmp_path / "part.npz", P=np.eye(2), gamma=0.9)
    with pytest.raises(DataError, match="must hold the arrays P, R, gamma and phi, but lacks R and phi"):
        read_problem(tmp_path / "part.npz")
    np.savez(tmp_path / "pickle.npz", P=np.array([{}], object), R=0, gamma=0, phi=0)
    with pytest.raises(DataError, match="pickle"):
        read_problem(tmp_path / "pickle.npz")
    np.savez(tmp_path / "wrong.npz", P=np.ones((2, 2)), R=[1.0, 0.0], gamma=0.9, phi=[[1.0], [0.5]])
    with pytest.raises(InvalidInputError, match="must sum to 1"):
        read_problem(tmp_path / "wrong.npz")
