"""What an algorithm is: hyperparameters, and kernels at the grain of one sample.

The engine owns every loop. An epoch absorbs `n_absorb` transitions, which become the batch, and then takes `n_steps`
steps, each on a fresh sample or on one drawn from the batch:

    for each epoch:
        n_absorb times:  absorb(params, options, state, x)
        if n_absorb > 0: begin(params, options, state, stream)
        n_steps times:   step(params, options, state, x, t, epoch)    t = 0, ..., n_steps - 1
        if n_absorb > 0: close(params, options, state)
    at a checkpoint:     output(params, options, state, epoch, out)   after `epoch` epochs

`params` are numbers that may change from call to call; `options` are constants of the compiled loop, so that what an
option turns off costs nothing. `state` is a NamedTuple of views into a flat workspace of float64 that starts with
theta_0 and is otherwise zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from vrtd.kernels.jit import kernel

__all__ = ["Algorithm", "Epoch", "Inner", "Kernels", "Sampling"]

Sampling = Literal["iid", "markov"]
Inner = Literal["fresh", "resample"]


class Epoch(NamedTuple):
    """The shape of an epoch and what it counts."""

    n_absorb: int
    n_steps: int
    inner: Inner  # where the sample of a step comes from
    gradients_per_absorb: int = 1  # pseudo-gradients, as the paper counts them
    gradients_per_step: int = 1

    @property
    def n_gradients(self) -> int:
        return self.n_absorb * self.gradients_per_absorb + self.n_steps * self.gradients_per_step

    @property
    def samples_per_step(self) -> int:
        return 1 if self.inner == "fresh" else 0

    def samples_at(self, n_gradients: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many transitions have been drawn when so many pseudo-gradients have been counted."""
        epochs, rest = np.divmod(n_gradients, self.n_gradients)
        absorbed = np.minimum(rest // max(self.gradients_per_absorb, 1), self.n_absorb)  # an open epoch absorbs first
        stepped = (rest - absorbed * self.gradients_per_absorb) // max(self.gradients_per_step, 1)
        per_epoch = self.n_absorb + self.n_steps * self.samples_per_step
        samples: NDArray[np.int64] = epochs * per_epoch + absorbed + stepped * self.samples_per_step
        return samples


@kernel
def ignore(params, options, state, argument):
    """For an algorithm without a batch: nothing to absorb, nothing to begin."""


@kernel
def ignore_close(params, options, state):
    """For an algorithm without a batch: nothing to close."""


@dataclass(frozen=True)
class Kernels:
    """The compiled half of an algorithm."""

    views: Callable[..., Any]  # (workspace, d) -> state
    step: Callable[..., Any]
    output: Callable[..., Any]
    absorb: Callable[..., Any] = ignore
    begin: Callable[..., Any] = ignore
    close: Callable[..., Any] = ignore_close


class Algorithm(ABC):
    """Base of the frozen dataclasses that hold an algorithm's hyperparameters."""

    name: ClassVar[str]  # in the registry, on the command line and in the names of compiled loops
    kernels: ClassVar[Kernels]

    @property
    def settings(self) -> dict[str, Any]:
        """Name and hyperparameters as plain values, for the record."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"name": self.name} | {key: _plain(value) for key, value in values.items()}

    @abstractmethod
    def epoch(self, sampling: Sampling) -> Epoch:
        """The shape of an epoch under this kind of sampling."""

    @abstractmethod
    def params(self) -> Any:
        """The hyperparameters that the compiled loop takes as arguments: a NamedTuple of numbers and arrays."""

    @abstractmethod
    def options(self) -> Any:
        """Those that are compiled into the loop: a NamedTuple of whole numbers."""

    @abstractmethod
    def workspace_size(self, n_features: int) -> int:
        """How many float64 the state takes."""

    @property
    @abstractmethod
    def largest_step_size(self) -> float:
        """What the check for mean-square stability looks at."""


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, bool | int | float | str | None) else repr(value)
