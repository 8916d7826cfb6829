"""The thread that reads ahead: same items, at most two ahead, errors passed on, and its end with its consumer."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tests.helpers.log_cases import episodic
from vrtd.logs import from_arrays, read, write
from vrtd.logs.read_ahead import read_ahead


def reading_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("vrtd-read-ahead")]


def counting(n, made, closed=None):
    try:
        for i in range(n):
            made.append(i)
            yield i
    finally:
        if closed is not None:
            closed.append(threading.current_thread().name)


def failing_consumer(items):
    for _ in items:
        raise ValueError("the consumer")


def test_items_are_the_same_and_at_most_two_ahead():
    for n in (0, 1, 2, 50):
        made = []
        for i, item in enumerate(read_ahead(counting(n, made))):
            assert item == i
            assert len(made) <= i + 3
        assert made == list(range(n))
    assert reading_threads() == []


def test_the_next_items_are_made_while_this_one_is_used():
    made = []
    items = read_ahead(counting(10, made))
    assert next(items) == 0
    for _ in range(1000):
        if len(made) == 3:
            break
        time.sleep(0.001)
    assert made == [0, 1, 2]
    items.close()


def test_errors_are_raised_in_the_place_of_their_item():
    def failing():
        yield 1
        raise KeyError("broken")

    items = read_ahead(failing())
    assert next(items) == 1
    with pytest.raises(KeyError, match="broken"):
        next(items)
    assert reading_threads() == []


@pytest.mark.parametrize("how", ["close", "forget", "raise"])
def test_the_thread_ends_with_its_consumer(how):
    made, closed = [], []
    items = read_ahead(counting(1000, made, closed))
    next(items)
    if how == "close":
        items.close()
    elif how == "forget":
        del items
        gc.collect()
    else:
        with pytest.raises(ValueError, match="the consumer"):
            failing_consumer(items)
        del items
        gc.collect()
    assert reading_threads() == []
    assert len(made) <= 3
    assert closed == ["vrtd-read-ahead_0"]


def test_closing_a_reading_ends_its_thread(tmp_path):
    write(from_arrays(**episodic(200_000)), tmp_path / "a.parquet")
    chunks = read(tmp_path / "a.parquet").chunks()
    assert next(chunks).reward.size < 200_000
    assert len(reading_threads()) == 1
    chunks.close()
    assert reading_threads() == []


def test_a_program_may_end_in_the_middle_of_a_reading(tmp_path):
    write(from_arrays(**episodic(200_000)), tmp_path / "a.npz")
    program = f"from vrtd.logs import read; chunks = read({str(tmp_path / 'a.npz')!r}).chunks(); next(chunks)"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_two_readings_at_the_same_time_are_independent(tmp_path):
    write(from_arrays(**episodic(150_000)), tmp_path / "a.parquet")
    log = read(tmp_path / "a.parquet")
    for one, other in zip(log.chunks(), log.chunks(), strict=True):
        assert np.array_equal(one.observations, other.observations)
        assert not np.shares_memory(one.observations, other.observations)
