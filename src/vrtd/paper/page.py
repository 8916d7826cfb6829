"""The HTML page of a reproduction: the verdicts, then every experiment with its figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vrtd.paper.evidence import CONFIDENCE, Finding, Judged, Kind, Verdict, count_verdicts
from vrtd.paper.experiment import Experiment, Settings
from vrtd.paper.wording import condition, limits, measured
from vrtd.report import html
from vrtd.report.numbers import count, number, plural

MOST_COMPARISONS = 40  # rows in the table of one claim
_LONG = 200  # characters; longer lists of conditions are folded
_MARKS: dict[Verdict, html.Mark] = {
    "proved": html.Mark("holds", "■"),
    "holds": html.Mark("holds", "✓"),
    "no exception found": html.Mark("holds", "✓"),
    "holds under conditions": html.Mark("under", "◐"),
    "does not hold": html.Mark("fails", "✗"),
    "undecided": html.Mark("open", "?"),
    "observation": html.Mark("open", "◇"),
}
_OUTCOMES = {True: "✓ inside", False: "✗ outside", None: "? open"}


@dataclass(frozen=True)
class Section:
    """Experiment with the settings used and the figures drawn."""

    experiment: Experiment
    settings: Settings
    panels: Sequence[html.Panel]


def build_page(findings: Sequence[Finding], sections: Sequence[Section], manifest: Mapping[str, Any]) -> html.Page:
    """Build the page; `manifest` is plain JSON, whose `n_runs` and `seed` are shown at the top."""
    counts = count_verdicts(findings)
    others = plural(counts.pop("observation"), "observation")
    paper = html.element("cite", "Reanalysis of Variance Reduced Temporal Difference Learning")
    interrupted = html.element("strong", " Interrupted: not all experiments are here.")
    header = html.join(
        html.paragraph(
            "Every figure of ",
            paper,
            " (Xu, Wang, Zhou and Liang, ICLR 2020), computed and drawn again, and what the paper says, judged by the "
            "numbers.",
        ),
        html.tiles(plural(sum(counts.values()), "claim"), ((str(n), each, _MARKS[each]) for each, n in counts.items())),
        html.paragraph(f"Beside these claims of the paper: {others}, on what it does not claim."),
        html.paragraph(
            f"{count(manifest['n_runs'])} runs a setting, seed {manifest['seed']}. The intervals of the verdicts cover "
            f"their quantities together with a probability of about {CONFIDENCE:.0%}; bands in figures are two "
            "standard errors, each by itself.",
            "" if manifest.get("is_complete", True) else interrupted,
            style="quiet",
        ),
    )
    shown = {each.experiment.name: each.experiment for each in sections}
    claims = [_describe_claim(finding, shown) for finding in findings if finding.verdict != "observation"]
    observations = [_describe_claim(finding, shown) for finding in findings if finding.verdict == "observation"]
    note = html.paragraph(
        "What was seen here and the paper does not say. Observations are not counted as claims.", style="quiet"
    )
    verdicts = html.section("Verdicts", "verdicts", *claims)
    observed = html.section("Observations", "observations", note, *observations) if observations else ""
    return html.Page(
        "Variance-reduced TD learning, reproduced",
        header,
        html.join(verdicts, observed, *(_describe_experiment(each, findings) for each in sections)),
        "This run: versions, machine, seeds and digests",
        manifest,
        _list_contents(findings, sections, has_observations=bool(observations)),
    )


def _list_contents(findings: Sequence[Finding], sections: Sequence[Section], has_observations: bool) -> html.Html:
    entries = [
        html.join(html.link("verdicts", "Verdicts"), "\n", html.fold("by name", _list_badges(findings))),
        *([html.link("observations", "Observations")] if has_observations else ()),
        *(html.join(_link(each.experiment), " ", html.quiet(each.experiment.place)) for each in sections),
    ]
    listed = html.element("ol", *(html.element("li", entry) for entry in entries))
    return html.element("nav", listed, attributes={"aria-label": "Contents"})


def _describe_claim(finding: Finding, shown: Mapping[str, Experiment]) -> html.Html:
    claim, needed = finding.claim, finding.runs_needed
    basis = ", ".join(sorted({each.comparison.basis for each in finding.judged}))
    links = [_link(shown[name]) for name in claim.needs if name in shown]
    facts = {
        "Holds under" if finding.verdict == "holds under conditions" else "Conditions": _fold_long(finding.where),
        "Proof": f"docs/what-holds.md, {claim.proof}" if claim.proof else "",
        "Runs needed": f"about {number(needed, 2)} to decide it, if the estimates are right" if needed else "",
        "Note": claim.note,
        "Figures": html.join(*links, separator="\n"),
    }
    return html.card(
        _MARKS[finding.verdict],
        finding.verdict.capitalize(),
        f"{claim.place} · basis: {basis}",
        html.element("h3", claim.statement),
        *(_describe_check(claim.kind, judged) for judged in (finding.decisive, finding.supporting) if judged),
        html.definitions(facts),
        html.fold(
            f"What was tested: {plural(len(finding.judged), 'comparison')}",
            html.paragraph(claim.test),
            _list_checks(claim.kind, finding.judged),
        ),
        anchor=_claim_anchor(finding),
    )


def _describe_check(kind: Kind, judged: Judged) -> html.Html:
    c = judged.comparison
    numbers = (html.element("b", measured(judged)), f", {condition(kind, c)}", html.LINE_BREAK)
    return html.paragraph(*numbers, html.quiet(f"{c.quantity} ({c.condition})"), style="statistic")


def _list_checks(kind: Kind, judged: Sequence[Judged]) -> html.Html:
    shown, caption = judged, ""
    if len(judged) > MOST_COMPARISONS:
        shown = sorted(judged, key=lambda each: each.margin)[:MOST_COMPARISONS]
        caption = f"The {len(shown)} tightest of {count(len(judged))}; claims.json has all."
    wanted = "Observed if" if kind == "observation" else "Must be"
    rows = []
    for each in shown:
        c = each.comparison
        beyond = () if c.stated else (" ", html.quiet("(beyond the paper)"))
        runs = count(c.n_runs) if c.n_runs else ""
        head = html.join(c.condition, *beyond)
        rows.append((head, c.quantity, _OUTCOMES[each.outcome], measured(each), limits(c), c.basis, runs))
    heads = ("Condition", "Quantity", "Result", "Value and interval", wanted, "Basis", "Runs")
    return html.table("Comparisons", heads, rows, caption)


def _describe_experiment(done: Section, findings: Sequence[Finding]) -> html.Html:
    experiment = done.experiment
    return html.section(
        experiment.title,
        _experiment_anchor(experiment),
        html.paragraph(experiment.place, style="quiet"),
        _list_badges(finding for finding in findings if experiment.name in finding.claim.needs),
        html.definitions({"The paper says": experiment.question, "Done here": experiment.method}),
        html.figures(done.panels),
        html.fold_json("Settings", done.settings),
    )


def _list_badges(findings: Iterable[Finding]) -> html.Html:
    badges = []
    for finding in findings:
        mark, words = _MARKS[finding.verdict], f"{finding.claim.name}: {finding.verdict}"
        badges.append(html.link(_claim_anchor(finding), mark.before(words), style=f"badge {mark.style}"))
    return html.bullets(badges, style="badges")


def _fold_long(text: str) -> str:
    """Return a text, folded behind its first words if it is long."""
    return text if len(text) <= _LONG else html.fold(f"{text[: _LONG // 2].rsplit(' ', 1)[0]} …", text)


def _claim_anchor(finding: Finding) -> str:
    return f"claim-{finding.claim.name}"


def _link(experiment: Experiment) -> html.Html:
    return html.link(_experiment_anchor(experiment), experiment.title)


def _experiment_anchor(experiment: Experiment) -> str:
    return f"experiment-{experiment.name}"
