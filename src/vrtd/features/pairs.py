"""Features of states and actions, and their mean over the actions of a target policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats
from vrtd.checks import check_count, require
from vrtd.errors import DataError, InvalidInputError
from vrtd.features.blocks import FEWER, call_in_blocks, try_on
from vrtd.features.features import Features, as_rows, check_dense, check_most, check_some, not_stored, row_dtype
from vrtd.features.spaces import ObservationSpace
from vrtd.features.tabular import Tabular
from vrtd.features.target import Target, check_actions, check_equally_long
from vrtd.sparse import to_dense

_BIND = "Call features.bind_pairs(observations, actions) and use the result."
# Most probabilities in memory at once: a function of both may have many more actions than features.
_MOST_PROBABILITIES = 1 << 22
_JOINED = ObservationSpace("box")  # an observation and a continuous action together form a point


@dataclass(frozen=True)
class FromPairs:
    """Features phi(s, a) from your own function of observations and actions.

    The function is called with 256 pairs at a time; the last one is repeated if there are fewer. Each row must depend
    on its own pair only.

    Parameters
    ----------
    function : callable
        Function that maps (n, ...) observations and actions to (n, d) rows. Discrete actions are integers of shape
        (n,), continuous ones floats of shape (n, k).
    n : int, optional
        Number of features d. If not given, ``bind`` determines it.

    Examples
    --------
    >>> features = FromPairs(lambda s, a: np.stack([s, s * a], axis=1))
    >>> features.bind(np.arange(3.0), np.array([0, 1, 1]))(np.array([2.0]), np.array([3])).tolist()
    [[2.0, 6.0]]
    """

    function: Callable[[NDArray[Any], NDArray[Any]], Any]
    n: int | None = None

    def __post_init__(self) -> None:
        require(
            callable(self.function),
            f"function must be callable, but got {self.function!r:.60}.",
            "Pass a function of observations and actions.",
        )
        if self.n is not None:
            object.__setattr__(self, "n", check_count("n", self.n))
            check_most(int(self.n), FEWER)

    @property
    def n_features(self) -> int:
        """Number of features d.

        An ``InvalidInputError`` is raised if it is not known before the features are bound.
        """
        if self.n is None:
            raise InvalidInputError(
                "FromPairs must be bound before use, to determine the number of features.",
                "Call bind(observations, actions) and use the result.",
            )
        return self.n

    def bind(self, observations: NDArray[Any], actions: NDArray[Any]) -> FromPairs:
        """Return these features with their number, after a test of the function.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations to test the function on.
        actions : ndarray of shape (n,) or (n, k)
            The actions taken in them.

        Returns
        -------
        FromPairs
            The bound features, or the features themselves if they are bound already.
        """
        n, _ = try_on(self.function, (observations, actions), self.n, keeps_sparse=False)
        return self if n == self.n else replace(self, n=n)

    def __call__(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Return the rows of pairs.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations.
        actions : ndarray of shape (n,) or (n, k)
            One action per observation.

        Returns
        -------
        ndarray of shape (n, d)
            The rows.
        """
        return np.asarray(call_in_blocks(self.function, (observations, actions), self.n_features))


@dataclass(frozen=True, eq=False)
class TargetFeatures(Features):
    """Mean features under a target policy: phi(s) = sum over a of pi(``a|s``) phi(s, a).

    ``of_pairs`` returns phi(s, a) itself. If phi(s, a).theta is the value of taking action a in state s, then
    phi(s).theta is the value of s under the target policy pi.

    Parameters
    ----------
    features : Features or FromPairs
        Features from which phi(s, a) is made. A function of observations and actions returns phi(s, a). Features of
        observations are used as follows: for A discrete actions, phi(s, a) has A blocks, of which block a holds the
        features of s and the others are 0; for continuous actions, phi(s, a) are the features of the vector (s, a).
    target : Target
        The target policy pi.
    n_actions : int, optional
        Number of discrete actions, or 0 for continuous ones. If not given, ``bind_pairs`` determines it.
    space : ObservationSpace, optional
        Space of the observations.

    Examples
    --------
    >>> from vrtd.features import Identity, as_target
    >>> features = TargetFeatures(Identity(), as_target([[0.5, 0.5], [0.0, 1.0]]))
    >>> bound = features.bind_pairs(np.array([0, 1, 1]), np.array([0, 1, 1]))
    >>> bound(np.array([1])).tolist(), bound.of_pairs(np.array([1]), np.array([0])).tolist()
    ([[0.0, 1.0]], [[1.0, 0.0]])
    """

    features: Features | FromPairs
    target: Target
    n_actions: int | None = None
    space: ObservationSpace | None = field(default=None, kw_only=True)

    kind = "target"

    def __post_init__(self) -> None:
        require(
            isinstance(self.features, Features | FromPairs),
            f"features must be Features or FromPairs, but got {type(self.features).__name__}.",
            "Wrap them with vrtd.features.as_pair_features.",
        )
        require(
            isinstance(self.target, Target),
            f"target must be a Target, but got {type(self.target).__name__}.",
            "Wrap it with vrtd.features.as_target.",
        )
        if self.n_actions is not None:
            object.__setattr__(self, "n_actions", check_count("n_actions", self.n_actions, least=0))

    @property
    def needs_data(self) -> bool:
        """Whether the features must be bound."""
        return self.n_actions is None

    def bind(self, observations: NDArray[Any]) -> TargetFeatures:  # noqa: ARG002
        """Return the features themselves if they are bound; ``bind_pairs`` binds them.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations, which are not used.

        Returns
        -------
        TargetFeatures
            The features themselves.

        Raises
        ------
        InvalidInputError
            If the features are not bound.
        """
        require(
            self.n_actions is not None,
            "Features of states and actions must be bound to observations and actions, but got only observations.",
            _BIND,
        )
        return self

    def bind_pairs(self, observations: NDArray[Any], actions: NDArray[Any]) -> TargetFeatures:
        """Return these features with the number of actions, and with everything that they take from data.

        Parameters
        ----------
        observations : ndarray of shape (m, ...)
            At least as many observations as actions. The first n are those in which the actions were taken.
        actions : ndarray of shape (n,) or (n, k)
            Integers for discrete actions, floats for continuous ones.

        Returns
        -------
        TargetFeatures
            The bound features, or the features themselves if they are bound already.
        """
        if self.n_actions is not None:
            return self
        observations, actions = np.asarray(observations), np.asarray(actions)
        check_some(observations, "bind features", "Pass observations.")
        check_some(actions, "bind features", "Pass the actions of the log.")
        require(
            len(actions) <= len(observations),
            f"Every action needs an observation, but there are {len(observations)} observations for {len(actions)} "
            "actions.",
            "Pass the observations in which the actions were taken first.",
        )
        self.target.check_on(observations)
        if actions.dtype.kind != "f":
            n_actions, seen, space = self._count_actions(observations, actions), observations, self.space
            actions = actions.astype(np.int64, copy=False)
        else:
            actions = _as_vectors(actions)
            n_actions, seen, space = 0, self._join_all(observations, actions), _JOINED
        if isinstance(self.features, FromPairs):
            features: Features | FromPairs = self.features.bind(observations[: len(actions)], actions)
        else:
            from vrtd.features.completion import complete  # here, because that module imports this one

            features = complete(self.features, space).bind(seen)
            check_dense(features, "A target policy")
            remedy = "Choose fewer features of observations, or a function of observations and actions."
            check_most(features.n_features * (n_actions or 1), remedy)
        return replace(self, features=features, n_actions=n_actions, space=None)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        n_actions = self._n_actions
        if isinstance(self.features, FromPairs):
            return self.features.n_features
        return self.features.n_features * (n_actions or 1)

    @property
    def largest_norm(self) -> float | None:
        """Upper bound of the norm of every row, or None if it is not known."""
        return None if isinstance(self.features, FromPairs) else self.features.largest_norm

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Return the rows of observations, of shape (n, d)."""
        observations, n_actions = np.asarray(observations), self._n_actions
        out = np.empty((len(observations), self.n_features), row_dtype(observations))
        if not len(out):
            return out
        if not n_actions:
            out[:] = self._mean_of_draws(observations)
            return out
        if isinstance(self.features, FromPairs):
            step = max(_MOST_PROBABILITIES // n_actions, 1)
            for i in range(0, len(out), step):
                part = observations[i : i + step]
                p = self.target.probabilities(part, n_actions)
                out[i : i + step] = self._mean_of_actions(self.features, part, p)
        else:
            p = self.target.probabilities(observations, n_actions)
            blocks = out.reshape(len(out), n_actions, -1)
            phi = to_dense(self.features(observations))
            np.multiply(p[:, :, None], phi[:, None, :], out=blocks, casting="same_kind")
        return out

    def of_pairs(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Return phi(s, a) of pairs of an observation and an action.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations.
        actions : ndarray of shape (n,) or (n, k)
            One action per observation: integers for discrete actions, numbers for continuous ones.

        Returns
        -------
        ndarray of shape (n, d)
            The rows, C-contiguous.
        """
        observations, actions, n_actions = np.asarray(observations), np.asarray(actions), self._n_actions
        check_equally_long(observations, actions)
        if not n_actions:
            return self._of_joined(observations, _as_vectors(actions))
        check_actions(actions, n_actions, "the log")
        if isinstance(self.features, FromPairs):
            return self.features(observations, actions.astype(np.int64, copy=False))
        phi, n = to_dense(self.features(observations)), len(observations)
        rows = np.zeros((n, n_actions * phi.shape[1]), phi.dtype)
        rows.reshape(n, n_actions, phi.shape[1])[np.arange(n), actions.astype(np.intp)] = phi
        return rows

    @property
    def settings(self) -> dict[str, Any]:
        """Plain values from which ``from_settings`` builds the same features."""
        require(isinstance(self.features, Features), *not_stored(type(self.features).__name__))
        return super().settings | {"target": self.target.settings}

    @property
    def _n_actions(self) -> int:
        if self.n_actions is None:
            raise InvalidInputError(
                "TargetFeatures must be bound before use, to determine the number of actions.", _BIND
            )
        return self.n_actions

    def _count_actions(self, observations: NDArray[Any], actions: NDArray[Any]) -> int:
        check_actions(actions, None, "the log")
        words = () if self.space is None else self.space.actions
        n_actions = max(self.target.count_actions(observations), int(actions.max()) + 1, len(words))
        check_most(n_actions, "Number the actions 0, 1, ..., or log them as floats if they are quantities.", "actions")
        return n_actions

    def _join_all(self, observations: NDArray[Any], actions: Floats) -> NDArray[np.floating[Any]]:
        """Return the pairs of the log, and one action of the target for each observation."""
        finite = np.isfinite(actions).all(axis=1)
        row = int(np.argmin(finite))
        require(
            finite.all(),
            f"The actions of the log must be finite, but row {row} has {actions[row]}.",
            "Fix or drop that row.",
            DataError,
        )
        drawn = self.target.draws(observations)[:, 0]
        require(
            drawn.shape[1] == actions.shape[1],
            f"The actions of the target policy must have {actions.shape[1]} numbers, as those of the log, but have "
            f"{drawn.shape[1]}.",
            "Return floats of shape (n, k) or (n, m, k).",
        )
        return np.concatenate([_join(observations[: len(actions)], actions), _join(observations, drawn)])

    def _mean_of_draws(self, observations: NDArray[Any]) -> Floats:
        draws = self.target.draws(observations)
        total = np.zeros((len(observations), self.n_features))
        for j in range(draws.shape[1]):
            total += self._of_joined(observations, draws[:, j])
        total /= draws.shape[1]
        return total

    def _mean_of_actions(self, features: FromPairs, observations: NDArray[Any], p: Floats) -> Floats:
        mean = np.zeros((len(observations), self.n_features))
        for a in range(p.shape[1]):
            rows = np.flatnonzero(p[:, a] > 0.0)
            mean[rows] += p[rows, a, None] * features(observations[rows], np.full(len(rows), a))
        return mean

    def _of_joined(self, observations: NDArray[Any], actions: Floats) -> NDArray[np.floating[Any]]:
        if isinstance(self.features, FromPairs):
            return self.features(observations, actions)
        return to_dense(self.features(_join(observations, actions)))


def _as_vectors(actions: NDArray[Any]) -> Floats:
    """Return continuous actions as (n, k) floats."""
    holds = actions.dtype.kind in "biuf" and actions.ndim in (1, 2) and 0 not in actions.shape[1:]
    require(
        holds,
        f"Continuous actions must be numbers of shape (n,) or (n, k), but are {actions.dtype} of {actions.shape}.",
        "Pass one action per observation.",
        DataError,
    )
    vectors: Floats = (actions if actions.ndim == 2 else actions[:, None]).astype(np.float64, copy=False)
    return vectors


def _join(observations: NDArray[Any], actions: Floats) -> NDArray[np.floating[Any]]:
    """Return the numbers of observation and action side by side, in the dtype of the observations' rows."""
    rows = as_rows(observations)
    return np.concatenate([rows, actions.astype(rows.dtype, copy=False)], axis=1)


def table_of(features: Features | None) -> Tabular | None:
    """Return the table of states that features consist of.

    Parameters
    ----------
    features : Features or None
        Features of states, or of states and actions.

    Returns
    -------
    Tabular or None
        The table, or None if the features are not a table.

    Examples
    --------
    >>> table_of(Tabular(3))
    Tabular(n_states=3, other=False)
    """
    if isinstance(features, TargetFeatures) and isinstance(features.features, Features):
        features = features.features
    return features if isinstance(features, Tabular) else None
