"""What holds for every test."""

from __future__ import annotations

import gc
import os
import signal

# Before NumPy is imported. On small matrices a second thread of BLAS does little but wait, and waiting takes as much
# time of a core as work; pytest-xdist already has a process for every core.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from collections.abc import Iterator
from pathlib import Path

import pytest
from numba.core import event

from tests.helpers.collection import COMPILED, statistical_names

# A shell ignores SIGINT in the background, and nohup SIGHUP. The processes that tests start would inherit that.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """Note what is compiled while tests are collected, and then keep the garbage collector from it all.

    Modules and tests live to the end. Numba makes so many objects that the collector would look through them again for
    every other loop that is compiled: a fifth of the suite's time.
    """
    with event.install_recorder("numba:compile") as recorder:
        result = yield
    session.config.stash[COMPILED] = [started.data["dispatcher"].__name__ for _, started in recorder.buffer]
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    return result


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that use tests/helpers/statistics.py."""
    names: dict[Path, set[str]] = {}
    for item in items:
        if isinstance(item, pytest.Function):
            if item.path not in names:
                source = item.path.read_text()
                names[item.path] = statistical_names(source) if "tests.helpers.statistics" in source else set()
            if item.originalname in names[item.path]:
                item.add_marker(pytest.mark.statistical)


@pytest.fixture(autouse=True)
def _no_progress_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine lines of progress would come between those that a test looks at. Tests of the progress itself
    set `_SECONDS_BETWEEN_LINES`."""
    monkeypatch.setattr("vrtd.progress._SECONDS_BETWEEN_LINES", float("inf"))
