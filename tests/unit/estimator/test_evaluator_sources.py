"""One log in many shapes: arrays, files, live environments, all give the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.fits import make_evaluator
from tests.helpers.some_logs import DISCOUNT, chain, chunk, sample
from vrtd.features import RBF, Tabular
from vrtd.logs import Chunk, Log, from_arrays, from_env, read, write

N = 9000
SETTINGS: dict[str, dict[str, Any]] = {
    "auto": {"n_samples": N},
    "given": {"algorithm": vrtd.VRTD(0.05, 130)},
    "closed_form": {"algorithm": "closed_form"},
}


def theta(log: Log, **settings: Any) -> bytes:
    return make_evaluator(**settings).fit(log).theta_.tobytes()


def arrays() -> Log:
    """A log with terminations, successors of their own, and weights."""
    s, rng = sample(N), np.random.default_rng(0)
    ends = rng.random(N) < 0.01
    return from_arrays(s.phi, s.reward, s.phi_next, ends, None, rng.uniform(0.5, 1.5, N))


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_formats_do_not_change_a_bit(settings: Any, tmp_path: Path) -> None:
    log = arrays()
    expected = theta(log, **settings)
    for suffix in ("parquet", "csv", "npz"):
        path = tmp_path / f"log.{suffix}"
        write(log, path)
        assert theta(read(path, weight="weight"), **settings) == expected, suffix
    polars, pandas, duckdb = (pytest.importorskip(name) for name in ("polars", "pandas", "duckdb"))
    frame = pandas.read_parquet(tmp_path / "log.parquet")
    tables = {
        "pandas": frame,
        "polars": polars.from_pandas(frame),
        "duckdb": duckdb.sql("select * from frame"),
    }
    for name, table in tables.items():
        assert theta(read(table, weight="weight"), **settings) == expected, name


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_minari_data_set_equals_its_rows(settings: Any, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    s, lengths = sample(N), [1000, 1, 2999, 5000]
    path, at = tmp_path / "data" / "main_data.hdf5", 0
    path.parent.mkdir()
    with h5py.File(path, "w") as file:
        for k, length in enumerate(lengths):
            group = file.create_group(f"episode_{k}")
            group["observations"] = np.concatenate([s.phi[at : at + length], s.phi_next[at + length - 1 :][:1]])
            group["rewards"] = s.reward[at : at + length]
            last = np.arange(length) == length - 1
            group["terminations"], group["truncations"] = last & (k % 2 == 0), last & (k % 2 == 1)
            at += length
    ends = np.zeros(N, bool)
    ends[np.cumsum(lengths)[::2] - 1] = True
    successors = np.concatenate([s.phi[1:], s.phi_next[-1:]])
    cuts = np.cumsum(lengths) - 1
    successors[cuts] = s.phi_next[cuts]
    assert theta(read(tmp_path), **settings) == theta(from_arrays(s.phi, s.reward, successors, ends), **settings)


def live(kind: str) -> Any:
    gymnasium = pytest.importorskip("gymnasium")
    if kind == "vector":
        env = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    else:
        env = gymnasium.make("CartPole-v1" if kind == "single" else "FrozenLake-v1")
    return from_env(env, "random", n_samples=7000, seed=3)


@pytest.mark.parametrize("suffix", ["parquet", "npz", "csv"])
@pytest.mark.parametrize("kind", ["single", "vector", "finite"])
def test_a_live_environment_equals_the_replay_of_its_recording(kind: str, suffix: str, tmp_path: Path) -> None:
    path, most = tmp_path / f"log.{suffix}", (0.3, 1.5, 0.25, 2.0)
    features = Tabular(16) if kind == "finite" else RBF(16, low=[-x for x in most], high=most, bias=False)
    log = live(kind)
    write(log, path)
    settings: dict[str, Any] = {"features": features, "discount": 0.9, "n_samples": 7000}
    if suffix == "csv":  # has no types: observations come back as float64
        log = from_arrays(*_doubles(log))
    assert theta(read(path), **settings) == theta(log, **settings)


def _doubles(log: Log) -> list[Any]:
    chunks = list(log.chunks())
    return [
        np.concatenate([np.asarray(getattr(chunk, name), float if "obs" in name else None) for chunk in chunks])
        for name in ("observations", "reward", "next_observations", "terminated", "truncated")
    ]


def test_batches_of_a_vector_hold_whole_segments() -> None:
    log = live("vector")
    evaluator = vrtd.Evaluator("vrtd", features="rbf:16", discount=0.9, n_samples=7000).fit(log)
    algorithm = evaluator.algorithm_
    assert isinstance(algorithm, vrtd.VRTD)
    assert log.segment == 64
    assert algorithm.batch_size % 64 == 0 or 64 % algorithm.batch_size == 0
    assert not [remark for remark in evaluator.diagnostics_.remarks if "split the segments" in remark]
    cut = vrtd.Evaluator(vrtd.VRTD(0.01, 100), features="rbf:16", discount=0.9, pilot_rows=500).fit(live("vector"))
    assert "batches of 100 rows split the segments of 64" in " ".join(cut.diagnostics_.remarks)


def test_the_same_rows_in_any_order_have_the_same_closed_form() -> None:
    log = arrays()
    (rows,) = log.chunks()
    order = np.random.default_rng(5).permutation(N)
    shuffled = Chunk(*(None if values is None else values[order] for values in rows[:6]))  # type: ignore[arg-type]
    closed = [
        vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(each).theta_ for each in (rows, shuffled)
    ]
    np.testing.assert_allclose(closed[0], closed[1], rtol=1e-10)


def test_the_closed_form_of_a_live_lake_tends_to_its_values() -> None:
    """Six standard errors: 11 states, 2e-8 in all."""
    gymnasium = pytest.importorskip("gymnasium")
    exact = vrtd.problems.restart_chain("FrozenLake-v1", "random", 0.9)
    lake = gymnasium.make("FrozenLake-v1").unwrapped
    log = from_env(lake, "random", n_samples=40_000, seed=0)
    evaluator = vrtd.Evaluator("closed_form", features="tabular:16", discount=0.9).fit(log)
    error = evaluator.spread().estimates(np.eye(16)[exact.states]).error
    assert np.all(np.abs(evaluator.predict(exact.states) - exact.mrp.values) < 6 * error)
    assert evaluator.diagnostics_.unseen == (5, 7, 11, 12, 15)
    assert np.median(error) < 0.005


def test_remarks_of_the_log_reach_the_diagnostics() -> None:
    phi = chain().phi[np.random.default_rng(0).integers(0, 50, 400)]
    log = from_arrays(phi, np.ones(400), truncated=np.arange(400) % 100 == 50)
    evaluator = vrtd.Evaluator("closed_form", features=None, discount=0.5).fit(log)
    assert "dropped" in " ".join(evaluator.diagnostics_.remarks)
    assert evaluator.n_rows_ == 395


class Segmented(Log):
    """Rows of several environments."""

    def chunks(self) -> Iterator[Chunk]:
        yield chunk(0, 600)

    @property
    def n_rows(self) -> int:
        return 600

    @property
    def segment(self) -> int:
        return 64


@pytest.mark.parametrize(("size", "cuts"), [(32, False), (64, False), (128, False), (96, True), (100, True)])
def test_batches_that_fit_into_a_segment_cut_none(size: int, cuts: bool) -> None:
    evaluator = vrtd.Evaluator(vrtd.VRTD(0.01, size), features=None, discount=DISCOUNT).fit(Segmented())
    assert any("split the segments of 64" in remark for remark in evaluator.diagnostics_.remarks) == cuts


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking"])
def test_the_number_of_states_is_taken_from_the_pilot_rows(name: str) -> None:
    gymnasium = pytest.importorskip("gymnasium")
    newest = max(key for key in gymnasium.registry if key.startswith(name))
    evaluator = vrtd.Evaluator("vrtd", features="tabular", discount=0.9).fit(from_env(newest, "random", n_samples=8000))
    assert evaluator.n_rows_ == 8000


def test_segments_shorter_than_the_correlation_are_remarked_on() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    for segment, said in ((4, True), (512, False)):
        log = from_env(env, "random", n_samples=6000, segment=segment)
        text = vrtd.Evaluator("closed_form", features="rbf:16", discount=0.9).fit(log).diagnostics_.text
        assert (f"over more than the {segment} consecutive rows of each environment" in text) is said
