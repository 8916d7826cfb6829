"""One cell of the tournament: an algorithm on a problem, tuned on some runs and measured on others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import Algorithm
from vrtd.checks import check_count
from vrtd.comparison.entrants import Entrant, main_field, trials
from vrtd.comparison.problems import Loaded
from vrtd.engine import record, simulate
from vrtd.engine.loop import LANES
from vrtd.errors import StabilityWarning

__all__ = ["LOST", "Plan", "measure_cell"]

Floats = NDArray[np.float64]

# An error this many times that of the start counts as diverged, and as no more than that in a mean.
LOST = 100.0
_POINTS = 40  # of a curve


@dataclass(frozen=True)
class Plan:
    """All that decides the numbers of a tournament, but for who meets on what."""

    n_samples: int = 20_000
    n_runs: int = 100
    n_trials: int = 24  # settings that every algorithm may try on every problem
    n_tuning_runs: int = 10  # for each of them, on transitions that the reported runs never see
    n_passes: int = 20  # pseudo-gradients for each row, of algorithms that come back to a data set
    seed: int = 0

    def __post_init__(self) -> None:
        least = {"n_samples": 100, "n_runs": 2, "n_trials": 1, "n_tuning_runs": 1, "n_passes": 1, "seed": 0}
        for name, value in asdict(self).items():
            check_count(name, value, least=least[name])

    @property
    def tuning_seed(self) -> int:
        return 2 * self.seed + 1

    @property
    def report_seed(self) -> int:
        return 2 * self.seed


class Curves(NamedTuple):
    n_samples: NDArray[np.int64]  # (C,) that must be there; all of them where there must be a data set
    n_gradients: NDArray[np.int64]  # (C,)
    errors: Mapping[str, Floats]  # (n_runs, C) for each aim, at most LOST times that of the start
    seconds_per_gradient: float


def measure_cell(loaded: Loaded, entrant: Entrant, plan: Plan, progress: Callable[[float], None]) -> dict[str, Any]:
    """Tune for each aim, then measure with the best settings. Plain JSON."""
    algorithms = list(trials(entrant, plan.n_trials, loaded.squared_norm))
    total = len(algorithms) * plan.n_tuning_runs + len(loaded.forms) * plan.n_runs
    main, tuning = main_field(entrant), []
    for algorithm in algorithms:
        tuning.append(_run(loaded, entrant, algorithm, plan, plan.n_tuning_runs, plan.tuning_seed, points=2))
        progress(len(tuning) * plan.n_tuning_runs / total)
    best = {aim: int(np.argmin([each.errors[aim][:, -1].mean() for each in tuning])) for aim in loaded.forms}
    measured: dict[int, Curves] = {}
    for trial in best.values():
        if trial not in measured:
            algorithm = algorithms[trial]
            measured[trial] = _run(loaded, entrant, algorithm, plan, plan.n_runs, plan.report_seed, _POINTS)
    progress(1.0)
    seconds = [each.seconds_per_gradient for each in (*tuning, *measured.values())]
    return {
        "main": main,
        "seconds_per_gradient": min(seconds),  # the least of them is the least disturbed
        "settings": [algorithm.settings for algorithm in algorithms],
        "aims": {
            aim: _aim(loaded, aim, [each.errors[aim][:, -1] for each in tuning], best[aim], measured[best[aim]])
            for aim in loaded.forms
        },
    }


def _aim(loaded: Loaded, aim: str, tried: Sequence[Floats], chosen: int, curves: Curves) -> dict[str, Any]:
    """All about one way to measure the error."""
    form, errors = loaded.forms[aim], curves.errors[aim]
    lost = LOST * form(loaded.theta_0)
    return {
        "metric": form.name,
        "initial_error": form(loaded.theta_0),
        "least_error": form.offset,
        "chosen": chosen,
        "trials": [
            {
                "error": float(finals.mean()),
                "standard_error": _standard_error(finals),
                "n_diverged": _count(finals, lost),
            }
            for finals in tried
        ],
        "n_samples": curves.n_samples.tolist(),
        "n_gradients": curves.n_gradients.tolist(),
        "mean": errors.mean(axis=0).tolist(),
        "standard_error": [_standard_error(column) for column in errors.T],
        "n_diverged": [_count(column, lost) for column in errors.T],
        "finals": errors[:, -1].tolist(),
    }


def _run(
    loaded: Loaded, entrant: Entrant, algorithm: Algorithm, plan: Plan, n_runs: int, seed: int, points: int
) -> Curves:
    """Online on the first samples of each run; or on a data set of the very same samples."""
    needs_data_set = entrant.needs_data_set
    epoch = algorithm.epoch("dataset" if needs_data_set else "markov", plan.n_samples)
    first = int(epoch.gradients_until(1))
    if needs_data_set:
        n_gradients = max(plan.n_samples * plan.n_passes, first)
    else:
        n_gradients = int(epoch.gradients_until(max(plan.n_samples // int(epoch.samples_at(np.array(first))), 1)))
    checkpoints = np.unique(np.geomspace(first, n_gradients, points - 1).astype(np.int64))
    shared: dict[str, Any] = {
        "n_gradients": n_gradients, "theta_0": loaded.theta_0, "metrics": tuple(loaded.forms.values()),
        "checkpoints": np.concatenate([[0], checkpoints]), "threads": 1, "specialise": False,
    }  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", StabilityWarning)  # to try too large steps is part of the tuning
        if needs_data_set:
            results = [
                simulate(
                    record(loaded.problem, loaded.phi, plan.n_samples, seed=seed, run=run), None, algorithm,
                    sampling="dataset", n_runs=1, seed=_seed(seed, run), **shared,
                )
                for run in range(n_runs)
            ]  # fmt: skip
        else:
            results = [simulate(loaded.problem, loaded.phi, algorithm, n_runs=n_runs, seed=seed, **shared)]
    errors = {}
    for aim, form in loaded.forms.items():
        values, limit = np.concatenate([result.values(form.name) for result in results]), LOST * form(loaded.theta_0)
        errors[aim] = np.where(values <= limit, values, limit)  # also where it is not a number
    axis = results[0].n_gradients
    samples = np.full_like(axis, plan.n_samples) if needs_data_set else results[0].n_samples
    lanes = LANES if needs_data_set else 1  # one run alone leaves the other lanes of the loop idle
    seconds = sum(result.provenance["seconds"] for result in results) / (n_runs * n_gradients * lanes)
    return Curves(samples, axis, errors, seconds)


def _seed(seed: int, run: int) -> int:
    """Of the algorithm's own draws on a data set, which is that of `run`."""
    return int(np.random.SeedSequence([seed, run]).generate_state(1)[0])


def _standard_error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else 0.0


def _count(values: Floats, lost: float) -> int:
    return int((values >= lost).sum())
