"""Figure 1.5: the same on a trajectory, and whether correlated samples cost accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import TD, VRTD, Algorithm
from vrtd.paper import batch_sizes
from vrtd.paper.evidence import Claim, NumberCheck, over_runs
from vrtd.paper.experiment import Experiment, Runner, Settings
from vrtd.paper.random_mdp_iid.analysis import figures
from vrtd.paper.random_mdp_iid.sweep import SEEDS
from vrtd.paper.random_mdp_markov.sweep import LAZY, settings
from vrtd.plots import Figure
from vrtd.problems import LIBRARY, LinearProblem
from vrtd.tables import Table, Tables, rows, rows_where, table
from vrtd.theory import stationary_second_moment

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Two compiled loops may round differently; runs that take another path differ by far more.
_SAME = 1e-9


def measure(settings: Settings, runner: Runner) -> dict[str, Table]:
    n_methods, n_runs = len(settings["batch_sizes"]), settings["lazy"]["n_runs"]
    also = n_runs * n_methods * (settings["n_gradients"] + 2 * settings["n_same"])
    tables = batch_sizes.measure(settings, runner, also)
    lazy = list(_lazy(settings, runner))
    return tables | {
        "samplings": _samplings(settings, tables["floors"], lazy),
        "identities": _identities(settings, runner),
    }


def _samplings(settings: Settings, floors: Table, lazy: list[dict[str, Any]]) -> Table:
    """The floors on a trajectory beside the exact ones of independent samples."""
    problems = [_problem(cell) for cell in (*settings["cells"], settings["lazy"])]
    iid = [
        float(stationary_second_moment(problem, settings["step_size"], M).trace())
        for problem in problems
        for M in settings["batch_sizes"]
    ]
    kept = [{name: row[name] for name in lazy[0]} for row in rows(floors)]
    return table([*kept, *lazy]) | {"iid": np.array(iid)}


def _lazy(settings: Settings, runner: Runner) -> Iterator[dict[str, Any]]:
    """The same on a chain whose successive samples are alike."""
    problem = _problem(settings["lazy"])
    for M in settings["batch_sizes"]:
        window, _ = batch_sizes.checkpoints(settings, M)
        result = runner.simulate(
            problem, batch_sizes.algorithm(settings["step_size"], M), n_runs=settings["lazy"]["n_runs"],
            n_gradients=settings["n_gradients"], seed=settings["seed"], checkpoints=window,
        )  # fmt: skip
        labels = {"mdp_seed": 0, "features": LAZY, "batch_size": M, "n_runs": result.n_runs}
        yield labels | over_runs(result.values("squared_error").mean(axis=1))


def _problem(cell: Mapping[str, Any]) -> LinearProblem:
    problem: LinearProblem = LIBRARY[cell["problem"]](**cell["arguments"])
    return problem


def _identities(settings: Settings, runner: Runner) -> Table:
    """How many runs change when Algorithm 2 projects, and when TD is written as VRTD with a batch of one."""
    problem = LIBRARY["random_mdp"](seed=0)
    step, radius = settings["step_size"], settings["radius"]
    n_runs = settings["lazy"]["n_runs"]
    pairs: list[tuple[int, Algorithm, Algorithm]] = [
        (M, VRTD(step, M), VRTD(step, M, radius)) for M in settings["batch_sizes"] if M > 1
    ]

    def final(method: Algorithm) -> NDArray[np.float64]:
        return runner.simulate(
            problem, method, n_runs=n_runs, n_gradients=settings["n_same"], seed=settings["seed"], checkpoints=1
        ).theta

    found = []
    for M, left, right in [(1, TD(step), VRTD(step, 1)), *pairs]:
        theta, other = final(left), final(right)
        differs = ~(np.abs(theta - other).max(axis=1) <= _SAME * np.abs(theta).max(axis=1))  # NaN is not the same
        what = "VRTD with a batch of one, instead of TD" if M == 1 else f"projection onto radius {radius:g}, or none"
        found.append({"what": what, "batch_size": M, "n_runs": n_runs, "n_different": int(differs.sum())})
    return table(found)


def _draw_samplings(axes: Axes, tables: Tables) -> None:
    whole = tables["samplings"]
    sizes = np.unique(whole["batch_size"])
    places = np.arange(sizes.size)
    series: list[tuple[str, dict[str, Any]]] = [
        (f"MDP {seed}", {"mdp_seed": seed, "features": "raw"}) for seed in SEEDS
    ]
    for k, (label, where) in enumerate([*series, ("MDP 0, lazy", {"features": LAZY})]):
        part = rows_where(whole, **where)
        x = places + 0.7 * ((k + 0.5) / (len(SEEDS) + 1) - 0.5)
        error = 2 * part["standard_error"] / part["iid"]
        axes.errorbar(x, part["mean"] / part["iid"], error, fmt="o", markersize=3, capsize=2, label=label)
    axes.axhline(1.0, color="black", linewidth=0.8)
    axes.set_yscale("log")
    axes.set_ylim(top=10.0)
    axes.set_xticks(places, ["1 (TD)" if M == 1 else str(M) for M in sizes])
    axes.set_xlabel("batch size M")
    axes.set_ylabel("error, trajectory / independent")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, ncols=3, loc="upper left")


def iid_is_below(samplings: Table) -> list[NumberCheck]:
    """At every batch size the error on a trajectory exceeds that with independent samples."""
    found = []
    columns = (samplings[name].tolist() for name in samplings)
    for seed, features, M, n_runs, mean, standard_error, iid in zip(*columns, strict=True):
        is_lazy = features == LAZY
        condition = "the lazy chain 0.9 I + 0.1 P" if is_lazy else f"MDP {seed}, {features} features"
        quantity = f"error on a trajectory / error with independent samples, M = {M}"
        se = standard_error / iid
        found.append(
            NumberCheck(condition, quantity, mean / iid, se, n_runs, above=1.0, basis="simulated", stated=not is_lazy)
        )
    return found


def batch_of_one_is_td(identities: Table) -> list[NumberCheck]:
    part = rows_where(identities, batch_size=1)
    quantity = f"of {part['n_runs'][0]} runs, those that differ"
    return [NumberCheck("random MDP 0", quantity, float(part["n_different"][0]), below=0.5, basis="simulated")]


EXPERIMENT = Experiment(
    name="random-mdp-markov",
    title="Batch sizes on a random MDP, one trajectory",
    place="Figure 1.5 (the paper's second), Section 5",
    question=(
        "The same on a trajectory; and at every batch size the error is larger than with independent samples, because "
        "successive samples are correlated."
    ),
    method=(
        "As with independent samples, Algorithm 2 on one trajectory a run that starts in the stationary distribution. "
        "No projection: the table of identities counts the runs that one with radius 100 would change. Added: a lazy "
        "chain, 0.9 I + 0.1 P, whose successive samples are alike, as those of the dense chain are not."
    ),
    weight=12.0,
    settings=settings,
    measure=measure,
    figures=[
        *figures("Dashed: the exact error of TD; dotted: an approximation for VRTD.", ", for VRTD approximate"),
        Figure(
            "samplings",
            "The error on a trajectory divided by the exact one with independent samples, raw features, with an "
            "interval of two standard errors. Below 1 the trajectory is the better of the two.",
            "samplings",
            _draw_samplings,
        ),
    ],
)

CLAIMS = (
    *batch_sizes.claims(
        "random-mdp-markov",
        "1.5",
        "On a trajectory",
        "simulated",
        lambda tables: tables["random-mdp-markov"]["floors"],
    ),
    Claim(
        name="iid-error-below-markov",
        place="Section 5, on Figures 1 and 1.5",
        statement="At every batch size the error with independent samples is smaller than on a trajectory.",
        test="The simulated error on a trajectory against the exact one with independent samples.",
        needs=("random-mdp-markov",),
        evidence=lambda tables: iid_is_below(tables["random-mdp-markov"]["samplings"]),
        agreement=lambda tables: batch_sizes.agreement(tables["random-mdp-markov"]["floors"]),
        note=(
            "In a dense random chain the noise of successive samples is negatively correlated, so a trajectory helps. "
            "Where successive samples are alike it costs."
        ),
    ),
    Claim(
        name="batch-of-one-is-td",
        place="Section 3.2",
        statement="With a batch of one sample VRTD is TD.",
        test="Final parameters of the same runs under both.",
        kind="universal",
        proof="8. Smaller things that need a word",
        needs=("random-mdp-markov",),
        evidence=lambda tables: batch_of_one_is_td(tables["random-mdp-markov"]["identities"]),
    ),
)
