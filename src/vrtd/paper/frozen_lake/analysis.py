"""Figure 2: VRTD on Frozen Lake, from ones and from zeros."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from vrtd.paper.batch_sizes import MUCH_SMALLER, agreement, bars, claims, convergence, improves, measure
from vrtd.paper.evidence import Claim, NumberCheck
from vrtd.paper.experiment import Experiment
from vrtd.paper.frozen_lake.sweep import SEEDS, STARTS, settings
from vrtd.plots import Figure
from vrtd.tables import Table, Tables, rows_where

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _draw_convergence(start: str, axes: Axes, tables: Tables) -> None:
    convergence(axes, tables["curves"], mdp_seed=0, theta_0=STARTS[start])


def _draw_floors(axes: Axes, tables: Tables) -> None:
    floors = rows_where(tables["floors"], theta_0=STARTS["ones"])
    bars(
        axes,
        floors,
        [(f"lake {s}, {rows_where(floors, mdp_seed=s)['n_runs'][0]} runs", {"mdp_seed": s}) for s in SEEDS],
    )


def _draw_0_and_beyond(compare: Callable[[Table], list[NumberCheck]], floors: Table) -> list[NumberCheck]:
    """The paper shows one lake: here draw 0, with all the runs. The start is forgotten in the end, so one is enough."""
    part = rows_where(floors, theta_0=STARTS["ones"])
    others = {name: column[part["mdp_seed"] > 0] for name, column in part.items()}
    beyond = [replace(comparison, stated=False) for comparison in compare(others)]
    return [*compare(rows_where(part, mdp_seed=0)), *beyond]


EXPERIMENT = Experiment(
    name="frozen-lake",
    title="Batch sizes on Frozen Lake",
    place="Figure 2, Appendix",
    question="VRTD reaches much smaller errors than TD, and larger batches smaller ones, without much slowing down.",
    method=(
        "The 4 x 4 map, random transition probabilities and features, discount 0.95, step 0.1, one trajectory from the "
        "start cell, 120,000 pseudo-gradients. Chosen here: holes and the goal are visited for one step before the "
        "return; five draws, of which draw 0 is the figure and the other four take a fifth of the runs; from theta = "
        "ones, and from zeros, where the error begins at 0.5 to 3.2 times the one at which TD settles."
    ),
    weight=6.0,
    settings=settings,
    measure=measure,
    figures=[
        *(
            Figure(
                f"convergence-{start}",
                f"Mean over runs with a band of two standard errors, lake 0, from theta = {start}. Dashed: the exact "
                "expected error of TD; dotted: an approximation for VRTD.",
                "curves",
                partial(_draw_convergence, start),
            )
            for start in STARTS
        ),
        Figure(
            "floors",
            "Mean over the last 10,000 updates with an interval of two standard errors, from theta = ones; the bars "
            "across are the expected values, for VRTD approximate.",
            "floors",
            _draw_floors,
        ),
    ],
)


def _floors(tables: Mapping[str, Tables]) -> Table:
    return tables["frozen-lake"]["floors"]


CLAIMS = (
    *claims("frozen-lake", "2", "On Frozen Lake", "simulated", _floors, _draw_0_and_beyond),
    Claim(
        name="figure-2-much-smaller",
        place="Figure 2; the text on it",
        statement="On Frozen Lake VRTD settles at a much smaller error than TD.",
        test=(
            "The simulated error averaged over the last 10,000 updates, VRTD with each batch size against TD. The "
            f"criterion is ours: at most {MUCH_SMALLER:g} of TD's error is much smaller."
        ),
        needs=("frozen-lake",),
        evidence=lambda tables: _draw_0_and_beyond(partial(improves, basis="simulated"), _floors(tables)),
        agreement=lambda tables: agreement(_floors(tables)),
    ),
)
