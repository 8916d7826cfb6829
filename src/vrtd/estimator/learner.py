"""One run of an algorithm over rows as they come, with the path that it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import Algorithm
from vrtd.algorithms.algorithm import Sampling
from vrtd.engine.stream import compile_stream, epochs_within
from vrtd.estimator.model_file import as_algorithm, as_settings
from vrtd.estimator.rows import Batches, NotFiniteError, Rows
from vrtd.kernels.jit import short_vectors
from vrtd.kernels.memory import aligned_copy
from vrtd.kernels.random import ALGORITHM, make_streams

__all__ = ["Learner", "Path", "rows_per_epoch"]

Floats = NDArray[np.float64]

_SAMPLING: Sampling = "markov"  # the rows of a log follow each other
_MOST_POINTS = 128  # of the path; beyond, every second one is dropped
_FIRST_STRIDE = 1024  # rows between two points at first


class Path:
    """theta along the run, at row counts that depend on nothing but the batch sizes."""

    def __init__(self, theta_0: Floats) -> None:
        self.n_rows, self.theta = [0], [theta_0.copy()]
        self._stride, self.next = _FIRST_STRIDE, _FIRST_STRIDE

    def add(self, n_rows: int, theta: Floats) -> None:
        if n_rows < self.next:
            return
        self.n_rows.append(n_rows)
        self.theta.append(theta.copy())
        if len(self.n_rows) > _MOST_POINTS:
            self.n_rows, self.theta = self.n_rows[::2], self.theta[::2]
            self._stride *= 2
        self.next = n_rows + self._stride

    def stored(self) -> dict[str, Any]:
        rows = {"n_rows": np.array(self.n_rows), "theta": np.array(self.theta)}
        return {"stride": self._stride, "next": self.next, **rows}

    def restore(self, tree: Mapping[str, Any]) -> None:
        n_rows, theta = np.asarray(tree["n_rows"], np.int64), np.asarray(tree["theta"], np.float64)
        if theta.shape != (len(n_rows), self.theta[0].size) or not 0 < len(n_rows) <= _MOST_POINTS:
            raise ValueError("a path whose shapes do not agree")
        self.n_rows, self.theta = n_rows.tolist(), list(theta)
        self._stride, self.next = max(1, int(tree["stride"])), int(tree["next"])

    def mark(self) -> tuple[list[int], list[Floats], int, int, int]:
        return self.n_rows, self.theta, len(self.n_rows), self._stride, self.next

    def back_to(self, mark: tuple[list[int], list[Floats], int, int, int]) -> None:
        self.n_rows, self.theta, n, self._stride, self.next = mark
        del self.n_rows[n:], self.theta[n:]


class Leg(NamedTuple):
    """A stretch of the run with the same settings."""

    algorithm: Algorithm
    n_epochs: int | None  # None: to the end
    first_epoch: int
    first_row: int
    is_lowered: bool = False  # whether the step was lowered for rows with large features


def rows_per_epoch(algorithm: Algorithm) -> int:
    epoch = algorithm.epoch(_SAMPLING)
    return epoch.n_absorb + epoch.n_steps * epoch.samples_per_step


class Learner:
    """State of the run: workspace, random stream, open batch, and the legs so far.

    With `lowers_step`, a step that is too large for the rows of a batch is lowered before they are used. A step a is
    safe if a w |phi|^2 <= 1 on every row. Rows of one trajectory satisfy E(psi.u)^2 <= -2 u^T A u with
    psi = gamma phi' - phi, because phi and phi' have the same second moments up to the ends of the batch. Then
    E|u + a phi psi.u|^2 <= |u|^2 + 2 a u^T A u (1 - a max |phi|^2), which does not exceed |u|^2.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        n_epochs: int | None,
        discount: float,
        theta_0: Floats,
        seed: int,
        is_weighted: bool,
        lowers_step: bool = False,
    ) -> None:
        self._discount, self._is_weighted, self._lowers_step = discount, is_weighted, lowers_step
        self.theta = np.array(theta_0)
        self.path = Path(theta_0)
        self.n_epochs = self.n_rows = 0
        self._state = np.zeros(algorithm.workspace_size(theta_0.size))
        self._state[: theta_0.size] = theta_0
        self._scratch = aligned_copy(self._state)
        self._stream = make_streams(seed, np.arange(1), ALGORITHM)[0]
        self.legs: list[Leg] = []
        self.begin_leg(algorithm, n_epochs)

    def begin_leg(self, algorithm: Algorithm, n_epochs: int | None) -> None:
        """Go on with other settings of the same algorithm; no row may wait."""
        self.legs.append(Leg(algorithm, n_epochs, self.n_epochs, self.n_rows))
        epoch = algorithm.epoch(_SAMPLING)
        self.batches = Batches(rows_per_epoch(algorithm))
        self._params, self._sizes = algorithm.params(), (self.theta.size, epoch.n_absorb, epoch.n_steps)
        self._limit = 1.0 / algorithm.largest_step_size if self._lowers_step and algorithm.largest_step_size else None
        self._loop = compile_stream(algorithm, epoch, self.theta.size, self._is_weighted)
        self._is_ready = False

    @property
    def rows_left(self) -> int | None:
        """Rows to the end of the leg."""
        leg = self.legs[-1]
        if leg.n_epochs is None:
            return None
        done = (self.n_epochs - leg.first_epoch) * self.batches.size + self.batches.n_waiting
        return leg.n_epochs * self.batches.size - done

    def feed(self, rows: Rows) -> None:
        """Learn from whole batches; what is left waits. Nothing changes when it raises."""
        n, size = len(rows.reward), self.batches.size
        is_whole = not self.batches.n_waiting and not n % size and self.n_rows + n <= self.path.next
        if is_whole and self._within(rows, 0, n // size)[0] == n // size:  # one call, or none
            if n:
                self._call(rows, 0, n // size)
                self._count(n // size)
            return
        before = self._state.copy(), self._stream.copy(), self.theta.copy(), self.n_epochs, self.n_rows
        mark, settings = self.path.mark(), (len(self.legs), self._params, self._limit)
        try:
            for batch, count in self.batches.cut(rows):
                self._run(batch, count)
        except BaseException:
            self._state[:], self._stream[:], self.theta[:], self.n_epochs, self.n_rows = before
            n_legs, self._params, self._limit = settings
            del self.legs[n_legs:]
            self.path.back_to(mark)
            raise

    def _run(self, rows: Rows, count: int) -> None:
        """`count` whole epochs, with a stop at every point of the path and wherever the step must be lowered."""
        size, first = self.batches.size, 0
        while count:
            n = min(count, max(1, -(-(self.path.next - self.n_rows) // size)))
            n, largest = self._within(rows, first, n)
            if n == 0:
                self._lower_step(largest)
                continue
            self._call(rows, first, n)
            self._count(n)
            count -= n
            first += n * size

    def _within(self, rows: Rows, first: int, n_epochs: int) -> tuple[int, float]:
        """How many epochs the step is safe for, and the largest w |phi|^2 of the one after them."""
        if self._limit is None:
            return n_epochs, np.inf
        n, largest = epochs_within()(rows.phi, rows.weight, first, n_epochs, self.batches.size, self._limit)
        return int(n), float(largest)

    def _lower_step(self, largest: float) -> None:
        """Go on in the same batches with a step that is safe for this w |phi|^2."""
        leg = self.legs[-1]
        algorithm: Any = replace(leg.algorithm, step_size=1.0 / largest)  # type: ignore[type-var]
        left = None if leg.n_epochs is None else leg.n_epochs - (self.n_epochs - leg.first_epoch)
        self.legs.append(Leg(algorithm, left, self.n_epochs, self.n_rows, is_lowered=True))
        self._params, self._limit = algorithm.params(), largest

    def _count(self, n_epochs: int) -> None:
        self.n_epochs += n_epochs
        self.n_rows += n_epochs * self.batches.size
        self.path.add(self.n_rows, self.theta)

    def _call(self, rows: Rows, first: int, n: int) -> None:
        arguments = (
            self._params, *rows, self._discount, first, n, self.n_epochs,
            self._state, self._scratch, self._stream, self.theta, *self._sizes,
        )  # fmt: skip
        if self._is_ready:
            is_finite = self._loop(*arguments)
        else:
            with short_vectors():  # compiles, or loads what was compiled
                is_finite = self._loop(*arguments)
            self._is_ready = True
        if not is_finite:
            raise NotFiniteError

    def stored(self) -> dict[str, Any]:
        """Everything that it takes to go on as if it had never stopped."""
        legs = [[as_settings(leg.algorithm), *leg[1:]] for leg in self.legs]
        waiting = self.batches.waiting
        return {
            "legs": legs,
            "limit": self._limit,
            "n_epochs": self.n_epochs,
            "n_rows": self.n_rows,
            "state": self._state,
            "stream": self._stream,
            "theta": self.theta,
            "path": self.path.stored(),
            "waiting": None if waiting is None else waiting._asdict(),
        }

    @classmethod
    def restored(cls, tree: Mapping[str, Any], discount: float, like: Rows) -> Self:
        """A learner that goes on from what was stored, with rows like these."""
        n_features, is_weighted = like.phi.shape[1], bool(like.weight.size)
        legs = [
            Leg(as_algorithm(settings), n_epochs, int(epoch), int(row), bool(is_lowered))
            for settings, n_epochs, epoch, row, is_lowered in tree["legs"]
        ]
        limit = None if tree["limit"] is None else float(tree["limit"])
        learner = cls(legs[-1].algorithm, None, discount, np.zeros(n_features), 0, is_weighted, limit is not None)
        learner.legs, learner._limit = legs, limit
        learner.n_epochs, learner.n_rows = int(tree["n_epochs"]), int(tree["n_rows"])
        for own, given in ((learner._state, "state"), (learner._stream, "stream"), (learner.theta, "theta")):
            if tree[given].shape != own.shape or tree[given].dtype != own.dtype:
                raise ValueError(f"{given} of another shape or type")
            own[:] = tree[given]
        if not np.isfinite(learner._state).all() or not np.isfinite(learner.theta).all():
            raise ValueError("parameters that are not finite")
        learner.path.restore(tree["path"])
        if tree["waiting"] is not None:
            waiting = Rows.stored(tree["waiting"], n_features)
            if bool(waiting.weight.size) != is_weighted or waiting.phi.dtype != like.phi.dtype:
                raise ValueError("rows that wait of another kind than the sample's")
            learner.batches.wait_again(waiting)
        return learner
