"""A headless Chromium for tests of pages, driven by Selenium.

A test module marks its tests with `pytestmark = NEEDS_BROWSER` and takes `browser` from `started()`. Debian has both
programs in the packages `chromium` and `chromium-driver`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory
from typing import Any

import pytest

_CHROMIUM = next(filter(None, map(which, ("chromium", "chromium-browser", "google-chrome"))), None)
_DRIVER = which("chromedriver")
NEEDS_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(None in (_CHROMIUM, _DRIVER), reason="Chromium or chromedriver is not installed."),
]
_QUIET = (
    "headless=new", "no-sandbox", "disable-gpu", "disable-quic", "disable-dev-shm-usage", "no-first-run",
    "disable-background-networking", "disable-component-update", "disable-sync", "disable-extensions",
)  # fmt: skip
DESKTOP, PHONE = (1280, 900), (390, 844)


class Browser:
    """A tab that shows one page after another, and remembers its requests and console messages."""

    def __init__(self, driver: Any, downloads: Path) -> None:
        self.driver, self.downloads = driver, downloads

    def open(self, address: str | Path, size: tuple[int, int] = DESKTOP, dark: bool = False) -> None:
        """Show a file or an address in a window of this size, with the light or the dark colour scheme."""
        self.resize(size)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.messages(), self.requests()  # forget those of the page before
        self.driver.get(address.resolve().as_uri() if isinstance(address, Path) else address)

    def resize(self, size: tuple[int, int]) -> None:
        """Change the size of the page's window; below 500 pixels it is that of a phone."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run JavaScript in the page and return what it returns."""
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        """Return the first element that matches a CSS selector."""
        return self.driver.find_element("css selector", selector)

    def find_all(self, selector: str) -> list[Any]:
        """Return all elements that match a CSS selector."""
        found: list[Any] = self.driver.find_elements("css selector", selector)
        return found

    def press(self, *keys: str) -> None:
        """Send keys to the element that has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def messages(self) -> list[str]:
        """Return the errors and warnings of the console since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] != "INFO"]

    def requests(self) -> list[str]:
        """Return the addresses that were requested since the last call, without those of files and data."""
        events = (json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance"))
        sent = (event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent")
        return [address for address in sent if not address.startswith(("file:", "data:", "blob:"))]

    def picture(self, path: Path, whole: bool = False) -> None:
        """Write what the window shows, or the whole page, as PNG."""
        if whole:
            width, height = self.run("return [innerWidth, document.documentElement.scrollHeight]")
            self.resize((width, min(height, 16_000)))
        self.driver.save_screenshot(str(path))


@contextmanager
def started() -> Iterator[Browser]:
    """Start a browser with a profile of its own, and end it afterwards."""
    from selenium import webdriver

    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        downloads = Path(folder, "downloads")
        downloads.mkdir()
        options = webdriver.ChromeOptions()
        options.binary_location = _CHROMIUM
        for option in (*_QUIET, f"user-data-dir={folder}/profile"):
            options.add_argument(f"--{option}")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
        service = webdriver.ChromeService(executable_path=_DRIVER, log_output=os.devnull)
        driver = webdriver.Chrome(options=options, service=service)
        try:
            yield Browser(driver, downloads)
        finally:
            driver.quit()
