"""A file that `write` made describes its observations: the same features are chosen as for the log itself."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.helpers.log_cases import flip, rows, same_bits
from vrtd.errors import DataError
from vrtd.features import ObservationSpace
from vrtd.logs import from_arrays, from_env, read, write
from vrtd.logs.stored_space import SPACE_KEY

BOTH = pytest.mark.parametrize("suffix", [".parquet", ".npz"])


def table(*segments: str):
    n = len(segments)
    return pa.table({"segment": segments, "visits": np.arange(float(n)), "r": np.ones(n)})


def written(log, path):
    write(log, path)
    return read(path)


@BOTH
@pytest.mark.parametrize("name", ["CartPole-v1", "Blackjack-v1"])
def test_a_recording_gives_the_values_of_the_environment(tmp_path, suffix, name):
    from vrtd import Evaluator

    live = from_env(name, "random", 2000, seed=3)
    recorded = written(live, tmp_path / f"r{suffix}")
    assert recorded.space == live.space
    found, expected = (Evaluator(discount=0.9).fit(log) for log in (recorded, live))
    some = next(live.chunks()).observations[:5]
    assert found.predict(some).tolist() == expected.predict(some).tolist()
    assert found.mean_value() == expected.mean_value()


@BOTH
def test_arrays_that_were_written_stay_features(tmp_path, suffix):
    log = from_arrays(np.arange(8.0).reshape(4, 2), np.ones(4))
    assert written(log, tmp_path / f"a{suffix}").space == ObservationSpace("features")


@BOTH
def test_categories_that_were_written_are_not_encoded_again(tmp_path, suffix):
    log = read(table("new", "old", "new", "vip"), observations=["segment", "visits"])
    back = written(log, tmp_path / f"a{suffix}")
    for again in (back, read(tmp_path / f"a{suffix}", space=log.space)):
        assert again.space == log.space
        same_bits(rows(again), rows(log))
    other = read(table("new", "old", "new", "old"), observations=["segment", "visits"])
    with pytest.raises(DataError, match="observations must be the same columns as in the log that was fitted before"):
        read(tmp_path / f"a{suffix}", space=other.space)


@BOTH
def test_a_space_is_not_that_of_other_columns(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    write(from_arrays(np.arange(8.0).reshape(4, 2), np.ones(4), np.ones((4, 2))), path)
    assert read(path, observations="reward", next_observations="reward").space.kind == "columns"
    assert read(path, missing="indicator").space.kind == "columns"


def test_a_column_that_was_left_out_takes_the_space_with_it(tmp_path):
    write(from_env("CartPole-v1", "random", 20), tmp_path / "a.parquet")
    whole = pq.read_table(tmp_path / "a.parquet")
    pq.write_table(whole.drop_columns(["obs_3", "next_obs_3"]), tmp_path / "b.parquet")
    assert read(tmp_path / "b.parquet").space.names == ("obs_0", "obs_1", "obs_2")


def test_files_must_agree_on_the_space(tmp_path):
    for name, sizes in (("a", ["new", "old"] * 3), ("b", ["new", "vip"] * 3)):
        write(read(table(*sizes), observations=["segment", "visits"]), tmp_path / f"{name}.npz")
    with pytest.raises(
        DataError, match=r"must describe their observations alike, but the descriptions in .*a.npz and .*b"
    ):
        read(tmp_path)


@BOTH
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b'{"columns": []}',
        b'{"columns": ["obs_0"], "space": {"kind": "box"}}',
        b'{"columns": ["obs_0"], "space": 3}',
    ],
)
def test_a_damaged_space_is_refused(tmp_path, suffix, content):
    path = tmp_path / f"a{suffix}"
    if suffix == ".npz":
        np.savez(path, obs_0=np.zeros(3), r=np.zeros(3), **{SPACE_KEY: np.frombuffer(content, np.uint8)})
    else:
        plain = pa.table({"obs_0": np.zeros(3), "r": np.zeros(3)})
        pq.write_table(plain.replace_schema_metadata({SPACE_KEY: content}), path)
    with pytest.raises(DataError, match=f"The description of the observations in .*a{suffix} is damaged"):
        read(path)


def test_a_space_of_another_size_is_refused(tmp_path):
    space = ObservationSpace("box", low=(0.0, 0.0), high=(1.0, 1.0)).settings
    content = json.dumps({"columns": ["obs"], "space": space}).encode()
    np.savez(tmp_path / "a.npz", obs=np.zeros(3), r=np.zeros(3), **{SPACE_KEY: np.frombuffer(content, np.uint8)})
    with pytest.raises(DataError, match=r"a\.npz is damaged: it has 2 numbers, but a row has 1"):
        read(tmp_path / "a.npz")


@BOTH
def test_a_changed_digit_of_the_space_is_noticed(tmp_path, suffix):
    path = tmp_path / f"a{suffix}"
    write(from_env("FrozenLake-v1", "random", 20), path)
    content = path.read_bytes()
    flip(path, content.index(b'"sizes": [16]') + 10, 1)
    with pytest.raises(DataError, match=r"a\."):
        read(path)
