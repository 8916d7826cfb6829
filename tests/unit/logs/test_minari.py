"""Minari data sets: read as plain files, against the library that writes them, and with hostile metadata."""

from __future__ import annotations

import json
import sys

import gymnasium as gym
import h5py
import numpy as np
import pytest

from tests.helpers.log_cases import rows, same_bits
from vrtd.errors import DataError, InvalidInputError
from vrtd.logs import from_minari, read


def a_data_set(folder, episodes, space=None, **metadata):
    """A data set as Minari lays it out: per episode a list of observations, one more than rewards."""
    data = folder / "data"
    data.mkdir(parents=True)
    with h5py.File(data / "main_data.hdf5", "w", track_order=True) as file:
        for k, (observations, terminated) in enumerate(episodes):
            group = file.create_group(f"episode_{k}")
            if isinstance(observations, dict):
                for name, values in observations.items():
                    group[f"observations/{name}"] = values
                n = len(next(iter(observations.values()))) - 1
            else:
                group["observations"] = observations
                n = len(observations) - 1
            group["rewards"] = np.arange(n) + 100.0 * k
            group["terminations"] = (np.arange(n) == n - 1) & terminated
            group["truncations"] = (np.arange(n) == n - 1) & (not terminated)
    (data / "metadata.json").write_text(json.dumps({"data_format": "hdf5", "observation_space": space} | metadata))
    return folder


def walk(n, width=2, seed=0):
    return np.random.default_rng(seed).standard_normal((n, width)).astype(np.float32)


def test_episodes_keep_their_final_observation(tmp_path):
    episodes = [(walk(4, seed=k), k % 2 == 0) for k in range(12)]  # ten and more: 2 comes before 10
    log = read(a_data_set(tmp_path / "d", episodes))
    whole = rows(log)
    assert log.n_rows == 36
    assert np.array_equal(whole["observations"], np.concatenate([walk[:-1] for walk, _ in episodes]))
    assert np.array_equal(whole["next_observations"], np.concatenate([walk[1:] for walk, _ in episodes]))
    assert whole["reward"].tolist() == [100.0 * k + i for k in range(12) for i in range(3)]
    assert whole["terminated"].tolist() == [i == 2 and k % 2 == 0 for k in range(12) for i in range(3)]
    assert whole["truncated"].tolist() == [i == 2 and k % 2 == 1 for k in range(12) for i in range(3)]
    assert log.remarks == (f"{tmp_path / 'd' / 'data'} is HDF5 without checksums: integrity cannot be verified",)
    (chunk,) = log.chunks()
    assert chunk.locate("reward", 4) == f"{tmp_path / 'd/data/main_data.hdf5'}, episode_1, column rewards, row 1"
    assert chunk.locate("next_observations", 4).endswith("episode_1, column observations, row 2")
    same_bits(rows(from_minari(tmp_path / "d" / "data")), whole)


def test_long_and_many_episodes_are_cut_and_joined(tmp_path, monkeypatch):
    episodes = [(walk(n, seed=n), True) for n in (2, 500, 3, 40)]
    log = from_minari(a_data_set(tmp_path / "d", episodes))
    whole = rows(log)
    monkeypatch.setattr("vrtd.logs.blocks.CHUNK_ROWS", 70)
    same_bits(rows(log), whole)
    assert max(chunk.reward.size for chunk in log.chunks()) < 140
    for chunk in log.chunks():
        assert "row" in chunk.locate("observations", chunk.reward.size - 1)


def test_dictionaries_and_tuples_lie_side_by_side(tmp_path):
    parts = {"b": walk(5, 2), "a": np.arange(5), "c/z": walk(5, 1, 1), "c/y": walk(5, 1, 2)}
    log = from_minari(a_data_set(tmp_path / "d", [(parts, True)]))
    expected = np.column_stack([parts["a"], parts["b"], parts["c/y"], parts["c/z"]])
    assert np.array_equal(rows(log)["observations"], expected[:-1])
    indexed = {f"_index_{j}": np.full(3, j) for j in range(12)}
    log = from_minari(a_data_set(tmp_path / "e", [(indexed, True)]))
    assert rows(log)["next_observations"].tolist() == [list(range(12))] * 2
    parts["b"][3, 1] = np.nan
    (chunk,) = from_minari(a_data_set(tmp_path / "f", [(parts, True)])).chunks()
    assert chunk.locate("observations", 3).endswith("episode_0, column observations/b[1], row 3")


def test_several_data_sets_are_one_log(tmp_path):
    folders = [a_data_set(tmp_path / name, [(walk(4, seed=k), True)]) for k, name in enumerate("ab")]
    log = read(folders)
    assert log.n_rows == 6
    whole = rows(log)
    assert np.array_equal(whole["observations"], np.concatenate([walk(4, seed=k)[:-1] for k in range(2)]))
    np.savez(tmp_path / "c.npz", obs=np.zeros((3, 2)), r=np.zeros(3))
    with pytest.raises(DataError, match="The files of a log must have one format, but include 1 minari, 1 npz"):
        read([folders[0], tmp_path / "c.npz"])


SPACES = {
    "box": (gym.spaces.Box(-1, 1, (3,), np.float32), lambda o: o),
    "matrix": (gym.spaces.Box(-1, 1, (2, 2), np.float64), lambda o: o),
    "discrete": (gym.spaces.Discrete(7), lambda o: o),
    "dict": (
        gym.spaces.Dict({"v": gym.spaces.Box(-1, 1, (2,)), "k": gym.spaces.Discrete(3)}),
        lambda o: np.column_stack([o["k"], o["v"]]),
    ),
    "tuple": (
        gym.spaces.Tuple((gym.spaces.Box(-1, 1, (2,)), gym.spaces.Discrete(3))),
        lambda o: np.column_stack([o[0], o[1]]),
    ),
}


def stacked(samples):
    if isinstance(samples[0], dict):
        return {key: stacked([sample[key] for sample in samples]) for key in samples[0]}
    if isinstance(samples[0], tuple):
        return tuple(map(stacked, zip(*samples, strict=True)))
    return np.stack(samples)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("data_format", ["hdf5", "arrow", "parquet"])
@pytest.mark.parametrize("name", SPACES)
def test_rows_equal_those_that_minari_reads(tmp_path, monkeypatch, name, data_format):
    minari = pytest.importorskip("minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    space, flat = SPACES[name]
    space.seed(0)
    buffers = []
    for n, over in ((5, True), (1, False), (12, True)):
        last = np.arange(n) == n - 1
        buffers.append(
            minari.data_collector.EpisodeBuffer(
                observations=stacked([space.sample() for _ in range(n + 1)]),
                actions=np.arange(n) % 2,
                rewards=[0.1 * i for i in range(n)],
                terminations=list(last & over),
                truncations=list(last & (not over)),
                infos={},
            )
        )
    data_set = minari.create_dataset_from_buffers(
        "test/walk-v0",
        buffer=buffers,
        observation_space=space,
        action_space=gym.spaces.Discrete(2),
        data_format=data_format,
    )
    log = read(tmp_path / "test" / "walk-v0", action="actions")
    episodes = list(data_set.iterate_episodes())
    observed = [np.asarray(flat(episode.observations)) for episode in episodes]
    expected = {
        "observations": np.concatenate([values[:-1] for values in observed]),
        "next_observations": np.concatenate([values[1:] for values in observed]),
        "reward": np.concatenate([episode.rewards for episode in episodes]).astype(np.float64),
        "terminated": np.concatenate([episode.terminations for episode in episodes]),
        "truncated": np.concatenate([episode.truncations for episode in episodes]),
        "action": np.concatenate([episode.actions for episode in episodes]),
    }
    same_bits(rows(log), expected)
    assert log.n_rows == 18


def test_nothing_in_the_metadata_is_imported_or_built(tmp_path, monkeypatch):
    trap = tmp_path / "trap.py"
    trap.write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gym, "make", lambda *_, **__: pytest.fail("an environment was built"))
    spec = {"id": "trap:Trap-v0", "entry_point": "trap:Trap", "kwargs": {"__import__": "trap"}}
    hostile = {"env_spec": json.dumps(spec), "eval_env_spec": json.dumps(spec), "requirements": ["trap"]}
    for k, space in enumerate([None, "__import__('trap')", json.dumps({"type": "trap.Space", "shape": "x"}), 7, [1]]):
        log = from_minari(a_data_set(tmp_path / f"d{k}", [(walk(4), True)], space, **hostile))
        assert len(rows(log)["reward"]) == 3
    assert "trap" not in sys.modules


@pytest.mark.parametrize("nested", [False, True])
def test_images_are_refused(tmp_path, nested):
    image = {"type": "Box", "dtype": "uint8", "shape": [64, 64, 3]}
    space = json.dumps({"type": "Dict", "subspaces": {"a": image}} if nested else image)
    folder = a_data_set(tmp_path / "d", [(np.zeros((3, 50), np.uint8), True)], space)
    with pytest.raises(
        DataError, match=r"must be stored as numbers, but are JPEG images. Store the data set with jpeg_enc"
    ):
        from_minari(folder)
    a_data_set(tmp_path / "e", [(np.zeros((3, 64, 64, 3), np.uint8), True)], space, jpeg_encoding=False)
    assert rows(from_minari(tmp_path / "e"))["observations"].shape == (2, 64, 64, 3)


def test_incomplete_data_sets_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"is not the folder of a Minari data set: it has no data/metadata.json"):
        from_minari(tmp_path)
    for path in ("nothing", "nothing*"):
        with pytest.raises(DataError, match="nothing"):
            read(tmp_path / path, format="minari")
    folder = a_data_set(tmp_path / "d", [(walk(4), True), (walk(4, 3), True)])
    with pytest.raises(
        DataError, match=r"episode_1 must be like those of the first episode, float32 \(2,\), but are float32 \(3,\)"
    ):
        list(from_minari(folder).chunks())
    with pytest.raises(
        InvalidInputError, match=r"reward cannot be named for .* because its columns are known. Drop reward"
    ):
        read(folder, reward="rewards")
    with h5py.File(folder / "data/main_data.hdf5", "a") as file:
        del file["episode_1"]
        del file["episode_0/observations"]
        file["episode_0/observations"] = walk(3)
    with pytest.raises(
        DataError, match=r"episode_0, observations, must have 4 entries for 3 rewards, but has shape \(3, 2\)"
    ):
        list(from_minari(folder).chunks())
    with h5py.File(folder / "data/main_data.hdf5", "a") as file:
        del file["episode_0/observations"]
        file["episode_0/observations"] = ["a", "b", "c", "d"]
    with pytest.raises(DataError, match="episode_0, observations, must hold numbers, but has dtype object"):
        list(from_minari(folder).chunks())
    with h5py.File(folder / "data/main_data.hdf5", "a") as file:
        del file["episode_0/observations"]
    with pytest.raises(DataError, match="is damaged, truncated or of another format"):
        list(from_minari(folder).chunks())
    (folder / "data/metadata.json").write_text("[1]")
    with pytest.raises(DataError, match=r"metadata.json must hold a JSON object, but holds a list"):
        from_minari(folder)
    (folder / "data/metadata.json").write_text("{")
    with pytest.raises(DataError, match=r"metadata.json is damaged"):
        from_minari(folder)
    (folder / "data/main_data.hdf5").unlink()
    (folder / "data/metadata.json").write_text('{"data_format": "zarr"}')
    with pytest.raises(DataError, match="must be hdf5, arrow or parquet, but is 'zarr'"):
        from_minari(folder)
    (folder / "data/metadata.json").write_text('{"data_format": "arrow"}')
    (folder / "data/0").mkdir()
    with pytest.raises(DataError, match=r"must hold one .arrow file, but holds 0"):
        from_minari(folder)
