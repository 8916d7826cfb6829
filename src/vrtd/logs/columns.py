"""Which columns of a file are what: one table of usual names, patterns, and families of numbered columns."""

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

#: What a column may be called when it is not named: the first that is there. Gymnasium and Minari, D4RL and d3rlpy
#: (terminals, timeouts, episode_terminals), RLlib (new_obs, terminateds, truncateds, eps_id), Stable-Baselines (dones),
#: RLDS (is_first).
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
ANY_KIND = (*VECTORS, "action")  # may be one column or several, of numbers, vectors, text or categories
KEYS = ("episode", "order_by")  # may be several columns
#: In `episode`, where no column has this name: the file that a row comes from.
FILE = "file"

#: What the last row of an episode is where no flag tells.
EpisodeEnd = Literal["terminated", "truncated", "drop"]
#: What is done about missing values.
Missing = Literal["error", "drop", "indicator"]


class Columns(NamedTuple):
    """The columns of each field: as the caller names them, with patterns and None for what is usual, or as they are.

    One column of observations or actions is taken as it is, several are put together.
    """

    observations: Names | None = None
    reward: str | None = None
    next_observations: Names | None = None
    terminated: str | None = None
    truncated: str | None = None
    weight: str | None = None
    episode: Names | None = None
    order_by: Names | None = None
    action: Names | None = None  # only if it is named
    propensity: str | None = None  # only if it is named
    done: str | None = None  # cannot be named; in the place of `terminated`, where nothing else tells
    starts: str | None = None  # cannot be named
    is_by_file: bool = False  # rows of different files are of different episodes
    unused_weight: str | None = None  # a column that is called like weights, which nobody asked for

    @property
    def _named(self) -> dict[str, Names]:
        return {field: names for field, names in zip(self._fields[:12], self[:12], strict=True) if names is not None}

    @property
    def by_field(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of each field that has some."""
        return {field: (names,) if isinstance(names, str) else tuple(names) for field, names in self._named.items()}

    @property
    def roles(self) -> dict[str, tuple[str, ...]]:
        """Return the columns of each field under the names of the parameters of `read`; `starts` is none of them."""
        roles = {"terminated" if field == "done" else field: names for field, names in self.by_field.items()}
        return roles | {"episode": (*roles.get("episode", ()), FILE)} if self.is_by_file else roles

    @property
    def all(self) -> list[str]:
        """Return every column once."""
        return list(dict.fromkeys(name for names in self.by_field.values() for name in names))

    def select(self, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any] | list[NDArray[Any]]]:
        """Return the array or arrays of each field, from those of each column."""
        named = self._named.items()
        return {f: arrays[name] if isinstance(name, str) else [arrays[one] for one in name] for f, name in named}

    @property
    def remarks(self) -> tuple[str, ...]:
        remarks = []
        if self.done is not None and self.truncated is None:
            remarks.append(
                f"column {self.done!r} does not tell termination from truncation: every row it marks counts as "
                "terminated, and nothing is bootstrapped from it"
            )
        if self.unused_weight is not None:
            name = self.unused_weight
            remarks.append(f"column {name!r} is not used; pass weight={name!r} if it holds importance ratios")
        return tuple(remarks)


def check_episode_end(episode_end: EpisodeEnd | None) -> None:
    if episode_end is not None:
        check_choice("episode_end", episode_end, get_args(EpisodeEnd))


def find_columns(there: Sequence[str], wanted: Columns, where: str) -> Columns:
    """Find what `wanted` means for the columns that are there.

    >>> find_columns(["obs_10", "obs_9", "r", "done"], Columns(), "a.csv").observations
    ('obs_9', 'obs_10')
    """
    found: dict[str, Any] = {}
    episode = wanted.by_field.get("episode", ())
    if FILE in episode and FILE not in there:
        others = tuple(name for name in episode if name != FILE)
        wanted = wanted._replace(episode=others or None)
        found |= {"is_by_file": True, "episode": None}  # no other column unless it is named
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
    if wanted.weight is None:  # it is only used when it is asked for
        found["weight"] = None
    if found["starts"] in Columns(**found | {"starts": None}).all:  # it is something else
        found["starts"] = None
    for field in ("observations", "reward"):
        if found[field] is None:
            near = [match for alias in ALIASES[field] for match in get_close_matches(alias, there, n=1, cutoff=0.7)]
            raise DataError(
                f"{where} must have a column for {field}, such as {', '.join(ALIASES[field][:3])}",
                _list(there),
                f"name it: {field}=" + (f"{near[0]!r}, if that is it" if near else "'...'"),
            )
    columns = Columns(**found)
    if usual_weight not in columns.all:
        columns = columns._replace(unused_weight=usual_weight)
    counts = Counter(there)
    for name in columns.all:
        if counts[name] > 1:
            raise DataError(f"{where} must have each column once", f"{name!r} {counts[name]} times", "rename one")
    names, next_names = (columns.by_field.get(field, ()) for field in VECTORS)
    if next_names and len(names) != len(next_names):
        raise DataError(
            f"{where} must have as many columns of next observations as of observations",
            f"{_list(next_names)} for {_list(names)}",
            "name both: observations=..., next_observations=...",
        )
    return columns


def _find_named(field: str, names: Names, there: Sequence[str], where: str) -> str | tuple[str, ...]:
    is_one = isinstance(names, str)
    wanted: list[Any] = [names] if isinstance(names, str) else list(names)
    found: list[str] = []
    for name in wanted:
        if not isinstance(name, str):
            must = f"{field} must be a column's name, a pattern or a list of them"
            raise InvalidInputError(must, repr(names), "pass text")
        if name in there:
            found.append(name)
            continue
        is_one = False
        matches = sorted((column for column in there if fnmatchcase(column, name)), key=order_by_number)
        if not matches:
            near = get_close_matches(name, there, n=1, cutoff=0.6)
            do = f"did you mean {near[0]!r}?" if near else "name one of them"
            raise DataError(f"{where} must have a column {name!r} for {field}", _list(there), do)
        found += matches
    if not found:
        raise InvalidInputError(f"{field} must name at least one column", repr(names), "pass a name")
    if field in ANY_KIND:
        return found[0] if is_one else tuple(found)
    if field in KEYS:
        return found[0] if len(found) == 1 else tuple(found)
    if len(found) != 1:
        raise DataError(f"{field} must be one column of {where}", _list(found), "name one of them")
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
                    f"the columns {members[0]} to {members[-1]} of {where} must be numbered without a gap",
                    _list(members),
                    f"name the ones you mean: {field}=...",
                )
            return tuple(members)
    return None


def _find_successors(observations: str | tuple[str, ...], there: Sequence[str]) -> str | tuple[str, ...] | None:
    """Return the columns that are called like the observations' with next_ before it."""
    if isinstance(observations, str):
        return f"next_{observations}" if f"next_{observations}" in there else None
    successors = tuple(f"next_{name}" for name in observations)
    return successors if set(successors) <= set(there) else None


def _list(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:20]))
    return f"columns {shown}" + (f" and {len(names) - 20} more" if len(names) > 20 else "") if names else "no columns"


def order_by_number(name: str) -> list[tuple[int, int, str]]:
    """Return a key for sorting: x_2 comes before x_10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]
