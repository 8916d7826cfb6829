"""Assignment of columns to fields by usual names, patterns and families of numbered columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple, get_args

from numpy.typing import NDArray

from vrtd.checks import check_choice
from vrtd.errors import DataError, InvalidInputError

Names = str | Sequence[str]

#: Usual names of the columns of each field, of which the first that exists is taken. They come from Gymnasium and
#: Minari, D4RL and d3rlpy (terminals, timeouts, episode_terminals), RLlib (new_obs, terminateds, truncateds, eps_id),
#: Stable-Baselines (dones) and RLDS (is_first).
ALIASES: dict[str, tuple[str, ...]] = {
    "observations": ("observations", "observation", "obs", "states", "state", "s", "x"),
    "next_observations": (
        *("next_observations", "next_observation", "next_obs", "new_obs", "observations_next", "obs_next"),
        *("next_states", "next_state", "next_s", "s_next", "next_x", "x_next"),
    ),
    "reward": ("rewards", "reward", "r"),
    "terminated": ("terminated", "terminateds", "terminations", "terminals", "terminal"),
    "done": ("done", "dones"),
    "truncated": ("truncated", "truncateds", "truncations", "timeouts", "timeout", "episode_terminals"),
    "weight": ("weight", "weights", "importance_ratio", "importance_ratios", "rho"),
    "episode": ("episode", "episodes", "episode_id", "eps_id", "ep"),
    "starts": ("is_first",),
}
VECTORS = ("observations", "next_observations")
ANY_KIND = (*VECTORS, "action")  # one column or several, of numbers, vectors, text or categories
KEYS = ("episode", "order_by")  # may be several columns
#: The name in `episode` that stands for the file of a row, unless a column has this name.
FILE = "file"

#: Treatments of the last row of an episode that no flag marks.
EpisodeEnd = Literal["terminated", "truncated", "drop"]
#: Treatments of missing values.
Missing = Literal["error", "drop", "indicator"]
#: Treatments of text in observations: a number for each level, or one number with a hash.
Text = Literal["category", "hash"]


class Columns(NamedTuple):
    """Columns of each field, either as the user names them (with patterns, and None for usual names) or as resolved.

    A single column of observations or actions may hold vectors. Several columns form a vector.
    """

    observations: Names | None = None
    reward: str | None = None
    next_observations: Names | None = None
    terminated: str | None = None
    truncated: str | None = None
    weight: str | None = None
    episode: Names | None = None
    order_by: Names | None = None
    action: Names | None = None  # never guessed
    propensity: str | None = None  # never guessed
    done: str | None = None  # cannot be named; used if there is no column `terminated`
    starts: str | None = None  # cannot be named
    is_by_file: bool = False  # whether rows of different files belong to different episodes
    unused_weight: str | None = None  # a column with a usual name of weights that is not used

    @property
    def _named(self) -> dict[str, Names]:
        return {field: names for field, names in zip(self._fields[:12], self[:12], strict=True) if names is not None}

    @property
    def by_field(self) -> dict[str, tuple[str, ...]]:
        """Columns of each field that has any."""
        return {field: (names,) if isinstance(names, str) else tuple(names) for field, names in self._named.items()}

    @property
    def roles(self) -> dict[str, tuple[str, ...]]:
        """Columns of each field by the names of the parameters of `read`, and `starts`."""
        roles = {"terminated" if field == "done" else field: names for field, names in self.by_field.items()}
        return roles | {"episode": (*roles.get("episode", ()), FILE)} if self.is_by_file else roles

    @property
    def all(self) -> list[str]:
        """All columns, each once."""
        return list(dict.fromkeys(name for names in self.by_field.values() for name in names))

    def select(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any] | list[NDArray[Any]]]:
        """Return the array of each field, or a list of arrays for several columns."""
        named = self._named.items()
        return {f: arrays[name] if isinstance(name, str) else [arrays[one] for one in name] for f, name in named}

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks on a column `done` without a column `truncated`, and on unused weights."""
        remarks = []
        if self.done is not None and self.truncated is None:
            remarks.append(
                f"column {self.done!r} does not distinguish termination from truncation: every row that it marks "
                "counts as terminated and does not bootstrap"
            )
        if self.unused_weight is not None:
            name = self.unused_weight
            remarks.append(f"column {name!r} is not used. Pass weight={name!r} if it holds importance ratios")
        return tuple(remarks)


def check_episode_end(episode_end: EpisodeEnd | None) -> None:
    """Raise unless `episode_end` is None or one of its choices."""
    if episode_end is not None:
        check_choice("episode_end", episode_end, get_args(EpisodeEnd))


def find_columns(there: Sequence[str], wanted: Columns, where: str) -> Columns:
    """Resolve the columns of `wanted` among the columns `there`.

    >>> find_columns(["obs_10", "obs_9", "r", "done"], Columns(), "a.csv").observations
    ('obs_9', 'obs_10')
    """
    found: dict[str, Any] = {}
    episode = wanted.by_field.get("episode", ())
    if FILE in episode and FILE not in there:
        others = tuple(name for name in episode if name != FILE)
        wanted = wanted._replace(episode=others or None)
        found |= {"is_by_file": True, "episode": None}  # without guessing a column
    for field, names in wanted._named.items():
        found[field] = _find_named(field, names, there, where)
    if "observations" in found and "next_observations" not in found:
        successors = _find_successors(found["observations"], there)
        found |= {} if successors is None else {"next_observations": successors}
    for field in ALIASES:
        if field not in found:
            found[field] = _find_usual(field, there, where)
    if found["terminated"] is not None:
        found["done"] = None
    usual_weight = found["weight"] if wanted.weight is None else None
    if wanted.weight is None:  # weights are never guessed
        found["weight"] = None
    if found["starts"] in Columns(**found | {"starts": None}).all:  # the column has another role
        found["starts"] = None
    for field in ("observations", "reward"):
        if found[field] is None:
            near = [match for alias in ALIASES[field] for match in get_close_matches(alias, there, n=1, cutoff=0.7)]
            remedy = f"Did you mean {field}={near[0]!r}?" if near else f"Name the column with {field}='...'."
            raise DataError(
                f"{where} has no column for {field}, such as {', '.join(ALIASES[field][:3])}; it has {_list(there)}.",
                remedy,
            )
    columns = Columns(**found)
    if usual_weight not in columns.all:
        columns = columns._replace(unused_weight=usual_weight)
    counts = Counter(there)
    for name in columns.all:
        if counts[name] > 1:
            raise DataError(f"{where} has {counts[name]} columns named {name!r}.", "Rename all but one of them.")
    names, next_names = (columns.by_field.get(field, ()) for field in VECTORS)
    if next_names and len(names) != len(next_names):
        raise DataError(
            f"{where} must have as many columns of next observations as of observations, "
            f"but has {_list(next_names)} for {_list(names)}.",
            "Pass observations=... and next_observations=... with the columns of both.",
        )
    return columns


def _find_named(field: str, names: Names, there: Sequence[str], where: str) -> str | tuple[str, ...]:
    is_one = isinstance(names, str)
    wanted: list[Any] = [names] if isinstance(names, str) else list(names)
    found: list[str] = []
    for name in wanted:
        if not isinstance(name, str):
            raise InvalidInputError(
                f"{field} must be the name of a column, a pattern or a list of them, but is {names!r}.", "Pass text."
            )
        if name in there:
            found.append(name)
            continue
        is_one = False
        matches = sorted((column for column in there if fnmatchcase(column, name)), key=order_by_number)
        if not matches:
            near = get_close_matches(name, there, n=1, cutoff=0.6)
            remedy = f"Did you mean {near[0]!r}?" if near else "Name one of them."
            raise DataError(f"{where} has no column {name!r} for {field}; it has {_list(there)}.", remedy)
        found += matches
    if not found:
        raise InvalidInputError(f"{field} must name at least one column, but is {names!r}.", "Pass a name.")
    if field in ANY_KIND:
        return found[0] if is_one else tuple(found)
    if field in KEYS:
        return found[0] if len(found) == 1 else tuple(found)
    if len(found) != 1:
        raise DataError(f"{field} must be one column of {where}, but matches {_list(found)}.", "Name one of them.")
    return found[0]


def _find_usual(field: str, there: Sequence[str], where: str) -> str | tuple[str, ...] | None:
    for alias in ALIASES[field]:
        if alias in there:
            return alias
        members = [name for name in there if field in VECTORS and re.fullmatch(rf"{alias}[_.]\d+", name)]
        if members:
            members.sort(key=order_by_number)
            numbers = [int(re.split(r"[_.]", name)[-1]) for name in members]
            if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
                raise DataError(
                    f"The columns {members[0]} to {members[-1]} of {where} must be numbered without "
                    f"a gap, but are {_list(members)}.",
                    f"Pass {field}=... with the columns to use.",
                )
            return tuple(members)
    return None


def _find_successors(observations: str | tuple[str, ...], there: Sequence[str]) -> str | tuple[str, ...] | None:
    """Return the columns with the names of the observations after the prefix next_, or None."""
    if isinstance(observations, str):
        return f"next_{observations}" if f"next_{observations}" in there else None
    successors = tuple(f"next_{name}" for name in observations)
    return successors if set(successors) <= set(there) else None


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20]))
    return f"columns {shown}" + (f" and {len(names) - 20} more" if len(names) > 20 else "") if names else "no columns"


def order_by_number(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key by which x_2 comes before x_10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]
