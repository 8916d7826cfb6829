"""The three reports in a browser: they fit, load nothing, and show a figure early. Both sizes, both colour schemes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.browser import DESKTOP, NEEDS_BROWSER, PHONE, Browser, started
from tests.helpers.tournament import SIZE
from vrtd.report.numbers import interval, number
from vrtd.tables import parse_csv

pytestmark = NEEDS_BROWSER
MIB = 1 << 20


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as found:
        yield found


def evaluate(out: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((1001, 3))
    log = vrtd.logs.from_arrays(x[:-1], x[:-1, 0] + rng.normal(size=1000), x[1:])
    vrtd.evaluate(log, discount=0.5, algorithm="closed_form", features="polynomial:1", names=["a", "b", "c"], out=out)


def compare(out: Path) -> None:
    vrtd.compare(["random-mdp", "baird"], ["td", "vrtd"], size=SIZE, out=out, threads=1)


def reproduce(out: Path) -> None:
    vrtd.reproduce("counter-example", n_runs=4, out=out)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: Any) -> dict[str, Path]:
    paths = {}
    for make in (evaluate, compare, reproduce):
        folder = tmp_path_factory.mktemp(make.__name__) / "out"
        make(folder)
        paths[make.__name__] = folder / "report.html"
    return paths


@pytest.mark.slow
@pytest.mark.parametrize("name", ["evaluate", "compare", "reproduce"])
def test_a_report_fits_loads_nothing_and_shows_a_figure_early(
    browser: Browser, reports: dict[str, Path], name: str
) -> None:
    assert reports[name].stat().st_size < 3 * MIB
    for size, dark, n_screens in ((DESKTOP, False, 1), (DESKTOP, True, 1), (PHONE, False, 2), (PHONE, True, 2)):
        browser.open(reports[name], size, dark)
        assert (browser.messages(), browser.requests()) == ([], [])
        assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
        top = browser.run("return document.querySelector('figure').getBoundingClientRect().top")
        assert top < n_screens * size[1]
        script = (
            "return [...document.querySelectorAll('figure')].every((each) => each.querySelector('.plot > svg path'))"
        )
        assert browser.run(script)


@pytest.mark.slow
def test_a_picked_state_has_the_value_of_the_files(browser: Browser, reports: dict[str, Path]) -> None:
    browser.open(reports["evaluate"])
    best = {
        name: column[0]
        for name, column in parse_csv((reports["evaluate"].parent / "figures/extremes.csv").read_bytes()).items()
    }
    script = """
        for (const input of document.querySelectorAll(".picker input")) {
            input.value = arguments[0][input.dataset.column];
            input.dispatchEvent(new Event("input"));
        }
        return document.querySelector(".picked b").textContent;
    """
    value, low, high = interval(best["value"], best["low"], best["high"])
    picked = browser.run(script, {name: float(best[name]) for name in "abc"})
    assert picked == f"Value {value} (95 % interval {low} to {high})."


@pytest.mark.slow
def test_the_figure_of_errors_has_the_values_of_the_file(browser: Browser, reports: dict[str, Path]) -> None:
    browser.open(reports["compare"])
    cell = json.loads((reports["compare"].parent / "cells/random-mdp-td.json").read_text())["cell"]["aims"]["equation"]
    browser.run("document.querySelector('figure[data-name=errors] .plot').focus()")
    for i in (1, 2, 3):  # the first one is before any sample
        browser.press("\ue014")
        told = browser.run("return document.querySelector('figure[data-name=errors] .unseen').textContent")
        assert told.startswith(f"samples: {cell['n_samples'][i]:,}. td {number(cell['mean'][i], 4)} ± ")
