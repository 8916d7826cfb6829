"""Figures as SVG: the same bytes for the same tables, colours that follow the reader, and text that stays text."""

import re
import sys
import xml.etree.ElementTree as ElementTree
from functools import cache

import matplotlib
import pytest

from tests.helpers.pages import HOSTILE
from vrtd.errors import MissingExtraError
from vrtd.plots import PALETTE, Figure
from vrtd.report.svg import draw_svg
from vrtd.tables import table

TABLES = {"curves": table({"x": x, "y": 2.0**x} for x in range(1, 4))}


def figure(label="a curve"):
    """A bit of everything: lines, bands, marks, hatches, a box, a formula."""

    def draw(axes, tables):
        x, y = tables["curves"]["x"], tables["curves"]["y"]
        (line,) = axes.plot(x, y, label=label)
        axes.fill_between(x, y, 2 * y, color=line.get_color(), alpha=0.2)
        for colour in PALETTE[1:]:
            axes.errorbar(x, y, 1.0, fmt="o", color=colour, markerfacecolor="white")
        axes.bar(x, y, facecolor="none", edgecolor=PALETTE[4], hatch="//")
        axes.text(1, 1, label, bbox={"facecolor": "white"})
        axes.set_xlabel(r"$\theta^*$ -- $x$")
        axes.grid(alpha=0.25)
        axes.legend()

    return Figure("convergence", f"What {label} is", "curves", draw)


@cache
def drawn(label):
    return draw_svg(figure(label), TABLES)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_labels_stay_text(hostile):
    bad, good = (list(ElementTree.fromstring(drawn(label)).iter()) for label in (hostile, "a curve"))
    assert [(each.tag, list(each.attrib)) for each in bad] == [(each.tag, list(each.attrib)) for each in good]
    assert hostile in [each.text for each in bad]


@pytest.mark.filterwarnings("ignore:Glyph")
def test_characters_that_xml_does_not_allow_are_replaced():
    texts = [each.text for each in ElementTree.fromstring(drawn("a\x01b\x1b[31mc")).iter()]
    assert "a\ufffdb\ufffd[31mc" in texts


def test_equal_tables_give_equal_bytes_whatever_the_reader_s_style():
    first = drawn("a curve")
    with matplotlib.rc_context({"svg.fonttype": "path", "lines.linewidth": 9.0, "axes.facecolor": "red"}):
        before = dict(matplotlib.rcParams)
        assert draw_svg(figure(), TABLES) == first
        assert dict(matplotlib.rcParams) == before
    assert "date" not in first.lower()
    assert "metadata" not in first


def test_colours_are_variables_and_text_is_text():
    label = "stroke: #0072b2; fill: #000000"
    style, rest = drawn(label).split("</style>", 1)
    assert rest.count(label) == 2  # in the legend and in the box: only tags change
    rest = rest.replace(label, "").lower()
    assert not [colour for colour in (*PALETTE, "#ffffff", "#b0b0b0") if colour.lower() in rest]
    light, dark = _themes(style)
    assert set(re.findall(r"var\((--\w+)\)", rest)) == light.keys() == dark.keys()
    assert rest.count("'dejavu sans'") == rest.count("'dejavu sans', 'verdana', sans-serif") > 0


def test_every_colour_can_be_seen_on_its_background():
    for theme in _themes(drawn("a curve").split("</style>", 1)[0]):
        for name in theme.keys() - {"--paper", "--grid"}:
            assert _contrast(theme[name], theme["--paper"]) >= 3.0


def test_colours_for_light_pages_can_be_seen_in_dark_notebooks():
    light, _ = _themes(drawn("a curve").split("</style>", 1)[0])
    for background in ("#111111", "#1e1e1e"):  # of JupyterLab and of Visual Studio Code
        for name in light.keys() - {"--paper", "--grid", "--ink"}:
            assert _contrast(light[name], background) >= 3.0


def test_light_and_dark_themes_have_their_colours():
    light, dark = _themes(drawn("a curve").split("</style>", 1)[0])
    assert (light["--paper"], light["--ink"]) == ("#ffffff", "#111111")
    assert (dark["--paper"], dark["--ink"]) == ("#16191d", "#e6e8ea")


@pytest.mark.parametrize(("low", "high", "shown"), [(1e-5, 1e2, ("10⁻³", "10⁰")), (0.15, 6.0, ("0.2", "0.5", "2"))])
def test_ticks_are_powers_of_ten_or_plain_numbers(low, high, shown):
    def draw(axes, tables):
        axes.set_yscale("log")
        axes.set_ylim(high, low)  # from above to below: the order is the drawing's

    svg = draw_svg(Figure("f", "c", "t", draw), {})
    assert all(f">{tick}</text>" in svg for tick in shown), svg[-3000:]
    assert "10⁻¹<" not in svg or low < 1e-4


def _themes(style):
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    return tuple(dict(re.findall(r"(--\w+): (#[0-9a-f]{6});", part)) for part in (light, dark))


def _contrast(one, other):
    """WCAG 2.2's."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_without_matplotlib_the_pip_command_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'vrtd\[plot\]'"):
        draw_svg(figure(), TABLES)
