"""The table that `campaign.py` prints: one row per attack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """What happened under one kind of attack. ``failures`` counts outcomes that the package promises never to have."""

    attack: str
    tried: int
    outcome: str
    failures: int


def format_table(rows: Sequence[Row]) -> str:
    """Return the rows as aligned text, with their totals at the end."""
    total = Row("all", sum(row.tried for row in rows), "", sum(row.failures for row in rows))
    cells = [("attack", "tried", "failed", "outcome")]
    cells += [(row.attack, f"{row.tried:,}", f"{row.failures:,}", row.outcome) for row in (*rows, total)]
    name, tried, failed = (max(len(cell[i]) for cell in cells) for i in range(3))
    return "\n".join(f"{a:<{name}}  {b:>{tried}}  {c:>{failed}}  {d}".rstrip() for a, b, c, d in cells)
