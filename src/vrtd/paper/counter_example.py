"""The paper's counter-example to an earlier analysis, which is right, and counter-examples to the paper itself.

Theorem 1 and Corollary 1 fail on chains that meet their conditions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from vrtd.algorithms import VRTD
from vrtd.arrays import Floats
from vrtd.paper.curves import finish_axes
from vrtd.paper.evidence import AT_MOST_1, SAME, NumberCheck, agrees, are_met, average_runs, ratio
from vrtd.paper.experiment import ClaimTest, Runner, Settings, make_experiment
from vrtd.plots import METRIC_LABELS, label_part
from vrtd.problems import LinearProblem, MarkovRewardProcess, random_mdp
from vrtd.tables import Table, Tables, rows, rows_where, table
from vrtd.theory import exact_curve, stationary_second_moment, vrtd_iid_bound, vrtd_iid_complexity, vrtd_iid_moments

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]

# A batch whose mean differs from that of v by less than this counts as having nearly the same mean.
NEAR = 0.1


def settings(n_runs: int, seed: int) -> Settings:
    """Return the settings of the experiment."""
    return {
        "seed": seed,
        "n_runs": n_runs,
        "uniform": {"bound": 3, "batch": [1, 2, -3], "n_batches": 700},
        # The next state is decided by a fair coin, the feature is 1 and the reward +1 or -1, so theta_star = 0.
        "coin": {"gamma": 0.5, "step_size": 0.02, "batch_size": 2000, "radius": 1.0, "n_epochs": 10},
        "mdp_seeds": [0, 1, 2, 3, 4],
        # Multiples of the smallest batch size that Theorem 1 allows.
        "batch_factors": [1.02, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0],
        "mdp_targets": [1e-2, 1e-3, 1e-4],
        "coin_targets": [1e-2, 1e-4, 1e-6],
        "gammas": [0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 0.9999],
    }


def measure(settings: Settings, runner: Runner) -> dict[str, Table]:
    """Compute both counter-examples; only the error of the coin is simulated as well."""
    problems = {f"random MDP {seed}": random_mdp(seed, normalize=True) for seed in settings["mdp_seeds"]}
    epochs, floor = _measure_coin(settings, runner)
    return {
        "moments": _compute_moments(settings["uniform"]),
        "batches": _draw_batches(settings["uniform"], settings["seed"]),
        "coin": epochs,
        "coin_floor": floor,
        "theorem1": table(row for name, s in problems.items() for row in _bound(name, s, settings["batch_factors"])),
        "corollary1": table(_plan(settings, problems)),
    }


def _moment(h: Fraction, k: int) -> Fraction:
    """Return E v^k for v uniform on [-h, h]."""
    return (h ** (k + 1) - (-h) ** (k + 1)) / (k + 1) / (2 * h)


def _compute_moments(uniform: Settings) -> Table:
    """Compute the first and second moment of v and of the batch in exact arithmetic."""
    h, batch, moments = Fraction(uniform["bound"]), [Fraction(v) for v in uniform["batch"]], []
    for name, k in (("mean", 1), ("mean square", 2)):
        of_v, of_batch = _moment(h, k), sum(v**k for v in batch) / len(batch)
        gap = of_batch - of_v
        row = {"moment": name, "of_v": float(of_v), "of_batch": float(of_batch), "difference": float(gap)}
        moments.append(row | {"as_fraction": str(gap)})
    return table(moments)


def _draw_batches(uniform: Settings, seed: int) -> Table:
    """Draw random batches of the same size: how much their mean and mean square differ from those of v."""
    h = uniform["bound"]
    v = np.random.default_rng(seed).uniform(-h, h, (uniform["n_batches"], len(uniform["batch"])))
    mean, square = (float(_moment(Fraction(h), k)) for k in (1, 2))
    return {"mean": v.mean(axis=1) - mean, "mean_square": (v**2).mean(axis=1) - square}


def make_coin(gamma: float) -> LinearProblem:
    """Return the chain with two states in which the next state is decided by a fair coin."""
    return LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], gamma), [[1.0], [1.0]])


def _measure_coin(settings: Settings, runner: Runner) -> tuple[Table, Table]:
    """Return the errors after each epoch and averaged over the epochs, with the bounds; theta_0 = theta_star."""
    chosen, n_runs = settings["coin"], settings["n_runs"]
    problem, a, M, n = make_coin(chosen["gamma"]), chosen["step_size"], chosen["batch_size"], chosen["n_epochs"]
    epochs, start = np.arange(1, n + 1), problem.theta_star
    options: dict[str, Any] = {"sampling": "iid", "n_gradients": 2 * M * n, "theta_0": start}
    options["checkpoints"] = 2 * M * epochs
    runner.expect(n_runs * 2 * M * n)
    result = runner.simulate(problem, VRTD(a, M), n_runs=n_runs, seed=settings["seed"], **options)
    printed = vrtd_iid_bound(problem, a, M, start, chosen["radius"], form="printed")
    curves = {
        "exact": exact_curve(problem, VRTD(a, M), **options).values("squared_error")[0],
        "printed": printed.curve(n)[1:],
        "corrected": vrtd_iid_bound(problem, a, M, start, chosen["radius"], form="corrected").curve(n)[1:],
        "sharp": vrtd_iid_bound(problem, a, M, start, form="sharp").curve(n)[1:],
    }
    summary = result.summary()
    of_epochs = {"epoch": epochs, "mean": summary.mean, "standard_error": summary.standard_error} | curves
    floor = {
        "n_runs": n_runs,
        **average_runs(result.values("squared_error").mean(axis=1)),
        "basis": "exact",
        "conditions_hold": are_met(printed.conditions),
        **{name: float(curve.mean()) for name, curve in curves.items()},
    }
    return of_epochs, table([floor])


def _bound(name: str, problem: LinearProblem, factors: list[float]) -> Iterator[Row]:
    """Compute the stationary error and its bounds, at the step of Corollary 1 with R = |theta_star|."""
    lam, g2 = problem.lambda_A, float(1.0 + problem.mrp.edges.discount.max()) ** 2
    a, least, theta_0 = lam / (16.0 * g2), 32.0 * g2 / lam**2 + 0.5, np.zeros(problem.n_features)
    for factor in factors:
        M = math.ceil(factor * least)
        printed = vrtd_iid_bound(problem, a, M, theta_0, form="printed")
        yield {
            "chain": name,
            "batch_size": M,
            "exact": float(np.trace(stationary_second_moment(problem, a, M))),
            "printed": printed.floor,
            "sharp": vrtd_iid_bound(problem, a, M, theta_0, form="sharp").floor,
            "conditions_hold": are_met(printed.conditions),
        }


def _plan(settings: Settings, problems: dict[str, LinearProblem]) -> Iterator[Row]:
    """Follow the plans of Corollary 1: coins from theta = 1, random MDPs from 0 with R = |theta_star|."""
    for target in settings["coin_targets"]:
        for gamma in settings["gammas"]:
            yield _reach(f"coin, gamma = {gamma:g}", make_coin(gamma), target, np.ones(1), settings["coin"]["radius"])
    for name, problem in problems.items():
        for target in settings["mdp_targets"]:
            radius = float(np.linalg.norm(problem.theta_star))
            yield _reach(name, problem, target, np.zeros(problem.n_features), radius)


def _reach(name: str, problem: LinearProblem, target: float, theta_0: Floats, radius: float) -> Row:
    """Compute the error after the number of epochs of Corollary 1, with its step and batch size."""
    plan = vrtd_iid_complexity(problem, target, theta_0, radius, form="printed")
    moments = vrtd_iid_moments(problem, plan.step_size, plan.batch_size, plan.n_epochs, theta_0)
    return {
        "chain": name,
        "gamma": float(problem.mrp.edges.discount.max()),
        "radius": radius,
        "target": target,
        "batch_size": plan.batch_size,
        "n_epochs": plan.n_epochs,
        "error": float(moments.squared_error[-1]),
        "conditions_hold": are_met(plan.bound.conditions),
    }


# Figures


def _show_batches(axes: Axes, tables: Tables) -> None:
    x, y = np.abs(tables["batches"]["mean"]), np.abs(tables["batches"]["mean_square"])
    axes.plot(x, y, ".", markersize=2, alpha=0.5, label="random batches of 3")
    mean, square = np.abs(tables["moments"]["difference"])
    axes.plot(mean, square, "D", color="black", markersize=6, clip_on=False, label="the batch {1, 2, -3}")
    for H in (0.5, 5.0):
        axes.plot([0.0, 3.0], [0.0, 6.0 * H], linewidth=1.2, label=f"the claimed bound, H = {H:g}")
    axes.set_xlim(0.0, 2.0)
    axes.set_ylim(0.0, 6.5)
    finish_axes(axes, "difference of the means", "difference of the mean squares", log="", place="upper right")


def _show_coin(axes: Axes, tables: Tables) -> None:
    coin = tables["coin"]
    x, mean, se = coin["epoch"], coin["mean"], coin["standard_error"]
    axes.errorbar(x, mean, 2 * se, fmt="o", markersize=4, capsize=2, label="simulated error")
    axes.plot(x, coin["exact"], "--", color="black", linewidth=1.0, label="exact error")
    for name in ("printed", "corrected", "sharp"):
        axes.plot(x, coin[name], linewidth=1.5, label=f"Theorem 1, {name}")
    finish_axes(axes, "epochs", METRIC_LABELS["squared_error"], log="y", n_columns=2, place="upper right")
    axes.set_ylim(1e-4, 1.0)


def _show_theorem1(axes: Axes, tables: Tables) -> None:
    whole = tables["theorem1"]
    for name in dict.fromkeys(whole["chain"].tolist()):
        part = rows_where(whole, chain=name)
        (line,) = axes.plot(part["batch_size"], part["exact"] / part["printed"], "o-", markersize=3, label=name)
        x, sharp, label = (
            part["batch_size"],
            part["exact"] / part["sharp"],
            label_part(name, "over the sharpened bound"),
        )
        axes.plot(x, sharp, ":", color=line.get_color(), linewidth=1.2, label=label)
    axes.axhline(1.0, color="black", linewidth=1.0)
    finish_axes(axes, "batch size M", "exact error / bound", n_columns=3, place="upper center")
    axes.set_ylim(0.05, 100.0)


def _show_corollary1(axes: Axes, tables: Tables) -> None:
    whole = tables["corollary1"]
    coins = {name: column[np.char.startswith(whole["chain"], "coin")] for name, column in whole.items()}
    for target in np.unique(coins["target"])[::-1]:
        part = rows_where(coins, target=target)
        horizon, miss = 1.0 / (1.0 - part["gamma"]), part["error"] / part["target"]
        axes.plot(horizon, miss, "o-", markersize=3, label=f"target {target:g}")
    axes.axhline(1.0, color="black", linewidth=1.0)
    finish_axes(
        axes, "horizon 1/(1 \N{MINUS SIGN} \N{GREEK SMALL LETTER GAMMA})", "error reached / target", small=False
    )


# Comparisons


def _differ(tables: Tables) -> list[NumberCheck]:
    mean, square = tables["moments"]["difference"].tolist()
    checks = [
        NumberCheck("the batch {1, 2, -3}", name, value, above=expected - SAME, below=expected + SAME)
        for name, value, expected in (
            ("difference of the means", mean, 0.0),
            ("difference of the mean squares, 14/3 - 3", square, 5.0 / 3.0),
        )
    ]
    x, y = np.abs(tables["batches"]["mean"]), np.abs(tables["batches"]["mean_square"])
    near = y[x < NEAR]
    estimate, se = ratio(*average_runs(near).values(), *average_runs(y).values())
    quantity = f"difference of the mean squares where the means differ by less than {NEAR}, against all batches"
    others = NumberCheck(
        "random batches of 3", quantity, estimate, se, int(near.size), above=0.5, basis="simulated", stated=False
    )
    return [*checks, others]


def _keeps_bound(tables: Tables) -> list[NumberCheck]:
    """Check that the errors of the coin and the stationary errors of the random MDPs are at most the bound."""
    coin, (floor,), checks = tables["coin"], rows(tables["coin_floor"]), []
    if floor["conditions_hold"] == "yes":
        worst = float((coin["exact"] / coin["printed"]).max())
        mean, se = floor["mean"] / floor["printed"], floor["standard_error"] / floor["printed"]
        quantity = "error / bound, mean over the epochs"
        checks += [
            NumberCheck("coin", "error / bound, at its largest over the epochs", worst, below=AT_MOST_1),
            NumberCheck("coin, simulated", quantity, mean, se, floor["n_runs"], below=AT_MOST_1, basis="simulated"),
        ]
    for row in rows(rows_where(tables["theorem1"], conditions_hold="yes")):
        quantity = f"error / bound as m grows, M = {row['batch_size']:,}"
        checks.append(NumberCheck(row["chain"], quantity, row["exact"] / row["printed"], below=AT_MOST_1))
    return checks


def _agree(tables: Tables) -> list[NumberCheck]:
    """Check that the simulated error of the coin agrees with the exact one."""
    return [agrees("coin", row) for row in rows(tables["coin_floor"])]


def _reaches_target(tables: Tables) -> list[NumberCheck]:
    checks = []
    for row in rows(rows_where(tables["corollary1"], conditions_hold="yes")):
        quantity = f"error reached / target, eps = {row['target']:g}"
        checks.append(NumberCheck(row["chain"], quantity, row["error"] / row["target"], below=AT_MOST_1))
    return checks


EXPERIMENT = make_experiment(
    "counter-example",
    settings,
    measure,
    weight=0.5,
    figures={
        ("batches", "batches"): _show_batches,
        ("coin", "coin"): _show_coin,
        ("theorem1", "theorem1"): _show_theorem1,
        ("corollary1", "corollary1"): _show_corollary1,
    },
    tests={
        "korda-counter-example": ClaimTest(_differ),
        "theorem-1": ClaimTest(_keeps_bound, _agree),
        "corollary-1": ClaimTest(_reaches_target),
    },
)
