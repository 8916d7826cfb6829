"""Building blocks of pages: text is escaped exactly once, whatever it is put into."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import vrtd
from tests.helpers.pages import HOSTILE, Outline
from vrtd.plots import Figure
from vrtd.report import html


def build(text: str) -> html.Page:
    """A page on which every text is this one."""
    mark = html.Mark(text, text)
    panel = html.Panel(Figure(text, text, text, lambda axes, tables: None), text, text, text, {text: text})
    sections = html.join(
        html.section(text, text, html.paragraph(text, html.quiet(text), html.LINE_BREAK, html.link(text, text))),
        html.card(mark, text, text, text),
        html.tiles(text, [(text, text)]),
        html.bullets([text, html.fold(text, text, style=text, anchor=f"{text} 1")]),
        html.definitions({text: text, "left out": ""}),
        html.table(text, [text, text], [[text, text]], caption=text, style=text),
        html.figures([panel]),
        html.beside(text, html.aligned(text)),
        html.key(text, text),
        html.picker(text, {text: [text]}),
    )
    return html.Page(text, html.join(text), sections, text, {text: [text]}, html.element("nav", text))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_stays_text_in_every_block(hostile: str) -> None:
    bad, good = Outline(build(hostile).html), Outline(build("x").html)
    assert bad.shape() == good.shape()
    assert bad.text.count(hostile) > 15
    for name in ("aria-label", "alt", "class"):
        assert [value.replace(hostile, "x") for value in bad.having(name)] == good.having(name)
    assert all(address.startswith(("#", "./")) for address in bad.having("href"))


def test_markup_is_not_escaped_again() -> None:
    inner = html.element("b", "a < b")
    assert html.paragraph("1 & ", inner) == "<p>1 &amp; <b>a &lt; b</b></p>\n"
    assert html.join(f"{inner}") == "&lt;b&gt;a &amp;lt; b&lt;/b&gt;"  # what is formatted is text again


def test_entries_without_text_are_left_out() -> None:
    assert html.definitions({"a": "1", "b": ""}) == "<dl><dt>a</dt>\n<dd>1</dd>\n</dl>\n"
    assert html.bullets([]) == ""


def test_entries_of_a_table_that_stacks_know_their_heads() -> None:
    table = html.table("t", ["You have", "Use"], [["a", "b"], ["c", ""]], style="answers")
    assert Outline(table).having("data-head") == ["Use"]
    assert [attributes for tag, attributes in Outline(table).tags if tag == "th"] == [
        {"scope": "col"}, {"scope": "col"}, {"scope": "row"}, {"scope": "row"}
    ]  # fmt: skip
    with pytest.raises(ValueError, match="shorter"):
        html.table("t", ["a", "b"], [["a"]])


def test_no_other_file_writes_html() -> None:
    package = Path(vrtd.__file__).parent
    others = [path for path in package.rglob("*.py") if path != package / "report" / "html.py"]
    assert len(others) > 100
    writers = re.compile(r"^from html import|^import html|Html\(|</\w+>", re.MULTILINE)
    assert [path.name for path in others if writers.search(path.read_text(encoding="utf-8"))] == ["svg.py"]  # a style
