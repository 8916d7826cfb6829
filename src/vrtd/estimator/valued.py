"""Which states a report values: all of a table, a grid over what was observed, or what the log began with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import InvalidInputError
from vrtd.estimator.evaluator import Evaluator
from vrtd.estimator.observed import Observed
from vrtd.features import Features, Scaled, Tabular
from vrtd.features import Table as FeatureTable
from vrtd.tables import Table

Kind = Literal["table", "curve", "map", "list"]

_CURVE, _MAP, _LIST = 201, 61, 256  # points of a curve, along each side of a map, and in a list
_BLOCK = 512  # states whose features are held at once


class Valued(NamedTuple):
    """States with the numbers of their observations, their values and intervals."""

    kind: Kind
    names: tuple[str, ...]  # of the columns that hold the observation
    table: Table  # these columns, value, low, high

    @property
    def half_width(self) -> NDArray[np.float64]:
        half: NDArray[np.float64] = (self.table["high"] - self.table["low"]) / 2.0
        return half


def value_states(
    evaluator: Evaluator, observed: Observed, level: float, states: Any, names: Sequence[str] | None
) -> Valued:
    """The values of `states`, or of those that show most where none are given."""
    kind, rows = _at_hand(evaluator.features, observed) if states is None else ("list", _checked(states, observed))
    flat = rows.reshape(len(rows), -1)
    columns = _names(names, flat.shape[1], "state" if kind == "table" else "observation")
    table: Table = {name: np.ascontiguousarray(flat[:, j]) for j, name in enumerate(columns)}
    parts = [evaluator.predict(rows[at : at + _BLOCK], level) for at in range(0, len(rows), _BLOCK)]
    for field in ("value", "low", "high"):
        table[field] = np.concatenate([getattr(part, field) for part in parts])
    return Valued(kind, columns, table)


def n_states_of(features: Features) -> int | None:
    """How many states there are, where the features are those of numbered ones."""
    match features:
        case Tabular() | FeatureTable():
            return features.n_states
        case Scaled():
            return n_states_of(features.features)
        case _:
            return None


def _at_hand(features: Features, observed: Observed) -> tuple[Kind, NDArray[Any]]:
    n_states = n_states_of(features)
    if n_states is not None:
        return "table", np.arange(n_states)
    if observed.low is None or observed.high is None:
        return "list", observed.first(_LIST)
    n = _CURVE if observed.size == 1 else _MAP
    sides = [_side(low, high, n) for low, high in zip(observed.low, observed.high, strict=True)]
    grid = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, *observed.shape)
    return ("curve" if observed.size == 1 else "map"), grid


def _side(low: Any, high: Any, n: int) -> NDArray[Any]:
    points = np.linspace(low, high, n if low < high else 1)
    if np.asarray(low).dtype.kind in "biu":  # observations between whole numbers are none
        return np.unique(points.round()).astype(np.asarray(low).dtype)
    return points.astype(np.asarray(low).dtype)


def _checked(states: Any, observed: Observed) -> NDArray[Any]:
    rows = np.asarray(states)
    if rows.ndim == 0 or len(rows) == 0 or rows.shape[1:] != observed.shape or rows.dtype.kind not in "biuf":
        raise InvalidInputError(
            f"states must be observations like those of the log, of shape (n, {', '.join(map(str, observed.shape))})",
            f"an array of {rows.dtype} of shape {rows.shape}",
            "pass one row for each",
        )
    return rows


def _names(given: Sequence[str] | None, k: int, word: str) -> tuple[str, ...]:
    if given is None:
        return (word,) if k == 1 else tuple(f"{word}_{j}" for j in range(k))
    names = tuple(given)
    taken = {"value", "low", "high", "half_width"}
    if len(names) != k or len({*names, *taken}) != k + len(taken) or not all(isinstance(n, str) and n for n in names):
        raise InvalidInputError(
            f"names must be {k} different words, one for each number of an observation, and none of "
            f"{', '.join(sorted(taken))}",
            repr(given),
            "pass as many",
        )
    return names
