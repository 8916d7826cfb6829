"""Figures as SVG whose colours follow the reader's light or dark theme, for files, pages and notebooks."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, cast

from vrtd.errors import MissingExtraError
from vrtd.plots import PALETTE, Figure
from vrtd.report.colours import DARK, LIGHT, VARIABLES, as_css
from vrtd.report.figure_data import View, pack, read_axes
from vrtd.report.folder import write_text
from vrtd.report.html import Html, Panel
from vrtd.report.numbers import superscript
from vrtd.tables import Tables

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

_SIZE, _FONT_SIZE = (5.6, 3.8), 11.0  # inches, points; a phone shows figures at two thirds of this size
# Matplotlib ships the first font and measures text with it; the second has the same widths, the last is always there.
_FONTS = ("DejaVu Sans", "Verdana", "sans-serif")
_RC: dict[Any, Any] = {
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "font.sans-serif": list(_FONTS),
    "svg.fonttype": "none",  # keeps text searchable and readable by screen readers, and files small
    "svg.hashsalt": "vrtd",  # equal figures give equal bytes
}

_COORDINATES, _DIGITS = re.compile(r'\b(?:d|x|y)="[^"]*"'), re.compile(r"(\.\d\d)\d+")  # a hundredth of a point
_COLOUR = re.compile(rf'((?:fill|stroke)(?:: |="))({"|".join(VARIABLES)})')
# Matplotlib omits the fill of black shapes, so they inherit ink.
_STYLE = f"""
<style>
:root {{ color-scheme: light dark; fill: var(--ink); {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
</style>"""


# A notebook has its own theme, which is independent of the system's. Ink is the colour of its text. The colours for a
# light background also have a contrast of 3 on the dark backgrounds of notebooks.
_NOTEBOOK = (
    "fill: currentColor; stroke-linejoin: round; stroke-linecap: butt; "
    f"{LIGHT} --ink: currentColor; --paper: none; --grid: #808080;"
)
_SMALL_SIZE, _SMALL_FONT_SIZE = (4.4, 2.9), 8.5

_STYLE_IS_GLOBAL = Lock()  # two threads that draw would restore each other's


def draw_svg(figure: Figure, tables: Tables) -> str:
    """Draw a figure as an SVG element without a background; equal tables give equal bytes."""
    return _draw_both(figure, tables)[0]


def make_panel(figure: Figure, tables: Tables, file: str, data: str) -> Panel:
    """Draw a figure for a page, on which its image is called `file` and the table behind it `data`."""
    svg, view = _draw_both(figure, tables)
    return Panel(figure, svg, file, data, pack({(): view}))


def draw_panel(folder: Path, figure: Figure, tables: Tables, file: str, data: str) -> Panel:
    """Draw a figure for a page, and write its image into a folder."""
    panel = make_panel(figure, tables, file, data)
    write_text(panel.svg, folder / file)
    return panel


def read_view(draw: Callable[[Axes], Any]) -> View:
    """Return what a function draws on axes, without drawing an image."""
    with _new_axes(_SIZE, _FONT_SIZE, layout=None) as axes:
        draw(axes)
        return read_axes(axes)


def _draw_both(figure: Figure, tables: Tables) -> tuple[str, View]:
    drawn, view = _draw(lambda axes: figure.draw(axes, tables), _SIZE)
    svg = re.sub(r"<svg[^>]*>", lambda root: root[0] + _STYLE, _apply_theme(drawn), count=1)
    return svg, view


def draw_small(draw: Callable[[Axes], Any]) -> Html:
    """Draw a small figure as an SVG element for a notebook, without styles that affect the rest of the notebook."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning about the layout would only disturb
        svg = _apply_theme(_draw(draw, _SMALL_SIZE, _SMALL_FONT_SIZE)[0])
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)  # would apply to the whole notebook
    return Html(svg.replace("<svg ", f'<svg style="{_NOTEBOOK}" ', 1))


@contextmanager
def _new_axes(size: tuple[float, float], font_size: float, layout: Literal["constrained"] | None) -> Iterator[Axes]:
    """Yield axes of this size, in inches, with the style of this module."""
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure as Drawing
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None
    with _STYLE_IS_GLOBAL, matplotlib.rc_context():
        matplotlib.rcdefaults()  # the user's style would change the bytes, and colours that the theme replaces
        matplotlib.rcParams.update(_RC | {"font.size": font_size})
        drawing = Drawing(figsize=size, layout=layout)
        FigureCanvasSVG(drawing)
        axes = drawing.subplots()
        axes.set_prop_cycle(color=list(PALETTE))
        yield axes


def _draw(draw: Callable[[Axes], Any], size: tuple[float, float], font_size: float = _FONT_SIZE) -> tuple[str, View]:
    """Call `draw` on axes of this size, in inches, and return the result as an SVG element and as data."""
    with _new_axes(size, font_size, layout="constrained") as axes:
        from matplotlib.ticker import LogFormatterMathtext

        draw(axes)
        view = read_axes(axes)
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_formatter(), LogFormatterMathtext):
                _set_plain_ticks(axis)
        file, canvas = StringIO(), cast("Any", axes.figure.canvas)  # its method has no types
        # savefig would draw everything twice if there is a layout.
        canvas.print_svg(file, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = file.getvalue()
    return text[text.index("<svg") :], view  # without the address of a DTD


def _set_plain_ticks(axis: Axis) -> None:
    """Set ticks at powers of ten for an axis of two decades or more, and at 0.2, 0.5, 1 and so on otherwise.

    Labels are plain text, which renders many times faster than formulas. Leaving out minor ticks halves the rest of the
    time.
    """
    from matplotlib.ticker import LogLocator, NullLocator

    low, high = sorted(axis.get_view_interval())
    if high >= 100.0 * low:
        axis.set_major_formatter(_power)
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(LogLocator(subs=(2.0, 5.0)))
        axis.set_minor_formatter("{x:g}")


def _power(value: float, _: float) -> str:
    return f"10{superscript(round(math.log10(value)))}"


def _apply_theme(svg: str) -> str:
    """Replace colours by CSS variables, and shorten coordinates, in tags, but not in text."""
    return re.sub(r"<[a-z][^>]*>", lambda tag: _apply_theme_to_tag(tag[0]), svg)


def _apply_theme_to_tag(tag: str) -> str:
    # A glyph of a formula names a single font, which the reader may not have.
    tag = tag.replace(f"'{_FONTS[0]}'\"", f"'{_FONTS[0]}', '{_FONTS[1]}', {_FONTS[2]}\"")
    tag = _COORDINATES.sub(lambda found: _DIGITS.sub(r"\1", found[0]), tag)
    return _COLOUR.sub(lambda found: f"{found[1]}{as_css(found[2])}", tag)
