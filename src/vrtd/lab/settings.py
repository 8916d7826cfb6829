"""The settings of the lab, as they stand in the address of its page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from vrtd.algorithms import TD, VRTD, Algorithm, ChainSampling, RichardsonTD
from vrtd.checks import check_choice, find_nearest
from vrtd.errors import InvalidInputError

N_RUNS = 1000
#: Largest number of inner steps of VRTD with growing batches.
_N_STEPS = 1000
#: The burn-in of RichardsonTD is this share of its updates.
_BURN_IN = 0.1


class Range(NamedTuple):
    """Values that a number may have, and how a slider covers them."""

    least: float
    most: float
    whole: bool
    logarithmic: bool


RANGES = {
    "chain_seed": Range(0, 999, whole=True, logarithmic=False),
    "n_features": Range(1, 5, whole=True, logarithmic=False),
    "discount": Range(0.0, 0.99, whole=False, logarithmic=False),
    "step_size": Range(1e-4, 10.0, whole=False, logarithmic=True),
    "batch_size": Range(2, 10_000, whole=True, logarithmic=True),
    "growth": Range(1.1, 16.0, whole=False, logarithmic=True),
    "n_gradients": Range(100, 100_000, whole=True, logarithmic=True),
    "radius": Range(1e-6, 1e6, whole=False, logarithmic=True),
    "seed": Range(0, 999_999, whole=True, logarithmic=False),
}
SAMPLINGS: dict[ChainSampling, str] = {"iid": "independent samples", "markov": "one trajectory per run"}
ALGORITHMS = {
    "td": "TD",
    "td_averaged": "averaged TD",
    "richardson_td": "Richardson-Romberg TD",
    "vrtd": "VRTD",
    "vrtd_growing": "VRTD, growing batches",
}


@dataclass(frozen=True)
class LabSettings:
    """Everything that decides what the lab shows.

    Parameters
    ----------
    chain : str, default="random_mdp"
        Name of the chain, among those of ``vrtd.lab.chains``.
    chain_seed : int, default=0
        Seed of a random chain.
    n_features : int, default=4
        Number of features of a random chain.
    discount : float, default=0.95
        Discount, where the chain lets it be chosen.
    sampling : {"iid", "markov"}, default="iid"
        Kind of samples.
    algorithm : str, default="vrtd"
        Algorithm whose runs are shown.
    also : tuple of str, default=("td",)
        Algorithms of which only the mean is shown.
    step_size : float, default=0.1
        Step size of every algorithm.
    batch_size : int, default=50
        Batch size of VRTD, or its first one if batches grow.
    growth : float, default=4.0
        Growth factor of growing batches.
    n_gradients : int, default=10_000
        Pseudo-gradients per run.
    radius : float or None, default=None
        Radius R in the bounds. None means the least one that they allow.
    seed : int, default=0
        Seed of the runs.
    """

    chain: str = "random_mdp"
    chain_seed: int = 0
    n_features: int = 4
    discount: float = 0.95
    sampling: ChainSampling = "iid"
    algorithm: str = "vrtd"
    also: tuple[str, ...] = ("td",)
    step_size: float = 0.1
    batch_size: int = 50
    growth: float = 4.0
    n_gradients: int = 10_000
    radius: float | None = None
    seed: int = 0

    def build(self, name: str) -> Algorithm:
        """Return an algorithm of the lab with these settings."""
        match name:
            case "td":
                return TD(self.step_size)
            case "td_averaged":
                return TD(self.step_size, average=True)
            case "richardson_td":
                algorithm = RichardsonTD(self.step_size)
                n_updates = self.n_gradients // algorithm.epoch(self.sampling).n_gradients
                return RichardsonTD(self.step_size, burn_in=int(_BURN_IN * n_updates))
            case "vrtd":
                return VRTD(self.step_size, self.batch_size)
            case "vrtd_growing":
                return VRTD(self.step_size, self.batch_size, growth=self.growth, n_steps=_N_STEPS)
        raise AssertionError(name)

    @property
    def shown(self) -> tuple[str, ...]:
        """All algorithms that are shown, the main one first."""
        return (self.algorithm, *(name for name in self.also if name != self.algorithm))


def parse_settings(texts: Mapping[str, str], chains: tuple[str, ...]) -> LabSettings:
    """Return the settings that the address of a page holds; those that it lacks have their defaults.

    Parameters
    ----------
    texts : mapping of str to str
        Texts of the settings by name.
    chains : tuple of str
        Names of the chains that can be chosen.

    Returns
    -------
    LabSettings
        The settings.

    Raises
    ------
    InvalidInputError
        If a name is unknown or a value is out of range.
    """
    values: dict[str, Any] = {}
    choices = {"chain": chains, "sampling": tuple(SAMPLINGS), "algorithm": tuple(ALGORITHMS)}
    for name, text in texts.items():
        if name in RANGES:
            values[name] = None if name == "radius" and not text else _parse_number(name, text)
        elif name in choices:
            values[name] = check_choice(name, text, choices[name])
        elif name == "also":
            parts = [part for part in text.split(",") if part]
            values[name] = tuple(dict.fromkeys(check_choice("also", part, tuple(ALGORITHMS)) for part in parts))
        else:
            near = find_nearest(name, [*RANGES, *choices, "also"])
            remedy = "Drop it." if near is None else f"Did you mean {near!r}?"
            raise InvalidInputError(f"{name!r} is not a setting of the lab.", remedy)
    return LabSettings(**values)


def as_texts(settings: LabSettings) -> dict[str, str]:
    """Return the settings as texts, from which `parse_settings` reads the same settings."""
    texts = {name: getattr(settings, name) for name in LabSettings.__dataclass_fields__}
    texts["also"] = ",".join(settings.also)
    return {name: "" if value is None else str(value) for name, value in texts.items()}


def _parse_number(name: str, text: str) -> float | int:
    limits = RANGES[name]
    kind = "a whole number" if limits.whole else "a number"
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    holds = limits.least <= number <= limits.most and (number == int(number) or not limits.whole)
    if not holds:
        raise InvalidInputError(
            f"{name} must be {kind} from {limits.least:g} to {limits.most:g}, but is {text!r}.",
            "Move it into this range.",
        )
    return int(number) if limits.whole else number
