"""The fewest pseudo-gradients with which TD and VRTD reach a target: best step, best batch size."""

from __future__ import annotations

import numpy as np

from vrtd.paper.experiment import Settings
from vrtd.paper.table_1.floors import Rows, build
from vrtd.theory.predictions import exact_predictor
from vrtd.theory.search import TargetSearch

# With short epochs and small steps VRTD is TD with (2M + 1)/(3M) times the noise and (M + 1)/(4M) times the speed: at
# M = 2 it costs 20/9 times as much. They are not looked at where something costs less than this many times TD.
_SHORT_EPOCHS = 1.5


def costs(settings: Settings) -> Rows:
    """Tuned TD and tuned VRTD for each member of each family and each target."""
    rows = []
    for member in settings["costs"]:
        problem = build(member["problem"])
        theta_0 = np.full(problem.n_features, member["theta_0"])
        predictor = exact_predictor(problem, member["sampling"], theta_0, "random")
        initial = float(np.sum((theta_0 - problem.theta_star) ** 2))
        search = TargetSearch(predictor, [share * initial for share in member["targets"]])
        for share in member["targets"]:
            td = search.td(share * initial)
            vrtd = search.vrtd(share * initial, _SHORT_EPOCHS * td.cost)
            rows += [
                {
                    "family": member["family"], "sampling": member["sampling"], "method": method,
                    "lambda_A": problem.lambda_A, "target": share, "step_size": found.step_size,
                    "batch_size": found.batch_size, "n_epochs": found.n_epochs, "cost": int(found.cost),
                    "basis": predictor.prediction(found.step_size, found.batch_size).basis,
                }
                for method, found in (("TD", td), ("VRTD", vrtd))
            ]  # fmt: skip
    return rows
