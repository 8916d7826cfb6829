"""Policies for live environments: whatever names or computes actions becomes one function that returns valid ones."""

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

#: (observation, number of the step) -> an action that the environment takes; for a vector environment, batches of both.
Actor = Callable[[Any, int], Any]

_PURPOSE = 0x706F6C  # keeps the draws of a policy apart from those of the environment with the same seed
_DRAWS = 1024  # at a time: one call a step would cost more than the step


@runtime_checkable
class Predictor(Protocol):
    """What Stable-Baselines calls a model: `predict(observation)` returns an action, or an action and a state."""

    def predict(self, observation: Any) -> Any: ...


#: "random" | "package.module:name" | function of an observation | (S, A) probabilities | (S,) actions | Predictor
Policy = str | Callable[[Any], Any] | ArrayLike | Predictor


class ActionLayout(NamedTuple):
    """What one action is in a log."""

    shape: tuple[int, ...]  # as the environment takes it
    dtype: type[np.int64 | np.float64]
    first: int  # what the environment calls action 0

    @staticmethod
    def of(space: Any) -> ActionLayout | None:
        """Return the layout of the actions of one environment; None unless these are Discrete or a Box of floats."""
        spaces = gymnasium_library().spaces
        if isinstance(space, spaces.Discrete):
            return ActionLayout((), np.int64, int(space.start))
        if isinstance(space, spaces.Box) and space.dtype.kind == "f":
            return ActionLayout(tuple(space.shape), np.float64, 0)
        return None

    def allocate(self, n_rows: int) -> NDArray[Any]:
        """Allocate `n_rows` actions of an environment."""
        return np.empty((n_rows, *self.shape), self.dtype)

    def convert(self, actions: NDArray[Any]) -> NDArray[Any]:
        """Return actions of an environment as a log has them: (n,) numbers from 0 on, or (n, k)."""
        return actions - self.first if self.dtype is np.int64 else actions.reshape(len(actions), -1)


def as_policy(
    policy: Policy, observation_space: Any, action_space: Any, n_envs: int | None = None, clip_actions: bool = False
) -> Callable[[int], Actor]:
    """Return a function that makes, from a seed, an actor that begins anew.

    Parameters
    ----------
    policy : Policy
        One of

        - "random": uniform on a Discrete space, `sample()` of a copy of any other, both with their own seed;
        - a function of the observation that returns an action;
        - (S, A) probabilities or (S,) integer actions, where both spaces are Discrete;
        - an object with `predict(observation)` that returns an action or a tuple of action and state. The state is not
          handed back: a recurrent policy must remember by itself;
        - "package.module:name", which names such a function or object: see `load_policy`.

        A function or object that draws random numbers uses a generator of its own. Two readings are then not the same.
    observation_space, action_space : gymnasium.Space
        Those of one environment.
    n_envs : int, optional
        None for one environment. Functions and predictors of a vector environment are called with the batch of its
        `n_envs` observations and return the batch of actions.
    clip_actions : bool
        Whether actions of a Box are clipped to its bounds.

    Returns
    -------
    Callable[[int], Actor]
        From a seed to an actor.
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
        "package.module:name". The name is that of a function of an observation, or of an object with `predict`. The
        module is imported, so its code runs; the current folder is not searched unless Python does so itself.

    Returns
    -------
    Callable or Predictor
        The function or object.

    Examples
    --------
    >>> load_policy("operator:not_")(True)
    False
    """
    match = re.fullmatch(r"([^\W\d]\w*(?:\.[^\W\d]\w*)*):([^\W\d]\w*)", text)
    if match is None:
        raise InvalidInputError(
            "a policy of installed code must be written package.module:name", repr(text), "write it so"
        )
    module_name, name = match.groups()
    try:
        module = import_module(module_name)
    except Exception as error:  # a module may raise anything
        raise InvalidInputError(
            f"the module {module_name} of the policy must be installed and importable",
            f"{type(error).__name__}: {error}",
            "install it, or correct its name",
        ) from error
    try:
        policy: Any = getattr(module, name)
    except AttributeError:
        near = get_close_matches(name, dir(module), n=1)
        do = f"did you mean {near[0]!r}?" if near else "name a function, or an object with predict"
        raise InvalidInputError(f"the policy must be in the module {module_name}", f"no {name!r} there", do) from None
    if isinstance(policy, type) or not (callable(policy) or isinstance(policy, Predictor)):
        raise InvalidInputError(
            "a policy of installed code must be a function of an observation, or an object with predict",
            f"the class {name}" if isinstance(policy, type) else f"{policy!r:.60}",
            "name another, or make an instance of it in the module",
        )
    return policy  # type: ignore[no-any-return]


def _call(act: Callable[[Any], Any], observation: Any, step: int) -> Any:
    """Call a policy; say that it failed, and where, if it raises an error of its own."""
    try:
        return act(observation)
    except VrtdError:
        raise
    except Exception as error:  # the code of a user may raise anything
        raise InvalidInputError(
            "the policy must return an action for every observation",
            f"{type(error).__name__}: {' '.join(f'{error}'.split()):.200} at step {step}",
            "correct the policy",
        ) from error


def _act_on_batch(act: Callable[[Any], Any], n_envs: int, observations: Any) -> Any:
    """Call a policy with the observations of a vector environment; explain it if it is made for one observation."""
    try:
        return act(observations)
    except (TypeError, ValueError, LookupError) as error:
        try:
            act(observations[0])
        except Exception:  # not for one observation either: the error is the policy's own
            raise error from None
        raise InvalidInputError(
            f"the policy of a vector environment must take the batch of its {n_envs} observations",
            f"one that takes a single observation ({type(error).__name__}: {error})",
            "return an action for each row, or use a single environment: leave n_envs out",
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
        own = deepcopy(batched)  # the environment's own would remember from one reading to the next
        own.seed(int(np.random.SeedSequence([seed, _PURPOSE]).generate_state(1)[0]))
        return lambda _observation, _step: own.sample()

    return sample


def _tabular(policy: ArrayLike, observations: Any, actions: Any, n_envs: int | None) -> Callable[[int], Actor]:
    gym = gymnasium_library()
    for what, space in (("observation", observations), ("action", actions)):
        if not isinstance(space, gym.spaces.Discrete):
            raise InvalidInputError(
                f"a policy that is an array needs a Discrete {what} space",
                f"{space!s:.100}",
                "pass a function of the observation, or an object with predict",
            )
    n, start, least = int(observations.n), int(observations.start), int(actions.start)
    pi = policy_matrix(policy, n, int(actions.n))
    cumulative = pi.cumsum(axis=1)
    # Rounding must not leave a gap below 1, nor an action of probability 0 above it.
    cumulative[cumulative >= cumulative[:, -1:]] = 1.0
    rows = cumulative.tolist()

    def state(observation: Any, step: int) -> Any:
        s = np.asarray(observation)
        outside = (s < start) | (s >= start + n)
        if np.any(outside):
            raise DataError(
                f"observations must lie in {observations}",
                f"{s[outside].flat[0]} at {_place(step, outside, n_envs)}",
                "repair the environment or its observation space",
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
    """Actions that come from outside: in the space, of its type, and of one row per environment of a vector."""

    def __init__(self, space: Any, n_envs: int | None, clip: bool) -> None:
        gym = gymnasium_library()
        check_flag("clip_actions", clip)
        self._space, self._n_envs, self._clip = space, n_envs, clip
        self._is_box = isinstance(space, gym.spaces.Box) and space.dtype.kind == "f"
        must, do = "clip_actions is for action spaces that are a Box of floats", "leave it out"
        require(self._is_box or not clip, must, f"{space!s:.100}", do)
        self._whole = space if n_envs is None else gym.vector.utils.batch_space(space, n_envs)
        self._bounds = _bounds(space)
        self._shape = space.shape if n_envs is None else (n_envs, *(space.shape or ()))
        self._kinds = "biuf" if self._is_box else "biu"
        self._is_one_integer = n_envs is None and isinstance(space, gym.spaces.Discrete)

    def __call__(self, action: Any, step: int) -> Any:
        if self._bounds is None:  # a space that is none of arrays
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
        if self._is_box:  # 0.7 is within a float32 bound of 0.7, whatever that is in float64
            with np.errstate(over="ignore"):
                array = array.astype(self._space.dtype, copy=False)
        if self._clip:
            array = np.clip(array, low, high)  # NaN stays
        inside = (array >= low) & (array <= high)
        if not inside.all():
            raise self._error(action, _place(step, ~inside, self._n_envs))
        # Tables and lists are looked up with an int, not with an array that holds one.
        return int(array) if self._is_one_integer else array.astype(self._space.dtype, copy=False)

    def _error(self, action: Any, where: str) -> InvalidInputError:
        count = "" if self._n_envs is None else f"{self._n_envs} "
        do = "return " + ("elements of it" if self._bounds is None else f"the shape {self._shape}, within its bounds")
        if self._n_envs is not None and np.shape(action) == self._space.shape:
            do += ": an action for each observation of the batch; or use a single environment"
        elif self._is_box and not self._clip:
            do += "; or pass clip_actions=True to clip them"
        return InvalidInputError(
            f"the policy must return {count}actions of {self._space!s:.100}", f"{action!r:.100} at {where}", do
        )


def _bounds(space: Any) -> tuple[Any, Any] | None:
    """The least and the largest action of a space of arrays."""
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
        largest = np.finfo(space.dtype).max  # infinity is in an unbounded box, but no environment can use it
        return np.maximum(space.low, -largest), np.minimum(space.high, largest)
    return None


def _place(step: int, bad: Any, n_envs: int | None) -> str:
    return f"step {step}" if n_envs is None else f"step {step} of environment {int(np.argwhere(bad)[0][0])}"


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng([seed, _PURPOSE])


def _draws(draw: Callable[[int], NDArray[Any]], n_envs: int | None) -> Iterator[Any]:
    """One number after another, or one array of `n_envs` numbers after another."""
    while True:
        if n_envs is None:
            yield from draw(_DRAWS).tolist()
        else:
            yield draw(n_envs)
