"""The page of a reproduction: verdicts first, then every experiment with its figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any
from urllib.parse import quote

from vrtd.paper.evidence import CONFIDENCE, Finding, Judged, Kind, Verdict, count_verdicts
from vrtd.paper.experiment import Experiment, Settings
from vrtd.paper.wording import condition, limits, measured
from vrtd.report.html import Panel, document, drawn, folded, joined
from vrtd.report.numbers import count, number, plural

MOST_COMPARISONS = 40  # in the table of one claim
_LONG = 200  # characters; a longer list of conditions is folded
# Class and symbol: a colour never stands alone.
_STYLES: dict[Verdict, tuple[str, str]] = {
    "proved": ("holds", "■"),
    "holds": ("holds", "✓"),
    "no exception found": ("holds", "✓"),
    "holds under conditions": ("under", "◐"),
    "does not hold": ("fails", "✗"),
    "undecided": ("open", "?"),
    "observation": ("open", "◇"),
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
{_counts(count_verdicts(findings))}
<p class="quiet">{escape(count(manifest["n_runs"]))} runs a setting, seed {escape(str(manifest["seed"]))}. The
intervals of the verdicts cover their quantities together with a probability of about {CONFIDENCE:.0%}; bands in figures
are two standard errors, each by itself.{_incomplete(manifest)}</p>
</header>
{_contents(findings, sections)}
<main>
<section aria-labelledby="verdicts">
<h2 id="verdicts">Verdicts</h2>
{joined(_claim(finding, shown) for finding in findings if finding.verdict != "observation")}
</section>
{_observations(findings, shown)}
{joined(_section(section, findings) for section in sections)}
</main>
<footer>
{folded("This run: versions, machine, seeds and digests", manifest)}
</footer>"""
    return document(title, body)


def _incomplete(manifest: Mapping[str, Any]) -> str:
    return "" if manifest.get("is_complete", True) else " <strong>Interrupted: not all experiments are here.</strong>"


def _counts(counts: Mapping[Verdict, int]) -> str:
    def tile(verdict: Verdict, n: int) -> str:
        style, symbol = _STYLES[verdict]
        return f'<li class="{style}"><b>{n}</b> <span aria-hidden="true">{symbol}</span> {verdict}</li>'

    claims = {verdict: n for verdict, n in counts.items() if verdict != "observation"}
    tiles = joined(tile(verdict, n) for verdict, n in claims.items())
    return f"""<ul class="counts" aria-label="{plural(sum(claims.values()), "claim")}">{tiles}</ul>
<p>Beside these claims of the paper: {plural(counts["observation"], "observation")}, on what it does not claim.</p>"""


def _contents(findings: Sequence[Finding], sections: Sequence[Section]) -> str:
    entries = (
        f"<li>{_link(_experiment_id(each.experiment.name), each.experiment.title)} "
        f'<span class="quiet">{escape(each.experiment.place)}</span></li>'
        for each in sections
    )
    is_seen = any(finding.verdict == "observation" for finding in findings)
    observations = '<li><a href="#observations">Observations</a></li>' if is_seen else ""
    return f"""<nav aria-label="Contents">
<ol>
<li><a href="#verdicts">Verdicts</a>
<details><summary>by name</summary>
{_badges(findings)}
</details></li>
{observations}
{joined(entries)}
</ol>
</nav>"""


# Verdicts


def _observations(findings: Sequence[Finding], shown: Mapping[str, Experiment]) -> str:
    """What the paper does not claim, apart from what it does."""
    articles = [_claim(finding, shown) for finding in findings if finding.verdict == "observation"]
    if not articles:
        return ""
    return f"""<section aria-labelledby="observations">
<h2 id="observations">Observations</h2>
<p class="quiet">What was seen here and the paper does not say. Observations are not counted as claims.</p>
{joined(articles)}
</section>"""


def _claim(finding: Finding, shown: Mapping[str, Experiment]) -> str:
    claim = finding.claim
    (style, symbol), words = _STYLES[finding.verdict], finding.verdict.capitalize()
    where = joined(_link(_experiment_id(name), shown[name].title) for name in claim.needs if name in shown)
    basis = ", ".join(sorted({each.comparison.basis for each in finding.judged}))
    needed = finding.runs_needed
    facts = {
        "Holds under" if finding.verdict == "holds under conditions" else "Conditions": _folded(finding.where),
        "Proof": escape(f"docs/what-holds.md, {claim.proof}" if claim.proof else ""),
        "Runs needed": "" if needed is None else f"about {number(needed, 2)} to decide it, if the estimates are right",
        "Note": escape(claim.note),
        "Figures": where,
    }
    return f"""<article class="claim {style}" id="{escape(_claim_id(claim.name))}">
<p class="quiet"><span class="badge {style}"><span aria-hidden="true">{symbol}</span> {words}</span>
{escape(claim.place)} · basis: {escape(basis)}</p>
<h3>{escape(claim.statement)}</h3>
{_statistic(claim.kind, finding.decisive)}
{"" if finding.supporting is None else _statistic(claim.kind, finding.supporting)}
<dl>
{joined(f"<dt>{name}</dt><dd>{text}</dd>" for name, text in facts.items() if text)}
</dl>
<details>
<summary>What was tested: {plural(len(finding.judged), "comparison")}</summary>
<p>{escape(claim.test)}</p>
{_comparisons(claim.kind, finding.judged)}
</details>
</article>"""


def _statistic(kind: Kind, judged: Judged) -> str:
    c = judged.comparison
    return f"""<p class="statistic"><b>{measured(judged)}</b>, {escape(condition(kind, c))}<br>
<span class="quiet">{escape(c.quantity)} ({escape(c.condition)})</span></p>"""


def _comparisons(kind: Kind, judged: Sequence[Judged]) -> str:
    rows, caption = judged, ""
    if len(judged) > MOST_COMPARISONS:
        rows = sorted(judged, key=lambda each: each.margin)[:MOST_COMPARISONS]
        caption = f"<caption>The {len(rows)} tightest of {count(len(judged))}; claims.json has all.</caption>"
    wanted = "Observed if" if kind == "observation" else "Must be"
    heads = ("Condition", "Quantity", "Result", "Value and interval", wanted, "Basis", "Runs")
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
    head = escape(c.condition) + ("" if c.stated else ' <span class="quiet">(beyond the paper)</span>')
    return f'<tr><th scope="row">{head}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


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
        style, symbol = _STYLES[finding.verdict]
        text = f'<span aria-hidden="true">{symbol}</span> {escape(finding.claim.name)}: {finding.verdict}'
        badges.append(f'<li><a class="badge {style}" href="#{quote(_claim_id(finding.claim.name))}">{text}</a></li>')
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
