"""Episodes that come back: an error that names the row and the remedies, and no false alarms."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest

from tests.helpers.log_cases import rows
from vrtd.cli.messages import to_shell
from vrtd.errors import DataError
from vrtd.logs import from_arrays, read, repeats
from vrtd.logs.blocks import join_keys
from vrtd.logs.repeats import hash_keys


def log_of(episode, size: int | None = None):
    """A log with these episodes, in blocks of `size` rows."""
    table = pa.table({"obs": np.arange(float(len(episode))), "r": np.zeros(len(episode)), "episode": episode})
    return read(table if size is None else pa.Table.from_batches(table.to_batches(size)))


@pytest.mark.parametrize("size", [1, 2, 3, None])
@pytest.mark.parametrize(
    ("episode", "shown"),
    [
        ([7, 7, 3, 3, 7], "episode 7"),
        (["a", "a", "b", "b", "a"], "episode 'a'"),
        ([1.5, 1.5, 2.0, 2.0, 1.5], "episode 1.5"),
        (np.array([7, 7, 3, 3, 7], "datetime64[s]"), "episode 1970-01-01 00:00:07"),
        ([True, True, False, False, True], "episode True"),
    ],
)
def test_an_episode_that_comes_back_is_refused(episode, shown, size):
    log = log_of(episode, size)
    message = (
        rf"The episode with {shown} appears again after another one, in the table, "
        r"column episode, row 4. If the rows are not in order, sort them by .* order_by='...'. .* add a column "
        r"that distinguishes them to episode=... besides 'episode', such as 'file'"
    )
    for _ in range(2):
        with pytest.raises(DataError, match=message):
            rows(log)


def test_the_remedies_can_be_read_in_the_shell():
    with pytest.raises(DataError) as caught:
        rows(log_of([1, 2, 1]))
    words = to_shell(str(caught.value), {"episode": "--episode", "order_by": "--order-by"})
    assert "sort them by the column of time with --order-by." in words
    assert words.endswith("add a column that distinguishes them to --episode besides 'episode', such as 'file'.")


def test_arrays_whose_episodes_come_back_are_refused():
    with pytest.raises(DataError, match=r"episode 1 appears again after another one, in array episode, row 2. Sort"):
        rows(from_arrays(np.zeros(4), np.zeros(4), episode=[1, 2, 1, 1]))
    with pytest.raises(DataError, match="row 2"):  # also where successors were recorded
        rows(from_arrays(np.zeros(4), np.zeros(4), np.zeros(4), episode=[1, 2, 1, 1]))


def test_episodes_in_order_are_no_repeats_at_any_reading():
    for episode in ([2, 2, 1, 1, 3], ["b", "b", "a", "a", "c"], [-0.0, 0.0, 1.0, 1.0, 2.0]):
        for size in (1, 2, None):
            log = log_of(episode, size)
            for _ in range(3):
                rows(log)


def save(folder, names, *parts):
    for k, (episode, day) in enumerate(parts):
        arrays = {"obs": np.arange(3.0), "r": np.zeros(3), "session": np.array(episode), "day": np.array(day)}
        np.savez(folder / f"{k}.npz", **arrays)
    return read(folder, observations="obs", reward="r", episode=names)


def test_an_episode_may_go_on_in_the_next_file_but_not_later(tmp_path):
    log = save(tmp_path, "session", (["a", "a", "bbb"], [1, 1, 1]), (["bbb", "bbb", "c"], [1, 1, 1]))
    assert rows(log)["next_observations"].tolist() == [1.0, 0.0, 1.0]
    log = save(tmp_path, "session", (["a", "a", "bbb"], [1, 1, 1]), (["c", "a", "a"], [1, 1, 1]))
    with pytest.raises(DataError, match=r"session 'a' appears again .*, in .*1.npz, column session, row 1"):
        rows(log)


def test_several_columns_name_an_episode(tmp_path):
    first, second = (["a", "a", "b"], [1, 2, 2]), (["bbb", "bbb", "a"], [2, 2, 3])
    log = save(tmp_path, ["session", "day"], first, second)
    with pytest.raises(DataError, match="session 'a' appears again"):
        rows(save(tmp_path, "session", first, second))
    assert rows(log)["next_observations"].tolist() == [1.0]
    log = save(tmp_path, ["session", "day"], (["a", "a", "b"], [1, 2, 2]), (["b", "a", "a"], [2, 3, 1]))
    with pytest.raises(
        DataError,
        match=r"'a' and day 1 appears again .*, in .*1.npz, column session to day, row 2.*besides 'session' and 'day'",
    ):
        rows(log)


def test_the_file_tells_episodes_apart(tmp_path):
    parts = (["a", "a", "b"], [1, 1, 1]), (["a", "b", "b"], [1, 1, 1])
    with pytest.raises(DataError, match="again"):
        rows(save(tmp_path, "session", *parts))
    log = save(tmp_path, ["session", "file"], *parts)
    assert rows(log)["next_observations"].tolist() == [1.0, 2.0]
    log = save(tmp_path, ["session", "file"], parts[0], (["a", "b", "a"], [1, 1, 1]))
    with pytest.raises(DataError, match=r"with session 'a' appears again .*1.npz, .* row 2. .*besides 'session'.$"):
        rows(log)
    log = save(tmp_path, "file", *parts)  # each file is an episode, whatever other columns there are
    assert rows(log)["next_observations"].tolist() == [1.0, 2.0, 1.0, 2.0]
    assert "file" in log.roles["episode"]


def test_a_column_called_file_is_a_column(tmp_path):
    table = pa.table({"obs": [0.0, 1.0, 2.0, 3.0], "r": [0.0] * 4, "file": ["a", "a", "b", "b"]})
    log = read(table, episode="file")
    assert rows(log)["next_observations"].tolist() == [1.0, 3.0]
    assert log.roles["episode"] == ("file",)


@pytest.mark.parametrize("kind", ["integers", "text", "two columns"])
def test_of_many_episodes_a_share_is_remembered(kind, monkeypatch):
    n = 200_000
    ids = np.append(np.random.default_rng(0).permutation(n), -1)
    columns = {"obs": np.zeros(n + 1), "r": np.zeros(n + 1), "episode": ids.astype("U") if kind == "text" else ids}
    names = {}
    if kind == "two columns":
        names = {"episode": ["episode", "day"]}
        columns["day"] = ids % 7
    table = pa.table(columns)
    sizes, remember = [], repeats.SeenEpisodes._remember

    def counting(seen, block, starts):
        remember(seen, block, starts)
        sizes.append(len(seen._names))

    monkeypatch.setattr(repeats.SeenEpisodes, "_remember", counting)
    log = read(pa.Table.from_batches(table.to_batches(5000)), **names, episode_end="terminated")
    assert rows(log)["reward"].size == n + 1  # no false alarm
    assert max(sizes) <= 65_536
    if kind == "integers":  # arrays come in one block, and are remembered in pieces
        n_before = len(sizes)
        rows(from_arrays(columns["obs"], columns["r"], episode=ids, episode_end="terminated"))
        assert len(sizes) == n_before + 4
    assert sizes[-1] > 40_000  # the share is not tiny: of the first 1,000 episodes, some are among them
    again = pa.concat_tables([table, table.slice(0, 1000)])
    with pytest.raises(DataError, match="again after another one"):
        rows(read(again, **names, episode_end="terminated"))


def test_hashes_depend_on_every_column_and_on_nothing_else():
    for one, other in itertools.pairwise(
        [np.array([1, 2]), np.array([1, 3]), np.array(["1", "3"]), np.array([1.0, 3.5]), np.array([True, False])]
    ):
        assert (hash_keys(one) != hash_keys(other)).any()
    a, b = np.array([1, 1, 2]), np.array(["x", "y", "x"], object)
    assert np.unique(hash_keys(join_keys([a, b]))).size == 3
    assert (hash_keys(np.array([5], np.int32)) == hash_keys(np.array([5], np.int64))).all()
    assert hash_keys(np.array(["abc"])).tolist() == [13799100979058288156]  # in every process
