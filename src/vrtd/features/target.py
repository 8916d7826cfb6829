"""Target policies: the actions of a policy as a function of observations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats, check_unmasked
from vrtd.checks import require
from vrtd.errors import DataError, InvalidInputError, VrtdError
from vrtd.features.blocks import BLOCK, blocks_of
from vrtd.features.features import check_finite, check_most
from vrtd.features.tabular import Table

#: Accepted error of the sum of a row of probabilities, which float32 needs. The row is then divided by its sum.
SUM_TOLERANCE = 1e-5
# A row is not divided if its sum is this close to 1, because repeated division would change its last bits.
_ROUNDING = 1e-12
_TOLERANCE = 1e-4  # for differences between two answers for the same observation
_ASKED = "evaluate a policy"
_RETURN = (
    "Return probabilities (n, A) or integer actions (n,), or for continuous actions floats (n, k) or draws (n, m, k)."
)


class Target(ABC):
    """Base class of target policies, whose values are learned from rows of another policy.

    ``as_target`` returns one.

    Examples
    --------
    >>> target = as_target([[0.5, 0.5], [0.0, 1.0]])
    >>> target.probability_of(np.array([0, 1]), np.array([0, 1])).tolist()
    [0.5, 1.0]
    """

    @abstractmethod
    def answer(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return what the policy returns for observations.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            At least one observation.

        Returns
        -------
        ndarray
            For discrete actions, (n, A) probabilities or (n,) integer actions. For continuous actions, floats of shape
            (n,) or (n, k), one action each, or (n, m, k), m equally likely draws each.
        """

    @abstractmethod
    def check_on(self, observations: NDArray[Any]) -> None:
        """Raise if the answer for an observation depends on the other observations, or changes between calls.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations to test the policy on.

        Raises
        ------
        InvalidInputError
            If two answers for the same observation differ.
        """

    @property
    @abstractmethod
    def settings(self) -> Any:
        """Plain values from which ``as_target`` builds the same target.

        An ``InvalidInputError`` is raised if the policy is a function.
        """

    def count_actions(self, observations: NDArray[Any]) -> int:
        """Return the smallest number of discrete actions that agrees with the answers.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            At least one observation.

        Returns
        -------
        int
            The number of actions.
        """
        answer = _as_discrete(self.answer(observations))
        return int(answer.shape[1] if answer.ndim == 2 else int(answer.max()) + 1)

    def probabilities(self, observations: NDArray[Any], n_actions: int) -> Floats:
        """Return the probability of each discrete action.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations.
        n_actions : int
            Number of actions A. Actions that the policy does not name have probability 0.

        Returns
        -------
        ndarray of shape (n, A)
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
        require(
            answer.shape[1] <= n_actions,
            f"The target policy returned probabilities of {answer.shape[1]} actions, but only {n_actions} exist.",
            "Always return the same number of columns.",
            DataError,
        )
        out[:, : answer.shape[1]] = answer
        return out

    def probability_of(self, observations: NDArray[Any], actions: NDArray[Any]) -> Floats:
        """Return the probability of one discrete action per observation.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations.
        actions : ndarray of int, shape (n,)
            One action per observation.

        Returns
        -------
        ndarray of shape (n,)
            The probabilities, which are the numerators of importance ratios.
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
        """Return equally likely continuous actions.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            At least one observation.

        Returns
        -------
        ndarray of shape (n, m, k)
            m actions of k numbers per observation.
        """
        answer = self.answer(observations)
        require(
            answer.dtype.kind == "f" and answer.ndim <= 3 and answer.size,
            "A target policy for continuous actions must return floats (n,), (n, k) or (n, m, k), but returned "
            f"{_describe(answer)}.",
            "Return actions as floats, or log them as integers if they are numbered.",
        )
        good = np.isfinite(answer).reshape(len(answer), -1).all(axis=1)
        row = int(np.argmin(good))
        require(
            good.all(),
            f"The actions of a target policy must be finite, but those for row {row} are {answer[row]!s:.60}.",
            "Correct the policy.",
        )
        return answer if answer.ndim == 3 else answer.reshape(len(answer), 1, -1)


@dataclass(frozen=True, eq=False)
class TableTarget(Target):
    """Policy given by its probabilities in numbered states: row s of the table is that of state s."""

    table: Table

    def answer(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return the answers of the policy.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            At least one observation.

        Returns
        -------
        ndarray of shape (n, ...)
            The answers.
        """
        observations = np.asarray(observations)
        check_finite(observations, _ASKED)
        if observations.dtype == np.float32:  # otherwise the table would be rounded
            observations = observations.astype(np.float64)
        return self.table(observations)

    def check_on(self, observations: NDArray[Any]) -> None:
        """Raise if the policy cannot answer for these observations.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations to test the policy on.
        """
        self.answer(observations)

    def draws(self, observations: NDArray[Any]) -> Floats:  # noqa: ARG002
        """Raise an error, because a table has discrete actions.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations.
        """
        raise InvalidInputError(
            "A target policy for continuous actions must be a function, but is a table.",
            "Pass a function of observations, or log the actions as integers if they are numbered.",
        )

    @property
    def settings(self) -> Any:
        """The table as a list of rows."""
        return self.table.settings["array"]


@dataclass(frozen=True)
class FunctionTarget(Target):
    """Policy given by a function of observations.

    The function is called with 256 observations at a time; the last one is repeated if there are fewer.
    """

    function: Callable[[NDArray[Any]], Any]

    def answer(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return the answers of the policy.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            At least one observation.

        Returns
        -------
        ndarray of shape (n, ...)
            The answers.
        """
        observations = np.asarray(observations)
        check_finite(observations, _ASKED)
        out: NDArray[Any] | None = None
        for rows, whole in blocks_of(np.arange(len(observations))):
            answer = _ask(self.function, observations[whole])
            if out is None:
                out = np.empty((len(observations), *answer.shape[1:]), answer.dtype)
            same = (answer.dtype, answer.shape[1:]) == (out.dtype, out.shape[1:])
            require(
                same,
                f"A target policy must always return the same kind of array, but returned {_describe(answer)} after "
                f"{out.dtype} of shape {out.shape[1:]} per observation.",
                _RETURN,
            )
            out[rows] = answer[: len(rows)]
        assert out is not None
        return out

    def check_on(self, observations: NDArray[Any]) -> None:
        """Raise if the answer for an observation depends on the other observations, or changes between calls.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations to test the policy on.
        """
        rows = np.arange(BLOCK) % len(observations)
        rows = np.concatenate([rows, rows[::2]])  # a block, and every second row of it once more, with other rows
        answers = self.answer(np.asarray(observations)[rows])
        first, again = answers[:BLOCK:2], answers[BLOCK:]
        same = np.isclose(first, again, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
        close = same.reshape(len(same), -1).all(axis=1)
        row = int(np.argmin(close))
        require(
            close.all(),
            "A target policy must always return the same for the same observation, but returned "
            f"{first[row]!s:.60} and {again[row]!s:.60} for row {rows[2 * row]}.",
            "Return probabilities, use fixed draws, or pass lambda s: model.predict(s, deterministic=True)[0].",
        )

    @property
    def settings(self) -> Any:
        """Not available: an ``InvalidInputError`` is raised, because a function cannot be stored."""
        raise InvalidInputError(
            "A target policy that is a function cannot be stored.", "Keep the code, and pass it when loading."
        )


def as_target(policy: Any) -> Target:
    """Return the target policy that a value stands for.

    Parameters
    ----------
    policy : Target, array_like, callable or object with a method predict
        The policy, in one of three forms.

        - (S, A) probabilities or (S,) integer actions, for observations that are numbered states.
        - A function of a batch of observations of shape (n, ...).
        - An object with ``predict(observations)``. Of a tuple, the first item is used.

        A function or object returns, for discrete actions, (n, A) probabilities or (n,) integer actions. For continuous
        actions it returns floats of shape (n,) or (n, k), one action each, or (n, m, k), m equally likely draws each.
        It must always return the same for the same observation.

    Returns
    -------
    Target
        The policy as a function of observations.

    Raises
    ------
    InvalidInputError
        If the value is not a policy.

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
    raise InvalidInputError(
        "target must be (S, A) probabilities, (S,) integer actions, a function or an object with a method predict, but "
        f"got {policy!r:.60}.",
        "Pass one of them, and an instance instead of a class.",
    )


def check_actions(actions: NDArray[Any], n_actions: int | None, whose: str) -> None:
    """Raise unless these are discrete actions of shape (n,), below ``n_actions`` if it is known."""
    require(
        actions.ndim == 1 and actions.dtype.kind in "biu",
        f"Discrete actions of {whose} must be integers of shape (n,), but are {_describe(actions)}.",
        "Number the actions 0, 1, ...",
        DataError,
    )
    good = actions >= 0 if n_actions is None else (actions >= 0) & (actions < n_actions)
    if not good.all():
        row = int(np.argmin(good))
        condition = "be at least 0" if n_actions is None else f"lie in 0..{n_actions - 1}"
        raise DataError(
            f"Actions of {whose} must {condition}, but got {actions[row]} in row {row}.",
            "Number the actions 0, 1, ..., or return probabilities of shape (n, A) for all actions.",
        )


def check_equally_long(observations: NDArray[Any], actions: NDArray[Any]) -> None:
    """Raise unless there is one action per observation."""
    require(
        np.ndim(actions) > 0 and len(actions) == len(observations),
        f"actions must have one entry per observation, but have shape {np.shape(actions)} for {len(observations)} "
        "observations.",
        "Pass as many actions as observations.",
        DataError,
    )


def _make_table(policy: Any) -> Table:
    check_unmasked("target", policy)
    try:
        raw = np.asarray(policy)
    except ValueError:  # rows of different lengths
        raw = np.empty(0, object)
    raw = _without_column(raw)
    if raw.ndim == 1 and raw.size and raw.dtype.kind in "iu":
        check_actions(raw, None, "the target policy")
        n_actions = max(int(raw.max()) + 1, 2)  # a single column would be ambiguous
        check_most(n_actions, "Pass a function.")
        return Table(np.eye(n_actions)[raw])
    require(
        raw.ndim == 2 and raw.size and raw.dtype.kind in "biuf",
        "A target policy that is an array must hold (S, A) probabilities or (S,) integer actions, but is "
        f"{_describe(raw)}.",
        "Pass one row per state.",
    )
    return Table(_normalise(raw, "state"))


def _predict(model: Any, observations: NDArray[Any]) -> Any:
    answer = model.predict(observations)
    return answer[0] if isinstance(answer, tuple) else answer


def _ask(function: Callable[[NDArray[Any]], Any], observations: NDArray[Any]) -> NDArray[Any]:
    """Return the answer of the policy; if its code raises, raise an error that quotes it."""
    try:
        answer = np.asarray(function(observations))
    except VrtdError:
        raise
    except Exception as error:  # the code of a user may raise anything
        raise InvalidInputError(
            f"The target policy failed for a batch of observations of shape {observations.shape} with "
            f"{type(error).__name__}: {' '.join(f'{error}'.split()):.200}.",
            _RETURN,
        ) from error
    require(
        answer.dtype.kind in "biuf" and answer.ndim > 0 and len(answer) == len(observations),
        f"A target policy must return one row of numbers for each of {len(observations)} observations, but returned "
        f"{_describe(answer)}.",
        _RETURN,
    )
    return answer.astype(np.float64 if answer.dtype.kind == "f" else np.int64, copy=False)


def _as_discrete(answer: NDArray[Any]) -> NDArray[Any]:
    """Return (n, A) probabilities, each row divided by its sum, or (n,) integer actions of at least 0."""
    answer = _without_column(answer)
    if answer.ndim == 1 and answer.dtype.kind == "i":
        check_actions(answer, None, "the target policy")
        return answer
    require(
        answer.ndim == 2 and answer.shape[1],
        "A target policy for discrete actions must return probabilities (n, A) or integer actions (n,), but returned "
        f"{_describe(answer)}.",
        "Return one of them, or log the actions as floats if they are quantities.",
    )
    return _normalise(answer, "row")


def _without_column(array: NDArray[Any]) -> NDArray[Any]:
    """Return integers of shape (n, 1) as (n,): they are actions, since probabilities of one action are all 1."""
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 and array.dtype.kind in "iu" else array


def _check_columns(probabilities: Floats, n_actions: int) -> None:
    """Raise if a single column of probabilities is returned for several actions."""
    require(
        probabilities.shape[1] > 1 or n_actions == 1,
        f"A target policy must return a column of probabilities per action, but returned 1 for {n_actions} actions.",
        "Return (n, A) probabilities, or integer actions of shape (n,).",
    )


def _normalise(array: NDArray[Any], axis: str) -> Floats:
    """Return rows of probabilities that sum to 1; ``axis`` names the rows in messages."""
    p = array.astype(np.float64)
    sums = p.cumsum(axis=1)[:, -1:]  # in a fixed order; that of NumPy's sum depends on the shape
    good = (p >= 0.0).all(axis=1) & (np.abs(sums[:, 0] - 1.0) <= SUM_TOLERANCE)
    row = int(np.argmin(good))
    require(
        good.all(),
        f"Probabilities of a target policy must be at least 0 and sum to 1 within {SUM_TOLERANCE:g}, but those of "
        f"{axis} {row} are {p[row].tolist()!s:.60} with the sum {sums[row, 0]}.",
        "Divide them by their sum, or return integer actions of shape (n,).",
    )
    return np.where(np.abs(sums - 1.0) > _ROUNDING, p / sums, p)


def _describe(array: NDArray[Any]) -> str:
    return f"an array of {array.dtype} of shape {array.shape}"
