"""All experiments together with the fewest runs possible, which still decide claims on exact numbers."""

from __future__ import annotations

import json
import re
import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import vrtd
from tests.helpers import verdicts
from vrtd.paper import experiments
from vrtd.paper.wording import totals

# Claims that rest on exact or approximate numbers, whatever the runs.
VERDICTS = {
    "figure-1-error-falls": "holds",
    "figure-1-substantially-reduced": "holds",
    "figure-1-not-much-slower": "holds",
    "figure-2-not-much-slower": "holds",
    "figure-3-not-much-slower": "holds",
    "figure-5-much-faster": "holds under conditions",
    "figure-5-fewer-samples": "holds under conditions",
    "samples-are-gradients": "does not hold",
    "korda-counter-example": "holds",
    "theorem-1": "does not hold",
    "corollary-1": "does not hold",
    **verdicts.TABLE_1,
    **verdicts.BOUNDS,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: Any) -> Path:
    return vrtd.reproduce(out=tmp_path_factory.mktemp("whole"), n_runs=2).out


@pytest.mark.slow
def test_exact_verdicts_need_no_runs(whole: Path) -> None:
    claims = {claim["name"]: claim for claim in json.loads((whole / "claims.json").read_text())}
    assert list(claims) == [claim.name for claim in experiments.all_claims()]
    assert {name: claims[name]["verdict"] for name in VERDICTS} == VERDICTS
    others = {name for name in claims if name not in VERDICTS}
    for claim in claims.values():
        if claim["verdict"] == "observation":
            assert claim["where"].startswith("observed under"), claim["name"]
            assert "not observed" not in claim["where"], claim["name"]
    assert all("simulated" in claims[name]["basis"] for name in others), others


@pytest.mark.slow
def test_the_page_has_every_experiment_and_figure(whole: Path) -> None:
    page = (whole / "report.html").read_text(encoding="utf-8")
    for name in experiments.NAMES:
        experiment = experiments.find(name)
        assert f'id="experiment-{name}"' in page
        for figure in experiment.figures:
            assert (whole / "figures" / f"{name}-{figure.name}.svg").is_file()
            assert (whole / "data" / f"{name}-{figure.table}.csv").is_file()
            assert f"./figures/{name}-{figure.name}.svg" in page


def test_settings_are_plain_and_name_their_runs() -> None:
    """JSON and back is the same; nothing but runs and seed differs between sizes."""
    for name in experiments.NAMES:
        experiment = experiments.find(name)
        small, large = experiment.settings(20, 0), experiment.settings(1000, 0)
        assert json.loads(json.dumps(small)) == small
        assert _without_runs(small) == _without_runs(large)


def _without_runs(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_runs(each) for key, each in value.items() if key != "n_runs"}
    return [_without_runs(each) for each in value] if isinstance(value, list | tuple) else value


def test_claims_are_told_apart() -> None:
    claims = experiments.all_claims()
    assert len(claims) >= 20
    assert len({claim.name for claim in claims}) == len({claim.statement for claim in claims}) == len(claims)
    for claim in claims:
        assert set(claim.needs) <= set(experiments.NAMES)
        assert all((claim.place, claim.statement, claim.test))


@pytest.mark.slow
def test_totals_are_one_number(whole: Path) -> None:
    """On the page, in the manifest and over the claims."""
    manifest, claims = (json.loads((whole / f"{name}.json").read_text()) for name in ("manifest", "claims"))
    counts = Counter(claim["verdict"] for claim in claims)
    assert {verdict: n for verdict, n in manifest["verdicts"].items() if n} == dict(counts)
    page = (whole / "report.html").read_text(encoding="utf-8")
    assert f"{totals(manifest['verdicts'])}, from " in page  # what the command prints
    assert len(re.findall('<details class="claim ', page)) == len(claims)
    assert page.split('<h2 id="verdicts">')[1].split("</table>")[0].count('href="#claim-') == len(claims)
    assert len(page.encode()) < 3_000_000


def test_every_proof_is_where_it_is_said_to_be() -> None:
    """A claim that is called proved is named in its section of what-holds.md, and no other is."""
    text = (Path(__file__).parents[2] / "docs" / "what-holds.md").read_text(encoding="utf-8")
    sections = {part.split("\n", 1)[0]: part for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]}
    named = {
        name: heading
        for heading, part in sections.items()
        for line in re.findall(r"^\*\*Claims proved here\.\*\*(.*?)\n\n", part, flags=re.MULTILINE | re.DOTALL)
        for name in re.findall(r"`([\w-]+)`", line)
    }
    assert named == {claim.name: claim.proof for claim in experiments.all_claims() if claim.proof}


@pytest.mark.slow
def test_the_gallery_is_made_from_a_reproduction(whole: Path, tmp_path: Path) -> None:
    docs = Path(__file__).parents[2] / "docs"
    (tmp_path / "images" / "gallery").mkdir(parents=True)
    (tmp_path / "gallery.md").write_text((docs / "gallery.md").read_text(encoding="utf-8"), encoding="utf-8")
    runpy.run_path(str(docs.parent / "examples" / "gallery.py"))["main"](whole, tmp_path)
    table = (tmp_path / "gallery.md").read_text(encoding="utf-8").split("<!-- verdicts -->")[1]
    claims, observations = table.split("Observations on points that the paper does not claim:")
    found = json.loads((whole / "claims.json").read_text())
    for claim in found:
        part = observations if claim["kind"] == "observation" else claims
        (row,) = [line for line in part.splitlines() if f"`{claim['name']}`" in line]
        assert row.startswith(f"| **{claim['verdict']}** |")
        assert ("Proof: [" in row) == (claim["verdict"] == "proved")
        assert ("observed if" in row) == (claim["kind"] == "observation")
    n_claims = sum(claim["kind"] != "observation" for claim in found)
    assert f"\n{n_claims} claims: " in claims
    assert f"; {len(found) - n_claims} observations.\n" in claims


def test_the_gallery_has_every_claim_and_its_pictures() -> None:
    docs = Path(__file__).parents[2] / "docs"
    text = (docs / "gallery.md").read_text(encoding="utf-8")
    for claim in experiments.all_claims():
        assert f"`{claim.name}`" in text
    for name, verdict in VERDICTS.items():
        (row,) = [line for line in text.splitlines() if line.startswith("| **") and f"`{name}`" in line]
        assert row.startswith(f"| **{verdict}** |"), name
