"""How wrong a parameter is: quadratic forms about a centre, exact where the chain is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from vrtd.arrays import Floats, frozen, real_array
from vrtd.checks import check_identifier, require
from vrtd.errors import InvalidInputError, SingularSystemError
from vrtd.problems import LinearProblem, Transitions


@dataclass(frozen=True, eq=False)
class QuadraticForm:
    """offset + (theta - centre)^T matrix (theta - centre)

    >>> QuadraticForm("distance", np.eye(2), np.zeros(2))(np.array([3.0, 4.0]))
    25.0
    """

    name: str
    matrix: Floats
    centre: Floats
    offset: float = 0.0

    def __post_init__(self) -> None:
        check_identifier("the name of a metric", self.name)
        for field in ("matrix", "centre"):
            object.__setattr__(self, field, frozen(real_array(field, getattr(self, field))))
        object.__setattr__(self, "offset", float(real_array("offset", self.offset)))
        d = self.centre.shape
        must, got = "the matrix of a metric must be (d, d) and its centre (d,)", f"{self.matrix.shape} and {d}"
        require(len(d) == 1 and self.matrix.shape == d * 2, must, got, "give both the number of features")

    def __call__(self, theta: Floats) -> float:
        u = theta - self.centre
        return float(self.offset + u @ self.matrix @ u)


def squared_error(problem: LinearProblem | Transitions) -> QuadraticForm:
    """|theta - theta_star|^2, the error of the paper's figures and theorems."""
    return QuadraticForm("squared_error", np.eye(problem.theta_star.size), problem.theta_star)


def value_error(problem: LinearProblem | Transitions) -> QuadraticForm:
    """E (phi(s).theta - V(s))^2 over the state distribution; its offset is what the features cannot represent.

    States that the distribution does not visit do not count. The stationary distribution of a chain with an absorbing
    state has no other state, so the error says nothing about the states before: make the chain restart, or pass
    `value_error(LinearProblem(mrp, phi, state_distribution))` as the metric.
    """
    if isinstance(problem, Transitions):
        must = "the value error needs the values of a known chain"
        do = "choose another metric (or pass that chain's vrtd.metrics.QuadraticForm)"
        raise InvalidInputError(must, f"{problem.n_rows} rows", do)
    weights, values = problem.state_distribution, problem.mrp.values
    root = np.sqrt(weights)
    centre = np.asarray(np.linalg.lstsq(root[:, None] * problem.phi, root * values)[0], float)
    residual = float(weights @ (problem.phi @ centre - values) ** 2)
    return QuadraticForm("value_error", problem.C, centre, residual)


def neu(problem: LinearProblem | Transitions) -> QuadraticForm:
    """|E[delta phi]|^2 = |A theta + b|^2, the norm of the expected TD update (Sutton et al. 2009)."""
    return _size_of_update("neu", problem, np.eye(problem.n_features))


def mspbe(problem: LinearProblem | Transitions) -> QuadraticForm:
    """(A theta + b)^T C^{-1} (A theta + b), the mean squared projected Bellman error (Sutton et al. 2009).

    Of dependent features C has a pseudo-inverse in place of its inverse: A theta + b, a mean of multiples of phi, lies
    in its range.
    """
    values, vectors = np.linalg.eigh(problem.C)
    kept = values > problem.n_features * np.finfo(np.float64).eps * values[-1]
    return _size_of_update("mspbe", problem, vectors[:, kept].T / np.sqrt(values[kept])[:, None])


def _size_of_update(name: str, problem: LinearProblem | Transitions, root: Floats) -> QuadraticForm:
    """|root (A theta + b)|^2, about theta_star or else a point where it is least."""
    A, b = root @ problem.A, root @ problem.b
    try:
        return QuadraticForm(name, A.T @ A, problem.theta_star)
    except SingularSystemError:
        centre = np.asarray(np.linalg.lstsq(A, -b)[0], np.float64)
        return QuadraticForm(name, A.T @ A, centre, float(np.sum((A @ centre + b) ** 2)))


METRICS: Mapping[str, Callable[[LinearProblem | Transitions], QuadraticForm]] = MappingProxyType(
    {"squared_error": squared_error, "value_error": value_error, "neu": neu, "mspbe": mspbe}
)
