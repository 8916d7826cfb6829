"""Models on disk: one .npz file with arrays and a JSON header, without pickled objects, there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vrtd.algorithms import REGISTRY, Algorithm
from vrtd.errors import InvalidInputError, ModelFileError
from vrtd.files import check_regular, read_arrays, write_arrays

__all__ = ["as_algorithm", "as_settings", "damaged", "read_model", "write_model"]

_FORMAT = "vrtd model 2"
Tree = Mapping[str, Any]  # names to plain values, arrays, or further trees


def write_model(path: str | os.PathLike[str], tree: Tree) -> None:
    """Arrays of the tree become members of the file, named by the way to them; the rest is its header."""
    write_arrays(path, {"format": _FORMAT, "tree": _without_arrays(tree)}, dict(_arrays(tree, "")))


def read_model(path: str | os.PathLike[str]) -> dict[str, Any]:
    check_regular(path)
    content = Path(path).read_bytes()
    try:
        header, arrays = read_arrays(content, _FORMAT)
        tree: dict[str, Any] = header["tree"]
        for name, array in arrays.items():
            *way, last = name.split("/")
            node = tree
            for part in way:
                node = node[part]
            node[last] = array
    except Exception as error:
        raise damaged(path, error) from error
    return tree


def damaged(path: str | os.PathLike[str], error: Exception) -> ModelFileError:
    return ModelFileError(
        f"{path} must be a model that this version of vrtd wrote; got a file that does not read as one "
        f"({type(error).__name__}); check the path, or fit again"
    )


def as_settings(algorithm: Algorithm) -> dict[str, Any]:
    """The algorithm as plain values from which `as_algorithm` builds it again."""
    settings = algorithm.settings
    try:
        same = as_algorithm(settings) == algorithm
    except (InvalidInputError, KeyError, TypeError):
        same = False
    if not same:
        raise InvalidInputError(
            "an algorithm must be made of plain values to be stored", repr(algorithm), "use a constant step size"
        )
    return settings


def as_algorithm(settings: Mapping[str, Any]) -> Algorithm:
    fields = dict(settings)
    return REGISTRY[fields.pop("name")](**fields)


def _arrays(tree: Tree, way: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, np.ndarray):
            yield way + name, value
        elif isinstance(value, Mapping):
            yield from _arrays(value, f"{way}{name}/")


def _without_arrays(tree: Tree) -> dict[str, Any]:
    return {
        name: _without_arrays(value) if isinstance(value, Mapping) else value
        for name, value in tree.items()
        if not isinstance(value, np.ndarray)
    }
