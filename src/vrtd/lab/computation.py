"""What the lab shows, computed by the library: runs with bounds, exact means, and the map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from vrtd import theory
from vrtd.engine import simulate
from vrtd.errors import VrtdError
from vrtd.lab.bounds import choose_bounds, compute_bound
from vrtd.lab.chains import CHAINS, Chain, OwnProblem
from vrtd.lab.presets import PRESETS
from vrtd.lab.settings import ALGORITHMS, N_RUNS, RANGES, SAMPLINGS, LabSettings, as_texts
from vrtd.metrics import QuadraticForm
from vrtd.problems import LinearProblem
from vrtd.result import Result

N_CHECKPOINTS = 100
OWN = "own"
_N_CURVES, _N_PATHS, _N_ENDS = 12, 6, 300  # runs whose curve, path or end is shown
MAP_STEPS = {"iid": 24, "markov": 14}  # a trajectory takes longer
# Up to these sizes, exact means and maps are computed fast enough to be drawn.
_MOST_FEATURES, _MOST_FEATURES_OF_EXTRAPOLATION = 10, 2
_MOST_WORK_ON_A_TRAJECTORY = 1e5  # transitions x (features + 1)^2

Answer = dict[str, Any]


class Computation:
    """Answers to the questions of the page, as plain values.

    Problems and maps are kept for the last settings.

    Parameters
    ----------
    own : OwnProblem, optional
        Problem of the user, in addition to the named ones.
    """

    def __init__(self, own: OwnProblem | None = None) -> None:
        self.chains: dict[str, Chain] = CHAINS if own is None else {OWN: own.as_chain()} | CHAINS
        self._own = own
        self._build = lru_cache(maxsize=64)(lambda settings: self.chains[settings.chain].build(settings))
        self._map = lru_cache(maxsize=64)(self._compute_map)

    def first_settings(self) -> LabSettings:
        """Return the settings with which the page begins."""
        if self._own is None:
            return PRESETS["floor"].settings
        discount = float(self._own.problem.mrp.edges.discount.max())
        return LabSettings(chain=OWN, discount=min(discount, RANGES["discount"].most))

    def problem(self, settings: LabSettings) -> LinearProblem:
        """Return the chosen problem; its exact quantities are kept."""
        uses = self.chains[settings.chain].uses
        used = {name: getattr(settings, name) for name in uses}
        return self._build(LabSettings(chain=settings.chain, **used))

    def describe(self) -> Answer:
        """Return what can be chosen: chains, algorithms, ranges of numbers and presets."""
        return {
            "chains": {name: {"label": chain.label, "uses": chain.uses} for name, chain in self.chains.items()},
            "algorithms": ALGORITHMS,
            "samplings": SAMPLINGS,
            "ranges": {name: limits._asdict() for name, limits in RANGES.items()},
            "presets": {
                name: {
                    "title": preset.title,
                    "text": preset.text,
                    "settings": as_texts(preset.settings),
                    "view": dict(preset.view),
                }
                for name, preset in PRESETS.items()
            },
            "first": as_texts(self.first_settings()),
            "n_runs": N_RUNS,
        }

    def runs(self, settings: LabSettings, name: str) -> Answer:
        """Simulate all runs of one algorithm.

        Parameters
        ----------
        settings : LabSettings
            Settings of the lab.
        name : str
            Algorithm, a key of ``ALGORITHMS``.

        Returns
        -------
        dict
            Statistics of the squared error, some curves, paths of theta, and the bounds of the main algorithm.
        """
        problem = self.problem(settings)
        result = simulate(
            problem,
            settings.build(name),
            sampling=settings.sampling,
            n_runs=N_RUNS,
            n_gradients=settings.n_gradients,
            seed=settings.seed,
            checkpoints=N_CHECKPOINTS,
            metrics=("squared_error", *_coordinate_forms(problem)),
            specialise=False,
        )
        answer = {
            "algorithm": name,
            "label": ALGORITHMS[name],
            **result.columns("squared_error"),
            "curves": _plain(result.values("squared_error")[:_N_CURVES]),
            "plane": _plane(problem, result),
        }
        if name == settings.algorithm:
            answer |= {"bounds": _bounds(problem, settings, result), "theta_star": _plain(problem.theta_star)}
        return answer

    def exact(self, settings: LabSettings, name: str) -> Answer:
        """Compute the exact mean of one algorithm, and where averages settle in the long run.

        Parameters
        ----------
        settings : LabSettings
            Settings of the lab.
        name : str
            Algorithm, a key of ``ALGORITHMS``.

        Returns
        -------
        dict
            Expected squared errors, or None and the reason; the point where theta settles, and its squared error.
        """
        problem, algorithm = self.problem(settings), settings.build(name)
        answer: Answer = {"algorithm": name, "values": None, "reason": "", "settles": None, "settles_error": None}
        answer["reason"] = why_no_exact_curve(settings, problem, name)
        if not answer["reason"]:
            try:
                curve = theory.exact_curve(
                    problem,
                    algorithm,
                    sampling=settings.sampling,
                    n_gradients=settings.n_gradients,
                    checkpoints=N_CHECKPOINTS,
                )
                answer |= {"values": _plain(curve.values("squared_error")[0]), "method": curve.provenance["method"]}
            except VrtdError as error:
                answer["reason"] = str(error)
        if settings.sampling == "markov" and name in ("td_averaged", "richardson_td"):
            try:
                bias = theory.limit_bias(problem, algorithm)
            except VrtdError as error:
                answer["reason"] = answer["reason"] or str(error)
            else:
                answer |= {"settles": _plain(problem.theta_star + bias), "settles_error": float(bias @ bias)}
        return answer

    def map(self, settings: LabSettings) -> Answer:
        """Compute the map of the error after the budget over step size and batch size.

        Parameters
        ----------
        settings : LabSettings
            Settings of the lab.

        Returns
        -------
        dict
            The content of a `PhaseDiagram`, or the reason why there is none.
        """
        used = {name: getattr(settings, name) for name in self.chains[settings.chain].uses}
        key = LabSettings(chain=settings.chain, sampling=settings.sampling, n_gradients=settings.n_gradients, **used)
        return self._map(key)

    def _compute_map(self, settings: LabSettings) -> Answer:
        problem, sampling = self.problem(settings), settings.sampling
        reason = why_no_map(settings, problem)
        if reason:
            return {"reason": reason}
        try:
            diagram = theory.phase_diagram(
                problem, budget=settings.n_gradients, sampling=sampling, n_steps=MAP_STEPS[sampling]
            )
        except VrtdError as error:
            return {"reason": str(error)}
        return diagram.as_dict() | {"reason": ""}

    def warm_up(self, report: Callable[[float], None]) -> None:
        """Compile or load every loop that a setting of the lab can need.

        Parameters
        ----------
        report : callable
            Called with the share that is done.
        """
        small = LabSettings(n_features=2, batch_size=2, n_gradients=100)
        tasks = [
            (replace(small, sampling=sampling, algorithm=name), name) for sampling in SAMPLINGS for name in ALGORITHMS
        ]
        for k, (settings, name) in enumerate(tasks):
            self.runs(settings, name)
            self.exact(settings, name)
            report((k + 1) / (len(tasks) + 1))
        for sampling in SAMPLINGS:
            self.map(replace(small, sampling=sampling))
        report(1.0)


def why_no_map(settings: LabSettings, problem: LinearProblem) -> str:
    """Return why there is no map; "" if there is one."""
    d = problem.n_features
    work = problem.mrp.edges.origin.size * (d + 1) ** 2 if settings.sampling == "markov" else 0
    if problem.mrp.is_weighted:
        return "The theory covers on-policy chains only."
    slow = d > _MOST_FEATURES or work > _MOST_WORK_ON_A_TRAJECTORY
    return "It takes too long with so many transitions and features." if slow else ""


def why_no_exact_curve(settings: LabSettings, problem: LinearProblem, name: str) -> str:
    """Return why there is no exact mean of an algorithm; "" if there is one."""
    extrapolates = name == "richardson_td" and settings.sampling == "markov"
    if extrapolates and problem.n_features > _MOST_FEATURES_OF_EXTRAPOLATION:
        return f"The exact mean of {ALGORITHMS[name]} takes too long with more than two features."
    return why_no_map(settings, problem)


def _coordinate_forms(problem: LinearProblem) -> list[QuadraticForm]:
    """Return forms from which `_coordinates` reads the first two components of theta at every checkpoint."""
    d, size = problem.n_features, _scale(problem)
    if d < 2:
        return []
    matrix = np.zeros((d, d))
    matrix[0, 0] = matrix[1, 1] = 1.0
    centres = {"centred": np.zeros(d), "first": np.eye(1, d)[0] * size, "second": np.eye(1, d, 1)[0] * size}
    return [QuadraticForm(name, matrix, centre) for name, centre in centres.items()]


def _coordinates(problem: LinearProblem, result: Result) -> Any:
    """Return the first two components of theta, of shape (n_runs, n_checkpoints, 2).

    With c on an axis, |theta|^2 - |theta - c|^2 + |c|^2 is 2 |c| times the component.
    """
    size, centred = _scale(problem), result.values("centred")
    parts = [(centred - result.values(name) + size**2) / (2.0 * size) for name in ("first", "second")]
    return np.stack(parts, axis=-1)


def _scale(problem: LinearProblem) -> float:
    return float(np.linalg.norm(problem.theta_star)) + 1.0


def _plane(problem: LinearProblem, result: Result) -> Answer | None:
    """Return paths of theta in the plane of the first two features; None with one feature."""
    if problem.n_features < 2:
        return None
    paths = _coordinates(problem, result)
    complete = np.isfinite(paths).all(axis=(0, 2))
    mean = np.full(paths.shape[1:], np.nan)
    mean[complete] = paths[:, complete].mean(axis=0)
    return {
        "paths": _plain(paths[:_N_PATHS]),
        "mean": _plain(mean),
        "ends": _plain(result.theta[:_N_ENDS, :2]),
        "star": _plain(problem.theta_star[:2]),
    }


def _bounds(problem: LinearProblem, settings: LabSettings, result: Result) -> list[Answer]:
    answers = []
    epochs = settings.build(settings.algorithm).epoch(settings.sampling).epochs_at(result.n_gradients)
    for call in choose_bounds(settings):
        answer: Answer = {"label": call.label, "values": None, "floor": None, "holds": False, "conditions": False}
        bound = compute_bound(call, problem)
        if isinstance(bound, str):
            answer["reasons"] = [bound]
        else:
            values = bound.curve(int(epochs[-1]))[epochs]
            answer |= {"values": _plain(values), "floor": _plain(np.array(bound.floor)), "holds": bound.valid}
            answer |= {"reasons": list(bound.reasons), "conditions": all(each.holds for each in bound.conditions)}
        answers.append(answer)
    return answers


def _plain(values: Any) -> Any:
    """Return an array as lists, with None where it is not finite."""
    plain: Any = np.where(np.isfinite(values), values.astype(object), None)
    return plain.tolist()
