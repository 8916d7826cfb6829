"""Exact curves as results among results: figures, files, divergence, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.table import two_states
from vrtd.algorithms import Algorithm
from vrtd.errors import InvalidInputError
from vrtd.theory import exact_curve, td_iid_moments

RANDOM, TINY = vrtd.problems.random_mdp(seed=0), two_states()
THETA_0 = [1.0, -1.0, 0.5, 2.0]
CURVE = exact_curve(RANDOM, vrtd.VRTD(0.1, 5), n_gradients=500, checkpoints=6, metrics=("squared_error", "neu"))


def test_a_curve_is_drawn_beside_a_simulation() -> None:
    named = {"n_gradients": 500, "checkpoints": 6}
    axes = vrtd.simulate(RANDOM, vrtd.TD(0.1), n_runs=20, **named).plot()
    exact_curve(RANDOM, vrtd.TD(0.1), **named).plot(axes)
    CURVE.plot(axes, label="M = 5")
    CURVE.plot(axes, metric="neu", x="n_samples")
    assert axes.get_legend_handles_labels()[1] == [
        "td (20 runs)", "td (exact)", "M = 5 (approximation)", "vrtd (approximation)"
    ]  # fmt: skip
    line = axes.get_lines()[2]
    np.testing.assert_array_equal(line.get_ydata(), CURVE.values("squared_error")[0])
    np.testing.assert_array_equal(line.get_xdata(), CURVE.n_gradients)
    axes.figure.canvas.draw()


def test_a_curve_survives_its_file(tmp_path: Path) -> None:
    CURVE.save(tmp_path / "x.npz")
    loaded = vrtd.load(tmp_path / "x.npz")
    assert loaded.metrics == CURVE.metrics
    assert loaded.provenance == CURVE.provenance
    for name in ("n_gradients", "n_samples", "curves", "theta", "diverged_at"):
        assert getattr(loaded, name).tobytes() == getattr(CURVE, name).tobytes()
    with pytest.raises(InvalidInputError, match="start must come from the same"):
        vrtd.simulate(RANDOM, vrtd.VRTD(0.1, 5), n_runs=1, n_gradients=500, start=loaded)


def test_a_curve_is_a_table_without_standard_errors(tmp_path: Path) -> None:
    CURVE.to_csv(tmp_path / "x.csv")
    rows = [line.split(",") for line in (tmp_path / "x.csv").read_text().splitlines()]
    table = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    assert [row["metric"] for row in table] == ["squared_error"] * 6 + ["neu"] * 6
    assert [float(row["mean"]) for row in table] == CURVE.curves[0].T.ravel().tolist()
    assert [int(row["n_samples"]) for row in table] == CURVE.n_samples.tolist() * 2
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
    assert CURVE.diverged_at.tolist() == [-1]
    assert CURVE.status.tolist() == ["ok"]
    assert CURVE.n_runs == 1


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
            r"without projection, which is not linear; got radius 3\.0; drop the radius, or simulate",
        ),
        (lambda: exact_curve(RANDOM, vrtd.VRTD(0.1, 5, radius=3.0)), "without projection"),
        (
            lambda: exact_curve(RANDOM, vrtd.VRTD(0.1, 5, inner="resample"), sampling="iid"),
            "Algorithm 1 on independent.*got inner='resample' with iid samples; drop inner",
        ),
        (
            lambda: exact_curve(RANDOM, vrtd.VRTD(0.1, 5, inner="fresh")),
            "Algorithm 2 on a trajectory; got inner='fresh' with markov samples",
        ),
        (
            lambda: exact_curve(RANDOM, vrtd.VRTD(0.1, 5), method="exact"),
            'got more, for 50 states and batch_size 5; use the approximation, method="approximate", or simulate',
        ),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), method="guess"), "method must be one of .*got 'guess'"),
        (
            lambda: exact_curve(RANDOM, vrtd.VRTD(0.1, 500), n_gradients=999),
            "n_gradients must be at least one epoch, which counts 1000; got 999",
        ),
        (
            lambda: exact_curve(wide(65), vrtd.TD(0.1), sampling="iid", n_gradients=10),
            "at most 64 features; got 65; simulate instead, or use fewer",
        ),
        (
            lambda: exact_curve(wide(33), vrtd.TD(0.1, average=True), sampling="iid", n_gradients=10),
            "at most 32 features; got 33",
        ),
        (
            lambda: exact_curve(wide(33), vrtd.VRTD(0.1, 2), sampling="iid", n_gradients=10),
            "at most 32 features; got 33",
        ),
        (lambda: exact_curve(wide(33), vrtd.VRTD(0.1, 2), n_gradients=10), "at most 32 features; got 33"),
        (lambda: exact_curve(RANDOM, Lazy()), "known for TD and VRTD; got lazy; simulate instead"),
        (lambda: exact_curve(RANDOM, "td"), "algorithm must be an Algorithm; got 'td'"),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), sampling="online"), "sampling must be one of"),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), n_gradients=0), "n_gradients must be a whole number"),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), checkpoints=0), "checkpoints must be a whole number"),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), n_gradients=9, checkpoints=[10]), r"checkpoints .* in 0 \.\. 9"),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), theta_0=[1.0]), r"theta_0 must have the shape \(4,\); got \(1,\)"),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), initial=50), r"initial must be a state in 0 \.\. 49; got 50"),
        (
            lambda: exact_curve(RANDOM, vrtd.TD(0.1), sampling="iid", initial=3),
            'initial must be "stationary" when samples are independent; got 3',
        ),
        (lambda: exact_curve(RANDOM, vrtd.TD(0.1), metrics=("error",)), "metrics must be one of"),
        (lambda: exact_curve("chain", vrtd.TD(0.1)), "problem must be a LinearProblem; got str"),
    ],
)
def test_bad_arguments_are_refused(call: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        call()
