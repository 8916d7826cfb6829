"""The page of the lab in a browser: controls change curves, and values are those of the library."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.browser import DESKTOP, NEEDS_BROWSER, PHONE, Browser, started
from vrtd import theory
from vrtd.lab.computation import N_CHECKPOINTS, Computation
from vrtd.lab.presets import PRESETS
from vrtd.lab.server import LabServer
from vrtd.lab.settings import LabSettings

pytestmark = [*NEEDS_BROWSER, pytest.mark.slow, pytest.mark.filterwarnings("ignore::vrtd.errors.StabilityWarning")]

SMALL = "algorithm=vrtd&also=td&n_features=2&step_size=0.2&batch_size=20&n_gradients=1000&chain_seed=0&discount=0.95"
NOTHING = "\N{EN DASH}"
GALLERY = Path(__file__).parents[3] / "docs" / "_static" / "lab.html"


@pytest.fixture(scope="module")
def server() -> Iterator[LabServer]:
    with LabServer(Computation()) as running:
        thread = Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with started() as running:
        running.driver.set_script_timeout(60)
        yield running


def wait(browser: Browser) -> None:
    """Wait until the page has shown everything for its settings."""
    script = """
    const done = arguments[0];
    (function look() { window.lab && lab.idle ? done() : setTimeout(look, 10); })();
    """
    browser.driver.execute_async_script(script)


def show(browser: Browser, server: LabServer, settings: str = SMALL, **options: Any) -> None:
    browser.driver.get("about:blank")  # or the address would differ in its fragment only
    browser.open(f"{server.address}#{settings}", **options)
    wait(browser)


def table(browser: Browser) -> dict[str, list[str]]:
    script = """return [...document.querySelectorAll('#numbers tbody tr')].map(
        (row) => [row.dataset.name, ...[...row.querySelectorAll('td')].map((cell) => cell.textContent)])"""
    return {name: cells for name, *cells in browser.run(script)}


def written(x: float, digits: int = 4) -> str:
    """Return a number as the page writes it."""
    if 1e-3 <= abs(x) < 1e5:
        return np.format_float_positional(x, digits, unique=False, fractional=False, trim="k").rstrip(".")
    mantissa, exponent = f"{x:.{digits - 1}e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(str.maketrans('-0123456789', '⁻⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def is_quiet(browser: Browser, server: LabServer) -> bool:
    """Return whether the console shows no error and all requests went to the server of the lab."""
    messages, requests = browser.messages(), browser.requests()
    assert messages == []
    return all(address.startswith((server.address, "about:")) for address in requests)


def test_values_are_those_of_the_library_to_the_digits_shown(browser: Browser, server: LabServer) -> None:
    show(browser, server)
    problem = vrtd.problems.random_mdp(seed=0, n_features=2)
    options: dict[str, Any] = {"sampling": "iid", "n_gradients": 1000, "checkpoints": N_CHECKPOINTS}
    cells = table(browser)
    for name, algorithm in (("vrtd", vrtd.VRTD(0.2, 20)), ("td", vrtd.TD(0.2))):
        result = vrtd.simulate(problem, algorithm, n_runs=1000, specialise=False, **options)
        exact = theory.exact_curve(problem, algorithm, **options).values("squared_error")[0]
        summary = result.summary()
        expected = [written(summary.mean[-1]), written(summary.standard_error[-1], 2), written(exact[-1])]
        assert cells[name] == [*expected, NOTHING, "0"]
        if name == "vrtd":
            browser.run("document.getElementById('curves').focus()")
            browser.press(*["\ue014"] * 41)  # the right arrow key
            read = browser.find("#curves-readout").text
            k = 40
            assert read.startswith(f"{result.n_gradients[k]:,} pseudo-gradients: VRTD {written(summary.mean[k])}; TD ")
            low, high = summary.quantiles[1, k], summary.quantiles[3, k]
            assert f"half of the runs {written(low)} to {written(high)}; exact {written(exact[k])}" in read
    assert is_quiet(browser, server)


def test_keys_move_the_controls_and_the_address_holds_the_settings(browser: Browser, server: LabServer) -> None:
    show(browser, server)
    before, places = table(browser), browser.run("return document.getElementById('curves').toDataURL()")
    browser.run("document.getElementById('step_size-slider').focus()")
    browser.press(*["\ue014"] * 5)
    wait(browser)
    after, address = table(browser), browser.driver.current_url
    assert after["vrtd"] != before["vrtd"]
    assert after["td"] != before["td"]
    assert browser.run("return document.getElementById('curves').toDataURL()") != places
    step = float(re.search(r"step_size=([\d.]+)", address)[1])  # type: ignore[index]
    assert step > 0.2
    assert browser.find("#step_size").get_attribute("value") == f"{step:g}"
    show(browser, server, address.partition("#")[2])
    assert table(browser) == after
    browser.run("document.getElementById('sampling').focus()")
    browser.press("one")  # chooses "one trajectory per run" by its first letters
    wait(browser)
    assert "sampling=markov" in browser.driver.current_url
    assert table(browser)["td"] != after["td"]
    assert is_quiet(browser, server)


def test_the_map_moves_the_point_without_a_mouse(browser: Browser, server: LabServer) -> None:
    show(browser, server)
    browser.run("document.getElementById('map').focus()")
    browser.press("\ue014", "\ue013")
    read = browser.find("#map-readout").text
    step, batch, error = re.match(r"Step size ([\d.]+), batch size (\d+): error (\d+\.\d+)", read).groups()  # type: ignore[union-attr]
    diagram = server.computation.map(LabSettings(n_features=2, n_gradients=1000))
    i = int(np.argmin(np.abs(np.log(np.array(diagram["step_sizes"]) / float(step)))))
    assert written(diagram["error"][i][diagram["batch_sizes"].index(int(batch))]) == error
    browser.press("\ue007")
    wait(browser)
    assert f"batch_size={batch}" in browser.driver.current_url
    assert is_quiet(browser, server)


def test_wrong_values_are_explained_and_the_page_goes_on(browser: Browser, server: LabServer) -> None:
    show(browser, server, SMALL.replace("step_size=0.2", "step_size=99"))
    assert "step_size must be a number from 0.0001 to 10, but is '99'." in browser.find("#alert").text
    browser.run("document.getElementById('step_size-slider').focus()")
    browser.press("\ue012")
    wait(browser)
    assert browser.find("#alert").text == ""
    assert table(browser)["vrtd"][4] != ""
    browser.messages()  # the browser reports the refused request


def test_runs_that_diverge_are_shown_as_diverged(browser: Browser, server: LabServer) -> None:
    show(
        browser,
        server,
        SMALL.replace("step_size=0.2", "step_size=9").replace("algorithm=vrtd&also=td", "algorithm=td&also="),
    )
    assert table(browser)["td"] == [NOTHING] * 4 + ["1,000"]
    assert "TD: 1,000 of 1,000 runs diverged." in browser.find("#curves").get_attribute("aria-label")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_it_fits_windows_and_colour_schemes(browser: Browser, server: LabServer, size: Any, dark: bool) -> None:
    show(browser, server, size=size, dark=dark)
    width, figure = browser.run(
        "return [document.documentElement.scrollWidth, document.querySelector('canvas').getBoundingClientRect().bottom]"
    )
    assert width <= size[0]
    assert figure <= size[1]  # the first figure is within the first screen
    colour = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", colour))) < 200) == dark
    unnamed = """return [...document.querySelectorAll('input, select, button, canvas[tabindex]')].filter(
        (each) => !each.labels?.length && !each.getAttribute('aria-label') && !each.textContent).length"""
    assert browser.run(unnamed) == 0
    assert is_quiet(browser, server)


@pytest.mark.parametrize("preset", PRESETS)
def test_the_gallery_shows_every_preset_without_a_server(browser: Browser, preset: str) -> None:
    browser.driver.get("about:blank")
    browser.open(f"{GALLERY.as_uri()}#preset={preset}")
    wait(browser)
    cells = table(browser)
    assert tuple(cells) == PRESETS[preset].settings.shown
    assert browser.find("#preset").get_attribute("value") == preset
    assert "vrtd.simulate" in browser.find("#code").get_attribute("textContent")
    assert browser.find("#step_size-slider").is_enabled() is False
    assert browser.messages() == []
    assert browser.requests() in ([], ["about:blank"])
