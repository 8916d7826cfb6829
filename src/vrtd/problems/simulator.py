"""A compiled simulator with compiled features: a problem with any state space."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from vrtd.arrays import frozen
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
        First argument of the three functions, e.g. a NamedTuple of numbers and arrays. Arrays are copied and become
        read-only.

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
        object.__setattr__(self, "params", _freeze(self.params))

    def __repr__(self) -> str:
        return f"Simulator({self.name!r}, {self.n_features} features)"

    @property
    def digest(self) -> str:
        """SHA-256 in hexadecimal of the three functions with everything they refer to, the params and the sizes."""
        from vrtd.kernels.digest import digest

        sizes = int(self.n_features), int(self.state_size)
        return digest(self.reset, self.transition, self.features, self.params, *sizes)

    def __reduce__(self) -> Any:  # to another process, compiled functions travel by their names
        names = tuple(_name(self.name, function) for function in (self.reset, self.transition, self.features))
        return _restore, (self.name, names, self.n_features, self.state_size, self.params)


def _name(simulator: str, function: Any) -> tuple[str, str]:
    """Return the module and the name under which another process finds a compiled function."""
    module, name = function.py_func.__module__, function.py_func.__qualname__
    is_global = module != "__main__" and getattr(sys.modules.get(module), name, None) is function
    problem = f"Simulator {simulator!r} cannot be sent to another process, because {name} is not a global of a module."
    require(is_global, problem, f"Define {name} in a module that the other process can import.")
    return module, name


def _restore(name: str, functions: tuple[tuple[str, str], ...], n_features: int, state_size: int, params: Any) -> Any:
    reset, transition, features = (getattr(import_module(module), function) for module, function in functions)
    return Simulator(name, reset, transition, features, n_features, state_size, params)


def _freeze(params: Any) -> Any:
    """Return params with read-only copies of arrays, whose types are the same in every process."""
    if isinstance(params, tuple):
        items = [_freeze(item) for item in params]
        return type(params)(*items) if type(params) is not tuple else tuple(items)
    require(
        isinstance(params, bool | int | float | np.number | np.ndarray),
        f"params of a simulator must be numbers, arrays or tuples of them, but one is {params}.",
        "Pass a NamedTuple.",
    )
    return frozen(params.copy()) if isinstance(params, np.ndarray) else params
