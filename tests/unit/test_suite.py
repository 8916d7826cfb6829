"""Rules of the test suite itself: no test imports another, the collection compiles nothing, random tests are marked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helpers.collection import COMPILED, statistical_names

TESTS = Path(__file__).parents[1]
IMPORT = re.compile(r"^\s*(?:from|import) tests\b.*\btest_", re.MULTILINE)


def test_no_test_module_imports_another() -> None:
    """What two of them need is in tests/helpers."""
    assert not [path.name for path in TESTS.rglob("*.py") if IMPORT.search(path.read_text())]


@pytest.mark.parametrize(
    "line", ["from tests.unit.test_a import b", "from tests.unit import test_a", "import tests.test_a"]
)
def test_an_import_of_a_test_module_is_found(line: str) -> None:
    assert IMPORT.search(f"import os\n{line}\n")
    assert not IMPORT.search("from tests.helpers.chains import TWO\n")


def test_the_collection_compiles_nothing(pytestconfig: pytest.Config) -> None:
    """Loops that are in the cache are not compiled, so that it takes a clean checkout to see one."""
    assert pytestconfig.stash[COMPILED] == []


def test_tests_that_use_the_statistics_are_found() -> None:
    source = """
from tests.helpers.statistics import FAMILY_RATE, z_limit as limit

LIMIT = limit(3)
CASES = [(other(), LIMIT)]

@pytest.fixture
def scores():
    return FAMILY_RATE

def worst():
    return LIMIT

def test_by_a_constant():
    assert 1 < LIMIT

def test_by_a_function():
    assert worst()

def test_by_a_fixture(scores):
    pass

@pytest.mark.parametrize("rate", [FAMILY_RATE])
def test_by_a_parameter(rate):
    pass

def test_without():
    assert other()
"""
    tests = {name for name in statistical_names(source) if name.startswith("test_")}
    assert tests == {f"test_by_a_{kind}" for kind in ("constant", "function", "fixture", "parameter")}
