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
from vrtd.features.features import Features, as_rows, check_most, check_some, row_dtype
from vrtd.features.spaces import ObservationSpace
from vrtd.features.tabular import Tabular
from vrtd.features.target import Target, check_actions, check_equally_long

_BIND = "call features.bind_pairs(observations, actions) and use what it returns"
_MOST_PROBABILITIES = 1 << 22  # in memory at once: actions of a function of both may be many more than its features
_JOINED = ObservationSpace("box")  # observation and action together are points


@dataclass(frozen=True)
class FromPairs:
    """phi(s, a) from a function of yours: observations (n, ...) and actions -> (n, d) rows.

    Discrete actions come as integers (n,), continuous ones as floats (n, k). It is called with 256 pairs at a time, the
    last one repeated where there are fewer. Each row must depend on its own pair alone.

    Parameters
    ----------
    function : Callable
        The function of observations and actions.
    n : int, optional
        d. Without it, `bind` finds it.
    """

    function: Callable[[NDArray[Any], NDArray[Any]], Any]
    n: int | None = None

    def __post_init__(self) -> None:
        must, do = "function must be callable", "pass a function of observations and actions"
        require(callable(self.function), must, f"{self.function!r:.60}", do)
        if self.n is not None:
            object.__setattr__(self, "n", check_count("n", self.n))
            check_most(int(self.n), FEWER)

    @property
    def n_features(self) -> int:
        """d; an InvalidInputError before it is known."""
        if self.n is None:
            must, got = "the number of features must be known before FromPairs is used", "features that are not bound"
            raise InvalidInputError(must, got, "call bind(observations, actions) and use what it returns")
        return self.n

    def bind(self, observations: NDArray[Any], actions: NDArray[Any]) -> FromPairs:
        """Return the same features with their number, after a look at whether rows are kept apart."""
        n = try_on(self.function, (observations, actions), self.n)
        return self if n == self.n else replace(self, n=n)

    def __call__(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """(n, d) rows of bound features."""
        return call_in_blocks(self.function, (observations, actions), self.n_features)


@dataclass(frozen=True, eq=False)
class TargetFeatures(Features):
    """phi(s) = sum over a of pi(a|s) phi(s, a), for a target policy pi; `of_pairs` returns phi(s, a) itself.

    So phi(s).theta is the value of s under the target if phi(s, a).theta is that of taking action a in s first.

    Parameters
    ----------
    features : Features or FromPairs
        A function of both gives phi(s, a). Features of observations become, for A discrete actions, phi(s, a) with A
        blocks: that of action a holds the features of s, and the others are 0. For continuous actions, they are taken
        of the numbers of observation and action side by side.
    target : Target
        The policy pi.
    n_actions : int, optional
        The number of discrete actions, or 0 for continuous ones; None before `bind_pairs` has found it.
    space : ObservationSpace, optional
        What is known of the observations.

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
        must, do = "features must be Features or FromPairs", "wrap them with vrtd.features.as_pair_features"
        require(isinstance(self.features, Features | FromPairs), must, type(self.features).__name__, do)
        must, do = "target must be a Target", "wrap it with vrtd.features.as_target"
        require(isinstance(self.target, Target), must, type(self.target).__name__, do)
        if self.n_actions is not None:
            object.__setattr__(self, "n_actions", check_count("n_actions", self.n_actions, least=0))

    @property
    def needs_data(self) -> bool:
        return self.n_actions is None

    def bind(self, observations: NDArray[Any]) -> TargetFeatures:  # noqa: ARG002
        must, got = "features of states and actions must be bound to both", "observations alone"
        require(self.n_actions is not None, must, got, _BIND)
        return self

    def bind_pairs(self, observations: NDArray[Any], actions: NDArray[Any]) -> TargetFeatures:
        """Return the same features with the number of actions, and with what they take from data.

        Parameters
        ----------
        observations : array of shape (m, ...)
            At least as many observations as actions. The first n are those in which the actions were taken.
        actions : array of shape (n,) or (n, k)
            Integers for discrete actions, floats for continuous ones.

        Returns
        -------
        TargetFeatures
            The bound features; itself if it is bound already.
        """
        if self.n_actions is not None:
            return self
        observations, actions = np.asarray(observations), np.asarray(actions)
        check_some(observations, "bind features to", "pass observations")
        check_some(actions, "bind features to", "pass the actions of the log")
        must, got = "there must be an observation for each action", f"{len(observations)} for {len(actions)} actions"
        require(len(actions) <= len(observations), must, got, "pass those in which the actions were taken first")
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
            from vrtd.features.completion import complete  # here, because it completes these features, too

            features = complete(self.features, space).bind(seen)
            do = "choose fewer features of observations, or a function of observations and actions"
            check_most(features.n_features * (n_actions or 1), do)
        return replace(self, features=features, n_actions=n_actions, space=None)

    @property
    def n_features(self) -> int:
        n_actions = self._n_actions
        if isinstance(self.features, FromPairs):
            return self.features.n_features
        return self.features.n_features * (n_actions or 1)

    @property
    def largest_norm(self) -> float | None:
        return None if isinstance(self.features, FromPairs) else self.features.largest_norm

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
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
            np.multiply(p[:, :, None], self.features(observations)[:, None, :], out=blocks, casting="same_kind")
        return out

    def of_pairs(self, observations: NDArray[Any], actions: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Return phi(s, a) of pairs of an observation and an action.

        Parameters
        ----------
        observations : array of shape (n, ...)
            The observations.
        actions : array of shape (n,) or (n, k)
            An action for each of them: integers for discrete actions, numbers for continuous ones.

        Returns
        -------
        array of shape (n, d)
            The rows, C-contiguous.
        """
        observations, actions, n_actions = np.asarray(observations), np.asarray(actions), self._n_actions
        check_equally_long(observations, actions)
        if not n_actions:
            return self._of_joined(observations, _as_vectors(actions))
        check_actions(actions, n_actions, "the log")
        if isinstance(self.features, FromPairs):
            return self.features(observations, actions.astype(np.int64, copy=False))
        phi, n = self.features(observations), len(observations)
        rows = np.zeros((n, n_actions * phi.shape[1]), phi.dtype)
        rows.reshape(n, n_actions, phi.shape[1])[np.arange(n), actions.astype(np.intp)] = phi
        return rows

    @property
    def settings(self) -> dict[str, Any]:
        must, do = "features must be made of plain values to be stored", "keep your own code and pass it when loading"
        require(isinstance(self.features, Features), must, type(self.features).__name__, do)
        return super().settings | {"target": self.target.settings}

    @property
    def _n_actions(self) -> int:
        must, got = "the number of actions must be known before TargetFeatures are used", "features that are not bound"
        if self.n_actions is None:
            raise InvalidInputError(must, got, _BIND)
        return self.n_actions

    def _count_actions(self, observations: NDArray[Any], actions: NDArray[Any]) -> int:
        check_actions(actions, None, "the log")
        words = () if self.space is None else self.space.actions
        n_actions = max(self.target.count_actions(observations), int(actions.max()) + 1, len(words))
        check_most(n_actions, "number the actions 0, 1, ...; if they are quantities, log them as floats", "actions")
        return n_actions

    def _join_all(self, observations: NDArray[Any], actions: Floats) -> NDArray[np.floating[Any]]:
        """Return the pairs that the log shows, and an action of the target for each observation."""
        finite = np.isfinite(actions).all(axis=1)
        must, got = "actions of the log must be finite", f"{actions[np.argmin(finite)]} in row {np.argmin(finite)}"
        require(finite.all(), must, got, "repair or drop that row", DataError)
        drawn = self.target.draws(observations)[:, 0]
        must = f"actions of the target policy must have {actions.shape[1]} numbers each, as those of the log"
        require(drawn.shape[1] == actions.shape[1], must, drawn.shape[1], "return floats of shape (n, k) or (n, m, k)")
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
        return self.features(_join(observations, actions))


def _as_vectors(actions: NDArray[Any]) -> Floats:
    """Return continuous actions as (n, k) floats."""
    holds = actions.dtype.kind in "biuf" and actions.ndim in (1, 2) and 0 not in actions.shape[1:]
    must, got = "continuous actions must be numbers of shape (n,) or (n, k)", f"{actions.dtype} of {actions.shape}"
    require(holds, must, got, "pass one action for each observation", DataError)
    vectors: Floats = (actions if actions.ndim == 2 else actions[:, None]).astype(np.float64, copy=False)
    return vectors


def _join(observations: NDArray[Any], actions: Floats) -> NDArray[np.floating[Any]]:
    """Return the numbers of observation and action side by side, in the type of rows of the observations."""
    rows = as_rows(observations)
    return np.concatenate([rows, actions.astype(rows.dtype, copy=False)], axis=1)


def table_of(features: Features | None) -> Tabular | None:
    """Return the table of states that features consist of, also for each action; None where they are others."""
    if isinstance(features, TargetFeatures) and isinstance(features.features, Features):
        features = features.features
    return features if isinstance(features, Tabular) else None
