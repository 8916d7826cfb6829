"""The HTML page of a reproduction: the findings, every figure with its claims, and a table of all verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vrtd.paper.evidence import CONFIDENCE, Finding, Judged, Kind, Verdict, count_verdicts
from vrtd.paper.experiment import Experiment, Settings
from vrtd.paper.experiments import FIGURES
from vrtd.paper.findings import summarise
from vrtd.paper.wording import condition, limits, measured, totals
from vrtd.report import html
from vrtd.report.numbers import count, number, plural

MOST_COMPARISONS = 40  # rows in the table of one claim
_CLAIMS_PER_FIGURE = 7  # lines of claims that are about as high as a figure
_FEW_CLAIMS = 4
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
    """Build the page; `manifest` is plain JSON, whose `n_runs`, `seed` and `verdicts` are shown at the top."""
    answer, paragraph = summarise(findings)
    interrupted = html.element("strong", " Interrupted: not all experiments are here.")
    header = html.join(
        html.paragraph(html.element("strong", answer), " ", paragraph) if answer else "",
        html.paragraph(
            f"{totals(count_verdicts(findings))}, from {count(manifest['n_runs'])} runs a setting, "
            f"seed {manifest['seed']}.",
            "" if manifest.get("is_complete", True) else interrupted,
            style="quiet",
        ),
    )
    return html.Page(
        "Variance-reduced TD learning, reproduced",
        header,
        html.join(*_describe_experiments(findings, sections), _list_verdicts(findings), _explain()),
        "This run: versions, machine, seeds and digests",
        manifest,
        _list_contents(sections),
    )


def _explain() -> html.Html:
    paper = html.element("cite", "Reanalysis of Variance Reduced Temporal Difference Learning")
    notes = (
        html.join(
            "The page computes and draws every figure of ", paper, " (Xu, Wang, Zhou and Liang, ICLR 2020) again, and "
            "judges by the numbers what the paper says.",
        ),
        f"The intervals of all verdicts together cover their quantities with a probability of about {CONFIDENCE:.0%}. "
        "Bands in figures are two standard errors, each by itself.",
        "An observation is what was seen here and the paper does not say. It is not counted as a claim.",
    )  # fmt: skip
    return html.section("How to read this page", "about", *map(html.paragraph, notes))


def _list_contents(sections: Sequence[Section]) -> html.Html:
    entries = [html.link(_experiment_anchor(each.experiment), _short_title(each.experiment)) for each in sections]
    entries += [html.link("verdicts", "All verdicts"), html.link("about", "How to read this page")]
    listed = html.element("ol", *(html.element("li", entry) for entry in entries))
    return html.element("nav", listed, attributes={"aria-label": "Contents"})


def _list_verdicts(findings: Sequence[Finding]) -> html.Html:
    """Return the table of all verdicts, with links to the claims."""
    rows = []
    for finding in findings:
        claim, c = finding.claim, finding.decisive.comparison
        rows.append(
            (
                _MARKS[finding.verdict].before(finding.verdict),
                html.link(_claim_anchor(finding), claim.statement),
                claim.place,
                html.Entry(measured(finding.decisive), "statistic", c.estimate),
                condition(claim.kind, c),
                _list_bases(finding),
            )
        )
    heads = ("Verdict", "Claim", "In the paper", "Decisive number", "Limits", "Basis")
    return html.section("All verdicts", "verdicts", html.table("All verdicts", heads, rows, style="sortable"))


def _list_bases(finding: Finding) -> str:
    return ", ".join(sorted({each.comparison.basis for each in finding.judged}))


def _describe_claim(finding: Finding, shown: Mapping[str, Experiment], home: str) -> html.Html:
    """Return a claim on one line, in the section of the experiment `home`, with details on demand."""
    claim, needed = finding.claim, finding.runs_needed
    mark, decisive = _MARKS[finding.verdict], finding.decisive
    links = [_link(shown[name]) for name in claim.needs if name in shown and name != home]
    facts = {
        "In the paper": claim.place,
        "Holds under" if finding.verdict == "holds under conditions" else "Conditions": _fold_long(finding.where),
        "Proof": f"docs/what-holds.md, {claim.proof}" if claim.proof else "",
        "Runs needed": f"about {number(needed, 2)} to decide it, if the estimates are right" if needed else "",
        "Note": claim.note,
        "Basis": _list_bases(finding),
        "Other figures": html.join(*links, separator="\n"),
    }
    line = html.join(
        html.badge(mark, finding.verdict.capitalize()),
        " ",
        claim.statement,
        " ",
        html.element("span", measured(decisive), ", ", condition(claim.kind, decisive.comparison), style="number"),
    )
    return html.fold(
        line,
        *(_describe_check(claim.kind, judged) for judged in (decisive, finding.supporting) if judged),
        html.definitions(facts),
        html.paragraph(f"What was tested, {plural(len(finding.judged), 'comparison')}: {claim.test}"),
        _list_checks(claim.kind, finding.judged),
        style=f"claim {mark.style}",
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


def _describe_experiments(findings: Sequence[Finding], sections: Sequence[Section]) -> Iterator[html.Html]:
    """Yield the sections. A claim on several experiments is in the section of the first one."""
    shown = {each.experiment.name: each.experiment for each in sections}
    for done in sections:
        name = done.experiment.name
        home = [each for each in findings if next((n for n in each.claim.needs if n in shown), "") == name]
        yield _describe_experiment(done, [_describe_claim(each, shown, name) for each in home])


def _describe_experiment(done: Section, claims: Sequence[html.Html]) -> html.Html:
    """Return a section: its first figures beside the claims, and the other figures below."""
    experiment = done.experiment
    n_left = max(1, round(len(claims) / _CLAIMS_PER_FIGURE))
    n_beside = n_left + (len(claims) <= _FEW_CLAIMS)  # one more below few claims
    left, right, others = done.panels[:n_left], done.panels[n_left:n_beside], done.panels[n_beside:]
    number = _figure_number(experiment)
    return html.section(
        f"{number}: {experiment.title}" if number else experiment.title,
        _experiment_anchor(experiment),
        html.paragraph(experiment.question),
        html.beside(html.join(*map(html.figure, left)), html.join(*claims, *map(html.figure, right))),
        html.figures(others) if others else "",
        html.fold(
            "How it was done",
            html.definitions({"In the paper": experiment.place, "Procedure": experiment.method}),
            html.fold_json("Settings", done.settings),
        ),
    )


def _figure_number(experiment: Experiment) -> str:
    """Return the printed number of the figure in the paper, empty if there is none."""
    return next(
        (figure.replace("-", " ").capitalize() for figure, name in FIGURES.items() if name == experiment.name), ""
    )


def _short_title(experiment: Experiment) -> str:
    return _figure_number(experiment) or experiment.title


def _fold_long(text: str) -> str:
    """Return a text, folded behind its first words if it is long."""
    return text if len(text) <= _LONG else html.fold(f"{text[: _LONG // 2].rsplit(' ', 1)[0]} …", text)


def _claim_anchor(finding: Finding) -> str:
    return f"claim-{finding.claim.name}"


def _link(experiment: Experiment) -> html.Html:
    return html.link(_experiment_anchor(experiment), experiment.title)


def _experiment_anchor(experiment: Experiment) -> str:
    return f"experiment-{experiment.name}"
