"""When "auto" decides on settings, and for how many rows."""

from __future__ import annotations

from unittest.mock import Mock

import numpy as np
import pytest

import vrtd
from tests.helpers.some_logs import DISCOUNT, boyan, chunk
from vrtd.estimator import auto_settings
from vrtd.logs import Chunk
from vrtd.theory.settings import settings_for


def test_settings_are_made_for_four_times_the_rows_so_far() -> None:
    evaluator = vrtd.Evaluator("td", features=None, discount=DISCOUNT, pilot_rows=400).fit(chunk(0, 6500))
    told = [remark.split(":")[0] for remark in evaluator.diagnostics_.remarks if remark.startswith("from row")]
    assert told == ["from row 0", "from row 1,600", "from row 6,400"]
    again = evaluator.fit(chunk(0, 6500)).diagnostics_.remarks  # forgets
    assert len([remark for remark in again if remark.startswith("from row")]) == 3


@pytest.mark.parametrize(("n_samples", "largest"), [(None, 200), (10**9, (1 << 26) // (16 * 4))])
def test_batches_are_bounded(n_samples: int | None, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an eighth of the rows that are planned for where these are a guess, by memory where they are not."""
    spy = Mock(side_effect=settings_for)
    monkeypatch.setattr(auto_settings, "settings_for", spy)
    start = np.arange(4.0)
    vrtd.Evaluator(
        "vrtd", features=None, discount=DISCOUNT, pilot_rows=400, n_samples=n_samples, theta_0=start
    ).partial_fit(chunk(0, 400))
    assert np.array_equal(spy.call_args.args[2], start)
    assert [call.kwargs["largest_batch"] for call in spy.call_args_list] == [largest]


def test_settings_are_those_that_were_used() -> None:
    """A phase begins with its first row, not with the last of the one before."""
    rows, _, _ = boyan(20_000)
    evaluator = vrtd.Evaluator("td", features=None, discount=1.0, n_samples=20_000).fit(rows)
    assert len([remark for remark in evaluator.diagnostics_.remarks if remark.startswith("from row")]) == 1
    evaluator.partial_fit(Chunk(*(values[:1] for values in rows[:5])))
    assert len([remark for remark in evaluator.diagnostics_.remarks if remark.startswith("from row")]) == 2


def test_fit_does_not_wait_for_rows_that_were_announced() -> None:
    evaluator = vrtd.Evaluator("vrtd", features=None, discount=DISCOUNT, n_samples=1_000_000).fit(chunk(0, 2000))
    assert evaluator.n_waiting_ < 1000
