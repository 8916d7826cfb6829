"""What tests/conftest.py finds out about the tests while pytest collects them."""

from __future__ import annotations

import ast

import pytest

COMPILED = pytest.StashKey[list[str]]()  # the functions that Numba compiled during the collection


def statistical_names(source: str) -> set[str]:
    """Return the names of a test module that use tests/helpers/statistics.py, directly or through one another."""
    body = ast.parse(source).body
    found = {
        alias.asname or alias.name
        for node in body
        if isinstance(node, ast.ImportFrom) and node.module == "tests.helpers.statistics"
        for alias in node.names
    }
    uses: dict[str, set[str]] = {}
    for node in body:
        names = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name)]
        used = {name.id for name in names}
        if isinstance(node, ast.FunctionDef):  # arguments are fixtures
            uses[node.name] = used | {argument.arg for argument in node.args.args}
        elif isinstance(node, ast.ClassDef):
            uses[node.name] = used
        else:
            uses |= {name.id: used for name in names if isinstance(name.ctx, ast.Store)}
    while new := {name for name, used in uses.items() if used & found} - found:
        found |= new
    return found
