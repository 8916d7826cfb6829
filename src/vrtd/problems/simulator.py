"""A compiled simulator with compiled features: a problem with any state space."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vrtd.checks import check_count
from vrtd.errors import InvalidInputError

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

        if not isinstance(self.name, str) or not self.name.isidentifier():
            raise InvalidInputError("the name of a simulator must be an identifier", repr(self.name), "rename it")
        for function in (self.reset, self.transition, self.features):
            if not isinstance(function, Dispatcher):
                raise InvalidInputError(
                    "reset, transition and features of a simulator must be compiled",
                    repr(function),
                    "decorate them with vrtd.kernels.jit.dynamics",
                )
        check_count("n_features of a simulator", self.n_features)
        check_count("state_size of a simulator", self.state_size)
        _check_params(self.params)

    @property
    def digest(self) -> str:
        """Of all that makes its transitions: its functions with what they refer to, its params and sizes."""
        from vrtd.kernels.digest import digest

        return digest(
            self.reset, self.transition, self.features, self.params, int(self.n_features), int(self.state_size)
        )


def _check_params(params: Any) -> None:
    if isinstance(params, tuple):
        for item in params:
            _check_params(item)
    elif not isinstance(params, bool | int | float | np.number | np.ndarray):
        raise InvalidInputError(
            "params of a simulator must be numbers, arrays, or tuples of them", repr(params), "pass a NamedTuple"
        )
