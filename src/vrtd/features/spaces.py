"""What the observations of a log are: columns of a table, numbered states, points of a box, or features already."""

from __future__ import annotations

from typing import Literal, NamedTuple

SpaceKind = Literal["features", "columns", "states", "box"]


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
            return (*(f"{self.name}={level}" for level in self.levels), f"{self.name}=other")
        return (self.name,) if self.fill is None else (self.name, f"{self.name} is missing")


class ObservationSpace(NamedTuple):
    """What is known of observations before they are read. Features that are chosen automatically depend on it."""

    #: "features": rows that are features already. "columns": columns of a table. "states": numbered states, or one
    #: number for each of several discrete variables. "box": points of a space with or without bounds.
    kind: SpaceKind
    columns: tuple[Column, ...] = ()  # of a table
    sizes: tuple[int, ...] = ()  # of states: each number is below its size; empty: not known
    low: tuple[float | None, ...] = ()  # of a box; None: not known
    high: tuple[float | None, ...] = ()

    @property
    def names(self) -> tuple[str, ...] | None:
        """Return the names of the numbers of an observation, or None where they have none."""
        return tuple(name for column in self.columns for name in column.numbers) or None
