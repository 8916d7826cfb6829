"""The estimator: one pass however it is split, intervals, files, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.some_logs import DISCOUNT, boyan, chain, chunk, split
from vrtd.errors import (
    AccuracyWarning,
    ConvergenceWarning,
    DataError,
    DivergenceError,
    InvalidInputError,
    NotFittedError,
    StabilityWarning,
)
from vrtd.features import RBF, Scaled, Tabular
from vrtd.logs import Chunk, from_arrays

N = 20_000
SETTINGS: dict[str, dict[str, Any]] = {
    "auto": {},
    "auto, told how many rows": {"n_samples": N},
    "auto, few pilot rows": {"pilot_rows": 700},
    "td": {"algorithm": "td"},
    "closed_form": {"algorithm": "closed_form"},
    "given": {"step_size": 0.02, "batch_size": 777},
    "an algorithm": {"algorithm": vrtd.VRTD(0.05, 500), "closed_form": True},
    "features from data": {"features": Scaled(RBF(3)), "step_size": 0.1, "batch_size": 100, "pilot_rows": 1234},
}


def fitted(**settings: Any) -> vrtd.Evaluator:
    return vrtd.Evaluator(discount=DISCOUNT, **settings).fit(chunk(0, N))


def fed(pieces: Any, **settings: Any) -> vrtd.Evaluator:
    evaluator = vrtd.Evaluator(discount=DISCOUNT, **settings)
    for first, last in pieces:
        evaluator.partial_fit(chunk(first, last))
    return evaluator


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_any_split_gives_the_same_bits(settings: Any) -> None:
    whole = fitted(**settings)
    assert not np.array_equal(whole.theta_, np.zeros(whole.n_features))
    for seed in range(2):
        parts = fed(split(N, seed), **settings)
        assert parts.theta_.tobytes() == whole.theta_.tobytes()
        assert parts.n_waiting_ == whole.n_waiting_
        assert parts.diagnostics_.as_dict() == whole.diagnostics_.as_dict()


def test_before_the_pilot_is_whole_nothing_is_learned_and_it_is_said() -> None:
    evaluator = fed([(0, 4999)], theta_0=[1.0, 2.0, 3.0, 4.0])
    assert evaluator.n_waiting_ == 4999
    assert evaluator.algorithm_ is None
    diagnostics = evaluator.diagnostics_
    assert (diagnostics.status, diagnostics.limit) == ("waiting", "rows")
    assert "4,999 rows wait" in diagnostics.text
    with pytest.raises(NotFittedError):
        evaluator.predict(chain().phi, return_interval=0.9)
    assert np.array_equal(evaluator.theta_, [1.0, 2.0, 3.0, 4.0])
    evaluator.partial_fit(chunk(4999, 5000))
    assert evaluator.algorithm_ is not None
    assert evaluator.diagnostics_.status == "learning"
    assert vrtd.Evaluator(discount=0.9).fit(chunk(0, 100)).algorithm_ is not None  # no more rows will come


def test_several_passes_and_a_second_fit() -> None:
    log = from_arrays(*(chunk(0, 6000)[k] for k in (0, 1, 2)))
    settings: dict[str, Any] = {"step_size": 0.02, "batch_size": 100}
    twice = vrtd.Evaluator(discount=DISCOUNT, **settings).fit(log, n_passes=2)
    by_hand = vrtd.Evaluator(discount=DISCOUNT, **settings).partial_fit(log).partial_fit(log)
    assert twice.theta_.tobytes() == by_hand.theta_.tobytes()
    assert twice.n_rows_ == 12_000
    again = twice.fit(log)  # forgets
    assert again.n_rows_ == 6000


def test_float32_rows_are_kept_and_types_do_not_mix() -> None:
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.05, 500), discount=DISCOUNT).fit(chunk(0, N, dtype="f4"))
    near = fitted(algorithm=vrtd.VRTD(0.05, 500))
    np.testing.assert_allclose(evaluator.theta_, near.theta_, rtol=1e-4)
    before = evaluator.theta_
    with pytest.raises(DataError, match="of one type, float32"):
        evaluator.partial_fit(chunk(0, 100))
    assert np.array_equal(evaluator.theta_, before)


def test_weights_weigh() -> None:
    """A row of weight 2 is a row that comes twice, for the closed form; ratios of 1 change nothing."""
    rows = chunk(0, 3000)
    doubled = Chunk(*(np.repeat(values, 2, axis=0) for values in rows[:5]))
    heavy = vrtd.Evaluator("closed_form", discount=DISCOUNT).fit(rows._replace(weight=np.full(3000, 2.0)))
    twice = vrtd.Evaluator("closed_form", discount=DISCOUNT).fit(doubled)
    np.testing.assert_allclose(heavy.theta_, twice.theta_, rtol=1e-10)
    plain = vrtd.Evaluator(vrtd.TD(0.05), discount=DISCOUNT).fit(rows)
    ones = vrtd.Evaluator(vrtd.TD(0.05), discount=DISCOUNT).fit(rows._replace(weight=np.ones(3000)))
    np.testing.assert_allclose(ones.theta_, plain.theta_, rtol=1e-12)


def test_terminated_rows_do_not_bootstrap_and_need_no_successor() -> None:
    rows = chunk(0, 8000)
    ends = np.arange(8000) % 7 == 0
    nothing = rows.next_observations.copy()
    nothing[ends] = np.nan
    ended = rows._replace(terminated=ends)
    for algorithm in (vrtd.TD(0.05), vrtd.VRTD(0.05, 100), "closed_form", "vrtd"):
        by_flag = vrtd.Evaluator(algorithm, discount=DISCOUNT).fit(ended._replace(next_observations=nothing))
        zeros = vrtd.Evaluator(algorithm, discount=DISCOUNT).fit(
            ended._replace(next_observations=np.where(ends[:, None], 0.0, rows.next_observations))
        )
        assert by_flag.theta_.tobytes() == zeros.theta_.tobytes()
    through = vrtd.Evaluator("closed_form", discount=DISCOUNT).fit(rows)
    assert np.abs(through.theta_ - by_flag.theta_).max() > 0.1


BAD = [
    ("observations", 5, np.nan, "observations: row 5 of the log"),
    ("next_observations", 13_000, np.inf, "next_observations: row 13000 of the log"),
    ("reward", 19_999, np.nan, "reward: row 19999 of the log"),
]


@pytest.mark.parametrize(("field", "row", "value", "message"), BAD, ids=[case[0] for case in BAD])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_number_that_is_not_finite_is_named_and_leaves_no_trace(
    field: str, row: int, value: float, message: str, settings: Any
) -> None:
    if settings.get("features") is not None and field == "next_observations":
        message = "next_observations"
    good = chunk(0, N)
    values = getattr(good, field).copy()
    values[row] = value
    evaluator = vrtd.Evaluator(discount=DISCOUNT, **settings)
    pieces = [(0, 2000), (2000, 12_990), (12_990, N)]
    for first, last in pieces:
        part = Chunk(*(array[first:last] for array in good._replace(**{field: values})[:5]))
        if first <= row < last:
            with pytest.raises(DataError, match=message):
                evaluator.partial_fit(part)
        evaluator.partial_fit(chunk(first, last))
    assert evaluator.theta_.tobytes() == fed(pieces, **settings).theta_.tobytes()


def test_the_place_is_told_by_whoever_knows_it() -> None:
    rows = chunk(0, 300)._replace(reward=np.where(np.arange(300) == 250, np.nan, 0.0))
    located = rows._replace(locate=lambda field, row: f"a.parquet, {field}, row {row + 1000}")
    with pytest.raises(DataError, match=r"a\.parquet, reward, row 1250"):
        vrtd.Evaluator(vrtd.VRTD(0.1, 70), discount=0.9).partial_fit(located)


def test_a_step_that_diverges_is_refused() -> None:
    with pytest.raises(DivergenceError, match="lower it"):
        fitted(algorithm=vrtd.TD(30.0))
    with pytest.warns(StabilityWarning, match="as the first 5,000 rows show"):
        evaluator = vrtd.Evaluator(vrtd.TD(1.5), discount=DISCOUNT).fit(chunk(0, 5000))
    assert "beyond the limit of stability" in evaluator.diagnostics_.text


def test_discount_one_needs_ends() -> None:
    rows = chunk(0, 6000)
    for algorithm in ("vrtd", "closed_form", vrtd.TD(0.01)):
        with pytest.raises(InvalidInputError, match="discount 1 needs episodes that end"):
            vrtd.Evaluator(algorithm, discount=1.0).fit(rows)
    ends = np.arange(6000) % 10 == 9
    vrtd.Evaluator("closed_form", discount=1.0).fit(rows._replace(terminated=ends))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"discount": 1.5}, "discount must lie in"),
    ({"discount": [0.9]}, "discount must lie in"),
    ({"algorithm": "vrdt"}, "did you mean 'vrtd'"),
    ({"step_size": 0.0}, "step_size must be a positive"),
    ({"step_size": "big"}, "step_size must be a number or 'auto'"),
    ({"batch_size": 1.5}, "batch_size must be a whole number"),
    ({"algorithm": "td", "batch_size": 5}, "td has no batch_size"),
    ({"algorithm": "closed_form", "step_size": 0.1}, "closed_form has no step_size"),
    ({"algorithm": vrtd.TD(0.1), "step_size": 0.1}, "must not be given others"),
    ({"n_samples": 0}, "n_samples must be a whole number"),
    ({"pilot_rows": 0}, "pilot_rows must be a whole number"),
    ({"seed": -1}, "seed must be a whole number"),
    ({"closed_form": 1}, "closed_form must be True or False"),
    ({"features": 7}, "features must be"),
    ({"theta_0": [np.nan]}, "theta_0 must be finite"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_refused_at_the_door(settings: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        vrtd.Evaluator(**({"discount": 0.9} | settings))


def test_what_is_refused_later() -> None:
    with pytest.raises(InvalidInputError, match="theta_0 must have the shape"):
        fitted(theta_0=[1.0, 2.0])
    with pytest.raises(InvalidInputError, match="must be a Log or a Chunk"):
        vrtd.Evaluator(discount=0.9).fit([1, 2, 3])  # type: ignore[arg-type]
    evaluator = fitted(algorithm="closed_form")
    for level in (0.0, 1.0, True, "0.9"):
        with pytest.raises(InvalidInputError, match="level of an interval"):
            evaluator.theta_interval(level)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="the closed form has no recursion"):
        evaluator.theta_interval(method="recursion")
    with pytest.raises(InvalidInputError, match="method must be one of"):
        evaluator.theta_interval(method="bootstrap")  # type: ignore[arg-type]
    rows = chunk(0, 100)
    with pytest.raises(DataError, match="equally long"):
        evaluator.partial_fit(rows._replace(reward=rows.reward[:-1]))
    with pytest.raises(DataError, match="of the type of the observations"):
        evaluator.partial_fit(rows._replace(next_observations=rows.next_observations.astype("f4")))
    with pytest.raises(NotFittedError, match="must have received its pilot rows; got 0 of 5,000"):
        vrtd.Evaluator(discount=0.9).predict([[1.0]])


def test_unvisited_states_are_reported_and_have_no_interval() -> None:
    rng = np.random.default_rng(0)
    states = rng.integers(0, 5, 9001)
    rows = from_arrays(states[:-1], rng.normal(size=9000), states[1:])
    for algorithm in ("closed_form", vrtd.VRTD(0.1, 500)):
        evaluator = vrtd.Evaluator(algorithm, features=Tabular(7), discount=0.9).fit(rows)
        assert evaluator.diagnostics_.unseen == (5, 6)
        found = evaluator.predict(np.arange(7), return_interval=0.95)
        assert np.isfinite(found.low[:5]).all()
        assert np.isinf(found.low[5:]).all()
        assert np.isinf(found.high[5:]).all()
        assert np.all(found.value[5:] == 0.0)


def test_dependent_features_are_no_obstacle_to_vrtd() -> None:
    """In any case values are learned: theta moves in the span of the rows."""
    rows = chunk(0, N)
    twice = rows._replace(
        observations=np.repeat(rows.observations, 2, axis=1),
        next_observations=np.repeat(rows.next_observations, 2, axis=1),
    )
    evaluator = vrtd.Evaluator(discount=DISCOUNT, n_samples=N).fit(twice)
    assert evaluator.diagnostics_.rank == 4
    phi, theta_star = chain().phi, chain().theta_star
    found = evaluator.predict(np.repeat(phi, 2, axis=1), return_interval=0.95)
    assert np.abs(found.value - phi @ theta_star).max() < 0.4
    assert np.isfinite(found.low).all()


def test_intervals_have_the_estimate_inside_and_grow_with_the_level() -> None:
    evaluator = fitted(n_samples=N, closed_form=True)
    phi, theta_star = chain().phi, chain().theta_star
    for method in ("recursion", "closed_form"):
        wide, narrow = (evaluator.predict(phi, return_interval=level, method=method) for level in (0.99, 0.5))
        assert np.all((wide.low < narrow.low) & (narrow.high < wide.high))
        np.testing.assert_allclose(wide.value, phi @ evaluator.spread(method).theta, rtol=1e-12)
        assert np.abs(wide.value - phi @ theta_star).max() < 0.5
    assert np.array_equal(evaluator.predict(phi), evaluator.predict(phi, return_interval=0.9).value)
    mean = evaluator.mean_value(0.95)
    assert mean.low[0] < float(np.mean(phi @ theta_star)) + 0.3
    assert mean.high[0] > float(np.mean(phi @ theta_star)) - 0.3
    theta = evaluator.theta_interval(0.9)
    assert np.array_equal(theta.value, evaluator.theta_)


def test_a_run_that_has_not_converged_says_so_and_offers_the_closed_form() -> None:
    rows, phi, theta_star = boyan(N)
    evaluator = vrtd.Evaluator(vrtd.VRTD(1e-3, 1000), discount=1.0).fit(rows)
    diagnostics = evaluator.diagnostics_
    assert (diagnostics.converged, diagnostics.limit) == (False, "transient")
    assert "Not converged" in diagnostics.text
    with pytest.warns(ConvergenceWarning, match="method='closed_form'"):
        found = evaluator.predict(phi, return_interval=0.95)
    inside = (found.low < phi @ theta_star) & (phi @ theta_star < found.high)
    assert inside.mean() > 0.9  # the transient is part of the interval
    offered = evaluator.predict(phi, return_interval=0.95, method="closed_form")
    assert np.mean(offered.high - offered.low) < np.mean(found.high - found.low) / 4


def test_methods_without_known_moments_have_the_closed_form_only() -> None:
    evaluator = fitted(algorithm=vrtd.TD(0.05, average=True))
    with pytest.warns(AccuracyWarning, match="no interval: none is known for TD.*no radius, no average"):
        found = evaluator.theta_interval()
    assert np.array_equal(found.value, evaluator.theta_)
    assert np.isnan(found.low).all()
    assert np.isnan(found.high).all()
    assert "No interval" in evaluator.diagnostics_.text
    assert evaluator.theta_interval(method="closed_form").low.shape == (4,)


def test_the_bias_of_td_on_a_trajectory_is_told_from_its_transient() -> None:
    errors = fitted(algorithm=vrtd.TD(0.1)).diagnostics_.errors
    assert errors["bias"] > 100 * errors["transient"]


def test_what_limits_a_run() -> None:
    rows, _, _ = boyan(N)
    noisy = vrtd.Evaluator(vrtd.VRTD(0.3, 10), discount=1.0).fit(rows).diagnostics_
    assert (noisy.converged, noisy.limit) == (True, "variance")
    short = vrtd.Evaluator("closed_form", discount=1.0).fit(rows).diagnostics_
    assert (short.converged, short.limit) == (True, "budget")
    assert short.errors["transient"] == short.errors["bias"] == 0.0
    assert short.explained is not None
    assert short.explained > 0.99
    # Four features cannot represent the values of fifty states, and the rows are enough to see it.
    closed = fitted(algorithm="closed_form").diagnostics_
    assert closed.limit == "features"
    problem = chain()
    missed = problem.phi @ problem.theta_star - problem.mrp.values
    exact = np.sqrt(problem.mrp.stationary @ missed**2)
    assert abs(closed.errors["features"] - exact) < 0.1 * exact


def test_diagnostics_are_plain_and_drawn() -> None:
    evaluator = fitted(n_samples=N)
    diagnostics = evaluator.diagnostics_
    plain = json.loads(json.dumps(diagnostics.as_dict(), allow_nan=False))
    assert plain["text"] == diagnostics.text
    assert plain["n_rows"] == N
    curve = diagnostics.curve
    assert curve is not None
    assert curve.n_rows[0] == 0
    assert curve.neu[-1] < curve.neu[0] / 100
    axes = diagnostics.plot()
    assert axes.get_yscale() == "log"
    with pytest.raises(InvalidInputError, match="learn with td or vrtd"):
        fitted(algorithm="closed_form").diagnostics_.plot()


def test_neu_and_its_floor() -> None:
    """NEU of theta_0 = 0 is |b|^2; at theta_star the sample shows its own floor, and no more than a few times that."""
    evaluator = fitted(algorithm=vrtd.VRTD(0.02, 5000, output="average"))
    curve = evaluator.diagnostics_.curve
    assert curve is not None
    rows = chunk(0, N)
    b = rows.observations.T @ rows.reward / N
    np.testing.assert_allclose(curve.neu[0], b @ b, rtol=1e-10)
    A = rows.observations.T @ (DISCOUNT * rows.next_observations - rows.observations) / N
    update = A @ chain().theta_star + b
    assert update @ update < 10 * curve.neu_floor
    assert curve.neu_floor < 10 * (update @ update)


def test_progress_counts_rows() -> None:
    told: list[Any] = []
    log = from_arrays(*(chunk(0, N)[k] for k in (0, 1, 2)))
    vrtd.Evaluator(vrtd.TD(0.05), discount=DISCOUNT).fit(log, progress=lambda *counts: told.append(counts))
    assert told[-1] == (N, N)
