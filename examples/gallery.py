"""The pictures and the table of docs/gallery.md, from a finished reproduction.

python examples/gallery.py reproduction docs
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any

from vrtd.experiments.evidence import Comparison, Judged
from vrtd.report.numbers import limits, measured

BEGIN, END = "<!-- verdicts -->\n", "<!-- end of verdicts -->"


def rows(claims: list[dict[str, Any]]) -> Iterator[str]:
    yield "| verdict | claim | place | what decides |"
    yield "|---|---|---|---|"
    for claim in claims:
        statistic = {key: float("nan") if value is None else value for key, value in claim["statistic"].items()}
        fields = {
            name: statistic[name] for name in ("condition", "quantity", "estimate", "standard_error", "n_runs", "basis")
        }
        below, above = (claim["statistic"][name] for name in ("below", "above"))
        comparison = Comparison(
            **fields,
            below=float("inf") if below is None else below,
            above=float("-inf") if above is None else above,
        )
        shown = measured(Judged(comparison, statistic["low"], statistic["high"], None))
        under = "holds: no exception found" if claim["universal"] else "holds under conditions"
        verdict = under if claim["verdict"] == "holds under" else claim["verdict"]
        decides = f"{comparison.quantity} ({comparison.condition}): {shown}, must be {limits(comparison)}"
        if under == verdict and not claim["universal"]:
            decides += f". Holds under {shorten(claim['where'], 200, placeholder=' ...')}"
        cells = (f"**{verdict}**", f"{claim['statement']} `{claim['name']}`", claim["place"], decides)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main(reproduction: Path, docs: Path) -> None:
    page = docs / "gallery.md"
    text = page.read_text(encoding="utf-8")
    for name in re.findall(r"\(images/gallery/([\w.-]+\.svg)\)", text):
        (docs / "images" / "gallery" / name).write_bytes((reproduction / "figures" / name).read_bytes())
    claims = json.loads((reproduction / "claims.json").read_text(encoding="utf-8"))
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(before + BEGIN + "\n" + "\n".join(rows(claims)) + "\n\n" + END + after, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
