"""Which algorithm, step and batch size a run uses, and when "auto" decides on them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import REGISTRY, TD, VRTD, Algorithm
from vrtd.checks import check_choice, check_count, check_exact_count, check_positive
from vrtd.errors import InvalidInputError, StabilityWarning
from vrtd.estimator.learner import Learner
from vrtd.estimator.pilot import Pilot
from vrtd.logs.log import SEGMENT
from vrtd.theory.settings import limit_step, settings_for

__all__ = ["CLOSED_FORM", "Schedule"]

Floats = NDArray[np.float64]

CLOSED_FORM = "lstd"
_KNOWN = (VRTD.name, TD.name)  # whose settings can be chosen; others come with settings of their own
# Without a number of rows to plan for, settings are made for so many times the rows so far, and batches are at most a
# share of them: a run that stops earlier has learned from most of its rows.
_HORIZON, _SHARE = 4, 8
# Also where their number is known: a batch that is never closed, as fewer rows came or Ctrl-C did, teaches nothing. A
# few rows less than announced must not cost an epoch.
_KNOWN_SHARE, _SLACK = 4, 64
_MOST_BATCH_BYTES = 1 << 26  # what "auto" lets rows of an open batch take
# The mean over an epoch has less variance than the paper's random iterate, at the same cost.
_OUTPUT: Literal["average"] = "average"


@dataclass(eq=False)
class Schedule:
    """The settings that were asked for, and the words that say what came of them."""

    algorithm: str | Algorithm
    step_size: float | str
    batch_size: int | str
    n_samples: int | None
    pilot_rows: int
    remarks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_count("pilot_rows", self.pilot_rows)
        if self.n_samples is not None:
            check_exact_count("n_samples", self.n_samples)
        _check_auto("step_size", self.step_size, check_positive)
        _check_auto("batch_size", self.batch_size, check_count)
        given = [name for name in ("step_size", "batch_size") if getattr(self, name) != "auto"]
        if isinstance(self.algorithm, Algorithm):
            if given:
                raise InvalidInputError(
                    "an algorithm with settings of its own must not be given others", given[0], "drop one of the two"
                )
            return
        check_choice("algorithm", self.algorithm, (*_KNOWN, CLOSED_FORM))
        for name in given:
            if self.algorithm == CLOSED_FORM or name not in {
                f.name for f in fields(cast("Any", REGISTRY[self.algorithm]))
            }:
                raise InvalidInputError(f"{self.algorithm} has no {name}", getattr(self, name), "drop it")

    def anew(self) -> Self:
        """The same settings, with nothing decided yet."""
        return replace(self, remarks=[])

    @property
    def is_closed_form(self) -> bool:
        return self.algorithm == CLOSED_FORM

    @property
    def chooses_step(self) -> bool:
        """Whether "auto" decides on the step."""
        return self.algorithm in _KNOWN and self.step_size == "auto"

    @property
    def needs_pilot(self) -> bool:
        """Whether "auto" has something to decide on."""
        if isinstance(self.algorithm, Algorithm) or self.is_closed_form:
            return False
        return self.step_size == "auto" or (self.algorithm == "vrtd" and self.batch_size == "auto")

    def begin(self, pilot: Pilot | None, discount: float, theta_0: Floats, seed: int, is_weighted: bool) -> Learner:
        """The run, at its first row."""
        if isinstance(self.algorithm, Algorithm):
            algorithm: Algorithm = self.algorithm
            n_epochs = None
        elif not self.needs_pilot:
            algorithm, n_epochs = self._build(self.step_size, self.batch_size), None
        else:
            assert pilot is not None
            algorithm, n_epochs = self._decide(pilot, theta_0, 0)
        return Learner(algorithm, n_epochs, discount, theta_0, seed, is_weighted, self.chooses_step)

    def go_on(self, learner: Learner, pilot: Pilot, theta_0: Floats) -> None:
        """The next leg, when the rows have come for which the settings were made."""
        learner.begin_leg(*self._decide(pilot, theta_0, learner.n_rows))

    @property
    def given_step(self) -> float | None:
        """The largest step that was asked for; None where "auto" decides, or there is none."""
        step = self.algorithm.largest_step_size if isinstance(self.algorithm, Algorithm) else self.step_size
        return None if step is None or isinstance(step, str) else float(step)

    def check(self, step: float, pilot: Pilot) -> None:
        """Warn of a step that diverges, as far as the pilot rows show."""
        limited = limit_step(pilot.sample, step)
        if limited.diverges:
            self.remarks.append(f"step_size {step:g} is beyond the limit of stability, {limited.largest_step:.3g}")
            warnings.warn(
                f"step_size must be below {limited.largest_step:.3g}, as the first {len(pilot):,} rows show; "
                f"got {step:g}; lower it, or expect errors without bound",
                StabilityWarning,
                stacklevel=2,
            )

    def _decide(self, pilot: Pilot, theta_0: Floats, n_rows: int) -> tuple[Algorithm, int]:
        """The settings of the next leg, and its epochs. It is planned as if it were the first, with what all rows so
        far show: its start can only be better than theta_0."""
        n, so_far = self.n_samples or 0, max(n_rows, len(pilot))
        horizon = end = n if n_rows < n else _HORIZON * so_far
        largest = min(_MOST_BATCH_BYTES // (16 * theta_0.size), horizon // (_KNOWN_SHARE if n_rows < n else _SHARE))
        found = settings_for(
            pilot.sample, max(2, horizon - horizon // _SLACK), pilot.basis.T @ theta_0,
            algorithm="td" if self.algorithm == "td" else "vrtd", output=_OUTPUT, largest_batch=max(2, largest),
            step_size=None if self.step_size == "auto" else float(self.step_size),
            batch_size=None if self.batch_size == "auto" else int(self.batch_size),
        )  # fmt: skip
        if found.method.startswith("fallback"):  # look again soon
            end = min(end, 2 * so_far)
        M = found.batch_size
        if self.batch_size == "auto":
            M = _whole_segments(max(1, min(M, (end - n_rows) // 2)))
        text = f"from row {n_rows:,}: step {found.step_size:.3g}"
        text += "" if self.algorithm == "td" else f", batch {M:,}"
        self.remarks.append(f"{text}, for {horizon:,} rows ({found.method})")
        self.remarks.extend(remark for remark in found.remarks if remark not in self.remarks)
        return self._build(found.step_size, M), max(1, -((n_rows - end) // (1 if self.algorithm == "td" else M)))

    def _build(self, step_size: Any, batch_size: Any) -> Algorithm:
        if self.algorithm == "td":
            return TD(float(step_size))
        return VRTD(float(step_size), int(batch_size), output=_OUTPUT)


def _whole_segments(batch_size: int) -> int:
    """The next smaller batch that holds whole segments of a vector of environments, or is held by them.

    >>> [_whole_segments(M) for M in (1, 7, 100, 1000)]
    [1, 4, 64, 960]
    """
    return batch_size // SEGMENT * SEGMENT or 1 << (batch_size.bit_length() - 1)


def _check_auto(name: str, value: Any, check: Any) -> None:
    if isinstance(value, str):
        if value != "auto":
            raise InvalidInputError(f"{name} must be a number or 'auto'", repr(value), "pass one of them")
    else:
        check(name, value)
