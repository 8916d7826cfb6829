"""What an experiment is: settings as data, tables that a measurement fills, figures and comparisons drawn from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vrtd.engine import simulate
from vrtd.plots import Figure
from vrtd.result import Result
from vrtd.tables import Table

Settings = Mapping[str, Any]  # plain JSON: all that decides the numbers


@dataclass(frozen=True)
class Experiment:
    """`settings(n_runs, seed)` says what to do, `measure` does it, `figures` show it.

    `measure` depends on the settings alone: equal settings give equal tables, to the bit.
    """

    name: str
    title: str
    place: str  # in the paper
    question: str  # what the paper says there, in our own words
    method: str  # what is done here, and what was chosen where the paper is silent
    weight: float  # its share of the time of a whole reproduction, for the progress display
    settings: Callable[[int, int], Settings]
    measure: Callable[[Settings, Runner], dict[str, Table]]
    figures: Sequence[Figure]


class Runner:
    """Simulates for a measurement, tells how far it is and adds up what it costs."""

    def __init__(self, progress: Callable[[float], None] | None = None, threads: int | None = None) -> None:
        self._progress, self._threads = progress, threads
        self._expected = 0
        self.n_gradients, self.seconds, self.compile_seconds = 0, 0.0, 0.0

    def expect(self, n_gradients: int) -> None:
        """Pseudo-gradients, over all runs, of all simulations to come."""
        self._expected = n_gradients

    def simulate(self, problem: Any, algorithm: Any, *, n_runs: int, n_gradients: int, **rest: Any) -> Result:
        """`vrtd.simulate`, counted."""
        size = n_runs * n_gradients

        def tell(share: float) -> None:
            if self._progress is not None:
                self._progress(min((self.n_gradients + share * size) / max(self._expected, size), 1.0))

        result = simulate(
            problem, algorithm, n_runs=n_runs, n_gradients=n_gradients,
            progress=tell, threads=self._threads, **rest,
        )  # fmt: skip
        self.n_gradients += size
        self.seconds += result.provenance["seconds"]
        self.compile_seconds += result.provenance["compile_seconds"]
        return result
