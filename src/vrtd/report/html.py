"""HTML pages that consist of one file, without network access. No other module writes HTML.

Content is text, or `Html` returned by functions of this module. All text is escaped, and addresses are built from
quoted names. The content security policy of a page forbids external resources, and all scripts but `figure.js`, which
it names by its digest. The page is complete without that script.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import quote

from vrtd.plots import Figure
from vrtd.report.colours import DARK, LIGHT

_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
    "form-action 'none'"
)
_COLOURS = f":root {{ {LIGHT} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}\n"
_INLINE = ("a", "b", "cite", "span", "strong", "summary", "th", "td")  # no line break follows these


class Html(str):
    """Markup, which is not escaped."""


LINE_BREAK, EMPTY = Html("<br>\n"), Html("")


@dataclass(frozen=True)
class Page:
    """A complete page, with a folded JSON record of the results at its end."""

    title: str
    header: Html  # below the title
    sections: Html
    record_title: str
    record: Mapping[str, Any]
    navigation: Html = EMPTY

    @property
    def html(self) -> str:
        """The page as text."""
        script = _read("figure.js")
        policy = _POLICY.format(digest=b64encode(sha256(script.encode()).digest()).decode())
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(self.title)}</title>
<style>
{_COLOURS}{_read("style.css")}</style>
</head>
<body>
{element("header", element("h1", self.title), self.header)}
{self.navigation}
{element("main", self.sections)}
{element("footer", fold_json(self.record_title, self.record))}
<script>{script}</script>
</body>
</html>
"""


@cache
def _read(name: str) -> str:
    return files("vrtd.report").joinpath(name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Panel:
    """A drawn figure, with the names of its image file and data file relative to the page.

    `plot` is what `vrtd.report.figure_data.pack` returns: the data that the interactive figure shows.
    """

    figure: Figure
    svg: str
    file: str
    data: str
    plot: Mapping[str, Any] = field(default_factory=dict)


class Mark(NamedTuple):
    """The colour and symbol of a verdict, since colour alone is not accessible."""

    style: str
    symbol: str

    def before(self, words: str) -> Html:
        """Return the symbol followed by the words."""
        return join(element("span", self.symbol, attributes={"aria-hidden": "true"}), f" {words}")


def join(*content: str, separator: str = "") -> Html:
    """Join content into markup; plain text is escaped."""
    between, *parts = (each if isinstance(each, Html) else escape(each) for each in (separator, *content))
    return Html(between.join(parts))


def element(name: str, *content: str, style: str = "", attributes: Mapping[str, str] | None = None) -> Html:
    """Return an element with this content; `style` is its CSS class."""
    named = ({"class": style} if style else {}) | dict(attributes or {})
    start = "".join(f' {key}="{escape(value)}"' for key, value in named.items())
    return Html(f"<{name}{start}>{join(*content)}</{name}>" + ("" if name in _INLINE else "\n"))


def paragraph(*content: str, style: str = "") -> Html:
    """Return a paragraph."""
    return element("p", *content, style=style)


def quiet(*content: str) -> Html:
    """Return text in a subdued style."""
    return element("span", *content, style="quiet")


def link(anchor: str, *content: str) -> Html:
    """Return a link to an anchor on the same page."""
    return element("a", *content, attributes={"href": f"#{quote(anchor)}"})


def section(title: str, anchor: str, *content: str) -> Html:
    """Return a section with a heading that has this anchor."""
    heading = element("h2", title, attributes={"id": anchor})
    return element("section", heading, *content, attributes={"aria-labelledby": anchor})


def badge(mark: Mark, verdict: str) -> Html:
    """Return a verdict with its symbol, in its colour."""
    return element("span", mark.before(verdict), style=f"badge {mark.style}")


def card(mark: Mark, verdict: str, source: str, *content: str) -> Html:
    """Return a box with an answer, which begins with a verdict and its source."""
    first = paragraph(badge(mark, verdict), f"\n{source}", style="quiet")
    return element("article", first, *content, style=f"claim answer {mark.style}")


def tiles(label: str, entries: Iterable[tuple[str, str]]) -> Html:
    """Return tiles of (number, words), with the number in large type."""
    items = [element("li", element("b", value), " ", words) for value, words in entries]
    return element("ul", *items, style="counts", attributes={"aria-label": label})


def bullets(items: Iterable[str]) -> Html:
    """Return a list, or nothing if there are no items."""
    listed = [element("li", item) for item in items]
    return element("ul", *listed) if listed else EMPTY


def definitions(entries: Mapping[str, str]) -> Html:
    """Return a list of names with their texts; names with an empty text are left out."""
    pairs = (join(element("dt", name), element("dd", text)) for name, text in entries.items() if text)
    return element("dl", *pairs)


class Entry(NamedTuple):
    """An entry of a table with its style, and the number by which its column is sorted."""

    content: str
    style: str = ""
    sort: float | None = None


def table(
    label: str, heads: Sequence[str], rows: Iterable[Sequence[str | Entry]], caption: str = "", style: str = ""
) -> Html:
    """Return a table in a scrollable box; the first entry of each row is the row header.

    With the style "answers", narrow screens show the entries of a row one below the other, each with its column header.
    With the style "sortable", the script lets the reader sort, search and filter the rows.
    """
    lines = []
    for first, *rest in rows:
        entries = [
            _cell(entry if isinstance(entry, Entry) else Entry(entry), head if style == "answers" else "")
            for head, entry in zip(heads[1:], rest, strict=True)
        ]
        first = first.content if isinstance(first, Entry) else first
        lines.append(element("tr", element("th", first, attributes={"scope": "row"}), *entries))
    top = element("thead", element("tr", *(element("th", head, attributes={"scope": "col"}) for head in heads)))
    parts = (element("caption", caption) if caption else "", top, element("tbody", *lines))
    # A scrollable box must be reachable with the keyboard.
    attributes = {"role": "region", "aria-label": label, "tabindex": "0"}
    return element("div", element("table", *parts), style=f"scroll {style}".strip(), attributes=attributes)


def _cell(entry: Entry, head: str) -> Html:
    named = {"data-head": head} if head and entry.content else {}
    named |= {} if entry.sort is None else {"data-sort": f"{entry.sort:.7g}"}
    return element("td", entry.content, style=entry.style, attributes=named)


def aligned(number: str) -> Html:
    """Return a number that is aligned with others in its column at the decimal point."""
    whole, point, rest = number.partition(".")
    return join(element("span", whole, style="whole"), element("span", point, rest, style="rest"))


def figures(panels: Iterable[Panel]) -> Html:
    """Return figures side by side."""
    return element("div", *map(figure, panels), style="panels")


def beside(main: str, aside: str) -> Html:
    """Return two columns on wide screens, of which the first is wider, and one below the other on narrow ones."""
    return element("div", element("div", main), element("div", aside), style="beside")


def key(colour: str, dashes: str) -> Html:
    """Return a short line in the style of a curve, as in a legend."""
    style = f"border-top: 3px {dashes} {colour}"
    return element("span", attributes={"class": "key", "style": style, "aria-hidden": "true"})


def picker(title: str, states: Mapping[str, Any]) -> Html:
    """Return a box in which the script lets the reader choose a state; it is hidden without the script."""
    heading = element("h3", title)
    return element("div", heading, _data(states), style="picker", attributes={"hidden": "hidden"})


def figure(panel: Panel) -> Html:
    """Return a figure with its caption, the data of its interactive form, and links to its files."""
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
        _data(panel.plot) if panel.plot else "",
        attributes={"data-name": name} if panel.plot else None,
    )


def _data(content: Mapping[str, Any]) -> Html:
    """Return plain values as JSON that the script reads; it cannot end the element that contains it."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Html(f'<script type="application/json">{text.replace("<", chr(92) + "u003c")}</script>\n')


def fold(title: str, *content: str, style: str = "", anchor: str = "") -> Html:
    """Return content that is folded behind its title."""
    attributes = {"id": anchor} if anchor else None
    return element("details", element("summary", title), "\n", *content, style=style, attributes=attributes)


def fold_json(title: str, value: Any) -> Html:
    """Return plain values as JSON, folded behind the title."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return fold(title, element("pre", text, attributes={"role": "region", "aria-label": title, "tabindex": "0"}))
