"""The page of an evaluation: the answer first, then values, convergence, settings, data and features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import isfinite
from typing import Any

from vrtd.estimator.diagnostics import Diagnostics
from vrtd.report.html import Panel, document, drawn, folded, joined
from vrtd.report.numbers import count, interval, number, plural

MEANING = "The intervals are for phi(s).theta_star, which is V(s) only where the features can represent it."
_MOST_UNSEEN = 30
_LEAST_SHARE = 1e-6
# Class, symbol and words: a colour never stands alone.
_VERDICTS = {
    True: ("holds", "✓", "Converged"),
    False: ("fails", "✗", "Not converged"),
    None: ("open", "?", "Cannot be told"),
}


@dataclass(frozen=True)
class Answer:
    """The value averaged over the states of the log, with the ends of its interval."""

    value: float
    low: float
    high: float
    level: float
    method: str
    reason: str | None = None  # why there is no interval; its ends are nan then

    def __str__(self) -> str:
        if self.reason is not None:
            return number(self.value, 4)
        value, low, high = interval(self.value, self.low, self.high)
        return f"{value} [{low}, {high}]"

    @property
    def reservation(self) -> str:
        """Why the interval is infinite or missing, where it is."""
        if self.reason is not None:
            return f"There is no interval: {self.reason}."
        if isfinite(self.low) and isfinite(self.high):
            return ""
        return "The interval is infinite: the pilot rows, on which it rests, did not show all states of the log."


@dataclass(frozen=True)
class Facts:
    """What is said of an evaluation besides its numbers."""

    title: str
    discount: float
    features: Mapping[str, Any]  # as plain values
    n_features: int
    n_terminated: int
    n_truncated: int
    mean_reward: float
    data_remarks: Sequence[str]
    has_states: bool  # features are those of numbered states
    interrupted: bool


def diagnosis(diagnostics: Diagnostics) -> str:
    """In words, without the remarks."""
    return replace(diagnostics, remarks=()).text


def page(
    answer: Answer,
    closed_form: Answer | None,
    diagnostics: Diagnostics,
    facts: Facts,
    panels: Sequence[Panel],
    record: Mapping[str, Any],
) -> str:
    """The whole page as HTML; `record` is plain JSON, shown at the end."""
    by_name = {panel.figure.name: panel for panel in panels}
    values = [by_name[name] for name in ("values", "half-widths", "intervals") if name in by_name]
    run = [by_name[name] for name in ("convergence", "errors") if name in by_name]
    body = f"""<header>
<h1>{escape(facts.title)}</h1>
{_answer(answer, closed_form, diagnostics, facts)}
{_tiles(diagnostics, facts)}
</header>
<main>
<section aria-labelledby="values">
<h2 id="values">Values</h2>
<p>{MEANING}</p>
{_figures(values)}
</section>
<section aria-labelledby="convergence">
<h2 id="convergence">Convergence</h2>
{_figures(run)}
</section>
<section aria-labelledby="settings">
<h2 id="settings">Settings</h2>
{_listed(_settings(diagnostics, facts))}
</section>
<section aria-labelledby="data">
<h2 id="data">Data</h2>
{_listed(_data(diagnostics, facts))}
</section>
<section aria-labelledby="features">
<h2 id="features">Features</h2>
{_listed(_features(diagnostics, facts))}
</section>
</main>
<footer>
{folded("All of it as JSON: diagnostics, settings and versions", record)}
</footer>"""
    return document(facts.title, body, "evaluation.css")


def _answer(answer: Answer, closed_form: Answer | None, diagnostics: Diagnostics, facts: Facts) -> str:
    kind, symbol, words = _VERDICTS[diagnostics.converged]
    # What has not converged must not be the headline where something better is known.
    instead = closed_form if diagnostics.converged is False else None
    first = instead or answer
    if first.reason is not None:
        headline = f"The mean value is <span>{number(first.value, 4)}</span>."
    else:
        value, low, high = interval(first.value, first.low, first.high)
        headline = f"""The mean value is <span>{value}</span>, and with confidence {answer.level:g} between
<span>{low}</span> and <span>{high}</span>."""
    notes = []
    if facts.interrupted:
        notes.append(f"<strong>Interrupted after {count(diagnostics.n_rows)} rows.</strong> This is what they taught.")
    if instead is not None:
        notes.append(f"This is the closed form (least squares); {_algorithm(diagnostics)} gives {escape(str(answer))}.")
    notes += [escape(first.reservation), escape(_without_verdict(diagnostics))]
    if closed_form is not None and instead is None:
        notes.append(f"The closed form (least squares) gives {escape(str(closed_form))}.")
    how = f"{_algorithm(diagnostics)}, {plural(diagnostics.n_rows, 'row')}, discount {facts.discount:g}"
    return f"""<article class="claim answer {kind}">
<p class="quiet"><span class="badge {kind}"><span aria-hidden="true">{symbol}</span> {words}</span>
{escape(how)}</p>
<h2>{headline}</h2>
{joined(f"<p>{note}</p>" for note in notes if note)}
<p class="quiet">The mean is over the states of the log, as often as they are in it.</p>
</article>"""


def _without_verdict(diagnostics: Diagnostics) -> str:
    """What limits it and what to do; the verdict stands above it already."""
    _, _, rest = diagnosis(diagnostics).partition(". ")
    return rest


def _tiles(diagnostics: Diagnostics, facts: Facts) -> str:
    d = diagnostics
    tiles = {"rows": count(d.n_rows)}
    if d.effective_rows is not None:
        more = d.effective_rows > d.n_rows
        words = "independent rows would tell as much" + (": successive errors cancel" if more else "")
        tiles[words] = number(d.effective_rows, 3)
    if facts.has_states:
        tiles["states visited"] = f"{count(facts.n_features - len(d.unseen))} of {count(facts.n_features)}"
    elif d.rank is not None:
        tiles["directions of the features seen"] = f"{count(d.rank)} of {count(facts.n_features)}"
    if _explained(d):
        tiles["of the value's variance explained"] = _explained(d)
    cells = (f"<li><b>{escape(text)}</b> {name}</li>" for name, text in tiles.items())
    return f'<ul class="counts facts" aria-label="In short">{joined(cells)}</ul>'


def _figures(panels: Sequence[Panel]) -> str:
    if not panels:
        return "<p>There is nothing to draw.</p>"
    return f'<div class="panels">\n{joined(drawn(panel) for panel in panels)}\n</div>'


def _settings(diagnostics: Diagnostics, facts: Facts) -> dict[str, str]:
    settings = {key: value for key, value in diagnostics.settings.items() if key != "name" and value is not None}
    own = [remark for remark in diagnostics.remarks if remark not in facts.data_remarks]
    return {
        "Algorithm": escape(_algorithm(diagnostics)),
        **{_words(key): escape(_plain(value)) for key, value in settings.items()},
        "Discount": f"{facts.discount:g}",
        "Remarks": _bullets(own),
    }


def _data(diagnostics: Diagnostics, facts: Facts) -> dict[str, str]:
    n = diagnostics.n_rows
    waiting = f", of which {count(diagnostics.n_waiting)} wait for the rest of their batch"
    return {
        "Rows": f"{count(n)}{waiting if diagnostics.n_waiting else ''}",
        "Terminated": f"{count(facts.n_terminated)}: nothing follows",
        "Truncated": f"{count(facts.n_truncated)}: the value of the successor counts",
        "Mean reward": number(facts.mean_reward, 4),
        "Autocorrelation": ""
        if diagnostics.autocorrelation is None
        else f"{number(diagnostics.autocorrelation, 3)}: so many rows tell as much as an independent one",
        "States not visited": _unseen(diagnostics) if facts.has_states else "",
        "Remarks": _bullets(facts.data_remarks) or "nothing to remark",
    }


def _features(diagnostics: Diagnostics, facts: Facts) -> dict[str, str]:
    d = diagnostics
    return {
        "Kind": escape(f"{facts.features.get('kind', 'of your own code')}, {plural(facts.n_features, 'feature')}"),
        "Rank": "" if d.rank is None else f"{count(d.rank)} of {count(facts.n_features)}",
        "Condition number": "" if d.condition_number is None else number(d.condition_number, 3),
        "Largest norm": "" if d.largest_norm is None else f"{number(d.largest_norm, 3)} (the paper asks for at most 1)",
        "Explained": f"{_explained(d)} of the variance of the value, on the pilot rows"
        if _explained(d)
        else "it cannot be told how much: the value varies too little",
        "Never used": "" if facts.has_states or not d.unseen else _unseen(d),
        "As JSON": folded("Settings of the features", dict(facts.features)),
    }


def _unseen(diagnostics: Diagnostics) -> str:
    unseen = diagnostics.unseen
    if not unseen:
        return "none"
    shown = ", ".join(map(str, unseen[:_MOST_UNSEEN]))
    more = f" and {count(len(unseen) - _MOST_UNSEEN)} more" if len(unseen) > _MOST_UNSEEN else ""
    return f"{count(len(unseen))}: {shown}{more}"


def _explained(diagnostics: Diagnostics) -> str:
    share, error = diagnostics.explained, diagnostics.explained_error
    if share is None or not isfinite(share):
        return ""
    if error is None or not isfinite(error):
        return f"{100 * share:.3g} %"
    return f"{100 * share:.3g} % ± {100 * error if error > _LEAST_SHARE else 0:.2g} %"


def _algorithm(diagnostics: Diagnostics) -> str:
    name = str(diagnostics.settings["name"])
    return "closed form (LSTD)" if name == "closed_form" else name.upper()


def _words(key: str) -> str:
    return escape(key.replace("_", " ").capitalize())


def _plain(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else count(value)


def _bullets(remarks: Sequence[str]) -> str:
    return f"<ul>{joined(f'<li>{escape(remark)}</li>' for remark in remarks)}</ul>" if remarks else ""


def _listed(entries: Mapping[str, str]) -> str:
    rows = (f"<dt>{name}</dt> <dd>{text}</dd>" for name, text in entries.items() if text)
    return f"<dl>\n{joined(rows)}\n</dl>"
