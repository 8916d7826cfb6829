"""Mixing constants bound the distance from stationarity, and nearly as tightly as can be."""

import numpy as np
import pytest
import scipy.sparse as sp

from tests.helpers.chains import TWO, chain, distances
from vrtd.errors import AccuracyError, InvalidInputError
from vrtd.problems import MarkovRewardProcess, boyan_chain, garnet, random_mdp
from vrtd.problems.mixing import mixing_constants

LAZY = 0.99 * np.eye(50) + 0.01 * random_mdp().mrp.P
RING = 0.9 * np.roll(np.eye(11), 1, axis=1) + 0.1 * np.roll(np.eye(11), 2, axis=1)
WITH_TRANSIENT = np.array([[0.9, 0.1, 0.0], [0.0, 0.5, 0.5], [0.0, 0.2, 0.8]])
JORDAN = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]])  # d(t) is not purely geometric


@pytest.mark.parametrize(
    ("P", "slack"),
    [
        (TWO, 1.01),
        (LAZY, 1.01),
        (RING, 1.01),
        (WITH_TRANSIENT, 1.01),
        (JORDAN, 1.01),
        (random_mdp().mrp.P, 1.01),
        (garnet(n_states=40).mrp.P.toarray(), 1.01),
        (boyan_chain().mrp.P.toarray(), 1.01),
        (0.9995 * np.eye(6) + 0.0005 * random_mdp(n_states=6).mrp.P, 1.06),  # beyond the exact times
    ],
)
def test_mixing_constants_bound_the_distance_and_nearly_minimise(P, slack):
    mrp = chain(P)
    kappa, rho = mrp.mixing_constant, mrp.mixing_rate
    d = distances(mrp.P, mrp.stationary, 30_000 if rho > 0.999 else 3_000)
    t = np.arange(d.size)
    reliable = d > 1e-12
    assert (d[reliable] <= kappa * rho ** t[reliable]).all()
    second = np.sort(np.abs(np.linalg.eigvals(P)))[-2]
    assert second < rho < 1.0
    grid = 1.0 - (1.0 - second) * np.geomspace(1e-3, 1.0 - 1e-4, 2_000)
    best = min((d[reliable] / r ** t[reliable]).max() / (1.0 - r) for r in grid)
    assert kappa / (1.0 - rho) <= slack * best


@pytest.mark.parametrize("P", [np.full((4, 4), 0.25), np.tile([0.1, 0.2, 0.7], (3, 1))])
def test_mixing_constants_of_identical_rows(P):
    mrp = chain(P)
    assert 0.0 < mrp.mixing_rate <= 1e-7
    assert mrp.mixing_constant == pytest.approx(1.0 - mrp.stationary.min(), abs=1e-8)


def test_mixing_constants_of_a_single_state():
    mrp = chain([[1.0]])
    assert 0.0 < mrp.mixing_constant < 1e-200
    assert 0.0 < mrp.mixing_rate < 1.0


def test_mixing_constants_are_refused_where_they_do_not_exist():
    ring = chain(np.roll(np.eye(4), 1, axis=1))
    assert ring.stationary == pytest.approx([0.25] * 4)
    for name in ("mixing_constant", "mixing_rate"):
        with pytest.raises(InvalidInputError, match="only for aperiodic chains, but this chain has period 4"):
            getattr(ring, name)
        with pytest.raises(InvalidInputError, match="at most 2000 states, but this one has 2001"):
            getattr(MarkovRewardProcess(sp.eye_array(2001), np.zeros(2001), 0.5), name)


def test_a_chain_that_never_mixes_is_reported():
    with pytest.raises(AccuracyError, match=r"stationary distribution: after 2\^50 steps, the distance is 0\.5"):
        mixing_constants(np.eye(2), np.full(2, 0.5))


def test_the_coarse_grid_of_large_chains_is_still_a_bound():
    P = 0.7 * np.eye(520) + 0.3 * np.roll(np.eye(520), 1, axis=1)
    P[:, 0] += 0.002
    P /= P.sum(axis=1, keepdims=True)
    mrp = chain(P)
    kappa, rho = mrp.mixing_constant, mrp.mixing_rate
    d = distances(mrp.P, mrp.stationary, 400)
    assert (d <= kappa * rho ** np.arange(400)).all()
