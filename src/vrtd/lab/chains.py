"""The chains of the lab, each with the Python expression that builds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vrtd.lab.settings import LabSettings
from vrtd.problems import LIBRARY, LinearProblem, MarkovRewardProcess


class Chain(NamedTuple):
    """Chain that can be chosen."""

    label: str
    uses: tuple[str, ...]  # settings that it depends on
    build: Callable[[LabSettings], LinearProblem]
    code: Callable[[LabSettings], str]  # lines of Python that assign `problem`


def _of_library(label: str, function: str, uses: dict[str, str], **fixed: Any) -> Chain:
    """Return a named problem; ``uses`` maps settings to its parameters."""

    def arguments(settings: LabSettings) -> dict[str, Any]:
        return {parameter: getattr(settings, name) for name, parameter in uses.items()} | fixed

    def code(settings: LabSettings) -> str:
        return f"problem = vrtd.problems.{function}({', '.join(f'{k}={v!r}' for k, v in arguments(settings).items())})"

    return Chain(label, tuple(uses), lambda settings: LIBRARY[function](**arguments(settings)), code)


_DRAWN = {"chain_seed": "seed", "n_features": "n_features", "discount": "gamma"}
_COIN = "[[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0]"


def _build_coin(settings: LabSettings) -> LinearProblem:
    return LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], settings.discount), [[1.0], [1.0]])


CHAINS = {
    "random_mdp": _of_library("random chain of the paper, 50 states", "random_mdp", _DRAWN),
    "garnet": _of_library("Garnet, 100 states, sparse", "garnet", _DRAWN),
    "frozen_lake": _of_library("Frozen Lake of the paper, 16 states", "frozen_lake", _DRAWN),
    "boyan_chain": _of_library("Boyan's chain, 13 states", "boyan_chain", {}),
    "random_walk": _of_library("random walk, 5 states", "random_walk", {}),
    "coin": Chain(
        "coin: two states, one feature",
        ("discount",),
        _build_coin,
        lambda settings: (
            f"mrp = vrtd.MarkovRewardProcess({_COIN}, {settings.discount!r})\n"
            "problem = vrtd.LinearProblem(mrp, [[1.0], [1.0]])"
        ),
    ),
}


@dataclass(frozen=True)
class OwnProblem:
    """Problem of the user, with the path of its file if it has one."""

    problem: LinearProblem
    path: str | None

    @property
    def has_one_discount(self) -> bool:
        """Whether all transitions have the same discount below 1, so that it can be moved."""
        discount = self.problem.mrp.edges.discount
        return bool(np.all(discount == discount[0])) and bool(discount[0] < 1.0)

    def as_chain(self) -> Chain:
        """Return the chain of this problem."""
        uses = ("discount",) if self.has_one_discount else ()
        name = "your problem" if self.path is None else self.path.replace("\\", "/").rpartition("/")[2]
        return Chain(f"{name}, {self.problem.mrp.n_states} states", uses, self._build, self._code)

    def _build(self, settings: LabSettings) -> LinearProblem:
        mrp = self.problem.mrp
        edges = mrp.edges
        if not self.has_one_discount or edges.discount[0] == settings.discount:
            return self.problem
        changed = MarkovRewardProcess.from_edges(
            mrp.n_states, edges.origin, edges.successor, edges.probability, edges.reward,
            np.full(edges.origin.size, settings.discount), mrp.rewards_averaged, edges.weight,
        )  # fmt: skip
        distribution = None if self.problem.is_stationary else self.problem.state_distribution
        return LinearProblem(changed, self.problem.phi, distribution)

    def _code(self, settings: LabSettings) -> str:
        if self.path is None:
            return "problem = ...  # the problem that you passed to vrtd.lab.serve"
        if not self.has_one_discount:
            return f"problem = vrtd.lab.read_problem({self.path!r})"
        return (
            f"arrays = np.load({self.path!r})\n"
            f'mrp = vrtd.MarkovRewardProcess(arrays["P"], arrays["R"], {settings.discount!r})\n'
            'problem = vrtd.LinearProblem(mrp, arrays["phi"])'
        )
