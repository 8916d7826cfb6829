"""The experiment with a step size that is halved: counts, accuracy and agreement."""

import math
from dataclasses import replace

import numpy as np

from vrtd.paper import changing_step
from vrtd.paper.evidence import Claim, judge
from vrtd.tables import table


def test_the_speed_up_is_the_count_of_td_over_that_of_vrtd():
    grid = [0, 100, 200, 300]
    td = [
        {"method": "TD, W = 1", "basis": "exact", "n_gradients": n, "n_samples": n, "exact": e}
        for n, e in zip(grid, (8.0, 4.0, 2.6, 1.0), strict=True)
    ]
    vr = [
        {"method": "VRTD", "basis": "approximation", "n_gradients": n, "n_samples": n // 2, "exact": e}
        for n, e in zip(grid, (8.0, 2.0, 2.0, 2.0), strict=True)
    ]
    curves = table([{"start": "ones"} | row for row in td + vr])
    found = changing_step.vrtd_is_faster(curves, "n_gradients", 2.0)
    assert [(c.estimate, c.above, c.stated) for c in found] == [(3.0, 2.0, True), (2.0, 2.0, False), (1.0, 2.0, False)]
    assert found[0].quantity.endswith("to 1.1 times VRTD's final error: 300 against 100")
    assert [c.estimate for c in changing_step.vrtd_is_faster(curves, "n_samples", 1.0)] == [6.0, 4.0, 2.0]


def test_the_required_accuracy_is_vrtd_s_and_td_may_never_reach_it():
    rows = [
        {"start": "ones", "method": method, "basis": basis, "n_gradients": n, "n_samples": n, "exact": e}
        for method, basis, errors in (("TD, W = 1", "exact", (8.0, 4.0)), ("VRTD", "approximation", (8.0, 2.0)))
        for n, e in zip((0, 100), errors, strict=True)
    ]
    found = changing_step.vrtd_is_faster(table(rows), "n_gradients", 2.0)
    assert [c.estimate for c in found] == [math.inf, math.inf, 1.0]  # 4.0 is twice VRTD's final error
    assert found[0].quantity.endswith(": TD does not get there, VRTD after 100")
    claims = [Claim("", "", "", "", (), lambda _, c=c: [replace(c, stated=True)]) for c in found]
    assert [judge(claim, {}, 1).verdict for claim in claims] == ["holds", "holds", "does not hold"]


def test_there_are_at_most_so_many_halvings():
    settings = {"step_size": 1.0, "n_gradients": 10 * changing_step.STRIDE, "most_halvings": 3}
    _, times = changing_step.follow(lambda step: np.eye(1), np.ones(1), np.ones(1), lambda errors: True, settings)
    assert times == [40, 80, 120]


def test_agreement_is_checked_at_the_end_of_the_curves():
    curves = {
        "n_gradients": np.array([0, 10]),
        "method": np.array(["TD", "TD"]),
        "start": np.array(["ones"] * 2),
        "mean": np.array([1.0, 2.0]),
        "exact": np.array([4.0, 4.0]),
        "standard_error": np.ones(2),
        "n_runs": np.array([5, 5]),
        "basis": np.array(["exact"] * 2),
    }
    assert [c.estimate for c in changing_step.agreement(curves)] == [0.5]
