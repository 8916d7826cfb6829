"""The page of an evaluation: the answer first, then values, convergence, settings, data and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from vrtd.estimator.answers import Answer, describe_returns
from vrtd.estimator.comparison import PolicyComparison
from vrtd.estimator.comparison_figures import COMPARISON_FIGURES
from vrtd.estimator.diagnostics import Diagnostics, capitalise
from vrtd.estimator.evaluation_result import Evaluation
from vrtd.estimator.figures import FIGURES
from vrtd.features.specs import describe_kind
from vrtd.report import html
from vrtd.report.numbers import count, interval, number, percent, plural
from vrtd.tables import Table, rows

MEANING = "The intervals are for phi(s).theta_star, which is V(s) only where the features can represent it."
EXTREMES = "figures/extremes.csv"
_RUN = ("convergence", "errors")  # figures that are not of values
_MOST_UNSEEN = 30
_LEAST_SHARE = 1e-6
_MARKS = {True: html.Mark("holds", "✓"), False: html.Mark("fails", "✗"), None: html.Mark("open", "?")}
_DOUBTFUL = html.Mark("under", "!")


@dataclass(frozen=True)
class Facts:
    """What is said of an evaluation besides its numbers."""

    title: str
    features: Mapping[str, Any]  # as plain values
    n_terminated: int
    n_truncated: int
    mean_reward: float
    data_remarks: Sequence[str]
    n_states: int | None  # None: features are not those of numbered states


def describe_roles(roles: Mapping[str, Sequence[str]]) -> str:
    """Return which columns play which role, in one line."""
    return "; ".join(f"{field.replace('_', ' ')} {', '.join(names)}" for field, names in roles.items())


def build_page(
    found: Evaluation,
    facts: Facts,
    panels: Sequence[html.Panel],
    extremes: Table | None,
    record: Mapping[str, Any],
) -> html.Page:
    """Return the page; `extremes` are the best and worst states, `record` is plain JSON, shown at the end."""
    diagnostics, unseen = found.diagnostics, _list_unseen(found.diagnostics)
    return html.Page(
        facts.title,
        html.join(_describe_answers(found), _list_tiles(diagnostics, facts)),
        html.join(
            html.EMPTY if found.comparison is None else _build_comparison(found.comparison, panels),
            html.section(
                "Values",
                "values",
                html.paragraph(MEANING),
                _draw(panels, [name for name in FIGURES if name not in _RUN]),
                html.EMPTY if extremes is None else _list_extremes(extremes),
            ),
            html.EMPTY if found.target is None else _build_target(found.target, found),
            html.section("Convergence", "convergence", _draw(panels, _RUN)),
            html.section("Settings", "settings", html.definitions(_describe_settings(found, facts))),
            html.section("Data", "data", html.definitions(_describe_data(found, facts, unseen))),
            html.section("Features", "features", html.definitions(_describe_features(found, facts, unseen))),
        ),
        "All of it as JSON: diagnostics, settings and versions",
        record,
    )


def _draw(panels: Sequence[html.Panel], names: Sequence[str]) -> html.Html:
    shown = [panel for name in names for panel in panels if panel.figure.name == name]
    return html.figures(shown) if shown else html.paragraph("There is nothing to draw.")


def _build_comparison(comparison: PolicyComparison, panels: Sequence[html.Panel]) -> html.Html:
    """Return the section with the figures, and with what was found for the other policy."""
    d, value = comparison.diagnostics, comparison.mean_value
    entries = {
        "Compared with": comparison.other,
        "Rows": f"{count(d.n_rows)}{', the same ones' if comparison.is_joint else ''}",
        "Mean value": _describe_in_full(value),
        "Convergence": f"{d.verdict}. {d.explanation}".rstrip(),
    }
    content = _draw(panels, COMPARISON_FIGURES), html.definitions(entries)
    return html.section("Comparison", "comparison", *content)


def _build_target(name: str, found: Evaluation) -> html.Html:
    """Return the section on how much the rows tell of the target policy."""
    overlap, robust = found.diagnostics.overlap, found.diagnostics.doubly_robust
    entries = {"Policy": name, "Actions": describe_actions(found)} | ({} if overlap is None else overlap.describe())
    content = [html.definitions(entries)]
    if robust is not None:
        words = "A check on the features: the value from them, and a second estimate that further features correct."
        content += [html.paragraph(words), html.definitions(robust.describe())]
    return html.section("Target policy", "target", *content)


def describe_actions(found: Evaluation) -> str:
    """Return which number stands for which word, where actions are words."""
    return ", ".join(f"{number} {word}" for number, word in enumerate(found.evaluator.actions_))


def _list_extremes(extremes: Table) -> html.Html:
    """Return the table of the best and worst states, with a link to its file."""
    names = [name for name in extremes if name not in ("value", "low", "high")]
    lines = []
    for row in rows(extremes):
        value, low, high = interval(row["value"], row["low"], row["high"])
        has_interval = isfinite(row["low"]) and isfinite(row["high"])
        answer = f"{value} [{low}, {high}]" if has_interval else number(row["value"], 4)
        lines.append([*(_describe_entry(row[name]) for name in names), answer])
    caption = "The states with the largest and the least values, of the observations that the log begins with."
    data = html.element("a", "data (CSV)", attributes={"href": f"./{EXTREMES}"})
    return html.join(html.table("Best and worst states", [*names, "value"], lines, caption), html.paragraph(data))


def _describe_entry(entry: Any) -> str:
    if isinstance(entry, str):
        return entry
    if entry != entry:
        return "missing"
    return count(int(entry)) if entry == int(entry) else number(entry, 4)


def _describe_answers(found: Evaluation) -> html.Html:
    answer, diagnostics, closed_form, returns = found.answer, found.diagnostics, found.closed_form, found.returns
    is_doubtful = diagnostics.converged is True and found.warnings
    verdict = f"{diagnostics.verdict}, with warnings" if is_doubtful else diagnostics.verdict
    whose = "" if found.comparison is None else f" of {found.comparison.name}:"
    interrupted = html.element("strong", f"Interrupted after {count(diagnostics.n_rows)} rows.")
    notes = (
        html.join(interrupted, " This is what they taught.") if found.interrupted else "",
        *(html.join(html.element("strong", "Warning: "), f"{warning}.") for warning in found.warnings),
        answer.reservation,
        "" if found.policy_value is None else f"Mean value{whose} {_describe_in_full(found.mean_value)}.",
        f"Mean return{whose} {describe_returns(returns)}." if returns else "",
        diagnostics.explanation,
        f"For comparison: the closed form (least squares) gives {closed_form}." if closed_form else "",
    )
    return html.card(
        _DOUBTFUL if is_doubtful else _MARKS[diagnostics.converged],
        verdict,
        f"{_name_algorithm(diagnostics)}, {plural(diagnostics.n_rows, 'row')}, discount {found.evaluator.discount:g}",
        *_describe_headline(found),
        *(html.paragraph(note) for note in notes if note),
        style="answer",
    )


def _describe_headline(found: Evaluation) -> list[html.Html]:
    answer, comparison = found.answer, found.comparison
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
    """Return the answer in words; its numbers do not break over lines."""
    name = f"{answer.name.capitalize()} "
    if answer.reason is not None:
        return html.join(name, html.element("span", number(answer.value, 4)))
    value, low, high = (html.element("span", text) for text in interval(answer.value, answer.low, answer.high))
    return html.join(name, value, f" ({_keep_together(percent(answer.level))} interval ", low, " to ", high, ")")


def _keep_together(text: str) -> str:
    """Return a text whose lines do not end before a percent sign."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _list_tiles(diagnostics: Diagnostics, facts: Facts) -> html.Html:
    d = diagnostics
    shown = {"rows": count(d.n_rows)}
    if d.effective_rows is not None:
        more = ": successive errors cancel" if d.effective_rows > d.n_rows else ""
        shown[f"independent rows would tell as much{more}"] = number(d.effective_rows, 3)
    if facts.n_states is not None:
        shown["states visited"] = f"{count(facts.n_states - len(d.unseen))} of {count(facts.n_states)}"
    elif d.rank is not None:
        shown["directions of the features seen"] = f"{count(d.rank)} of {count(d.n_features)}"
    shown["of the value's variance explained"] = _describe_share(d)
    return html.tiles("In short", ((value, words, None) for words, value in shown.items() if value))


def _describe_settings(found: Evaluation, facts: Facts) -> dict[str, str]:
    diagnostics = found.diagnostics
    settings = {key: value for key, value in diagnostics.settings.items() if key != "name" and value is not None}
    return {
        "Algorithm": _name_algorithm(diagnostics),
        **{key.replace("_", " ").capitalize(): _describe_value(value) for key, value in settings.items()},
        "Discount": f"{found.evaluator.discount:g}",
        "Remarks": html.bullets(remark for remark in diagnostics.remarks if remark not in facts.data_remarks),
    }


def _describe_data(found: Evaluation, facts: Facts, unseen: str) -> dict[str, str]:
    d = found.diagnostics
    waiting = f", of which {count(d.n_waiting)} wait for the rest of their batch" if d.n_waiting else ""
    return {
        "Rows": f"{count(d.n_rows)}{waiting}",
        "Columns": describe_roles(found.roles),
        "Terminated": f"{count(facts.n_terminated)}: nothing follows",
        "Truncated": f"{count(facts.n_truncated)}: the value of the successor counts",
        "Mean reward": number(facts.mean_reward, 4),
        "Autocorrelation": _unless_none(d.autocorrelation, ": so many rows tell as much as an independent one"),
        "States not visited": (unseen or "none") if facts.n_states is not None else "",
        "Remarks": html.bullets(facts.data_remarks) or "nothing to remark",
    }


def _describe_features(found: Evaluation, facts: Facts, unseen: str) -> dict[str, str]:
    d, n_features, share = found.diagnostics, found.evaluator.n_features, _describe_share(found.diagnostics)
    unknown = "" if found.target is not None else "it cannot be told how much: the value varies too little"
    return {
        "Kind": f"{describe_kind(facts.features)}, {plural(n_features, 'feature')}",
        "Rank": "" if d.rank is None else f"{count(d.rank)} of {count(n_features)}",
        "Condition number": _unless_none(d.condition_number),
        "Largest norm": _unless_none(d.largest_norm, " (the paper asks for at most 1)"),
        "Explained": f"{share} of the variance of the value, on the pilot rows" if share else unknown,
        "Never used": "" if facts.n_states is not None else unseen,
        "As JSON": html.fold_json("Settings of the features", dict(facts.features)),
    }


def _unless_none(value: float | None, rest: str = "") -> str:
    return "" if value is None else f"{number(value, 3)}{rest}"


def _list_unseen(diagnostics: Diagnostics) -> str:
    unseen = diagnostics.unseen
    shown = ", ".join(map(str, unseen[:_MOST_UNSEEN]))
    more = f" and {count(len(unseen) - _MOST_UNSEEN)} more" if len(unseen) > _MOST_UNSEEN else ""
    return f"{count(len(unseen))}: {shown}{more}" if unseen else ""


def _describe_share(diagnostics: Diagnostics) -> str:
    """Return which part of the value's variance the features explain, or "" where that is not known."""
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
