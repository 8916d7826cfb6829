"""The paragraph of findings at the top of a reproduction's page. Its sentences follow from the verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from vrtd.paper.evidence import Finding, Verdict
from vrtd.paper.experiment import read_texts
from vrtd.report.numbers import number, plural

_HELD: tuple[Verdict, ...] = ("proved", "holds", "no exception found")
_WORDS: dict[Verdict, str] = {
    "holds under conditions": "under conditions only",
    "does not hold": "not",
    "undecided": "undecided with these runs",
}


def summarise(findings: Sequence[Finding]) -> tuple[str, str]:
    """Return whether the main message holds, in a few words, and the paragraph after it.

    Both are empty if no claim of the main message was judged.
    """
    texts, by_name = read_texts("findings"), {finding.claim.name: finding for finding in findings}
    message = [by_name[name] for name in texts["message"]["claims"] if name in by_name]
    if not message:
        return "", ""
    remarks = [each["text"] for each in texts["remarks"] if _applies(each["verdicts"], by_name)]
    sentences = [_count_message(message, texts["message"]["statement"]), *remarks, _count_universal(findings)]
    return _answer(message), " ".join(sentence for sentence in sentences if sentence)


def _applies(wanted: Mapping[str, Sequence[str]], by_name: Mapping[str, Any]) -> bool:
    return all(name in by_name and by_name[name].verdict in verdicts for name, verdicts in wanted.items())


def _answer(message: Sequence[Finding]) -> str:
    verdicts = {finding.verdict for finding in message}
    if verdicts <= {*_HELD}:
        return "The paper's main message holds."
    if verdicts <= {*_HELD, "undecided"}:
        has_held = verdicts != {"undecided"}
        return f"The paper's main message {'holds as far as it is decided' if has_held else 'is undecided'}."
    return (
        "The paper's main message holds in part." if verdicts & {*_HELD} else "The paper's main message does not hold."
    )


def _count_message(message: Sequence[Finding], statement: str) -> str:
    counts = Counter(finding.verdict for finding in message)
    n_held = sum(counts[verdict] for verdict in _HELD)
    others = [f"{counts[verdict]} {words}" for verdict, words in _WORDS.items() if counts[verdict]]
    needed = [finding.runs_needed for finding in message if finding.verdict == "undecided" and finding.runs_needed]
    more = f" (half of these need about {number(sorted(needed)[len(needed) // 2], 1)} runs)" if needed else ""
    rest = f"; {' and '.join(others)}{more}" if others else ""
    return f"It says that {statement}. {n_held} of {plural(len(message), 'claim')} about it hold{rest}."


def _count_universal(findings: Sequence[Finding]) -> str:
    """Count the claims about every chain, without observations."""
    verdicts = Counter(finding.verdict for finding in findings if finding.claim.kind == "universal")
    if not verdicts:
        return ""
    return (
        f"Of {plural(verdicts.total(), 'statement')} about every chain, {verdicts['proved']} are proved here, "
        f"{verdicts['no exception found']} met no exception, and {verdicts['does not hold']} are refuted by a number."
    )
