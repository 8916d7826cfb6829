"""What a notebook shows of an object, checked and taken apart."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from typing import Any, NamedTuple

_FORBIDDEN = {"script", "style", "img", "image", "iframe", "link", "object"}
_SVG = "{http://www.w3.org/2000/svg}"


class Shown(NamedTuple):
    title: str
    entries: dict[str, str]
    has_figure: bool


def read_summary(shown: Any) -> Shown:
    """Parse `_repr_html_`, which must be well-formed, change nothing else in the notebook and fetch nothing."""
    root = ElementTree.fromstring(shown._repr_html_())
    elements = list(root.iter())
    assert not {each.tag.removeprefix(_SVG) for each in elements} & _FORBIDDEN
    for each in elements:
        assert not [name for name in each.attrib if name.startswith("on")]
        assert all(value.startswith("#") for name, value in each.attrib.items() if name.endswith("href"))
        assert not [value for value in each.attrib.values() if "url(" in value and "url(#" not in value]
    (title,), *rows = ([cell.text or "" for cell in row] for row in root.iter("tr"))
    return Shown(title, dict(rows), root.find(f"{_SVG}svg") is not None)


def check_repr(shown: Any, most_characters: int = 200, most_lines: int = 1) -> str:
    """Return the repr, which must be short."""
    text = repr(shown)
    assert len(text) <= most_characters, text
    assert len(text.splitlines()) <= most_lines, text
    return text
