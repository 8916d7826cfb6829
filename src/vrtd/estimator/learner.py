"""One run of an algorithm over rows as they come, with the path that it took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import Algorithm, Sampling
from vrtd.engine.stream import compile_stream, epochs_within
from vrtd.estimator.model_file import as_algorithm, as_settings
from vrtd.estimator.rows import Batches, NotFiniteError, Rows
from vrtd.kernels.jit import short_vectors
from vrtd.kernels.memory import aligned_copy
from vrtd.kernels.random import ALGORITHM, make_streams
from vrtd.theory.settings import MOST_GROWTH

__all__ = ["Learner", "Path", "rows_per_epoch"]

Floats = NDArray[np.float64]

_SAMPLING: Sampling = "markov"  # the rows of a log follow each other
_MOST_POINTS = 128  # of the path; beyond, every second one is dropped
_FIRST_STRIDE = 1024  # rows between two points at first
_ROUNDING = 1e-6  # by which two sums of the same squares may differ


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

    With `lowers_step`, a step a with a R > 5/4 is lowered to 5/4 / R before the batch is used. R is the growth ratio of
    the batch, tr E[A_x^T A_x] / -tr A over its rows. An update u + a A_x u satisfies
    E|u + a A_x u|^2 = |u|^2 + 2 a u^T A u + a^2 E|A_x u|^2,
    which on average over directions grows beyond a = 2 / R, and the inner steps of VRTD add noise from the anchor. This
    is a rule of thumb and no bound: a direction may be worse than the average.

    The planned step comes back after one batch, and after twice as many each time it had to be lowered again.
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
        self._lowered_until: int | None = None  # an epoch
        self._pause = 1  # epochs for which the step is lowered the next time
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
        is_planned = self._lowered_until is None
        if is_whole and is_planned and self._within(rows, 0, n // size)[0] == n // size:  # one call, or none
            if n:
                self._call(rows, 0, n // size)
                self._count(n // size)
            return
        before = self._state.copy(), self._stream.copy(), self.theta.copy(), self.n_epochs, self.n_rows
        mark = self.path.mark()
        settings = len(self.legs), self._params, self._lowered_until, self._pause
        try:
            for batch, count in self.batches.cut(rows):
                self._run(batch, count)
        except BaseException:
            self._state[:], self._stream[:], self.theta[:], self.n_epochs, self.n_rows = before
            n_legs, self._params, self._lowered_until, self._pause = settings
            del self.legs[n_legs:]
            self.path.back_to(mark)
            raise

    def _run(self, rows: Rows, count: int) -> None:
        """`count` whole epochs, with a stop at every point of the path and wherever the step changes."""
        size, first = self.batches.size, 0
        while count:
            n = min(count, max(1, -(-(self.path.next - self.n_rows) // size)))
            if self._lowered_until is not None:
                if self.n_epochs == self._lowered_until:
                    self._use_step(self._planned, is_lowered=False)
                    self._lowered_until = None
                else:
                    n = min(n, self._lowered_until - self.n_epochs)
            n, ratio = self._within(rows, first, n)
            if n == 0:
                self._use_step(replace(self._planned, step_size=MOST_GROWTH / ratio), is_lowered=True)
                self._lowered_until = self.n_epochs + self._pause
                self._pause *= 2
                continue
            self._call(rows, first, n)
            self._count(n)
            count -= n
            first += n * size

    def _within(self, rows: Rows, first: int, n_epochs: int) -> tuple[int, float]:
        """How many epochs the step suits, and the growth ratio of the one after them."""
        step = self.legs[-1].algorithm.largest_step_size
        if not self._lowers_step or step is None:
            return n_epochs, np.inf
        rows_used = rows.phi, rows.phi_next, rows.terminated, rows.weight
        limit = MOST_GROWTH * (1.0 + _ROUNDING) / step
        n, ratio = epochs_within()(*rows_used, self._discount, first, n_epochs, self.batches.size, limit)
        return int(n), float(ratio)

    @property
    def _planned(self) -> Any:
        """The algorithm with the step that was planned."""
        return next(leg.algorithm for leg in reversed(self.legs) if not leg.is_lowered)

    def _use_step(self, algorithm: Algorithm, is_lowered: bool) -> None:
        """Go on in the same batches with another step."""
        leg = self.legs[-1]
        n_left = None if leg.n_epochs is None else leg.n_epochs - (self.n_epochs - leg.first_epoch)
        self.legs.append(Leg(algorithm, n_left, self.n_epochs, self.n_rows, is_lowered))
        self._params = algorithm.params()

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
            "lowers_step": self._lowers_step,
            "lowered_until": self._lowered_until,
            "pause": self._pause,
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
        lowers_step, until = bool(tree["lowers_step"]), tree["lowered_until"]
        learner = cls(legs[-1].algorithm, None, discount, np.zeros(n_features), 0, is_weighted, lowers_step)
        learner.legs = legs
        learner._lowered_until, learner._pause = None if until is None else int(until), int(tree["pause"])
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
