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
    """Environment under a policy, with features, as three compiled functions.

    Compile the functions with ``vrtd.kernels.jit.dynamics``. They draw random numbers from the stream of the run with
    ``vrtd.kernels.random.next_uniform``, ``uniform_index`` and ``next_word``.

    Parameters
    ----------
    name : str
        Name of the simulator, a Python identifier.
    reset : callable
        ``reset(params, state, stream)`` writes a start state into ``state``.
    transition : callable
        ``transition(params, state, stream)`` moves ``state`` one step on and returns ``(reward, discount, done)``. The
        discount is 0 if the transition terminates. ``done`` tells whether ``reset`` follows. A truncated step is done
        and keeps its discount.
    features : callable
        ``features(params, state, out)`` writes the features of ``state`` into ``out``.
    n_features : int
        Number of features.
    state_size : int
        Number of floats in a state.
    params : number, array or tuple of them, default=()
        First argument of the three functions, e.g. a NamedTuple of numbers and arrays.

    Examples
    --------
    >>> from vrtd.kernels.jit import dynamics
    >>> @dynamics
    ... def reset(params, state, stream):
    ...     state[0] = 0.0
    >>> @dynamics
    ... def transition(params, state, stream):
    ...     state[0] += 1.0
    ...     return -1.0, 0.9, state[0] >= 3.0
    >>> @dynamics
    ... def features(params, state, out):
    ...     out[0] = 1.0
    >>> Simulator("counter", reset, transition, features, n_features=1, state_size=1).n_features
    1
    """

    samplings: ClassVar[tuple[Sampling, ...]] = ("markov",)  # accepted by `simulate`

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
        for function in (self.reset, self.transition, self.features):
            require(
                isinstance(function, Dispatcher),
                f"reset, transition and features of a simulator must be compiled, but one is {function!r}.",
                "Decorate them with vrtd.kernels.jit.dynamics.",
            )
        check_count("n_features of a simulator", self.n_features)
        check_count("state_size of a simulator", self.state_size)
        _check_params(self.params)

    @property
    def digest(self) -> str:
        """SHA-256 in hexadecimal of the three functions with everything they refer to, the params and the sizes."""
        from vrtd.kernels.digest import digest

        sizes = int(self.n_features), int(self.state_size)
        return digest(self.reset, self.transition, self.features, self.params, *sizes)


def _check_params(params: Any) -> None:
    if isinstance(params, tuple):
        for item in params:
            _check_params(item)
    else:
        require(
            isinstance(params, bool | int | float | np.number | np.ndarray),
            f"params of a simulator must be numbers, arrays or tuples of them, but one is {params}.",
            "Pass a NamedTuple.",
        )
