"""The documentation site builds without a warning, every link in it leads somewhere, and it needs no network."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """The links, loaded files and anchors of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("script", "img", "source", "iframe") and "src" in values:
            self.loaded.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon", "preload", "modulepreload"):
            self.loaded.append(values["href"])


def find_broken(site: Path) -> list[str]:
    """Return the links that lead nowhere, and the files that a page loads from elsewhere."""
    pages = {path: Page(path) for path in site.rglob("*.html") if "_static" not in path.parts}
    broken = []
    for path, page in pages.items():
        where = path.relative_to(site)
        for link in page.links + page.loaded:
            target, _, anchor = link.partition("#")
            if link.startswith(("http:", "https:", "mailto:")):
                broken += [f"{where} loads {link}"] if link in page.loaded else []
                continue
            file = (path.parent / unquote(target.partition("?")[0])).resolve() if target else path
            if not file.exists() or (anchor and file in pages and unquote(anchor) not in pages[file].anchors):
                broken.append(f"{where} links to {link}")
    return broken


@pytest.mark.slow
def test_the_site_builds_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "docs", tmp_path]
    build = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stderr
    assert len(list(tmp_path.rglob("*.html"))) > 200
    assert find_broken(tmp_path) == []


def test_broken_links_are_noticed(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<h1 id="top"></h1><a href="#top"></a><a href="other.html"></a><a href="index.html#bottom"></a>'
        '<a href="https://example.org"></a><script src="https://example.org/a.js"></script>'
    )
    assert find_broken(tmp_path) == [
        "index.html links to other.html",
        "index.html links to index.html#bottom",
        "index.html loads https://example.org/a.js",
    ]
