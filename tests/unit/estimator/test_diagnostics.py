"""What diagnostics say of a run: convergence, the limiting error, rank, correlation, warnings."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.fits import N, fitted
from tests.helpers.some_logs import DISCOUNT, boyan, chain, chunk, scaled
from vrtd.errors import (
    AccuracyWarning,
    ConvergenceWarning,
    DataWarning,
    InvalidInputError,
)
from vrtd.estimator import summary
from vrtd.estimator.state import sample_of
from vrtd.features import Tabular
from vrtd.logs import Chunk, from_arrays
from vrtd.problems import Transitions

TD = vrtd.TD(0.01)


N_ROWS = 12_000


def test_the_bias_of_td_on_a_trajectory_is_told_from_its_transient() -> None:
    errors = fitted(algorithm=vrtd.TD(0.1)).diagnostics_.errors
    assert errors["bias"] > 100 * errors["transient"]


def test_the_limiting_error_of_a_run() -> None:
    rows, _, _ = boyan(N)
    noisy = vrtd.Evaluator(vrtd.VRTD(0.3, 10), features=None, discount=1.0).fit(rows).diagnostics_
    assert (noisy.converged, noisy.limit) == (True, "variance")
    short = vrtd.Evaluator("closed_form", features=None, discount=1.0).fit(rows).diagnostics_
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
    with pytest.raises(InvalidInputError, match="Fit with algorithm='td' or 'vrtd'"):
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


@pytest.mark.parametrize(("distance", "rank"), [(1e-3, 4), (1e-7, 3)])
def test_rank_is_that_of_the_features_and_not_of_their_squares(distance: float, rank: int) -> None:
    """The last column is nearly the first."""
    rows = chunk(0, 500)
    mix = np.eye(4)
    mix[0, 3], mix[3, 3] = 1.0, distance
    near = rows._replace(observations=rows.observations @ mix, next_observations=rows.next_observations @ mix)
    assert vrtd.Evaluator(TD, features=None, discount=DISCOUNT).fit(near).diagnostics_.rank == rank


def test_rewards_of_zero_have_no_limiting_error() -> None:
    still = (
        vrtd.Evaluator("closed_form", features=None, discount=0.9)
        .fit(chunk(0, N_ROWS)._replace(reward=np.zeros(N_ROWS)))
        .diagnostics_
    )
    assert still.limit is None


def test_a_run_that_strays_from_its_sample_is_noticed() -> None:
    """Rows of another kind after the sample: theta is not where the sample says."""
    rows, _, _ = boyan(70_000)
    later = rows._replace(reward=np.where(np.arange(70_000) < 55_000, rows.reward, 50.0))
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.1, 1000, output="average"), features=None, discount=1.0)
    with pytest.warns(ConvergenceWarning, match="distance of the values from the closed form of the first 50,000 rows"):
        diagnostics = evaluator.fit(later).diagnostics_
    assert diagnostics.converged is False
    assert "further from the closed form of the first 50,000 rows than its noise explains" in diagnostics.text


def sticky(n: int) -> Chunk:
    """Two states that are left every five hundred steps, with one feature that tells neither from the other."""
    states = np.cumsum(np.random.default_rng(3).random(n + 1) < 0.002) % 2
    ones, no = np.ones((n, 1)), np.zeros(n, bool)
    return Chunk(ones, states[:-1].astype(float), ones, no, no)


def test_correlation_longer_than_blocks_or_sample_is_warned_of() -> None:
    rows = sticky(4000)
    closed = vrtd.Evaluator("closed_form", features=None, discount=0.9).fit(rows)
    assert closed.diagnostics_.converged is False
    with pytest.warns(ConvergenceWarning, match="correlated over more than the 64 rows of a block"):
        closed.predict([[1.0]], return_interval=0.9)
    run = vrtd.Evaluator(vrtd.VRTD(0.1, 500), features=None, discount=0.9).fit(rows)
    assert "correlation longer than the sample" in run.diagnostics_.text
    with pytest.warns(ConvergenceWarning, match="the noise is correlated over more than the sample of 4000 rows"):
        run.predict([[1.0]], return_interval=0.9)


def test_what_features_explain_does_not_depend_on_weights_of_one_policy() -> None:
    """Tabular features represent all values, whatever the weights."""
    rng = np.random.default_rng(0)
    states = rng.integers(0, 5, N_ROWS + 1)
    log = from_arrays(
        states[:-1], states[:-1] + rng.normal(size=N_ROWS), states[1:], weight=rng.lognormal(0.0, 0.8, N_ROWS)
    )
    diagnostics = vrtd.Evaluator("closed_form", features=Tabular(5), discount=0.9).fit(log).diagnostics_
    assert diagnostics.explained is not None
    assert diagnostics.explained > 0.95
    assert diagnostics.limit != "features"


def test_a_column_of_small_numbers_counts_in_the_rank() -> None:
    scale = np.array([1.0, 1.0, 1.0, 1e-6])
    rows = chunk(0, N_ROWS)
    small = rows._replace(observations=rows.observations * scale, next_observations=rows.next_observations * scale)
    evaluator = vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(small)
    assert evaluator.diagnostics_.rank == 4
    plain = vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(rows)
    np.testing.assert_allclose(evaluator.theta_ * scale, plain.theta_, rtol=1e-6)


def test_data_without_noise_and_an_exact_start_are_not_warned_of() -> None:
    rows, start = chunk(0, 6000), np.arange(1.0, 5.0)
    exact = rows._replace(reward=rows.observations @ start - DISCOUNT * (rows.next_observations @ start))
    for algorithm in ("vrtd", "td"):
        evaluator = vrtd.Evaluator(algorithm, features=None, discount=DISCOUNT, theta_0=start, n_samples=6000).fit(
            exact
        )
        np.testing.assert_allclose(evaluator.theta_, start, rtol=1e-9)


@pytest.mark.parametrize("scale", [0.0, 1e65])
def test_rows_of_zeros_and_huge_rows_are_learned_from(scale: float) -> None:
    rows = scaled(chunk(0, 2000), np.full(2000, scale))
    if scale:
        assert np.isfinite(
            vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(rows).predict(rows.observations)
        ).all()
    else:
        evaluator = vrtd.Evaluator(vrtd.TD(0.1), features=None, discount=DISCOUNT).fit(rows)
        assert np.array_equal(evaluator.predict(rows.observations), np.zeros(2000))


def test_nearly_dependent_columns_are_warned_of() -> None:
    rows = chunk(0, 20_000)
    phi, phi_next = rows.observations.copy(), rows.next_observations.copy()
    for table in (phi, phi_next):
        table[:, 3] = table[:, 2] + 1e-6 * table[:, 3]
    log = rows._replace(observations=phi, next_observations=phi_next)
    evaluator = vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(log)
    assert np.isfinite(evaluator.predict(phi[:3])).all()  # the direction that rounding hides is left out
    data = vrtd.Transitions(phi, rows.reward, phi_next, DISCOUNT)
    with pytest.warns(AccuracyWarning, match="A has condition number"):
        _ = data.theta_star


def test_predict_checks_the_sample_only_when_it_has_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample is looked at anew only when it has doubled."""
    made: list[int] = []

    def counted(state: Any) -> Transitions:
        made.append(state.n_sampled)
        return sample_of(state)

    monkeypatch.setattr(summary, "sample_of", counted)
    evaluator = vrtd.Evaluator(vrtd.TD(0.05), features=None, discount=DISCOUNT)
    for first in range(0, 6000, 100):
        evaluator.partial_fit(chunk(first, first + 100))
        evaluator.predict(chunk(0, 1).observations)
    assert len(made) <= 9


def test_states_that_share_a_value_are_warned_of() -> None:
    """The first rows show three of twelve states; the others are pooled."""
    rng = np.random.default_rng(0)
    states = np.concatenate([rng.integers(0, 3, 6000), rng.integers(0, 12, 600)])
    with pytest.warns(DataWarning, match=r"6\.\d % of the rows are in states that do not occur in the pilot rows"):
        evaluator = vrtd.Evaluator(discount=0.5).fit(from_arrays(states, states / 10.0))
    assert any("share one value" in warning for warning in evaluator.diagnostics_.warnings)
    assert (
        vrtd.Evaluator(discount=0.5).fit(from_arrays(states[:6000], states[:6000] / 10.0)).diagnostics_.warnings == ()
    )


def test_features_that_represent_little_are_warned_of() -> None:
    """A constant for values that differ: the fit converges, and is far from them."""
    states = np.arange(9000) % 3
    log = from_arrays(states, np.where(states == 0, 9.0, 0.0))
    poor = vrtd.Evaluator(features=lambda s: np.ones((len(s), 1)), discount=0.5).fit(log).diagnostics_
    assert any("the features represent only 0 %" in warning for warning in poor.warnings)
    assert vrtd.Evaluator(discount=0.5).fit(log).diagnostics_.warnings == ()


def test_the_representation_lists_few_of_many_unseen_features() -> None:
    for n_states, shown in ((40, "unseen=(1, 3, "), (90, "19, 21, 23, 25, 27, 29, 31, 33, 35, 37, 39, ... 45 in all)")):
        states = np.arange(2000) * 2 % n_states
        log = from_arrays(states, np.ones(2000), np.roll(states, -1))
        found = vrtd.Evaluator(features=Tabular(n_states), discount=0.5).fit(log).diagnostics_
        assert shown in repr(found)
        assert len(found.as_dict()["unseen"]) == n_states // 2


@pytest.mark.parametrize("n_values", [40, 3_000])  # 3,000 values make sparse rows
@pytest.mark.parametrize("options", [{}, {"cost": "linear", "pilot_rows": 4_000}], ids=["auto", "linear"])
def test_values_that_an_encoder_did_not_see_have_a_warning(n_values: int, options: dict[str, Any]) -> None:
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    encoder = pytest.importorskip("sklearn.compose").make_column_transformer(
        (preprocessing.OneHotEncoder(handle_unknown="ignore"), [0, 1]), (preprocessing.StandardScaler(), [2])
    )
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N_ROWS + 1, 3))
    x[:, :2] = np.column_stack([np.arange(N_ROWS + 1) * 7 % n_values, rng.integers(0, 3, N_ROWS + 1)])
    seen = from_arrays(x[:-1].copy(), x[:-1, 2], x[1:].copy())
    x[-2_400:, 0] = n_values  # one of two columns in a fifth of the rows
    late = from_arrays(x[:-1], x[:-1, 2], x[1:])

    def fit(features: Any, log: Any) -> vrtd.Evaluator:
        return vrtd.Evaluator(features=features, discount=0.5, **options).fit(log)

    n = options.get("pilot_rows", 5_000)
    fitted = f"the transformer ColumnTransformer was fitted to the first {n:,} rows"
    with pytest.warns(DataWarning, match=rf"^T{fitted[1:]}, and 10 % of all values that it encodes have no feature"):
        diagnostics = fit(encoder, late).diagnostics_
    assert not any(remark.startswith(fitted) for remark in diagnostics.remarks)
    assert f"{fitted}. Fit it to all rows first if it learns a vocabulary" in fit(encoder, seen).diagnostics_.remarks
    assert "ransformer" not in fit(encoder.fit(x), late).diagnostics_.text
