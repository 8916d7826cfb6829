"""The page of a comparison: what to use first, then who did how well where, then every problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from vrtd.report.html import Panel, document, drawn, folded, joined
from vrtd.report.numbers import count, number, plural
from vrtd.tournament.cell import TournamentSize
from vrtd.tournament.entrants import Entrant
from vrtd.tournament.problems import AIMS, TournamentProblem
from vrtd.tournament.standings import Advice, Standing

Cells = Mapping[tuple[str, str], Mapping[str, Any]]
_MOST_NAMED = 4  # algorithms that are not told from the best
ALONE, LOST_MORE = "ahead of all others", "what is not told from it was lost more often"


def page(
    advice: Sequence[Advice],
    overall: Mapping[str, Sequence[Standing]],
    cells: Cells,
    panels: Mapping[str, Sequence[Panel]],
    problems: Mapping[str, TournamentProblem],
    entrants: Mapping[str, Entrant],
    size: TournamentSize,
    manifest: Mapping[str, Any],
) -> str:
    title = "Which algorithm should I use?"
    body = f"""<header>
<h1>{title}</h1>
<p>{plural(len(entrants), "algorithm")} on {plural(len(problems), "problem")}, {count(size.n_samples)} samples each.
Every algorithm tried {plural(size.n_trials, "setting")} on every problem with {plural(size.n_tuning_runs, "run")} each;
what is shown are {plural(size.n_runs, "run")} with the best of them, on other transitions, the same for all.
{_not_tuned(entrants)}</p>
</header>
<main>
<section aria-label="What to use">
{_advice(advice, list(overall))}
</section>
<section aria-labelledby="who">
<h2 id="who">Who did how well</h2>
<p class="quiet">Mean error at the end as a share of that of the start. ✗: the error grew; or so many of the runs ended
with more than a hundred times the error they began with. Behind a name above: on how many problems either happened.</p>
{joined(_standings(aim, found, cells, problems, entrants) for aim, found in overall.items())}
<div class="panels">
{joined(drawn(panel) for panel in panels.get("", ()))}
</div>
</section>
{joined(_problem(problem, cells, entrants, panels.get(name, ())) for name, problem in problems.items())}
<section aria-labelledby="how">
<h2 id="how">How it was done</h2>
{_method(size)}
</section>
</main>
<footer>
{folded("This comparison: size, versions and machine", manifest)}
</footer>"""
    return document(title, body, "comparison.css")


def _not_tuned(entrants: Mapping[str, Entrant]) -> str:
    """Which algorithms have settings of their own."""
    names = [name for name, entrant in entrants.items() if entrant.given is not None]
    return f"Not tuned, because they were given with their settings: {escape(', '.join(names))}." if names else ""


def _advice(advice: Sequence[Advice], aims: Sequence[str]) -> str:
    rows = []
    for each in advice:
        answers = "".join(
            f'<td data-aim="{escape(AIMS[aim])}">{_answer(each, aim)}</td>' if aim in each.standings else "<td></td>"
            for aim in aims
        )
        situation, why = escape(each.situation), escape(each.why)
        rows.append(f'<tr><th scope="row"><b>{situation}</b><br><span class="quiet">{why}</span></th>{answers}</tr>')
    return f'<div class="answers">{_table("What to use", ("You have", *(AIMS[aim] for aim in aims)), rows)}</div>'


def _answer(advice: Advice, aim: str) -> str:
    best, close = advice.answer(aim), [_named(standing) for standing in advice.rivals(aim)]
    more = len(close) - _MOST_NAMED
    named = ", ".join(close[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    where = f"{_rank(best)} of {len(advice.standings[aim])}, {plural(advice.n_problems[aim], 'problem')}"
    alone = sum(standing.is_best for standing in advice.standings[aim]) == 1
    not_told = f"not told from it: {escape(named)}" if close else ALONE if alone else LOST_MORE
    return f'<b>{escape(_named(best))}</b><br><span class="quiet">mean rank {where}<br>{not_told}</span>'


def _named(standing: Standing) -> str:
    """With a mark if it was lost."""
    return f"{standing.entrant} ✗{standing.n_lost}" if standing.n_lost else standing.entrant


def _standings(
    aim: str,
    overall: Sequence[Standing],
    cells: Cells,
    problems: Mapping[str, TournamentProblem],
    entrants: Mapping[str, Entrant],
) -> str:
    where = [name for name, problem in problems.items() if aim in problem.aims]
    rows = []
    for each in overall:
        entrant = entrants[each.entrant]
        needs = ("data set" if entrant.uses_data_set else "stream") + (", d²" if entrant.is_quadratic else ", d")
        texts = []
        for p in where:
            found = cells[p, each.entrant]["aims"][aim]
            lost, share = found["n_diverged"][-1], found["mean"][-1] / found["initial_error"]
            mark = f"✗ {lost} of {len(found['finals'])}" if lost else "✗ " if share > 1.0 else ""
            texts.append(f"<td>{mark if lost else mark + number(share, 2)}</td>")
        name, what = escape(each.entrant), escape(entrant.words)
        head = f'<th scope="row">{name}<br><span class="quiet">{what}</span></th>'
        rows.append(f"<tr>{head}<td>{needs}</td><td>{_rank(each)}</td>{''.join(texts)}</tr>")
    heads = ("Algorithm", "Needs", "Mean rank", *(problems[p].title for p in where))
    return f"<h3>{escape(AIMS[aim])}</h3>\n{_table(AIMS[aim], heads, rows)}"


def _problem(problem: TournamentProblem, cells: Cells, entrants: Mapping[str, Entrant], panels: Sequence[Panel]) -> str:
    mark = " (importance ratios)" if problem.is_off_policy else ""
    tables = joined(_settings(problem.name, aim, cells, entrants) for aim in problem.aims)
    return f"""<section aria-labelledby="problem-{problem.name}">
<h2 id="problem-{problem.name}">{escape(problem.title)}{mark}</h2>
<div class="panels">
{joined(drawn(panel) for panel in panels)}
</div>
<details><summary>Errors, settings and costs of all {len(entrants)}</summary>
{tables}
</details>
</section>"""


def _settings(name: str, aim: str, cells: Cells, entrants: Mapping[str, Entrant]) -> str:
    rows = []
    for entrant in sorted(entrants, key=lambda entrant: cells[name, entrant]["aims"][aim]["mean"][-1]):
        cell = cells[name, entrant]
        found = cell["aims"][aim]
        trial = cell["trials"][found["chosen"]]
        chosen = {key: value for key, value in trial["settings"].items() if value is not None}
        texts = (
            ", ".join(f"{key} {_short(value)}" for key, value in chosen.items() if key != "name")
            + _remark(entrants[entrant], cell, found["chosen"]),
            f"{number(found['mean'][-1], 3)} ± {number(2 * found['standard_error'][-1], 2)}",
            f"{found['n_diverged'][-1]} of {len(found['finals'])}",
            number(cell["seconds_per_gradient"] * 1e9, 2),
        )
        cells_text = "".join(f"<td>{escape(text)}</td>" for text in texts)
        rows.append(f'<tr><th scope="row">{escape(entrant)}</th>{cells_text}</tr>')
    heads = ("Algorithm", "Settings that were best", "Error at the end", "Diverged", "ns a pseudo-gradient")
    return f"<h3>{escape(AIMS[aim])}</h3>\n{_table(AIMS[aim], heads, rows)}"


def _remark(entrant: Entrant, cell: Mapping[str, Any], chosen: int) -> str:
    if entrant.given is not None:
        return " (not tuned)"
    mains = [trial["main"] for trial in cell["trials"]]
    return " (edge of the grid)" if mains[chosen] in (min(mains), max(mains)) else ""


def _method(size: TournamentSize) -> str:
    return f"""<p>Run i of every algorithm sees the same transitions of one trajectory; one that comes back to a data
set gets these {count(size.n_samples)} as one, and {count(size.n_passes)} pseudo-gradients for each. Step sizes
are tried on a grid from 2⁻¹⁰ to 2⁵, in units of the power of max |φ| with which they must grow for the same
effect on scaled features, and the ridge of least squares from 10⁻⁴ to 10³; further hyperparameters take three
values each, within the same number of settings, as long as that leaves four points of the grid. Settings
are chosen for each aim by the error at the end, so a curve is tuned for its last point. An algorithm that was
given as an object keeps its settings.</p>
<p>To solve the TD equation is to bring the mean squared projected Bellman error to 0; on a simulator such as
Mountain Car, whose values and equation are not known, it is |E δφ|² on 100,000 transitions that no run sees. On a data
set it is the data's own equation that is to be solved. To know the values is to bring the mean of (φᵀθ -
V)² over the visited states down, of which the solution of the equation is not the minimum: traces lead to
another point, and a run may pass the minimum on its way.</p>
<p>Ranks are of mean errors over runs; a diverged run counts as a hundred times the error of the start;
errors within 10⁻⁶ of each other share a rank. An interval is that of Student's t over problems, which are
few, and of few families: it is about problems like these. "Not told from it": a t test of the difference of
the ranks, corrected for all pairs, at 5 %; fewer than three problems tell nothing. Of those that are not
told from the best, the one that was lost least often is named. A rank depends on who else takes part. "No
tuning" takes, on each problem, the setting that was best on average over the other problems, on the runs of
the tuning. Seconds are those of many runs of one compiled loop that fits every problem, divided by the
runs.</p>"""


def _table(label: str, heads: Sequence[str], rows: Sequence[str]) -> str:
    # A box that scrolls must be reached by the keyboard.
    return f"""<div class="scroll" role="region" aria-label="{escape(label)}" tabindex="0">
<table>
<thead><tr>{"".join(f'<th scope="col">{escape(head)}</th>' for head in heads)}</tr></thead>
<tbody>
{joined(rows)}
</tbody>
</table>
</div>"""


def _rank(standing: Standing) -> str:
    return f"{standing.mean_rank:.1f} [{standing.low:.1f}, {standing.high:.1f}]"


def _short(value: Any) -> str:
    return number(value, 3) if isinstance(value, float) else str(value)
