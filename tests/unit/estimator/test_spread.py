"""Spreads from blocks of rows: what they say of values that are linear in theta."""

from __future__ import annotations

import numpy as np
import pytest

import vrtd
from vrtd.errors import InvalidInputError
from vrtd.estimator.spread import BlockSpread
from vrtd.series import block_covariances


def test_blocks_give_the_standard_errors_of_their_covariances() -> None:
    """Where adjacent blocks are positively correlated, their covariance is added."""
    rng = np.random.default_rng(0)
    influence = np.add.accumulate(rng.normal(size=(40, 3)), axis=0) * [1.0, 0.0, 0.0] + rng.normal(size=(40, 3))
    influence[:, 2] -= 0.9 * np.roll(influence[:, 2], 1)  # negatively correlated
    spread = BlockSpread(theta=np.arange(3.0), influence=influence, ends=16 * np.arange(1, 41), n_rows=700)
    phi = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, -2.0, 0.5]])
    own, between = block_covariances(influence)
    correlated = np.einsum("ni,ij,nj->n", phi, between, phi)
    assert correlated[0] > 0.0 > correlated[1]
    expected = np.einsum("ni,ij,nj->n", phi, own, phi) + np.maximum(correlated, 0.0)
    found = spread.estimates(phi)
    np.testing.assert_allclose(found.error**2, expected, rtol=1e-12)
    np.testing.assert_allclose(found.value, phi @ [0.0, 1.0, 2.0], rtol=1e-15)
    assert found.parts is not None
    np.testing.assert_allclose(found.parts.by_block, influence @ phi.T, rtol=1e-15)
    errors = spread.errors(phi, n_rows=350)  # every row came twice
    least = 2.0 * np.einsum("ni,ij,nj->n", phi, own, phi).mean()
    assert errors["budget"] == pytest.approx(np.sqrt(least))
    assert errors["variance"] == pytest.approx(np.sqrt(expected.mean() - least) if expected.mean() > least else 0.0)
    assert spread.converged(phi)


def test_features_without_enough_rows_leave_their_values_open() -> None:
    influence = np.random.default_rng(1).normal(size=(30, 3))
    spread = BlockSpread(
        theta=np.ones(3), influence=influence, n_rows=600, rare=np.array([1]), leak=np.array([[0.1], [0.0], [1.0]]),
        largest=5.0, doubt="of the rows",
    )  # fmt: skip
    found = spread.estimates(np.eye(3))
    assert np.isfinite(found.error).tolist() == [True, False, False]
    assert found.bias.tolist() == [0.5, 0.0, 5.0]
    assert found.parts is None
    assert not spread.converged(np.eye(3))


def test_a_closed_form_without_enough_rows_has_no_spread() -> None:
    draws = np.random.default_rng(2).normal(size=(319, 3))
    log = vrtd.logs.from_arrays(draws[:-1], draws[:-1, 0], draws[1:])
    evaluator = vrtd.Evaluator("closed_form", features=None, discount=0.5).fit(log)
    with pytest.raises(
        InvalidInputError, match=r"The closed form has no interval: it needs 320 rows, but there are only 318"
    ):
        evaluator.spread()
    huge = vrtd.logs.from_arrays(np.tile(draws[:-1], (2, 1)), np.full(636, 1e200), np.tile(draws[1:], (2, 1)))
    evaluator = vrtd.Evaluator("closed_form", features=None, discount=0.5).fit(huge)
    with pytest.raises(InvalidInputError, match="squares of the TD errors are too large"):
        evaluator.spread()
