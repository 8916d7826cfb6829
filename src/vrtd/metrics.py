"""Error metrics of a parameter: quadratic forms about a centre, exact for a known chain."""

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
    """Quadratic form offset + (theta - centre)^T matrix (theta - centre), the form of all metrics.

    Parameters
    ----------
    name : str
        Name of the metric, an identifier.
    matrix : array_like of shape (d, d)
        Matrix of the form.
    centre : array_like of shape (d,)
        Parameter at which the form is smallest if the matrix is positive semi-definite.
    offset : float, default=0.0
        Value at the centre.

    Examples
    --------
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
        problem = f"matrix must have the shape (d, d) and centre (d,), but got {self.matrix.shape} and {d}."
        require(len(d) == 1 and self.matrix.shape == d * 2, problem, "Use the number of features as d in both.")

    def __call__(self, theta: Floats) -> float:
        """Return the value at a parameter.

        Parameters
        ----------
        theta : ndarray of shape (d,)
            The parameter.

        Returns
        -------
        float
            Value of the form.
        """
        u = theta - self.centre
        return float(self.offset + u @ self.matrix @ u)


def squared_error(problem: LinearProblem | Transitions) -> QuadraticForm:
    """Return the metric ``|theta - theta_star|^2``, the error in the figures and theorems of the paper.

    Parameters
    ----------
    problem : LinearProblem or Transitions
        Chain with features, or rows of a data set.

    Returns
    -------
    QuadraticForm
        The metric.

    Examples
    --------
    >>> import vrtd
    >>> problem = vrtd.problems.boyan_chain()
    >>> squared_error(problem)(problem.theta_star + 1.0)
    4.0
    """
    return QuadraticForm("squared_error", np.eye(problem.theta_star.size), problem.theta_star)


def value_error(problem: LinearProblem | Transitions) -> QuadraticForm:
    """Return the metric E (phi(s).theta - V(s))^2, the mean squared error of the values over the state distribution.

    Its offset is the error of the best approximation by the features.

    Parameters
    ----------
    problem : LinearProblem
        Chain with features. Rows of a data set are refused, because their values are unknown.

    Returns
    -------
    QuadraticForm
        The metric.

    Raises
    ------
    InvalidInputError
        If ``problem`` is `Transitions`.

    Notes
    -----
    States without probability in the state distribution do not count. If a chain has an absorbing state, its stationary
    distribution is concentrated there, and the metric ignores all states before it. In this case, let the chain
    restart, or pass ``value_error(LinearProblem(mrp, phi, state_distribution))`` as the metric.

    Examples
    --------
    >>> import vrtd
    >>> problem = vrtd.problems.boyan_chain()
    >>> round(value_error(problem)(problem.theta_star), 9)
    0.0
    """
    if isinstance(problem, Transitions):
        rows = f"The value error needs the values of a known chain, but got {problem.n_rows} rows."
        raise InvalidInputError(rows, "Choose another metric (or pass vrtd.metrics.value_error of that chain).")
    weights, values = problem.state_distribution, problem.mrp.values
    root = np.sqrt(weights)
    centre = np.asarray(np.linalg.lstsq(root[:, None] * problem.phi, root * values)[0], float)
    residual = float(weights @ (problem.phi @ centre - values) ** 2)
    return QuadraticForm("value_error", problem.C, centre, residual)


def neu(problem: LinearProblem | Transitions) -> QuadraticForm:
    """Return the metric ``|A theta + b|^2``, the squared norm of the expected TD update.

    Parameters
    ----------
    problem : LinearProblem or Transitions
        Chain with features, or rows of a data set.

    Returns
    -------
    QuadraticForm
        The metric.

    References
    ----------
    Sutton et al. (2009), Fast gradient-descent methods for temporal-difference learning with linear function
    approximation, ICML.

    Examples
    --------
    >>> import vrtd
    >>> problem = vrtd.problems.boyan_chain()
    >>> round(neu(problem)(problem.theta_star), 9)
    0.0
    """
    return _size_of_update("neu", problem, np.eye(problem.n_features))


def mspbe(problem: LinearProblem | Transitions) -> QuadraticForm:
    """Return the metric (A theta + b)^T C^{-1} (A theta + b), the mean squared projected Bellman error.

    If features are dependent, the pseudo-inverse of C takes the place of the inverse. A theta + b lies in the range of
    C, because it is a mean of multiples of phi.

    Parameters
    ----------
    problem : LinearProblem or Transitions
        Chain with features, or rows of a data set.

    Returns
    -------
    QuadraticForm
        The metric.

    References
    ----------
    Sutton et al. (2009), Fast gradient-descent methods for temporal-difference learning with linear function
    approximation, ICML.

    Examples
    --------
    >>> import vrtd
    >>> problem = vrtd.problems.boyan_chain()
    >>> round(mspbe(problem)(problem.theta_star), 9)
    0.0
    """
    values, vectors = np.linalg.eigh(problem.C)
    kept = values > problem.n_features * np.finfo(np.float64).eps * values[-1]
    return _size_of_update("mspbe", problem, vectors[:, kept].T / np.sqrt(values[kept])[:, None])


def _size_of_update(name: str, problem: LinearProblem | Transitions, root: Floats) -> QuadraticForm:
    """Return the form ``|root (A theta + b)|^2``, about theta_star or, without one, about a minimiser."""
    A, b = root @ problem.A, root @ problem.b
    try:
        return QuadraticForm(name, A.T @ A, problem.theta_star)
    except SingularSystemError:
        centre = np.asarray(np.linalg.lstsq(A, -b)[0], np.float64)
        return QuadraticForm(name, A.T @ A, centre, float(np.sum((A @ centre + b) ** 2)))


METRICS: Mapping[str, Callable[[LinearProblem | Transitions], QuadraticForm]] = MappingProxyType(
    {"squared_error": squared_error, "value_error": value_error, "neu": neu, "mspbe": mspbe}
)
"""Metrics by name. Each is a function from a problem to a `QuadraticForm`."""
