"""Experiment `table-1`: floors, biases and costs over the step, the batch size, the target and lambda_A."""

from __future__ import annotations

from itertools import product

from vrtd.paper.experiment import Runner, Settings, make_experiment
from vrtd.paper.table_1.claims import NUMBERS, TESTS
from vrtd.paper.table_1.costs import costs
from vrtd.paper.table_1.figures import FIGURES
from vrtd.paper.table_1.floors import (
    build,
    compute_arrivals,
    compute_biases,
    compute_floors,
    compute_rates,
    compute_td_limit,
    compute_variances,
    enumerate_batches,
    simulate_cells,
)
from vrtd.paper.table_1.settings import TWO_STATES, settings
from vrtd.paper.table_1.slopes import compute_slopes
from vrtd.tables import Table, table


def measure(settings: Settings, runner: Runner) -> dict[str, Table]:
    """Compute floors, variances, biases, rates, costs and slopes, and simulate some of the floors.

    Only `simulated` and the slopes fitted to it depend on the number of runs.
    """
    problems = {name: build(spec) for name, spec in settings["problems"].items()}
    grid = settings["floors"]
    cells = product(grid["problems"], grid["step_sizes"])
    limits = {(name, step): compute_td_limit(problems[name], step) for name, step in cells}
    batches = enumerate_batches(settings, problems[TWO_STATES])
    results = {
        "floors": compute_floors(settings, problems, limits, batches),
        "variances": compute_variances(settings, problems),
        "biases": compute_biases(settings, problems, limits, batches),
        "rates": compute_rates(settings, problems),
        "arrivals": compute_arrivals(settings, problems),
        "costs": costs(settings),
    }
    results["simulated"] = simulate_cells(settings, problems, results["costs"], runner)
    parts = ("floors", "variances", "biases", "arrivals", "costs", "simulated")
    results["slopes"] = compute_slopes(*(results[name] for name in parts))
    return {name: table(rows) for name, rows in results.items()}


EXPERIMENT = make_experiment("table-1", settings, measure, weight=5.0, figures=FIGURES, tests=TESTS, numbers=NUMBERS)
