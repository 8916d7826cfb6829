"""The design of a sweep: its problems, its grid and everything else that determines the numbers of its cells.

Cell i is problem i // n_settings with setting i % n_settings. The key of a cell is a digest of its problem, its
setting and the design without the grid, so that the finished cells of a grid are also those of a larger grid.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd import store
from vrtd.algorithms import Algorithm, Sampling, check_sampling
from vrtd.arrays import Floats, check_theta
from vrtd.checks import check_choice, require
from vrtd.engine import arguments
from vrtd.engine import simulation as engine_simulation
from vrtd.engine.device import DeviceName
from vrtd.engine.loop import name_loop
from vrtd.engine.simulation import BoundProblem, bind
from vrtd.errors import InvalidInputError
from vrtd.metrics import METRICS, QuadraticForm
from vrtd.problems import Simulator
from vrtd.sources import Source
from vrtd.sweeps.grid import Grid, Problem, code_digest
from vrtd.theory import approximation_limit

KEY_BYTES = 16
Keys = NDArray[np.uint64]  # (n, 2)


@dataclass(frozen=True, eq=False)
class Design:
    """Everything that determines the numbers of a sweep. Workers receive it once."""

    problems: Mapping[str, Problem]
    algorithm: type[Algorithm]
    grid: Grid
    n_runs: int
    n_gradients: int
    samplings: Mapping[str, Sampling]
    seed: int
    theta_0: Mapping[str, Floats]
    initial: int | ArrayLike
    metrics: tuple[str | QuadraticForm, ...]
    checkpoints: NDArray[np.int64]
    exact: bool | None
    device: DeviceName = "cpu"
    _bound: dict[str, BoundProblem] = field(default_factory=dict, repr=False)
    _limits: dict[str, float] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:  # workers bind the problems themselves
        return {each.name: getattr(self, each.name) for each in fields(self)} | {"_bound": {}, "_limits": {}}

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Number of values of each field."""
        return tuple(len(values) for values in self.grid.values())

    @cached_property
    def n_settings(self) -> int:
        """Number of combinations of settings."""
        return int(np.prod(self.shape))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the problems."""
        return tuple(self.problems)

    @cached_property
    def metric_names(self) -> tuple[str, ...]:
        """Names of the metrics."""
        return tuple(each.name if isinstance(each, QuadraticForm) else each for each in self.metrics)

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return len(self.problems) * self.n_settings

    def choices(self, settings: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
        """Return, for each field, the positions of its values in these settings."""
        return np.unravel_index(settings, self.shape)

    def setting(self, i: int) -> dict[str, Any]:
        """Return the values of the fields of a cell."""
        chosen = np.unravel_index(i % self.n_settings, self.shape)
        return {name: self.grid[name][k] for name, k in zip(self.grid, chosen, strict=True)}

    def problem_name(self, i: int) -> str:
        """Return the name of the problem of a cell."""
        return self.names[i // self.n_settings]

    def describe(self, i: int) -> str:
        """Return a cell in words, for messages."""
        words = ", ".join(f"{name} {value}" for name, value in self.setting(i).items())
        return f"{self.algorithm.name} on {self.problem_name(i)} with {words}"

    def bound(self, name: str) -> BoundProblem:
        """Return a problem that is ready to be simulated."""
        if name not in self._bound:
            bound = bind(self.problems[name], self.samplings[name], self.initial, self.metrics, True)
            self._bound[name] = bound
        return self._bound[name]

    def approximation_limit(self, name: str) -> float:
        """Return the step size up to which the approximation of expected errors on a chain is trusted."""
        if name not in self._limits:
            self._limits[name] = approximation_limit(self.problems[name])  # type: ignore[arg-type]
        return self._limits[name]

    def keys(self) -> Keys:
        """Return the keys of all cells. Cells with the same key have the same numbers."""
        base = {
            "algorithm": self.algorithm.name,
            "code": code_digest(self.algorithm),
            "n_runs": self.n_runs,
            "n_gradients": self.n_gradients,
            "seed": self.seed,
            "initial": np.asarray(self.initial).tolist(),
            "metrics": [_describe_metric(each) for each in self.metrics],
            "checkpoints": self.checkpoints.tolist(),
            "exact": self.exact,
        }
        if self.device != "cpu":  # the numbers differ by rounding
            base["device"] = self.device
        about_all = store.digest(base)
        # The fields are in the order of the class, so that a key does not depend on which fields are in the grid.
        default = self.algorithm()
        order = tuple(each.name for each in fields(default))  # type: ignore[arg-type]
        values = {name: self.grid.get(name, (getattr(default, name),)) for name in order}
        texts = [b""]
        for name in order:
            texts = [text + tail for text in texts for tail in [_text_of(name, value) for value in values[name]]]
        shape = [len(values[name]) for name in order]
        axes = [order.index(name) for name in (*self.grid, *(name for name in order if name not in self.grid))]
        keys = []
        for name, problem in self.problems.items():
            about = [about_all, problem.digest, self.samplings[name], self.theta_0[name].tolist()]
            first = hashlib.blake2b(json.dumps(about).encode(), digest_size=KEY_BYTES)
            digests = bytearray()
            for text in texts:
                sha = first.copy()
                sha.update(text)
                digests += sha.digest()
            of_problem = np.frombuffer(bytes(digests), np.uint64).reshape(*shape, 2)
            keys.append(of_problem.transpose(*axes, len(shape)).reshape(-1, 2))
        return np.concatenate(keys)

    def check_settings(self) -> NDArray[np.int64]:
        """Check every combination of settings, and return the number of the compiled loop of each cell."""
        loops: dict[str, int] = {}
        known: dict[Any, int] = {}
        numbers = np.empty((len(self.problems), self.n_settings), np.int64)
        sources = [self._source(name) for name in self.names]
        for j in range(self.n_settings):
            algorithm = self.algorithm(**self.setting(j))
            for p, name in enumerate(self.names):
                sampling, source = self.samplings[name], sources[p]
                epoch = algorithm.epoch(sampling, source.n_rows)
                shape = epoch._replace(n_absorb=min(epoch.n_absorb, 1), n_steps=min(epoch.n_steps, 2), warmup=())
                kind = p, algorithm.options(), shape, len(epoch.warmup) > 0, algorithm.needs_trajectory
                if epoch.least_gradients > self.n_gradients or kind not in known:
                    try:
                        check_sampling(algorithm, sampling)
                        arguments.check_budget(epoch, self.n_gradients)
                        words = algorithm.workspace_size(source.n_features, source.n_rows)
                        arguments.check_memory(
                            self.n_runs, self.checkpoints, self.n_gradients, len(self.metrics), words
                        )
                    except InvalidInputError as error:
                        raise InvalidInputError(error.problem, f"{error.remedy} (cell: {self.describe(j)})") from None
                    loop = name_loop(algorithm, epoch, source, True)
                    known[kind] = loops.setdefault(loop, len(loops))
                numbers[p, j] = known[kind]
        return numbers.ravel()

    def _source(self, name: str) -> Source:
        problem = self.problems[name]
        if isinstance(problem, Simulator):  # its metrics are estimated, which takes a while
            return arguments.bind_problem(problem, self.samplings[name], self.initial)
        return self.bound(name).source


def _describe_metric(metric: str | QuadraticForm) -> Any:
    if isinstance(metric, str):
        return metric
    parts = [metric.matrix.tobytes(), metric.centre.tobytes(), repr(float(metric.offset)).encode()]
    return [metric.name, hashlib.sha256(b"\0".join(parts)).hexdigest()]


def _text_of(name: str, value: Any) -> bytes:
    """Return the text of a field and its value in a key; 1 and 1.0 have the same."""
    is_plain = isinstance(value, bool | int | float | str | None)
    plain = float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return json.dumps([name, plain if is_plain else repr(value)]).encode() + b"\0"


def default_metrics(problems: Mapping[str, Problem]) -> tuple[str, ...]:
    """Return the default metrics of ``simulate``, which must be the same for all problems."""
    defaults = {name: engine_simulation.default_metrics(problem) for name, problem in problems.items()}
    wrong = f"metrics must be the same for all problems, but their defaults are {defaults}."
    require(len(set(defaults.values())) == 1, wrong, 'Pass metrics=("neu",).')
    return next(iter(defaults.values()))


def check_metrics(metrics: Sequence[str | QuadraticForm]) -> tuple[str | QuadraticForm, ...]:
    """Return the metrics with their names as in ``METRICS``."""
    names = tuple(METRICS)
    return tuple(each if isinstance(each, QuadraticForm) else check_choice("metrics", each, names) for each in metrics)


def first_parameters(problems: Mapping[str, Problem], theta_0: ArrayLike | None) -> dict[str, Floats]:
    """Return the initial parameter on each problem; one number stands for all features."""

    def start(problem: Problem) -> Floats:
        if theta_0 is None or np.ndim(theta_0) > 0:
            return check_theta("theta_0", theta_0, problem.n_features)
        return check_theta("theta_0", np.full(problem.n_features, theta_0), problem.n_features)

    return {name: start(problem) for name, problem in problems.items()}


def samplings_of(problems: Mapping[str, Problem], sampling: Any) -> dict[str, Sampling]:
    """Return the kind of samples on each problem; a message names the problem that does not offer it."""
    chosen = {}
    for name, problem in problems.items():
        try:
            chosen[name] = arguments.choose_sampling(problem, sampling)
        except InvalidInputError as error:
            raise InvalidInputError(f"{error.problem[:-1]} on {name}.", error.remedy) from None
    return chosen
