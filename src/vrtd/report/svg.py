"""Figures as SVG whose colours follow the reader's light or dark theme, for files, pages and notebooks."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, cast

from vrtd.errors import MissingExtraError
from vrtd.plots import PALETTE, Figure
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

# Name, colour on a light and colour on a dark background, in the order of the palette. These are the colours of Okabe
# and Ito, changed as little as possible so that every line has a contrast of 3 to its background (two of theirs are too
# pale on white) and any two remain distinguishable for all common kinds of colour vision (CIEDE2000 of about 11).
_SERIES = (
    ("blue", "#0570ae", "#137bd2"),
    ("vermilion", "#bc5400", "#d55e00"),
    ("green", "#009764", "#0ba377"),
    ("purple", "#c07fa9", "#cc79a7"),
    ("orange", "#d38000", "#e69f00"),
    ("sky", "#2599e9", "#56b4e9"),
    ("ink", "#111111", "#e6e8ea"),
)
_THEME = {drawn.lower(): shown for drawn, shown in zip(PALETTE, _SERIES, strict=True)} | {
    "#ffffff": ("paper", "#ffffff", "#16191d"),
    "#b0b0b0": ("grid", "#b0b0b0", "#69717a"),  # Matplotlib's colour for grids
}
_COLOUR = re.compile(rf'((?:fill|stroke)(?:: |="))({"|".join(_THEME)})')
_LIGHT, _DARK = (" ".join(f"--{shown[0]}: {shown[at]};" for shown in _THEME.values()) for at in (1, 2))
# Matplotlib omits the fill of black shapes, so they inherit ink.
_STYLE = f"""
<style>
:root {{ color-scheme: light dark; fill: var(--ink); {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
</style>"""


# A notebook has its own theme, which is independent of the system's. Ink is the colour of its text. The colours for a
# light background also have a contrast of 3 on the dark backgrounds of notebooks.
_NOTEBOOK = (
    "fill: currentColor; stroke-linejoin: round; stroke-linecap: butt; "
    f"{_LIGHT} --ink: currentColor; --paper: none; --grid: #808080;"
)
_SMALL_SIZE, _SMALL_FONT_SIZE = (4.4, 2.9), 8.5

_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_STYLE_IS_GLOBAL = Lock()  # two threads that draw would restore each other's


def draw_svg(figure: Figure, tables: Tables) -> str:
    """Draw a figure as an SVG element without a background; equal tables give equal bytes."""
    svg = _apply_theme(_draw(lambda axes: figure.draw(axes, tables), _SIZE))
    return re.sub(r"<svg[^>]*>", lambda root: root[0] + _STYLE, svg, count=1)


def draw_small(draw: Callable[[Axes], Any]) -> Html:
    """Draw a small figure as an SVG element for a notebook, without styles that affect the rest of the notebook."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning about the layout would only disturb
        svg = _apply_theme(_draw(draw, _SMALL_SIZE, _SMALL_FONT_SIZE))
    svg = re.sub(r"<style.*?</style>", "", svg, flags=re.DOTALL)  # would apply to the whole notebook
    return Html(svg.replace("<svg ", f'<svg style="{_NOTEBOOK}" ', 1))


def _draw(draw: Callable[[Axes], Any], size: tuple[float, float], font_size: float = _FONT_SIZE) -> str:
    """Call `draw` on axes of this size, in inches, and return the result as an SVG element."""
    try:
        import matplotlib
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure as Drawing
        from matplotlib.ticker import LogFormatterMathtext
    except ImportError:
        raise MissingExtraError("matplotlib", "plot") from None
    with _STYLE_IS_GLOBAL, matplotlib.rc_context():
        matplotlib.rcdefaults()  # the user's style would change the bytes, and colours that the theme replaces
        matplotlib.rcParams.update(_RC | {"font.size": font_size})
        drawing = Drawing(figsize=size, layout="constrained")
        axes = drawing.subplots()
        axes.set_prop_cycle(color=list(PALETTE))
        draw(axes)
        for axis in (axes.xaxis, axes.yaxis):
            if isinstance(axis.get_major_formatter(), LogFormatterMathtext):
                _set_plain_ticks(axis)
        file, canvas = StringIO(), cast("Any", FigureCanvasSVG(drawing))  # its method has no types
        # savefig would draw everything twice if there is a layout.
        canvas.print_svg(file, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = file.getvalue()
    return text[text.index("<svg") :]  # without the address of a DTD


def draw_panel(folder: Path, figure: Figure, tables: Tables, file: str, data: str) -> Panel:
    """Draw a figure into `file` of a folder; the table behind it is in `data`."""
    panel = Panel(figure, draw_svg(figure, tables), file, data)
    write_text(panel.svg, folder / file)
    return panel


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
    """Replace colours by CSS variables in tags, but not in text, and characters that XML does not allow."""
    svg = _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", svg)
    return re.sub(r"<[a-z][^>]*>", lambda tag: _apply_theme_to_tag(tag[0]), svg)


def _apply_theme_to_tag(tag: str) -> str:
    # A glyph of a formula names a single font, which the reader may not have.
    tag = tag.replace(f"'{_FONTS[0]}'\"", f"'{_FONTS[0]}', '{_FONTS[1]}', {_FONTS[2]}\"")
    return _COLOUR.sub(lambda found: f"{found[1]}var(--{_THEME[found[2]][0]})", tag)
