"""Figure 2: VRTD on Frozen Lake, from ones and from zeros."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from vrtd.experiments.batch_sizes import (
    MUCH_SLOWER,
    MUCH_SMALLER,
    agreement,
    bars,
    convergence,
    falls,
    improves,
    measure,
    slows,
)
from vrtd.experiments.evidence import Claim, Comparison
from vrtd.experiments.experiment import Experiment, Figure, Tables
from vrtd.experiments.frozen_lake.sweep import SEEDS, STARTS, settings
from vrtd.experiments.tables import Table, rows_where

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["CLAIMS", "EXPERIMENT"]


def _draw_convergence(start: str, axes: Axes, tables: Tables) -> None:
    convergence(axes, tables["curves"], mdp_seed=0, theta_0=STARTS[start])


def _draw_floors(axes: Axes, tables: Tables) -> None:
    floors = rows_where(tables["floors"], theta_0=STARTS["ones"])
    bars(
        axes,
        floors,
        [(f"lake {s}, {rows_where(floors, mdp_seed=s)['n_runs'][0]} runs", {"mdp_seed": s}) for s in SEEDS],
    )


def _draw_0_and_beyond(compare: Callable[[Table], list[Comparison]], tables: Mapping[str, Tables]) -> list[Comparison]:
    """The paper shows one lake: here draw 0, with all the runs. The start is forgotten in the end, so one is enough."""
    floors = rows_where(tables["frozen-lake"]["floors"], theta_0=STARTS["ones"])
    others = {name: column[floors["mdp_seed"] > 0] for name, column in floors.items()}
    beyond = [replace(comparison, stated=False) for comparison in compare(others)]
    return [*compare(rows_where(floors, mdp_seed=0)), *beyond]


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

CLAIMS = (
    Claim(
        name="figure-2-much-smaller",
        place="Figure 2; Appendix, Frozen Lake",
        statement="VRTD reaches a much smaller error than TD.",
        test=(
            "The simulated error averaged over the last 10,000 updates, VRTD against TD; at most "
            f"{MUCH_SMALLER:g} of TD's counts as much smaller."
        ),
        needs=("frozen-lake",),
        evidence=lambda tables: _draw_0_and_beyond(partial(improves, basis="simulated"), tables),
        agreement=lambda tables: agreement(tables["frozen-lake"]["floors"]),
    ),
    Claim(
        name="figure-2-error-falls",
        place="Figure 2, right; Appendix, Frozen Lake",
        statement="Larger batches give smaller errors.",
        test="The simulated error averaged over the last 10,000 updates, at each batch size against the one before it.",
        needs=("frozen-lake",),
        evidence=lambda tables: _draw_0_and_beyond(partial(falls, basis="simulated"), tables),
        agreement=lambda tables: agreement(tables["frozen-lake"]["floors"]),
    ),
    Claim(
        name="figure-2-not-much-slower",
        place="Figure 2, left; Appendix, Frozen Lake",
        statement="Larger batches do not slow the convergence down much.",
        test=(
            "Pseudo-gradients until the expected error is twice the one at which TD settles; more than "
            f"{MUCH_SLOWER:g} times TD's count as much slower. Where the error begins below that it is not asked."
        ),
        needs=("frozen-lake",),
        evidence=lambda tables: slows(tables["frozen-lake"]["floors"]),
        agreement=lambda tables: agreement(tables["frozen-lake"]["floors"]),
    ),
)
