"""Claims on the statements of the paper: the ratio of their two sides, and figures of it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from vrtd.paper.bounds.statements import FAR_ABOVE
from vrtd.paper.evidence import AT_MOST_1, SAME, NumberCheck
from vrtd.paper.experiment import ClaimTest, Draw
from vrtd.tables import Tables, rows, rows_where

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Our criterion for an error that does not vanish: with linear convergence the ratio would be far smaller.
STILL_THERE = 0.5
# Our criterion for a chain that has forgotten its first state: the distance to stationarity is below this.
FORGOTTEN = 0.1

VARIANTS = {"printed": ("x", "as printed"), "repaired": ("o", "repaired"), "sharp": ("^", "sharpened")}


# Figures


def _draw_slack(axes: Axes, tables: Tables) -> None:
    tried = rows_where(tables["statements"], conditions_hold="yes")
    shown = {name: column[tried["left"] > 0.0] for name, column in tried.items()}
    names = list(dict.fromkeys(shown["statement"].tolist()))
    for k, (variant, (mark, label)) in enumerate(VARIANTS.items()):
        part = rows_where(shown, variant=variant)
        heights = [names.index(name) + 0.25 * (k - 1) for name in part["statement"].tolist()]
        axes.plot(part["left"] / part["right"], heights, mark, markersize=3.5, alpha=0.6, label=label)
    for k in range(0, len(names), 2):  # shade every other row
        axes.axhspan(k - 0.5, k + 0.5, color="#b0b0b0", alpha=0.2, linewidth=0)
    axes.set_yticks(range(len(names)), names, fontsize="small")
    _finish(axes, "left side / right side", n_columns=3)
    axes.set_xlim(1e-9, 1e9)  # smaller left sides are rounding errors


def _draw_steps(axes: Axes, tables: Tables) -> None:
    whole = tables["experiments"]
    names = list(dict.fromkeys(whole["problem"].tolist()))
    for features, mark in (("raw", "o"), ("normalised", "s")):
        part = rows_where(whole, features=features)
        for theorem, fill in (("1", "full"), ("2", "none")):
            x, label = part["step_size"] / part[f"theorem{theorem}_limit"], f"Theorem {theorem}, {features} features"
            axes.plot(x, names, mark, markersize=5, fillstyle=fill, label=label)
    _finish(axes, "step of the experiments / largest step of the theorem", n_columns=2)


def _finish(axes: Axes, x_label: str, n_columns: int) -> None:
    axes.axvline(1.0, color="black", linewidth=1.0)
    axes.set_xscale("log")
    axes.invert_yaxis()
    axes.set_xlabel(x_label)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize="small", ncols=n_columns, loc="lower center", bbox_to_anchor=(0.4, 1.0))


FIGURES: dict[tuple[str, str], Draw] = {("slack", "statements"): _draw_slack, ("steps", "experiments"): _draw_steps}


# Comparisons


def _printed(tables: Tables, statement: str) -> list[dict[str, Any]]:
    """Return the rows of a statement as printed whose conditions hold, with `left / right` as the ratio."""
    part = rows_where(tables["statements"], statement=statement, variant="printed", conditions_hold="yes")
    return rows(part | {"ratio": part["left"] / part["right"]})


def _is_at_most(statements: tuple[str, ...], quantity: str, tables: Tables) -> list[NumberCheck]:
    """Check that the left side is at most the right side."""
    checks = []
    for statement in statements:
        for row in _printed(tables, statement):
            where = f"{quantity} ({statement}, {row['chain']}, {row['parameters']})"
            checks.append(NumberCheck(row["family"], where, row["ratio"], below=AT_MOST_1, basis=row["basis"]))
    return checks


def _is_counted(tables: Tables) -> list[NumberCheck]:
    """Check the count for each target; targets above the first error are tested beyond the statement."""
    checks = []
    for row in _printed(tables, "TD, trajectory, count"):
        target, quantity = row["parameters"], f"bound / target ({row['chain']})"
        checks.append(NumberCheck(target, quantity, row["ratio"], below=AT_MOST_1, stated=target != FAR_ABOVE))
    return checks


def _is_twice_the_contraction(tables: Tables) -> list[NumberCheck]:
    quantity = "lambda_A of Section 3.2 / contraction"
    return [
        NumberCheck(row["family"], f"{quantity} ({row['chain']})", row["ratio"], above=1.0)
        for row in _printed(tables, "lambda_A")
    ]


def _is_still_there(tables: Tables) -> list[NumberCheck]:
    checks = []
    for row in rows(tables["floors"]):
        quantity = f"error after {2 * row['n_epochs']} epochs / after {row['n_epochs']}"
        quantity += f" ({row['chain']}, {row['sampling']})"
        share = row["later_error"] / row["error"]
        checks.append(NumberCheck(row["family"], quantity, share, above=STILL_THERE, basis=row["basis"]))
    return checks


def _mixes(tables: Tables) -> list[NumberCheck]:
    """Check that chains mix; periodic ones, which have no bound, are tested beyond the statement."""
    checks = []
    for row in rows(tables["mixing"]):
        quantity = f"distance to stationarity after {row['lag']} steps"
        if row["ergodic"] == "yes":
            share = row["distance"] / row["bound"]
            checks.append(NumberCheck(row["chain"], f"{quantity} / bound", share, below=AT_MOST_1))
        else:
            checks.append(NumberCheck(row["chain"], quantity, row["distance"], below=FORGOTTEN, stated=False))
    return checks


def _is_fixed_point(tables: Tables) -> list[NumberCheck]:
    checks = []
    for row in rows(tables["fixed_points"]):
        if row["mean"] != 0.0:
            quantity, share = f"mean of T v / mean of v ({row['chain']})", row["mean_after"] / row["mean"]
            checks.append(NumberCheck(row["family"], quantity, share, above=1.0 - SAME, below=1.0 + SAME))
    return checks


def _is_out_of_range(tables: Tables) -> list[NumberCheck]:
    """Check that the experiments are outside the conditions of the theorems, with the features as described.

    The lakes are run only on trajectories, so only Theorem 2 applies to them.
    """
    checks = []
    for row in rows(rows_where(tables["experiments"], features="raw")):
        family, problem = row["family"], row["problem"]
        norm = f"largest |phi| ({problem})"
        checks.append(NumberCheck(f"features of {family}", norm, row["largest_norm"], above=1.0))
        for k in ("1", "2") if family == "random MDPs" else ("2",):
            share, quantity = row["step_size"] / row[f"theorem{k}_limit"], f"step / limit of Theorem {k} ({problem})"
            checks.append(NumberCheck(f"steps on {family}", quantity, share, above=1.0))
    return checks


def _at_most(quantity: str, *statements: str) -> ClaimTest:
    return ClaimTest(partial(_is_at_most, statements, quantity))


TESTS = {
    "theorem-1-epoch": _at_most("error / right side", "Section 4.1, one epoch"),
    "theorem-2": _at_most("error / bound", "Theorem 2"),
    "corollary-2": _at_most("error reached / target", "Corollary 2"),
    "lemma-1": _at_most("bias / bound", "Lemma 1"),
    "lemmas-2-4": _at_most("largest / bound", "Lemma 2", "Lemma 3", "Lemma 4"),
    "lemma-5": _at_most("distance / bound", "Lemma 5"),
    "epoch-markov": _at_most("error / right side", "Section 4.2, one epoch"),
    "lambda-a-definition": ClaimTest(_is_twice_the_contraction),
    "td-iid-bound": _at_most("error / bound", "TD, i.i.d.", "TD, i.i.d., count"),
    "td-markov-bound": _at_most("error / bound", "TD, trajectory"),
    "td-markov-count": ClaimTest(_is_counted),
    "exact-anchor-linear": _at_most("error / C1^m of the first", "Exact gradients"),
    "no-bias-iid": _at_most("squared mean error / C1^m of the first", "No bias"),
    "fixed-step-floor": ClaimTest(_is_still_there),
    "assumption-3-finite-chains": ClaimTest(_mixes),
    "scalar-fixed-point": ClaimTest(_is_fixed_point),
    "experiments-in-theorems-range": ClaimTest(_is_out_of_range),
}
