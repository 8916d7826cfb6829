"""Interactive figures, tables and state pickers in a browser: with the mouse, with the keyboard, without the script."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.browser import DESKTOP, NEEDS_BROWSER, PHONE, Browser, started
from vrtd.plots import AXIS_LABELS, Figure, draw_curve, label_part
from vrtd.report import html
from vrtd.report.figure_data import as_plain, pack
from vrtd.report.numbers import interval, number
from vrtd.report.svg import make_panel, read_view

pytestmark = NEEDS_BROWSER
ENTER, LEFT, RIGHT, UP, DOWN, TAB = "\ue007", "\ue012", "\ue014", "\ue013", "\ue015", "\ue004"

X = np.array([0, 10, 100, 1000, 10_000, 100_000])
ERRORS = {
    "td": np.array([24.96, 12.345678, 3.21, 1.7, 1.69, 1.68]),
    "vrtd": np.array([24.96, 20.0, 5.0, 0.8, 0.1, 0.0123]),
}
MAP = np.array([[1.0, 2.0, np.nan], [4.0, 5.0, 6.789012]])
HOSTILE = "</script><b>x</b>"


def draw_errors(axes: Any, tables: Any) -> None:
    for name, error in tables["errors"].items():
        options = {"label": name, "x_label": AXIS_LABELS["n_gradients"], "metric": "squared_error"}
        draw_curve(axes, X, error, 0.9 * error, 1.1 * error, **options)
        axes.plot(X, error, "--", color="black", label=label_part(name, "exact"))
    axes.set_xscale("log")
    axes.set_xlim(5, 2e5)


def draw_map(axes: Any, tables: Any) -> None:
    image = axes.imshow(MAP, origin="lower", extent=(0.0, 3.0, 0.0, 2.0), aspect="auto")
    axes.set_xlabel("here")
    axes.set_ylabel(HOSTILE)
    axes.figure.colorbar(image, ax=axes, label="value")


def draw_bars(axes: Any, tables: Any) -> None:
    axes.barh([0, 1], [0.5, 2.0])
    axes.set_yticks([0, 1], ["bias", "variance"])
    axes.set_xlabel("error")


def build() -> str:
    def panel(name: str, draw: Any, **tables: Any) -> html.Panel:
        return make_panel(Figure(name, f"Caption of {name}.", name, draw), tables, f"{name}.svg", f"{name}.csv")

    curves = panel("errors", draw_errors, errors=ERRORS)
    views = {("lake", "samples"): ["td"], ("lake", "steps"): ["vrtd"], ("car", "samples"): ["td", "vrtd"]}
    plots = {
        key: read_view(lambda axes, names=names: draw_errors(axes, {"errors": {name: ERRORS[name] for name in names}}))
        for key, names in views.items()
    }
    chosen = replace(curves, plot=pack(plots, ["Problem", "Against"]), figure=replace(curves.figure, name="chosen"))
    rows = [("holds", "b", html.Entry("2.0", sort=2.0)), ("fails", "a", html.Entry("10", sort=10.0))]
    states = {
        "columns": [{"name": "items", "values": [0, 1, 2]}, {"name": "kind", "values": ["new", "known", "new"]}],
        "value": [0.12345, 1.5, 2.5], "low": as_plain([0.11, 1.0, np.inf]), "high": as_plain([0.14, 2.0, np.inf]),
        "rows": [5, 1000, 0], "is_known": [True, True, False], "level": "95 %",
    }  # fmt: skip
    content = html.join(
        html.figures([curves, panel("map", draw_map), panel("bars", draw_bars), chosen]),
        html.table("Verdicts", ["Verdict", "Claim", "Number"], rows, style="sortable"),
        html.picker("Value of a state", states),
    )
    return html.Page("A page", html.EMPTY, content, "Record", {"a": 1}).html


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as found:
        yield found


@pytest.fixture(scope="module")
def page(tmp_path_factory: Any) -> Path:
    path: Path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(build(), encoding="utf-8")
    return path


def plot(name: str) -> str:
    return f"figure[data-name={name}] .plot"


def told(browser: Browser, name: str) -> str:
    text: str = browser.run(
        "return document.querySelector(arguments[0]).textContent", f"figure[data-name={name}] .unseen"
    )
    return text


def click(browser: Browser, name: str, label: str) -> None:
    browser.find(f"figure[data-name={name}] button[aria-label='{label}']").click()


def wait(condition: Callable[[], Any]) -> None:
    """Wait until the browser has done something that takes it a moment."""
    end = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def curve(browser: Browser, name: str) -> list[str]:
    """The outlines of what is drawn for a series and its parts."""
    script = "return [...document.querySelectorAll(arguments[0])].map((path) => path.getAttribute('d'))"
    found: list[str] = browser.run(script, f"{plot('errors')} [data-series='{name}'] path")
    return found


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
@pytest.mark.parametrize("dark", [False, True])
def test_a_page_fits_loads_nothing_and_reports_no_error(browser: Browser, page: Path, size: Any, dark: bool) -> None:
    browser.open(page, size, dark)
    assert (browser.messages(), browser.requests()) == ([], [])
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert len(browser.find_all(".plot > svg")) == 4
    assert not any(image.is_displayed() for image in browser.find_all("figure img"))
    ink = browser.run("return getComputedStyle(document.querySelector('.plot text')).fill")
    assert ink == ("rgb(230, 232, 234)" if dark else "rgb(17, 17, 17)")


def test_values_are_the_library_s_with_the_keyboard_alone(browser: Browser, page: Path) -> None:
    browser.open(page)
    browser.press(TAB)  # the first figure is the first thing on this page
    assert browser.run("return document.activeElement.closest('figure').dataset.name") == "errors"
    for x, y, other in zip(X[1:], ERRORS["td"][1:], ERRORS["vrtd"][1:], strict=True):
        browser.press(RIGHT)
        texts = [f"{name} {number(v, 4)} ± {number(0.1 * v, 2)}" for name, v in (("td", y), ("vrtd", other))]
        exact = [f"{name} (exact) {number(v, 4)}" for name, v in (("td", y), ("vrtd", other))]
        assert told(browser, "errors") == f"pseudo-gradients: {x:,}. {texts[0]}; {exact[0]}; {texts[1]}; {exact[1]}"
    browser.press(LEFT, DOWN)
    assert told(browser, "errors").startswith("pseudo-gradients: 10,000. ")
    browser.run("document.querySelector(arguments[0]).focus()", plot("map"))
    browser.press(RIGHT, UP, RIGHT, RIGHT)
    assert told(browser, "map") == f"here 2.500, {HOSTILE} 1.500. value {number(6.789012, 4)}"
    browser.press(DOWN)
    assert told(browser, "map") == f"here 2.500, {HOSTILE} 0.5000. value no rows"
    browser.run("document.querySelector(arguments[0]).focus()", plot("bars"))
    browser.press(RIGHT, RIGHT)
    assert told(browser, "bars") == "variance. error 2.000"
    assert browser.messages() == []


def test_the_mouse_reads_values_and_zooms(browser: Browser, page: Path) -> None:
    from selenium.webdriver import ActionChains

    browser.open(page)
    box, before = browser.find(plot("errors")), curve(browser, "vrtd")
    ActionChains(browser.driver).move_to_element(box).perform()
    tip = browser.find(f"{plot('errors')} .tip")
    assert tip.is_displayed()
    assert f"td {number(1.7, 4)}" in " ".join(tip.text.split())
    drag = ActionChains(browser.driver).move_to_element_with_offset(box, -60, -60)
    drag.click_and_hold().move_by_offset(120, 100).release().perform()
    assert curve(browser, "vrtd") != before
    ActionChains(browser.driver).double_click(box).perform()
    assert curve(browser, "vrtd") == before


def test_curves_axes_and_zoom_have_buttons(browser: Browser, page: Path) -> None:
    browser.open(page)
    before = curve(browser, "vrtd")
    assert len(curve(browser, "td")) == 3  # a band, a line, and the exact error
    chip = browser.find("figure[data-name=errors] .legend [data-name=td]")
    chip.send_keys(ENTER)
    assert chip.get_attribute("aria-pressed") == "false"
    assert curve(browser, "td") == []
    assert curve(browser, "vrtd") == before
    chip.send_keys(ENTER)
    assert len(curve(browser, "td")) == 3
    for label in ("Logarithmic horizontal axis", "Logarithmic vertical axis", "Zoom in"):
        click(browser, "errors", label)
        assert curve(browser, "vrtd") != before, label
        click(browser, "errors", {"Zoom in": "Zoom out"}.get(label, label))
        click(browser, "errors", "Show everything")
        assert curve(browser, "vrtd") == before, label
    assert not browser.find("figure[data-name=map] button[aria-label='Logarithmic vertical axis']").is_displayed()


def test_the_values_are_in_a_table(browser: Browser, page: Path) -> None:
    browser.open(page)
    click(browser, "errors", "Show the values as a table")
    rows = browser.run(
        "return [...document.querySelectorAll('.values tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    )
    assert len(rows) == 4 * len(X)
    assert rows[1] == ["td", "10", number(12.345678, 4), number(0.9 * 12.345678, 4), number(1.1 * 12.345678, 4)]


def test_figures_are_downloaded(browser: Browser, page: Path) -> None:
    browser.open(page)
    for kind, label in {
        "csv": "Download the values as CSV",
        "svg": "Download as SVG",
        "png": "Download as PNG",
    }.items():
        click(browser, "errors", label)
        path = browser.downloads / f"errors.{kind}"
        wait(path.exists)
        content = path.read_bytes()
        if kind == "csv":
            lines = content.decode().splitlines()
            assert lines[0] == "curve,pseudo-gradients,squared error ‖θ − θ*‖²,low,high"  # noqa: RUF001
            assert lines[2] == "td,10,12.34568,11.11111,13.58025"
        elif kind == "svg":
            root = ElementTree.fromstring(content)
            assert root.tag.endswith("svg")
            assert {"td", "vrtd"} <= {element.text for element in root.iter()}
            assert b"var(" not in content
        else:
            assert content.startswith(b"\x89PNG")
    assert (browser.messages(), browser.requests()) == ([], [])


def test_one_figure_has_many_views(browser: Browser, page: Path) -> None:
    browser.open(page)

    def choose(i: int, option: str) -> tuple[list[str], list[bool], int]:
        script = """
            const figure = document.querySelector("figure[data-name=chosen]"), [i, option] = arguments;
            const selects = [...figure.querySelectorAll("select")];
            if (option) { selects[i].value = option; selects[i].dispatchEvent(new Event("change")); }
            const curves = new Set([...figure.querySelectorAll("[data-series]")].map((each) => each.dataset.series));
            const disabled = [...selects[1].options].map((each) => each.disabled);
            return [selects.map((each) => each.value), disabled, curves.size];
        """
        values, disabled, n_curves = browser.run(script, i, option)
        return values, disabled, n_curves

    assert choose(0, "") == (["lake", "samples"], [False, False], 1)
    assert choose(1, "steps") == (["lake", "steps"], [False, False], 1)
    assert choose(0, "car") == (["car", "samples"], [False, True], 2)  # it has no view against steps


def test_tables_are_sorted_and_filtered(browser: Browser, page: Path) -> None:
    browser.open(page)

    def shown() -> list[str]:
        rows = "[...document.querySelectorAll('.sortable tbody tr')].filter((row) => !row.hidden)"
        script = f"return {rows}.map((row) => row.cells[1].textContent)"
        found: list[str] = browser.run(script)
        return found

    _, _, value = browser.find_all(".sortable thead button")
    value.send_keys(ENTER)
    assert shown() == ["b", "a"]
    value.send_keys(ENTER)
    assert shown() == ["a", "b"]
    assert [head.get_attribute("aria-sort") for head in browser.find_all(".sortable thead th")] == [
        None,
        None,
        "descending",
    ]
    browser.find("input[type=search]").send_keys("2.0")
    assert shown() == ["b"]
    script = "const [s] = arguments; s.value = 'fails'; s.dispatchEvent(new Event('change'))"
    browser.run(script, browser.find("[aria-label=Verdict]"))
    assert shown() == []


def test_a_state_is_picked(browser: Browser, page: Path) -> None:
    browser.open(page)
    value, low, high = interval(0.12345, 0.11, 0.14)
    texts = {
        (
            "0",
            "new",
        ): f"Value {value} (95 % interval {low} to {high}). State: items 0, kind new. Rows of the log near it: 5.",
        (
            "1",
            "known",
        ): "Value 1.50 (95 % interval 1.00 to 2.00). State: items 1, kind known. Rows of the log near it: 1,000.",
        ("2", "new"): "Not visited: the value is not known. State: items 2, kind new. Rows of the log near it: 0.",
        ("2", "known"): "Value 1.50 (95 % interval 1.00 to 2.00). Nearest state of the report: items 1, kind known. "
        "Rows of the log near it: 1,000.",
    }
    for inputs, text in texts.items():
        script = """
            const selects = document.querySelectorAll(".picker select");
            selects.forEach((each, i) => { each.value = arguments[0][i]; each.dispatchEvent(new Event("change")); });
            return document.querySelector(".picked").textContent;
        """
        assert browser.run(script, list(inputs)) == text


def test_without_the_script_and_in_print_there_are_images(browser: Browser, page: Path) -> None:
    browser.open(page)
    script = "return [...document.querySelectorAll('figure img, .live')].map((each) => getComputedStyle(each).display)"
    assert browser.run(script) == 4 * ["block", "none"] or browser.run(script) == 4 * ["block", "none"][::-1]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert browser.run(script) == 4 * ["none", "block"]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.driver.get(page.resolve().as_uri())
        assert [image.is_displayed() for image in browser.find_all("figure img")] == 4 * [True]
        assert browser.find_all(".live") == []
        assert not browser.find(".picker").is_displayed()
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_link_to_a_folded_line_unfolds_it(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    content = html.join(html.link("claim-a", "to it"), html.fold("A line", "details", anchor="claim-a"))
    path.write_text(html.Page("A page", html.EMPTY, content, "Record", {}).html, encoding="utf-8")
    browser.open(path)
    assert not browser.run("return document.querySelector('#claim-a').open")
    browser.find("a").click()
    wait(lambda: browser.run("return document.querySelector('#claim-a').open"))
