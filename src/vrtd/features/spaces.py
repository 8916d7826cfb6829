"""Spaces of observations: columns of a table, numbered states, points of a box, or features."""

from __future__ import annotations

from math import isnan
from typing import Any, Literal, NamedTuple, get_args

from vrtd.checks import as_number, check_choice, check_count, require

SpaceKind = Literal["features", "columns", "states", "box"]
Bounds = tuple[float | None, ...]  # None for a bound that is not known

# Some environments use the largest float32 for "no bound".
_NO_BOUND = 3.4028234663852886e38
_REMEDY = "Pass the settings of an ObservationSpace."


class Column(NamedTuple):
    """Column of a table, and how it becomes numbers of an observation.

    Parameters
    ----------
    name : str
        Name of the column.
    levels : tuple of str, optional
        Levels of a category. If not given, it is a column of numbers. Each level becomes a number that is 1 for this
        level and 0 otherwise. A last number is 1 for all other values. If there are no levels, the category becomes
        one number, a hash of its text.
    fill : float, optional
        Replacement of missing numbers. If it is given, a second number is 1 if the number is missing and 0 otherwise.

    Examples
    --------
    >>> Column("age", fill=0.0).numbers
    ('age', 'age is missing')
    """

    name: str
    levels: tuple[str, ...] | None = None
    fill: float | None = None

    @property
    def is_hashed(self) -> bool:
        """Whether it is a category that becomes a hash."""
        return self.levels == ()

    @property
    def numbers(self) -> tuple[str, ...]:
        """Names of the numbers that the column becomes.

        >>> Column("segment", levels=("new", "old")).numbers
        ('segment=new', 'segment=old', 'segment=other')
        """
        if self.is_hashed:
            return (self.name,)
        if self.levels is not None:
            rest = "other"
            while rest in self.levels:
                rest += "_"
            return tuple(f"{self.name}={level}" for level in (*self.levels, rest))
        return (self.name,) if self.fill is None else (self.name, f"{self.name} is missing")


class ObservationSpace(NamedTuple):
    """What is known of observations before they are read, for automatic features and for bounds.

    Parameters
    ----------
    kind : {"features", "columns", "states", "box"}
        Kind of the observations. They are features already, columns of a table, numbered states (or one number for each
        of several discrete variables), or points of a space with or without bounds.
    columns : tuple of Column, default=()
        Columns of a table.
    sizes : tuple of int, default=()
        Numbers of values of discrete variables. Empty if not known.
    low, high : tuple of float or None, default=()
        Bounds of a box, None where they are not known.
    actions : tuple of str, default=()
        Names of the actions 0, 1, ... Empty if they have none.

    Examples
    --------
    >>> ObservationSpace("box", low=(-1.2, None), high=(0.6, None)).n_numbers
    2
    """

    kind: SpaceKind
    columns: tuple[Column, ...] = ()
    sizes: tuple[int, ...] = ()
    low: Bounds = ()
    high: Bounds = ()
    actions: tuple[str, ...] = ()

    @property
    def n_numbers(self) -> int | None:
        """Number of numbers in an observation, or None if it is not known."""
        return len(self.names or self.sizes or self.low) or None

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the numbers of an observation, or None if they have none."""
        return tuple(name for column in self.columns for name in column.numbers) or None

    @property
    def hashed(self) -> tuple[int, ...]:
        """Numbers of an observation that are hashes of a category, counted from 0."""
        flags = [column.is_hashed for column in self.columns for _ in column.numbers]
        return tuple(place for place, is_hashed in enumerate(flags) if is_hashed)

    @property
    def bounds(self) -> tuple[Bounds, Bounds] | None:
        """Smallest and largest value of each number, or None if nothing is known.

        Bounds that are infinite (or as large as the largest float32) and bounds without extent count as not known.

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
        """Plain values from which ``read_space`` builds the same space."""
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
    """Return the space with these settings, which may come from a file.

    >>> read_space(ObservationSpace("states", sizes=(16,)).settings).sizes
    (16,)
    """
    _check_keys(settings, ObservationSpace, "a space")
    check_choice("the kind of a space", settings["kind"], get_args(SpaceKind))
    lists = {name: settings[name] for name in ("columns", "sizes", "low", "high", "actions")}
    require(
        all(isinstance(value, list | tuple) for value in lists.values()),
        f"The parts of a space must be lists, but got {settings!r:.60}.",
        _REMEDY,
    )
    low, high = (tuple(map(_as_bound, lists[name])) for name in ("low", "high"))
    require(
        all(isinstance(word, str) for word in lists["actions"]),
        f"The actions of a space must be strings, but got {lists['actions']!r:.60}.",
        _REMEDY,
    )
    require(
        len(low) == len(high),
        f"low and high of a space must have the same length, but have {len(low)} and {len(high)} numbers.",
        "Pass one of each per dimension.",
    )
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
    require(
        isinstance(name, str) and is_plain,
        f"The name and the levels of a column must be strings, but got {settings!r:.60}.",
        _REMEDY,
    )
    return Column(name, None if levels is None else tuple(levels), _as_bound(settings["fill"]))


def _check_keys(settings: Any, kind: type[ObservationSpace | Column], what: str) -> None:
    holds = isinstance(settings, dict) and set(settings) == set(kind._fields)
    require(holds, f"settings of {what} must be {', '.join(kind._fields)}, but got {settings!r:.60}.", _REMEDY)


def _as_bound(value: Any) -> float | None:
    number = None if value is None else as_number(value)
    require(
        number is None or not isnan(number),
        f"Bounds and fills of a space must be numbers or None, but got {value!r:.60}.",
        "Pass numbers.",
    )
    return number


def _keep_usable(low: float | None, high: float | None) -> tuple[float | None, float | None]:
    low = None if low is not None and low <= -_NO_BOUND else low
    high = None if high is not None and high >= _NO_BOUND else high
    return (None, None) if low is not None and high is not None and not low < high else (low, high)
