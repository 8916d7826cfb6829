"""The page of a reproduction: verdicts first, then every experiment with its figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote

from vrtd.experiments.evidence import CONFIDENCE, Finding, Judged
from vrtd.experiments.experiment import Experiment, Settings
from vrtd.report.html import Panel, document, drawn, folded, joined
from vrtd.report.numbers import count, limits, measured, number, plural

__all__ = ["Panel", "Section", "page"]

MOST_COMPARISONS = 40  # in the table of one claim
_LONG = 200  # characters; a longer list of conditions is folded
# Class, symbol and words: a colour never stands alone.
_KINDS = {
    "holds": ("holds", "✓", "Holds"),
    "tested": ("holds", "✓", "No exception found"),
    "holds under": ("under", "◐", "Holds under conditions"),
    "does not hold": ("fails", "✗", "Does not hold"),
    "undecided": ("open", "?", "Undecided"),
}
_OUTCOMES = {True: "✓ inside", False: "✗ outside", None: "? open"}


@dataclass(frozen=True)
class Section:
    """An experiment as done."""

    experiment: Experiment
    settings: Settings
    panels: Sequence[Panel]


def page(findings: Sequence[Finding], sections: Sequence[Section], manifest: Mapping[str, Any]) -> str:
    """The whole page as HTML. `manifest` is plain JSON; its `n_runs` and `seed` are shown at the top."""
    title = "Variance-reduced TD learning, reproduced"
    shown = {section.experiment.name: section.experiment for section in sections}
    body = f"""<header>
<h1>{title}</h1>
<p>Every figure of <cite>Reanalysis of Variance Reduced Temporal Difference Learning</cite> (Xu, Wang, Zhou and Liang,
ICLR 2020), computed and drawn again, and what the paper says, judged by the numbers.</p>
{_counts(findings)}
<p class="quiet">{escape(count(manifest["n_runs"]))} runs a setting, seed {escape(str(manifest["seed"]))}. The
intervals of the verdicts cover their quantities together with a probability of about {CONFIDENCE:.0%}; bands in figures
are two standard errors, each by itself.{_incomplete(manifest)}</p>
</header>
{_contents(findings, sections)}
<main>
<section aria-labelledby="verdicts">
<h2 id="verdicts">Verdicts</h2>
{joined(_claim(finding, shown) for finding in findings)}
</section>
{joined(_section(section, findings) for section in sections)}
</main>
<footer>
{folded("This run: versions, machine, seeds and digests", manifest)}
</footer>"""
    return document(title, body)


def _incomplete(manifest: Mapping[str, Any]) -> str:
    return "" if manifest.get("is_complete", True) else " <strong>Interrupted: not all experiments are here.</strong>"


def _counts(findings: Sequence[Finding]) -> str:
    found = Counter(_kind(finding) for finding in findings)
    tiles = (
        f'<li class="{kind}"><b>{found[name]}</b> <span aria-hidden="true">{symbol}</span> {words.lower()}</li>'
        for name, (kind, symbol, words) in _KINDS.items()
    )
    return f'<ul class="counts" aria-label="{len(findings)} claims">{joined(tiles)}</ul>'


def _contents(findings: Sequence[Finding], sections: Sequence[Section]) -> str:
    entries = (
        f"<li>{_link(_experiment_id(each.experiment.name), each.experiment.title)} "
        f'<span class="quiet">{escape(each.experiment.place)}</span></li>'
        for each in sections
    )
    return f"""<nav aria-label="Contents">
<ol>
<li><a href="#verdicts">Verdicts</a>
<details><summary>by name</summary>
{_badges(findings)}
</details></li>
{joined(entries)}
</ol>
</nav>"""


# Verdicts


def _kind(finding: Finding) -> str:
    """The verdict, where one that holds for all that was tested is told from one that depends on conditions."""
    return "tested" if finding.claim.universal and finding.verdict == "holds under" else finding.verdict


def _claim(finding: Finding, shown: Mapping[str, Experiment]) -> str:
    claim = finding.claim
    kind, symbol, words = _KINDS[_kind(finding)]
    where = joined(_link(_experiment_id(name), shown[name].title) for name in claim.needs if name in shown)
    basis = ", ".join(sorted({each.comparison.basis for each in finding.judged}))
    needed = finding.runs_needed
    facts = {
        "Holds under" if finding.verdict == "holds under" else "Conditions": _folded(finding.where),
        "Runs needed": "" if needed is None else f"about {number(needed, 2)} to decide it, if the estimates are right",
        "Note": escape(claim.note),
        "Figures": where,
    }
    return f"""<article class="claim {kind}" id="{escape(_claim_id(claim.name))}">
<p class="quiet"><span class="badge {kind}"><span aria-hidden="true">{symbol}</span> {words}</span>
{escape(claim.place)} · basis: {escape(basis)}</p>
<h3>{escape(claim.statement)}</h3>
{_statistic(finding.decisive)}
<dl>
{joined(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts.items() if text)}
</dl>
<details>
<summary>What was tested: {plural(len(finding.judged), "comparison")}</summary>
<p>{escape(claim.test)}</p>
{_comparisons(finding.judged)}
</details>
</article>"""


def _statistic(judged: Judged) -> str:
    c = judged.comparison
    return f"""<p class="statistic"><b>{measured(judged)}</b>, must be {escape(limits(c))}<br>
<span class="quiet">{escape(c.quantity)} ({escape(c.condition)})</span></p>"""


def _comparisons(judged: Sequence[Judged]) -> str:
    rows, caption = judged, ""
    if len(judged) > MOST_COMPARISONS:
        rows = sorted(judged, key=lambda each: each.margin)[:MOST_COMPARISONS]
        caption = f"<caption>The {len(rows)} tightest of {count(len(judged))}; claims.json has all.</caption>"
    heads = ("Condition", "Quantity", "Result", "Value and interval", "Must be", "Basis", "Runs")
    # A box that scrolls must be reached by the keyboard.
    return f"""<div class="scroll" role="region" aria-label="Comparisons" tabindex="0">
<table>{caption}
<thead><tr>{"".join(f'<th scope="col">{head}</th>' for head in heads)}</tr></thead>
<tbody>
{joined(_comparison(each) for each in rows)}
</tbody>
</table>
</div>"""


def _comparison(judged: Judged) -> str:
    c = judged.comparison
    cells = (
        escape(c.quantity),
        _OUTCOMES[judged.outcome],
        measured(judged),
        escape(limits(c)),
        escape(c.basis),
        count(c.n_runs) if c.n_runs else "",
    )
    condition = escape(c.condition) + ("" if c.stated else ' <span class="quiet">(beyond the paper)</span>')
    return f'<tr><th scope="row">{condition}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


# Experiments


def _section(section: Section, findings: Sequence[Finding]) -> str:
    experiment = section.experiment
    mine = [finding for finding in findings if experiment.name in finding.claim.needs]
    name = escape(_experiment_id(experiment.name))
    return f"""<section aria-labelledby="{name}">
<h2 id="{name}">{escape(experiment.title)}</h2>
<p class="quiet">{escape(experiment.place)}</p>
{_badges(mine)}
<dl>
<dt>The paper says</dt><dd>{escape(experiment.question)}</dd>
<dt>Done here</dt><dd>{escape(experiment.method)}</dd>
</dl>
<div class="panels">
{joined(drawn(panel) for panel in section.panels)}
</div>
{folded("Settings", section.settings)}
</section>"""


# Pieces


def _badges(findings: Iterable[Finding]) -> str:
    badges = []
    for finding in findings:
        kind, symbol, words = _KINDS[_kind(finding)]
        text = f'<span aria-hidden="true">{symbol}</span> {escape(finding.claim.name)}: {words.lower()}'
        badges.append(f'<li><a class="badge {kind}" href="#{quote(_claim_id(finding.claim.name))}">{text}</a></li>')
    return f'<ul class="badges">{joined(badges)}</ul>' if badges else ""


def _folded(text: str) -> str:
    """Escaped, and behind its beginning when it is long."""
    if len(text) <= _LONG:
        return escape(text)
    beginning = text[: _LONG // 2].rsplit(" ", 1)[0]
    return f"<details><summary>{escape(beginning)} …</summary>{escape(text)}</details>"


def _link(anchor: str, text: str) -> str:
    return f'<a href="#{quote(anchor)}">{escape(text)}</a>'


def _claim_id(name: str) -> str:
    return f"claim-{name}"


def _experiment_id(name: str) -> str:
    return f"experiment-{name}"
