"""The fewest pseudo-gradients with which TD and VRTD reach a target: best step, best batch size."""

from __future__ import annotations

import numpy as np

from vrtd.paper.experiment import Settings
from vrtd.paper.table_1.floors import Rows, build
from vrtd.theory.predictions import exact_predictor
from vrtd.theory.search import Goal, Search


def costs(settings: Settings) -> Rows:
    """Tuned TD and tuned VRTD for each member of each family and each target."""
    rows = []
    for member in settings["costs"]:
        problem = build(member["problem"])
        theta_0 = np.full(problem.n_features, member["theta_0"])
        predictor = exact_predictor(problem, member["sampling"], theta_0, "random")
        initial = float(np.sum((theta_0 - problem.theta_star) ** 2))
        search = Search(predictor)
        for share in member["targets"]:
            goal = Goal(target=share * initial)
            for method, found in (("TD", search.td(goal)), ("VRTD", search.vrtd(goal))):
                assert found is not None  # these targets can be reached
                rows.append(
                    {
                        "family": member["family"], "sampling": member["sampling"], "method": method,
                        "lambda_A": problem.lambda_A, "target": share, "step_size": found.step_size,
                        "batch_size": found.batch_size, "n_epochs": found.n_epochs, "cost": int(found.cost),
                        "basis": predictor.prediction(found.step_size, found.batch_size).basis,
                    }
                )  # fmt: skip
    return rows
