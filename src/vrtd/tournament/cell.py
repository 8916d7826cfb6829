"""One cell of the tournament: an algorithm on a problem, tuned on some runs and measured on others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import Algorithm
from vrtd.arrays import Floats
from vrtd.checks import check_exact_count
from vrtd.engine import record, simulate
from vrtd.engine.loop import LANES
from vrtd.errors import StabilityWarning
from vrtd.metrics import METRICS, QuadraticForm
from vrtd.problems import Transitions
from vrtd.result import Result
from vrtd.tournament.entrants import Entrant, list_trials
from vrtd.tournament.problems import Loaded

# An error this many times that of the start counts as diverged, and as no more than that in a mean.
LOST = 100.0
_POINTS = 40  # of a curve


@dataclass(frozen=True)
class TournamentSize:
    """The numbers of samples, runs and settings that every algorithm gets on every problem, and the seed."""

    n_samples: int = 20_000
    n_runs: int = 100
    n_trials: int = 36  # settings that every algorithm may try on every problem
    n_tuning_runs: int = 10  # for each of them, on transitions that the reported runs never see
    n_passes: int = 20  # pseudo-gradients for each row, of algorithms that come back to a data set
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"n_samples": 100, "n_runs": 2, "n_trials": 1, "n_tuning_runs": 1, "n_passes": 1, "seed": 0}
        for name, value in asdict(self).items():
            check_exact_count(name, value, least=least[name])

    @property
    def tuning_seed(self) -> int:
        return 2 * self.seed + 1

    @property
    def report_seed(self) -> int:
        return 2 * self.seed


@dataclass(frozen=True)
class AimResult:
    """What was measured for one way to measure the error, as plain lists: of trials, of checkpoints, and of runs."""

    metric: str
    initial_error: float  # of the start
    least_error: float  # of any parameter
    chosen: int  # the trial whose error at the end was the least
    trial_error: list[float]  # mean over the runs of the tuning, at the end
    trial_standard_error: list[float]
    trial_n_diverged: list[int]
    n_samples: list[int]  # that must be there; all of them where there must be a data set
    n_gradients: list[int]
    mean: list[float]  # over the reported runs, with the chosen settings
    standard_error: list[float]
    n_diverged: list[int]
    finals: list[float]  # the error at the end of each reported run

    @property
    def share(self) -> float:
        """The mean error at the end as a share of that of the start."""
        return self.mean[-1] / self.initial_error

    @property
    def diverged_text(self) -> str:
        """How many of the reported runs diverged."""
        return f"{self.n_diverged[-1]} of {len(self.finals)}"


@dataclass(frozen=True)
class Cell:
    """An algorithm on a problem. Lists are of trials."""

    main_field: str  # the hyperparameter whose influence is shown, or ""
    main: list[float]  # its values, in units of the problem
    combination: list[int]  # which of the values of the other hyperparameters
    settings: list[dict[str, Any]]
    seconds_per_gradient: float
    aims: dict[str, AimResult]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Cell:
        """Return the cell that `dataclasses.asdict` made plain."""
        aims = {aim: AimResult(**result) for aim, result in content["aims"].items()}
        return cls(**{**content, "aims": aims})


Cells = Mapping[tuple[str, str], Cell]  # by the names of problem and algorithm


class Curves(NamedTuple):
    n_samples: NDArray[np.int64]  # (C,)
    n_gradients: NDArray[np.int64]  # (C,)
    errors: Mapping[str, Floats]  # (n_runs, C) for each aim, at most LOST times that of the start
    seconds_per_gradient: float


def measure_cell(loaded: Loaded, entrant: Entrant, size: TournamentSize, progress: Callable[[float], None]) -> Cell:
    """Tune for each aim, then measure with the best settings."""
    tried = list(list_trials(entrant, size.n_trials, size.n_samples, loaded.squared_norm))
    tuning: list[Curves] = []
    for trial in tried:
        tuning.append(_run(loaded, entrant, trial.algorithm, size, size.n_tuning_runs, size.tuning_seed, points=2))
        progress(0.8 * len(tuning) / len(tried))
    finals = {aim: np.array([curves.errors[aim][:, -1] for curves in tuning]) for aim in tuning[0].errors}
    best = {aim: int(errors.mean(axis=1).argmin()) for aim, errors in finals.items()}
    measured = {
        i: _run(loaded, entrant, tried[i].algorithm, size, size.n_runs, size.report_seed, _POINTS)
        for i in sorted(set(best.values()))
    }
    progress(1.0)
    return Cell(
        main_field=entrant.main_field,
        main=[trial.main for trial in tried],
        combination=[trial.combination for trial in tried],
        settings=[trial.algorithm.settings for trial in tried],
        # The least of them is the least disturbed.
        seconds_per_gradient=min(curves.seconds_per_gradient for curves in (*tuning, *measured.values())),
        aims={aim: _summarise(loaded, aim, finals[aim], best[aim], measured[best[aim]]) for aim in finals},
    )


def _summarise(loaded: Loaded, aim: str, tried: Floats, chosen: int, curves: Curves) -> AimResult:
    """Return all about one way to measure the error; `tried` (trial, run) are errors at the end."""
    if aim == "rows":
        initial, least, metric = 1.0, 0.0, "mspbe of the data, relative to the start's"
    else:
        form = loaded.forms[aim]
        initial, least, metric = form(loaded.theta_0), form.offset, form.name
    errors, lost = curves.errors[aim], LOST * initial
    return AimResult(
        metric=metric,
        initial_error=initial,
        least_error=least,
        chosen=chosen,
        trial_error=tried.mean(axis=1).tolist(),
        trial_standard_error=standard_error(tried).tolist(),
        trial_n_diverged=(tried >= lost).sum(axis=1).tolist(),
        n_samples=curves.n_samples.tolist(),
        n_gradients=curves.n_gradients.tolist(),
        mean=errors.mean(axis=0).tolist(),
        standard_error=standard_error(np.ascontiguousarray(errors.T)).tolist(),
        n_diverged=(errors >= lost).sum(axis=0).tolist(),
        finals=errors[:, -1].tolist(),
    )


def standard_error(values: Floats) -> Floats:
    """Return the standard errors of means over the last axis; 0 for a single value, which tells nothing of it."""
    n = values.shape[-1]
    errors: Floats = values.std(axis=-1, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(values.shape[:-1])
    return errors


def _run(
    loaded: Loaded, entrant: Entrant, algorithm: Algorithm, size: TournamentSize, n_runs: int, seed: int, points: int
) -> Curves:
    """Online on the first samples of each run; or on a data set of the very same samples."""
    on_data_set = entrant.uses_data_set
    epoch = algorithm.epoch("dataset" if on_data_set else "markov", size.n_samples)
    first = epoch.least_gradients
    if on_data_set:
        n_gradients = max(size.n_samples * size.n_passes, first)
    else:
        ends = epoch.gradients_until(np.arange(1, size.n_samples + 1))
        n_gradients = int(ends[epoch.samples_at(ends) <= size.n_samples].max(initial=first))
    checkpoints = np.r_[0, np.unique(np.geomspace(first, n_gradients, points - 1).astype(np.int64))]
    forms = tuple(loaded.forms.values())

    def measure(source: Any, n_runs: int, seed: int, metrics: tuple[QuadraticForm, ...]) -> Result:
        return simulate(
            source, algorithm, n_runs=n_runs, n_gradients=n_gradients, seed=seed, theta_0=loaded.theta_0,
            checkpoints=checkpoints, metrics=metrics, threads=1, specialise=False,
        )  # fmt: skip

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StabilityWarning)  # to try too large steps is part of the tuning
        if on_data_set:
            results = []
            for run in range(n_runs):
                data, own = _data_set(loaded, size.n_samples, seed, run)
                draws = int(np.random.SeedSequence([seed, run]).generate_state(1)[0])  # of the algorithm
                results.append(measure(data, 1, draws, (*forms, own)))
        else:
            results = [measure(loaded.problem, n_runs, seed, forms)]
    errors = {aim: _clip(results, form.name, form(loaded.theta_0)) for aim, form in loaded.forms.items()}
    if on_data_set:
        errors["rows"] = _clip(results, "rows", 1.0)
    axis = results[0].n_gradients
    samples = np.full_like(axis, size.n_samples) if on_data_set else results[0].n_samples
    lanes = LANES if on_data_set else 1  # one run alone leaves the other lanes of the loop idle
    seconds = sum(result.provenance["seconds"] for result in results) / (n_runs * n_gradients * lanes)
    return Curves(samples, axis, errors, seconds)


@lru_cache(maxsize=16)  # every trial of a tuning uses the same ones
def _data_set(loaded: Loaded, n_rows: int, seed: int, run: int) -> tuple[Transitions, QuadraticForm]:
    """The transitions of a run, and the error of their own equation as a share of the start's."""
    data = record(loaded.problem, n_rows, seed=seed, run=run)
    own = METRICS["mspbe"](data)
    return data, QuadraticForm("rows", own.matrix / own(loaded.theta_0), own.centre)


def _clip(results: Sequence[Result], metric: str, initial: float) -> Floats:
    values = np.concatenate([result.values(metric) for result in results])
    return np.where(values <= LOST * initial, values, LOST * initial)  # also where it is not a number
