"""Levels of categories, words of actions and means for missing numbers, from the first rows of a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError
from vrtd.features.spaces import Column, ObservationSpace
from vrtd.logs.actions import NUMBER_THEM, ActionCoding
from vrtd.logs.columns import ANY_KIND, Columns, Text
from vrtd.logs.encoding import PILOT_ROWS, Values, hash_column, widen
from vrtd.logs.log import shorten
from vrtd.tables import library

if TYPE_CHECKING:
    from vrtd.logs.part import Part

MOST_LEVELS = 1000
_LONGEST = 200  # letters of a text that a report shows


def choose_space(
    parts: Sequence[Part], known: ObservationSpace | None = None, text: Text = "category"
) -> ObservationSpace | None:
    """Return the space of the observations: their columns, with levels and means from the pilot rows.

    Return None if only a complete reading shows it. `known` is the space of an earlier log, which is returned if the
    columns are the same. Files that hold their space have encoded observations, which are not encoded again.
    """
    stored = find_stored(parts)
    space = _find_space(parts, text) if stored is None else stored
    if space is None:
        return None
    space = space._replace(actions=_find_actions(parts, space.actions, known))
    if known is None or not known.columns or not space.columns:
        return space
    ours, theirs = ([(column.name, column.levels is None) for column in each.columns] for each in (space, known))
    if ours != theirs or (stored is not None and stored.columns != known.columns):
        raise DataError(
            "observations must be the same columns as in the log that was fitted before, and of the same kind, but are "
            f"{', '.join(name for name, _ in ours)} after {', '.join(name for name, _ in theirs)}.",
            "Name the same columns in the same order.",
        )
    return known._replace(actions=space.actions)


def _find_actions(parts: Sequence[Part], stored: tuple[str, ...], known: ObservationSpace | None) -> tuple[str, ...]:
    """Return the words of the actions 0, 1, ...: from an earlier log, from the files or from the pilot rows."""
    first, names = parts[0], parts[0].columns.by_field.get("action", ())
    is_text = len(names) == 1 and names[0] in first.kinds and first.kinds[names[0]].is_category
    if known is None:
        if not is_text:
            return stored
        return _find_levels([rows[names[0]] for rows in _read_pilot(parts)], first.where, names[0], NUMBER_THEM)
    if (is_text and not known.actions) or (not is_text and stored and known.actions and stored != known.actions):
        raise DataError(
            "Actions must be written as in the log that was fitted before, but are "
            f"{'text' if is_text else shorten(stored)} after {shorten(known.actions) or 'numbers'}.",
            NUMBER_THEM,
        )
    return known.actions or stored


def choose_actions(parts: Sequence[Part], space: ObservationSpace | None) -> ActionCoding:
    """Return the rules for the conversion of the actions of the parts to numbers."""
    first, names = parts[0], parts[0].columns.by_field.get("action", ())
    kinds = [part.kinds[name] for part in parts for name in names if name in part.kinds]
    width = None
    if len(names) == 1 and kinds and kinds[0].row_shape is None and first.missing == "drop":
        arrays = [rows[names[0]] for rows in _read_pilot(parts)]
        shapes = [array.shape[1:] for array in arrays if not np.ma.getmaskarray(array).all()]
        width = shapes[0][0] if shapes and shapes[0] else None
    words = () if space is None else space.actions
    return ActionCoding(words, bool(kinds) and all(kind.is_integer for kind in kinds), width)


def find_stored(parts: Sequence[Part]) -> ObservationSpace | None:
    """Return the space that all parts hold, or None if one of them holds none."""
    spaces = [part.space for part in parts]
    if None in spaces:
        return None
    for part in parts[1:]:
        if part.space != spaces[0]:
            raise DataError(
                "All files of a log must describe their observations alike, "
                f"but the descriptions in {parts[0].where} and {part.where} differ.",
                "Read the files separately.",
            )
    return spaces[0]


def read_words(parts: Sequence[Part], space: ObservationSpace) -> dict[float, str]:
    """Return the text of hashed columns in the pilot rows by its hash, cut if it is long."""
    names = {column.name for column in space.columns if column.is_hashed}
    words: dict[float, str] = {}
    for rows in _read_pilot(parts) if names else ():
        for name in names.intersection(rows):
            unique = rows[name].unique().drop_null()
            text = (word if len(word) <= _LONGEST else f"{word[: _LONGEST - 1]}…" for word in unique.to_pylist())
            words.update(zip(hash_column(unique).tolist(), text, strict=True))
    return words


def _find_space(parts: Sequence[Part], text: Text) -> ObservationSpace | None:
    first = parts[0]
    if not first.kinds:
        return None
    fields, types = first.columns.by_field, first.kinds
    names, next_names = fields["observations"], fields.get("next_observations", ())
    kinds = [types[name] for name in names]
    _check_roles(first)
    fills = first.missing == "indicator"
    pilot: list[Values] = []
    has_levels = text == "category" and any(kind.is_category for kind in kinds)
    if fills or has_levels or any(kind.row_shape is None for kind in kinds):
        pilot = list(_read_pilot(parts))
        if not pilot:
            return None
    if len(names) == 1 and not kinds[0].is_category:
        return _choose_one(parts, names[0], pilot)
    columns = []
    for j, name in enumerate(names):
        if types[name].is_category and text == "hash":
            columns.append(Column(name, ()))
        elif types[name].is_category:
            both = (name, *next_names[j : j + 1])
            remedy = (
                "Leave it out of the observations, name it as the episode if it is an identifier, or pass text='hash' "
                "with features='hash:20'."
            )
            levels = _find_levels([rows[one] for rows in pilot for one in both], first.where, name, remedy)
            columns.append(Column(name, levels))
        else:
            following = _find_following(first.columns, pilot, next_names[j : j + 1]) if fills else []
            fill = _find_fill([rows[name] for rows in pilot], following) if fills else None
            columns.append(Column(name, fill=fill))
    return ObservationSpace("columns", tuple(columns))


def _check_roles(part: Part) -> None:
    """Raise unless categories are only observations or actions, with next observations of the same type."""
    fields, types = part.columns.by_field, part.kinds
    for name, successor in zip(fields["observations"], fields.get("next_observations", ()), strict=False):
        if types[name].is_category != types[successor].is_category:
            raise DataError(
                f"{part.where}, column {successor}, must be like column {name}, "
                f"but holds {types[successor].words} instead of {types[name].words}.",
                "Convert one of them.",
            )
    for field, names in fields.items():
        for name in names if field not in ANY_KIND else ():
            if name in types and types[name].is_category:
                raise DataError(
                    f"{part.where}, column {name}, holds categories and cannot be both observations and {field}.",
                    "Leave it out of the observations, or copy it.",
                )


def _choose_one(parts: Sequence[Part], name: str, pilot: Sequence[Values]) -> ObservationSpace:
    """Choose the space of one column, of numbers or of vectors."""
    columns, fills = parts[0].columns, parts[0].missing == "indicator"
    kind, rows = parts[0].kinds[name], [values[name] for values in pilot]
    next_names = columns.by_field.get("next_observations", ()) if fills else ()
    following = _find_following(columns, pilot, next_names)
    shape = kind.row_shape
    if shape is None:
        shapes = [array.shape[1:] for array in rows if not np.ma.getmaskarray(array).all()]
        if not shapes:
            raise DataError(
                f"The length of the lists of {parts[0].where}, column {name}, is unknown, "
                f"because they are null in the first {PILOT_ROWS:,} rows.",
                "Drop these rows first.",
            )
        shape = shapes[0]
    if shape == ():
        fill = _find_fill(rows, following) if fills else None
        if not all(part.kinds[name].is_integer for part in parts):
            return ObservationSpace("columns", (Column(name, fill=fill),))
        if fill is not None:
            raise DataError(
                f"{parts[0].where}, column {name}, has missing states, which have no mean to replace them.",
                "Pass missing='drop', or convert the column to a category or to floats.",
            )
        return ObservationSpace("states", (Column(name),))
    if len(shape) > 1:
        return ObservationSpace("box")
    fills_of: list[float | None] = [None] * shape[0]
    if fills:
        rows, following = ([widen(array, shape[0]) for array in each] for each in (rows, following))
        for j in range(shape[0]):
            fills_of[j] = _find_fill([array[:, j] for array in rows], [array[:, j] for array in following])
    return ObservationSpace("columns", tuple(Column(f"{name}_{j}", fill=fill) for j, fill in enumerate(fills_of)))


def _read_pilot(parts: Sequence[Part]) -> Iterator[Values]:
    """Yield the first rows of a log, the same ones however it is split into parts."""
    n_left = PILOT_ROWS
    for part in parts:
        for values in part.peek(n_left):
            n_rows = len(next(iter(values.values())))
            yield {name: column[:n_left] for name, column in values.items()}
            n_left -= min(n_rows, n_left)
        if not n_left:
            return


def _find_levels(arrays: Sequence[Any], where: str, name: str, remedy: str) -> tuple[str, ...]:
    """Return the values of a category, sorted: numbers before text."""
    from pyarrow import compute

    unique = compute.unique(library().chunked_array(arrays, library().string())).drop_null().to_pylist()
    if len(unique) > MOST_LEVELS:
        n_rows = sum(map(len, arrays))
        raise DataError(
            f"{where}, column {name}, must have at most {MOST_LEVELS:,} different values "
            f"to be a category, but has {len(unique):,} in the first {n_rows:,} rows.",
            remedy,
        )
    return tuple(sorted(sorted(unique), key=_as_number))


def _as_number(level: str) -> tuple[float, str]:
    try:
        number = float(level)
    except ValueError:
        return inf, level
    return (number, "") if isfinite(number) else (inf, level)


def _find_following(columns: Columns, pilot: Sequence[Values], names: Sequence[str]) -> list[NDArray[Any]]:
    """Return the next observations of the pilot rows that need one: rows that neither terminate nor end an episode.

    If the rows of episodes have yet to be sorted, these rows are unknown and the result is empty.
    """
    fields, sizes = columns.by_field, [len(next(iter(values.values()))) for values in pilot]
    if not names or not pilot or {"episode", "order_by"} <= fields.keys():
        return []

    def join(field: str) -> list[NDArray[Any]]:
        return [np.concatenate([np.ma.getdata(values[name]) for values in pilot]) for name in fields.get(field, ())]

    none = np.zeros(sum(sizes), np.bool_)
    terminated, done, truncated = (np.logical_or.reduce([none, *join(f)]) for f in ("terminated", "done", "truncated"))
    is_end = terminated | (done & ~truncated)
    for key in join("episode"):
        is_end |= np.append(key[1:] != key[:-1], True)
    needed = np.split(~is_end, np.cumsum(sizes)[:-1])
    return [values[name][rows] for name in names for values, rows in zip(pilot, needed, strict=True)]


def _find_fill(arrays: Sequence[NDArray[Any]], following: Sequence[NDArray[Any]]) -> float | None:
    """Return the mean of a column, or None if no value is missing in it and in the next observations."""
    values, successors = (
        np.concatenate([np.empty(0), *(np.ma.filled(array.astype(np.float64), np.nan) for array in each)])
        for each in (arrays, following)
    )
    if not np.isnan(values).any() and not np.isnan(successors).any():
        return None
    there = values[np.isfinite(values)]
    return float(there.mean()) if there.size else 0.0
