"""A fixed data set of transitions, used again and again, and the linear system that it defines."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.arrays import frozen, real_array
from vrtd.checks import warn_if_ill_conditioned
from vrtd.errors import InvalidInputError, SingularSystemError

if TYPE_CHECKING:
    from vrtd.algorithms import Sampling

__all__ = ["DataSet"]

Floats = NDArray[np.float64]


@final
class DataSet:
    """n transitions as feature rows; means over the rows take the place of expectations.

    Args:
        phi: (n, d) features of the states that were left.
        reward: (n,) rewards.
        phi_next: (n, d) features of the states that were reached.
        discount: a number in [0, 1], or (n,) of them, 0 where a transition terminates.
        weight: (n,) importance ratios; 1 if left out.

    The order of the rows matters to methods that take batches of them: shuffle rows of a trajectory.

    >>> data = DataSet(phi=[[1.0], [0.5]], reward=[1.0, 2.0], phi_next=[[0.5], [1.0]], discount=0.9)
    >>> data.theta_star.round(4)
    array([5.7143])
    """

    samplings: ClassVar[tuple[Sampling, ...]] = ("dataset",)  # of `simulate`

    def __init__(
        self,
        phi: ArrayLike,
        reward: ArrayLike,
        phi_next: ArrayLike,
        discount: ArrayLike,
        weight: ArrayLike | None = None,
    ) -> None:
        table = real_array("phi", phi)
        if table.ndim != 2 or 0 in table.shape:
            raise InvalidInputError("phi must have the shape (n, d)", table.shape, "pass one row a transition")
        n = table.shape[0]
        self.phi = frozen(table)
        self.reward = _column("reward", reward, n)
        self.phi_next = frozen(real_array("phi_next", phi_next))
        if self.phi_next.shape != table.shape:
            raise InvalidInputError(f"phi_next must have the shape {table.shape}", self.phi_next.shape, "match phi")
        self.discount = _column("discount", np.broadcast_to(discount, n) if np.ndim(discount) == 0 else discount, n)
        self.weight = _column("weight", np.ones(n) if weight is None else weight, n)
        for name, values, most in (("discount", self.discount, 1.0), ("weight", self.weight, np.inf)):
            bad = np.flatnonzero((values < 0.0) | (values > most))
            if bad.size:
                span = "in [0, 1]" if most == 1.0 else "non-negative"
                raise InvalidInputError(f"{name} must be {span}", f"{values[bad[0]]} in row {bad[0]}", "repair it")

    def __repr__(self) -> str:
        return f"DataSet({self.n_rows} rows, {self.n_features} features)"

    @property
    def n_rows(self) -> int:
        return int(self.phi.shape[0])

    @property
    def n_features(self) -> int:
        return int(self.phi.shape[1])

    @cached_property
    def A(self) -> Floats:
        """(d, d) mean of weight phi (discount phi' - phi)^T."""
        weighted = self.weight[:, None] * self.phi
        return frozen(weighted.T @ (self.discount[:, None] * self.phi_next - self.phi) / self.n_rows)

    @cached_property
    def b(self) -> Floats:
        """(d,) mean of weight r phi."""
        return frozen(self.phi.T @ (self.weight * self.reward) / self.n_rows)

    @cached_property
    def C(self) -> Floats:
        """(d, d) mean of phi phi^T."""
        return frozen(self.phi.T @ self.phi / self.n_rows)

    @cached_property
    def theta_star(self) -> Floats:
        """(d,) the data's own solution of A theta + b = 0: least-squares temporal differences."""
        condition = float(np.linalg.cond(self.A))
        if not condition * self.n_features * np.finfo(np.float64).eps < 1.0:
            raise SingularSystemError(
                "A of the data set must be invertible",
                f"condition number {condition:.3g} from {self.n_rows} rows",
                "give more rows, or remove dependent features",
            )
        warn_if_ill_conditioned(condition, stacklevel=3)
        return frozen(np.asarray(-np.linalg.solve(self.A, self.b), np.float64))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the rows, in hexadecimal."""
        sha = hashlib.sha256()
        for array in (self.phi, self.reward, self.phi_next, self.discount, self.weight):
            sha.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return sha.hexdigest()


def _column(name: str, values: Any, n: int) -> Floats:
    column = real_array(name, values)
    if column.shape != (n,):
        raise InvalidInputError(f"{name} must have the shape ({n},)", column.shape, "pass one number a row of phi")
    return frozen(column)
