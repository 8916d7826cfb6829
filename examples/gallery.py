"""Update the pictures and the table of docs/gallery.md from a finished reproduction.

Run `python examples/gallery.py reproduction docs` in the root of the repository, after `vrtd reproduce`.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any

from vrtd.paper.evidence import Judged, Kind, NumberCheck
from vrtd.paper.wording import condition, measured, totals

BEGIN, END = "<!-- verdicts -->\n", "<!-- end of verdicts -->"


def rows(claims: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table of verdicts."""
    yield "| verdict | claim | place | what decides |"
    yield "|---|---|---|---|"
    for claim in claims:
        decides = shown(claim["kind"], claim["statistic"])
        if claim["verdict"] == "holds under conditions":
            decides += f". Holds under {shorten(claim['where'], 200, placeholder=' ...')}. "
            decides += f"Where it holds: {shown(claim['kind'], claim['supporting'])}"
        if claim["verdict"] == "proved":
            decides += f". Proof: [{claim['proof']}](what-holds.md#{anchor(claim['proof'])})"
        cells = (f"**{claim['verdict']}**", f"{claim['statement']} `{claim['name']}`", claim["place"], decides)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def shown(kind: Kind, statistic: dict[str, Any]) -> str:
    """Describe a comparison in words, from its plain JSON."""
    numbers = {
        name: math.nan if statistic[name] is None else float(statistic[name])
        for name in ("estimate", "standard_error", "low", "high")
    }
    comparison = NumberCheck(
        statistic["condition"], statistic["quantity"], numbers["estimate"], numbers["standard_error"],
        statistic["n_runs"], basis=statistic["basis"],
        above=-math.inf if statistic["above"] is None else statistic["above"],
        below=math.inf if statistic["below"] is None else statistic["below"],
    )  # fmt: skip
    value = measured(Judged(comparison, numbers["low"], numbers["high"], None))
    return f"{comparison.quantity} ({comparison.condition}): {value}, {condition(kind, comparison)}"


def anchor(heading: str) -> str:
    """Return the anchor of a heading in a Markdown page."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def main(reproduction: Path, docs: Path) -> None:
    """Copy the pictures and write the table."""
    page = docs / "gallery.md"
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"\(images/gallery/([\w.-]+\.svg)\)", text):
        (docs / "images" / "gallery" / name).write_bytes((reproduction / "figures" / name).read_bytes())
    claims = json.loads((reproduction / "claims.json").read_text(encoding="utf-8"))
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    judged = [claim for claim in claims if claim["kind"] != "observation"]
    observations = [claim for claim in claims if claim["kind"] == "observation"]
    counts = json.loads((reproduction / "manifest.json").read_text(encoding="utf-8"))["verdicts"]
    heading = "Observations on points that the paper does not claim:"
    parts = [f"{totals(counts)}.", "", *rows(judged), "", heading, "", *rows(observations)]
    page.write_text(before + BEGIN + "\n" + "\n".join(parts) + "\n\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
