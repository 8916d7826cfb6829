"""`vrtd.evaluate`: the files of an evaluation, what its page says, and what leaves nothing behind."""

from __future__ import annotations

import json
import runpy
import sys
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow.parquet
import pytest

import vrtd
from tests.helpers.notebooks import check_repr, read_summary
from tests.helpers.pages import HOSTILE, IMAGE, Outline, check_scripts
from vrtd.errors import ConvergenceWarning, DataError, InvalidInputError, MissingExtraError
from vrtd.estimator import EvaluationInterrupted, evaluate
from vrtd.estimator.page import MEANING
from vrtd.estimator.state_values import LogSummary
from vrtd.files import locked
from vrtd.logs import Chunk, Log, from_arrays, read, write
from vrtd.report.numbers import interval
from vrtd.tables import parse_csv

FILES = {"report.html", "model.npz", "values.parquet", "diagnostics.json", "figures"}
N = 4000


def rows(n: int = N, k: int = 1, dtype: Any = np.float64) -> tuple[Any, ...]:
    """A walk on (0, 1)^k that forgets, with a reward of its first number."""
    rng = np.random.default_rng(7)
    x = np.empty((n + 1, k))
    x[0] = 0.5
    for i, draw in enumerate(rng.random((n, k))):
        x[i + 1] = 0.5 * x[i] + 0.5 * draw
    return x[:-1].astype(dtype), x[:-1, 0] + rng.normal(size=n), x[1:].astype(dtype)


def walk(n: int = N, k: int = 1) -> Log:
    return from_arrays(*rows(n, k))


def states(n: int = N, n_states: int = 4) -> Log:
    rng = np.random.default_rng(8)
    s = rng.integers(n_states, size=n + 1)
    return from_arrays(s[:-1], s[:-1] + rng.normal(size=n), s[1:])


def vrtd_settings(features: Any = "rbf:4", **rest: Any) -> dict[str, Any]:
    """Settings that are given: nothing waits for a pilot."""
    options = {"discount": 0.5, "step_size": 0.2, "batch_size": 100, "pilot_rows": 500, "closed_form": True}
    return {"algorithm": "vrtd", "features": features} | options | rest


def least_squares(features: Any = "rbf:4") -> dict[str, Any]:
    return {"algorithm": "closed_form", "features": features, "discount": 0.5, "pilot_rows": 500}


class Interrupted(Log):
    """Ctrl-C after so many rows."""

    n_rows = N

    def __init__(self, after: int) -> None:
        self._after = after

    def chunks(self) -> Any:
        whole = next(iter(walk().chunks()))
        if self._after:
            yield Chunk(*(None if values is None else values[: self._after] for values in whole[:6]))
        raise KeyboardInterrupt


@pytest.fixture(scope="module")
def done(tmp_path_factory: Any) -> Any:
    return evaluate(walk(), **vrtd_settings(), out=tmp_path_factory.mktemp("done") / "deep" / "out", title="A walk")


# What is written


def test_files(done: Any) -> None:
    assert {path.name for path in done.out.iterdir()} == FILES
    figures = {path.name for path in (done.out / "figures").iterdir()}
    names = ("values", "intervals", "convergence", "errors")
    assert figures == {f"{name}.{suffix}" for name in names for suffix in ("svg", "csv")}
    assert done.report == done.out / "report.html"
    for path in (done.out / "figures").glob("*.svg"):
        assert ElementTree.fromstring(path.read_text()).tag.endswith("svg")


def test_values_are_the_model_s(done: Any) -> None:
    table = pyarrow.parquet.read_table(done.out / "values.parquet", page_checksum_verification=True)
    columns = {name: table[name].to_numpy() for name in table.column_names}
    assert list(columns) == ["observation", "value", "low", "high", "n_rows"]
    x = rows()[0]
    assert columns["observation"][[0, -1]].tolist() == [x.min(), x.max()]
    model = vrtd.Evaluator.load(done.out / "model.npz")
    found = model.predict(columns["observation"][:, None], return_interval=0.95)
    for name in ("value", "low", "high"):
        assert np.array_equal(columns[name], getattr(found, name))
    as_log = read(done.out / "values.parquet", observations="observation", reward="value")
    assert as_log.remarks == ()  # not that its integrity cannot be verified
    written = parse_csv((done.out / "figures" / "values.csv").read_bytes())
    assert all(np.array_equal(written[name], columns[name]) for name in columns)


def test_the_answer_and_the_diagnostics(done: Any) -> None:
    model = vrtd.Evaluator(**vrtd_settings(), n_samples=N).fit(walk())
    mean = model.mean_value(0.95)
    assert (done.answer.value, done.answer.low, done.answer.high) == (mean.value, mean.low, mean.high)
    closed_form = model.mean_value(0.95, method="closed_form")
    assert done.closed_form.value == closed_form.value
    stored = json.loads((done.out / "diagnostics.json").read_text())
    assert stored["policy_value"] is None
    assert stored["mean_value"]["value"] == done.mean_value.value == done.answer.value
    assert stored["diagnostics"]["text"] == done.diagnostics.text
    assert stored["data"]["n_rows"] == N
    assert stored["interrupted"] is False
    assert stored["features"]["kind"] == "rbf"
    assert {"vrtd", "numpy", "pyarrow"} <= set(stored["versions"])
    assert done.as_dict()["files"]["model"] == str(done.out / "model.npz")
    json.dumps(done.as_dict(), allow_nan=False)


def test_the_page_says_it(done: Any) -> None:
    outline = Outline(done.report.read_text())
    value, low, high = interval(done.answer.value, done.answer.low, done.answer.high)
    text = " ".join(outline.text.split())
    assert f"Mean value {value} (95 % interval {low} to {high})" in text
    verdict = "Converged" if done.diagnostics.converged else "Not converged"
    assert f"{verdict} 4,000 rows, discount 0.5" in text
    assert "Largest error source: " in text
    assert f"The closed form (least squares) gives {done.closed_form}." in text
    assert text.index("Largest error source: ") < text.index("Rank 5 of 5")  # terms of the theory are further down
    assert MEANING in text
    assert "Interrupted" not in text
    for words in ("Step size 0.2 ", "Batch size 100", "Rank 5 of 5", "Terminated 0 (no", "Truncated 0 (boot", "A walk"):
        assert words in text
    assert len([each for each in outline.having("src") if each.startswith(IMAGE)]) == 4


def test_the_page_stands_alone(done: Any) -> None:
    text = done.report.read_text()
    outline = Outline(text)
    check_scripts(text)
    assert all(address.startswith("./figures/") for address in outline.having("href"))
    assert all((done.out / address).is_file() for address in outline.having("href"))
    ids = outline.having("id")
    assert len(ids) == len(set(ids))
    assert set(outline.having("aria-labelledby")) <= set(ids)
    levels = [int(tag[1]) for tag, _ in outline.tags if tag in ("h1", "h2", "h3")]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_same_rows_give_the_same_bytes(done: Any, tmp_path: Any) -> None:
    again = evaluate(walk(), **vrtd_settings(), out=tmp_path, title="A walk")
    for path in sorted(done.out.rglob("*")):
        if path.is_file():
            assert (again.out / path.relative_to(done.out)).read_bytes() == path.read_bytes(), path.name


# States at hand


def test_two_numbers_make_two_maps(tmp_path: Any) -> None:
    done = evaluate(walk(k=2), **least_squares(), out=tmp_path, names=["here", "there"], level=0.5)
    halves, values = (
        parse_csv((tmp_path / "figures" / f"{name}.csv").read_bytes()) for name in ("half-widths", "values")
    )
    assert list(halves) == ["here", "there", "half_width", "n_rows"]
    assert len(values["value"]) == 61 * 61
    assert np.allclose(halves["half_width"], (values["high"] - values["low"]) / 2.0)
    x = rows(k=2)[0]
    assert values["there"].min() == x[:, 1].min()
    assert values["here"].max() == x[:, 0].max()
    for name in ("values", "half-widths"):
        svg = (tmp_path / "figures" / f"{name}.svg").read_text()
        assert ">here<" in svg
        assert "data:image/png;base64," in svg
    assert not (tmp_path / "figures" / "convergence.svg").exists()
    text = Outline(done.report.read_text()).text
    assert "closed form (LSTD)" in text
    assert "(50 % interval " in " ".join(text.split())
    assert done.closed_form is None


def test_numbered_states_are_all_valued_and_those_not_visited_are_named(tmp_path: Any) -> None:
    done = evaluate(states(), **least_squares("tabular:6"), out=tmp_path, shape=(2, 3))
    table = pyarrow.parquet.read_table(tmp_path / "values.parquet").to_pydict()
    assert table["state"] == [0, 1, 2, 3, 4, 5]
    assert np.isfinite(table["low"][:4]).all()
    assert table["low"][4:] == [-np.inf, -np.inf]
    assert len(parse_csv((tmp_path / "figures" / "intervals.csv").read_bytes())["rank"]) == 4
    text = " ".join(Outline(done.report.read_text()).text.split())
    assert "States not visited 2: 4, 5" in text
    assert "4 of 6 states visited" in text
    svg = (tmp_path / "figures" / "values.svg").read_text()
    assert svg.count("± ") == 4  # one for each cell that is known


class OwnFeatures(vrtd.features.Features):
    n_features = 2

    def __call__(self, observations: Any) -> Any:
        return np.stack([np.ones(len(observations)), observations[:, 0]], axis=1)


def test_a_class_of_features_of_the_user_need_not_be_stored(tmp_path: Any) -> None:
    found = evaluate(walk(), **least_squares(OwnFeatures()), out=tmp_path)
    assert "of your own code, 2 features" in found.report.read_text()
    with pytest.raises(InvalidInputError, match="OwnFeatures features cannot be stored"):
        _ = OwnFeatures().settings


def test_a_board_and_a_title_may_be_other_than_tuple_and_text(tmp_path: Any) -> None:
    found = evaluate(states(), **least_squares("tabular:4"), out=tmp_path, shape=np.array([2, 2]), title=Path("log"))
    assert "<h1>log</h1>" in found.report.read_text()


def test_states_without_a_board_are_a_row_of_points(tmp_path: Any) -> None:
    evaluate(states(), **least_squares("tabular:6"), out=tmp_path)
    svg = (tmp_path / "figures" / "values.svg").read_text()
    assert ">state<" in svg
    assert "± " not in svg


def test_whole_numbers_are_not_split(tmp_path: Any) -> None:
    evaluate(states(), **least_squares("polynomial:1"), out=tmp_path)
    assert pyarrow.parquet.read_table(tmp_path / "values.parquet").to_pydict()["observation"] == [0, 1, 2, 3]


def test_many_numbers_are_listed_as_they_came(tmp_path: Any) -> None:
    x, r, y = rows(600, k=3)
    x[1] = x[0]
    evaluate(from_arrays(x, r, y), **least_squares(None), out=tmp_path)
    table = pyarrow.parquet.read_table(tmp_path / "values.parquet").to_pydict()
    assert list(table)[:3] == ["observation_0", "observation_1", "observation_2"]
    assert table["observation_2"] == [x[0, 2], *x[2:258, 2]][:256]
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"effect-1.svg", "effect-3.csv", "extremes.csv"} <= names
    assert not {"values.svg", "effect-4.svg"} & names
    evaluate(walk(), **least_squares(), out=tmp_path)  # what it does not have is removed
    assert not {"effect-1.svg", "effect-3.csv", "extremes.csv"} & {
        path.name for path in (tmp_path / "figures").iterdir()
    }


def words(n: int = N) -> dict[str, Any]:
    """Two columns of text, the second of which is sometimes missing, and a number."""
    rng = np.random.default_rng(5)
    a, b = rng.choice([f"w{i}" for i in range(10)], n), rng.choice(["é", "b", None], n)
    return {"a": a, "b": b, "x": rng.normal(size=n), "r": 3.0 * (a == "w3") + rng.normal(size=n)}


@pytest.mark.parametrize("names", [["a"], ["a", "x"], ["a", "b"], ["a", "b", "x"]])
@pytest.mark.parametrize("is_read_once", [False, True])
def test_hashed_text_is_shown_and_read_back(names: list[str], is_read_once: bool, tmp_path: Any) -> None:
    table = pyarrow.table(words())
    source: Any = table.to_reader(1_000) if is_read_once else table
    done = evaluate(source, observations=names, missing="indicator", features="hash:16", discount=0.5, out=tmp_path)
    values = pyarrow.parquet.read_table(tmp_path / "values.parquet")
    assert values.schema.names == [*names, "value", "low", "high"]
    assert set(values["a"].to_pylist()) == {f"w{i}" for i in range(10)}
    figures = {path.name for path in (tmp_path / "figures").iterdir()}
    assert "values.svg" not in figures  # no map over hashes
    assert {f"effect-{k + 1}.svg" for k in range(len(names))} <= figures
    assert parse_csv((tmp_path / "figures" / "extremes.csv").read_bytes())["a"][0] == "w3"
    effect = parse_csv((tmp_path / "figures" / "effect-1.csv").read_bytes())
    assert sorted(effect["a"]) == [f"w{i}" for i in range(10)]
    assert effect["a"][np.argmax(effect["value"])] == "w3"
    text = " ".join(Outline(done.report.read_text()).text.split())
    assert "Mean value by a" in text
    assert "Always zero at least 10,000 As JSON" in text
    assert "10,000 numbers, listed in diagnostics.json" in text
    assert "unknown text" not in text
    is_known = np.ones(len(values), bool)
    if "b" in names:
        assert set(values["b"].to_pylist()) == {"b", "é", "missing text"}
        is_known = np.array(values["b"].to_pylist()) != "missing text"
    again = vrtd.Evaluator.load(tmp_path / "model.npz").predict(values.select(names))
    np.testing.assert_array_equal(again[is_known], values["value"].to_numpy()[is_known])


def test_text_that_is_not_known_is_said_to_be_so(tmp_path: Any) -> None:
    table = pyarrow.table(words(12_000) | {"a": [f"w{i}" for i in range(12_000)], "t": -np.arange(12_000)})
    options: dict[str, Any] = {"features": "hash:16", "discount": 0.5}
    evaluate(table, observations=["a", "x"], order_by="t", **options, out=tmp_path / "sorted")
    write(read(table, observations=["a", "x"], text="hash"), tmp_path / "log.parquet")
    evaluate(tmp_path / "log.parquet", **options, out=tmp_path / "stored")
    for name in ("sorted", "stored"):
        values = pyarrow.parquet.read_table(tmp_path / name / "values.parquet")
        assert set(values["a"].to_pylist()) == {"unknown text"}


def test_a_table_of_many_states_is_drawn(tmp_path: Path) -> None:
    """Beyond 128 states, a band replaces whiskers."""
    done = evaluate(states(n_states=200), **least_squares("tabular:200"), out=tmp_path)
    assert done.files
    assert (tmp_path / "report.html").exists()


def test_of_many_states_the_largest_possible_number_of_visited_ones_is_named(tmp_path: Any) -> None:
    done = evaluate(states(), **least_squares("tabular:20000") | {"algorithm": "auto"}, out=tmp_path)
    text = " ".join(Outline(done.report.read_text()).text.split())
    assert "at most 10,000 of 20,000 states visited" in text
    assert "States not visited at least 10,000" in text
    assert done.features == "tabular, at most 10,000 of 20,000 states visited"


def test_states_that_are_asked_for(tmp_path: Any) -> None:
    evaluate(walk(), **least_squares(), out=tmp_path, states=[[0.25], [0.75]])
    assert pyarrow.parquet.read_table(tmp_path / "values.parquet").to_pydict()["observation"] == [0.25, 0.75]


class Pieces(Log):
    """0, 1, 2, ... in chunks of a size that no power of two divides."""

    n_rows = 5000

    def chunks(self) -> Any:
        for first in range(0, 5000, 7):
            x = np.arange(float(first), float(min(first + 7, 5000)))
            none = np.zeros(len(x), bool)
            yield Chunk(x, x, x, none, none)


def test_a_log_is_summed_up_while_it_is_read_first() -> None:
    log = LogSummary(Pieces())
    assert sum(len(chunk.reward) for chunk in log.chunks()) == 5000
    assert log.first(3).tolist() == [0.0, 1.0, 2.0]
    list(log.chunks())  # a second pass is not looked at
    assert log.n_seen == 5000
    assert log.visits is not None
    assert (log.visits.n_rows, *log.visits.low, *log.visits.high) == (5000, 0.0, 4999.0)
    assert log.visits.near(np.array([[4000.0], [4000.5]]), 0.0).tolist() == [1, 0]


# Ctrl-C


def test_an_interruption_keeps_what_was_learned(tmp_path: Any) -> None:
    with pytest.raises(KeyboardInterrupt, match="interrupted after 3,000 rows") as stop:
        evaluate(Interrupted(3000), **vrtd_settings(), out=tmp_path)
    assert isinstance(stop.value, EvaluationInterrupted)
    assert {path.name for path in tmp_path.iterdir()} == FILES
    assert "Interrupted after 3,000 rows." in Outline((tmp_path / "report.html").read_text()).text
    assert json.loads((tmp_path / "diagnostics.json").read_text())["interrupted"] is True
    part = Chunk(*(None if v is None else v[:3000] for v in next(iter(walk().chunks()))[:6]))
    assert np.array_equal(
        vrtd.Evaluator.load(tmp_path / "model.npz").theta_, vrtd.Evaluator(**vrtd_settings()).partial_fit(part).theta_
    )


@pytest.mark.parametrize("after", [0, 100])
def test_an_interruption_before_anything_was_learned_leaves_nothing(tmp_path: Any, after: int) -> None:
    with pytest.raises(KeyboardInterrupt) as stop:
        evaluate(Interrupted(after), **vrtd_settings(step_size="auto"), out=tmp_path / "out")
    assert not isinstance(stop.value, EvaluationInterrupted)
    assert list(tmp_path.iterdir()) == []


# Bad input


def bad_log() -> Log:
    x, r, y = rows()
    r[3000] = np.nan
    return from_arrays(x, r, y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"source": {1, 2}},
            "source must be a Log, a table, files, a Gymnasium environment or its id, but is of type set",
        ),
        ({"policy": "random"}, "policy applies to environments, but the source is a log. Drop policy"),
        ({"n_envs": 2}, "n_envs applies to environments, but the source is a log"),
        ({"record": "rows.txt"}, "record must be a .parquet, .npz or .csv file, but is rows.txt"),
        ({"closed_form": 1}, "closed_form must be True or False, but got 1"),
        ({"level": 95}, r"level must lie in \(0, 1\), but got 95"),
        ({"n_passes": 0}, "n_passes must be a whole number of at least 1, but got 0"),
        ({"states": [[0.5, 0.5]]}, r"states must be observations like those of the log, of shape \(n, 1\)"),
        ({"states": []}, r"states must be observations like those of the log"),
        ({"n_samples": "many"}, "n_samples must be a whole number of at least 1, but got 'many'"),
        ({"names": ["a", "b"]}, "names must be 1 different words"),
        ({"names": ["value"]}, "names must be 1 different words"),
        (
            {**least_squares("tabular:4"), "source": states(), "shape": (2, 3)},
            "shape must be the numbers of rows and columns",
        ),
        (
            {**least_squares("tabular:4"), "source": states(), "shape": ()},
            "shape must be the numbers of rows and columns",
        ),
    ],
)
def test_refusals(tmp_path: Any, change: dict[str, Any], message: str) -> None:
    options = {"source": walk(), **least_squares()} | change
    with pytest.raises(InvalidInputError, match=message):
        evaluate(out=tmp_path / "a" / "b", **options)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["evaluation", "empty", "new"])
def test_bad_rows_leave_a_folder_as_it_was(tmp_path: Any, kind: str) -> None:
    out = tmp_path / "out"
    if kind == "evaluation":
        evaluate(walk(), **least_squares(), out=out)
        (out / "mine.txt").write_text("kept")
    elif kind == "empty":
        out.mkdir()
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(DataError, match="A number in reward is not finite"):
        evaluate(bad_log(), **vrtd_settings(), out=out)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert out.exists() is (kind != "new")


def test_an_earlier_evaluation_is_replaced_and_the_rest_stays(tmp_path: Any) -> None:
    evaluate(walk(k=2), **least_squares(), out=tmp_path)
    (tmp_path / "mine.txt").write_text("kept")
    (tmp_path / "figures" / "mine.svg").write_text("kept")
    evaluate(walk(), **least_squares(), out=tmp_path)
    assert (tmp_path / "mine.txt").read_text() == (tmp_path / "figures" / "mine.svg").read_text() == "kept"
    assert not (tmp_path / "figures" / "half-widths.svg").exists()


@pytest.mark.parametrize("content", ["{}", "not json", '{"format": "vrtd-reproduction-1"}'])
def test_another_folder_is_refused(tmp_path: Any, content: str) -> None:
    (tmp_path / "diagnostics.json").write_text(content)
    with pytest.raises(InvalidInputError, match="The output folder must be new, empty or that of an earlier evaluatio"):
        evaluate(walk(), **least_squares(), out=tmp_path)
    with pytest.raises(InvalidInputError, match=r"diagnostics\.json holds something else"):
        evaluate(walk(), **least_squares(), out=tmp_path / "diagnostics.json")
    assert (tmp_path / "diagnostics.json").read_text() == content


def test_one_process_a_folder(tmp_path: Any) -> None:
    with locked(tmp_path), pytest.raises(InvalidInputError, match=r"The output folder .* is in use by another process"):
        evaluate(walk(), **least_squares(), out=tmp_path)


def test_a_log_that_can_be_read_once_is_evaluated(done: Any, tmp_path: Any) -> None:
    x, reward, successors = rows()
    columns = {"obs_0": x[:, 0], "reward": reward, "next_obs_0": successors[:, 0]}
    reader = pyarrow.table(columns).to_reader(max_chunksize=1500)
    found = evaluate(read(reader), **vrtd_settings(), out=tmp_path)
    assert found.diagnostics.n_rows == N
    assert np.array_equal(found.evaluator.theta_, done.evaluator.theta_)


def test_fewer_rows_than_the_pilot_are_evaluated(tmp_path: Any) -> None:
    evaluate(walk(), **vrtd_settings(step_size="auto", pilot_rows=2 * N), out=tmp_path / "out")
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize(
    ("modules", "extra"),
    [(("matplotlib.figure", "matplotlib.backends.backend_agg"), "plot"), (("pyarrow",), "data")],
)
def test_a_missing_library_is_told_before_the_work(
    tmp_path: Any, monkeypatch: Any, modules: tuple[str, ...], extra: str
) -> None:
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(vrtd.Evaluator, "fit", lambda *_, **__: pytest.fail("the work began"))
    with pytest.raises(MissingExtraError, match=rf"pip install 'vrtd\[{extra}\]'"):
        evaluate(walk(), **least_squares(), out=tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("hostile", [*HOSTILE, r"$\foo$"])
def test_hostile_text_stays_text(tmp_path: Any, hostile: str) -> None:
    options = {"states": [[0.25], [0.75]]}
    bad = evaluate(walk(600), **least_squares(), out=tmp_path / "bad", title=hostile, names=[hostile], **options)
    good = evaluate(walk(600), **least_squares(), out=tmp_path / "good", title="x", names=["x"], **options)
    bad_outline, good_outline = (Outline(each.report.read_text()) for each in (bad, good))
    assert bad_outline.shape() == good_outline.shape()
    assert hostile in bad_outline.text
    assert all(urlsplit(address)[:2] == ("", "") for address in bad_outline.having("href"))


# Not converged, several passes, words


def test_not_converged_is_said_first_and_warns_nobody(tmp_path: Any, recwarn: Any) -> None:
    done = evaluate(walk(), **vrtd_settings(step_size=1e-4), out=tmp_path)
    assert done.diagnostics.converged is False
    assert "✗ Not converged" in Outline(done.report.read_text()).text
    assert not [each for each in recwarn if issubclass(each.category, ConvergenceWarning)]


def test_an_evaluation_is_shown_on_one_line_and_in_notebooks(done: Any) -> None:
    text = check_repr(done, 100 + len(str(done.report)))
    assert text == f"Evaluation(mean value {done.answer}; converged; {done.report})"
    shown = read_summary(done)
    assert shown.has_figure
    assert shown.entries["mean value"] == str(done.answer)
    assert shown.entries["report"] == str(done.report)


def test_progress_counts_over_passes(tmp_path: Any) -> None:
    told: list[tuple[int, int | None]] = []
    evaluate(walk(), **vrtd_settings(), out=tmp_path, n_passes=3, progress=lambda *at: told.append(at))
    assert told[-1] == (3 * N, 3 * N)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_intervals_have_the_digits_that_their_width_gives() -> None:
    assert interval(-99.99, -100.501, -99.479) == ("−99.99", "−100.50", "−99.48")  # noqa: RUF001
    assert interval(1234567.0, 1234000.0, 1235134.0) == ("1,234,567", "1,234,000", "1,235,134")
    assert interval(2e9, 1e9, 3e9)[0].startswith("2.00")
    assert interval(1.0, -np.inf, np.inf)[1:] == ("−∞", "∞")  # noqa: RUF001
    assert interval(0.5, 0.5, 0.5) == ("0.5000", "0.5000", "0.5000")


@pytest.mark.filterwarnings("ignore::vrtd.errors.ConvergenceWarning")
def test_the_picture_of_the_documentation_can_be_drawn(tmp_path: Any) -> None:
    runpy.run_path(str(Path(__file__).parents[3] / "examples" / "evaluate.py"))["main"](tmp_path, 4000)
    assert (tmp_path / "evaluate.png").stat().st_size > 10_000
    assert len((tmp_path / "evaluate.csv").read_text().splitlines()) == 1 + 61 * 61
