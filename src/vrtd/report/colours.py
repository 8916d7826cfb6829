"""Colours of figures on light and dark backgrounds, as CSS variables that pages and SVG files share."""

from __future__ import annotations

from vrtd.plots import PALETTE

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
#: Names of the CSS variables by the colour that Matplotlib draws, in lower case.
VARIABLES = {drawn: shown[0] for drawn, shown in _THEME.items()}
#: Declarations of the variables for light and for dark backgrounds.
LIGHT, DARK = (" ".join(f"--{shown[0]}: {shown[at]};" for shown in _THEME.values()) for at in (1, 2))


def as_css(drawn: str) -> str:
    """Return a colour that Matplotlib draws as CSS, a variable if the theme has one.

    >>> as_css("#0072b2"), as_css("#123456")
    ('var(--blue)', '#123456')
    """
    return f"var(--{VARIABLES[drawn.lower()]})" if drawn.lower() in VARIABLES else drawn
