"""Features from a description on the command line, and from plain values in a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from math import inf
from typing import Any, NamedTuple

from vrtd.checks import check_choice, require
from vrtd.errors import InvalidInputError
from vrtd.features.auto import Auto
from vrtd.features.compose import Scaled, Stack
from vrtd.features.features import Features
from vrtd.features.fourier import Fourier, RandomFourier
from vrtd.features.hashed import Hashed
from vrtd.features.identity import Identity
from vrtd.features.pairs import TargetFeatures
from vrtd.features.polynomial import Polynomial
from vrtd.features.rbf import RBF
from vrtd.features.selection import Selected
from vrtd.features.spaces import read_space
from vrtd.features.standardised import Standardised
from vrtd.features.tabular import OneHot, Table, Tabular
from vrtd.features.target import as_target
from vrtd.features.tiles import Tiles

# Largest depth of nested features, so that no file can exhaust the stack.
_DEEPEST = 16


class _Word(NamedTuple):
    form: str  # shown in messages
    make: Callable[..., Features]  # from the sizes, and the options by name
    sizes: tuple[int, float]  # the fewest and the most sizes
    options: dict[str, Callable[[str], Any]]


def _as_flag(text: str) -> bool:
    return {"true": True, "false": False}[text]


def _as_places(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


def _make_rbf(*sizes: int, width: float = 1.0, bias: bool | None = None, normalise: bool = False) -> RBF:
    n, shape = (sizes[0], None) if len(sizes) == 1 else (None, sizes)
    return RBF(n, shape=shape, width=width, bias=bias, normalise=normalise)


def _make_tabular(*sizes: int) -> Tabular:
    return Tabular(sizes or None)


def _make_tiles(n_tilings: int, *tiles: int) -> Tiles:
    return Tiles(n_tilings, tiles[0] if len(tiles) == 1 else tiles)


_RBF_OPTIONS: dict[str, Callable[[str], Any]] = {"width": float, "bias": _as_flag, "normalise": _as_flag}
_KINDS_OF_OPTIONS: dict[Callable[[str], Any], str] = {
    float: "a number",
    int: "a whole number",
    _as_flag: "true or false",
    _as_places: "numbers of columns such as 0x2",
}
_HASH_OPTIONS: dict[str, Callable[[str], Any]] = {"pairs": _as_flag, "seed": int, "categories": _as_places}
_WORDS = {
    "auto": _Word("auto", Auto, (0, 0), {}),
    "identity": _Word("identity", Identity, (0, 0), {}),
    "standardised": _Word("standardised", Standardised, (0, 0), {}),
    "tabular": _Word("tabular, tabular:16, or tabular:32x11x2 for several variables", _make_tabular, (0, inf), {}),
    "polynomial": _Word("polynomial:DEGREE", Polynomial, (1, 1), {}),
    "fourier": _Word("fourier:ORDER", Fourier, (1, 1), {}),
    "rbf": _Word("rbf:20 (at most 20 centres) or rbf:5x4 (a grid)", _make_rbf, (1, inf), _RBF_OPTIONS),
    "rff": _Word("rff:100 or rff:100,bandwidth=5,seed=1", RandomFourier, (1, 1), {"bandwidth": float, "seed": int}),
    "tiles": _Word("tiles:TILINGSxTILES, or tiles:8x6x4 with the tiles of each dimension", _make_tiles, (2, inf), {}),
    "hash": _Word("hash:BITS, with 2^BITS features, or hash:BITS,pairs=false,seed=1", Hashed, (1, 1), _HASH_OPTIONS),
}
_CLASSES: tuple[Any, ...] = (
    Auto, Identity, Standardised, Tabular, OneHot, Table, Polynomial, Fourier, RBF, RandomFourier, Tiles, Stack, Scaled,
    Selected, TargetFeatures, Hashed,
)  # fmt: skip
_KINDS = {features.kind: features for features in _CLASSES}


def parse(text: str) -> Features:
    """Return the features that a description stands for.

    A description consists of a name, sizes and options: "rbf:20", "tiles:8x8", "rff:100,bandwidth=5,seed=1".

    Parameters
    ----------
    text : str
        The description.

    Returns
    -------
    Features
        The features, not yet bound.

    Raises
    ------
    InvalidInputError
        If the name, a size or an option is not valid.

    Examples
    --------
    >>> parse("rbf:5x4,width=0.5").settings["shape"]
    [5, 4]
    """
    head, *options = text.strip().split(",")
    name, colon, sizes = head.partition(":")
    check_choice("features", name, _WORDS)
    word = _WORDS[name]
    numbers = [_size(word, text, part) for part in sizes.split("x")] if colon else []
    fits = word.sizes[0] <= len(numbers) <= word.sizes[1]
    require(fits, f"features must have the form {word.form}, but got {text!r}.", "Pass the right number of sizes.")
    values: dict[str, Any] = {}
    for option in options:
        key, _, value = option.partition("=")
        require(word.options, f"{name} features have no options, but got {option!r}.", f"Write {word.form}.")
        check_choice(f"an option of {name} features", key, word.options)
        require(key not in values, f"features must have each option once, but got {text!r}.", f"Keep one {key}.")
        try:
            values[key] = word.options[key](value)
        except (ValueError, KeyError):
            kind = _KINDS_OF_OPTIONS[word.options[key]]
            raise InvalidInputError(f"{key} must be {kind}, but got {value!r}.", f"Write e.g. {word.form}.") from None
    return word.make(*numbers, **values)


def from_settings(settings: Any) -> Features:
    """Return the features with these settings.

    Settings from a file are checked like arguments of a user.

    Parameters
    ----------
    settings : dict
        What ``Features.settings`` returned.

    Returns
    -------
    Features
        The same features.

    Raises
    ------
    InvalidInputError
        If the settings are not valid.

    Examples
    --------
    >>> from_settings(Tabular(4).settings)
    Tabular(n_states=4, other=False)
    """
    return _build(settings, 0)


def describe_kind(settings: Mapping[str, Any]) -> str:
    """Return a short name for the kind of features with these settings.

    >>> describe_kind({"kind": "scaled", "features": {"kind": "tabular", "n_states": 4}, "factor": 0.5})
    'tabular'
    """
    match settings:
        case {"kind": "stack", "features": [*parts]}:
            return " and ".join(map(describe_kind, parts))
        case {"kind": "target", "features": dict(inside), "n_actions": 0}:
            return f"{describe_kind(inside)} of states and actions"
        case {"kind": "target", "features": dict(inside)}:
            return f"{describe_kind(inside)} for each action"
        case {"features": dict(inside)}:
            return describe_kind(inside)
        case {"kind": "polynomial", "degree": 0}:
            return "constant"
        case {"kind": str(kind)}:
            return kind
    return "features of your own code"


def _build(settings: Any, depth: int) -> Features:
    require(depth <= _DEEPEST, f"features are nested more than {_DEEPEST} levels deep.", "Remove some levels.")
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in (*settings, settings.get("kind"))):
        raise InvalidInputError(
            f"settings must be a dict with a kind, but got {settings!r:.60}.", "Pass the settings of features."
        )
    values: dict[str, Any] = dict(settings)
    kind = values.pop("kind")
    check_choice("the kind of features", kind, tuple(_KINDS))
    known = sorted(field.name for field in fields(_KINDS[kind]))
    shown = f"{', '.join(sorted(values)) or 'nothing'!r:.200}"
    require(
        sorted(values) == known,
        f"settings of {kind} features must be {', '.join(known) or 'empty'}, but got {shown}.",
        "Pass the settings of features.",
    )
    if kind == Stack.kind:
        parts = values["features"]
        require(
            isinstance(parts, list),
            f"The features of a stack must be a list, but got {type(parts).__name__}.",
            "Pass the settings of a Stack.",
        )
        return Stack(*(_build(part, depth + 1) for part in parts))
    if kind == Scaled.kind:
        return Scaled(_build(values["features"], depth + 1), values["factor"])
    if kind == Selected.kind:
        return Selected(_build(values["features"], depth + 1), values["keep"], tolerance=values["tolerance"])
    if "space" in values and values["space"] is not None:
        values["space"] = read_space(values["space"])
    if kind == TargetFeatures.kind:
        values |= {"features": _build(values["features"], depth + 1), "target": as_target(values["target"])}
    features: Features = _KINDS[kind](**values)
    return features


def _size(word: _Word, text: str, part: str) -> int:
    holds = part.isascii() and part.isdigit() and len(part) <= 18
    require(holds, f"features must have the form {word.form}, but got {text!r}.", "Write whole numbers.")
    return int(part)
