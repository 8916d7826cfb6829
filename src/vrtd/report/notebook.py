"""Notebook representation of objects: a table with two columns, and a small figure beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from vrtd.errors import MissingExtraError
from vrtd.report.html import EMPTY, element
from vrtd.report.svg import draw_small

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Notebooks align table cells to the right unless a cell has its own style.
_LEFT = {"style": "text-align: left; vertical-align: top"}
_NARROW = {"style": "max-width: 36em"}
_SIDE_BY_SIDE = {"style": "display: flex; flex-wrap: wrap; gap: 1em; align-items: center"}


def build_summary(title: str, entries: Mapping[str, str], draw: Callable[[Axes], Any] | None = None) -> str:
    """Return HTML without scripts, for `_repr_html_`.

    Parameters
    ----------
    title : str
        The kind of the object.
    entries : mapping of str to str
        Names and texts, one row each; entries with an empty text are left out.
    draw : callable, optional
        A function that draws the figure on axes. Without Matplotlib only the table is shown.

    Returns
    -------
    str
        The HTML.
    """
    head = element("tr", element("th", title, attributes=_LEFT | {"colspan": "2"}))
    rows = (
        element("tr", element("th", name, attributes=_LEFT | {"scope": "row"}), element("td", text, attributes=_LEFT))
        for name, text in entries.items()
        if text
    )
    figure = EMPTY
    if draw is not None:
        with suppress(MissingExtraError):
            figure = draw_small(draw)
    table = element("table", element("tbody", head, *rows), attributes=_NARROW)
    return element("div", table, figure, attributes=_SIDE_BY_SIDE)
