"""`vrtd.evaluate` of policies: from their start states, checked by returns, of a target, and compared with another."""

from __future__ import annotations

import json
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.notebooks import check_repr, read_summary
from tests.helpers.pages import Outline
from vrtd.errors import InvalidInputError
from vrtd.estimator import Evaluation, EvaluationInterrupted, Interval, evaluate
from vrtd.logs import Log, from_arrays
from vrtd.logs.log import WrappedLog
from vrtd.tables import parse_csv

OPTIONS: dict[str, Any] = {"features": "tabular:2", "discount": 0.9, "pilot_rows": 500}
STAY, LEAVE = np.array([0, 0]), np.array([1, 1])  # the action in each state
N = 2000


def shop(seed: int, patience: float, n: int = N) -> Log:
    """Customers of two kinds, of whom a random action loses some: action 1 pays 2 and loses more than action 0."""
    rng = np.random.default_rng(seed)
    kind, action = rng.integers(2, size=n), rng.integers(2, size=n)
    leaves = rng.random(n) < np.where(action == 1, 1.0 - patience, 0.2)
    starts = np.append(True, leaves[:-1])
    kind = kind[np.maximum.accumulate(np.where(starts, np.arange(n), 0))]  # stays the same for an episode
    return from_arrays(kind, 1.0 + action + kind, kind, terminated=leaves, action=action)


class Interrupted(WrappedLog):
    """Ctrl-C when it is read for the second time."""

    n_readings = 0

    def chunks(self) -> Any:
        self.n_readings += 1
        if self.n_readings > 1:
            raise KeyboardInterrupt
        yield from self._log.chunks()


@pytest.fixture(scope="module")
def compared(tmp_path_factory: Any) -> Evaluation:
    out = tmp_path_factory.mktemp("compared")
    return evaluate(shop(0, 0.7), against=shop(1, 0.3), out=out, **OPTIONS)


def text_of(found: Evaluation) -> str:
    return " ".join(Outline(found.report.read_text()).text.split())


# Policy value and returns


def test_the_policy_value_is_the_headline_and_returns_are_beside_it(tmp_path: Path) -> None:
    found = evaluate(shop(0, 0.7), out=tmp_path, **OPTIONS)
    value, mean = found.evaluator.policy_value(), found.evaluator.mean_value()
    assert found.answer is found.policy_value
    stored = json.loads((tmp_path / "diagnostics.json").read_text())
    for quantity, expected in (("policy_value", value), ("mean_value", mean)):
        assert [stored[quantity][end] for end in ("value", "low", "high")] == list(expected)
    returns = found.evaluator.check_returns()
    assert returns is not None
    assert stored["returns"]["mean_return"] == returns.mean_return._asdict()
    assert stored["returns"]["difference"] == returns.difference._asdict()
    assert stored["returns"]["agrees"] is True
    text, n = text_of(found), found.evaluator.n_episodes_
    assert f"Policy value {value.value:.2f} (95 % interval {value.low:.2f} to {value.high:.2f}) Averaged over" in text
    assert f"Averaged over the first states of {n:,} episodes." in text
    assert f"Mean value {found.mean_value.text}: averaged over the visited states, weighted by visit counts." in text
    assert f"averaged over {returns.n_complete:,} complete episodes" in text
    assert "it agrees with the values of the first states." in text
    assert f"Converged {N:,} rows, discount" in text
    assert check_repr(found.evaluator).endswith(
        f"; mean value {mean.value:.4g} [{mean.low:.4g}, {mean.high:.4g}]; converged)"
    )
    assert read_summary(found.evaluator).entries["policy value"].startswith(f"{value.value:.4g} [{value.low:.4g}, ")
    assert check_repr(found, 120 + len(str(tmp_path))).startswith(f"Evaluation(policy value {found.policy_value}; ")


def test_returns_that_disagree_are_a_warning(tmp_path: Path) -> None:
    """The first of two steps pays, and the observations do not tell which step it is."""
    step = np.arange(N) % 2
    reward = (1.0 - step) * np.random.default_rng(0).uniform(0.5, 1.5, N)
    log = from_arrays(np.zeros(N, int), reward, np.zeros(N, int), terminated=step == 1)
    found = evaluate(log, out=tmp_path, **OPTIONS | {"features": "tabular:1", "discount": 0.5})
    assert found.returns is not None
    assert found.returns.difference.value == pytest.approx(0.5 / (1 - 0.25) - 1.0, abs=0.05)
    assert found.as_dict()["returns"]["agrees"] is False
    (warning,) = found.diagnostics.warnings
    assert "the observations are not the whole state" in warning
    text = text_of(found)
    assert "! Converged, with warnings" in text
    assert f"Warning: {warning}." in text
    assert "it does not agree with the values of the first states." in text


# Two policies


def test_two_logs_are_compared(compared: Evaluation) -> None:
    a, b = (vrtd.Evaluator(**OPTIONS).fit(shop(*log)) for log in ((0, 0.7), (1, 0.3)))
    expected = vrtd.difference(a, b)
    assert expected.low > 0.0
    found = compared.as_dict()
    assert {end: found["difference"][end] for end in ("value", "low", "high")} == expected._asdict()
    assert (found["difference"]["level"], found["difference"]["joint"]) == (0.95, False)
    assert found["against"]["policy_value"]["value"] == b.policy_value().value
    assert found["against"]["mean_value"]["high"] == b.mean_value().high
    assert (found["against"]["name"], found["against"]["n_rows"]) == ("the other policy", N)
    stored = json.loads((compared.out / "diagnostics.json").read_text())
    assert all(stored[key] == found[key] for key in ("policy_value", "against", "difference", "returns"))
    text = text_of(compared)
    numbers = f"{expected.value:.2f} (95 % interval {expected.low:.2f} to {expected.high:.2f})"
    assert f"The policy is better than the other policy by {numbers}" in text
    assert "Value of the policy against the other policy" in text
    drawn = {
        name: parse_csv((compared.out / "figures" / f"{name}.csv").read_bytes()) for name in ("policies", "difference")
    }
    assert drawn["policies"]["value"].tolist() == [a.policy_value().value, b.policy_value().value]
    assert [drawn["difference"][end].item() for end in ("value", "low", "high")] == list(expected)
    assert "the policy minus the other policy" in (compared.out / "figures" / "difference.svg").read_text()


def test_two_targets_of_one_log_are_compared_by_the_same_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "stay.npy", STAY)
    log, options = shop(0, 0.7), {"target": LEAVE, "against_target": str(tmp_path / "stay.npy")}
    found = evaluate(log, out=tmp_path / "out", **options, **OPTIONS)
    a, b = (vrtd.Evaluator(target=target, **OPTIONS).fit(log) for target in (LEAVE, STAY))
    assert found.comparison is not None
    assert found.comparison.is_joint
    assert found.comparison.difference == vrtd.difference(a, b)
    assert found.answer.value == a.policy_value().value
    assert (found.target, found.comparison.other, found.returns) == ("the target policy", "stay.npy", None)
    text = text_of(found)
    assert "Value of the target policy against stay.npy" in text
    assert "(the same rows)" in text
    assert "Target policy Policy the target policy Effective sample size" in text
    evaluate(log, out=tmp_path / "out", **OPTIONS)  # what it does not have is removed
    assert not {path.stem for path in (tmp_path / "out" / "figures").iterdir()} & {"policies", "difference"}


def test_the_verdict_says_who_is_better(compared: Evaluation) -> None:
    comparison = compared.comparison
    assert comparison is not None
    verdicts = {
        Interval(0.31, 0.22, 0.4): "a is better than b by 0.310 (95 % interval 0.220 to 0.400)",
        Interval(-0.31, -0.4, -0.22): "a is worse than b by 0.310 (95 % interval 0.220 to 0.400)",
        Interval(0.31, -0.1, 0.72): (
            "a and b are statistically tied: the difference is 0.31 (95 % interval −0.10 to 0.72); "  # noqa: RUF001
            "the interval contains 0"
        ),
        Interval(0.31, nan, nan): "a minus b is 0.3100, but no interval is available",
    }
    for difference, verdict in verdicts.items():
        assert replace(comparison, name="a", other="b", difference=difference).verdict == verdict


def test_warnings_say_whose_they_are(compared: Evaluation) -> None:
    comparison = compared.comparison
    assert comparison is not None
    both, only_a = replace(compared.diagnostics, warnings=("x", "y")), ("x",)
    other = replace(compared.diagnostics, warnings=only_a, converged=False, limit=None)
    found = replace(compared, diagnostics=both, comparison=replace(comparison, diagnostics=other))
    assert found.warnings == ("x", "the policy: y", "the other policy: not converged")


def test_progress_goes_over_both_logs(tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    evaluate(shop(0, 0.7), against=shop(1, 0.3, 1000), out=tmp_path, progress=lambda *at: told.append(at), **OPTIONS)
    assert told[-1] == (N + 1000, N + 1000)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_an_interruption_of_the_comparison_keeps_the_first_policy(tmp_path: Path) -> None:
    with pytest.raises(EvaluationInterrupted) as stop:
        evaluate(Interrupted(shop(0, 0.7)), against_target=STAY, out=tmp_path, **OPTIONS)
    found = stop.value.evaluation
    assert (found.interrupted, found.comparison, found.diagnostics.n_rows) == (True, None, N)
    stored = json.loads((tmp_path / "diagnostics.json").read_text())
    assert stored["policy_value"]["value"] == vrtd.Evaluator(**OPTIONS).fit(shop(0, 0.7)).policy_value().value
    assert stored["difference"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"against": shop(1, 0.3), "against_target": STAY}, "against and against_target cannot be combined"),
        ({"against": 3}, "against must be a log, a table or files, but is 3"),
        ({"target": "stay.txt"}, "target must be a .npy or .npz file of .*, but is stay.txt"),
        ({"against_target": "no.npy"}, "against_target no.npy does not exist"),
        (
            {"against": from_arrays(np.zeros(600, int), np.ones(600), np.zeros(600, int))},
            "The log of the other policy must have at least two episodes, .*, but has 1. Name the columns",
        ),
    ],
)
def test_refusals(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        evaluate(shop(0, 0.7), out=tmp_path / "out", **change, **OPTIONS)
    assert list(tmp_path.iterdir()) == []
