"""Target policies: which actions a policy takes, as a function of observations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.checks import require
from vrtd.errors import DataError, InvalidInputError, VrtdError
from vrtd.features.blocks import BLOCK, blocks_of
from vrtd.features.features import check_finite, check_most
from vrtd.features.tabular import Table

#: A row of probabilities may miss 1 by this much, as those of float32 do; it is then divided by its sum.
SUM_TOLERANCE = 1e-5
_ROUNDING = 1e-12  # a row this close to 1 is kept: dividing it again and again would change its last bits
_TOLERANCE = 1e-4  # of what a policy returns for the same observation
_ASKED = "a policy is asked about"
_RETURN = (
    "return probabilities (n, A) or integer actions (n,); for continuous actions, floats (n, k), or m draws (n, m, k)"
)


class Target(ABC):
    """A policy whose values are learned from another policy's rows. `as_target` makes one."""

    @abstractmethod
    def answer(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return what the policy says about each of n > 0 observations.

        This is (n, A) probabilities or (n,) integer actions; or, for continuous actions, floats of shape (n,) or
        (n, k), one action each, or (n, m, k), m equally likely draws each.
        """

    @abstractmethod
    def check_on(self, observations: NDArray[Any]) -> None:
        """Raise if the answer for an observation changes with the others that come with it, or from call to call."""

    @property
    @abstractmethod
    def settings(self) -> Any:
        """Return plain values from which `as_target` makes the same target. Code cannot be stored."""

    def count_actions(self, observations: NDArray[Any]) -> int:
        """Return the least number of discrete actions that the answers allow."""
        answer = _as_discrete(self.answer(observations))
        return int(answer.shape[1] if answer.ndim == 2 else int(answer.max()) + 1)

    def probabilities(self, observations: NDArray[Any], n_actions: int) -> Floats:
        """Return the probability of each discrete action.

        Parameters
        ----------
        observations : array of shape (n, ...)
            The observations.
        n_actions : int
            The number of actions A. Actions that the policy does not name have probability 0.

        Returns
        -------
        array of shape (n, A)
            Rows that sum to 1.
        """
        out = np.zeros((len(observations), n_actions))
        if not len(out):
            return out
        answer = _as_discrete(self.answer(observations))
        if answer.ndim == 1:
            check_actions(answer, n_actions, "the target policy")
            out[np.arange(len(out)), answer] = 1.0
            return out
        _check_columns(answer, n_actions)
        must, got = f"there must be at most {n_actions} actions", f"probabilities of {answer.shape[1]}"
        require(answer.shape[1] <= n_actions, must, got, "always return the same number of columns", DataError)
        out[:, : answer.shape[1]] = answer
        return out

    def probability_of(self, observations: NDArray[Any], actions: NDArray[Any]) -> Floats:
        """Return the probability of one discrete action for each observation.

        Parameters
        ----------
        observations : array of shape (n, ...)
            The observations.
        actions : array of shape (n,)
            The number of an action for each of them.

        Returns
        -------
        array of shape (n,)
            The probabilities, the numerators of importance ratios.
        """
        actions = np.asarray(actions)
        check_actions(actions, None, "the log")
        check_equally_long(observations, actions)
        if not len(actions):
            return np.zeros(0)
        answer = _as_discrete(self.answer(observations))
        if answer.ndim == 1:
            return np.where(answer == actions, 1.0, 0.0)
        _check_columns(answer, int(actions.max()) + 1)
        known = actions < answer.shape[1]
        return np.where(known, answer[np.arange(len(answer)), np.where(known, actions, 0)], 0.0)

    def draws(self, observations: NDArray[Any]) -> Floats:
        """Return continuous actions, all equally likely, of n > 0 observations.

        Parameters
        ----------
        observations : array of shape (n, ...)
            The observations.

        Returns
        -------
        array of shape (n, m, k)
            m actions of k numbers for each observation.
        """
        answer = self.answer(observations)
        must = "a target policy for continuous actions must return floats of shape (n,), (n, k) or (n, m, k)"
        do = "return actions as floats; if actions are numbered, log them as integers"
        require(answer.dtype.kind == "f" and answer.ndim <= 3 and answer.size, must, _describe(answer), do)
        good = np.isfinite(answer).reshape(len(answer), -1).all(axis=1)
        must, got = "actions of a target policy must be finite", f"{answer[np.argmin(good)]!s:.60}"
        require(good.all(), must, f"{got} for row {np.argmin(good)}", "correct the policy")
        return answer if answer.ndim == 3 else answer.reshape(len(answer), 1, -1)


@dataclass(frozen=True, eq=False)
class TableTarget(Target):
    """A policy given by its probabilities in numbered states: row s of the table is that of state s."""

    table: Table

    def answer(self, observations: NDArray[Any]) -> NDArray[Any]:
        observations = np.asarray(observations)
        check_finite(observations, _ASKED)
        if observations.dtype == np.float32:  # else the table would be rounded
            observations = observations.astype(np.float64)
        return self.table(observations)

    def check_on(self, observations: NDArray[Any]) -> None:
        self.answer(observations)

    def draws(self, observations: NDArray[Any]) -> Floats:  # noqa: ARG002
        do = "pass a function of observations; if actions are numbered, log them as integers"
        raise InvalidInputError("a target policy for continuous actions must be a function", "a table", do)

    @property
    def settings(self) -> Any:
        return self.table.settings["array"]


@dataclass(frozen=True)
class FunctionTarget(Target):
    """A policy given by a function of observations.

    It is called with 256 observations at a time, the last one repeated where there are fewer.
    """

    function: Callable[[NDArray[Any]], Any]

    def answer(self, observations: NDArray[Any]) -> NDArray[Any]:
        observations = np.asarray(observations)
        check_finite(observations, _ASKED)
        out: NDArray[Any] | None = None
        for rows, whole in blocks_of(np.arange(len(observations))):
            answer = _ask(self.function, observations[whole])
            if out is None:
                out = np.empty((len(observations), *answer.shape[1:]), answer.dtype)
            same = (answer.dtype, answer.shape[1:]) == (out.dtype, out.shape[1:])
            must, got = "a target policy must always return the same kind of array", f"{_describe(answer)} after others"
            require(same, must, f"{got}, {out.dtype} of {out.shape[1:]} for each observation", _RETURN)
            out[rows] = answer[: len(rows)]
        assert out is not None
        return out

    def check_on(self, observations: NDArray[Any]) -> None:
        rows = np.arange(BLOCK) % len(observations)
        rows = np.concatenate([rows, rows[::2]])  # a block, and every second one of it: once more, in other company
        answers = self.answer(np.asarray(observations)[rows])
        first, again = answers[:BLOCK:2], answers[BLOCK:]
        same = np.isclose(first, again, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
        close = same.reshape(len(same), -1).all(axis=1)
        row = int(np.argmin(close))
        must = "a target policy must return the same for the same observation, whatever others come with it"
        got = f"{first[row]!s:.60} and {again[row]!s:.60} for row {rows[2 * row]}"
        do = "return probabilities, use fixed draws, or pass lambda s: model.predict(s, deterministic=True)[0]"
        require(close.all(), must, got, do)

    @property
    def settings(self) -> Any:
        must, do = "a target policy must be a table to be stored", "keep your own code and pass it when loading"
        raise InvalidInputError(must, "a function", do)


def as_target(policy: Any) -> Target:
    """Return a target policy from what a user may pass.

    Parameters
    ----------
    policy : Target, array, function or object with predict
        One of

        - (S, A) probabilities or (S,) integer actions, for observations that are numbered states;
        - a function of a batch of observations, (n, ...);
        - an object with `predict(observations)`. Of a tuple, as Stable-Baselines returns it, the first item is used.

        A function or object returns, for discrete actions, (n, A) probabilities or (n,) integer actions. For continuous
        actions it returns floats of shape (n,) or (n, k), one action each, or (n, m, k), m equally likely draws each.
        It must return the same for the same observation.

    Returns
    -------
    Target
        The policy as a function of observations.

    Examples
    --------
    >>> as_target([1, 0]).probabilities(np.array([0, 0, 1]), n_actions=2).tolist()
    [[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]
    """
    if isinstance(policy, Target):
        return policy
    if isinstance(policy, np.ndarray | list | tuple):
        return TableTarget(_make_table(policy))
    if not isinstance(policy, type):
        if callable(getattr(policy, "predict", None)):
            return FunctionTarget(partial(_predict, policy))
        if callable(policy):
            return FunctionTarget(policy)
    must = "target must be (S, A) probabilities, (S,) integer actions, a function or an object with a method predict"
    raise InvalidInputError(must, f"{policy!r:.60}", "pass one of them; of a class, an instance")


def check_actions(actions: NDArray[Any], n_actions: int | None, whose: str) -> None:
    """Raise unless these are numbers of discrete actions, (n,), below `n_actions` where that is known."""
    must = f"discrete actions of {whose} must be integers of shape (n,)"
    holds = actions.ndim == 1 and actions.dtype.kind in "biu"
    require(holds, must, _describe(actions), "number the actions 0, 1, ...", DataError)
    good = actions >= 0 if n_actions is None else (actions >= 0) & (actions < n_actions)
    if not good.all():
        row = int(np.argmin(good))
        must = f"actions of {whose} must be " + ("at least 0" if n_actions is None else f"in 0..{n_actions - 1}")
        do = "number the actions 0, 1, ...; if there are more, return probabilities of shape (n, A) for all of them"
        raise DataError(must, f"{actions[row]} in row {row}", do)


def check_equally_long(observations: NDArray[Any], actions: NDArray[Any]) -> None:
    must, got = (
        "there must be an action for each observation",
        f"{np.shape(actions)} for {len(observations)} observations",
    )
    require(np.ndim(actions) > 0 and len(actions) == len(observations), must, got, "pass one for each", DataError)


def _make_table(policy: Any) -> Table:
    try:
        raw = np.asarray(policy)
    except ValueError:  # rows of different lengths
        raw = np.empty(0, object)
    raw = _without_column(raw)
    if raw.ndim == 1 and raw.size and raw.dtype.kind in "iu":
        check_actions(raw, None, "the target policy")
        n_actions = max(int(raw.max()) + 1, 2)  # a single column would not say that there are others
        check_most(n_actions, "pass a function")
        return Table(np.eye(n_actions)[raw])
    must = "a target policy that is an array must be (S, A) probabilities or (S,) integer actions"
    do = "pass a row for each state"
    require(raw.ndim == 2 and raw.size and raw.dtype.kind in "biuf", must, _describe(raw), do)
    return Table(_normalise(raw, "state"))


def _predict(model: Any, observations: NDArray[Any]) -> Any:
    answer = model.predict(observations)
    return answer[0] if isinstance(answer, tuple) else answer


def _ask(function: Callable[[NDArray[Any]], Any], observations: NDArray[Any]) -> NDArray[Any]:
    """Return what the policy says; say that it failed if it raises an error of its own."""
    try:
        answer = np.asarray(function(observations))
    except VrtdError:
        raise
    except Exception as error:  # the code of a user may raise anything
        must = f"a target policy must take a batch of observations, of shape {observations.shape}"
        got = f"{type(error).__name__}: {' '.join(f'{error}'.split()):.200}"
        raise InvalidInputError(must, got, _RETURN) from error
    holds = answer.dtype.kind in "biuf" and answer.ndim > 0 and len(answer) == len(observations)
    must = f"a target policy must return a row of numbers for each of {len(observations)} observations"
    require(holds, must, _describe(answer), _RETURN)
    return answer.astype(np.float64 if answer.dtype.kind == "f" else np.int64, copy=False)


def _as_discrete(answer: NDArray[Any]) -> NDArray[Any]:
    """Return (n, A) probabilities, each row divided by its sum, or (n,) integer actions of at least 0."""
    answer = _without_column(answer)
    if answer.ndim == 1 and answer.dtype.kind == "i":
        check_actions(answer, None, "the target policy")
        return answer
    must = "a target policy for discrete actions must return probabilities (n, A) or integer actions (n,)"
    do = "return one of them; if actions are no numbers of choices, log them as floats"
    require(answer.ndim == 2 and answer.shape[1], must, _describe(answer), do)
    return _normalise(answer, "row")


def _without_column(array: NDArray[Any]) -> NDArray[Any]:
    """Return integers of shape (n, 1) as (n,): they are actions, since probabilities of one action are all 1."""
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 and array.dtype.kind in "iu" else array


def _check_columns(probabilities: Floats, n_actions: int) -> None:
    """Raise if there are probabilities of a single action among several: they are probably those of action 1."""
    must = f"a target policy must return a column of probabilities for each of {n_actions} actions"
    got, do = "a single column", "return (n, A) probabilities, or integer actions of shape (n,)"
    require(probabilities.shape[1] > 1 or n_actions == 1, must, got, do)


def _normalise(array: NDArray[Any], axis: str) -> Floats:
    """Return rows of probabilities that sum to 1; `axis` says what a row belongs to."""
    p = array.astype(np.float64)
    sums = p.cumsum(axis=1)[:, -1:]  # one by one: the order of NumPy's own sum depends on the shape
    good = (p >= 0.0).all(axis=1) & (np.abs(sums[:, 0] - 1.0) <= SUM_TOLERANCE)
    row = int(np.argmin(good))
    must = f"probabilities of a target policy must be at least 0 and sum to 1 within {SUM_TOLERANCE:g}"
    got = f"{p[row].tolist()!s:.60}, with the sum {sums[row, 0]}, for {axis} {row}"
    require(good.all(), must, got, "divide them by their sum; or return integer actions of shape (n,)")
    return np.where(np.abs(sums - 1.0) > _ROUNDING, p / sums, p)


def _describe(array: NDArray[Any]) -> str:
    return f"an array of {array.dtype} of shape {array.shape}"
