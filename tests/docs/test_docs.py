"""Every Python block in the documentation runs, page by page, in an empty folder."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/start/*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SLOW = {
    "README",
    "another-policy",
    "comparing",
    "gymnasium",
    "planning",
    "q-values",
    "researcher",
    "sklearn",
    "two-policies",
}
EXAMPLES = [
    pytest.param(page, id=page.stem, marks=[pytest.mark.slow] if page.stem in SLOW else [])
    for page in PAGES
    if BLOCK.search(page.read_text())
]


@pytest.mark.parametrize("page", EXAMPLES)
def test_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / f"{page.stem.replace('-', '_')}_page.py"
    script.write_text("\n".join(BLOCK.findall(page.read_text())))
    runpy.run_path(str(script))


@pytest.mark.parametrize(
    ("script", "picture", "n_tables"),
    [("variance_reduction", "variance_reduction.png", 4), ("why", "why-noise.png", 3)],
)
def test_pictures_can_be_drawn(
    script: str, picture: str, n_tables: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import vrtd

    simulate = vrtd.simulate
    monkeypatch.setattr(vrtd, "simulate", lambda *a, **k: simulate(*a, **(k | {"n_runs": 4})), raising=False)
    runpy.run_path(str(ROOT / "examples" / f"{script}.py"))["main"](tmp_path)
    assert (tmp_path / picture).stat().st_size > 10_000
    assert len(list(tmp_path.glob("*.csv"))) == n_tables


def test_the_picture_of_a_sweep_can_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import vrtd

    sweep = vrtd.sweep
    small = {"n_runs": 4, "n_gradients": 7000}
    monkeypatch.setattr(vrtd, "sweep", lambda *a, **k: sweep(*a, **(k | small)), raising=False)
    runpy.run_path(str(ROOT / "examples/sweep.py"))["main"](tmp_path)
    assert (tmp_path / "sweep.png").stat().st_size > 10_000
    assert len((tmp_path / "sweep.csv").read_text().splitlines()) == 1 + 14 * 4


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_map_of_the_paper_names_tests_that_exist():
    named = re.findall(r"(test_\w+\.py)::(test_\w+)", (ROOT / "docs/paper-map.md").read_text())
    assert len(named) > 50
    files = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    for file, test in named:
        assert f"def {test}(" in files[file], f"{file}::{test}"


def test_the_table_of_algorithms_has_every_one_with_its_file() -> None:
    from vrtd.algorithms import REGISTRY

    lines = (ROOT / "docs/algorithms.md").read_text().splitlines()
    for name, algorithm in REGISTRY.items():
        file = algorithm.__module__.replace(".", "/")
        row = next(line for line in lines if f"`{algorithm.__name__}`](../src/{file}.py), `{name}`" in line)
        assert row.count("|") == 8, row
        cost, needs = row.split("|")[4:6]
        assert ("d²" in cost) == (algorithm.cost == "quadratic"), row
        assert ("data set" in needs) == algorithm.needs_data_set, row
        assert ("a trajectory" in needs) == algorithm().needs_trajectory, row
