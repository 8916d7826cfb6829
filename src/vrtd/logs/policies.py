"""Policies for live environments: conversion of names, functions, arrays and models to checked functions."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from copy import deepcopy
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple, Protocol, final, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vrtd.checks import check_choice, check_flag, require
from vrtd.errors import DataError, InvalidInputError, VrtdError
from vrtd.problems.environments import gymnasium_library
from vrtd.problems.mdp import policy_matrix

#: (observation, step) -> a valid action; for a vector environment, batches of observations and actions.
Actor = Callable[[Any, int], Any]

_PURPOSE = 0x706F6C  # makes the draws of a policy differ from those of an environment with the same seed
_DRAWS = 1024  # per call, because a call per step would cost more than the step


@runtime_checkable
class Predictor(Protocol):
    """Object with a method `predict`, as a model of Stable-Baselines."""

    def predict(self, observation: Any) -> Any:
        """Return an action, or a tuple of an action and a state."""
        ...


#: "random" | "package.module:name" | function of an observation | (S, A) probabilities | (S,) actions | Predictor
Policy = str | Callable[[Any], Any] | ArrayLike | Predictor


class ActionLayout(NamedTuple):
    """Form of one action in a log."""

    shape: tuple[int, ...]  # in the environment
    dtype: type[np.int64 | np.float64]
    first: int  # the environment's number of action 0

    @staticmethod
    def of(space: Any) -> ActionLayout | None:
        """Return the layout of the actions of one environment, or None unless they are Discrete or a Box of floats."""
        spaces = gymnasium_library().spaces
        if isinstance(space, spaces.Discrete):
            return ActionLayout((), np.int64, int(space.start))
        if isinstance(space, spaces.Box) and space.dtype.kind == "f":
            return ActionLayout(tuple(space.shape), np.float64, 0)
        return None

    def allocate(self, n_rows: int) -> NDArray[Any]:
        """Allocate an array of `n_rows` actions."""
        return np.empty((n_rows, *self.shape), self.dtype)

    def convert(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Convert actions of an environment to their form in a log: numbers from 0 on (n,), or vectors (n, k)."""
        return actions - self.first if self.dtype is np.int64 else actions.reshape(len(actions), -1)


def as_policy(
    policy: Policy, observation_space: Any, action_space: Any, n_envs: int | None = None, clip_actions: bool = False
) -> Callable[[int], Actor]:
    """Return a function that creates a fresh actor from a seed.

    Parameters
    ----------
    policy : Policy
        One of the following.

        - "random": uniform on a Discrete space, `sample()` of a copy of any other space, both with their own seed.
        - A function of the observation that returns an action.
        - An array of probabilities (S, A) or integer actions (S,), if both spaces are Discrete.
        - An object with a method `predict(observation)` that returns an action or a tuple of action and state. The
          state is not passed back, so a recurrent policy must store it.
        - "package.module:name", the name of such a function or object; see `load_policy`.

        A function or object that draws random numbers uses its own generator, so that two readings differ.
    observation_space, action_space : gymnasium.Space
        Spaces of one environment.
    n_envs : int, optional
        Number of environments of a vector environment. Functions and predictors are then called with the batch of
        observations and return the batch of actions. None for a single environment.
    clip_actions : bool, default=False
        Whether actions of a Box are clipped to its bounds.

    Returns
    -------
    Callable[[int], Actor]
        Function from a seed to an actor.
    """
    check = _ActionCheck(action_space, n_envs, clip_actions)
    if isinstance(policy, str) and ":" in policy:
        policy = load_policy(policy)
    if isinstance(policy, str):
        check_choice("policy", policy, ("random",))
        return _random(action_space, n_envs)
    if isinstance(policy, Predictor):
        act: Callable[[Any], Any] = partial(_predict, policy)
    elif callable(policy):
        act = policy
    else:
        return _tabular(policy, observation_space, action_space, n_envs)
    if n_envs is not None:
        act = partial(_act_on_batch, act, n_envs)
    return lambda _seed: lambda observation, step: check(_call(act, observation, step), step)


def load_policy(text: str) -> Callable[[Any], Any] | Predictor:
    """Import a policy from an installed module.

    Parameters
    ----------
    text : str
        Name of a function of an observation, or of an object with `predict`, as "package.module:name". The module is
        imported, so its code runs. The current folder is searched only if Python does so itself.

    Returns
    -------
    callable or Predictor
        The function or object.

    Examples
    --------
    >>> load_policy("operator:not_")(True)
    False
    """
    match = re.fullmatch(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)", text)
    if match is None:
        raise InvalidInputError(
            f"policy must be 'random' or have the form package.module:name, but is {text!r}.",
            "Write the name of a function in this form.",
        )
    module_name, name = match.groups()
    try:
        module = import_module(module_name)
    except Exception as error:  # a module may raise anything
        raise InvalidInputError(
            f"The module {module_name} of the policy cannot be imported: {type(error).__name__}: {error}.",
            "Install the module, or correct its name.",
        ) from error
    try:
        policy: Any = getattr(module, name)
    except AttributeError:
        near = get_close_matches(name, dir(module), n=1)
        remedy = f"Did you mean {near[0]!r}?" if near else "Name a function, or an object with a method predict."
        raise InvalidInputError(f"The module {module_name} has no policy {name!r}.", remedy) from None
    if isinstance(policy, type) or not (callable(policy) or isinstance(policy, Predictor)):
        raise InvalidInputError(
            f"The policy {text!r} must be a function of an observation or an object with a method predict, "
            f"but is {f'the class {name}' if isinstance(policy, type) else f'{policy!r:.60}'}.",
            "Name another object, or create an instance in the module.",
        )
    return policy  # type: ignore[no-any-return]


def _call(act: Callable[[Any], Any], observation: Any, step: int) -> Any:
    """Call a policy, and raise an error with the step if it fails."""
    try:
        return act(observation)
    except VrtdError:
        raise
    except Exception as error:  # the code of a user may raise anything
        raise InvalidInputError(
            f"The policy failed at step {step}: {type(error).__name__}: {' '.join(f'{error}'.split()):.200}.",
            "Fix the policy.",
        ) from error


def _act_on_batch(act: Callable[[Any], Any], n_envs: int, observations: Any) -> Any:
    """Call a policy with a batch of observations, and explain the error if it accepts only single ones."""
    try:
        return act(observations)
    except (TypeError, ValueError, LookupError) as error:
        try:
            act(observations[0])
        except Exception:  # it fails for one observation, too
            raise error from None
        raise InvalidInputError(
            f"The policy must accept the batch of {n_envs} observations of a vector environment, "
            f"but accepts only a single observation ({type(error).__name__}: {error}).",
            "Return an action for each row, or omit n_envs to use a single environment.",
        ) from error


def _predict(model: Predictor, observation: Any) -> Any:
    answer = model.predict(observation)
    return answer[0] if isinstance(answer, tuple) else answer


def _random(space: Any, n_envs: int | None) -> Callable[[int], Actor]:
    gym = gymnasium_library()
    if isinstance(space, gym.spaces.Discrete):
        low, high = int(space.start), int(space.start + space.n)

        def uniform(seed: int) -> Actor:
            rng = _generator(seed)
            draws = _draws(lambda size: rng.integers(low, high, size), n_envs)
            return lambda _observation, _step: next(draws)

        return uniform
    batched = space if n_envs is None else gym.vector.utils.batch_space(space, n_envs)

    def sample(seed: int) -> Actor:
        copied = deepcopy(batched)  # the environment's space would keep its state between readings
        copied.seed(int(np.random.SeedSequence([seed, _PURPOSE]).generate_state(1)[0]))
        return lambda _observation, _step: copied.sample()

    return sample


def _tabular(policy: ArrayLike, observations: Any, actions: Any, n_envs: int | None) -> Callable[[int], Actor]:
    gym = gymnasium_library()
    for what, space in (("observation", observations), ("action", actions)):
        if not isinstance(space, gym.spaces.Discrete):
            raise InvalidInputError(
                f"A policy that is an array needs a Discrete {what} space, but the space is {space!s:.100}.",
                "Pass a function of the observation, or an object with a method predict.",
            )
    n, start, least = int(observations.n), int(observations.start), int(actions.start)
    pi = policy_matrix(policy, n, int(actions.n))
    cumulative = pi.cumsum(axis=1)
    # Rounding must not leave a gap below 1, nor draw an action of probability 0.
    cumulative[cumulative >= cumulative[:, -1:]] = 1.0
    rows = cumulative.tolist()

    def state(observation: Any, step: int) -> Any:
        s = np.asarray(observation)
        outside = (s < start) | (s >= start + n)
        if np.any(outside):
            raise DataError(
                f"The observation {s[outside].flat[0]} at {_place(step, outside, n_envs)} is outside {observations}.",
                "Fix the environment or its observation space.",
            )
        return s - start

    def draw(seed: int) -> Actor:
        uniforms = _draws(_generator(seed).random, n_envs)
        if n_envs is None:
            return lambda observation, step: least + bisect_right(rows[state(observation, step)], next(uniforms))
        return lambda observation, step: (
            least + (cumulative[state(observation, step)] <= next(uniforms)[:, None]).sum(axis=1)
        )

    return draw


@final
class _ActionCheck:
    """Check that actions of a policy are in the space, and conversion to its type."""

    def __init__(self, space: Any, n_envs: int | None, clip: bool) -> None:
        gym = gymnasium_library()
        check_flag("clip_actions", clip)
        self._space, self._n_envs, self._clip = space, n_envs, clip
        self._is_box = isinstance(space, gym.spaces.Box) and space.dtype.kind == "f"
        require(
            self._is_box or not clip,
            f"clip_actions needs an action space that is a Box of floats, but the space is {space!s:.100}.",
            "Drop clip_actions.",
        )
        self._whole = space if n_envs is None else gym.vector.utils.batch_space(space, n_envs)
        self._bounds = _bounds(space)
        self._shape = space.shape if n_envs is None else (n_envs, *(space.shape or ()))
        self._kinds = "biuf" if self._is_box else "biu"
        self._is_one_integer = n_envs is None and isinstance(space, gym.spaces.Discrete)

    def __call__(self, action: Any, step: int) -> Any:
        if self._bounds is None:  # not a space of arrays
            if not self._whole.contains(action):
                raise self._error(action, f"step {step}")
            return action
        low, high = self._bounds
        if self._is_one_integer and type(action) is int and low <= action <= high:
            return action
        try:
            array = np.asarray(action)
        except ValueError:  # rows of different lengths
            raise self._error(action, f"step {step}") from None
        if array.shape != self._shape or array.dtype.kind not in self._kinds:
            raise self._error(action, f"step {step}")
        if self._is_box:  # 0.7 must count as inside a float32 bound of 0.7
            with np.errstate(over="ignore"):
                array = array.astype(self._space.dtype, copy=False)
        if self._clip:
            array = np.clip(array, low, high)  # keeps NaN
        inside = (array >= low) & (array <= high)
        if not inside.all():
            raise self._error(action, _place(step, ~inside, self._n_envs))
        # Environments use an int, not an array that holds one, as an index of lists.
        return int(array) if self._is_one_integer else array.astype(self._space.dtype, copy=False)

    def _error(self, action: Any, where: str) -> InvalidInputError:
        count = "" if self._n_envs is None else f"{self._n_envs} "
        kind = "an integer" if self._is_one_integer else f"actions of shape {self._shape}"
        within = f"Return {kind} within the bounds of the space"
        remedy = "Return elements of the space." if self._bounds is None else f"{within}."
        if self._n_envs is not None and np.shape(action) == self._space.shape:
            remedy = f"{within}, one action for each observation of the batch, or use a single environment."
        elif self._is_box and not self._clip:
            remedy = f"{within}, or pass clip_actions=True to clip them."
        return InvalidInputError(
            f"The policy must return {count}actions of {self._space!s:.100}, but returned {action!r:.100} at {where}.",
            remedy,
        )


def _bounds(space: Any) -> tuple[Any, Any] | None:
    """Return the smallest and the largest action of a space of arrays."""
    spaces = gymnasium_library().spaces
    if isinstance(space, spaces.Discrete):
        return int(space.start), int(space.start + space.n) - 1
    if isinstance(space, spaces.MultiDiscrete):
        return space.start, space.start + space.nvec - 1
    if isinstance(space, spaces.MultiBinary):
        return 0, 1
    if isinstance(space, spaces.Box):
        if space.dtype.kind != "f":
            return space.low, space.high
        largest = np.finfo(space.dtype).max  # an unbounded Box contains infinity, which no environment can use
        return np.maximum(space.low, -largest), np.minimum(space.high, largest)
    return None


def _place(step: int, bad: Any, n_envs: int | None) -> str:
    return f"step {step}" if n_envs is None else f"step {step} of environment {int(np.argwhere(bad)[0][0])}"


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, _PURPOSE])


def _draws(draw: Callable[[int], NDArray[Any]], n_envs: int | None) -> Iterator[Any]:
    """Yield numbers one by one, or arrays of `n_envs` numbers."""
    while True:
        if n_envs is None:
            yield from draw(_DRAWS).tolist()
        else:
            yield draw(n_envs)
