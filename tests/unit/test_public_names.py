"""The names of `vrtd`: all are there, none costs an import before it is used, and a wrong one is corrected."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import vrtd

SOURCE = Path(vrtd.__file__).parent


@pytest.mark.parametrize("name", vrtd.__all__)
def test_every_name_in_all_resolves(name: str) -> None:
    assert getattr(vrtd, name) is not None


def test_all_is_sorted_and_shown_by_dir() -> None:
    assert dir(vrtd) == sorted(vrtd.__all__)
    assert len(set(vrtd.__all__)) == len(vrtd.__all__)


def test_every_algorithm_of_the_registry_is_in_all() -> None:
    assert {algorithm.__name__ for algorithm in vrtd.REGISTRY.values()} <= set(vrtd.__all__)
    assert all(getattr(vrtd, algorithm.__name__) is algorithm for algorithm in vrtd.REGISTRY.values())


def test_type_checkers_see_the_same_names() -> None:
    """The imports under TYPE_CHECKING are those of __all__."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    names = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert names == set(vrtd.__all__)


def test_names_and_typos_load_no_library() -> None:
    code = (
        "import sys, vrtd\n"
        "dir(vrtd), vrtd.__all__, hasattr(vrtd, 'VRTd'), hasattr(vrtd, 'simulat')\n"
        "print([name for name in ('numpy', 'numba', 'scipy', 'matplotlib') if name in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "[]"


@pytest.mark.parametrize(("wrong", "right"), [("VRTd", "VRTD"), ("simulat", "simulate"), ("Evaluater", "Evaluator")])
def test_a_wrong_attribute_suggests_the_right_one(wrong: str, right: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'vrtd' has no attribute '{wrong}'. Did you mean '{right}'?"):
        getattr(vrtd, wrong)


def test_an_attribute_like_no_other_has_no_suggestion() -> None:
    with pytest.raises(AttributeError, match=r"module 'vrtd' has no attribute 'xyzzy'$"):
        getattr(vrtd, "xyzzy")  # noqa: B009


def test_documented_modules_are_attributes() -> None:
    for name in ("kernels", "paper", "plots", "sklearn", "tournament"):
        assert getattr(vrtd, name) is importlib.import_module(f"vrtd.{name}")


def test_no_module_hides_a_function() -> None:
    """Importing vrtd.x would replace the function vrtd.x by the module."""
    modules = {module.name for module in pkgutil.iter_modules([str(SOURCE)])}
    functions = {name for name in vrtd.__all__ if not isinstance(getattr(vrtd, name), type(vrtd))}
    assert not modules & functions
