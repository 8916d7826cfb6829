"""One row for each algorithm and setting: the contract suite runs every row.

A new algorithm adds its transcription to one of the reference files and its rows here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import vrtd
from tests.reference import batch, gradient_td, least_squares, td, traces
from vrtd.algorithms import Algorithm


class Row(NamedTuple):
    id: str
    algorithm: Algorithm
    sampling: str
    reference: Callable[..., Any]
    n_epochs: int = 12
    tolerance: float = 1e-9  # of the limit after 20,000 pseudo-gradients on a chain without noise
    mean_stays: bool = True  # whether the mean of one epoch from theta_star is theta_star


ROWS = [
    Row("td-iid", vrtd.TD(0.1), "iid", td.td, 60),
    Row("td-markov", vrtd.TD(0.1), "markov", td.td, 60),
    # The average keeps the first iterates with weight 1/t: |u_0| / (alpha |A| t), here 6e-4.
    Row("td-projected-averaged", vrtd.TD(0.2, radius=2.0, average=True), "markov", td.td, 60, 1e-3),
    Row("td-harmonic", vrtd.TD(vrtd.Harmonic(c=60.0, t0=300.0)), "iid", td.td, 60),
    Row("td-piecewise", vrtd.TD(vrtd.Piecewise((10, 30), (0.2, 0.1, 0.05))), "iid", td.td, 60),
    # What is left of the start falls as 1/t, as for the average.
    Row("richardson-td-iid", vrtd.RichardsonTD(0.1, levels=2), "iid", td.richardson_td, 60, 1e-2),
    Row("richardson-td-markov", vrtd.RichardsonTD(0.1, burn_in=20), "markov", td.richardson_td, 60, 1e-2),
    Row("td-lambda", vrtd.TDLambda(0.1, 0.7), "markov", traces.td_lambda, 60),
    Row(
        "true-online-td",
        vrtd.TrueOnlineTD(vrtd.Harmonic(c=60.0, t0=300.0), 0.7),
        "markov",
        traces.true_online_td,
        60,
    ),
    Row("target-td-average", vrtd.TargetTD(0.2, mix=0.5), "iid", gradient_td.target_td, 60),
    Row("target-td-periodic", vrtd.TargetTD(0.2, "periodic", period=7), "markov", gradient_td.target_td, 60),
    Row("gtd", vrtd.GTD(0.3, 0.2), "iid", gradient_td.gtd, 60),
    Row("gtd2", vrtd.GTD2(0.3, 0.2), "markov", gradient_td.gtd2, 60),
    Row("tdc", vrtd.TDC(0.1, 0.2), "iid", gradient_td.tdc, 60),
    Row("vrtd-algorithm-1", vrtd.VRTD(0.1, 7), "iid", td.vrtd),
    Row("vrtd-algorithm-2", vrtd.VRTD(0.1, 7), "markov", td.vrtd),
    Row("vrtd-projected", vrtd.VRTD(0.2, 9, radius=2.0), "markov", td.vrtd),
    Row("vrtd-last", vrtd.VRTD(0.1, 7, output="last"), "iid", td.vrtd),
    Row("vrtd-average", vrtd.VRTD(0.1, 7, output="average"), "markov", td.vrtd),
    Row("vrtd-ctd", vrtd.VRTD(0.1, 7, radius=2.0, output="average", inner="resample"), "markov", td.vrtd),
    Row("vrtd-fresh-on-markov", vrtd.VRTD(0.1, 7, inner="fresh"), "markov", td.vrtd),
    Row("vrtd-resample-on-iid", vrtd.VRTD(0.1, 7, inner="resample"), "iid", td.vrtd),
    Row("vrtd-few-steps", vrtd.VRTD(0.1, 9, n_steps=5), "markov", td.vrtd),
    # Inner steps are fewer than pseudo-gradients.
    Row("vrtd-growing-iid", vrtd.VRTD(0.3, 3, growth=1.5, n_steps=40), "iid", td.vrtd, 8, 1e-7, mean_stays=False),
    Row("vrtd-growing-markov", vrtd.VRTD(0.3, 6, growth=2.0), "markov", td.vrtd, 4, 1e-7),
    Row("vrtd-batch-of-one", vrtd.VRTD(0.1, 1), "markov", td.vrtd, 40),
    # The ridge keeps a share of the start, ridge s / (n |A|), |A| is about 0.1 there. A quotient has a mean of its own.
    Row("lstd-iid", vrtd.LSTD(), "iid", least_squares.lstd, 60, 1e-6, mean_stays=False),
    Row("lstd-markov", vrtd.LSTD(0.7, 0.1), "markov", least_squares.lstd, 60, 1e-4),
    Row("recursive-lstd-iid", vrtd.RecursiveLSTD(), "iid", least_squares.lstd, 60, 1e-3, mean_stays=False),
    Row("recursive-lstd-markov", vrtd.RecursiveLSTD(0.7), "markov", least_squares.lstd, 60, 1e-3),
    Row("td-dataset", vrtd.TD(0.1), "dataset", td.td, 60),
    Row("vrtd-dataset", vrtd.VRTD(0.1, 7), "dataset", batch.vrtd),
    Row("primal-dual", vrtd.PrimalDual(1.0, 0.5), "dataset", batch.primal_dual),
    Row("svrg", vrtd.SVRG(0.5, 0.2), "dataset", batch.svrg),
    Row("batching-svrg", vrtd.BatchingSVRG(0.5, 0.2, 9, 6), "dataset", batch.batching_svrg),
    Row("scsg", vrtd.SCSG(0.5, 0.2, 6), "dataset", batch.scsg),
    Row("scsg-of-all-rows", vrtd.SCSG(0.5, 0.2, 100), "dataset", batch.scsg),
    Row("growing-scsg", vrtd.GrowingSCSG(0.5, 0.2, 6, steps_per_row=2), "dataset", batch.growing_scsg),
    Row("saga", vrtd.SAGA(0.2, 0.2), "dataset", batch.saga, 60),
]


def two_states() -> vrtd.LinearProblem:
    """A chain with two states, small enough to enumerate."""
    P, R = np.array([[0.7, 0.3], [0.4, 0.6]]), np.array([[1.0, 0.0], [0.0, 2.0]])
    return vrtd.LinearProblem(vrtd.MarkovRewardProcess(P, R, 0.9), [[1.0], [0.5]])


def noiseless() -> tuple[vrtd.LinearProblem, Any]:
    """A chain whose every single transition is already in balance at theta_star: g_x(theta_star) = 0 for all x.

    It has as many features as `vrtd.problems.random_mdp`, so that it runs in loops that are already compiled.
    """
    rng = np.random.default_rng(1)
    theta, P = rng.normal(size=4) / 2.0, 1.0 + rng.random((4, 4))
    mrp = vrtd.MarkovRewardProcess(P / P.sum(axis=1, keepdims=True), theta[:, None] - 0.5 * theta, 0.5)
    return vrtd.LinearProblem(mrp, np.eye(4)), theta


def noiseless_rows(n: int) -> tuple[Any, Any]:
    """The same as a data set, of four states."""
    rng = np.random.default_rng(1)
    theta, phi, phi_next = rng.normal(size=4), np.eye(4)[np.arange(n) % 4], np.eye(4)[rng.integers(4, size=n)]
    return vrtd.Transitions(phi, phi @ theta - 0.5 * phi_next @ theta, phi_next, 0.5), theta
