"""Pages: one file each, without scripts and without the network. This is the only file that writes HTML.

Content is text, or `Html` that functions of this file made. Text of any origin is escaped, addresses are built from
quoted names, and a page's own policy forbids scripts and everything that would be fetched.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote

from vrtd.plots import Figure

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_INLINE = ("a", "b", "cite", "span", "strong", "summary", "th", "td")  # no line of the file ends after these


class Html(str):
    """Markup, which is not escaped again."""


LINE_BREAK, EMPTY = Html("<br>\n"), Html("")


@dataclass(frozen=True)
class Page:
    """A whole page. The record of how it came about is at its end, as JSON behind its title."""

    title: str
    header: Html  # below the title
    sections: Html
    record_title: str
    record: Mapping[str, Any]
    navigation: Html = EMPTY

    @property
    def html(self) -> str:
        style = files("vrtd.report").joinpath("style.css").read_text(encoding="utf-8")
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(self.title)}</title>
<style>
{style}</style>
</head>
<body>
{element("header", element("h1", self.title), self.header)}
{self.navigation}
{element("main", self.sections)}
{element("footer", fold_json(self.record_title, self.record))}
</body>
</html>
"""


@dataclass(frozen=True)
class Panel:
    """A figure as drawn, with the names of its file and of its data's, relative to the page."""

    figure: Figure
    svg: str
    file: str
    data: str


class Mark(NamedTuple):
    """How a verdict looks: a colour never stands alone."""

    style: str
    symbol: str

    def before(self, words: str) -> Html:
        return join(element("span", self.symbol, attributes={"aria-hidden": "true"}), f" {words}")


def join(*content: str, separator: str = "") -> Html:
    """Return content as markup."""
    return Html(escape(separator).join(each if isinstance(each, Html) else escape(each) for each in content))


def element(name: str, *content: str, style: str = "", attributes: Mapping[str, str] | None = None) -> Html:
    """Return an element with this content; `style` is its class."""
    named = ({"class": style} if style else {}) | dict(attributes or {})
    start = "".join(f' {key}="{escape(value)}"' for key, value in named.items())
    return Html(f"<{name}{start}>{join(*content)}</{name}>" + ("" if name in _INLINE else "\n"))


def paragraph(*content: str, style: str = "") -> Html:
    return element("p", *content, style=style)


def quiet(*content: str) -> Html:
    """Return words that stand back behind others."""
    return element("span", *content, style="quiet")


def link(anchor: str, *content: str, style: str = "") -> Html:
    """Return a link to a place on the same page."""
    return element("a", *content, style=style, attributes={"href": f"#{quote(anchor)}"})


def section(title: str, anchor: str, *content: str) -> Html:
    heading = element("h2", title, attributes={"id": anchor})
    return element("section", heading, *content, attributes={"aria-labelledby": anchor})


def card(mark: Mark, verdict: str, source: str, *content: str, style: str = "", anchor: str = "") -> Html:
    """Return a box that begins with a verdict and what it is about."""
    badge = element("span", mark.before(verdict), style=f"badge {mark.style}")
    classes = " ".join(filter(None, ("claim", style, mark.style)))
    first = paragraph(badge, f"\n{source}", style="quiet")
    return element("article", first, *content, style=classes, attributes={"id": anchor} if anchor else None)


def tiles(label: str, entries: Iterable[tuple[str, str, Mark | None]]) -> Html:
    """Return large numbers, each with its words and perhaps the mark of a verdict."""
    items = [
        element("li", element("b", value), " ", mark.before(words) if mark else words, style=mark.style if mark else "")
        for value, words, mark in entries
    ]
    return element("ul", *items, style="counts", attributes={"aria-label": label})


def bullets(items: Iterable[str], style: str = "") -> Html:
    listed = [element("li", item) for item in items]
    return element("ul", *listed, style=style) if listed else EMPTY


def definitions(entries: Mapping[str, str]) -> Html:
    """Return names with their texts; a name without a text is left out."""
    pairs = (join(element("dt", name), element("dd", text)) for name, text in entries.items() if text)
    return element("dl", *pairs)


def table(label: str, heads: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "", style: str = "") -> Html:
    """Return a table in a box that scrolls; the first entry of a row is its head.

    With the style "answers" the entries of a row lie below each other on narrow screens, each behind its head.
    """
    lines = []
    for first, *rest in rows:
        entries = [
            element("td", entry, attributes={"data-head": head} if style and entry else None)
            for head, entry in zip(heads[1:], rest, strict=True)
        ]
        lines.append(element("tr", element("th", first, attributes={"scope": "row"}), *entries))
    top = element("thead", element("tr", *(element("th", head, attributes={"scope": "col"}) for head in heads)))
    parts = (element("caption", caption) if caption else "", top, element("tbody", *lines))
    # A box that scrolls must be reached by the keyboard.
    attributes = {"role": "region", "aria-label": label, "tabindex": "0"}
    return element("div", element("table", *parts), style=f"scroll {style}".strip(), attributes=attributes)


def figures(panels: Iterable[Panel]) -> Html:
    """Return figures side by side, each with its caption and links to its files."""
    return element("div", *map(_figure, panels), style="panels")


def _figure(panel: Panel) -> Html:
    caption, name = panel.figure.caption, panel.figure.name
    image = b64encode(panel.svg.encode()).decode()
    links = (
        element("a", kind, attributes={"href": f"./{quote(file)}", "aria-label": f"{kind} of {name}"})
        for kind, file in (("SVG", panel.file), ("data (CSV)", panel.data))
    )
    return element(
        "figure",
        Html(f'<img src="data:image/svg+xml;base64,{image}" alt="{escape(caption)}">\n'),
        element("figcaption", caption, "\n", element("span", join(*links, separator="\n"), style="files")),
    )


def fold(title: str, *content: str) -> Html:
    """Return content behind its title."""
    return element("details", element("summary", title), "\n", *content)


def fold_json(title: str, value: Any) -> Html:
    """Return plain values as JSON behind their title."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return fold(title, element("pre", text, attributes={"role": "region", "aria-label": title, "tabindex": "0"}))
