"""The page of a reproduction and its figures: what is on it, and what no text can put there."""

import re
import sys
import xml.etree.ElementTree as ElementTree
from base64 import b64decode
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from itertools import pairwise
from urllib.parse import unquote, urlsplit

import matplotlib
import pytest

from vrtd.errors import MissingExtraError
from vrtd.paper.evidence import CONFIDENCE, Claim, NumberCheck, count_verdicts, judge
from vrtd.paper.experiment import Experiment
from vrtd.paper.page import MOST_COMPARISONS, Panel, Section, page
from vrtd.plots import PALETTE, Figure
from vrtd.report.svg import draw_svg
from vrtd.tables import table

HOSTILE = (
    "</style><script>alert(1)</script>",
    '" onload="x',
    "' onload='x",
    "javascript:alert(1)",
    "//elsewhere.example/x",
    "--><img src=x onerror=y><!--",
    "]]>&lt;script&gt;</text></svg>",
)
TABLES = {"curves": table({"x": x, "y": 2.0**x} for x in range(1, 4))}
IMAGE = "data:image/svg+xml;base64,"


class Outline(HTMLParser):
    """Tags with their attributes, and all text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data

    def shape(self):
        return [(tag, list(attributes)) for tag, attributes in self.tags]

    def having(self, name):
        return [attributes[name] for _, attributes in self.tags if name in attributes]


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


def claim(name, *comparisons, **rest):
    texts = {"place": "Section 5", "statement": f"{name} is so", "test": "this against that", "needs": ("lake",)}
    return Claim(name, **texts | rest, evidence=lambda tables: comparisons)


def findings():
    run = NumberCheck("as in the paper", "A / B", 0.61, 0.005, 1000, below=1.0, basis="simulated")
    claims = (
        claim("holds", run, replace(run, estimate=3.2e-8, standard_error=0.0)),
        claim("fails", replace(run, estimate=12345.0), needs=("lake", "car")),
        claim("under", NumberCheck("here", "C", 0.99996, below=1.0), NumberCheck("there", "C", 2.0, below=1.0)),
        claim("open", replace(run, estimate=0.95, standard_error=0.1), note="a note"),
        claim("many", *(NumberCheck(f"chain {i}", "D", i / 1000, above=-1.0, below=1.0 + 1e-9) for i in range(60))),
        claim("seen", NumberCheck("here", "E", 3.0, above=1.0), kind="observation"),
        claim("shown", NumberCheck("here", "F", 0.5, below=1.0), kind="universal", proof="1. A section"),
    )
    return [judge(each, {}, len(claims)) for each in claims]


def experiment(name="lake", figures=()):
    nothing = {"settings": lambda n_runs, seed: {}, "measure": lambda settings, runner: {}, "weight": 1.0}
    return Experiment(name, f"On the {name}", "Figure 2", "It is so.", "It was done.", figures=figures, **nothing)


@cache
def drawn(label):
    return draw_svg(figure(label), TABLES)


def sections():
    panels = [Panel(figure(), drawn("a curve"), "figures/lake convergence.svg", "data/lake-curves.csv")]
    return [Section(experiment(), {"n_runs": 50}, panels), Section(experiment("car"), {}, [])]


def plain_page():
    return page(findings(), sections(), {"n_runs": 1000, "seed": 7, "versions": {"numpy": "2.0"}})


def test_everything_is_there():
    found, text = findings(), plain_page()
    outline = Outline(text)
    assert [each.verdict for each in found] == [
        "holds", "does not hold", "holds under conditions", "undecided", "holds", "observation", "proved"
    ]  # fmt: skip
    for each in found:
        assert each.claim.statement in outline.text
        assert each.claim.test in outline.text
        assert f"claim-{each.claim.name}" in outline.having("id")
    for words in ("✓ Holds", "✗ Does not hold", "◐ Holds under conditions", "? Undecided", "2 ✓ holds", "a note"):
        assert words in outline.text
    assert "1,000 runs a setting, seed 7." in outline.text
    assert f"a probability of about {CONFIDENCE:.0%};" in outline.text
    for text in ("On the lake", "Figure 2", "It is so.", "It was done.", '"n_runs": 50', '"numpy": "2.0"'):
        assert text in outline.text
    (image,) = (attributes for tag, attributes in outline.tags if tag == "img")
    assert image["alt"] == "What a curve is"
    assert b64decode(image["src"].removeprefix(IMAGE)).decode() == sections()[0].panels[0].svg
    assert {"./figures/lake%20convergence.svg", "./data/lake-curves.csv"} <= set(outline.having("href"))


def test_observations_are_apart_and_not_counted_as_claims():
    text = plain_page()
    outline = Outline(text)
    (label,) = (each["aria-label"] for _, each in outline.tags if each.get("class") == "counts")
    assert label == "6 claims"
    assert "#observations" in outline.having("href")
    assert "Beside these claims of the paper: 1 observation, on what it does not claim." in outline.text
    tiles = re.findall(r"<b>(\d+)</b> <span aria-hidden=\"true\">.</span> ([a-z ]+)</li>", text)
    assert {verdict: int(n) for n, verdict in tiles} | {"observation": 1} == count_verdicts(findings())
    before, after = text.split('<h2 id="observations">')
    assert 'id="claim-seen"' in after
    assert 'id="claim-shown"' in before
    assert "observations" not in Outline(page(findings()[:1], [], {"n_runs": 1, "seed": 0})).having("id")


def test_statistics_for_people():
    text = Outline(plain_page()).text
    assert re.search(r"0\.610 \[0\.59\d, 0\.62\d\], must be < 1\nA / B \(as in the paper\)", text)
    assert re.search(r"12,345\.00 \[12,344\.98, 12,345\.02\], must be < 1", text)  # to three digits all are one number
    assert "0.99996" in text  # not 1.00, which would not be below 1
    assert "2.00, must be < 1\nC (there)\n0.99996, must be < 1\nC (here)" in text  # where it fails, where it holds
    assert "3.20\N{MULTIPLICATION SIGN}10⁻⁸" in text
    assert re.search(r"about \d\d,\d00 to decide it", text)
    assert "> \N{MINUS SIGN}1 and ≤ 1" in text


def test_long_tables_show_the_tightest():
    outline = Outline(page(findings()[4:5], [], {"n_runs": 1, "seed": 0}))
    assert sum(tag == "tr" for tag, _ in outline.tags) == 1 + MOST_COMPARISONS
    assert "The 40 tightest of 60; claims.json has all." in outline.text
    assert "chain 59" in outline.text
    assert "chain 19" not in outline.text


def test_an_interrupted_reproduction_says_so():
    said = [Outline(page([], [], {"n_runs": 4, "seed": 0, "is_complete": done})).text for done in (True, False)]
    assert ["Interrupted: not all experiments are here." in text for text in said] == [False, True]


def test_a_long_list_of_conditions_is_folded():
    many = (NumberCheck(f"chain {i}", "D", 0.5, below=1.0) for i in range(60))
    found = judge(claim("all", *many, kind="universal"), {}, 1)
    assert found.where in Outline(page([found], [], {"n_runs": 1, "seed": 0})).text


def test_no_script_no_network_no_dangling_anchor():
    text = plain_page()
    outline = Outline(text)
    assert not {tag for tag, _ in outline.tags} & {"script", "iframe", "object", "embed", "link", "base", "form"}
    assert not [name for _, attributes in outline.tags for name in attributes if name.startswith("on")]
    ids = outline.having("id")
    assert len(ids) == len(set(ids))
    for address in outline.having("href"):
        if address.startswith("#"):
            assert unquote(address[1:]) in ids
        else:
            assert address.startswith("./")
            assert urlsplit(address)[:2] == ("", "")
    assert all(address.startswith(IMAGE) for address in outline.having("src"))
    assert not re.search(r"url\(|@import", text)
    (policy,) = (each["content"] for _, each in outline.tags if each.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'unsafe-inline'")


def test_structure_for_readers():
    outline = Outline(plain_page())
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert {"header", "nav", "main", "footer"} <= {tag for tag, _ in outline.tags}
    assert all("scope" in attributes for tag, attributes in outline.tags if tag == "th")
    assert set(outline.having("aria-labelledby")) <= set(outline.having("id"))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_text_stays_text(hostile):
    bad, good = _page_with(hostile), _page_with("x" * len(hostile))
    assert Outline(bad).shape() == Outline(good).shape()
    if re.search("[<>\"'&]", hostile):
        assert hostile not in bad
    assert Outline(bad).text.count(hostile) > 15
    addresses = [address for address in Outline(bad).having("href") if not address.startswith("#")]
    assert len(addresses) == 2
    assert all(urlsplit(address)[:2] == ("", "") and address.startswith("./") for address in addresses)
    ids = Outline(bad).having("id")
    assert all(unquote(each[1:]) in ids for each in Outline(bad).having("href") if each.startswith("#"))


def _page_with(text):
    """A page on which every text from outside is this one."""
    c = NumberCheck(text, text, 0.5, 0.01, 50, below=1.0, basis=text)
    beyond = [replace(c, condition=f"{text} {i}", estimate=2.0, stated=False) for i in range(60)]  # a list to be folded
    said = Claim(text, text, text, text, (text,), lambda tables: [c, *beyond], note=text)
    short = replace(said, name=f"{text} 1", evidence=lambda tables: [c, *beyond[:1]])
    panel = Panel(replace(figure(), name=text, caption=text), text, text, text)
    done = replace(experiment(), name=text, title=text, place=text, question=text, method=text)
    settings = {text: text, "cells": [{text: [text]}]}
    manifest = {text: {text: text}, "n_runs": text, "seed": text}
    return page([judge(said, {}, 2), judge(short, {}, 2)], [Section(done, settings, [panel])], manifest)


# Figures


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_labels_stay_text(hostile):
    bad, good = (list(ElementTree.fromstring(drawn(label)).iter()) for label in (hostile, "a curve"))
    assert [(each.tag, list(each.attrib)) for each in bad] == [(each.tag, list(each.attrib)) for each in good]
    assert hostile in [each.text for each in bad]


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
