"""Arguments, calls and rows that the estimator refuses, with the place of a bad row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import vrtd
from tests.helpers.fits import SETTINGS, N, fitted, make_evaluator, weighted, whole_fit
from tests.helpers.some_logs import DISCOUNT, chunk
from vrtd.errors import (
    DataError,
    DivergenceError,
    InvalidInputError,
    NotFittedError,
    StabilityWarning,
)
from vrtd.features import Tabular
from vrtd.logs import Chunk, from_arrays

TD = vrtd.TD(0.01)
N_ROWS = 12_000


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"discount": 1.5}, "discount must lie in"),
    ({"discount": [0.9]}, "discount must lie in"),
    ({"algorithm": "vrdt"}, "Did you mean 'vrtd'"),
    ({"step_size": 0.0}, "step_size must be a positive"),
    ({"step_size": "big"}, "step_size must be a number or 'auto'"),
    ({"batch_size": 1.5}, "batch_size must be a whole number"),
    ({"algorithm": "td", "batch_size": 5}, "batch_size=5 has no effect on td"),
    ({"algorithm": "closed_form", "step_size": 0.1}, "step_size=0.1 has no effect on closed_form"),
    (
        {"algorithm": vrtd.TD(0.1), "step_size": 0.1},
        "step_size cannot be combined with an algorithm that has its own settings",
    ),
    ({"n_samples": 0}, "n_samples must be a whole number"),
    ({"pilot_rows": 0}, "pilot_rows must be a whole number"),
    ({"seed": -1}, "seed must be a whole number"),
    ({"closed_form": 1}, "closed_form must be True or False"),
    ({"features": 7}, "features must be"),
    ({"theta_0": [np.nan]}, "theta_0 must be finite"),
]


@pytest.mark.parametrize(("settings", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_bad_arguments_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        vrtd.Evaluator(**({"discount": 0.9} | settings))


def test_arguments_that_do_not_exist_are_named_with_those_that_were_meant(tmp_path: Any) -> None:
    evaluator = vrtd.Evaluator("closed_form", features=None, discount=0.9)
    problem = "There is no keyword argument "
    with pytest.raises(InvalidInputError, match=rf"{problem}'observation'\. Did you mean 'observations'\?"):
        evaluator.fit({"a": [1.0]}, observation="a")  # type: ignore[call-arg]
    for wrong, meant in (("samples", "n_samples"), ("n_sample", "n_samples"), ("rewards", "reward")):
        with pytest.raises(InvalidInputError, match=rf"{problem}'{wrong}'\. Did you mean '{meant}'\?"):
            vrtd.evaluate("FrozenLake-v1", discount=0.9, out=tmp_path / "out", **{wrong: 5})
    with pytest.raises(InvalidInputError, match=rf"{problem}'zzz'\. See vrtd.logs.read"):
        evaluator.partial_fit(chunk(0, 10), zzz=1)  # type: ignore[call-arg]
    assert not (tmp_path / "out").exists()


def test_a_dict_of_columns_is_a_table(tmp_path: Any) -> None:
    rows = chunk(0, 400)
    columns = {f"x_{j}": column for j, column in enumerate(rows.observations.T)}
    columns |= {f"next_x_{j}": column for j, column in enumerate(rows.next_observations.T)}
    named: Any = {"observations": "x_*", "next_observations": "next_x_*", "reward": "r"}
    evaluator = vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(
        columns | {"r": rows.reward}, **named
    )
    expected = vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(from_arrays(*rows[:3]))
    np.testing.assert_array_equal(evaluator.theta_, expected.theta_)
    for wrong in ({"a": [1.0], "b": [1.0, 2.0]}, {"a": 1.0}, {"a": np.zeros((2, 2))}):
        with pytest.raises(
            DataError, match=r"A dict of data must hold columns of equal length.* use vrtd.logs.from_arrays"
        ):
            evaluator.fit(wrong)
    with pytest.raises(DataError, match=r"CartPole-v1 does not exist. .*for an environment use vrtd.logs.from_env"):
        evaluator.fit("CartPole-v1")


def test_bad_calls_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="theta_0 must have the shape"):
        fitted(theta_0=[1.0, 2.0])
    with pytest.raises(InvalidInputError, match="data must be a path, a pattern, a list of them, or a table"):
        vrtd.Evaluator("vrtd", features=None, discount=0.9).fit([1, 2, 3])
    evaluator = fitted(algorithm="closed_form")
    for level in (0.0, 1.0, True, "0.9"):
        with pytest.raises(InvalidInputError, match="level must lie"):
            evaluator.theta_interval(level)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="method='recursion' does not apply to the closed form"):
        evaluator.theta_interval(method="recursion")
    with pytest.raises(InvalidInputError, match="method must be one of"):
        evaluator.theta_interval(method="bootstrap")  # type: ignore[arg-type]
    rows = chunk(0, 100)
    with pytest.raises(DataError, match="must have the same length"):
        evaluator.partial_fit(rows._replace(reward=rows.reward[:-1]))
    with pytest.raises(DataError, match="next observations of a chunk are float32, but its observations are float64"):
        evaluator.partial_fit(rows._replace(next_observations=rows.next_observations.astype("f4")))
    with pytest.raises(NotFittedError, match="received 0 of 5,000 pilot rows"):
        vrtd.Evaluator("vrtd", features=None, discount=0.9).predict([[1.0]])
    n_numbers = rows.observations.shape[1]
    for bad in (np.nan, np.inf):
        with pytest.raises(InvalidInputError, match=r"observations must be finite, but got \w+ at index \(1, 0\)"):
            evaluator.predict([[1.0] * n_numbers, [bad] * n_numbers])
    for arguments, name in (((None, [1.0]), "observations"), (([[1.0]], None), "reward")):
        with pytest.raises(DataError, match=f"{name} must be an array with one entry per step, but is None"):
            from_arrays(*arguments)  # type: ignore[arg-type]
    waiting = vrtd.Evaluator(features="rbf:4", discount=0.9).partial_fit(rows)
    with pytest.raises(NotFittedError, match="received only 100 of 5,000 pilot rows"):
        _ = waiting.theta_


def test_every_sparse_matrix_is_valued_and_a_sparse_vector_is_refused() -> None:
    rng = np.random.default_rng(0)
    phi = scipy.sparse.random_array((400, 5), density=0.5, rng=rng, format="csr")
    found = vrtd.Evaluator("closed_form", features="identity", discount=0.5)
    found.fit(from_arrays(phi[:-1], rng.normal(size=399), phi[1:]))
    for form in ("bsr", "coo", "csc", "csr", "dia", "dok", "lil"):
        np.testing.assert_array_equal(found.predict(phi[:3].asformat(form)), found.predict(phi[:3]))
    with pytest.raises(DataError, match=r"Pass a matrix with one row per observation, for example phi\[\[0\]\]\."):
        found.predict(phi[0])


@pytest.mark.parametrize(
    "call",
    [
        lambda: vrtd.evaluate(from_arrays(*chunk(0, 10)[:3]), discount=0.9, out=None),  # type: ignore[arg-type]
        lambda: vrtd.reproduce("bounds", out=5),  # type: ignore[arg-type]
        lambda: vrtd.compare(out=5),  # type: ignore[arg-type]
        lambda: vrtd.sweep("random_mdp", "td", {"step_size": [0.1]}, out=5),  # type: ignore[arg-type]
        lambda: vrtd.logs.write(from_arrays(*chunk(0, 10)[:3]), None),  # type: ignore[arg-type]
    ],
)
def test_a_path_of_another_type_is_refused(call: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"(out|path) must be a path, but is (None|5)\. Pass a str"):
        call()


BAD = [
    ("observations", 5, np.nan, r"[ n]observations? is .*row 5 of the log"),
    ("next_observations", 13_000, np.inf, r"next.observations? is .*row 13000 of the log"),
    ("reward", 19_999, np.nan, "reward is .*row 19999 of the log"),
]


@pytest.mark.parametrize(("field", "row", "value", "message"), BAD, ids=[case[0] for case in BAD])
@pytest.mark.parametrize("name", SETTINGS)
def test_a_number_that_is_not_finite_is_named_and_leaves_no_trace(
    field: str, row: int, value: float, message: str, name: str
) -> None:
    settings = SETTINGS[name]
    if settings.get("features") is not None and field == "next_observations":
        message = r"next.observation"
    good = chunk(0, N)
    values = getattr(good, field).copy()
    values[row] = value
    evaluator = make_evaluator(**settings)
    pieces = [(0, 2000), (2000, 12_990), (12_990, N)]
    for first, last in pieces:
        part = Chunk(*(array[first:last] for array in good._replace(**{field: values})[:5]))
        if first <= row < last:
            with pytest.raises(DataError, match=message):
                evaluator.partial_fit(part)
        evaluator.partial_fit(chunk(first, last))
    assert evaluator.theta_.tobytes() == whole_fit(name).theta_.tobytes()


def test_a_bad_row_is_located_by_its_source() -> None:
    rows = chunk(0, 300)._replace(reward=np.where(np.arange(300) == 250, np.nan, 0.0))
    located = rows._replace(locate=lambda field, row: f"a.parquet, {field}, row {row + 1000}")
    with pytest.raises(DataError, match=r"a\.parquet, reward, row 1250"):
        vrtd.Evaluator(vrtd.VRTD(0.1, 70), features=None, discount=0.9).partial_fit(located)


def test_a_step_that_diverges_is_refused() -> None:
    with pytest.raises(DivergenceError, match="Lower the step size"):
        fitted(algorithm=vrtd.TD(30.0))
    with pytest.warns(StabilityWarning, match="on the first 5,000 rows, errors grow without bound"):
        evaluator = vrtd.Evaluator(vrtd.TD(1.5), features=None, discount=DISCOUNT).fit(chunk(0, 5000))
    assert "above the stability limit" in evaluator.diagnostics_.text


def test_discount_one_needs_ends() -> None:
    rows = chunk(0, 6000)
    for algorithm in ("vrtd", "closed_form", vrtd.TD(0.01)):
        with pytest.raises(InvalidInputError, match="discount must be below 1 if no transition terminates"):
            vrtd.Evaluator(algorithm, features=None, discount=1.0).fit(rows)
    ends = np.arange(6000) % 10 == 9
    vrtd.Evaluator("closed_form", features=None, discount=1.0).fit(rows._replace(terminated=ends))


@pytest.mark.parametrize("algorithm", [TD, "closed_form", "vrtd"], ids=["td", "closed_form", "auto"])
@pytest.mark.parametrize(("one", "other"), [(weighted, chunk), (chunk, weighted)])
@pytest.mark.parametrize("at", [300, 450])  # inside the pilot and after it
def test_all_rows_have_weights_or_none(algorithm: Any, one: Any, other: Any, at: int) -> None:
    """A loop that was compiled for weights would read beyond an array without any."""
    evaluator = vrtd.Evaluator(algorithm, features=None, discount=DISCOUNT, pilot_rows=400).partial_fit(one(0, at))
    with pytest.raises(DataError, match="Some parts of the log have weights, and others have none"):
        evaluator.partial_fit(other(at, 500))
    assert evaluator.n_rows_ == at
    evaluator.partial_fit(one(at, 500))
    assert evaluator.n_rows_ == 500


@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.5])
@pytest.mark.parametrize("algorithm", [TD, "closed_form", "vrtd"], ids=["td", "closed_form", "auto"])
def test_a_weight_that_is_no_ratio_is_named(algorithm: Any, bad: float) -> None:
    rows, weight = chunk(0, 500), np.ones(500)
    weight[10] = bad
    log = from_arrays(rows.observations, rows.reward, rows.next_observations, weight=weight)
    for source, place in ((log, "array weight, row 10"), (rows._replace(weight=weight), "row 10 of the log")):
        with pytest.raises(DataError, match=place):
            vrtd.Evaluator(algorithm, features=None, discount=DISCOUNT, pilot_rows=400).fit(source)


@pytest.mark.parametrize("algorithm", [TD, "closed_form"], ids=["td", "closed_form"])
def test_discount_one_is_refused_on_a_log_that_is_shorter_than_the_pilot(algorithm: Any) -> None:
    with pytest.raises(InvalidInputError, match="discount must be below 1 if no transition terminates"):
        vrtd.Evaluator(algorithm, features=None, discount=1.0).fit(chunk(0, 300))
    ends = np.arange(300) == 299
    vrtd.Evaluator(algorithm, features=None, discount=1.0).fit(chunk(0, 300)._replace(terminated=ends))


FIELDS: list[tuple[str, Any]] = [
    ("reward", np.ones(300, np.float32)),
    ("reward", np.ones((300, 1))),
    ("terminated", [False] * 300),
    ("truncated", np.zeros(300, np.int8)),
    ("weight", np.ones(300, np.int64)),
    ("action", np.array(["a"] * 300)),
    ("action", np.ones((300, 2), np.int64)),
    ("propensity", np.ones(300, np.int64)),
    ("starts", np.ones(300)),
]


@pytest.mark.parametrize(("field", "value"), FIELDS, ids=[f"{field} {np.shape(value)}" for field, value in FIELDS])
def test_fields_of_a_chunk_are_of_the_types_that_it_says(field: str, value: Any) -> None:
    with pytest.raises(DataError, match=f"The field '{field}' of a chunk must be an array with one"):
        vrtd.Evaluator(TD, features=None, discount=DISCOUNT).partial_fit(chunk(0, 300)._replace(**{field: value}))


def test_the_first_bad_row_is_named_whatever_its_field() -> None:
    rows = chunk(0, 300)
    observations, reward = rows.observations.copy(), rows.reward.copy()
    observations[50], reward[20] = np.nan, np.nan
    with pytest.raises(DataError, match=r"reward is .*row 20 of the log"):
        make_evaluator(algorithm=TD).fit(rows._replace(observations=observations, reward=reward))


@pytest.mark.parametrize(("rows", "reward"), [(1e160, 1.0), (1e-160, 1.0), (1.0, 1e160), (1.0, 1e-160)])
def test_huge_and_tiny_numbers_are_refused(rows: float, reward: float) -> None:
    good = chunk(0, N_ROWS)
    odd = good._replace(
        observations=rows * good.observations,
        next_observations=rows * good.next_observations,
        reward=reward * good.reward,
    )
    with pytest.raises(InvalidInputError, match=r"Rescale the (features|rewards)"):
        vrtd.Evaluator("vrtd", features=None, discount=0.9).fit(odd)
    with pytest.raises(InvalidInputError, match=r"[Ss]cale"):
        _ = vrtd.Evaluator("closed_form", features=None, discount=0.9).fit(odd).diagnostics_


def test_observations_of_another_width_before_the_pilot() -> None:
    evaluator = vrtd.Evaluator("vrtd", features=None, discount=0.9).partial_fit(chunk(0, 600))
    narrow = Chunk(*(values[:, :3].copy() if values.ndim == 2 else values for values in chunk(600, 900)[:5]))
    with pytest.raises(DataError, match="must have the same shape in all rows"):
        evaluator.partial_fit(narrow)
    assert evaluator.n_rows_ == 600


def test_discount_one_leaves_no_trace_and_is_refused_for_short_logs() -> None:
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.001, 100), features=None, discount=1.0).partial_fit(chunk(0, 4000))
    before = evaluator.theta_
    for _ in range(2):
        with pytest.raises(InvalidInputError, match="discount must be below 1 if no transition terminates"):
            evaluator.partial_fit(chunk(4000, 6000))
        assert evaluator.n_rows_ == 4000
        assert np.array_equal(evaluator.theta_, before)
    with pytest.raises(InvalidInputError, match="discount must be below 1 if no transition terminates"):
        vrtd.Evaluator("closed_form", features=None, discount=1.0).fit(chunk(0, 1000))
    evaluator.partial_fit(chunk(4000, 6000)._replace(terminated=np.arange(2000) == 7))  # one end is enough


def test_what_features_refuse_is_located() -> None:
    states = np.arange(N_ROWS + 1) % 4
    states[9000] = 9
    log = from_arrays(states[:-1], np.ones(N_ROWS), states[1:])
    with pytest.raises(DataError, match="row 9000"):
        vrtd.Evaluator("closed_form", features=Tabular(4), discount=0.9).fit(log)
    rows = Chunk(
        states[:-1], np.ones(N_ROWS), np.zeros(N_ROWS, np.int64), np.zeros(N_ROWS, bool), np.zeros(N_ROWS, bool)
    )
    located = rows._replace(locate=lambda field, row: f"log.csv, {field}, line {row + 2}")
    with pytest.raises(DataError, match=r"log\.csv, observations, line 9002"):
        vrtd.Evaluator("closed_form", features=Tabular(4), discount=0.9).fit(located)


def test_parameters_before_any_row() -> None:
    with pytest.raises(NotFittedError, match="Call fit or partial_fit"):
        _ = vrtd.Evaluator("vrtd", features=None, discount=0.9).theta_
    with pytest.raises(InvalidInputError, match="discount must lie in"):
        vrtd.Evaluator("vrtd", features=None, discount=True)
