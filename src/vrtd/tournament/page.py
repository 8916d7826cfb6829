"""The page of a comparison: the answer, ranks, recommendations, errors on every problem, and settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vrtd.algorithms import VRTD
from vrtd.report import html
from vrtd.report.colours import as_css
from vrtd.report.numbers import count, number, plural
from vrtd.tournament.cell import Cell, TournamentSize
from vrtd.tournament.entrants import Entrant
from vrtd.tournament.problems import AIMS, TournamentProblem
from vrtd.tournament.standings import Advice, Standing

if TYPE_CHECKING:
    from vrtd.tournament.comparison import Comparison

_MOST_NAMED = 4  # algorithms that are statistically tied with the best
_N_SITUATIONS = 2  # in the short answer


def build_page(found: Comparison, panels: Sequence[html.Panel]) -> html.Page:
    """Return the page; `panels` are the figures of ranks and then that of errors."""
    size, problems, entrants = found.size, found.problems, found.entrants
    not_tuned = ", ".join(name for name, entrant in entrants.items() if entrant.given is not None)
    sizes = html.paragraph(
        f"{plural(len(entrants), 'algorithm')} on {plural(len(problems), 'problem')}, {count(size.n_samples)} samples "
        f"each. Every algorithm tried {plural(size.n_trials, 'setting')} on every problem with "
        f"{plural(size.n_tuning_runs, 'run')} each; what is shown are {plural(size.n_runs, 'run')} with the best of "
        "them, on other transitions, the same for all. ",
        f"Not tuned, because they were given with their settings: {not_tuned}." if not_tuned else "",
        style="quiet",
    )
    meaning = html.paragraph(
        "Mean error at the end as a share of that of the start; the stronger the blue, the better on this problem. ✗: "
        "the error grew, or so many of the runs ended with more than a hundred times the error they began with. Behind "
        "a name above: on how many problems either happened.",
        style="quiet",
    )
    standings = [_list_standings(found, aim) for aim in found.standings]
    errors = [html.section("Errors", "errors", html.figure(panels[-1]))] if panels else []
    return html.Page(
        "Which algorithm should I use?",
        html.join(*_describe_answer(found), sizes),
        html.join(
            html.section("Ranks", "ranks", html.figures(panels[:-1])),
            html.section("What to use", "use", _list_advice(found)),
            *errors,
            html.section("Results", "results", meaning, *standings),
            html.section("Settings and costs", "settings", *(_list_costs(found, each) for each in problems.values())),
            html.section("How it was done", "how", *(html.paragraph(text) for text in _describe_method(size))),
        ),
        "This comparison: size, versions and machine",
        found.manifest,
    )


def _describe_answer(found: Comparison) -> list[html.Html]:
    """Return the answer in short for each aim, and where VRTD stands."""
    sentences = []
    for aim in found.standings:
        answers = [(each, each.answer(aim)) for each in found.advice if aim in each.standings][:_N_SITUATIONS]
        best = [html.join(html.element("b", answer.algorithm), f" ({each.situation})") for each, answer in answers]
        if best:
            sentences.append(html.paragraph(f"{AIMS[aim]}, use ", html.join(*best, separator=" or "), "."))
    return [*sentences, html.paragraph(text) if (text := _describe_vrtd(found)) else html.EMPTY]


def _describe_vrtd(found: Comparison) -> str:
    """Return the places of the variants of VRTD by mean rank; empty if none takes part."""
    places = []
    for aim, ranked in found.standings.items():
        mine = [
            f"{standing.algorithm} {place}"
            for place, standing in enumerate(ranked, 1)
            if found.entrants[standing.algorithm].algorithm is VRTD
        ]
        places += [f"{AIMS[aim][0].lower()}{AIMS[aim][1:]}: {', '.join(mine)} of {len(ranked)}"] if mine else []
    return f"Where VRTD stands by mean rank, {'; '.join(places)}." if places else ""


def _list_advice(found: Comparison) -> html.Html:
    aims, rows = list(found.standings), []
    for each in found.advice:
        head = html.join(html.element("b", each.situation), html.LINE_BREAK, html.quiet(each.why))
        rows.append((head, *(_answer(each, aim) if aim in each.standings else "" for aim in aims)))
    return html.table("What to use", ("You have", *(AIMS[aim] for aim in aims)), rows, style="answers")


def _answer(advice: Advice, aim: str) -> html.Html:
    best, close = advice.answer(aim), [_mark_lost(standing) for standing in advice.rivals(aim)]
    more = f" and {len(close) - _MOST_NAMED} more" if len(close) > _MOST_NAMED else ""
    rank = f"mean rank {best.rank_text()} of {len(advice.standings[aim])}, {plural(advice.n_problems[aim], 'problem')}"
    others = advice.describe_rivals(aim, ", ".join(close[:_MOST_NAMED]) + more)
    notes = [html.quiet(note) for note in (rank, others, advice.describe_choice(aim)) if note]
    return html.join(html.element("b", _mark_lost(best)), *notes, separator=html.LINE_BREAK)


def _mark_lost(standing: Standing) -> str:
    return f"{standing.algorithm} ✗{standing.n_lost}" if standing.n_lost else standing.algorithm


def _list_standings(found: Comparison, aim: str) -> html.Html:
    where = {name: problem.title for name, problem in found.problems.items() if aim in problem.aims}
    ranked = found.standings[aim]
    shares = {name: [found.cells[name, each.algorithm].aims[aim].share for each in ranked] for name in where}
    rows: list[tuple[str | html.Entry, ...]] = []
    for standing in ranked:
        entrant = found.entrants[standing.algorithm]
        head = html.join(
            _key(found, standing.algorithm), standing.algorithm, html.LINE_BREAK, html.quiet(entrant.words)
        )
        needs = ("data set" if entrant.uses_data_set else "stream") + (", d²" if entrant.is_quadratic else ", d")
        entries: list[html.Entry] = []
        for problem in where:
            result = found.cells[problem, standing.algorithm].aims[aim]
            if result.n_diverged[-1]:
                entries.append(html.Entry(f"✗ {result.diverged_text}", "lost"))
            else:
                style = "lost" if result.share > 1.0 else f"heat-{_heat(result.share, shares[problem])}"
                text = html.aligned(("✗ " if result.share > 1.0 else "") + number(result.share, 2))
                entries.append(html.Entry(text, style))
        rows.append((head, needs, html.aligned(standing.rank_text()), *entries))
    heads = ("Algorithm", "Needs", "Mean rank", *where.values())
    return html.join(html.element("h3", AIMS[aim]), html.table(AIMS[aim], heads, rows, style="sticky"))


def _key(found: Comparison, algorithm: str) -> html.Html:
    """Return a line in the style that the algorithm has in the figures."""
    style = found.styles[algorithm]
    dashes = {"-": "solid", "--": "dashed", ":": "dotted", "-.": "double"}[style["linestyle"]]
    return html.key(as_css(style["color"]), dashes)


def _heat(share: float, shares: Sequence[float]) -> int:
    """Return the level of colour of an error: 4 if few algorithms have a smaller one on the problem, 0 if most have."""
    return 4 - 5 * sum(each < share for each in shares) // len(shares)


def _list_costs(found: Comparison, problem: TournamentProblem) -> html.Html:
    return html.fold(
        problem.title + (" (importance ratios)" if problem.is_off_policy else ""),
        *(_list_settings(found, problem.name, aim) for aim in problem.aims),
        anchor=f"problem-{problem.name}",
    )


def _list_settings(found: Comparison, problem: str, aim: str) -> html.Html:
    cells = {name: found.cells[problem, name] for name in found.entrants}
    rows = []
    for name in sorted(cells, key=lambda name: cells[name].aims[aim].mean[-1]):
        cell, result = cells[name], cells[name].aims[aim]
        settings = {key: value for key, value in cell.settings[result.chosen].items() if key != "name"}
        words = ", ".join(f"{key} {_shorten(value)}" for key, value in settings.items() if value is not None)
        error = f"{number(result.mean[-1], 3)} ± {number(2 * result.standard_error[-1], 2)}"
        remark, cost = _remark(found.entrants[name], cell, result.chosen), number(cell.seconds_per_gradient * 1e9, 2)
        rows.append((name, words + remark, error, result.diverged_text, cost))
    heads = ("Algorithm", "Settings that were best", "Error at the end", "Diverged", "ns a pseudo-gradient")
    return html.join(html.element("h3", AIMS[aim]), html.table(AIMS[aim], heads, rows))


def _remark(entrant: Entrant, cell: Cell, chosen: int) -> str:
    if entrant.given is not None:
        return " (not tuned)"
    return " (edge of the grid)" if cell.main[chosen] in (min(cell.main), max(cell.main)) else ""


def _shorten(value: Any) -> str:
    return number(value, 3) if isinstance(value, float) else str(value)


def _describe_method(size: TournamentSize) -> list[str]:
    return f"""Run i of every algorithm sees the same transitions of one trajectory; one that comes back to a data
set gets these {count(size.n_samples)} as one, and {count(size.n_passes)} pseudo-gradients for each. Step sizes
are tried on a grid from 2⁻¹⁰ to 2⁵, in units of the power of max |φ| with which they must grow for the same
effect on scaled features, and the ridge of least squares from 10⁻⁴ to 10³; further hyperparameters take three
values each, within the same number of settings, as long as that leaves four points of the grid. Exponential
steps, burn-ins and batches that grow are set from the number of samples of a run, which is known beforehand. Settings
are chosen for each aim by the error at the end, so a curve is tuned for its last point. An algorithm that was
given as an object keeps its settings.

To solve the TD equation is to bring the mean squared projected Bellman error to 0; on a simulator such as
Mountain Car, whose values and equation are not known, it is |E δφ|² on 100,000 transitions that no run sees. On a data
set it is the data's own equation that is to be solved. To know the values is to bring the mean of (φᵀθ -
V)² over the visited states down, of which the solution of the equation is not the minimum: traces lead to
another point, and a run may pass the minimum on its way.

Ranks are of mean errors over runs; a diverged run counts as a hundred times the error of the start;
errors within 10⁻⁶ of each other share a rank. An interval is that of Student's t over problems, which are
few, and of few families: it is about problems like these. "Statistically tied": a t test of the difference of
the ranks, corrected for all pairs, at 5 %; with fewer than three problems all are tied. Of those that are tied
with the best, the one that diverged least often is named. A rank depends on who else takes part. "No
tuning" takes, on each problem, the setting that was best on average over the other problems, on the runs of
the tuning. Seconds are those of many runs of one compiled loop that fits every problem, divided by the
runs.""".split("\n\n")
