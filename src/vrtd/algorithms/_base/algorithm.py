"""What an algorithm is: hyperparameters, and kernels at the grain of one sample.

The engine owns every loop. An epoch absorbs `n_absorb` transitions, which become the batch, and then takes `n_steps`
steps, each on a fresh sample or on one drawn from the batch. On a data set, a batch is its next rows, in order and
around, or a random subset of its rows, and a fresh sample is any of its rows:

    for each epoch:
        n_absorb times:  absorb(params, options, state, x)
        if n_absorb > 0: begin(params, options, state, stream)
        n_steps times:   step(params, options, state, x, t, epoch)    t = 0, ..., n_steps - 1
        if n_absorb > 0: close(params, options, state)
    at a checkpoint:     output(params, options, state, epoch, out)   after `epoch` epochs

Where each run draws the length of its epochs, `length` gives the number of steps before the epoch begins. The epoch is
run if it ends within the budget, and otherwise left for a later call.

`params` are numbers that may change from call to call; `options` are constants of the compiled loop, so that what an
option turns off costs nothing. `state` is a NamedTuple of views into a flat workspace of float64 that starts with
theta_0 and is otherwise zero.

An algorithm declares the rest in class attributes: the layout of its workspace, what kind of samples it needs, which
hyperparameters are step sizes, and which ones a comparison tunes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import require
from vrtd.kernels.jit import kernel

ChainSampling = Literal["iid", "markov"]
Sampling = Literal["iid", "markov", "dataset"]
Inner = Literal["fresh", "resample"]

_CACHE_LINE = 8  # float64


class Epoch(NamedTuple):
    """The shape of an epoch and what it counts."""

    n_absorb: int
    n_steps: int
    inner_samples: Inner  # where the sample of a step comes from
    gradients_per_absorb: int = 1  # pseudo-gradients, as the paper counts them
    gradients_per_step: int = 1
    warmup: tuple[tuple[int, int], ...] = ()  # (n_absorb, n_steps) of the first epochs
    subset: bool = False  # whether a batch is a random subset of a data set's rows, instead of the next ones
    random_length: bool = False  # whether each run draws the number of steps of each epoch, with the mean n_steps

    @property
    def n_gradients(self) -> int:
        """Of one epoch, after the warm-up.

        Epochs of random length end at other counts in each run. The engine then counts in single pseudo-gradients: this
        is 1, and `gradients_until` and `epochs_at` change nothing.
        """
        if self.random_length:
            return 1
        return self.n_absorb * self.gradients_per_absorb + self.n_steps * self.gradients_per_step

    @property
    def least_gradients(self) -> int:
        """The least budget with which a run can close an epoch."""
        return self.n_absorb + 1 if self.random_length else int(self.gradients_until(1))

    @property
    def samples_per_step(self) -> int:
        return 1 if self.inner_samples == "fresh" else 0

    def gradients_until(self, n_epochs: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """How many pseudo-gradients have been counted when so many epochs are closed."""
        if self.random_length:
            return np.asarray(n_epochs, np.int64)
        return self._sum_until(n_epochs, self.gradients_per_absorb, self.gradients_per_step)

    def epochs_at(self, n_gradients: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """How many epochs are closed when so many pseudo-gradients have been counted."""
        ends = self.gradients_until(np.arange(len(self.warmup) + 1))
        after = np.maximum(n_gradients - ends[-1], 0) // self.n_gradients
        return np.asarray(np.searchsorted(ends, n_gradients, side="right") - 1 + after, np.int64)

    def samples_at(self, n_gradients: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many transitions have been drawn when so many pseudo-gradients have been counted."""
        if self.random_length:  # one for each pseudo-gradient, whether absorbed or stepped on
            return np.asarray(n_gradients, np.int64)
        epochs = self.epochs_at(n_gradients)
        rest = n_gradients - self.gradients_until(epochs)
        sizes = np.array([*(size for size, _ in self.warmup), self.n_absorb])[np.minimum(epochs, len(self.warmup))]
        absorbed = np.minimum(rest // max(self.gradients_per_absorb, 1), sizes)  # an open epoch absorbs first
        stepped = (rest - absorbed * self.gradients_per_absorb) // max(self.gradients_per_step, 1)
        before = self._sum_until(epochs, 1, self.samples_per_step)
        return np.asarray(before + absorbed + stepped * self.samples_per_step, np.int64)

    def _sum_until(self, n_epochs: NDArray[np.int64] | int, per_absorb: int, per_step: int) -> NDArray[np.int64]:
        """Return the sum over so many epochs, with these numbers for each transition absorbed and each step."""
        later = self.n_absorb * per_absorb + self.n_steps * per_step
        short = [0]  # by how much the first epochs, in sum, stay behind
        for size, n_steps in self.warmup:
            short.append(short[-1] + later - size * per_absorb - n_steps * per_step)
        return np.asarray(n_epochs * later - np.array(short)[np.minimum(n_epochs, len(short) - 1)], np.int64)


@kernel
def ignore(params, options, state, argument):
    """For an algorithm without a batch: nothing to absorb, nothing to begin."""


@kernel
def ignore_close(params, options, state):
    """For an algorithm without a batch: nothing to close."""


@kernel
def theta_output(params, options, state, epoch, out):
    """For an algorithm that returns its iterate."""
    for i in range(out.size):
        out[i] = state.theta[i]


@dataclass(frozen=True)
class Kernels:
    """The compiled half of an algorithm."""

    views: Callable[..., Any]  # (workspace, d) -> state
    step: Callable[..., Any]
    output: Callable[..., Any] = theta_output
    absorb: Callable[..., Any] = ignore
    begin: Callable[..., Any] = ignore
    close: Callable[..., Any] = ignore_close
    length: Callable[..., Any] | None = None  # (params, options, state, stream, size, limit): see `Epoch.random_length`


class Tuned(NamedTuple):
    """How a comparison tunes a hyperparameter.

    The first field in `Algorithm.tuned` takes the points of a geometric grid between its two values; every other field
    takes each of its values. If the first field is a step size, other step sizes are given as multiples of it.
    """

    values: tuple[float, ...]
    power: int = 0  # values are multiplied by this power of max |phi|, so that they do the same on scaled features
    is_share: bool = False  # whether values are shares of the samples of a run, such as a burn-in of a tenth


STEP_SIZES = Tuned((2.0**-10, 2.0**5), power=-2)  # of an update like TD's, alpha phi (...)


class Algorithm(ABC):
    """Base of the frozen dataclasses that hold an algorithm's hyperparameters.

    A subclass sets the class attributes that have no value here, and overrides a default where it is wrong.
    """

    name: ClassVar[str]  # in the registry, on the command line and in the names of compiled loops
    kernels: ClassVar[Kernels]

    # The layout of the workspace, in this order.
    n_vectors: ClassVar[int]  # of d numbers each, theta first
    n_matrices: ClassVar[int] = 0  # of d^2 numbers each
    n_scalars: ClassVar[int] = 0
    n_per_row: ClassVar[int] = 0  # numbers for each row of a data set

    needs_data_set: ClassVar[bool] = False  # whether it must come back to the same samples
    cost: ClassVar[Literal["linear", "quadratic"]] = "linear"  # of one update, in the number of features
    step_size_fields: ClassVar[tuple[str, ...]] = ()
    tuned: ClassVar[Mapping[str, Tuned]] = {}  # other fields keep their defaults

    @property
    def settings(self) -> dict[str, Any]:
        """Name and hyperparameters as plain values, for the record."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"name": self.name} | {key: _plain(value) for key, value in values.items()}

    @property
    def needs_trajectory(self) -> bool:
        """Whether samples must follow each other."""
        return False

    @property
    def learns_from_log(self) -> bool:
        """Whether it can learn from the rows of a log, each read once and in order."""
        if self.needs_data_set:
            return False
        epoch = self.epoch("markov")
        return not epoch.warmup and not epoch.random_length

    def epoch(self, sampling: Sampling, n_rows: int = 0) -> Epoch:
        """Return the shape of an epoch under this kind of sampling; `n_rows` is the size of a data set."""
        return Epoch(n_absorb=0, n_steps=1, inner_samples="fresh")

    @abstractmethod
    def params(self) -> Any:
        """Return the hyperparameters that the compiled loop takes as arguments: a NamedTuple of numbers and arrays."""

    def options(self) -> tuple[int, ...]:
        """Return the hyperparameters that are compiled into the loop: a NamedTuple of whole numbers."""
        return ()

    @final
    def workspace_size(self, n_features: int, n_rows: int = 0) -> int:
        """Return how many float64 the state takes."""
        scalars = -(-self.n_scalars // _CACHE_LINE) * _CACHE_LINE  # so that the next run's vectors stay aligned
        return self.n_vectors * n_features + self.n_matrices * n_features**2 + scalars + self.n_per_row * n_rows

    @property
    def largest_step_size(self) -> float | None:
        """The step size whose mean-square stability is checked; None where the update is not TD's."""
        return None


def check_sampling(algorithm: Algorithm, sampling: Sampling) -> None:
    """Refuse samples that the algorithm cannot use."""
    got, do = (
        f"sampling={sampling!r}",
        'use sampling="dataset" (on vrtd.Transitions, such as vrtd.record(problem, n_rows))',
    )
    must = f"{algorithm.name} must have a data set, to come back to its rows"
    require(sampling == "dataset" or not algorithm.needs_data_set, must, got, do)
    settings = ", ".join(f"{key} {value}" for key, value in algorithm.settings.items() if key != "name")
    must = f"{algorithm.name} ({settings}) must have samples that follow each other"
    require(sampling == "markov" or not algorithm.needs_trajectory, must, got, 'use sampling="markov"')


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, bool | int | float | str | None) else repr(value)
