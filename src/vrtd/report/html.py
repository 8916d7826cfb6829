"""Pieces of pages: one file each, no script, no network.

Text of any origin passes through `escape`, addresses are built from quoted names, and a page's own policy forbids
scripts and everything that would be fetched.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from importlib.resources import files
from typing import Any
from urllib.parse import quote

from vrtd.plots import Figure

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Panel:
    """A figure as drawn, with the names of its file and of its data's, relative to the page."""

    figure: Figure
    svg: str
    file: str
    data: str


def document(title: str, body: str, *styles: str) -> str:
    """A whole page; `styles` are more files of this package's, after the common one."""
    style = "".join(files("vrtd.report").joinpath(name).read_text(encoding="utf-8") for name in ("style.css", *styles))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
{body}
</body>
</html>
"""


def drawn(panel: Panel) -> str:
    """A figure with its caption and links to its files."""
    caption, name = escape(panel.figure.caption), escape(panel.figure.name)
    image = b64encode(panel.svg.encode()).decode()
    return f"""<figure>
<img src="data:image/svg+xml;base64,{image}" alt="{caption}">
<figcaption>{caption}
<span class="files"><a href="{address(panel.file)}" aria-label="SVG of {name}">SVG</a>
<a href="{address(panel.data)}" aria-label="data (CSV) of {name}">data (CSV)</a></span></figcaption>
</figure>"""


def folded(title: str, value: Any) -> str:
    """Plain values as JSON, behind their title."""
    text = escape(json.dumps(value, indent=2, ensure_ascii=False))
    return f"""<details>
<summary>{escape(title)}</summary>
<pre role="region" aria-label="{escape(title)}" tabindex="0">{text}</pre>
</details>"""


def address(name: str) -> str:
    """Of a file by its name relative to the page; no name makes it another kind of address."""
    return f"./{quote(name)}"


def joined(parts: Iterable[str]) -> str:
    return "\n".join(parts)
