"""One word, one meaning: no public class name is defined twice in the package.

Names that start with an underscore stay in their module, so two modules may share one.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import vrtd

SOURCES = [path.read_text(encoding="utf-8") for path in sorted(Path(vrtd.__file__).parent.rglob("*.py"))]


def names_defined_twice(sources: Iterable[str]) -> set[str]:
    nodes = (node for source in sources for node in ast.walk(ast.parse(source)))
    counts = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
    return {name for name, count in counts.items() if count > 1}


def test_no_public_class_name_is_defined_twice() -> None:
    assert names_defined_twice(SOURCES) == set()


def test_a_second_definition_is_found() -> None:
    assert names_defined_twice(
        ["class A: pass", "def f():\n    class A: pass", "class _B: pass", "class _B: pass"]
    ) == {"A"}
