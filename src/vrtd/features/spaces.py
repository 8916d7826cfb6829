"""What the observations of a log are: columns of a table, numbered states, points of a box, or features already."""

from __future__ import annotations

from math import isnan
from typing import Any, Literal, NamedTuple, get_args

from vrtd.checks import as_number, check_choice, check_count, require

SpaceKind = Literal["features", "columns", "states", "box"]
Bounds = tuple[float | None, ...]  # None: not known

# Environments write "no bound" also as the largest float32.
_NO_BOUND = 3.4028234663852886e38


class Column(NamedTuple):
    """A column of a table, and the numbers that it becomes in an observation."""

    name: str
    #: Of a category: one number per level, 1 for this level and 0 else, and a last one for all other values.
    levels: tuple[str, ...] | None = None
    #: What stands for a missing number. A second number is then 1 where it is missing and 0 else.
    fill: float | None = None

    @property
    def numbers(self) -> tuple[str, ...]:
        """Return the names of its numbers.

        >>> Column("segment", levels=("new", "old")).numbers
        ('segment=new', 'segment=old', 'segment=other')
        """
        if self.levels is not None:
            rest = "other"
            while rest in self.levels:
                rest += "_"
            return tuple(f"{self.name}={level}" for level in (*self.levels, rest))
        return (self.name,) if self.fill is None else (self.name, f"{self.name} is missing")


class ObservationSpace(NamedTuple):
    """What is known of observations before they are read. Features that are chosen automatically depend on it."""

    #: "features": rows that are features already. "columns": columns of a table. "states": numbered states, or one
    #: number for each of several discrete variables. "box": points of a space with or without bounds.
    kind: SpaceKind
    columns: tuple[Column, ...] = ()  # of a table
    sizes: tuple[int, ...] = ()  # of states: each number is below its size; empty: not known
    low: Bounds = ()  # of a box; None: not known
    high: Bounds = ()
    actions: tuple[str, ...] = ()  # words for the actions 0, 1, ...; empty: they have none

    @property
    def n_numbers(self) -> int | None:
        """Return how many numbers an observation has, or None where that is not known."""
        return len(self.names or self.sizes or self.low) or None

    @property
    def names(self) -> tuple[str, ...] | None:
        """Return the names of the numbers of an observation, or None where they have none."""
        return tuple(name for column in self.columns for name in column.numbers) or None

    @property
    def bounds(self) -> tuple[Bounds, Bounds] | None:
        """Return the least and the largest value of each number; None where nothing is known.

        What is infinite (or of the size of the largest float32), and a number without extent, is not known.

        >>> ObservationSpace("box", low=(-1.2, float("-inf")), high=(0.6, float("inf"))).bounds
        ((-1.2, None), (0.6, None))
        """
        low, high = self.low, self.high
        if self.kind == "states":
            low, high = (0.0,) * len(self.sizes), tuple(size - 1.0 for size in self.sizes)
        pairs = [_keep_usable(a, b) for a, b in zip(low, high, strict=True)]
        return (tuple(a for a, _ in pairs), tuple(b for _, b in pairs)) if pairs else None

    @property
    def settings(self) -> dict[str, Any]:
        """Return plain values from which `read_space` makes the same space."""
        return {
            "kind": self.kind,
            "columns": [
                {"name": name, "levels": None if levels is None else list(levels), "fill": fill}
                for name, levels, fill in self.columns
            ],
            "sizes": list(self.sizes),
            "low": list(self.low),
            "high": list(self.high),
            "actions": list(self.actions),
        }


def read_space(settings: Any) -> ObservationSpace:
    """Return the space with these settings, which a file may hold.

    >>> read_space(ObservationSpace("states", sizes=(16,)).settings).sizes
    (16,)
    """
    _check_keys(settings, ObservationSpace, "a space")
    check_choice("the kind of a space", settings["kind"], get_args(SpaceKind))
    lists = {name: settings[name] for name in ("columns", "sizes", "low", "high", "actions")}
    must, do = "the parts of a space must be lists", "pass what features.settings returned"
    require(all(isinstance(value, list | tuple) for value in lists.values()), must, f"{settings!r:.60}", do)
    low, high = (tuple(map(_as_bound, lists[name])) for name in ("low", "high"))
    must, do = "the actions of a space must be words", "pass what features.settings returned"
    require(all(isinstance(word, str) for word in lists["actions"]), must, f"{lists['actions']!r:.60}", do)
    must = "low and high of a space must be equally long"
    require(len(low) == len(high), must, f"{len(low)} and {len(high)}", "pass one of each")
    return ObservationSpace(
        settings["kind"],
        tuple(map(_read_column, lists["columns"])),
        tuple(check_count("sizes", size) for size in lists["sizes"]),
        low,
        high,
        tuple(lists["actions"]),
    )


def _read_column(settings: Any) -> Column:
    _check_keys(settings, Column, "a column")
    name, levels = settings["name"], settings["levels"]
    is_plain = levels is None or (isinstance(levels, list | tuple) and all(isinstance(level, str) for level in levels))
    must, do = "a column must have a name, and levels that are words", "pass what features.settings returned"
    require(isinstance(name, str) and is_plain, must, f"{settings!r:.60}", do)
    return Column(name, None if levels is None else tuple(levels), _as_bound(settings["fill"]))


def _check_keys(settings: Any, kind: type[ObservationSpace | Column], what: str) -> None:
    holds = isinstance(settings, dict) and set(settings) == set(kind._fields)
    must = f"settings of {what} must be {', '.join(kind._fields)}"
    require(holds, must, f"{settings!r:.60}", "pass what features.settings returned")


def _as_bound(value: Any) -> float | None:
    number = None if value is None else as_number(value)
    must = "bounds and fills of a space must be numbers, or None"
    require(number is None or not isnan(number), must, f"{value!r:.60}", "pass numbers")
    return number


def _keep_usable(low: float | None, high: float | None) -> tuple[float | None, float | None]:
    low = None if low is not None and low <= -_NO_BOUND else low
    high = None if high is not None and high >= _NO_BOUND else high
    return (None, None) if low is not None and high is not None and not low < high else (low, high)
