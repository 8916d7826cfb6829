"""Successors: every way of cutting a log into blocks and files gives the rows of the plain form."""

from __future__ import annotations

import itertools
from collections.abc import Generator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.log_cases import check_chunk, episodic, kept_by_hand, paired_by_hand, rows, same_bits
from vrtd.errors import DataError
from vrtd.logs import blocks, from_arrays
from vrtd.logs.blocks import Block, Piece
from vrtd.logs.columns import Columns
from vrtd.logs.encoding import Encoder
from vrtd.logs.part import Part
from vrtd.logs.parts import PartsLog

NAMES = {
    "observations": ("x_0", "x_1"),
    "reward": ("r",),
    "terminated": ("t",),
    "truncated": ("u",),
    "episode": ("e",),
}


class Cut(Part):
    """Rows of a log from one to another, as a file that is read in blocks of the given sizes."""

    columns = Columns("x_*", reward="r")
    has_names = False

    def __init__(self, arrays: dict, start: int, stop: int, sizes: list[int], where: str) -> None:
        self.where, self._arrays, self._start, self._stop, self._sizes = where, arrays, start, stop, sizes
        self.n_rows = stop - start

    def blocks(self, encoder: Encoder) -> Generator[Block, None, None]:
        start, k = self._start, 0
        while start < self._stop:
            stop = min(self._stop, start + self._sizes[k % len(self._sizes)])
            cut = {name: None if array is None else array[start:stop] for name, array in self._arrays.items()}
            piece = Piece(self.where, NAMES, start - self._start, stop - start)
            yield Block(**dict.fromkeys(Block._fields[:13]) | cut, pieces=(piece,))
            start, k = stop, k + 1


@st.composite
def cases(draw):
    n = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ends = rng.random(n) < draw(st.sampled_from([0.0, 0.2, 0.7]))
    terminated = ends & (rng.random(n) < 0.5)
    truncated = rng.random(n) < draw(st.sampled_from([0.0, 0.2]))
    episode = np.cumsum(rng.random(n) < 0.25) if draw(st.booleans()) else None
    arrays = {
        "observations": rng.standard_normal((n, 2)).astype(np.float32),
        "reward": np.arange(n, dtype=np.float64),
        "terminated": terminated,
        "truncated": truncated,
        "episode": episode,
    }
    files = sorted(draw(st.sets(st.integers(1, n), max_size=3)) - {n})
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    return arrays, files, sizes, draw(st.sampled_from([1, 2, 7, 65_536]))


ENDS = st.sampled_from([None, "terminated", "truncated", "drop"])


@settings(max_examples=400, deadline=None)
@given(cases(), ENDS)
def test_any_cut_gives_the_rows_of_the_plain_form(case, episode_end):
    arrays, files, sizes, most = case
    expected, remarks = paired_by_hand(*(arrays[name] for name in arrays), files, episode_end)
    edges = [0, *files, len(arrays["reward"])]
    parts = [
        Cut({**arrays, "next_observations": None}, a, b, sizes, f"file {k}")
        for k, (a, b) in enumerate(itertools.pairwise(edges))
    ]
    log = PartsLog(parts, False, episode_end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "CHUNK_ROWS", most)
        if expected["reward"].size == 0:
            with pytest.raises(DataError, match=r"There is no transition in .*: \d+ rows?, none with a succ"):
                list(log.chunks())
            return
        same_bits(rows(log), expected)
        assert set(log.remarks) == remarks
        for chunk in log.chunks():
            check_places(chunk, arrays, edges)


def check_places(chunk, arrays, edges):
    """Rewards are row numbers, so that every place can be told."""
    for row, number in enumerate(chunk.reward.astype(int)):
        for field, at in (("reward", number), ("observations", number), ("next_observations", number + 1)):
            if field == "next_observations" and chunk.terminated[row]:
                continue
            file = max(k for k, edge in enumerate(edges[:-1]) if edge <= at)
            column = "column r" if field == "reward" else "column x_0 to x_1"
            assert chunk.locate(field, row) == f"file {file}, {column}, row {at - edges[file]}"


@settings(max_examples=200, deadline=None)
@given(cases(), ENDS)
def test_recorded_successors_are_kept_and_ends_of_episodes_marked(case, episode_end):
    arrays, files, sizes, most = case
    successors = -arrays["observations"]
    edges = [0, *files, len(arrays["reward"])]
    parts = [
        Cut({**arrays, "next_observations": successors}, a, b, sizes, f"file {k}")
        for k, (a, b) in enumerate(itertools.pairwise(edges))
    ]
    log = PartsLog(parts, False, episode_end)
    flags = (arrays[name] for name in ("terminated", "truncated", "episode"))
    kept, terminated, truncated, starts = kept_by_hand(*flags, files, episode_end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "CHUNK_ROWS", most)
        if not kept:
            with pytest.raises(DataError, match="There is no transition in"):
                list(log.chunks())
            return
        found = rows(log)
    expected = {name: arrays[name][kept] for name in ("observations", "reward")}
    expected |= {"next_observations": successors[kept], "terminated": terminated, "truncated": truncated}
    same_bits(found, expected | {"starts": starts})
    n_dropped = len(arrays["reward"]) - len(kept)
    assert sum(int(remark.split()[0]) for remark in log.remarks) == n_dropped


def test_a_long_log_is_paired_as_the_plain_form_says():
    n = 3 * blocks.CHUNK_ROWS + 5
    case = episodic(n, width=1)
    given = {name: case[name] for name in ("observations", "reward", "terminated", "truncated")}
    expected, remarks = paired_by_hand(*given.values(), episode=None)
    log = from_arrays(**given)
    same_bits(rows(log), expected)
    assert set(log.remarks) == remarks
    assert log.n_rows == n


def test_without_rows_to_drop_successors_are_views():
    observations = np.random.default_rng(0).random((100, 4))
    (chunk,) = from_arrays(observations, np.zeros(100)).chunks()
    assert np.shares_memory(chunk.observations, observations)
    assert np.shares_memory(chunk.next_observations, observations)
    assert chunk.next_observations.base is not None


def test_recorded_rows_are_handed_on_without_a_copy():
    for kind in (np.float32, np.float64, np.int64, np.uint8):
        case = episodic(50, dtype=kind)
        (chunk,) = from_arrays(**case).chunks()
        check_chunk(chunk)
        for name in ("observations", "next_observations", "reward", "terminated", "truncated", "weight"):
            assert np.shares_memory(getattr(chunk, name), case[name])
            assert getattr(chunk, name).dtype == case[name].dtype


def test_successors_of_terminated_rows_are_zero():
    observations = np.array([[1.0], [2.0], [np.nan], [4.0]])
    log = from_arrays(observations, [0, 0, 0, 0], terminated=[False, True, False, True], truncated=[0, 0, 0, 0])
    whole = rows(log)
    assert whole["next_observations"].tolist() == [[2.0], [0.0], [4.0], [0.0]]
    assert log.remarks == ()


def test_remarks_are_about_the_last_whole_reading():
    log = from_arrays(np.zeros((5, 1)), np.zeros(5), truncated=[0, 0, 1, 0, 0])
    assert log.remarks == ()
    for _ in range(2):
        list(log.chunks())
        assert set(log.remarks) == {
            "1 row dropped: truncated without a final observation",
            "1 row dropped: the last of the log",
        }
