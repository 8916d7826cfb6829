"""Table 1: floors, biases and costs over the step, the batch size, the target and lambda_A."""

from __future__ import annotations

from vrtd.paper.experiment import Runner, Settings, make_experiment
from vrtd.paper.table_1.claims import NUMBERS, TESTS
from vrtd.paper.table_1.costs import costs
from vrtd.paper.table_1.figures import FIGURES
from vrtd.paper.table_1.floors import (
    arrivals,
    biases,
    build,
    enumerate_batches,
    floors,
    rates,
    simulated,
    td_limit,
    variances,
)
from vrtd.paper.table_1.settings import TWO_STATES, settings
from vrtd.paper.table_1.slopes import slopes
from vrtd.tables import Table, table


def measure(settings: Settings, runner: Runner) -> dict[str, Table]:
    """Everything but `simulated`, and the slopes fitted to it, is the same for any number of runs."""
    problems = {name: build(spec) for name, spec in settings["problems"].items()}
    grid = settings["floors"]
    limits = {(name, step): td_limit(problems[name], step) for name in grid["problems"] for step in grid["step_sizes"]}
    batches = enumerate_batches(settings, problems[TWO_STATES])
    found = {
        "floors": floors(settings, problems, limits, batches),
        "variances": variances(settings, problems),
        "biases": biases(settings, problems, limits, batches),
        "rates": rates(settings, problems),
        "arrivals": arrivals(settings, problems),
        "costs": costs(settings),
    }
    found["simulated"] = simulated(settings, problems, found["costs"], runner)
    parts = ("floors", "variances", "biases", "arrivals", "costs", "simulated")
    found["slopes"] = slopes(*(found[name] for name in parts))
    return {name: table(rows) for name, rows in found.items()}


EXPERIMENT = make_experiment("table-1", settings, measure, weight=5.0, figures=FIGURES, tests=TESTS, numbers=NUMBERS)
