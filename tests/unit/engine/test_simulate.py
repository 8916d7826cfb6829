"""The verb: what it refuses, what it warns of, where it looks, and what it does with runs that diverge."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import vrtd
from vrtd.algorithms._base.schedules import Schedule
from vrtd.errors import InvalidInputError, StabilityWarning, VrtdError

PROBLEM = vrtd.problems.random_mdp(seed=0)
TD, VRTD = vrtd.TD(0.1), vrtd.VRTD(0.1, 7)


class OwnSchedule(Schedule):
    def __call__(self, t: int) -> float:
        return 0.1

    @property
    def largest(self) -> float:
        return 0.1


def simulate(algorithm: Any = TD, **arguments: Any) -> vrtd.Result:
    return vrtd.simulate(PROBLEM, algorithm, **({"n_runs": 3, "n_gradients": 100} | arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"sampling": "sequential"}, "sampling must be one of 'iid', 'markov', 'dataset', but got 'sequential'"),
        ({"sampling": "markow"}, "Did you mean 'markov'"),
        ({"n_runs": 0}, "n_runs must be a whole number of at least 1, but got 0"),
        ({"n_runs": 2.5}, "n_runs must be a whole number"),
        ({"n_gradients": 0}, "n_gradients must be a whole number of at least 1"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"threads": 0}, "threads must be a whole number of at least 1"),
        ({"theta_0": np.zeros(3)}, r"theta_0 must have the shape \(4,\), but got \(3,\)"),
        ({"theta_0": [0.0, np.nan, 0.0, 0.0]}, r"theta_0 must be finite, but got nan at index \(1,\)"),
        ({"initial": "somewhere"}, "initial must be one of 'stationary'"),
        ({"initial": 50}, r"initial must be a state in 0 .. 49, but got 50"),
        ({"initial": np.full(50, 0.03)}, "Each row of initial must sum to 1"),
        ({"initial": np.full(49, 1 / 49)}, r"initial must have the shape \(50,\)"),
        ({"initial": 3, "sampling": "iid"}, "initial has no effect on independent samples, but got 3"),
        ({"initial": []}, r"initial must have the shape \(50,\)"),
        ({"metrics": (np.eye(4),)}, "metrics must be one of"),
        ({"metrics": ("squared_eror",)}, "Did you mean 'squared_error'"),
        ({"checkpoints": 0}, "checkpoints must be a whole number of at least 1"),
        ({"checkpoints": [50, 200]}, "checkpoints must be whole numbers of pseudo-gradients in 0 .. 100"),
        ({"checkpoints": [-1, 5]}, "checkpoints must be whole numbers of pseudo-gradients in 0 .. 100"),
        ({"checkpoints": [0.5, 5.0]}, "checkpoints must be whole numbers"),
        (
            {"algorithm": VRTD, "n_gradients": 13},
            "n_gradients must be at least 14, the length of one epoch, but got 13",
        ),
        (
            {"n_runs": 10**8, "checkpoints": 10**5, "n_gradients": 10**6},
            "The curves and states of .* runs .* must fit in half of the memory",
        ),
        ({"n_runs": 10**11}, "The curves and states of .* runs .* must fit in half of the memory"),
        ({"n_gradients": 2**53 + 1}, r"n_gradients must be at most 2\*\*53"),
        ({"metrics": "neu"}, "metrics must be a tuple of names or forms, but got 'neu'"),
        ({"metrics": 3}, "metrics must be a tuple"),
        ({"metrics": ("neu", "neu")}, "metrics must have different names"),
        ({"start": "result.npz"}, "start must be a Result, but got 'result.npz'. Load a file with vrtd.load"),
        ({"algorithm": "td"}, "algorithm must be an Algorithm, but got 'td'"),
    ],
)
def test_bad_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        simulate(**arguments)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: vrtd.TD(0.0), "step_size must be a positive, finite number, but got 0.0"),
        (lambda: vrtd.TD(float("nan")), "step_size must be a positive, finite number, but got nan"),
        (lambda: vrtd.TD("big"), "step_size must be a positive, finite number, but got 'big'"),
        (lambda: vrtd.TD(0.1, radius=-1.0), "radius must be a positive"),
        (lambda: vrtd.VRTD(-0.1), "step_size must be a positive"),
        (lambda: vrtd.VRTD(0.1, 0), "batch_size must be a whole number of at least 1, but got 0"),
        (lambda: vrtd.VRTD(0.1, 2.5), "batch_size must be a whole number"),
        (lambda: vrtd.VRTD(0.1, 5, radius=0), "radius must be a positive"),
        (
            lambda: vrtd.VRTD(0.1, 5, output="best"),
            "output must be one of None, 'random', .*'tail', but got 'best'",
        ),
        (lambda: vrtd.VRTD(0.1, 5, inner="old"), "inner must be one of None, 'fresh', 'resample', but got 'old'"),
        (lambda: vrtd.Constant(-1.0), "step_size must be a positive"),
        (lambda: vrtd.Harmonic(c=0.0, t0=1.0), "c must be a positive"),
        (lambda: vrtd.Harmonic(c=1.0, t0=0.0), "t0 must be a positive"),
        (lambda: vrtd.Harmonic(c=1.0, t0=1.0, power=0.0), "power must be a positive"),
        (lambda: vrtd.Exponential(0.0, 100), "first must be a positive"),
        (lambda: vrtd.Exponential(0.1, 0), "n_updates must be a whole number of at least 1, but got 0"),
        (
            lambda: vrtd.Piecewise((10,), (0.1,)),
            "values must have one entry more than boundaries, but got 1 values and 1 boundaries",
        ),
        (lambda: vrtd.Piecewise((10, 5), (0.1, 0.2, 0.3)), "boundaries must increase"),
        (lambda: vrtd.Piecewise((10,), (0.1, -0.2)), "every value of a piecewise schedule must be a positive"),
        (lambda: vrtd.Piecewise((1.7,), (0.1, 0.2)), "every boundary of a piecewise schedule must be a whole number"),
        (lambda: vrtd.Piecewise(10, (0.1, 0.2)), "boundaries and values must be tuples, but got 10"),
        (lambda: vrtd.Piecewise((2**70,), (0.1, 0.2)), "boundaries must increase and be at most 2"),
        (lambda: vrtd.TD(OwnSchedule()), "the kind of a schedule must be one of"),
        (lambda: vrtd.TD(10**400), "step_size must be a positive, finite number"),
        (lambda: vrtd.TD(0.1, average="yes"), "average must be True or False, but got 'yes'"),
        (lambda: vrtd.QuadraticForm("a,b", np.eye(1), np.zeros(1)), "the name of a metric must be an identifier"),
        (lambda: vrtd.QuadraticForm("x", [[np.nan]], [0.0]), "matrix must be finite, but got nan"),
        (lambda: vrtd.QuadraticForm("x", [[1.0]], [0.0], "a"), "offset must be an array of real numbers"),
        (lambda: vrtd.LinearProblem(PROBLEM.mrp.P, PROBLEM.phi), "mrp must be a MarkovRewardProcess, but got ndarray"),
        (lambda: vrtd.QuadraticForm("x", np.eye(2), np.zeros(3)), "matrix must have the shape .d, d. and centre"),
        (
            lambda: vrtd.simulate("chain", TD),
            "problem must be a LinearProblem, a Simulator or Transitions, but got 'chain'",
        ),
        (
            lambda: vrtd.simulate(PROBLEM.mrp, TD),
            "problem must be a LinearProblem, .* Build LinearProblem.mrp, phi.",
        ),
        (lambda: vrtd.LinearProblem(PROBLEM.mrp, PROBLEM.phi[:49]), "phi must have the shape"),
        (lambda: vrtd.simulate(vrtd.LinearProblem(PROBLEM.mrp, np.ones((50, 2))), TD), "full column rank"),
    ],
)
def test_bad_settings_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_the_callers_arrays_are_untouched() -> None:
    arrays = {
        "phi": PROBLEM.phi.copy(),
        "theta_0": np.ones(4),
        "initial": np.full(50, 0.02),
        "checkpoints": np.array([90, 10]),
    }
    copies = {name: array.copy() for name, array in arrays.items()}
    problem = vrtd.LinearProblem(PROBLEM.mrp, arrays["phi"])
    vrtd.simulate(problem, TD, n_runs=2, n_gradients=100, **{k: v for k, v in arrays.items() if k != "phi"})
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, copies[name])
        assert array.flags.writeable


def test_checkpoints_by_count_go_from_the_start_to_the_end() -> None:
    result = simulate(checkpoints=5)
    assert result.n_gradients.tolist() == [0, 25, 50, 75, 100]
    assert result.n_samples.tolist() == [0, 25, 50, 75, 100]
    assert simulate(checkpoints=1).n_gradients.tolist() == [100]
    assert simulate(checkpoints=1000).n_gradients.tolist() == list(range(101))
    theta_star = PROBLEM.theta_star
    np.testing.assert_allclose(result.values("squared_error")[:, 0], theta_star @ theta_star)


def test_checkpoints_by_array_get_the_end_added() -> None:
    assert simulate(checkpoints=[70, 10, 10]).n_gradients.tolist() == [10, 70, 100]


def test_inside_an_epoch_the_value_is_the_last_closed_epochs() -> None:
    result = simulate(VRTD, checkpoints=np.arange(101), n_gradients=100)
    values = result.values("squared_error")
    for pg in range(101):
        np.testing.assert_array_equal(values[:, pg], values[:, pg // 14 * 14])
    assert result.n_samples.tolist() == [pg // 14 * 7 + min(pg % 14, 7) for pg in range(101)]


def test_counts_of_algorithm_1_include_its_inner_samples() -> None:
    assert simulate(VRTD, sampling="iid", checkpoints=np.arange(101)).n_samples.tolist() == list(range(101))


def test_an_initial_state_and_the_distribution_that_is_certain_of_it_are_the_same() -> None:
    certain = np.zeros(50)
    certain[4] = 1.0
    assert simulate(initial=4).theta.tobytes() == simulate(initial=certain).theta.tobytes()
    assert simulate(initial=4).theta.tobytes() != simulate(initial=5).theta.tobytes()


def test_theta_0_is_where_runs_begin() -> None:
    theta_star = PROBLEM.theta_star
    assert np.allclose(simulate(theta_0=theta_star).values("squared_error")[:, 0], 0.0)


def test_the_metrics_are_what_they_say() -> None:
    result = simulate(metrics=("squared_error", "value_error", "neu", "mspbe"))
    for theta, last in zip(result.theta, result.curves[:, -1], strict=True):
        g = PROBLEM.A @ theta + PROBLEM.b
        expected = (
            (theta - PROBLEM.theta_star) @ (theta - PROBLEM.theta_star),
            PROBLEM.mrp.stationary @ (PROBLEM.phi @ theta - PROBLEM.mrp.values) ** 2,
            g @ g,
            g @ np.linalg.solve(PROBLEM.C, g),
        )
        np.testing.assert_allclose(last, expected, rtol=1e-9)


def test_arguments_are_printed_only_when_they_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> str:
        raise AssertionError("the form is printed")

    monkeypatch.setattr(vrtd.QuadraticForm, "__repr__", refuse)
    simulate(metrics=(vrtd.QuadraticForm("mine", np.eye(4), np.zeros(4)),))


def test_an_unstable_step_is_warned_of() -> None:
    with pytest.warns(
        StabilityWarning, match="step_size 3 is unstable: with independent samples, the mean squared error"
    ):
        simulate(vrtd.TD(3.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(vrtd.TD(0.1))
        simulate(vrtd.TD(1e-17))
    with pytest.warns(StabilityWarning, match="a factor of inf per update"):
        simulate(vrtd.TD(1e200))
    problem = vrtd.problems.random_mdp(seed=0, n_states=80, n_features=70, normalize=True)
    with pytest.warns(StabilityWarning, match="step_size 10 is unstable"):
        vrtd.simulate(problem, vrtd.TD(10.0), n_runs=1, n_gradients=10)


@pytest.mark.filterwarnings("ignore::vrtd.errors.StabilityWarning")
@pytest.mark.parametrize("algorithm", [vrtd.TD(40.0), vrtd.VRTD(40.0, 7)], ids=["td", "vrtd"])
def test_a_diverging_run_is_dated_and_never_hidden(algorithm: Any) -> None:
    result = simulate(algorithm, n_gradients=10_000, checkpoints=100)
    assert result.status.tolist() == ["diverged"] * 3
    assert np.isnan(result.theta).all()
    values = result.values("squared_error")
    for run, seen in enumerate(np.searchsorted(result.n_gradients, result.diverged_at)):
        assert np.isfinite(values[run, :seen]).all()
        assert np.isnan(values[run, seen:]).all()
    summary = result.summary()
    assert summary.n_diverged[-1] == 3
    assert np.isnan(summary.mean[-1])
    assert np.isfinite(summary.mean[0])
    more = simulate(algorithm, n_gradients=1_000, checkpoints=3, start=result)
    np.testing.assert_array_equal(more.diverged_at, result.diverged_at)
    assert np.isnan(more.curves).all()


@pytest.mark.filterwarnings("ignore::vrtd.errors.StabilityWarning")
def test_divergence_is_seen_without_a_metric() -> None:
    """Runs of one group and of many, each with a date of its own."""
    bare = simulate(vrtd.TD(2.0), n_runs=64, n_gradients=15_000, sampling="iid", metrics=(), threads=1)
    measured = simulate(vrtd.TD(2.0), n_runs=64, n_gradients=15_000, sampling="iid", threads=1)
    assert (bare.status == "diverged").any()
    assert np.all((bare.diverged_at == measured.diverged_at) | (measured.diverged_at >= 0))
    for run, seen in enumerate(np.searchsorted(measured.n_gradients, measured.diverged_at)):
        if measured.diverged_at[run] >= 0:
            assert np.isfinite(measured.values("squared_error")[run, :seen]).all()
            assert np.isnan(measured.values("squared_error")[run, seen:]).all()


@pytest.mark.filterwarnings("ignore::vrtd.errors.StabilityWarning")
def test_a_diverging_run_leaves_the_others_alone() -> None:
    """At this step size some runs overflow within the budget and some do not."""
    result = simulate(vrtd.TD(2.0), n_runs=64, n_gradients=15_000, sampling="iid")
    diverged = result.status == "diverged"
    assert 0 < diverged.sum() < 64
    assert np.isfinite(result.theta[~diverged]).all()
    assert np.isfinite(result.curves[~diverged]).all()
    assert result.summary().n_diverged[-1] == diverged.sum()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::vrtd.errors.StabilityWarning")
def test_a_projection_keeps_every_run_inside_its_ball() -> None:
    for algorithm in (vrtd.TD(40.0, radius=3.0), vrtd.VRTD(40.0, 7, radius=3.0)):
        result = simulate(algorithm, n_gradients=1000)
        assert np.all(result.status == "ok")
        assert np.all(np.linalg.norm(result.theta, axis=1) <= 3.0 + 1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 1}, "start must come from the same seed, 1, but got 0"),
        ({"n_runs": 4}, "start must come from the same n_runs, 4, but got 3"),
        ({"sampling": "iid"}, "start must come from the same sampling"),
        ({"algorithm": vrtd.TD(0.2)}, "start must come from the same algorithm"),
        ({"theta_0": np.zeros(4)}, "theta_0 and initial are already part of start, but got"),
        ({"initial": 3}, "theta_0 and initial are already part of start, but got"),
        ({"checkpoints": [50]}, "pseudo-gradients in 100 .. 200"),
    ],
)
def test_a_start_from_something_else_is_refused(changes: dict[str, Any], message: str) -> None:
    start = simulate()
    with pytest.raises(InvalidInputError, match=message):
        simulate(**({"start": start} | changes))
    problem = vrtd.problems.random_mdp(seed=1)
    with pytest.raises(InvalidInputError, match="the same problem"):
        vrtd.simulate(problem, TD, n_runs=3, n_gradients=100, start=start)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("cursors", lambda array: array + np.uint64(2**40), "cursors of the start must be below n_states=50"),
        ("cursors", lambda array: array.astype(float), "cursors of the start must be uint64 of shape"),
        ("workspaces", lambda array: array[:, :3].copy(), "workspaces of the start must be float64 of shape"),
        ("environment", lambda array: array[:, :1].copy(), "environment of the start must be uint64 of shape"),
    ],
)
def test_a_start_that_does_not_fit_is_refused(name: str, damage: Any, message: str) -> None:
    start = simulate()
    bad = dataclasses.replace(start, state=start.state._replace(**{name: damage(getattr(start.state, name))}))
    with pytest.raises(InvalidInputError, match=message):
        simulate(start=bad)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16])
def test_small_numpy_integers_are_numbers(kind: Any) -> None:
    small = simulate(vrtd.VRTD(np.float32(0.125), kind(100)), n_runs=kind(3), n_gradients=1000)
    assert small.theta.tobytes() == simulate(vrtd.VRTD(0.125, 100), n_gradients=1000).theta.tobytes()


def test_a_start_is_not_changed_by_being_continued() -> None:
    start = simulate()
    before = [array.copy() for array in (*start.state, start.theta, start.curves)]
    simulate(start=start)
    for array, copy in zip((*start.state, start.theta, start.curves), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_progress_goes_from_0_to_1() -> None:
    shares: list[float] = []
    simulate(n_runs=200, threads=2, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)


def test_an_error_in_progress_stops_the_work_and_comes_out() -> None:
    class StopError(Exception):
        pass

    def stop(share: float) -> None:
        raise StopError

    with pytest.raises(StopError):
        simulate(n_runs=200, threads=2, progress=stop)


def test_every_error_is_a_vrtd_error_and_a_value_error() -> None:
    with pytest.raises(VrtdError):
        vrtd.TD(-1.0)
    with pytest.raises(ValueError, match="positive"):
        vrtd.TD(-1.0)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="cached properties have no locks")
def test_a_fork_while_another_thread_computes_a_cached_property_does_not_hang():
    problem = vrtd.problems.random_mdp(n_states=5)
    assert vrtd.simulate.__module__ == "vrtd.engine.simulation"  # the engine is loaded
    lock, held, done = vars(vrtd.LinearProblem)["A"].lock, threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        os._exit(0 if problem.A.shape == (4, 4) else 1)
    _, status = os.waitpid(child, 0)
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
