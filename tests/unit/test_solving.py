"""Linear systems that may be singular."""

from __future__ import annotations

import numpy as np
import pytest

from vrtd.solving import least_norm_solver


@pytest.mark.parametrize("smallest", [1e-3, 1e-11], ids=["by LU factors", "by singular values"])
def test_a_system_that_is_invertible_is_solved(smallest: float) -> None:
    """Features of very different sizes do not make it singular; a vector and columns of them are solved alike."""
    rng = np.random.default_rng(0)
    left, right = (np.linalg.qr(rng.normal(size=(5, 5)))[0] for _ in range(2))
    size = np.array([1e-6, 1.0, 1e6, 3.0, 0.1])
    A = (left * [1.0, 0.7, 0.5, 0.3, smallest]) @ right * np.outer(size, size)
    x = rng.normal(size=(5, 3)) / size[:, None]
    solver = least_norm_solver(A, size)
    assert solver is not None
    assert solver.null.shape == (5, 0)
    for found, expected in ((solver(A @ x), x), (solver(A @ x[:, 0]), x[:, 0])):
        scaled = size.reshape(-1, *(1,) * (found.ndim - 1))
        np.testing.assert_allclose(found * scaled, expected * scaled, atol=1e-13 / smallest)


def test_directions_that_are_not_determined_stay_at_0() -> None:
    A = np.diag([2.0, 1e-13, 4.0])
    solver = least_norm_solver(A, np.ones(3))
    assert solver is not None
    np.testing.assert_allclose(np.abs(solver.null), [[0.0], [1.0], [0.0]], atol=1e-12)
    np.testing.assert_allclose(solver(np.array([2.0, 5.0, 4.0])), [1.0, 0.0, 1.0], atol=1e-12)
    assert least_norm_solver(np.zeros((2, 2)), np.ones(2)) is None
    assert least_norm_solver(np.full((2, 2), np.inf), np.ones(2)) is None
