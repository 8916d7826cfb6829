"""Smallest number of pseudo-gradients with which TD and VRTD reach a target, with the best step and batch size."""

from __future__ import annotations

import numpy as np

from vrtd.paper.experiment import Settings
from vrtd.paper.table_1.floors import Rows, build
from vrtd.theory.predictions import exact_predictor
from vrtd.theory.search import Goal, Search


def costs(settings: Settings) -> Rows:
    """Tune TD and VRTD for each member of each family and each target."""
    rows = []
    for member in settings["costs"]:
        problem = build(member["problem"])
        theta_0 = np.full(problem.n_features, member["theta_0"])
        predictor = exact_predictor(problem, member["sampling"], theta_0, "random")
        initial = float(np.sum((theta_0 - problem.theta_star) ** 2))
        search = Search(predictor)
        for share in member["targets"]:
            goal = Goal(target=share * initial)
            for method, best in (("TD", search.td(goal)), ("VRTD", search.vrtd(goal))):
                assert best is not None  # these targets can be reached
                rows.append(
                    {
                        "family": member["family"], "sampling": member["sampling"], "method": method,
                        "lambda_A": problem.lambda_A, "target": share, "step_size": best.step_size,
                        "batch_size": best.batch_size, "n_epochs": best.n_epochs, "cost": int(best.cost),
                        "basis": predictor.prediction(best.step_size, best.batch_size).basis,
                    }
                )  # fmt: skip
    return rows
