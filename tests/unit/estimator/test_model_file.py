"""Models on disk: stored, loaded, gone on with, and refused where they are damaged or hostile."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.fits import SETTINGS, N, fed, fitted, weighted, whole_diagnostics, whole_fit
from tests.helpers.some_logs import DISCOUNT, chain, chunk
from vrtd.errors import InvalidInputError, ModelFileError, StabilityWarning
from vrtd.estimator import state as fit_state
from vrtd.estimator.model_file import read_model, write_tree
from vrtd.features import Tabular
from vrtd.logs import from_arrays

TD = vrtd.TD(0.01)


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("stop", [500, 13_001])
def test_a_stored_model_goes_on_as_if_it_had_never_stopped(name: str, stop: int, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    fed([(0, stop)], **SETTINGS[name]).save(path)
    resumed = vrtd.Evaluator.load(path)
    assert resumed.n_rows_ == stop
    resumed.partial_fit(chunk(stop, N))
    whole = whole_fit(name)
    assert resumed.theta_.tobytes() == whole.theta_.tobytes()
    assert resumed.diagnostics_.as_dict() == whole_diagnostics(name)
    assert resumed.predict(chain().phi[:3]).tobytes() == whole.predict(chain().phi[:3]).tobytes()


def test_models_with_features_of_ones_own(tmp_path: Path) -> None:
    def squares(observations: Any) -> Any:
        return np.asarray(observations) ** 2

    path = tmp_path / "model.npz"
    evaluator = fitted(features=squares, algorithm=vrtd.TD(0.01))
    evaluator.save(path)
    with pytest.raises(InvalidInputError, match=r"The features of .* were a function or an object.*features="):
        vrtd.Evaluator.load(path)
    again = vrtd.Evaluator.load(path, features=squares)
    assert np.array_equal(again.theta_, evaluator.theta_)


def test_a_schedule_cannot_be_stored(tmp_path: Path) -> None:
    evaluator = fitted(algorithm=vrtd.TD(vrtd.Harmonic(10.0, 200.0)))
    with pytest.raises(InvalidInputError, match="settings are not plain values"):
        evaluator.save(tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())


def test_damaged_models_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    fitted(step_size=0.02, batch_size=300, closed_form=True).save(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(60):
        bad = bytearray(content)
        if rng.random() < 0.3:
            bad = bad[: int(rng.integers(0, len(bad)))]
        else:
            bad[int(rng.integers(0, len(bad)))] ^= 1 << int(rng.integers(0, 8))
        path.write_bytes(bytes(bad))
        with contextlib.suppress(ModelFileError, InvalidInputError):
            vrtd.Evaluator.load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(ModelFileError, match="is not a model of this version of vrtd, or is damaged"):
        vrtd.Evaluator.load(path)


HOSTILE: dict[str, Any] = {
    "a workspace of another size": ("state/learner/state", np.zeros(3)),
    "more rows that wait than a batch": ("state/learner/buffer/reward", np.zeros(400)),
    "rows of another width": ("state/learner/buffer/phi", np.zeros((50, 3))),
    "a stream of another type": ("state/learner/stream", np.zeros(2)),
    "a path of another width": ("state/learner/path/theta/0", np.zeros(9)),
    "blocks of another width": ("state/sums/totals/0", np.zeros((3, 4))),
}


@pytest.mark.parametrize(("name", "array"), HOSTILE.values(), ids=HOSTILE)
def test_arrays_that_do_not_fit_are_refused(name: str, array: Any, tmp_path: Path) -> None:
    """Compiled loops trust what is loaded."""
    path = tmp_path / "model.npz"
    fitted(step_size=0.02, batch_size=300, closed_form=True).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    assert name in arrays
    np.savez(path, **(arrays | {name: array}))
    with pytest.raises(ModelFileError):
        vrtd.Evaluator.load(path)


def test_a_transformer_is_fitted_to_the_same_rows_again(tmp_path: Path) -> None:
    scaler = pytest.importorskip("sklearn.preprocessing").StandardScaler
    rows = chunk(0, 1000)
    growing = np.arange(1, 1001)[:, None] * rows.observations
    later = rows._replace(observations=growing, next_observations=growing)
    evaluator = vrtd.Evaluator(vrtd.TD(1e-6), features=scaler(), discount=DISCOUNT, pilot_rows=200).fit(later)
    evaluator.save(tmp_path / "model.npz")
    again = vrtd.Evaluator.load(tmp_path / "model.npz", features=scaler())
    assert again.predict(growing).tobytes() == evaluator.predict(growing).tobytes()


def test_a_transformer_that_cannot_be_fitted_again_must_be_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scaler = pytest.importorskip("sklearn.preprocessing").StandardScaler
    monkeypatch.setattr(fit_state, "_MOST_BYTES", 64 * 100)
    evaluator = vrtd.Evaluator(vrtd.TD(1e-6), features=scaler(), discount=DISCOUNT, pilot_rows=200).fit(chunk(0, 300))
    evaluator.save(tmp_path / "model.npz")
    with pytest.raises(InvalidInputError, match="100 of 200 pilot rows"):
        vrtd.Evaluator.load(tmp_path / "model.npz", features=scaler())
    again = vrtd.Evaluator.load(tmp_path / "model.npz", features=evaluator.features)
    assert np.array_equal(again.theta_, evaluator.theta_)


def test_a_loaded_model_does_not_check_its_step_again(tmp_path: Path) -> None:
    """It does not warn again."""
    evaluator = vrtd.Evaluator(vrtd.TD(1.5), features=None, discount=DISCOUNT, pilot_rows=100)
    with pytest.warns(StabilityWarning):
        evaluator.partial_fit(chunk(0, 200))
    evaluator.save(tmp_path / "model.npz")
    vrtd.Evaluator.load(tmp_path / "model.npz").partial_fit(chunk(200, 300))


def test_visited_states_are_stored(tmp_path: Path) -> None:
    states = np.arange(301) % 3
    log = from_arrays(states[:-1], np.ones(300), states[1:])
    evaluator = vrtd.Evaluator("closed_form", features=Tabular(5), discount=0.9).fit(log)
    evaluator.save(tmp_path / "model.npz")
    assert evaluator.diagnostics_.unseen == (3, 4)
    assert vrtd.Evaluator.load(tmp_path / "model.npz").diagnostics_.unseen == (3, 4)


def test_headers_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    vrtd.Evaluator("closed_form", features=None, discount=DISCOUNT).fit(chunk(0, 500)).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    for is_old in (True, False):
        header = json.loads(arrays["header"].tobytes())
        if is_old:
            header["format"] = "vrtd-model-3"
        else:  # more rows than a block has
            header["tree"]["state"]["sums"]["n_summed"] = 1 << 40
        np.savez(path, **(arrays | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}))
        with pytest.raises(ModelFileError, match="is not a model of this version of vrtd, or is damaged"):
            vrtd.Evaluator.load(path)


@pytest.mark.parametrize("part", ["learner", "sample"])
def test_a_file_whose_rows_have_weights_only_in_part_is_refused(part: str, tmp_path: Path) -> None:
    """Rows that wait are joined with rows that come: both have weights, or none."""
    path = tmp_path / "model.npz"
    vrtd.Evaluator(vrtd.VRTD(0.05, 300), features=None, discount=DISCOUNT).fit(weighted(0, 400)).save(path)
    with read_model(path) as tree:
        rows = tree["state"]["learner"]["buffer"] if part == "learner" else tree["state"]["buffer"]
        assert rows["weight"].size
        rows["weight"] = None
        write_tree(path, tree)
    with pytest.raises(ModelFileError, match="is not a model of this version of vrtd, or is damaged"):
        vrtd.Evaluator.load(path)


@pytest.mark.parametrize("part", ["learner", "sums"])
def test_rows_that_wait_must_be_in_the_file(part: str, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    vrtd.Evaluator(vrtd.VRTD(0.05, 300), features=None, discount=DISCOUNT, closed_form=True).fit(chunk(0, 405)).save(
        path
    )
    with read_model(path) as tree:
        assert tree["state"][part]["n_waiting"] > 0
        tree["state"][part]["buffer"] = None
        write_tree(path, tree)
    with pytest.raises(ModelFileError, match="is not a model of this version of vrtd, or is damaged"):
        vrtd.Evaluator.load(path)


def test_a_model_with_parameters_that_are_not_finite_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    vrtd.Evaluator(vrtd.TD(0.05), features=None, discount=0.9).fit(chunk(0, 6000)).save(path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **(arrays | {"state/learner/theta": np.full(4, np.nan)}))
    with pytest.raises(ModelFileError):
        vrtd.Evaluator.load(path)


def test_a_short_log_with_features_of_the_users_own_is_loaded(tmp_path: Path) -> None:
    scaler = pytest.importorskip("sklearn.preprocessing").StandardScaler
    evaluator = vrtd.Evaluator("vrtd", features=scaler(), discount=DISCOUNT).fit(chunk(0, 2000))
    evaluator.save(tmp_path / "model.npz")
    loaded = vrtd.Evaluator.load(tmp_path / "model.npz", features=scaler())
    observations = chunk(0, 3).observations
    np.testing.assert_array_equal(loaded.predict(observations), evaluator.predict(observations))


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_epochs", 10**6), ("pause", 0), ("lowered_until", 0), ("path/stride", 0), ("path/next", 0)],
)
def test_a_model_whose_run_would_never_end_is_refused(name: str, value: int, tmp_path: Path) -> None:
    """Fitting would go on for ever: the rows to the end of a phase would be negative."""
    path = tmp_path / "model.npz"
    evaluator = vrtd.Evaluator("vrtd", discount=DISCOUNT, features="identity", n_samples=4 * N, closed_form=False)
    evaluator.partial_fit(chunk(0, N)).save(path)
    with read_model(path) as tree:
        node = tree["state"]["learner"]
    *way, last = name.split("/")
    for part in way:
        node = node[part]
    assert last in node
    node[last] = value
    if name == "n_epochs":
        phases = tree["state"]["learner"]["phases"]
        phases[str(len(phases) - 1)]["n_epochs"] = 1
    write_tree(path, tree)
    with pytest.raises(ModelFileError):
        vrtd.Evaluator.load(path)
