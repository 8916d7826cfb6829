"""The page of an evaluation: the estimate first, then values, convergence, settings, data and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from vrtd.estimator.answers import Answer, describe_returns
from vrtd.estimator.comparison import PolicyComparison
from vrtd.estimator.comparison_figures import COMPARISON_FIGURES
from vrtd.estimator.diagnostics import Diagnostics, capitalise
from vrtd.estimator.evaluation_result import FILES, Evaluation
from vrtd.estimator.figures import FIGURES
from vrtd.features import Hashed
from vrtd.features.specs import describe_kind
from vrtd.report import html
from vrtd.report.numbers import count, interval, number, percent, plural
from vrtd.tables import Table, rows

#: What the intervals are for.
MEANING = "The intervals are for the TD solution in these features. It equals V(s) if the features can represent V."
EXTREMES = "figures/extremes.csv"
_RUN = ("convergence", "errors")  # figures in the section on convergence
_MOST_UNSEEN, _MOST_STORED = 30, 1_000  # numbers of features that are always zero: shown, and in the JSON of the page
_LEAST_SHARE = 1e-6
_MARKS = {True: html.Mark("holds", "✓"), False: html.Mark("fails", "✗"), None: html.Mark("open", "?")}
_DOUBTFUL = html.Mark("under", "!")


@dataclass(frozen=True)
class Facts:
    """Facts about the data and the features that the page states."""

    title: str
    features: Mapping[str, Any]  # settings as plain values
    n_terminated: int
    n_truncated: int
    mean_reward: float
    data_remarks: Sequence[str]
    n_states: int | None  # None if the states are not numbered


def describe_roles(roles: Mapping[str, Sequence[str]]) -> str:
    """Return on one line which columns each field was read from."""
    return "; ".join(f"{field.replace('_', ' ')} {', '.join(names)}" for field, names in roles.items())


def build_page(
    evaluation: Evaluation,
    facts: Facts,
    panels: Sequence[html.Panel],
    extremes: Table | None,
    states: Mapping[str, Any],
    record: Mapping[str, Any],
) -> html.Page:
    """Return the page.

    `extremes` are the best and worst states, `states` those that the reader can choose, as plain JSON, and `record` is
    plain JSON that is shown at the end.
    """
    diagnostics, unseen = evaluation.diagnostics, _list_unseen(evaluation.diagnostics, facts)
    closed_form = evaluation.closed_form
    return html.Page(
        facts.title,
        html.join(_describe_answers(evaluation), _list_tiles(diagnostics, facts)),
        html.join(
            html.EMPTY if evaluation.comparison is None else _build_comparison(evaluation.comparison, panels),
            html.section(
                "Values",
                "values",
                _draw(panels, [name for name in FIGURES if name not in _RUN]),
                html.picker("Value of a state", states),
                html.EMPTY if extremes is None else _list_extremes(extremes),
                html.paragraph(MEANING, style="quiet"),
            ),
            html.EMPTY if evaluation.target is None else _build_target(evaluation.target, evaluation),
            html.section(
                "Convergence",
                "convergence",
                _draw(panels, _RUN),
                html.paragraph(f"The closed form (least squares) gives {closed_form}.") if closed_form else "",
            ),
            html.section("Settings", "settings", html.definitions(_describe_settings(evaluation, facts))),
            html.section("Data", "data", html.definitions(_describe_data(evaluation, facts, unseen))),
            html.section("Features", "features", html.definitions(_describe_features(evaluation, facts, unseen))),
        ),
        "All results as JSON: estimates, diagnostics, settings and versions",
        _shorten(record),
    )


def _shorten(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the number of unseen features in place of a long list of them, which its file holds."""
    diagnostics = record["diagnostics"]
    unseen = diagnostics["unseen"]
    if len(unseen) <= _MOST_STORED:
        return dict(record)
    note = f"{count(len(unseen))} numbers, listed in {FILES['diagnostics']}"
    return {**record, "diagnostics": {**diagnostics, "unseen": note}}


def _draw(panels: Sequence[html.Panel], names: Sequence[str]) -> html.Html:
    shown = [panel for name in names for panel in panels if panel.figure.name == name]
    return html.figures(shown) if shown else html.paragraph("No figures are available.")


def _build_comparison(comparison: PolicyComparison, panels: Sequence[html.Panel]) -> html.Html:
    """Return the section with the figures of the comparison and the results for the other policy."""
    d, value = comparison.diagnostics, comparison.mean_value
    entries = {
        "Compared with": comparison.other,
        "Rows": f"{count(d.n_rows)}{' (the same rows)' if comparison.is_joint else ''}",
        "Mean value": _describe_in_full(value),
        "Convergence": f"{d.verdict}. {d.explanation}".rstrip(),
    }
    content = _draw(panels, COMPARISON_FIGURES), html.definitions(entries)
    return html.section("Comparison", "comparison", *content)


def _build_target(name: str, evaluation: Evaluation) -> html.Html:
    """Return the section on the overlap of the log with the target policy and the doubly robust check."""
    overlap, robust = evaluation.diagnostics.overlap, evaluation.diagnostics.doubly_robust
    entries = {"Policy": name, "Actions": describe_actions(evaluation)}
    entries |= {} if overlap is None else overlap.describe()
    content = [html.definitions(entries)]
    if robust is not None:
        words = (
            "Check of the features: the policy value that they give (plug-in), and a doubly robust estimate that "
            "corrects it with additional features."
        )
        content += [html.paragraph(words), html.definitions(robust.describe())]
    return html.section("Target policy", "target", *content)


def describe_actions(evaluation: Evaluation) -> str:
    """Return the numbers and names of the actions; empty if the actions have no names."""
    return ", ".join(f"{number} {word}" for number, word in enumerate(evaluation.evaluator.actions_))


def _list_extremes(extremes: Table) -> html.Html:
    """Return the table of the best and worst states, with a link to its file."""
    names = [name for name in extremes if name not in ("value", "low", "high")]
    lines = []
    for row in rows(extremes):
        value, low, high = interval(row["value"], row["low"], row["high"])
        has_interval = isfinite(row["low"]) and isfinite(row["high"])
        answer = f"{value} [{low}, {high}]" if has_interval else number(row["value"], 4)
        lines.append([*(_describe_entry(row[name]) for name in names), answer])
    caption = "States with the largest and the smallest values, among the first observations of the log."
    data = html.element("a", "data (CSV)", attributes={"href": f"./{EXTREMES}"})
    return html.join(html.table("Best and worst states", [*names, "value"], lines, caption), html.paragraph(data))


def _describe_entry(entry: Any) -> str:
    if isinstance(entry, str):
        return entry
    if entry != entry:
        return "missing"
    return count(int(entry)) if entry == int(entry) else number(entry, 4)


def _describe_answers(evaluation: Evaluation) -> html.Html:
    answer, diagnostics = evaluation.answer, evaluation.diagnostics
    returns = evaluation.returns
    is_doubtful = diagnostics.converged is True and evaluation.warnings
    verdict = f"{diagnostics.verdict}, with warnings" if is_doubtful else diagnostics.verdict
    whose = "" if evaluation.comparison is None else f" of {evaluation.comparison.name}:"
    interrupted = html.element("strong", f"Interrupted after {count(diagnostics.n_rows)} rows.")
    notes = (
        html.join(interrupted, " The results use only these rows.") if evaluation.interrupted else "",
        *(html.join(html.element("strong", "Warning: "), f"{warning}.") for warning in evaluation.warnings),
        answer.reservation,
        "" if evaluation.policy_value is None else f"Mean value{whose} {_describe_in_full(evaluation.mean_value)}.",
        f"Mean return{whose} {describe_returns(returns)}." if returns else "",
        diagnostics.explanation,
    )
    return html.card(
        _DOUBTFUL if is_doubtful else _MARKS[diagnostics.converged],
        verdict,
        f"{plural(diagnostics.n_rows, 'row')}, discount {evaluation.evaluator.discount:g}",
        *_describe_headline(evaluation),
        *(html.paragraph(note) for note in notes if note),
    )


def _describe_headline(evaluation: Evaluation) -> list[html.Html]:
    answer, comparison = evaluation.answer, evaluation.comparison
    if comparison is None:
        estimand = html.paragraph(f"{answer.estimand.capitalize()}.", style="quiet")
        return [html.element("h2", _emphasise(answer)), estimand]
    values = ((comparison.name, answer), (comparison.other, comparison.policy_value))
    return [
        html.element("h2", _keep_together(capitalise(comparison.verdict))),
        *(html.paragraph(f"Policy value of {name}: {_describe_in_full(value)}.") for name, value in values),
    ]


def _describe_in_full(answer: Answer) -> str:
    return f"{answer.text}: {answer.estimand}"


def _emphasise(answer: Answer) -> html.Html:
    """Return the estimate in words, without line breaks inside its numbers."""
    name = f"{answer.name.capitalize()} "
    if answer.reason is not None:
        return html.join(name, html.element("span", number(answer.value, 4)))
    value, low, high = (html.element("span", text) for text in interval(answer.value, answer.low, answer.high))
    return html.join(name, value, f" ({_keep_together(percent(answer.level))} interval ", low, " to ", high, ")")


def _keep_together(text: str) -> str:
    """Return a text without line breaks before percent signs."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _list_tiles(diagnostics: Diagnostics, facts: Facts) -> html.Html:
    d = diagnostics
    shown = {"rows": count(d.n_rows)}
    if d.effective_rows is not None:
        more = " (successive errors partly cancel)" if d.effective_rows > d.n_rows else ""
        shown[f"effective sample size{more}"] = number(d.effective_rows, 3)
    if facts.n_states is not None:
        most = "" if d.lists_all_unseen else "at most "
        shown["states visited"] = f"{most}{count(facts.n_states - len(d.unseen))} of {count(facts.n_states)}"
    shown["of the variation of the value explained"] = _describe_share(d)
    return html.tiles("Summary", ((value, words) for words, value in shown.items() if value))


def _describe_settings(evaluation: Evaluation, facts: Facts) -> dict[str, str]:
    diagnostics = evaluation.diagnostics
    settings = {key: value for key, value in diagnostics.settings.items() if key != "name" and value is not None}
    return {
        "Algorithm": _name_algorithm(diagnostics),
        **{key.replace("_", " ").capitalize(): _describe_value(value) for key, value in settings.items()},
        "Discount": f"{evaluation.evaluator.discount:g}",
        "Remarks": html.bullets(remark for remark in diagnostics.remarks if remark not in facts.data_remarks),
    }


def _describe_data(evaluation: Evaluation, facts: Facts, unseen: str) -> dict[str, str]:
    d = evaluation.diagnostics
    waiting = f" ({count(d.n_waiting)} of them in an incomplete batch)" if d.n_waiting else ""
    return {
        "Rows": f"{count(d.n_rows)}{waiting}",
        "Columns": describe_roles(evaluation.roles),
        "Terminated": f"{count(facts.n_terminated)} (no bootstrapping)",
        "Truncated": f"{count(facts.n_truncated)} (bootstrapped with the value of the next state)",
        "Mean reward": number(facts.mean_reward, 4),
        "Autocorrelation time": _unless_none(d.autocorrelation, " rows (integrated)"),
        "States not visited": (unseen or "none") if facts.n_states is not None else "",
        "Remarks": html.bullets(facts.data_remarks) or "none",
    }


def _describe_features(evaluation: Evaluation, facts: Facts, unseen: str) -> dict[str, str]:
    d, n_features, share = (
        evaluation.diagnostics,
        evaluation.evaluator.n_features,
        _describe_share(evaluation.diagnostics),
    )
    unknown = "" if evaluation.target is not None else "not available"
    return {
        "Kind": f"{describe_kind(facts.features)}, {plural(n_features, 'feature')}",
        "Rank": "" if d.rank is None else f"{count(d.rank)} of {count(n_features)}",
        "Condition number": _unless_none(d.condition_number),
        "Largest norm": _unless_none(d.largest_norm, " (the theory assumes at most 1)"),
        "Explained": f"{share} of the variance of the value, estimated on the pilot rows" if share else unknown,
        "Always zero": "" if facts.n_states is not None else unseen,
        "As JSON": html.fold_json("Settings of the features", dict(facts.features)),
    }


def _unless_none(value: float | None, rest: str = "") -> str:
    return "" if value is None else f"{number(value, 3)}{rest}"


def _list_unseen(diagnostics: Diagnostics, facts: Facts) -> str:
    unseen = diagnostics.unseen
    if not diagnostics.lists_all_unseen or facts.features.get("kind") == Hashed.kind:  # their places mean nothing
        return f"{'' if diagnostics.lists_all_unseen else 'at least '}{count(len(unseen))}" if unseen else ""
    shown = ", ".join(map(str, unseen[:_MOST_UNSEEN]))
    more = f" and {count(len(unseen) - _MOST_UNSEEN)} more" if len(unseen) > _MOST_UNSEEN else ""
    return f"{count(len(unseen))}: {shown}{more}" if unseen else ""


def _describe_share(diagnostics: Diagnostics) -> str:
    """Return the share of the value's variance that the features explain; empty if it is unknown."""
    share, error = diagnostics.explained, diagnostics.explained_error
    if share is None or not isfinite(share):
        return ""
    if error is None or not isfinite(error):
        return f"{100 * share:.3g} %"
    return f"{100 * share:.3g} % ± {100 * error if error > _LEAST_SHARE else 0:.2g} %"


def _name_algorithm(diagnostics: Diagnostics) -> str:
    name = str(diagnostics.settings["name"])
    return "closed form (LSTD)" if name == "closed_form" else name.upper()


def _describe_value(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else count(value)
