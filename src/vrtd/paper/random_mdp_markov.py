"""Figure 2: batch sizes on the random MDP on a trajectory, and whether correlated samples cost accuracy.

A lazy chain, whose successive samples are similar, is added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vrtd.algorithms import TD, VRTD, Algorithm
from vrtd.arrays import Floats
from vrtd.paper import batch_sizes, random_mdp_iid
from vrtd.paper.evidence import NumberCheck, average_runs
from vrtd.paper.experiment import ClaimTest, Runner, Settings, build_problem, make_algorithm, make_experiment
from vrtd.tables import Table, Tables, rows, rows_where, table
from vrtd.theory import stationary_second_moment

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LAZY = "raw, lazy chain"
# Two compiled loops may round differently; runs on different paths differ by far more.
_SAME_RUN = 1e-9


def settings(n_runs: int, seed: int) -> Settings:
    """Return the settings of the experiment."""
    lazy = {"problem": "random_mdp", "arguments": {"seed": 0, "laziness": 0.9}, "n_runs": n_runs}
    same = {"sampling": "markov", "lazy": lazy, "radius": 100.0, "n_same": 20_000}
    return {**random_mdp_iid.settings(n_runs, seed), **same}


def measure(settings: Settings, runner: Runner) -> dict[str, Table]:
    """Measure curves and floors, compare them with independent samples, and count runs that change."""
    n_methods, n_runs = len(settings["batch_sizes"]), settings["lazy"]["n_runs"]
    also = n_runs * n_methods * (settings["n_gradients"] + 2 * settings["n_same"])
    tables = batch_sizes.measure(settings, runner, also)
    samplings = _measure_samplings(settings, tables["floors"], runner)
    return tables | {"samplings": samplings, "identities": _count_different_runs(settings, runner)}


def _measure_samplings(settings: Settings, floors: Table, runner: Runner) -> Table:
    """Return the floors on a trajectory beside the exact floors with independent samples.

    The floors of the lazy chain are included.
    """
    step, lazy, lazy_rows = settings["step_size"], settings["lazy"], []
    problem = build_problem(lazy)
    for M in settings["batch_sizes"]:
        result = runner.simulate(
            problem, make_algorithm(step, M), n_runs=lazy["n_runs"], n_gradients=settings["n_gradients"],
            seed=settings["seed"], checkpoints=batch_sizes.choose_checkpoints(settings, M)[0],
        )  # fmt: skip
        labels = {"mdp_seed": 0, "features": LAZY, "batch_size": M, "n_runs": result.n_runs}
        lazy_rows.append(labels | average_runs(result.values("squared_error").mean(axis=1)))
    iid = [
        float(stationary_second_moment(problem, step, M).trace())
        for problem in map(build_problem, (*settings["cells"], lazy))
        for M in settings["batch_sizes"]
    ]
    both = {name: np.concatenate([floors[name], column]) for name, column in table(lazy_rows).items()}
    return both | {"iid": np.array(iid)}


def _count_different_runs(settings: Settings, runner: Runner) -> Table:
    """Count the runs that change if Algorithm 2 projects, and if TD is written as VRTD with a batch of one."""
    problem = build_problem({"problem": "random_mdp", "arguments": {"seed": 0}})
    step, radius, n_runs = settings["step_size"], settings["radius"], settings["lazy"]["n_runs"]

    def simulate(method: Algorithm) -> Floats:
        n_gradients, seed = settings["n_same"], settings["seed"]
        return runner.simulate(problem, method, n_runs=n_runs, n_gradients=n_gradients, seed=seed, checkpoints=1).theta

    records = []
    for M in settings["batch_sizes"]:
        theta = simulate(TD(step) if M == 1 else VRTD(step, M))
        other = simulate(VRTD(step, 1) if M == 1 else VRTD(step, M, radius))
        # NaN counts as different.
        differs = ~(np.abs(theta - other).max(axis=1) <= _SAME_RUN * np.abs(theta).max(axis=1))
        what = "VRTD with a batch of one, instead of TD" if M == 1 else f"projection onto radius {radius:g}, or none"
        records.append({"what": what, "batch_size": M, "n_runs": n_runs, "n_different": int(differs.sum())})
    return table(records)


def _draw_samplings(axes: Axes, tables: Tables) -> None:
    whole = tables["samplings"]
    ratios = whole | {name: whole[name] / whole["iid"] for name in ("mean", "standard_error")}
    series: list[tuple[str, dict[str, Any]]] = [
        *((f"MDP {seed}", {"mdp_seed": seed, "features": "raw"}) for seed in random_mdp_iid.SEEDS),
        ("MDP 0, lazy", {"features": LAZY}),
    ]
    batch_sizes.draw_by_batch_size(axes, ratios, series, "error, trajectory / independent")
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_ylim(top=10.0)
    axes.legend(frameon=False, ncols=3, loc="upper left")


def is_above_iid(tables: Tables) -> list[NumberCheck]:
    """Check that the error on a trajectory exceeds that with independent samples at every batch size."""
    checks = []
    for row in rows(tables["samplings"]):
        is_lazy = row["features"] == LAZY
        condition = "the lazy chain 0.9 I + 0.1 P" if is_lazy else f"MDP {row['mdp_seed']}, {row['features']} features"
        quantity = f"error on a trajectory / error with independent samples, M = {row['batch_size']}"
        estimate, se = row["mean"] / row["iid"], row["standard_error"] / row["iid"]
        check = NumberCheck(
            condition, quantity, estimate, se, row["n_runs"], 1.0, basis="simulated", stated=not is_lazy
        )
        checks.append(check)
    return checks


def _is_td(tables: Tables) -> list[NumberCheck]:
    (row,) = rows(rows_where(tables["identities"], batch_size=1))
    quantity = f"of {row['n_runs']} runs, those that differ"
    return [NumberCheck("random MDP 0", quantity, float(row["n_different"]), below=0.5, basis="simulated")]


EXPERIMENT = make_experiment(
    "random-mdp-markov",
    settings,
    measure,
    weight=12.0,
    figures={**random_mdp_iid.FIGURES, ("samplings", "samplings"): _draw_samplings},
    claims=batch_sizes.make_claims("random-mdp-markov", "2", "On a trajectory", "simulated"),
    tests={
        "iid-error-below-markov": ClaimTest(is_above_iid, batch_sizes.agreement),
        "batch-of-one-is-td": ClaimTest(_is_td),
    },
)
