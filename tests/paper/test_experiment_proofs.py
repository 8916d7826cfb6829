"""What is called proved is judged where the proof applies: settings, conditions and the bounds that are compared."""

import itertools

import numpy as np
import pytest

from vrtd.paper.bounds import statements
from vrtd.paper.table_1.claims import CLAIMS
from vrtd.paper.table_1.floors import LONG_EPOCHS, THEOREM, build, epoch, rates
from vrtd.paper.table_1.sweep import RANDOM, STICKY, settings
from vrtd.tables import table
from vrtd.theory import instance_constants, vrtd_iid_bound, vrtd_markov_bound

SETTINGS = settings(2, 0)
GRID = SETTINGS["floors"]
PROBLEMS = {name: build(SETTINGS["problems"][name]) for name in GRID["problems"]}
CLAIM = {claim.name: claim for claim in CLAIMS}


def valid(bound_of, form, problem, step, M):
    return bound_of(problem, step, M, np.zeros(problem.n_features), form=form).valid


def conditions(claim, tables, stated):
    return {each.condition for each in claim.evidence({"table-1": tables}) if each.stated == stated}


def test_the_sharp_theorem_covers_every_stated_floor_of_algorithm_1():
    """Over batch sizes at the theorems' step, and at the step of the figures where epochs are long."""
    for problem in PROBLEMS.values():
        cells = [(GRID["theorem_step_sizes"][-1], M) for M in GRID["theorem_batch_sizes"]]
        step = GRID["fixed_step_size"]
        long = [(step, M) for M in GRID["all_batch_sizes"] if epoch(step * problem.lambda_A * M) == LONG_EPOCHS]
        assert len(long) > 5
        assert all(valid(vrtd_iid_bound, "sharp", problem, *cell) for cell in cells + long)
        lam, eta, nu, _, _ = instance_constants(problem)
        assert step < lam / (eta + 2 * nu)  # for which the floor is proved to be of order 1/M


def test_the_repaired_theorem_covers_the_theorems_steps_and_no_long_epochs_of_algorithm_2():
    steps, sizes = GRID["theorem_step_sizes"], GRID["theorem_batch_sizes"]
    cells = [(steps[-1], M) for M in sizes] + [(step, GRID["theorem_batch_size"]) for step in steps]
    for problem in PROBLEMS.values():
        assert all(valid(vrtd_markov_bound, "corrected", problem, *cell) for cell in cells)
        long = [(GRID["fixed_step_size"], M) for M in GRID["all_batch_sizes"]]
        assert not any(valid(vrtd_markov_bound, "corrected", problem, *cell) for cell in long)
    assert not valid(vrtd_iid_bound, "corrected", PROBLEMS[RANDOM], steps[-1], sizes[-1])  # above its largest step


def test_long_epochs_of_algorithm_2_are_beyond_what_is_stated():
    common = {"quantity": "floor", "sampling": "markov", "method": "VRTD", "against": "M", "low": -1.0, "high": -1.0}
    names = (THEOREM, LONG_EPOCHS)
    tables = {"slopes": table(common | {"problem": "x", "range": name, "basis": "exact"} for name in names)}
    claim = CLAIM["vrtd-markov-floor-1-over-m"]
    assert conditions(claim, tables, stated=True) == {f"x, {THEOREM}"}
    assert conditions(claim, tables, stated=False) == {f"x, {LONG_EPOCHS}"}


@pytest.fixture(scope="module")
def found():
    return table(rates(SETTINGS, PROBLEMS))


def test_rates_say_whether_a_proof_covers_them(found):
    yes = found["conditions_hold"] == "yes"
    covered = {
        (found["problem"][i], found["sampling"][i], found["step_size"][i], found["batch_size"][i])
        for i in np.flatnonzero(yes)
    }
    every = itertools.product((RANDOM, STICKY), [tuple(cell) for cell in SETTINGS["rates"]])
    of_iid = {(name, "iid", *cell) for name, cell in every} - {(RANDOM, "iid", 0.25, 50)}
    assert covered == of_iid | {(name, "markov", 9e-4, 1_000_000) for name in (RANDOM, STICKY)}
    assert set(found["conditions_hold"][~yes]) == {"no"}


def test_only_covered_rates_are_stated(found):
    outside = "outside the conditions of the proof"
    for sampling, beyond in (("iid", {RANDOM}), ("markov", {RANDOM, STICKY})):
        claim = CLAIM[f"vrtd-linear-convergence-{sampling}"]
        assert conditions(claim, {"rates": found}, stated=True) == {RANDOM, STICKY}
        assert conditions(claim, {"rates": found}, stated=False) == {f"{name}, {outside}" for name in beyond}


def mixing(P, lag=1000):
    n = len(P)
    return next(statements._mixing(lag, {"x": {"P": P, "R": np.zeros(n), "gamma": 0.5}}))


def test_a_chain_that_mixes_slowly_is_within_its_bound():
    """Flipping with probability p: d(t) = (1 - 2p)^t/2, n = 1 and delta = p. After 1000 steps d is still near 1/2."""
    p = 1e-5
    row = mixing([[1 - p, p], [p, 1 - p]])
    assert row["ergodic"] == "yes"
    assert row["power"] == 1
    assert row["distance"] == pytest.approx(0.5 * (1 - 2 * p) ** 1000, rel=1e-9)
    assert row["bound"] == pytest.approx((1 - 2 * p) ** 1000, rel=1e-9)


def test_the_first_power_without_a_zero_may_be_the_largest_possible():
    """Wielandt's matrix: a cycle with one shortcut. Its exponent is S^2 - 2 S + 2."""
    P = np.roll(np.eye(5), 1, axis=1)
    P[4, :2] = 0.5
    row = mixing(P, lag=100)
    least = np.linalg.matrix_power(P, 17).min()
    assert row["power"] == 17
    assert np.linalg.matrix_power(P, 16).min() == 0.0 < least
    assert row["bound"] == pytest.approx((1 - 5 * least) ** 5)
    assert row["distance"] <= row["bound"]


def test_a_periodic_chain_has_no_power_without_a_zero():
    row = mixing(np.roll(np.eye(4), 1, axis=1))
    assert (row["ergodic"], row["power"], row["bound"]) == ("no", 0, 1.0)
