"""Which algorithm, step and batch size a fit uses, and what "auto" decides on them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple, cast, get_args

from vrtd.algorithms import REGISTRY, TD, VRTD, Algorithm, RichardsonTD, Schedule
from vrtd.arrays import Floats
from vrtd.checks import check_choice, check_count, check_exact_count, check_positive
from vrtd.errors import InvalidInputError, StabilityWarning
from vrtd.features import Features, table_of
from vrtd.logs.log import SEGMENT
from vrtd.problems import Transitions
from vrtd.report.numbers import describe_settings
from vrtd.theory.predictions import Prediction
from vrtd.theory.settings import growth_ratio, limit_step, settings_for

Cost = Literal["auto", "linear", "quadratic"]  # what work per row is allowed, in the number of features
#: Names that are no algorithms of the registry: the closed form of all rows, and the best method for these features.
CLOSED_FORM, AUTO = "closed_form", "auto"
# Features up to which "auto" takes the closed form, which needs d^2 operations per row; those of states are sparse, and
# cost little. docs/evaluate.md has the measurement.
_MOST_FEATURES, _MOST_STATES = 512, 900
_PILOT, _LINEAR_PILOT = 5000, 1000  # rows
_TUNED = (VRTD.name, TD.name, RichardsonTD.name)  # whose settings "auto" can choose; others keep their defaults
# Without a number of rows to plan for, settings are made for this multiple of the rows so far, and batches are at most
# a share of them: a run that stops earlier has learned from most of its rows.
_HORIZON, _SHARE = 4, 8
# Also where their number is known: a batch that is never closed, as fewer rows came or Ctrl-C did, teaches nothing. A
# few rows less than announced must not cost an epoch.
_KNOWN_SHARE, _SLACK = 4, 64
_MOST_BATCH_BYTES = 1 << 26  # what "auto" lets rows of an open batch take
# The mean over an epoch has less variance than the paper's random iterate, at the same cost.
_OUTPUT: Literal["average"] = "average"


class Decision(NamedTuple):
    """The settings of the next phase."""

    algorithm: Algorithm
    n_epochs: int | None  # None: to the end
    remarks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class AutoSettings:
    """The settings that were asked for; "auto" stands for what is decided when the pilot rows have come."""

    algorithm: str | Algorithm
    step_size: float | str
    batch_size: int | str
    n_samples: int | None
    pilot_rows: int
    cost: Cost = "auto"

    def __post_init__(self) -> None:
        check_count("pilot_rows", self.pilot_rows)
        check_choice("cost", self.cost, get_args(Cost))
        if self.n_samples is not None:
            check_exact_count("n_samples", self.n_samples)
        _check_auto("step_size", self.step_size, check_positive)
        _check_auto("batch_size", self.batch_size, check_count)
        if isinstance(self.algorithm, Algorithm):
            if self._given:
                must = "an algorithm with settings of its own must not be given others"
                raise InvalidInputError(must, next(iter(self._given)), "drop one of the two")
        else:
            name = check_choice("algorithm", self.algorithm, (AUTO, CLOSED_FORM, *REGISTRY))
            object.__setattr__(self, "algorithm", name)
            for name, value in self._given.items():
                if self.is_auto:
                    must = f"{name} must be given together with an algorithm"
                    raise InvalidInputError(must, f"{value} for 'auto'", "name it: algorithm='vrtd', for example")
                if self.is_closed_form or name not in {f.name for f in fields(cast("Any", REGISTRY[self.algorithm]))}:
                    raise InvalidInputError(f"{self.algorithm} has no {name}", value, "drop it")
        if self.algorithm not in (*_TUNED, CLOSED_FORM, AUTO) and not self.is_linear:
            _check_log(self._build(self._given))
        if isinstance(self.algorithm, VRTD) and self.is_linear and self.algorithm.radius is not None:
            must = "batches that grow on a log are for VRTD without projection"
            raise InvalidInputError(must, f"radius {self.algorithm.radius}", "drop the radius")
        if isinstance(self.algorithm, RichardsonTD):
            if self.algorithm.burn_in:
                must = "extrapolated TD on a log leaves out its first rows by itself"
                raise InvalidInputError(must, f"burn_in {self.algorithm.burn_in}", "drop burn_in")
            if isinstance(self.algorithm.step_size, Schedule):
                must = "extrapolated TD on a log is for a constant step"
                raise InvalidInputError(
                    must, self.algorithm.step_size, "pass a number, or 'richardson_td' to choose it"
                )
        if self.cost == "linear":
            self._check_linear()

    def _check_linear(self) -> None:
        """Raise if the algorithm, or the choice of its settings, needs more work than O(d) per row."""
        kind = REGISTRY.get(str(self.algorithm)) if isinstance(self.algorithm, str) else type(self.algorithm)
        if self.is_closed_form or (kind is not None and kind.cost == "quadratic"):
            name = self.algorithm if isinstance(self.algorithm, str) else self.algorithm.name
            raise InvalidInputError(
                "cost='linear' is for algorithms with O(d) work per row", name, "drop one of the two, or take 'vrtd'"
            )
        if self.algorithm == TD.name and self.step_size == "auto":
            must = "with cost='linear', the step of td must be given: to choose it takes d^2 numbers"
            raise InvalidInputError(must, "step_size='auto'", "pass step_size, or take algorithm='richardson_td'")
        if self.algorithm == VRTD.name and "batch_size" in self._given:
            must = "with cost='linear', batches of vrtd grow by themselves"
            raise InvalidInputError(must, f"batch_size {self.batch_size}", "drop it, or pass vrtd.VRTD(..., growth=2)")

    @property
    def _given(self) -> dict[str, Any]:
        """What is not left to "auto"."""
        kinds = {"step_size": float, "batch_size": int}
        return {name: kind(getattr(self, name)) for name, kind in kinds.items() if getattr(self, name) != "auto"}

    @property
    def rows_to_end(self) -> int:
        """Rows among which one must terminate if the discount is 1."""
        return max(self.pilot_rows, _PILOT) if self.cost == "linear" else self.pilot_rows

    @property
    def is_auto(self) -> bool:
        """Whether the algorithm is not decided on: see `Setup.resolve`."""
        return self.algorithm == AUTO

    @property
    def is_linear(self) -> bool:
        """Whether the fit is a `LinearFit`."""
        match self.algorithm:
            case RichardsonTD() | RichardsonTD.name:
                return True
            case VRTD():
                return self.algorithm.grows
            case name:
                return name == VRTD.name and self.cost == "linear"

    @property
    def is_closed_form(self) -> bool:
        return self.algorithm == CLOSED_FORM

    @property
    def chooses_step(self) -> bool:
        """Whether "auto" decides on the step."""
        return self.algorithm in _TUNED and self.step_size == "auto"

    @property
    def needs_pilot(self) -> bool:
        """Whether "auto" has something to decide on."""
        if self.is_linear:
            return True
        if self.algorithm not in _TUNED:
            return False
        return self.step_size == "auto" or (self.algorithm == "vrtd" and self.batch_size == "auto")

    @property
    def given_step(self) -> float | None:
        """The largest step that was asked for; None where "auto" decides, or there is none."""
        if self.algorithm in (CLOSED_FORM, AUTO) or self.chooses_step:
            return None
        return self._given.get("step_size") if self.needs_pilot else self._build(self._given).largest_step_size

    @property
    def trace_decay(self) -> float:
        """lambda of the algorithm: with traces it has another fixed point than the closed form."""
        if self.algorithm in (CLOSED_FORM, AUTO) or self.needs_pilot:
            return 0.0
        return float(self._build(self._given).settings.get("trace_decay", 0.0))

    def decide(self, sample: Transitions | None, theta_0: Floats, n_rows: int) -> Decision:
        """Decide on the phase that begins after `n_rows` rows; `sample` is what the first rows show.

        A phase is planned as if it were the first one, with what all rows so far show: its start can only be better
        than theta_0.
        """
        if not self.needs_pilot:
            algorithm = self._build(self._given)
            defaults = isinstance(self.algorithm, str) and self.algorithm not in _TUNED
            remark = f"{self.algorithm} has no automatic settings: it runs with {describe_settings(algorithm.settings)}"
            return Decision(algorithm, None, (remark,) if defaults else ())
        assert sample is not None
        n, so_far = self.n_samples or 0, max(n_rows, len(sample))
        horizon = end = n if n_rows < n else _HORIZON * so_far
        largest = min(_MOST_BATCH_BYTES // (16 * theta_0.size), horizon // (_KNOWN_SHARE if n_rows < n else _SHARE))
        is_td, given = self.algorithm == TD.name, self._given
        found = settings_for(
            sample, max(2, horizon - horizon // _SLACK), theta_0,
            algorithm="td" if is_td else "vrtd", output=_OUTPUT, largest_batch=max(2, largest),
            step_size=given.get("step_size"), batch_size=given.get("batch_size"),
        )  # fmt: skip
        if found.prediction is Prediction.NONE:  # look again soon
            end = min(end, 2 * so_far)
        M = found.batch_size
        if not is_td and "batch_size" not in given:
            M = _whole_segments(max(1, min(M, (end - n_rows) // 2)))
        text = f"from row {n_rows:,}: step {found.step_size:.3g}{'' if is_td else f', batch {M:,}'}"
        remarks = (f"{text}, for {horizon:,} rows ({found.method})", *found.remarks)
        chosen = {"step_size": found.step_size} | ({} if is_td else {"batch_size": M})
        return Decision(self._build(chosen), max(1, -((n_rows - end) // M)), remarks)

    def _build(self, settings: dict[str, Any]) -> Algorithm:
        """Return the algorithm with these settings, and the defaults of its class for others."""
        if isinstance(self.algorithm, Algorithm):
            return self.algorithm
        if self.algorithm == VRTD.name:
            settings = settings | {"output": _OUTPUT}
        return REGISTRY[self.algorithm](**settings)


def default_pilot_rows(cost: Cost) -> int:
    """Return how many rows to decide from."""
    return _LINEAR_PILOT if cost == "linear" else _PILOT


def is_cheap(features: Features) -> bool:
    """Return whether the closed form of every row costs little with these bound features."""
    return features.n_features <= (_MOST_FEATURES if table_of(features) is None else _MOST_STATES)


def check_step(step: float, sample: Transitions) -> tuple[str, ...]:
    """Warn of a step that diverges, as far as the pilot rows show, and return remarks that say so."""
    limited = limit_step(sample, step)
    return _warn_of_step(step, limited.largest_step, len(sample)) if limited.diverges else ()


def check_step_linearly(algorithm: Algorithm, sample: Transitions) -> tuple[str, ...]:
    """Do the same with O(d) work per row. The limit is cautious: only a step half as large again is warned of."""
    step, largest = float(algorithm.settings["step_size"]), float(algorithm.largest_step_size or 0.0)
    limit = 2.0 / max(growth_ratio(sample), 1e-300)
    return _warn_of_step(step, limit * step / largest, len(sample)) if largest > 1.5 * limit else ()


def _warn_of_step(step: float, limit: float, n_rows: int) -> tuple[str, ...]:
    warnings.warn(
        f"step_size must be below {limit:.3g}, as the first {n_rows:,} rows show; got {step:g}; lower it, or expect "
        "errors without bound",
        StabilityWarning,
        stacklevel=3,
    )
    return (f"step_size {step:g} is beyond the limit of stability, {limit:.3g}",)


def _check_log(algorithm: Algorithm) -> None:
    if not algorithm.learns_from_log:
        raise InvalidInputError(
            f"{algorithm.name} cannot learn from a log, whose rows come once and in order",
            algorithm.name,
            "use another algorithm (or simulate it on vrtd.logs.data_set(...))",
        )


def _whole_segments(batch_size: int) -> int:
    """Return the next smaller batch that holds whole segments of a vector of environments, or is held by them.

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
