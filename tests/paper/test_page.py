"""The page of a reproduction: what is on it, and what no text can put there."""

import math
import re
from base64 import b64decode
from dataclasses import replace
from functools import cache
from itertools import pairwise
from urllib.parse import unquote, urlsplit

import pytest

from tests.helpers.pages import HOSTILE, IMAGE, Outline, check_scripts
from vrtd.paper.evidence import CONFIDENCE, Claim, NumberCheck, count_verdicts, judge
from vrtd.paper.experiment import Experiment, read_texts
from vrtd.paper.experiments import all_claims
from vrtd.paper.findings import summarise
from vrtd.paper.page import MOST_COMPARISONS, Section, build_page
from vrtd.paper.wording import limits, totals
from vrtd.plots import Figure
from vrtd.report.html import Panel
from vrtd.report.numbers import number, plural


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


def sections():
    panels = [Panel(FIGURE, "<svg>a curve</svg>", "figures/lake convergence.svg", "data/lake-curves.csv")]
    return [Section(experiment(), {"n_runs": 50}, panels), Section(experiment("car"), {}, [])]


FIGURE = Figure("convergence", "What a curve is", "curves", lambda axes, tables: None)


def make_page(*parts):
    return build_page(*parts).html


@cache
def plain_page():
    return make_page(findings(), sections(), {"n_runs": 1000, "seed": 7, "versions": {"numpy": "2.0"}})


def test_the_page_has_every_claim_and_experiment():
    found, text = findings(), plain_page()
    outline = Outline(text)
    assert [each.verdict for each in found] == [
        "holds", "does not hold", "holds under conditions", "undecided", "holds", "observation", "proved"
    ]  # fmt: skip
    for each in found:
        assert each.claim.statement in outline.text
        assert each.claim.test in outline.text
        assert f"claim-{each.claim.name}" in outline.having("id")
    for words in ("✓ Holds", "✗ Does not hold", "◐ Holds under conditions", "? Undecided", "a note"):
        assert words in outline.text
    assert f"{totals(count_verdicts(found))}, from 1,000 runs a setting, seed 7." in outline.text  # as on the console
    assert f"a probability of about {CONFIDENCE:.0%}." in outline.text
    for text in ("On the lake", "Figure 2", "It is so.", "It was done.", '"n_runs": 50', '"numpy": "2.0"'):
        assert text in outline.text
    (image,) = (attributes for tag, attributes in outline.tags if tag == "img")
    assert image["alt"] == "What a curve is"
    assert b64decode(image["src"].removeprefix(IMAGE)).decode() == sections()[0].panels[0].svg
    assert {"./figures/lake%20convergence.svg", "./data/lake-curves.csv"} <= set(outline.having("href"))


def test_the_table_of_all_verdicts_links_to_the_lines():
    table = plain_page().split('<h2 id="verdicts">')[1].split("</table>")[0]
    lines = re.findall(r"<tr><th scope=\"row\">(.*?)</th>.*?href=\"#claim-(.*?)\".*?data-sort=\"(.*?)\"", table)
    assert [(name, float(number)) for _, name, number in lines] == [
        (each.claim.name, pytest.approx(each.decisive.comparison.estimate)) for each in findings()
    ]
    assert [verdict.split("</span> ")[1] for verdict, _, _ in lines] == [each.verdict for each in findings()]


def message(*verdicts):
    """Findings on the main message with these verdicts."""
    names = read_texts("findings")["message"]["claims"]
    c = {
        "holds": [NumberCheck("a", "q", 0.5, below=1.0)],
        "does not hold": [NumberCheck("a", "q", 2.0, below=1.0)],
        "holds under conditions": [NumberCheck("a", "q", 0.5, below=1.0), NumberCheck("b", "q", 2.0, below=1.0)],
        "undecided": [NumberCheck("a", "q", 0.95, 0.1, 1000, below=1.0, basis="simulated")],
    }
    return [judge(claim(name, *c[verdict]), {}, 1) for name, verdict in zip(names, verdicts, strict=False)]


@pytest.mark.parametrize(
    ("verdicts", "answer", "count"),
    [
        (["holds", "holds"], "holds.", "2 of 2 claims about it hold."),
        (["holds", "undecided"], "holds as far as it is decided.", "1 of 2 claims about it hold; 1 undecided with the"),
        (["undecided"], "is undecided.", "0 of 1 claim about it hold; 1 undecided with these runs"),
        (["holds", "does not hold"], "holds in part.", "1 of 2 claims about it hold; 1 not."),
        (["holds under conditions"], "does not hold.", "hold; 1 under conditions only."),
    ],
)
def test_the_paragraph_of_findings_follows_from_the_verdicts(verdicts, answer, count):
    first, rest = summarise(message(*verdicts))
    assert first == f"The paper's main message {answer}"
    assert count in rest


def test_remarks_appear_with_their_verdicts_only():
    above, below = (NumberCheck("a", "q", value, below=1.0) for value in (2.0, 0.5))
    for check, is_shown in ((above, True), (below, False)):
        found = [*message("holds"), judge(claim("iid-error-below-markov", check), {}, 1)]
        assert ("A surprise" in summarise(found)[1]) == is_shown
    assert summarise(findings()) == ("", "")  # nothing on the main message
    names = {each.name for each in all_claims()}
    texts = read_texts("findings")
    assert {*texts["message"]["claims"], *(name for each in texts["remarks"] for name in each["verdicts"])} <= names


def test_numbers_are_rounded_for_people():
    text = Outline(plain_page()).text
    assert re.search(r"0\.610 \[0\.59\d, 0\.62\d\], must be < 1\nA / B \(as in the paper\)", text)
    assert re.search(r"12,345\.00 \[12,344\.98, 12,345\.02\], must be < 1", text)  # to three digits all are one number
    assert "0.99996" in text  # not 1.00, which would not be below 1
    assert "2.00, must be < 1\nC (there)\n0.99996, must be < 1\nC (here)" in text  # where it fails, where it holds
    assert "3.20\N{MULTIPLICATION SIGN}10⁻⁸" in text
    assert re.search(r"about \d\d,\d00 to decide it", text)
    assert "> \N{MINUS SIGN}1 and ≤ 1" in text


def test_long_tables_show_the_tightest():
    outline = Outline(make_page(findings()[4:5], sections(), {"n_runs": 1, "seed": 0}))
    assert sum(tag == "tr" for tag, _ in outline.tags) == 1 + MOST_COMPARISONS + 2  # and the table of all verdicts
    assert "The 40 tightest of 60; claims.json has all." in outline.text
    assert "chain 59" in outline.text
    assert "chain 19" not in outline.text


def test_what_is_not_a_number_is_among_the_tightest():
    many = [NumberCheck(f"chain {i}", "D", 0.5, below=1.0) for i in range(60)]
    found = judge(claim("c", *many[:-1], replace(many[-1], estimate=math.nan)), {}, 1)
    assert '<th scope="row">chain 59</th>' in make_page([found], sections(), {"n_runs": 1, "seed": 0})


def test_an_interrupted_reproduction_says_so():
    said = [Outline(make_page([], [], {"n_runs": 4, "seed": 0, "is_complete": done})).text for done in (True, False)]
    assert ["Interrupted: not all experiments are here." in text for text in said] == [False, True]


def test_a_long_list_of_conditions_is_folded():
    many = (NumberCheck(f"chain {i}", "D", 0.5, below=1.0) for i in range(60))
    found = judge(claim("all", *many, kind="universal"), {}, 1)
    assert found.where in Outline(make_page([found], sections(), {"n_runs": 1, "seed": 0})).text


def test_a_folded_list_shows_its_beginning():
    many = (NumberCheck(f"chain {i}", "D", 0.5, below=1.0) for i in range(60))
    text = make_page([judge(claim("all", *many, kind="universal"), {}, 1)], sections(), {"n_runs": 1, "seed": 0})
    assert "<summary>all that was tested: chain 0" in text


def text_of(*comparisons, **rest):
    return Outline(
        make_page([judge(claim("c", *comparisons, **rest), {}, 1)], sections(), {"n_runs": 1, "seed": 0})
    ).text


def test_a_claim_names_its_verdict_limits_and_outcomes():
    inside = NumberCheck("here", "D", 0.5, below=1.0)
    assert "✓ No exception found" in text_of(inside, kind="universal")
    proved = text_of(inside, kind="universal", proof="1. A section")
    assert "■ Proved" in proved
    assert "docs/what-holds.md, 1. A section" in proved
    seen = text_of(inside, kind="observation")
    assert "◇ Observation" in seen
    assert "0.500, observed if < 1" in seen
    assert "must be" not in seen
    assert "there (beyond the paper)" in text_of(inside, replace(inside, condition="there", stated=False))
    assert "✓ inside" in text_of(inside)
    assert "✗ outside" in text_of(replace(inside, estimate=2.0))
    assert "0.500, must be < 1" in text_of(inside)  # an exact number has no interval


def test_a_claim_is_in_the_section_of_its_first_experiment_and_links_to_the_others():
    text = plain_page()
    lake, car = text.split('id="experiment-car"')
    assert 'id="claim-fails"' in lake
    assert 'id="claim-' not in car
    fails = text[text.index('id="claim-fails"') : text.index('id="claim-under"')]
    assert "#experiment-lake" not in fails
    assert "#experiment-car" in fails


def test_sections_have_the_printed_numbers_of_figures():
    done = replace(sections()[0], experiment=experiment("frozen-lake"))
    assert "Figure 3: On the frozen-lake" in Outline(make_page([], [done], {"n_runs": 1, "seed": 0})).text


def test_limits_are_written_in_symbols():
    assert limits(NumberCheck("a", "q", 0.0, above=-1.0 - 1e-9, below=1.005)) == "≥ \N{MINUS SIGN}1 and < 1.005"
    assert limits(NumberCheck("a", "q", 0.0, below=1.0000123)) == "< 1.0000123"
    assert [number(x, 3) for x in (0.000212, -math.inf)] == ["0.000212", "\N{MINUS SIGN}∞"]
    assert [plural(n, "run") for n in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]


def test_no_script_no_network_no_dangling_anchor():
    text = plain_page()
    outline = Outline(text)
    check_scripts(text)
    ids = outline.having("id")
    assert len(ids) == len(set(ids))
    for address in outline.having("href"):
        if address.startswith("#"):
            assert unquote(address[1:]) in ids
        else:
            assert address.startswith("./")
            assert urlsplit(address)[:2] == ("", "")
    assert all(address.startswith(IMAGE) for address in outline.having("src"))
    assert "@import" not in text


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
    panel = Panel(replace(FIGURE, name=text, caption=text), text, text, text)
    done = replace(experiment(), name=text, title=text, place=text, question=text, method=text)
    settings = {text: text, "cells": [{text: [text]}]}
    manifest = {text: {text: text}, "n_runs": text, "seed": text}
    return make_page([judge(said, {}, 2), judge(short, {}, 2)], [Section(done, settings, [panel])], manifest)
