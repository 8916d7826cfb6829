"""A compiled simulator with compiled features: a problem with any state space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vrtd.checks import check_count, check_identifier, require

if TYPE_CHECKING:
    from vrtd.algorithms import Sampling


@dataclass(frozen=True)
class Simulator:
    """An environment under a policy, as three functions compiled with `vrtd.kernels.jit.dynamics`.

    - ``reset(params, state, stream)`` writes a start state into `state`;
    - ``transition(params, state, stream) -> (reward, discount, done)`` moves `state` on. `discount` is 0 where the
      transition terminates; `done` says that `reset` follows (a truncated step has `done` and keeps its discount);
    - ``features(params, state, out)`` writes the `n_features` features of `state` into `out`.

    `stream` is the run's environment stream: draw from it with `vrtd.kernels.random.next_uniform` and its kin.
    """

    samplings: ClassVar[tuple[Sampling, ...]] = ("markov",)  # of `simulate`

    name: str
    reset: Callable[..., Any]
    transition: Callable[..., Any]
    features: Callable[..., Any]
    n_features: int
    state_size: int
    params: Any = ()

    def __post_init__(self) -> None:
        from numba.core.dispatcher import Dispatcher

        check_identifier("the name of a simulator", self.name)
        must = "reset, transition and features of a simulator must be compiled"
        for function in (self.reset, self.transition, self.features):
            is_compiled = isinstance(function, Dispatcher)
            require(is_compiled, must, repr(function), "decorate them with vrtd.kernels.jit.dynamics")
        check_count("n_features of a simulator", self.n_features)
        check_count("state_size of a simulator", self.state_size)
        _check_params(self.params)

    @property
    def digest(self) -> str:
        """Of all that makes its transitions: its functions with what they refer to, its params and sizes."""
        from vrtd.kernels.digest import digest

        sizes = int(self.n_features), int(self.state_size)
        return digest(self.reset, self.transition, self.features, self.params, *sizes)


def _check_params(params: Any) -> None:
    if isinstance(params, tuple):
        for item in params:
            _check_params(item)
    else:
        must = "params of a simulator must be numbers, arrays, or tuples of them"
        require(isinstance(params, bool | int | float | np.number | np.ndarray), must, params, "pass a NamedTuple")
