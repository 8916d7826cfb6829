"""Learning with O(d) work per row: extrapolated TD, and VRTD with batches that grow."""

from __future__ import annotations

from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.decision_processes import random_policy, random_process, without_propensity
from tests.helpers.fits import fed, make_evaluator
from tests.helpers.some_logs import DISCOUNT, boyan, chunk, split
from tests.helpers.streams import some_rows, to_samples, with_columns
from tests.reference.linear_fit import Constants, Run, gradient, sample_inverse
from vrtd.errors import (
    AccuracyWarning,
    ConvergenceWarning,
    DivergenceError,
    InvalidInputError,
    ModelFileError,
    StabilityWarning,
)
from vrtd.estimator import linear_estimate, linear_fit, linear_settings, linear_state, summary
from vrtd.estimator.linear_estimate import estimate_linearly
from vrtd.estimator.linear_fit import first_linear_fit, learn_linearly
from vrtd.estimator.model_file import read_model, write_tree
from vrtd.estimator.sample_inverse import _CAUTION
from vrtd.features import Identity
from vrtd.problems import Transitions
from vrtd.theory.settings import growth_ratio

D, N, PILOT, SEED = 4, 7000, 400, 3
RICHARDSON, GROWING = vrtd.RichardsonTD(0.05), vrtd.VRTD(0.1, 500, growth=3.0, n_steps=300)
LINEAR: dict[str, dict[str, Any]] = {
    "auto": {"algorithm": "auto", "cost": "linear"},
    "vrtd": {"algorithm": "vrtd", "cost": "linear"},
    "extrapolation": {"algorithm": RICHARDSON, "pilot_rows": 300},
    "growth": {"algorithm": GROWING, "pilot_rows": 300},
}


@pytest.fixture(params=LINEAR)
def settings(request: Any) -> dict[str, Any]:
    return LINEAR[request.param]


def learned(algorithm: Any, rows: Transitions, cuts: Any = (), step_size: float | None = None) -> Any:
    fit = first_linear_fit(algorithm, step_size, rows.part(0, PILOT), np.linspace(-1.0, 1.0, D), SEED)
    for first, last in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        fit = learn_linearly(fit, rows.part(first, last))
    return fit


def transcribed(algorithm: Any, rows: Transitions) -> Run:
    """The same, one row at a time."""
    samples, theta_0 = to_samples(rows), np.linspace(-1.0, 1.0, D)
    pilot, is_auto = samples[:PILOT], isinstance(algorithm, str)
    constants = Constants(
        linear_state.FIRST_BLOCK, linear_fit._MOST_BLOCKS, linear_estimate._LEAST_TO_DROP, linear_estimate.LEAST_BLOCKS,
        linear_fit._MOST_LARGE, linear_fit._DECAY, _CAUTION, linear_settings.kept_rows(D),
    )  # fmt: skip
    largest = max(growth_ratio(rows.part(0, PILOT)), *(float(x.weight * (x.phi @ x.phi)) for x in pilot))
    first = linear_settings.BATCH if is_auto else 10 * len(rows)
    changes = sum(np.sum((x.phi_next - x.phi) ** 2) for x in pilot if x.discount > 0.0) / 2.0
    phi = np.array([x.phi for x in pilot if x.discount > 0.0])
    alike = max(1.0, np.sum((phi - phi.mean(axis=0)) ** 2) / changes)  # rows over which features stay alike
    chosen = vrtd.RichardsonTD(linear_settings._STABLE / largest / 4.0 / alike) if is_auto else algorithm
    if isinstance(algorithm, vrtd.VRTD):
        first = algorithm.batch_size
    theta = theta_0 + sample_inverse(pilot, 1.0)(np.mean([gradient(x, theta_0) for x in pilot], axis=0))
    growth = (chosen.growth if isinstance(chosen, vrtd.VRTD) else None) or linear_settings.GROWTH
    run = Run(chosen, theta, first, growth, is_auto, SEED, constants)
    run.feed(samples)
    return run


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("algorithm", ["richardson_td", RICHARDSON, GROWING], ids=["auto", "extrapolation", "growth"])
def test_it_is_the_transcription(algorithm: Any, weighted: bool) -> None:
    """Restarts after batches, blocks that double, steps that fall with them and after a row that is too large."""
    rows = some_rows(N, D, weighted=weighted)
    phi = rows.phi.copy()
    phi[3000] *= 8.0
    rows = with_columns(rows, phi=phi)
    fit, expected = learned(algorithm, rows), transcribed(algorithm, rows)
    found = estimate_linearly(fit)
    np.testing.assert_allclose(found.theta, expected.estimate(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.influence, expected.influence(), rtol=1e-7, atol=1e-9)
    assert found.n_rows_of[0] == found.ends[0] == expected.block_of_influence()
    np.testing.assert_allclose(fit.algorithm.step_size, expected.step, rtol=1e-12)


def test_a_row_that_is_too_large_lowers_the_step_once_and_for_good() -> None:
    rows = some_rows(600, D)
    phi = rows.phi.copy()
    phi[500] *= 50.0
    large = with_columns(rows, phi=phi)
    steps = [learned("richardson_td", large.part(0, n)).largest_step for n in (500, 501, 600)]
    assert steps[1] == pytest.approx(0.999 * linear_fit._MOST_LARGE / float(phi[500] @ phi[500]))
    assert steps[0] > 5.0 * steps[1]
    assert steps[2] == steps[1]
    given = learned("richardson_td", large, step_size=1e-4)
    assert given.largest_step == pytest.approx(4e-4)  # what was asked for stays


@pytest.mark.parametrize(
    ("cost", "n_features", "name"),
    [
        ("auto", 512, "closed_form"),
        ("auto", 513, "vrtd"),
        ("linear", 4, "vrtd"),
        ("quadratic", 513, "closed_form"),
    ],
)
def test_cost_decides_what_auto_is(cost: Any, n_features: int, name: str) -> None:
    evaluator = make_evaluator(algorithm="auto", cost=cost)
    assert evaluator._setup.resolve(Identity(n_features)).settings.algorithm == name


def test_splits_do_not_change_a_bit(settings: dict[str, Any]) -> None:
    whole = fed([(0, N)], **settings)
    parts = fed(split(N, 1), **settings)
    assert parts.theta_.tobytes() == whole.theta_.tobytes()
    assert parts.spread().influence.tobytes() == whole.spread().influence.tobytes()
    assert parts.diagnostics_.as_dict() == whole.diagnostics_.as_dict()


def test_splits_do_not_change_a_bit_of_rows_in_single_precision_or_with_a_large_row() -> None:
    rows = some_rows(N, D)
    phi, phi_next = rows.phi.astype("f4"), rows.phi_next.astype("f4")
    phi[1234] *= 50.0
    rows = with_columns(rows, phi=phi, phi_next=phi_next)
    whole = estimate_linearly(learned("richardson_td", rows))
    parts = estimate_linearly(learned("richardson_td", rows, [1, 500, 1234, 1235, 2048, 5000]))
    assert parts.theta.tobytes() == whole.theta.tobytes()
    double = with_columns(rows, phi=phi.astype("f8"), phi_next=phi_next.astype("f8"))
    np.testing.assert_allclose(whole.theta, estimate_linearly(learned("richardson_td", double)).theta, rtol=1e-9)


@pytest.mark.parametrize("n", [200, 1200, 2048, 3333], ids=["waiting", "few rows", "between batches", "in a block"])
def test_a_stored_run_goes_on(settings: dict[str, Any], n: int, tmp_path: Path) -> None:
    first = fed([(0, n)], **settings)
    first.save(tmp_path / "model.npz")
    evaluator = vrtd.Evaluator.load(tmp_path / "model.npz").partial_fit(chunk(n, 5000))
    whole = fed([(0, 5000)], **settings)
    assert evaluator.theta_.tobytes() == whole.theta_.tobytes()
    assert evaluator.spread().influence.tobytes() == whole.spread().influence.tobytes()
    assert evaluator.algorithm_ == whole.algorithm_


def test_copies_learn_by_themselves(settings: dict[str, Any]) -> None:
    evaluator = fed([(0, 1200)], **settings)
    other = copy(evaluator).partial_fit(chunk(2000, 3000))
    evaluator.partial_fit(chunk(1200, 2000))
    assert evaluator.theta_.tobytes() == fed([(0, 2000)], **settings).theta_.tobytes()
    assert other.theta_.tobytes() == fed([(0, 1200), (2000, 3000)], **settings).theta_.tobytes()


@pytest.mark.parametrize("settings", ["auto"], indirect=True)
@pytest.mark.parametrize(
    ("way", "value"),
    [
        ("state", np.zeros(3)),
        ("mark", np.full(20, np.nan)),
        ("open", np.zeros((2, 3))),
        ("blocks/0", np.zeros(4)),
        ("reservoir/stream", np.zeros(1, np.uint64)),
        ("reservoir/capacity", 7),
        ("reservoir/buffer/phi", np.zeros((3, 4))),
        ("scale", np.ones(3)),
        ("n_rows", 1),
        ("algorithm", {"name": "td", "step_size": 0.1}),
    ],
)
def test_a_damaged_run_is_refused(settings: dict[str, Any], way: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    fed([(0, 2000)], **settings).save(path)
    with read_model(path) as tree:
        *nodes, last = ("state", "linear", *way.split("/"))
        node: Any = tree
        for name in nodes:
            node = node[name]
        node[last] = value
        write_tree(path, tree)
    with pytest.raises(ModelFileError):
        vrtd.Evaluator.load(path)


def test_more_passes_teach_nothing(settings: dict[str, Any]) -> None:
    rows = chunk(0, 3000)
    once = make_evaluator(**settings).fit(rows)
    thrice = make_evaluator(**settings).fit(rows, n_passes=3)
    assert thrice.theta_.tobytes() == once.theta_.tobytes()
    assert thrice.spread().influence.tobytes() == once.spread().influence.tobytes()


def distance(evaluator: vrtd.Evaluator, rows: Any, discount: float = DISCOUNT) -> float:
    """How far values are from those of least squares, in standard errors of the latter, in the mean over rows."""
    exact = vrtd.Evaluator("closed_form", features=None, discount=discount).fit(rows)
    at = rows.observations[:500]
    values = exact.predict(at, return_interval=0.68)
    return float(np.sqrt(np.mean(np.square((evaluator.predict(at) - values.value) / (values.high - values.value)))))


def test_it_is_near_least_squares(settings: dict[str, Any]) -> None:
    rows = chunk(0, N)
    assert distance(make_evaluator(**settings).fit(rows), rows) < 0.5


@pytest.mark.parametrize("name", ["auto", "vrtd"])
def test_transitions_that_terminate(name: str) -> None:
    rows, phi, _ = boyan(5000)
    evaluator = make_evaluator(**LINEAR[name] | {"discount": 1.0}).fit(rows)
    assert distance(evaluator, rows, 1.0) < 0.5
    after = np.where(rows.terminated[:, None], np.nan, rows.next_observations)  # nobody looks at these
    other = make_evaluator(**LINEAR[name] | {"discount": 1.0}).fit(rows._replace(next_observations=after))
    assert other.theta_.tobytes() == evaluator.theta_.tobytes()
    assert np.isfinite(evaluator.predict(phi)).all()
    check = evaluator.check_returns()
    assert check is not None
    assert check.agrees


@pytest.mark.parametrize("name", ["auto", "vrtd"])
def test_blocks_are_those_of_least_squares(name: str) -> None:
    """So two estimates from the same rows have nearly the same noise, although the first block of one is left out."""
    rows, _, _ = boyan(5000)
    evaluator = make_evaluator(**LINEAR[name] | {"discount": 1.0}).fit(rows)
    exact = make_evaluator(algorithm="closed_form", discount=1.0).fit(rows)
    found, expected, difference = evaluator.policy_value(), exact.policy_value(), vrtd.difference(evaluator, exact)
    width = expected.high - expected.low
    assert found.high - found.low == pytest.approx(width, rel=0.25)
    assert abs(found.value - expected.value) < 0.2 * width
    assert difference.high - difference.low < 0.3 * width


def test_scales_of_features_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divided by a power of two, no number is rounded."""

    def fit(powers: list[int]) -> tuple[vrtd.Evaluator, Any]:
        rows, factors = chunk(0, N), 2.0 ** np.array(powers)
        rows = rows._replace(
            observations=rows.observations * factors, next_observations=rows.next_observations * factors
        )
        theta_0 = np.array([1.0, -2.0, 3.0, 0.5]) / factors
        return make_evaluator(**LINEAR["auto"], theta_0=theta_0).fit(rows), rows

    (one, rows), (other, same) = fit([-10, 10, 0, 3]), fit([8, 0, -9, -3])
    assert np.array_equal(one.predict(rows.observations), other.predict(same.observations))
    assert distance(one, rows) < 0.5
    monkeypatch.setattr(linear_settings, "_UNEQUAL", np.inf)
    message = r"^Not converged: the initial transient adds \d+ % to squared"
    with pytest.warns(ConvergenceWarning, match=message):
        unscaled, rows = fit([-10, 10, 0, 3])
    with pytest.warns(ConvergenceWarning, match=message):
        far = distance(unscaled, rows)
    assert far > 2.0 * distance(one, rows)


def test_weights_count() -> None:
    """Rows of weight 0 tell nothing, and a common factor changes nothing."""
    rows, rng = chunk(0, N), np.random.default_rng(0)
    weight = rng.integers(0, 2, N).astype(float)
    half = make_evaluator(**LINEAR["auto"]).fit(rows._replace(weight=weight))
    wrong = rows._replace(weight=weight, reward=np.where(weight > 0.0, rows.reward, 1e3))
    assert make_evaluator(**LINEAR["auto"]).fit(wrong).theta_.tobytes() == half.theta_.tobytes()
    double = make_evaluator(**LINEAR["auto"]).fit(rows._replace(weight=2.0 * weight))
    np.testing.assert_allclose(double.theta_, half.theta_, rtol=1e-9)
    assert np.abs(half.theta_ - make_evaluator(**LINEAR["auto"]).fit(rows).theta_).max() > 1e-3


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        (
            vrtd.RichardsonTD(20.0),
            "overflowed in rows 20 to 3,000 with the step size 80. Lower the step size, or pass step",
        ),
        (
            vrtd.VRTD(20.0, 500, growth=3.0),
            "The inner loop of vrtd diverged with the step size 20. Lower the step size",
        ),
    ],
    ids=["extrapolation", "growth"],
)
def test_a_step_that_diverges_is_an_error_and_changes_nothing(algorithm: Any, message: str) -> None:
    with pytest.warns(
        StabilityWarning,
        match=r"step_size=20 is unstable: on the first 20 rows, errors grow without bound above 0\.\d+",
    ):
        evaluator = make_evaluator(algorithm=algorithm, pilot_rows=20).partial_fit(chunk(0, 20))
    assert any("above the stability limit" in remark for remark in evaluator.diagnostics_.remarks)
    before = evaluator.theta_
    with pytest.raises(DivergenceError) as error:
        evaluator.partial_fit(chunk(20, 3000))
    assert message in str(error.value)
    assert evaluator.n_rows_ == 20
    assert evaluator.theta_.tobytes() == before.tobytes()


def test_what_would_overflow_or_vanish_is_refused() -> None:
    rows = chunk(0, 1200)
    for factor in (1e-170, 1e160):
        with pytest.raises(InvalidInputError, match="features must have a magnitude between"):
            make_evaluator(**LINEAR["auto"]).fit(rows._replace(observations=factor * rows.observations))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cost": "cubic"}, "cost must be"),
        (
            {"algorithm": "closed_form"},
            "closed_form cannot be combined with cost='linear', because it takes more than O(d) work",
        ),
        ({"algorithm": "lstd"}, "lstd cannot be combined with cost='linear', because it takes more than O(d) work"),
        (
            {"algorithm": vrtd.RecursiveLSTD()},
            "recursive_lstd cannot be combined with cost='linear', because it takes more",
        ),
        ({"closed_form": True}, "closed_form=True takes d^2 operations per row, which cost='linear' does not allow"),
        ({"algorithm": "td"}, "step_size='auto' of td cannot be combined with cost='linear'"),
        (
            {"algorithm": "vrtd", "batch_size": 100},
            "batch_size=100 cannot be combined with cost='linear', where the batches of vrtd grow",
        ),
        (
            {"algorithm": vrtd.VRTD(0.1, 100, growth=2.0, radius=9.0)},
            "VRTD with growing batches has no projection, but radius is 9.0",
        ),
        ({"algorithm": vrtd.RichardsonTD(0.1, burn_in=50)}, "chooses its burn-in itself, but burn_in is 50"),
        ({"algorithm": vrtd.RichardsonTD(vrtd.Harmonic(0.1, 9.0))}, "needs a constant step size, but it is Harmonic("),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        make_evaluator(**{"algorithm": "auto", "cost": "linear"} | options)
    assert message in str(error.value)


def test_the_closed_form_beside_it_is_that_of_all_rows() -> None:
    """It warns of no rows that are too few: those of the sample are enough."""
    evaluator = make_evaluator(algorithm="richardson_td", closed_form=True).fit(chunk(0, N))
    exact = make_evaluator(algorithm="closed_form").fit(chunk(0, N))
    at = chunk(0, 9).observations
    found, expected = (fit.predict(at, return_interval=0.9, method="closed_form") for fit in (evaluator, exact))
    assert found.low.tobytes() == expected.low.tobytes()
    assert evaluator.predict(at).tobytes() != expected.value.tobytes()


def test_the_closed_form_is_no_method_of_linear_cost() -> None:
    for settings in (LINEAR["auto"], {"algorithm": "td", "step_size": 0.05, "cost": "linear"}):
        evaluator = make_evaluator(**settings).fit(chunk(0, 3000))
        with pytest.raises(InvalidInputError, match=r"method='closed_form' takes d\^2"):
            evaluator.predict(chunk(0, 1).observations, return_interval=0.9, method="closed_form")


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (LINEAR["auto"], "it needs about 672 rows"),
        (
            {"algorithm": "td", "step_size": 0.05, "cost": "linear"},
            "with cost='linear' one is known only for richardson_td",
        ),
    ],
    ids=["few rows", "td"],
)
def test_where_no_interval_is_known_the_reason_is_said(settings: dict[str, Any], reason: str) -> None:
    evaluator = make_evaluator(**settings).fit(chunk(0, 300))
    with pytest.warns(AccuracyWarning, match=f"No interval: {reason}"):
        found = evaluator.predict(chunk(0, 2).observations, return_interval=0.9)
    assert np.isfinite(found.value).all()
    assert np.isnan(found.low).all()
    assert any(reason in remark for remark in evaluator.diagnostics_.remarks)


def test_rows_that_wait_are_told() -> None:
    evaluator = make_evaluator(**LINEAR["growth"]).partial_fit(chunk(0, 100))
    assert evaluator.diagnostics_.settings == GROWING.settings
    assert evaluator.n_waiting_ == 100
    assert not evaluator.partial_fit(chunk(100, 400)).n_waiting_


def test_a_feature_that_no_row_has_is_not_known(settings: dict[str, Any]) -> None:
    rows = chunk(0, 3000)
    evaluator = make_evaluator(**settings).fit(rows._replace(observations=rows.observations * [1.0, 0.0, 1.0, 1.0]))
    found = evaluator.predict(np.array([[1.0, 0.0, 1.0, 0.0], [0.0, 0.5, 0.0, 1.0]]), return_interval=0.9)
    assert np.isfinite(found.low).tolist() == [True, False]
    assert evaluator.theta_[1] == 0.0
    assert evaluator.diagnostics_.unseen == (1,)


def test_rows_that_change_slowly_are_doubted() -> None:
    rows = chunk(0, N)
    slow = rows._replace(reward=rows.reward + 3.0 * np.sin(np.arange(N) / 500.0))
    evaluator = make_evaluator(**LINEAR["auto"]).fit(slow)
    with pytest.warns(ConvergenceWarning, match=r"estimates from adjacent blocks of .* rows are correlated"):
        evaluator.predict(rows.observations[:2], return_interval=0.9)
    assert any("are correlated" in warning for warning in evaluator.diagnostics_.warnings)


@pytest.mark.parametrize(("name", "has_propensity"), [("auto", False), ("vrtd", True)])
def test_values_of_a_target_policy(name: str, has_propensity: bool) -> None:
    rows = random_process(0).record(random_policy(1), 3000, seed=4)[0]
    rows = rows if has_propensity else without_propensity(rows)
    options = {"features": "tabular:5", "discount": 0.9, "target": random_policy(2, evenness=1.0)}
    found = make_evaluator(**LINEAR[name] | options).fit(rows).predict(np.arange(5), return_interval=0.68)
    exact = make_evaluator(**options | {"algorithm": "closed_form"}).fit(rows)
    expected = exact.predict(np.arange(5), return_interval=0.68)
    assert (np.abs(found.value - expected.value) < 0.7 * (expected.high - expected.value)).all()
    np.testing.assert_allclose(found.high - found.low, expected.high - expected.low, rtol=0.4)


def test_values_beyond_what_rewards_allow_are_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, find = chunk(0, N), summary.estimate_point
    monkeypatch.setattr(summary, "estimate_point", lambda fit: find(fit)._replace(theta=1e6 * find(fit).theta))
    message = r"^Not converged: the root mean square of the values is .*, but the rewards allow at most .*\. Use"
    with pytest.warns(ConvergenceWarning, match=message):
        make_evaluator(**LINEAR["auto"]).fit(rows)
