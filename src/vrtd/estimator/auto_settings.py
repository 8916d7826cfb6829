"""The algorithm, step size and batch size of a fit, and their automatic choice."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, NamedTuple, cast, get_args

from vrtd.algorithms import REGISTRY, TD, VRTD, Algorithm, RichardsonTD, Schedule, check_sparse_rows
from vrtd.arrays import Floats
from vrtd.checks import check_choice, check_count, check_exact_count, check_positive
from vrtd.errors import InvalidInputError, StabilityWarning
from vrtd.features import Features, table_of
from vrtd.logs.log import SEGMENT
from vrtd.problems import Transitions
from vrtd.report.numbers import describe_settings
from vrtd.theory.predictions import Prediction
from vrtd.theory.settings import growth_ratio, limit_step, settings_for

Cost = Literal["auto", "linear", "quadratic"]  # work per row that is allowed, as a function of d
#: Names that are not in the registry: the closed form of all rows, and the automatic choice.
CLOSED_FORM, AUTO = "closed_form", "auto"
# Number of features, or of states of a table, up to which "auto" takes the closed form with d^2 operations per row. The
# features of a table are sparse, so that more are possible. docs/intervals.md has the measurement.
_MOST_FEATURES, _MOST_STATES = 512, 900
_PILOT, _LINEAR_PILOT = 5000, 1000  # rows
_TUNED = (VRTD.name, TD.name, RichardsonTD.name)  # "auto" chooses their settings; others use their defaults
# If the number of rows is not known, settings are chosen for this multiple of the rows so far. Batches are at most a
# share of these, so that a run that stops early has used most of its rows.
_HORIZON, _SHARE = 4, 8
# Batches are also limited if the number of rows is known, because rows of an incomplete batch are not used, for example
# when Ctrl-C stops the run. A few rows less than announced must not cost an epoch.
_KNOWN_SHARE, _SLACK = 4, 64
_MOST_BATCH_BYTES = 1 << 26  # for the rows of an open batch that "auto" chooses
# The mean over an epoch has less variance than the paper's random iterate, at the same cost.
_OUTPUT: Literal["average"] = "average"


class Decision(NamedTuple):
    """Settings of the next phase."""

    algorithm: Algorithm
    n_epochs: int | None  # None for a phase without end
    remarks: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class AutoSettings:
    """Settings that the user passed; "auto" is chosen when the pilot rows are complete."""

    algorithm: str | Algorithm
    step_size: float | str
    batch_size: int | str
    n_samples: int | None
    pilot_rows: int
    cost: Cost = "auto"
    is_sparse: bool = False  # whether rows are sparse, see `for_sparse_rows`

    def __post_init__(self) -> None:
        check_count("pilot_rows", self.pilot_rows)
        check_choice("cost", self.cost, get_args(Cost))
        if self.n_samples is not None:
            check_exact_count("n_samples", self.n_samples)
        _check_auto("step_size", self.step_size, check_positive)
        _check_auto("batch_size", self.batch_size, check_count)
        if isinstance(self.algorithm, Algorithm):
            if self._given:
                name = next(iter(self._given))
                raise InvalidInputError(
                    f"{name} cannot be combined with an algorithm that has its own settings.",
                    f"Drop {name}, or set it in the algorithm.",
                )
        else:
            name = check_choice("algorithm", self.algorithm, (AUTO, CLOSED_FORM, *REGISTRY))
            object.__setattr__(self, "algorithm", name)
            for name, value in self._given.items():
                if self.is_auto:
                    raise InvalidInputError(
                        f"{name}={value} cannot be combined with algorithm='auto'.",
                        "Name an algorithm, for example algorithm='vrtd'.",
                    )
                if self.is_closed_form or name not in {f.name for f in fields(cast("Any", REGISTRY[self.algorithm]))}:
                    raise InvalidInputError(f"{name}={value} has no effect on {self.algorithm}.", f"Drop {name}.")
        if self.algorithm not in (*_TUNED, CLOSED_FORM, AUTO) and not self.is_linear:
            _check_log(self._build(self._given))
        if isinstance(self.algorithm, VRTD) and self.is_linear and self.algorithm.radius is not None:
            raise InvalidInputError(
                f"On a log, VRTD with growing batches has no projection, but radius is {self.algorithm.radius}.",
                "Drop radius.",
            )
        if isinstance(self.algorithm, RichardsonTD) and not self.is_sparse:
            if self.algorithm.burn_in:
                raise InvalidInputError(
                    f"On a log, extrapolated TD chooses its burn-in itself, but burn_in is {self.algorithm.burn_in}.",
                    "Drop burn_in.",
                )
            if isinstance(self.algorithm.step_size, Schedule):
                raise InvalidInputError(
                    f"On a log, extrapolated TD needs a constant step size, but it is {self.algorithm.step_size}.",
                    "Pass a number, or algorithm='richardson_td' to choose it automatically.",
                )
        if self.cost == "linear":
            self._check_linear()

    def _check_linear(self) -> None:
        """Raise if the algorithm, or the choice of its settings, takes more than O(d) work per row."""
        kind = REGISTRY.get(str(self.algorithm)) if isinstance(self.algorithm, str) else type(self.algorithm)
        what, drop = ("sparse rows", "Use") if self.is_sparse else ("cost='linear'", "Drop cost, or use")
        if self.is_closed_form or (kind is not None and kind.cost == "quadratic"):
            name = self.algorithm if isinstance(self.algorithm, str) else self.algorithm.name
            raise InvalidInputError(
                f"{name} cannot be combined with {what}, because it takes more than O(d) work per row.",
                f"{drop} algorithm='vrtd'{', or algorithm=' + repr(CLOSED_FORM) if self.is_sparse else ''}.",
            )
        if self.algorithm == TD.name and self.step_size == "auto":
            raise InvalidInputError(
                f"step_size='auto' of td cannot be combined with {what}, because choosing it takes O(d^2) work.",
                f"Pass step_size, or use algorithm={'vrtd' if self.is_sparse else 'richardson_td'!r}.",
            )
        if self.algorithm == VRTD.name and "batch_size" in self._given:
            raise InvalidInputError(
                f"batch_size={self.batch_size} cannot be combined with {what}, where the batches of vrtd grow.",
                f"Drop batch_size (or pass vrtd.VRTD(...{'' if self.is_sparse else ', growth=2'})).",
            )

    @property
    def _given(self) -> dict[str, Any]:
        """Settings that are not "auto"."""
        kinds = {"step_size": float, "batch_size": int}
        return {name: kind(getattr(self, name)) for name, kind in kinds.items() if getattr(self, name) != "auto"}

    @property
    def rows_to_end(self) -> int:
        """Number of first rows in which a transition must terminate if the discount is 1."""
        return max(self.pilot_rows, _PILOT) if self.cost == "linear" else self.pilot_rows

    @property
    def is_auto(self) -> bool:
        """Whether the algorithm is not chosen yet, see `Setup.resolve`."""
        return self.algorithm == AUTO

    @property
    def is_linear(self) -> bool:
        """Whether the fit is a `LinearFit`."""
        match self.algorithm:
            case RichardsonTD() | RichardsonTD.name:
                return not self.is_sparse
            case VRTD():
                return self.algorithm.grows
            case name:
                return name == VRTD.name and self.cost == "linear"

    @property
    def takes_sparse_rows(self) -> bool:
        """Whether the algorithm learns from sparse rows as well as from dense ones."""
        if isinstance(self.algorithm, Algorithm):
            return self.algorithm.learns_from_sparse_rows
        if self.is_auto or (self.is_linear and self.algorithm == VRTD.name):
            return True
        is_chosen = self.is_closed_form or self.needs_pilot  # by methods that need dense rows
        return not is_chosen and self._build(self._given).learns_from_sparse_rows

    @property
    def is_closed_form(self) -> bool:
        """Whether the algorithm is the closed form."""
        return self.algorithm == CLOSED_FORM

    @property
    def chooses_step(self) -> bool:
        """Whether "auto" chooses the step size."""
        return self.algorithm in _TUNED and self.step_size == "auto"

    @property
    def needs_pilot(self) -> bool:
        """Whether settings are chosen from pilot rows."""
        if self.is_linear:
            return True
        if self.algorithm not in _TUNED:
            return False
        return self.step_size == "auto" or (self.algorithm == "vrtd" and self.batch_size == "auto")

    @property
    def given_step(self) -> float | None:
        """Largest step size that the user chose; None if "auto" chooses it, or there is none."""
        if self.algorithm in (CLOSED_FORM, AUTO) or self.chooses_step:
            return None
        return self._given.get("step_size") if self.needs_pilot else self._build(self._given).largest_step_size

    @property
    def trace_decay(self) -> float:
        """Trace decay lambda of the algorithm; traces change the fixed point."""
        if self.algorithm in (CLOSED_FORM, AUTO) or self.needs_pilot:
            return 0.0
        return float(self._build(self._given).settings.get("trace_decay", 0.0))

    def decide(self, sample: Transitions | None, theta_0: Floats, n_rows: int) -> Decision:
        """Choose the settings of the phase that begins after `n_rows` rows; `sample` has the first rows.

        A phase is planned as if it started from theta_0, although its start is usually better.
        """
        if not self.needs_pilot:
            algorithm = self._build(self._given)
            defaults = isinstance(self.algorithm, str) and self.algorithm not in _TUNED
            text = f"there are no automatic settings for {self.algorithm}, so that the defaults are used"
            remark = f"{text}: {describe_settings(algorithm.settings)}"
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
        if found.prediction is Prediction.NONE:  # plan again soon
            end = min(end, 2 * so_far)
        M = found.batch_size
        if not is_td and "batch_size" not in given:
            M = _whole_segments(max(1, min(M, (end - n_rows) // 2)))
        text = f"from row {n_rows:,}: step size {found.step_size:.3g}{'' if is_td else f', batch size {M:,}'}"
        remarks = (f"{text}, planned for {horizon:,} rows ({found.method})", *found.remarks)
        chosen = {"step_size": found.step_size} | ({} if is_td else {"batch_size": M})
        return Decision(self._build(chosen), max(1, -((n_rows - end) // M)), remarks)

    def _build(self, settings: dict[str, Any]) -> Algorithm:
        """Return the algorithm with these settings; others have their defaults."""
        if isinstance(self.algorithm, Algorithm):
            return self.algorithm
        if self.algorithm == VRTD.name:
            settings = settings | {"output": _OUTPUT}
        return REGISTRY[self.algorithm](**settings)

    def for_sparse_rows(self) -> AutoSettings:
        """Return the settings for sparse rows, for which all work is linear; raise if the algorithm is not."""
        settings = replace(self, cost="linear", is_sparse=True)
        if settings.algorithm == RichardsonTD.name and settings.step_size == "auto":
            problem = "step_size='auto' of richardson_td needs dense rows, but the features are sparse."
            raise InvalidInputError(problem, "Pass step_size, or use algorithm='vrtd'.")
        if not settings.is_linear and not settings.is_auto:
            algorithm = settings._build(settings._given)
            check_sparse_rows(algorithm)
        return settings


def default_pilot_rows(cost: Cost) -> int:
    """Return the default number of pilot rows."""
    return _LINEAR_PILOT if cost == "linear" else _PILOT


def is_cheap(features: Features) -> bool:
    """Return whether the closed form of all rows is cheap with these bound features."""
    return features.n_features <= (_MOST_FEATURES if table_of(features) is None else _MOST_STATES)


def check_step(step: float, sample: Transitions) -> tuple[str, ...]:
    """Warn if a step size diverges on the pilot rows, and return remarks on it."""
    limited = limit_step(sample, step)
    return _warn_of_step(step, limited.largest_step, len(sample)) if limited.diverges else ()


def check_step_linearly(algorithm: Algorithm, sample: Transitions) -> tuple[str, ...]:
    """Do the same as `check_step` with O(d) work per row.

    The limit is conservative, so that only a step size above 1.5 times the limit causes a warning.
    """
    step, largest = float(algorithm.settings["step_size"]), float(algorithm.largest_step_size or 0.0)
    limit = 2.0 / max(growth_ratio(sample), 1e-300)
    return _warn_of_step(step, limit * step / largest, len(sample)) if largest > 1.5 * limit else ()


def _warn_of_step(step: float, limit: float, n_rows: int) -> tuple[str, ...]:
    warnings.warn(
        f"step_size={step:g} is unstable: on the first {n_rows:,} rows, errors grow without bound above {limit:.3g}. "
        "Use a smaller step size.",
        StabilityWarning,
        stacklevel=3,
    )
    return (f"the step size {step:g} is above the stability limit {limit:.3g}",)


def _check_log(algorithm: Algorithm) -> None:
    if not algorithm.learns_from_log:
        raise InvalidInputError(
            f"{algorithm.name} cannot learn from a log, because it needs random access to the rows.",
            "Use another algorithm (or simulate it on vrtd.logs.data_set(...)).",
        )


def _whole_segments(batch_size: int) -> int:
    """Return the largest batch, up to `batch_size`, that is a multiple or a divisor of the segments of environments.

    >>> [_whole_segments(M) for M in (1, 7, 100, 1000)]
    [1, 4, 64, 960]
    """
    return batch_size // SEGMENT * SEGMENT or 1 << (batch_size.bit_length() - 1)


def _check_auto(name: str, value: Any, check: Any) -> None:
    if isinstance(value, str):
        if value != "auto":
            raise InvalidInputError(f"{name} must be a number or 'auto', but is {value!r}.", "Pass one of them.")
    else:
        check(name, value)
