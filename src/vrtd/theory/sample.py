"""A sample of transitions, where the chain itself is not known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, get_args

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import ChainSampling
from vrtd.arrays import frozen, real_array
from vrtd.checks import check_choice, check_count
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem
from vrtd.theory.on_policy import check_on_policy, check_problem

__all__ = ["TransitionSample"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TransitionSample:
    """n transitions: features, reward, features of the next state, discount (one number, or one a row; 0 at the end of
    an episode). Rows are independent draws, or consecutive steps of one trajectory: whoever uses them says which.

    >>> import vrtd
    >>> TransitionSample.draw(vrtd.problems.random_mdp(), 1000, sampling="markov", seed=1).phi.shape
    (1000, 4)
    """

    phi: Floats
    reward: Floats
    phi_next: Floats
    discount: Floats | float

    def __post_init__(self) -> None:
        for field in ("phi", "reward", "phi_next", "discount"):
            object.__setattr__(self, field, real_array(field, getattr(self, field)))
        n = len(self.phi) if self.phi.ndim else 0
        object.__setattr__(self, "discount", np.broadcast_to(self.discount, np.shape(self.discount) or (n,)))
        if self.phi.ndim != 2 or self.phi_next.shape != self.phi.shape or 0 in self.phi.shape:
            raise InvalidInputError(
                "phi and phi_next must both have the shape (n, d)",
                f"{self.phi.shape} and {self.phi_next.shape}",
                "pass one row per transition",
            )
        for field in ("reward", "discount"):
            if getattr(self, field).shape != (n,):
                raise InvalidInputError(
                    f"{field} must have the shape ({n},)", getattr(self, field).shape, "pass one number per transition"
                )
        if np.any((self.discount < 0.0) | (self.discount > 1.0)):
            raise InvalidInputError(
                "discounts must lie in [0, 1]",
                f"{np.min(self.discount)} to {np.max(self.discount)}",
                "pass 0 where an episode ends",
            )
        largest = np.abs(self.phi).max(axis=0)
        rank = int(np.linalg.matrix_rank(self.phi / np.where(largest > 0.0, largest, 1.0)))  # scales do not matter
        if rank < self.phi.shape[1]:
            raise InvalidInputError(
                f"phi must have full column rank {self.phi.shape[1]} on the sample",
                f"rank {rank}",
                "remove dependent features, or bring more transitions",
            )
        for field in ("phi", "reward", "phi_next"):
            frozen(getattr(self, field))

    @property
    def n_features(self) -> int:
        return int(self.phi.shape[1])

    def __len__(self) -> int:
        return len(self.phi)

    @classmethod
    def draw(
        cls,
        problem: LinearProblem,
        n_transitions: int,
        *,
        sampling: ChainSampling = "markov",
        seed: int = 0,
    ) -> Self:
        """A sample from a chain that is known, for trying things out; it starts from the stationary distribution."""
        check_choice("sampling", sampling, get_args(ChainSampling))
        check_count("n_transitions", n_transitions)
        check_count("seed", seed, least=0)
        (check_problem if sampling == "iid" else check_on_policy)(problem)
        mrp, table, edges, n = problem.mrp, problem.phi, problem.mrp.edges, int(n_transitions)
        rng = np.random.default_rng(seed)
        if sampling == "iid":
            chosen = rng.choice(edges.origin.size, n, p=problem.state_distribution[edges.origin] * edges.probability)
        else:
            # A cumulative sum over all edges serves every state: its own edges lie between two whole numbers.
            ends = np.cumsum(edges.probability)
            base = np.concatenate([[0.0], ends])[edges.indptr[:-1]].tolist()
            last = (edges.indptr[1:] - 1).tolist()
            first, successor = edges.indptr[:-1].tolist(), edges.successor.tolist()
            s = int(rng.choice(mrp.n_states, p=mrp.stationary))
            chosen = np.empty(n, np.int64)
            for i, u in enumerate(rng.random(n).tolist()):
                e = min(max(int(np.searchsorted(ends, base[s] + u, side="right")), first[s]), last[s])
                chosen[i] = e
                s = successor[e]
        return cls(
            table[edges.origin[chosen]], edges.reward[chosen], table[edges.successor[chosen]], edges.discount[chosen]
        )
