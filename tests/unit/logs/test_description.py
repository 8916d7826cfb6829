"""What a log says of its columns and observations before it is read."""

from __future__ import annotations

import h5py
import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest

from tests.helpers.log_cases import rows
from vrtd.features import ObservationSpace
from vrtd.logs import from_arrays, read, write
from vrtd.logs.log import WrappedLog


def test_roles_are_the_columns_as_found():
    names = ["obs_0", "obs_1", "r", "dones", "timeouts", "eps_id", "rho", "t", "other"]
    table = pa.table({name: [1, 0] for name in names})
    expected = {
        "observations": ("obs_0", "obs_1"),
        "reward": ("r",),
        "truncated": ("timeouts",),
        "episode": ("eps_id",),
        "terminated": ("dones",),
    }
    assert read(table).roles == expected
    named = read(table, observations=["other", "t"], weight="rho", order_by="t")
    assert named.roles == expected | {"observations": ("other", "t"), "weight": ("rho",), "order_by": ("t",)}

    class Wrapped(WrappedLog):
        def chunks(self):
            return self._log.chunks()

    assert Wrapped(named).roles == named.roles
    assert read(table, episode=["eps_id", "file"]).roles["episode"] == ("eps_id", "file")
    assert from_arrays([1.0, 2.0], [1.0, 2.0]).roles == {}


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
def test_weights_are_used_only_when_they_are_asked_for(tmp_path, suffix):
    log = from_arrays([[1.0], [2.0]], [1.0, 2.0], [[2.0], [3.0]], weight=[0.5, 2.0])
    write(log, tmp_path / f"a{suffix}")
    plain, weighted = read(tmp_path / f"a{suffix}"), read(tmp_path / f"a{suffix}", weight="weight")
    remark = "column 'weight' is not used. Pass weight='weight' if it holds importance ratios"
    assert rows(plain)["weight"] is None
    assert remark in plain.remarks
    assert rows(weighted)["weight"].tolist() == [0.5, 2.0]
    assert remark not in weighted.remarks


def test_a_weight_that_is_an_observation_is_used():
    table = pa.table({"weight": [70.0, 80.0], "height": [1.7, 1.8], "r": [0.0, 1.0], "next_weight": [1.0, 2.0]})
    assert read(table, observations="weight").remarks == ()


@pytest.mark.parametrize(
    ("observations", "kind"),
    [
        ([[1.0], [2.0]], "features"),
        ([[1], [2]], "features"),
        (np.zeros((2, 3, 3)), "features"),
        ([1, 2], "states"),
        (np.array([1, 2], np.uint8), "states"),
        ([1.0, 2.0], "columns"),
    ],
)
def test_arrays_are_described_by_their_shape(observations, kind):
    assert from_arrays(observations, [0.0, 0.0]).space == ObservationSpace(kind)


def test_the_rows_of_tables_are_known_before_they_are_read():
    columns = {"obs": [1.0, 2.0, 3.0], "r": [0.0, 0.0, 0.0]}
    for table in (pandas.DataFrame(columns), polars.DataFrame(columns), pa.table(columns)):
        assert read(table).n_rows == 3
    assert read(pa.table(columns).to_reader()).n_rows is None


def test_episodes_of_d3rlpy_are_described(tmp_path):
    for observations, kind in (([[1.0], [2.0]], "box"), ([1, 2], "states")):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["num_episodes"], file["rewards_0"], file["terminated_0"] = 1, [1.0, 2.0], True
            file["observations_0"] = observations
        log = read(tmp_path / "a.h5")
        assert log.space == ObservationSpace(kind)
        assert log.roles["reward"] == ("rewards",)
