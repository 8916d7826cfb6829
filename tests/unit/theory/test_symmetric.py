"""Packed symmetric matrices and powers of maps against plain linear algebra."""

import numpy as np
import pytest

from vrtd.theory.symmetric import corner, operator, orbit, outer, pack, powers, quadratic, triangle, unpack

RNG = np.random.default_rng(0)


def symmetric(n, *stack):
    X = RNG.normal(size=(*stack, n, n))
    return X + X.swapaxes(-1, -2)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_unpack_undoes_pack_on_stacks(n):
    X = symmetric(n, 3, 2)
    packed = pack(X)
    assert packed.shape == (3, 2, triangle(n))
    assert np.array_equal(unpack(packed, n), X)


def test_pack_takes_the_upper_triangle_by_rows():
    assert pack(np.arange(9.0).reshape(3, 3)).tolist() == [0, 1, 2, 4, 5, 8]


def test_pack_of_an_outer_product_and_a_quadratic_form():
    v, X = RNG.normal(size=(4, 3)), symmetric(3)
    assert np.allclose(outer(v), [pack(np.outer(row, row)) for row in v])
    assert np.allclose(quadratic(v) @ pack(X), [row @ X @ row for row in v])


@pytest.mark.parametrize(("n", "d"), [(3, 1), (5, 2), (5, 5)])
def test_corner_is_the_leading_block(n, d):
    X = symmetric(n)
    assert np.array_equal(pack(X)[corner(n, d)], pack(X[:d, :d]))


def test_operator_is_the_matrix_of_its_function():
    B, X = RNG.normal(size=(3, 3)), symmetric(3)
    T = operator(lambda Y: B @ Y @ B.T, 3)
    assert np.allclose(unpack(T @ pack(X), 3), B @ X @ B.T)
    smaller = operator(lambda Y: B[:2] @ Y @ B[:2].T, 3)  # another size may come out
    assert smaller.shape == (3, 6)
    assert np.allclose(unpack(smaller @ pack(X), 2), B[:2] @ X @ B[:2].T)


def test_powers_by_squaring_are_powers():
    T = RNG.normal(size=(4, 4)) / 2.0
    found = powers(T, [5, 0, 1, 6, 5, 64, 37])
    assert set(found) == {0, 1, 5, 6, 37, 64}
    for k, power in found.items():
        assert np.allclose(power, np.linalg.matrix_power(T, k), rtol=1e-12, atol=0.0)
    assert powers(T, []) == {}
    assert np.array_equal(powers(T, [0])[0], np.eye(4))


@pytest.mark.parametrize("counts", [[0, 1, 2, 3, 10, 11], [4], [7, 7, 20], [0]])
def test_orbit_visits_the_powers_in_turn(counts):
    T, x = RNG.normal(size=(3, 3)) / 2.0, RNG.normal(size=3)
    expected = [np.linalg.matrix_power(T, k) @ x for k in counts]
    assert np.allclose(orbit(T, x, np.array(counts)), expected, rtol=1e-12, atol=1e-15)


def test_overflow_is_silent_and_seen():
    path = orbit(np.array([[3.0, 1.0], [0.0, 1.0]]), np.ones(2), np.array([1, 10, 100_000]))
    assert np.isfinite(path[:2]).all()
    assert not np.isfinite(path[2]).all()
