"""What holds for every test."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _no_progress_by_the_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a busy machine makes a command slow, lines of progress would come between those that a test looks at; tests
    of the progress itself bring their own clock."""
    if "progress" not in request.node.name:
        monkeypatch.setattr("vrtd.cli.terminal._SECONDS_BETWEEN_LINES", float("inf"))
