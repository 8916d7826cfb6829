"""One cell of a tournament: an algorithm on a problem, tuned on some runs and measured on others."""

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
from vrtd.engine.device import DeviceName
from vrtd.engine.loop import LANES
from vrtd.errors import StabilityWarning
from vrtd.metrics import METRICS, QuadraticForm
from vrtd.problems import Transitions
from vrtd.result import Result
from vrtd.tournament.entrants import Entrant, list_trials
from vrtd.tournament.problems import Loaded

# A run whose error exceeds its initial error by this factor has diverged. Its error is clipped there in means.
LOST = 100.0
_POINTS = 40  # per curve


@dataclass(frozen=True)
class TournamentSize:
    """Size of a tournament, the same for every algorithm on every problem.

    Parameters
    ----------
    n_samples : int, default=20000
        Number of transitions per run.
    n_runs : int, default=100
        Number of reported runs.
    n_trials : int, default=36
        Number of settings that every algorithm may try on every problem.
    n_tuning_runs : int, default=10
        Number of runs per setting for tuning. They use other transitions than the reported runs.
    n_passes : int, default=20
        Number of pseudo-gradients per row, for algorithms on a data set.
    seed : int, default=0
        Seed of the random numbers.

    Examples
    --------
    >>> TournamentSize(n_runs=50).n_samples
    20000
    """

    n_samples: int = 20_000
    n_runs: int = 100
    n_trials: int = 36
    n_tuning_runs: int = 10
    n_passes: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"n_samples": 100, "n_runs": 2, "n_trials": 1, "n_tuning_runs": 1, "n_passes": 1, "seed": 0}
        for name, value in asdict(self).items():
            check_exact_count(name, value, least=least[name])

    @property
    def tuning_seed(self) -> int:
        """Seed of the runs for tuning."""
        return 2 * self.seed + 1

    @property
    def report_seed(self) -> int:
        """Seed of the reported runs."""
        return 2 * self.seed


@dataclass(frozen=True)
class AimResult:
    """Measurements of one algorithm on one problem, for one measure of the error.

    Attributes
    ----------
    metric : str
        Name of the measure.
    initial_error : float
        Error of the initial parameters.
    least_error : float
        Smallest error that any parameters have.
    chosen : int
        Index of the trial with the smallest final error.
    trial_error, trial_standard_error : list of float
        Mean final error per trial over the tuning runs, and its standard error.
    trial_n_diverged : list of int
        Number of diverged tuning runs per trial.
    n_samples, n_gradients : list of int
        Numbers of samples and pseudo-gradients at the checkpoints. An algorithm on a data set needs all samples at
        every checkpoint.
    mean, standard_error : list of float
        Mean error per checkpoint over the reported runs with the chosen settings, and its standard error.
    n_diverged : list of int
        Number of diverged reported runs per checkpoint.
    finals : list of float
        Final error of each reported run.
    """

    metric: str
    initial_error: float
    least_error: float
    chosen: int
    trial_error: list[float]
    trial_standard_error: list[float]
    trial_n_diverged: list[int]
    n_samples: list[int]
    n_gradients: list[int]
    mean: list[float]
    standard_error: list[float]
    n_diverged: list[int]
    finals: list[float]

    @property
    def share(self) -> float:
        """Mean final error divided by the initial error."""
        return self.mean[-1] / self.initial_error

    @property
    def diverged_text(self) -> str:
        """Number of diverged runs among the reported runs, as text."""
        return f"{self.n_diverged[-1]} of {len(self.finals)}"


@dataclass(frozen=True)
class Cell:
    """All measurements of one algorithm on one problem.

    Attributes
    ----------
    main_field : str
        Hyperparameter whose sensitivity is shown. It is empty if none is tuned.
    main : list of float
        Value of this hyperparameter in each trial, in units of the problem.
    combination : list of int
        Index of the combination of the other hyperparameters in each trial.
    settings : list of dict
        Settings of the algorithm in each trial.
    seconds_per_gradient : float
        Seconds of one core, or of the GPU, per pseudo-gradient.
    aims : dict of str to AimResult
        Measurements by aim: "equation", "values", and "rows" for algorithms on a data set.
    """

    main_field: str
    main: list[float]
    combination: list[int]
    settings: list[dict[str, Any]]
    seconds_per_gradient: float
    aims: dict[str, AimResult]

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Cell:
        """Return the cell that was stored as JSON.

        Parameters
        ----------
        content : mapping
            Fields of the cell, as from ``dataclasses.asdict``.

        Returns
        -------
        Cell
            The cell.
        """
        aims = {aim: AimResult(**result) for aim, result in content["aims"].items()}
        return cls(**{**content, "aims": aims})


Cells = Mapping[tuple[str, str], Cell]  # by the names of problem and algorithm


class Curves(NamedTuple):
    """Errors of some runs with one setting."""

    n_samples: NDArray[np.int64]  # (C,)
    n_gradients: NDArray[np.int64]  # (C,)
    errors: Mapping[str, Floats]  # (n_runs, C) by aim, clipped at LOST times the initial error
    seconds_per_gradient: float


def measure_cell(
    loaded: Loaded,
    entrant: Entrant,
    size: TournamentSize,
    progress: Callable[[float], None],
    device: DeviceName = "cpu",
) -> Cell:
    """Tune the algorithm for each aim, then measure it with the best settings."""
    tried = list(list_trials(entrant, size.n_trials, size.n_samples, loaded.squared_norm))
    tuning: list[Curves] = []
    for trial in tried:
        tuning.append(_run(loaded, entrant, trial.algorithm, size, size.n_tuning_runs, size.tuning_seed, 2, device))
        progress(0.8 * len(tuning) / len(tried))
    finals = {aim: np.array([curves.errors[aim][:, -1] for curves in tuning]) for aim in tuning[0].errors}
    best = {aim: int(errors.mean(axis=1).argmin()) for aim, errors in finals.items()}
    measured = {
        i: _run(loaded, entrant, tried[i].algorithm, size, size.n_runs, size.report_seed, _POINTS, device)
        for i in sorted(set(best.values()))
    }
    progress(1.0)
    return Cell(
        main_field=entrant.main_field,
        main=[trial.main for trial in tried],
        combination=[trial.combination for trial in tried],
        settings=[trial.algorithm.settings for trial in tried],
        # The minimum is the time with the fewest disturbances by other processes.
        seconds_per_gradient=min(curves.seconds_per_gradient for curves in (*tuning, *measured.values())),
        aims={aim: _summarise(loaded, aim, finals[aim], best[aim], measured[best[aim]]) for aim in finals},
    )


def _summarise(loaded: Loaded, aim: str, tried: Floats, chosen: int, curves: Curves) -> AimResult:
    """Return the measurements for one aim; `tried` are final errors by trial and run."""
    if aim == "rows":
        initial, least, metric = 1.0, 0.0, "mspbe of the data, relative to the start's"
    else:
        form = loaded.forms[aim]
        initial, least, metric = form(loaded.theta_0), form.offset, form.name
    errors, limit = curves.errors[aim], LOST * initial
    return AimResult(
        metric=metric,
        initial_error=initial,
        least_error=least,
        chosen=chosen,
        trial_error=tried.mean(axis=1).tolist(),
        trial_standard_error=standard_error(tried).tolist(),
        trial_n_diverged=(tried >= limit).sum(axis=1).tolist(),
        n_samples=curves.n_samples.tolist(),
        n_gradients=curves.n_gradients.tolist(),
        mean=errors.mean(axis=0).tolist(),
        standard_error=standard_error(np.ascontiguousarray(errors.T)).tolist(),
        n_diverged=(errors >= limit).sum(axis=0).tolist(),
        finals=errors[:, -1].tolist(),
    )


def standard_error(values: Floats) -> Floats:
    """Return the standard errors of means over the last axis; 0 for a single value."""
    n = values.shape[-1]
    errors: Floats = values.std(axis=-1, ddof=1) / np.sqrt(n) if n > 1 else np.zeros(values.shape[:-1])
    return errors


def _run(
    loaded: Loaded,
    entrant: Entrant,
    algorithm: Algorithm,
    size: TournamentSize,
    n_runs: int,
    seed: int,
    points: int,
    device: DeviceName = "cpu",
) -> Curves:
    """Run the algorithm on the stream of each run, or on a data set of the same samples."""
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
            checkpoints=checkpoints, metrics=metrics, threads=1, device=device, specialise=False,
        )  # fmt: skip

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StabilityWarning)  # tuning tries steps that are too large
        if on_data_set:
            results = []
            for run in range(n_runs):
                data, form = _data_set(loaded, size.n_samples, seed, run)
                algorithm_seed = int(np.random.SeedSequence([seed, run]).generate_state(1)[0])
                results.append(measure(data, 1, algorithm_seed, (*forms, form)))
        else:
            results = [measure(loaded.problem, n_runs, seed, forms)]
    errors = {aim: _clip(results, form.name, form(loaded.theta_0)) for aim, form in loaded.forms.items()}
    if on_data_set:
        errors["rows"] = _clip(results, "rows", 1.0)
    axis = results[0].n_gradients
    samples = np.full_like(axis, size.n_samples) if on_data_set else results[0].n_samples
    lanes = LANES if on_data_set else 1  # a single run leaves the other lanes of the loop idle
    seconds = sum(result.provenance["seconds"] for result in results) / (n_runs * n_gradients * lanes)
    return Curves(samples, axis, errors, seconds)


@lru_cache(maxsize=16)  # every trial uses the same data sets
def _data_set(loaded: Loaded, n_rows: int, seed: int, run: int) -> tuple[Transitions, QuadraticForm]:
    """Return the transitions of a run, and the error of their own equation relative to the initial error."""
    data = record(loaded.problem, n_rows, seed=seed, run=run)
    form = METRICS["mspbe"](data)
    return data, QuadraticForm("rows", form.matrix / form(loaded.theta_0), form.centre)


def _clip(results: Sequence[Result], metric: str, initial: float) -> Floats:
    values = np.concatenate([result.values(metric) for result in results])
    return np.where(values <= LOST * initial, values, LOST * initial)  # nan counts as diverged, too
