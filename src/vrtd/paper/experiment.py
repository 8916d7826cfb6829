"""Experiments: settings as data, a measurement that fills tables, and the figures and claims based on them."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import ArrayLike

from vrtd.algorithms import TD, VRTD, Algorithm, ChainSampling
from vrtd.engine import simulate
from vrtd.engine.device import DeviceName
from vrtd.metrics import QuadraticForm
from vrtd.paper.evidence import Claim, NumberCheck
from vrtd.plots import Figure
from vrtd.problems import LIBRARY, LinearProblem, MarkovRewardProcess, Simulator
from vrtd.result import Result
from vrtd.tables import Table, Tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Settings = Mapping[str, Any]  # plain JSON that determines all numbers
Draw = Callable[["Axes", Tables], None]
Evidence = Callable[[Tables], Sequence[NumberCheck]]


@dataclass(frozen=True)
class Experiment:
    """Experiment of the paper: its settings, measurement, figures and claims.

    `measure` depends only on the settings: equal settings give equal tables, to the bit.
    """

    name: str
    title: str
    place: str  # in the paper
    question: str  # the paper's statement, in our own words
    method: str  # the procedure here, with the choices that the paper leaves open
    weight: float  # its share of the time of a whole reproduction, for the progress display
    settings: Callable[[int, int], Settings]
    measure: Callable[[Settings, Runner], dict[str, Table]]
    figures: Sequence[Figure]
    claims: Sequence[Claim] = ()


class ClaimTest(NamedTuple):
    """Test of a claim: `evidence`, which counts only if simulation and recursion agree."""

    evidence: Evidence
    agreement: Evidence | None = None


def make_experiment(
    name: str,
    settings: Callable[[int, int], Settings],
    measure: Callable[[Settings, Runner], dict[str, Table]],
    *,
    weight: float,
    figures: Mapping[tuple[str, str], Draw],
    claims: Sequence[Claim] = (),
    tests: Mapping[str, ClaimTest] = {},
    numbers: Mapping[str, float | str] = {},
) -> Experiment:
    """Put the functions of an experiment together with its texts, `texts/NAME.toml`.

    `figures` maps the name of a figure and the table it shows to a function that draws it. `tests` maps the names of
    claims to their tests. `claims` are claims shared with other experiments; they come first. `numbers` are inserted
    into the texts.
    """
    texts = read_texts(name, numbers)
    return Experiment(
        name=name,
        title=texts["title"],
        place=texts["place"],
        question=texts["question"],
        method=texts["method"],
        weight=weight,
        settings=settings,
        measure=measure,
        figures=[Figure(figure, texts["figures"][figure], table, draw) for (figure, table), draw in figures.items()],
        claims=[*claims, *(make_claim(name, claim, texts["claims"][claim], test) for claim, test in tests.items())],
    )


def make_claim(experiment: str, name: str, text: dict[str, Any], test: ClaimTest) -> Claim:
    """Make a claim on one experiment. A claim with a proof is universal: it is about every chain."""

    def take_tables(evidence: Evidence) -> Callable[[Mapping[str, Tables]], Sequence[NumberCheck]]:
        return lambda tables: evidence(tables[experiment])

    evidence = take_tables(test.evidence)
    agreement = None if test.agreement is None else take_tables(test.agreement)
    kind = {"kind": "universal"} if "proof" in text else {}
    return Claim(name=name, needs=(experiment,), evidence=evidence, agreement=agreement, **kind | text)


def read_texts(name: str, numbers: Mapping[str, float | str] = {}) -> dict[str, Any]:
    """Read `texts/NAME.toml` and replace the names of numbers and phrases by their values."""
    content = files("vrtd.paper").joinpath("texts", f"{name}.toml").read_text(encoding="utf-8")
    values = {key: value if isinstance(value, str) else f"{value:g}" for key, value in numbers.items()}

    def fill(part: Any) -> Any:
        if isinstance(part, list):
            return [fill(each) for each in part]
        return Template(part).substitute(values) if isinstance(part, str) else {k: fill(v) for k, v in part.items()}

    texts = tomllib.loads(content)
    values |= fill(texts.pop("phrases", {}))
    filled: dict[str, Any] = fill(texts)
    return filled


def build_problem(spec: Mapping[str, Any]) -> LinearProblem:
    """Build a problem of the library, or a chain given by its matrices."""
    if "problem" not in spec:
        return LinearProblem(MarkovRewardProcess(spec["P"], spec["R"], spec["gamma"]), spec["phi"])
    problem: LinearProblem = LIBRARY[spec["problem"]](**spec["arguments"])
    return problem


def make_algorithm(step_size: float, batch_size: int) -> Algorithm:
    """Make VRTD, or TD if the batch is one sample."""
    return TD(step_size) if batch_size == 1 else VRTD(step_size, batch_size)


class Runner:
    """Simulator for a measurement, which reports progress and adds up the cost."""

    def __init__(
        self,
        progress: Callable[[float], None] | None = None,
        threads: int | None = None,
        executor: Executor | None = None,
        device: DeviceName = "cpu",
    ) -> None:
        self._progress, self._threads, self._executor, self._device = progress, threads, executor, device
        self._expected = 0
        self.n_gradients, self.seconds, self.compile_seconds = 0, 0.0, 0.0

    def expect(self, n_gradients: int) -> None:
        """Set the number of pseudo-gradients of all simulations to come, over all runs."""
        self._expected = n_gradients

    def simulate(
        self,
        problem: LinearProblem | Simulator,
        algorithm: Algorithm,
        *,
        n_runs: int,
        n_gradients: int,
        seed: int,
        checkpoints: int | ArrayLike,
        sampling: ChainSampling = "markov",
        theta_0: ArrayLike | None = None,
        initial: int | ArrayLike = "stationary",
        metrics: Sequence[str | QuadraticForm] = ("squared_error",),
    ) -> Result:
        """Call `vrtd.simulate` and add up its pseudo-gradients and seconds."""
        size = n_runs * n_gradients

        def tell(share: float) -> None:
            if self._progress is not None:
                self._progress(min((self.n_gradients + share * size) / max(self._expected, size), 1.0))

        result = simulate(
            problem, algorithm, n_runs=n_runs, n_gradients=n_gradients, seed=seed, checkpoints=checkpoints,
            sampling=sampling, theta_0=theta_0, initial=initial, metrics=metrics,
            progress=tell, threads=self._threads, executor=self._executor, device=self._device,
        )  # fmt: skip
        self.n_gradients += size
        self.seconds += result.provenance["seconds"]
        self.compile_seconds += result.provenance["compile_seconds"]
        return result
