"""Stationary errors, biases and rates of convergence of TD and VRTD."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import VRTD, Algorithm
from vrtd.arrays import Floats
from vrtd.paper.evidence import average_runs, find_basis
from vrtd.paper.experiment import Runner, Settings, build_problem, make_algorithm
from vrtd.paper.table_1.settings import LONG, RANDOM, SHORT, TWO_STATES
from vrtd.problems import LinearProblem
from vrtd.theory import batch_bias_inequality, exact_curve, vrtd_iid_bound, vrtd_markov_bound
from vrtd.theory.increments import Increments, zeta
from vrtd.theory.limits import increments_of
from vrtd.theory.markov import MarkovTD
from vrtd.theory.moments import epoch_maps, fixed_point
from vrtd.theory.orbits import TDOrbits, epoch_orbit
from vrtd.theory.symmetric import unpack

Rows = list[dict[str, Any]]
Problems = Mapping[str, LinearProblem]
Limits = Mapping[tuple[str, float], "TDLimit"]
LongRuns = Mapping["FloorCell", tuple[float, float]]  # E|u|^2 and |E u|

THEOREM, LONG_EPOCHS, SHORT_EPOCHS = "the theorems' steps", f"alpha lambda M > {LONG:g}", f"alpha lambda M < {SHORT:g}"
BETWEEN, LARGE_STEPS, MIXED_CHAIN = "between", "large steps", "M > 10/(1 - rho)"
_BASIS: dict[Any, str] = {"iid": "exact", "markov": "approximation"}  # of VRTD's moments, by sampling
_TIME_CONSTANTS = 40.0  # after this many time constants the initial transient is negligible
_MANY_EPOCHS = 10**6
_MOST_CHECKPOINTS = 20
_FIRST_EPOCHS = 60


class FloorCell(NamedTuple):
    """Step and batch size, with the quantity that varies and the range of settings they belong to."""

    against: str  # what varies: "alpha" or "M"
    range: str
    step_size: float
    batch_size: int


def build(spec: Mapping[str, Any]) -> LinearProblem:
    """Build a chain, or a named problem whose features may be mixed with their mean."""
    problem = build_problem(spec)
    if "P" in spec:
        return problem
    share, d = spec.get("mixing", 1.0), problem.n_features
    mixed = problem.phi @ (share * np.eye(d) + (1.0 - share) / d)
    return LinearProblem(problem.mrp, mixed / np.linalg.norm(mixed, axis=1).max())


class TDLimit(NamedTuple):
    """Stationary error and biases of TD on a trajectory."""

    floor: float  # E|u|^2
    xi: float  # E[u^T (g_x(theta) - g(theta))], where x is the next transition: the paper's bias
    mean: float  # |E u|


def compute_td_limit(problem: LinearProblem, step_size: float) -> TDLimit:
    """Compute the stationary error and biases of TD exactly, from the moments by state."""
    recursion, d, edges = MarkovTD(problem), problem.n_features, problem.mrp.edges
    n = int(_TIME_CONSTANTS / (step_size * problem.lambda_A)) + 1000
    _, Y = recursion.run(recursion.start(problem.theta_star, problem.mrp.stationary), step_size, np.array([n]))
    total = Y.sum(axis=0)
    weighted = edges.probability[:, None] * problem.phi[edges.origin]
    along = np.einsum("ei,eij,ej->", weighted, Y[edges.origin, :d], zeta(problem))  # E[u^T g_x(theta)]
    S = total[:d, :d]
    return TDLimit(float(np.trace(S)), float(along - np.trace(problem.A @ S)), float(np.linalg.norm(total[:d, d])))


def enumerate_batches(settings: Settings, problem: LinearProblem) -> LongRuns:
    """Compute the stationary errors of Algorithm 2 exactly, by enumerating all batches.

    They are computed over batch sizes at one step, and over steps at one batch size.
    """
    grid, long_runs = settings["enumerated"], {}
    cells = [("M", grid["step_size"], M) for M in grid["batch_sizes"]]
    for against, step, M in [*cells, *(("alpha", step, grid["batch_size"]) for step in grid["step_sizes"])]:
        end = 2 * M * _MANY_EPOCHS
        curve = exact_curve(problem, VRTD(step, M), n_gradients=end, checkpoints=1, method="exact")
        floor, mean = curve.values("squared_error")[0, -1], np.linalg.norm(curve.theta[0] - problem.theta_star)
        long_runs[FloorCell(against, classify_epochs(step * problem.lambda_A * M), step, M)] = float(floor), float(mean)
    return long_runs


def compute_floors(settings: Settings, problems: Problems, limits: Limits, batches: LongRuns) -> Rows:
    """Compute stationary E|u|^2 over steps for some batch sizes, and over batch sizes for some steps."""
    rows: Rows = []

    def add(name: str, sampling: str, basis: str, cell: FloorCell, value: float) -> None:
        labels = {"problem": name, "sampling": sampling, "method": _method(cell.batch_size), **cell._asdict()}
        size = cell.step_size * problems[name].lambda_A * cell.batch_size
        rows.append(labels | {"alpha_lambda_M": size, "basis": basis, "floor": value})

    for name in settings["floors"]["problems"]:
        for sampling, basis in _BASIS.items():
            increments = increments_of(problems[name], sampling)
            for cell in _cells(settings, problems[name].lambda_A):
                if sampling == "markov" and cell.batch_size == 1:
                    add(name, sampling, "exact", cell, limits[name, cell.step_size].floor)
                else:
                    add(name, sampling, basis, cell, _floor(increments, cell.step_size, cell.batch_size))
    for cell, (floor, _) in batches.items():
        add(TWO_STATES, "markov", "exact", cell, floor)
    return rows


def _cells(settings: Settings, lam: float) -> Iterator[FloorCell]:
    grid = settings["floors"]
    for step in grid["step_sizes"]:
        for M in [1, *grid["batch_sizes"]]:
            steps = _step_range(settings, step)
            yield FloorCell(
                "alpha", steps if M == 1 or steps == LARGE_STEPS else classify_epochs(step * lam * M), step, M
            )
    for M in grid["all_batch_sizes"]:
        yield FloorCell("M", classify_epochs(grid["fixed_step_size"] * lam * M), grid["fixed_step_size"], M)
    for step in grid["theorem_step_sizes"]:
        yield FloorCell("alpha", THEOREM, step, grid["theorem_batch_size"])
    for M in grid["theorem_batch_sizes"]:
        yield FloorCell("M", THEOREM, grid["theorem_step_sizes"][-1], M)


def _step_range(settings: Settings, step: float) -> str:
    small = settings["largest_small_step"]
    return f"alpha <= {small:g}" if step <= small else LARGE_STEPS


def classify_epochs(alpha_lambda_M: float) -> str:
    """Return the range of settings: long epochs, short ones, or between."""
    return LONG_EPOCHS if alpha_lambda_M > LONG else SHORT_EPOCHS if alpha_lambda_M < SHORT else BETWEEN


def _mixing_range(problem: LinearProblem, batch_size: int) -> str:
    return MIXED_CHAIN if batch_size * (1.0 - problem.mrp.mixing_rate) > 10.0 else BETWEEN


def _method(batch_size: int) -> str:
    return "TD" if batch_size == 1 else "VRTD"


def _floor(increments: Increments, step: float, M: int) -> float:
    T = epoch_maps(increments, step, [M], "random")[M].later
    return float(np.trace(fixed_point(T, increments.n_features, f"step_size {step}, batch_size {M}")))


def compute_biases(settings: Settings, problems: Problems, limits: Limits, batches: LongRuns) -> Rows:
    """Compute the paper's bias on a trajectory, E xi, and the bias of the estimate, |E u|.

    E xi of TD is the stationary one. E xi of VRTD is that of Lemma 1: theta is fixed at zero and the batch starts in
    the worst state. |E u| of VRTD is exact, and therefore only computed on a tiny chain.
    """
    rows: Rows = []

    def add(name: str, method: str, quantity: str, cell: FloorCell, value: float) -> None:
        labels = {"problem": name, "sampling": "markov", "method": method, "quantity": quantity, **cell._asdict()}
        rows.append(labels | {"basis": "exact", "value": value})

    for (name, step), limit in limits.items():
        cell = FloorCell("alpha", _step_range(settings, step), step, 1)
        add(name, "TD", "E xi", cell, limit.xi)
        add(name, "TD", "|E u|", cell, limit.mean)
    for name in settings["floors"]["problems"]:
        problem = problems[name]
        for M in settings["lemma_batch_sizes"]:
            bias = batch_bias_inequality(problem, M, np.zeros(problem.n_features)).left
            add(name, "VRTD", "E xi", FloorCell("M", _mixing_range(problem, M), 0.0, M), bias)
    for cell, (_, mean) in batches.items():
        add(TWO_STATES, "VRTD", "|E u|", cell, mean)
    return rows


def compute_variances(settings: Settings, problems: Problems) -> Rows:
    """Compute the paper's variance error of VRTD on a trajectory, at the theorems' steps, from a stationary state.

    It is the term 3a/(lambda_A - 3a (1 + gamma)^2) E|g_m(theta_star)|^2 of the inequality of one epoch. `square` is
    E|g_m(theta_star)|^2, computed exactly from the correlations at all lags.
    """
    grid, rows = settings["floors"], []
    steps = grid["theorem_step_sizes"]
    for name in grid["problems"]:
        problem = problems[name]
        increments, g2 = increments_of(problem, "markov"), float(1.0 + problem.mrp.edges.discount.max()) ** 2
        at_star = increments.start(problem.theta_star)
        cells = [FloorCell("alpha", THEOREM, step, grid["theorem_batch_size"]) for step in steps]
        cells += [FloorCell("M", _mixing_range(problem, M), steps[-1], M) for M in settings["lemma_batch_sizes"]]
        for cell in cells:
            a, batch = cell.step_size, increments.batch_square(cell.batch_size)
            square = float(np.trace(unpack(batch @ at_star, problem.n_features)))
            labels = {"problem": name, "sampling": "markov", "method": "VRTD", **cell._asdict(), "basis": "exact"}
            rows.append(labels | {"square": square, "value": 3.0 * a / (problem.lambda_A - 3.0 * a * g2) * square})
    return rows


def compute_rates(settings: Settings, problems: Problems) -> Rows:
    """Compute the rate at which the error of VRTD above its floor falls: at most `constant` times `radius`^m.

    `conditions_hold` says whether the sharp Theorem 1 or the corrected Theorem 2 covers the setting.
    """
    rows, epochs = [], np.arange(_FIRST_EPOCHS)
    for name in settings["floors"]["problems"]:
        theta_0 = np.zeros(problems[name].n_features)
        for sampling, basis in _BASIS.items():
            increments = increments_of(problems[name], sampling)
            bound_of: Any = vrtd_iid_bound if sampling == "iid" else vrtd_markov_bound
            for step, M in settings["rates"]:
                maps = epoch_maps(increments, step, [M], "random")[M]
                radius = float(np.abs(np.linalg.eigvals(maps.later[:-1, :-1])).max())
                orbit, floor = epoch_orbit(increments, maps, theta_0), _floor(increments, step, M)
                excess = np.abs([orbit.error(k) - floor for k in epochs.tolist()])
                constant = (excess / (excess[0] * radius**epochs))[excess > 1e-9 * floor].max()
                is_covered = bound_of(problems[name], step, M, theta_0).valid
                rows.append(
                    {
                        "problem": name, "sampling": sampling, "step_size": step, "batch_size": M, "floor": floor,
                        "radius": radius, "constant": float(constant), "conditions_hold": "yes" if is_covered else "no",
                        "basis": basis,
                    }
                )  # fmt: skip
    return rows


def compute_arrivals(settings: Settings, problems: Problems) -> Rows:
    """Count the updates of TD from zero until its error is twice its floor, with independent samples."""
    rows = []
    for name in settings["floors"]["problems"]:
        increments = increments_of(problems[name], "iid")
        orbits = TDOrbits(increments, np.zeros(increments.n_features))
        for step in settings["floors"]["step_sizes"]:
            if step <= settings["largest_small_step"]:
                floor = _floor(increments, step, 1)
                n = orbits(step).first_below(2.0 * floor, 10**12)
                rows.append({"problem": name, "step_size": step, "floor": floor, "n_gradients": n})
    return rows


def simulate_cells(settings: Settings, problems: Problems, costs: Rows, runner: Runner) -> Rows:
    """Simulate stationary errors, and final errors of tuned runs of Algorithm 2, beside the expected errors."""
    problem, rows = problems[RANDOM], []
    jobs: list[tuple[str, Any, Algorithm, NDArray[np.int64], Floats]] = []
    for sampling in _BASIS:
        for step, M, n_epochs in settings["simulated"]:
            window = np.unique(np.linspace(n_epochs // 2 + 1, n_epochs, _MOST_CHECKPOINTS).astype(np.int64))
            axis = window * (1 if M == 1 else 2 * M)
            jobs.append(("floor", sampling, make_algorithm(step, M), axis, problem.theta_star))
    for row in costs:
        wanted = (row["family"], row["sampling"], row["method"]) == (RANDOM, "markov", "VRTD")
        if wanted and row["target"] in settings["simulated_targets"]:
            plan = VRTD(row["step_size"], row["batch_size"])
            jobs.append(("tuned", "markov", plan, np.array([row["cost"]]), np.zeros(problem.n_features)))
    runner.expect(settings["n_runs"] * sum(int(axis[-1]) for _, _, _, axis, _ in jobs))
    for index, (kind, sampling, method, axis, theta_0) in enumerate(jobs):
        end, seed = int(axis[-1]), 1000 * settings["seed"] + index  # independent between cells and between seeds
        options: dict[str, Any] = {"n_gradients": end, "checkpoints": axis, "theta_0": theta_0, "sampling": sampling}
        result = runner.simulate(problem, method, n_runs=settings["n_runs"], seed=seed, **options)
        expected = exact_curve(problem, method, **options)
        step, M = method.settings["step_size"], method.settings.get("batch_size", 1)
        rows.append(
            {
                "kind": kind, "problem": RANDOM, "sampling": sampling, "method": _method(M),
                "alpha_lambda_M": step * problem.lambda_A * M, "step_size": step, "batch_size": M, "n_gradients": end,
                "n_runs": result.n_runs, **average_runs(result.values("squared_error").mean(axis=1)),
                "exact": float(expected.values("squared_error").mean()), "basis": find_basis(expected),
            }
        )  # fmt: skip
    return rows
