"""Features as words on a command line, and as plain values in a file."""

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

# Features within features; more is a file that wants to exhaust the stack.
_DEEPEST = 16


class _Word(NamedTuple):
    form: str  # for messages
    make: Callable[..., Features]  # of the sizes, and the options by name
    sizes: tuple[int, float]  # how many there may be: fewest, most
    options: dict[str, Callable[[str], Any]]


def _as_flag(text: str) -> bool:
    return {"true": True, "false": False}[text]


def _make_rbf(*sizes: int, width: float = 1.0, bias: bool | None = None, normalise: bool = False) -> RBF:
    n, shape = (sizes[0], None) if len(sizes) == 1 else (None, sizes)
    return RBF(n, shape=shape, width=width, bias=bias, normalise=normalise)


def _make_tabular(*sizes: int) -> Tabular:
    return Tabular(sizes or None)


def _make_tiles(n_tilings: int, *tiles: int) -> Tiles:
    return Tiles(n_tilings, tiles[0] if len(tiles) == 1 else tiles)


_RBF_OPTIONS: dict[str, Callable[[str], Any]] = {"width": float, "bias": _as_flag, "normalise": _as_flag}
_WORDS = {
    "auto": _Word("auto", Auto, (0, 0), {}),
    "identity": _Word("identity", Identity, (0, 0), {}),
    "standardised": _Word("standardised", Standardised, (0, 0), {}),
    "tabular": _Word("tabular, tabular:16, or for several variables tabular:32x11x2", _make_tabular, (0, inf), {}),
    "polynomial": _Word("polynomial:DEGREE", Polynomial, (1, 1), {}),
    "fourier": _Word("fourier:ORDER", Fourier, (1, 1), {}),
    "rbf": _Word("rbf:20 (at most so many) or rbf:5x4 (a grid)", _make_rbf, (1, inf), _RBF_OPTIONS),
    "rff": _Word("rff:100 or rff:100,bandwidth=5,seed=1", RandomFourier, (1, 1), {"bandwidth": float, "seed": int}),
    "tiles": _Word("tiles:TILINGSxTILES, or with tiles for each dimension tiles:8x6x4", _make_tiles, (2, inf), {}),
}
_CLASSES: tuple[Any, ...] = (
    Auto, Identity, Standardised, Tabular, OneHot, Table, Polynomial, Fourier, RBF, RandomFourier, Tiles, Stack, Scaled,
    Selected, TargetFeatures,
)  # fmt: skip
_KINDS = {features.kind: features for features in _CLASSES}


def parse(text: str) -> Features:
    """Features from a word, its sizes and its options: "rbf:20", "tiles:8x8", "rff:100,bandwidth=5,seed=1".

    >>> parse("rbf:5x4,width=0.5").settings["shape"]
    [5, 4]
    """
    head, *options = text.strip().split(",")
    name, colon, sizes = head.partition(":")
    check_choice("features", name, _WORDS)
    word = _WORDS[name]
    numbers = [_size(word, text, part) for part in sizes.split("x")] if colon else []
    fits = word.sizes[0] <= len(numbers) <= word.sizes[1]
    require(fits, f"{name} features must be written {word.form}", repr(text), "write it so")
    values: dict[str, Any] = {}
    for option in options:
        key, _, value = option.partition("=")
        require(word.options, f"{name} features have no options", repr(option), f"write {word.form}")
        check_choice(f"an option of {name} features", key, word.options)
        require(key not in values, "an option must be given once", repr(text), f"keep one {key}")
        try:
            values[key] = word.options[key](value)
        except (ValueError, KeyError):
            kind = {float: "a number", int: "a whole number"}.get(word.options[key], "true or false")  # type: ignore[call-overload]
            raise InvalidInputError(f"{key} must be {kind}", repr(value), f"write e.g. {word.form}") from None
    return word.make(*numbers, **values)


def from_settings(settings: Any) -> Features:
    """The features that have these `settings`; what a file holds is checked as what a user passes.

    >>> from_settings(Tabular(4).settings)
    Tabular(n_states=4, other=False)
    """
    return _build(settings, 0)


def describe_kind(settings: Mapping[str, Any]) -> str:
    """Return the kind of features in a few words, from their settings.

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
    require(depth <= _DEEPEST, f"features must be at most {_DEEPEST} deep", "more", "take some layers off")
    if not isinstance(settings, dict) or not all(isinstance(key, str) for key in (*settings, settings.get("kind"))):
        raise InvalidInputError("settings must be a dict with a kind", f"{settings!r:.60}", "pass features.settings")
    values: dict[str, Any] = dict(settings)
    kind = values.pop("kind")
    check_choice("the kind of features", kind, tuple(_KINDS))
    known = sorted(field.name for field in fields(_KINDS[kind]))
    must = f"settings of {kind} features must be {', '.join(known) or 'empty'}"
    got = f"{', '.join(sorted(values)) or 'nothing'!r:.200}"
    require(sorted(values) == known, must, got, "pass what features.settings returned")
    if kind == Stack.kind:
        parts = values["features"]
        got = type(parts).__name__
        require(isinstance(parts, list), "the features of a stack must be a list", got, "pass Stack.settings")
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
    require(holds, f"features must be written {word.form}", repr(text), "write whole numbers")
    return int(part)
