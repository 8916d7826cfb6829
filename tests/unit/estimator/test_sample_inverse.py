"""The inverse of A that a few rows tell."""

from __future__ import annotations

import numpy as np
import pytest

from tests.helpers.streams import GAMMA, some_rows, to_samples
from tests.reference.linear_fit import sample_inverse
from vrtd.estimator.sample_inverse import SampleInverse
from vrtd.problems import Transitions


def frequencies(counts: list[int]) -> Transitions:
    """Rows of a table of states, with as many of each as `counts` says, and no discount."""
    phi = np.repeat(np.eye(len(counts)), counts, axis=0)
    return Transitions(phi, np.ones(len(phi)), np.zeros_like(phi), 0.0)


def test_it_tends_to_the_inverse_with_many_rows() -> None:
    v = np.linspace(1.0, 2.0, 5)
    errors = []
    for n in (200, 20_000):
        rows = some_rows(n, 5)
        exact = -np.linalg.solve(rows.A, v)
        errors.append(np.linalg.norm(SampleInverse(rows)(v) - exact) / np.linalg.norm(exact))
    assert errors[1] < 1e-3
    assert errors[1] < 0.02 * errors[0]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [8, 12, 13, 60], ids=lambda n: f"{n} rows of 12 features")
def test_it_minimises_the_residual_and_its_variance(n: int, weighted: bool) -> None:
    rows, vectors = some_rows(n, 12, weighted=weighted), np.random.default_rng(1).normal(size=(3, 12))
    inverse, naive = SampleInverse(rows, caution=0.5), sample_inverse(to_samples(rows), 0.5)
    np.testing.assert_allclose(inverse(vectors), [naive(v) for v in vectors], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(inverse(vectors[0]), naive(vectors[0]), rtol=1e-8, atol=1e-10)


def test_caution_shrinks_states_by_how_rare_they_are() -> None:
    """With m of n rows in a state, A w + v is v - (m/n) w, and its variance counts c w^2 m / n^2."""
    counts = np.array([1, 9, 990])
    w = SampleInverse(frequencies(counts.tolist()), caution=2.0)(np.ones(3))
    np.testing.assert_allclose(w, 1000 / (counts + 2.0), rtol=1e-2)


@pytest.mark.parametrize("n", [5, 40], ids=["more features than rows", "more rows than features"])
def test_a_feature_that_only_successors_have_stays(n: int) -> None:
    rows = some_rows(n, 6)
    phi, phi_next = rows.phi.copy(), rows.phi_next.copy()
    phi[:, 2] = 0.0
    only_next = Transitions(phi, rows.reward, phi_next, GAMMA)
    phi_next[:, 2] = 0.0
    neither = Transitions(phi, rows.reward, phi_next, GAMMA)
    found = SampleInverse(only_next)(np.ones(6))
    assert found[2] == 0.0
    np.testing.assert_allclose(found, SampleInverse(neither)(np.ones(6)), rtol=1e-9)


@pytest.mark.parametrize("n", [2, 9])
def test_rows_of_zeros_tell_nothing(n: int) -> None:
    zeros = np.zeros((n, 4))
    assert not SampleInverse(Transitions(zeros, np.ones(n), zeros, GAMMA))(np.ones(4)).any()
