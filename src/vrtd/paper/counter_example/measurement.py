"""Moments of the counter-example; errors and bounds on the chains on which Theorem 1 and Corollary 1 fail."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from vrtd.algorithms import VRTD
from vrtd.arrays import Floats
from vrtd.paper.evidence import over_runs
from vrtd.paper.experiment import Runner, Settings
from vrtd.problems import LinearProblem, MarkovRewardProcess, random_mdp
from vrtd.tables import Table, table
from vrtd.theory import (
    exact_curve,
    stationary_second_moment,
    vrtd_iid_bound,
    vrtd_iid_complexity,
    vrtd_iid_moments,
)

Row = dict[str, Any]


def measure(settings: Settings, runner: Runner) -> dict[str, Table]:
    problems = {f"random MDP {seed}": random_mdp(seed, normalize=True) for seed in settings["mdp_seeds"]}
    epochs, floor = _coin(settings, runner)
    return {
        "moments": _moments(settings["uniform"]),
        "batches": _batches(settings["uniform"], settings["seed"]),
        "coin": epochs,
        "coin_floor": floor,
        "theorem1": table(row for name, s in problems.items() for row in _theorem1(name, s, settings["batch_factors"])),
        "corollary1": table([*_coin_plans(settings), *_mdp_plans(problems, settings["mdp_targets"])]),
    }


def _moment(h: Fraction, k: int) -> Fraction:
    """E v^k for v uniform on [-h, h]."""
    return (h ** (k + 1) - (-h) ** (k + 1)) / (k + 1) / (2 * h)


def _moments(uniform: Settings) -> Table:
    """First and second moment of v and of the batch, in exact arithmetic."""
    h, batch = Fraction(uniform["bound"]), [Fraction(v) for v in uniform["batch"]]

    def row(name: str, k: int) -> Row:
        of_v, of_batch = _moment(h, k), sum(v**k for v in batch) / len(batch)
        gap = of_batch - of_v
        return {
            "moment": name, "of_v": float(of_v), "of_batch": float(of_batch),
            "difference": float(gap), "as_fraction": str(gap),
        }  # fmt: skip

    return table([row("mean", 1), row("mean square", 2)])


def _batches(uniform: Settings, seed: int) -> Table:
    """What other batches of that size do: by how much their mean and mean square differ from those of v."""
    h = uniform["bound"]
    v = np.random.default_rng(seed).uniform(-h, h, (uniform["n_batches"], len(uniform["batch"])))
    mean, square = (float(_moment(Fraction(h), k)) for k in (1, 2))
    return {"mean": v.mean(axis=1) - mean, "mean_square": (v**2).mean(axis=1) - square}


def coin(gamma: float) -> LinearProblem:
    return LinearProblem(MarkovRewardProcess([[0.5, 0.5], [0.5, 0.5]], [1.0, -1.0], gamma), [[1.0], [1.0]])


def _coin(settings: Settings, runner: Runner) -> tuple[Table, Table]:
    """Errors after each epoch, and averaged over the epochs, beside the bounds; theta_0 = theta_star."""
    chosen, n_runs = settings["coin"], settings["n_runs"]
    problem, a, M, n = coin(chosen["gamma"]), chosen["step_size"], chosen["batch_size"], chosen["n_epochs"]
    options = {
        "sampling": "iid",
        "n_gradients": 2 * M * n,
        "theta_0": problem.theta_star,
        "checkpoints": 2 * M * np.arange(1, n + 1),
    }
    runner.expect(n_runs * 2 * M * n)
    result = runner.simulate(problem, VRTD(a, M), n_runs=n_runs, seed=settings["seed"], **options)
    errors = result.values("squared_error")
    exact = exact_curve(problem, VRTD(a, M), **options).values("squared_error")[0]
    arguments = problem, a, M, problem.theta_star
    printed = vrtd_iid_bound(*arguments, chosen["radius"], form="printed")
    corrected = vrtd_iid_bound(*arguments, chosen["radius"], form="corrected")
    sharp = vrtd_iid_bound(*arguments, form="sharp")
    curves = {
        "exact": exact, "printed": printed.curve(n)[1:], "corrected": corrected.curve(n)[1:],
        "sharp": sharp.curve(n)[1:],
    }  # fmt: skip
    summary = result.summary()
    epochs = {"epoch": np.arange(1, n + 1), "mean": summary.mean, "standard_error": summary.standard_error} | curves
    floor = {
        "n_runs": n_runs,
        **over_runs(errors.mean(axis=1)),
        "basis": "exact",
        "conditions_hold": "yes" if all(condition.holds for condition in printed.conditions) else "no",
    } | {name: float(curve.mean()) for name, curve in curves.items()}
    return epochs, table([floor])


def _theorem1(name: str, problem: LinearProblem, factors: list[float]) -> Iterator[Row]:
    """Where the error settles, at the step of Corollary 1 with R = |theta_star|, and the bounds of it."""
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
            "conditions_hold": "yes" if all(condition.holds for condition in printed.conditions) else "no",
        }


def _coin_plans(settings: Settings) -> Iterator[Row]:
    for target in settings["coin_targets"]:
        for gamma in settings["gammas"]:
            yield _reached(f"coin, gamma = {gamma:g}", coin(gamma), target, np.ones(1), settings["coin"]["radius"])


def _mdp_plans(problems: dict[str, LinearProblem], targets: list[float]) -> Iterator[Row]:
    for name, problem in problems.items():
        for target in targets:
            radius = float(np.linalg.norm(problem.theta_star))
            yield _reached(name, problem, target, np.zeros(problem.n_features), radius)


def _reached(name: str, problem: LinearProblem, target: float, theta_0: Floats, radius: float) -> Row:
    """The error after the epochs that Corollary 1 asks for, with its step and batch size."""
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
        "conditions_hold": "yes" if all(condition.holds for condition in plan.bound.conditions) else "no",
    }
