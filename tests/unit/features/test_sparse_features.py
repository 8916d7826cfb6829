"""Features whose rows are sparse: hashed columns, large tables and tile codings, and functions that return them."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pyarrow
import pytest
from scipy.sparse import csr_array

import vrtd
from vrtd.errors import DataWarning, InvalidInputError
from vrtd.features import (
    FromFunction,
    Hashed,
    OneHot,
    Scaled,
    Stack,
    Tabular,
    Tiles,
    from_settings,
    parse,
    tabular,
    tiles,
)
from vrtd.features.hashed import text_for


def test_hashes_are_the_same_in_every_process_and_on_every_machine() -> None:
    """The places and signs of features of models that were stored must never change."""
    rows = Hashed(12, categories=(0,), scales=(1.0, 2.0))(np.array([[3.0, 5.0], [4.0, 0.0]]))
    found = [list(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in (rows[[0]], rows[[1]])]
    assert found == HASHES
    log = vrtd.logs.read(
        pyarrow.table({"word": ["a", "häß", ""], "reward": [0.0, 1.0, 2.0]}),
        observations="word",
        text="hash",
        episode_end="terminated",
    )
    (chunk,) = log.chunks()
    assert chunk.observations.ravel().tolist() == WORDS


HASHES = [[(1385, 1.0), (3270, -1.0), (1525, 2.5), (1630, 2.5)], [(1385, 1.0), (11, 1.0)]]
WORDS = [96858892993156.0, 8745904656468837.0, 8625955362125501.0]


def test_categories_numbers_and_pairs_have_features() -> None:
    x = np.array([[1.0, 2.0, 0.5], [1.0, 3.0, 0.5], [7.0, 2.0, -1.5]])
    features = Hashed(20, categories=(0, 1), scales=(1.0, 1.0, 0.5))
    a, b, c = features(x).toarray()
    assert [np.count_nonzero(row) for row in (a, b, c)] == [7, 7, 7]
    assert sorted(np.abs(a[a != 0.0]).tolist()) == [1.0] * 7
    assert np.count_nonzero((a != 0.0) & (b != 0.0)) == 4  # constant, first category, number, and their pair
    both = (a != 0.0) & (c != 0.0)
    assert np.abs(c[both]).tolist().count(3.0) == 2  # the number, and its pair with the second category
    alone = Hashed(20, False, categories=(0, 1), scales=(1.0, 1.0, 0.5))(x)
    assert np.diff(alone.indptr).tolist() == [4, 4, 4]


def test_a_row_does_not_depend_on_others_and_text_that_was_never_seen_has_features() -> None:
    features = Hashed(14, categories=(0,), scales=(1.0,))
    x = np.arange(50.0)[:, None]
    for row in (0, 17, 49):
        assert (features(x[row : row + 1]) != features(x)[[row]]).nnz == 0
    assert np.isnan(features(np.array([[np.nan]])).data).any()
    assert not Hashed(9, categories=(), scales=(1.0,)).is_sparse
    again = from_settings(features.settings)
    assert again == features
    assert parse("hash:18,pairs=false,seed=2") == Hashed(18, False, 2)
    assert parse("hash:18,categories=0x2") == Hashed(18, categories=(0, 2))
    assert text_for(features) == "hash"


@pytest.mark.parametrize(
    ("features", "module", "observations"),
    [
        (Tiles(8, 30, low=(0, 0), high=(1, 1)), tiles, np.random.default_rng(0).random((40, 2))),
        (Tabular(9_000, other=True), tabular, np.random.default_rng(0).integers(0, 11_000, 40)),
        (OneHot((3_000, 2_000, 5)), tabular, np.random.default_rng(0).integers(0, 5, (40, 3))),
    ],
)
def test_wide_features_equal_dense_ones(features: Any, module: Any, observations: Any, monkeypatch: Any) -> None:
    sparse = features(observations)
    monkeypatch.setattr(module, "MOST_DENSE", 1 << 20)
    dense = features(observations)
    assert isinstance(sparse, csr_array)
    np.testing.assert_array_equal(sparse.toarray(), dense)


def test_functions_may_return_sparse_rows() -> None:
    def ones(states: Any) -> Any:
        n = len(states)
        return csr_array((np.ones(n), (np.arange(n), states[:, 0].astype(int))), shape=(n, 5_000))

    features = FromFunction(ones).bind(np.arange(10.0)[:, None])
    rows = features(np.array([[3.0], [np.nan], [4_999.0]]))
    assert features.is_sparse
    assert np.isnan(rows.toarray()[1]).any()
    assert (rows[[0, 2]].indices.tolist(), rows.shape) == ([3, 4_999], (3, 5_000))


def test_a_function_with_many_features_is_tested_without_dense_rows() -> None:
    def ones(states: Any, shift: float = 0.0) -> Any:
        n, columns = len(states), (states[:, 0] + shift).astype(int)
        return csr_array((np.ones(n), (np.arange(n), columns)), shape=(n, 1 << 24))

    states = np.arange(10.0)[:, None]
    tracemalloc.start()
    assert FromFunction(ones).bind(states).n == 1 << 24
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24  # bytes; a dense row has 2^27
    with pytest.raises(InvalidInputError, match="treat each observation independently, but row 0 changes"):
        FromFunction(lambda s: ones(s, s.max())).bind(states)


def test_what_needs_dense_features_says_so() -> None:
    wide = Tabular(9_000)
    assert Scaled(wide, 0.5)(np.array([2])).data.tolist() == [0.5]
    with pytest.raises(InvalidInputError, match=r"^A Stack needs dense features, but the rows of Tabular with 9,000"):
        Stack(wide, Tabular(2)).bind(np.arange(3))
    with pytest.raises(InvalidInputError, match=r"^bits must be at most 24, but is 25"):
        Hashed(25)


def test_many_words_are_hashed_and_otherwise_an_error() -> None:
    words = [f"w{i}" for i in range(3_000)]
    table = pyarrow.table({"word": words, "reward": np.arange(3_000.0)})
    with pytest.raises(InvalidInputError, match=r"or pass text='hash' with features='hash:20'"):
        vrtd.logs.read(table, observations="word")
    with pytest.raises(InvalidInputError, match=r"was read as a hash, which only hashed features can use"):
        vrtd.Evaluator(discount=0.5).fit(vrtd.logs.read(table, observations="word", text="hash"))


def test_text_is_hashed_for_a_target_policy_too() -> None:
    words = [f"w{i}" for i in range(3_000)]
    table = {"word": words, "action": [0, 1] * 1_500, "p": [0.5] * 3_000, "reward": [0.0] * 3_000}
    evaluator = vrtd.Evaluator(features="hash:13", discount=0.5, target=lambda states: np.zeros(len(states), int))
    columns: Any = {"observations": "word", "action": "action"}
    with pytest.raises(InvalidInputError, match=r"^A target policy needs dense features.* or log propensities\.$"):
        evaluator.fit(pyarrow.table(table), **columns)
    evaluator.fit(pyarrow.table(table), **columns, propensity="p")
    assert evaluator.features == Hashed(13, categories=(0,), scales=(1.0,))


def test_categories_beyond_the_observation_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="categories names number 9, but there are 2 numbers"):
        Hashed(10, categories=[9]).bind(np.zeros((3, 2)))


def test_whole_numbers_that_may_be_identifiers_have_a_warning(recwarn: Any) -> None:
    rng = np.random.default_rng(0)
    table: Any = pyarrow.table(
        {
            "word": rng.choice(["a", "b"], 3_000),
            "size": rng.normal(size=3_000),
            "shop": rng.integers(0, 300, 3_000),
            "floor": rng.integers(0, 20, 3_000),
            "reward": np.zeros(3_000),
        }
    )
    message = (
        r"^The whole numbers of column 'shop' have one feature, so that V is linear in them\. If they are identifiers, "
        r"convert them to text, or pass features='hash:10,categories=2'\.$"
    )
    columns = ["word", "size", "shop", "floor"]
    with pytest.warns(DataWarning, match=message):
        evaluator = vrtd.Evaluator(features="hash:10", discount=0.5).fit(table, observations=columns)
    assert evaluator.diagnostics_.warnings[0].startswith("the whole numbers of column 'shop' have one feature")
    with pytest.warns(DataWarning, match="The whole numbers of column 'shop'"):
        vrtd.Evaluator(features="hash:10", discount=0.5, pilot_rows=1_000).fit(table, observations=columns)
    recwarn.clear()
    for spec, categories in (("hash:10,categories=2", (0, 2)), (Hashed(10, categories=[]), (0,))):
        evaluator = vrtd.Evaluator(features=spec, discount=0.5).fit(table, observations=columns)
        assert evaluator.features.categories == categories
    assert not recwarn.list
