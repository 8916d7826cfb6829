"""Checks of the problems and the grid of a sweep. Everything that is invalid is refused before the first cell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from types import FunctionType
from typing import Any

import numpy as np

from vrtd.algorithms import REGISTRY, Algorithm, Schedule
from vrtd.checks import check_choice, require
from vrtd.errors import InvalidInputError
from vrtd.problems import LIBRARY, LinearProblem, Simulator, Transitions

Problem = LinearProblem | Simulator | Transitions
Grid = dict[str, tuple[Any, ...]]  # the values of each field

_REMEDY = 'Pass a mapping such as {"step_size": [0.01, 0.1]}.'


def choose_algorithm(chosen: Any) -> type[Algorithm]:
    """Return the class of an algorithm, passed as a class or by its name."""
    if isinstance(chosen, str):
        return REGISTRY[check_choice("algorithm_class", chosen, tuple(REGISTRY))]
    if isinstance(chosen, Algorithm):
        name = type(chosen).__name__
        problem = f"algorithm_class must be a class, but got the object {chosen!r}."
        raise InvalidInputError(problem, f"Pass vrtd.{name}, and its settings in grid.")
    problem = f"algorithm_class must be a class of algorithms or its name, but got {chosen!r}."
    require(isinstance(chosen, type) and issubclass(chosen, Algorithm), problem, "Pass a class such as vrtd.VRTD.")
    return chosen  # type: ignore[no-any-return]


def choose_problems(chosen: Any) -> dict[str, Problem]:
    """Return problems by name. Objects without a name are called "problem-1", "problem-2", and so on."""
    if isinstance(chosen, Mapping):
        named = dict(chosen)
    else:
        alone = isinstance(chosen, str | Problem) or not isinstance(chosen, Iterable)
        items = [chosen] if alone else list(chosen)
        named, n_objects = {}, 0
        for each in items:
            n_objects += not isinstance(each, str)
            name = each.replace("-", "_") if isinstance(each, str) else f"problem-{n_objects}"
            require(name not in named, f"problems must differ, but {name!r} is there twice.", "Drop one of them.")
            named[name] = each
    require(named, "problems must hold at least one problem, but is empty.", "Pass a problem.")
    for name in named:
        wrong = f"The name of a problem must consist of letters, digits, '_', '.' and '-', but got {name!r}."
        require(isinstance(name, str) and re.fullmatch(r"\w[\w.-]*", name), wrong, "Rename it.")
    return {name: _load(name, each) for name, each in named.items()}


def _load(name: str, problem: Any) -> Problem:
    if isinstance(problem, str):
        named: Problem = LIBRARY[check_choice("problems", problem, tuple(LIBRARY))]()
        return named
    wrong = f"{name} must be a LinearProblem, a Simulator, Transitions or a name, but got {problem!r}."
    require(isinstance(problem, Problem), wrong, "Build LinearProblem(mrp, phi), or pass a name such as 'random_mdp'.")
    return problem  # type: ignore[no-any-return]


def check_grid(algorithm: type[Algorithm], grid: Any) -> Grid:
    """Return the values of each field of the grid, as plain numbers, texts and schedules."""
    is_grid = isinstance(grid, Mapping) and len(grid) > 0
    require(is_grid, f"grid must map fields of {algorithm.__name__} to values, but got {grid!r}.", _REMEDY)
    names = tuple(field.name for field in fields(algorithm))  # type: ignore[arg-type]
    checked = {}
    for name, values in grid.items():
        field = check_choice(f"A field of grid for {algorithm.__name__}", name, names)
        require(field not in checked, f"grid must have each field once, but got {field} twice.", "Drop one of them.")
        checked[field] = _check_values(field, values)
    first = {name: values[0] for name, values in checked.items()}
    for name, values in checked.items():  # each value alone, so that a message is about this value
        for value in values:
            algorithm(**first | {name: value})
    return checked


def _check_values(field: str, values: Any) -> tuple[Any, ...]:
    wrong = f"grid must have a sequence of values for {field}, but got {values!r}."
    is_sequence = isinstance(values, Iterable) and not isinstance(values, str | Mapping)
    require(is_sequence and np.ndim(values if isinstance(values, np.ndarray) else ()) <= 1, wrong, _REMEDY)
    plain = tuple(each.item() if isinstance(each, np.generic) else each for each in values)
    require(plain, f"grid must have at least one value for {field}, but got none.", _REMEDY)
    texts = set()
    for value in plain:
        known = value is None or isinstance(value, bool | int | float | str | Schedule)
        wrong = f"A value of {field} must be a number, a text, a schedule or None, but got {value!r}."
        require(known, wrong, "Pass plain values.")
        text = _describe(value)
        require(text not in texts, f"grid must not repeat {field}={value!r}.", "Drop one of them.")
        texts.add(text)
    return plain


def _describe(value: Any) -> str:
    """Return a text that is equal for equal values: 1 and 1.0 are equal, 1 and True are not."""
    return repr(float(value)) if isinstance(value, int) and not isinstance(value, bool) else repr(value)


def code_digest(algorithm: type[Algorithm]) -> str:
    """Return a digest of the code of a class outside this package, "" for those of the registry."""
    if algorithm in REGISTRY.values():
        return ""
    from vrtd.kernels.digest import digest

    functions = [each for base in algorithm.__mro__ for each in vars(base).values() if isinstance(each, FunctionType)]
    return digest(*vars(algorithm.kernels).values(), *functions)
