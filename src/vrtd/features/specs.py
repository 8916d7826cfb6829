"""Features as words on a command line, and as plain values in a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple, TypeGuard

from vrtd.checks import check_choice
from vrtd.errors import InvalidInputError
from vrtd.features.compose import Scaled, Stack
from vrtd.features.features import Features
from vrtd.features.fourier import Fourier
from vrtd.features.identity import Identity
from vrtd.features.polynomial import Polynomial
from vrtd.features.random_fourier import RandomFourier
from vrtd.features.rbf import RBF
from vrtd.features.tabular import Table, Tabular
from vrtd.features.tiles import Tiles

# Features within features; more is a file that wants to exhaust the stack.
_DEEPEST = 16


class _Word(NamedTuple):
    form: str  # for messages
    make: Callable[[tuple[int, ...], dict[str, Any]], Features]
    sizes: tuple[int, float]  # how many there may be: fewest, most
    options: dict[str, Callable[[str], Any]]


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text]


def _rbf(sizes: tuple[int, ...], options: dict[str, Any]) -> Features:
    return RBF(sizes[0], **options) if len(sizes) == 1 else RBF(shape=sizes, **options)


def _tiles(sizes: tuple[int, ...], options: dict[str, Any]) -> Features:
    return Tiles(sizes[0], sizes[1] if len(sizes) == 2 else sizes[1:], **options)


_RBF_OPTIONS: dict[str, Callable[[str], Any]] = {"width": float, "bias": _flag, "normalise": _flag}
_WORDS = {
    "identity": _Word("identity", lambda _, __: Identity(), (0, 0), {}),
    "tabular": _Word("tabular or tabular:16", lambda sizes, _: Tabular(*sizes), (0, 1), {}),
    "polynomial": _Word("polynomial:DEGREE", lambda sizes, _: Polynomial(*sizes), (1, 1), {}),
    "fourier": _Word("fourier:ORDER", lambda sizes, _: Fourier(*sizes), (1, 1), {}),
    "rbf": _Word("rbf:20 (at most so many) or rbf:5x4 (a grid)", _rbf, (1, float("inf")), _RBF_OPTIONS),
    "rff": _Word(
        "rff:100 or rff:100,bandwidth=5,seed=1",
        lambda sizes, options: RandomFourier(*sizes, **options),
        (1, 1),
        {"bandwidth": float, "seed": int},
    ),
    "tiles": _Word("tiles:TILINGSxTILES, or with tiles for each dimension tiles:8x6x4", _tiles, (2, float("inf")), {}),
}
_KINDS: dict[str, Any] = {
    made.kind: made for made in (Identity, Tabular, Table, Polynomial, Fourier, RBF, RandomFourier, Tiles)
}


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
    if not word.sizes[0] <= len(numbers) <= word.sizes[1]:
        raise InvalidInputError(f"{name} features must be written {word.form}", repr(text), "write it so")
    values: dict[str, Any] = {}
    for option in options:
        key, _, value = option.partition("=")
        if not word.options:
            raise InvalidInputError(f"{name} features have no options", repr(option), f"write {word.form}")
        check_choice(f"an option of {name} features", key, word.options)
        if key in values:
            raise InvalidInputError("an option must be given once", repr(text), f"keep one {key}")
        try:
            values[key] = word.options[key](value)
        except (ValueError, KeyError):
            kind = {float: "a number", int: "a whole number"}.get(word.options[key], "true or false")  # type: ignore[call-overload]
            raise InvalidInputError(f"{key} must be {kind}", repr(value), f"write e.g. {word.form}") from None
    return word.make(tuple(numbers), values)


def from_settings(settings: Any) -> Features:
    """The features that have these `settings`; what a file holds is checked as what a user passes.

    >>> from_settings(Tabular(4).settings)
    Tabular(n_states=4)
    """
    return _from_settings(settings, 0)


def _from_settings(settings: Any, depth: int) -> Features:
    if depth > _DEEPEST:
        raise InvalidInputError(f"features must be at most {_DEEPEST} deep", "more", "take some layers off")
    if not _is_settings(settings):
        raise InvalidInputError("settings must be a dict with a kind", f"{settings!r:.60}", "pass features.settings")
    check_choice("the kind of features", settings["kind"], [*_KINDS, Stack.kind, Scaled.kind])
    kind = settings["kind"]
    values = {key: value for key, value in settings.items() if key != "kind"}
    if kind == Stack.kind:
        _check_keys(kind, values, {"features"})
        if not isinstance(values["features"], list):
            got = f"{values['features']!r:.60}"
            raise InvalidInputError("the features of a stack must be a list", got, "pass Stack.settings")
        return Stack(*(_from_settings(part, depth + 1) for part in values["features"]))
    if kind == Scaled.kind:
        _check_keys(kind, values, {"features", "factor"})
        return Scaled(_from_settings(values["features"], depth + 1), values["factor"])
    made = _KINDS[kind]
    _check_keys(kind, values, {field.name for field in fields(made)})
    features: Features = made(**values)
    return features


def _size(word: _Word, text: str, part: str) -> int:
    if not (part.isascii() and part.isdigit() and len(part) <= 18):
        raise InvalidInputError(f"features must be written {word.form}", repr(text), "write whole numbers")
    return int(part)


def _is_settings(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict) and all(isinstance(key, str) for key in value) and isinstance(value.get("kind"), str)


def _check_keys(kind: str, values: dict[str, Any], known: set[str]) -> None:
    if set(values) != known:
        raise InvalidInputError(
            f"settings of {kind} features must be {', '.join(sorted(known)) or 'empty'}",
            f"{', '.join(sorted(values)) or 'nothing'!r:.200}",
            "pass what features.settings returned",
        )
