"""What an algorithm is: hyperparameters, declarations, and compiled kernels that handle one sample at a time.

The engine owns every loop. An epoch first absorbs ``n_absorb`` transitions, which form the batch. It then takes
``n_steps`` steps, each on a fresh sample or on a sample drawn from the batch::

    for each epoch:
        n_absorb times:  absorb(params, options, state, x)
        if n_absorb > 0: begin(params, options, state, stream)
        n_steps times:   step(params, options, state, x, t, epoch)    t = 0, ..., n_steps - 1
        if n_absorb > 0: close(params, options, state)
    at a checkpoint:     output(params, options, state, epoch, out)   epoch: number of closed epochs

On a data set, a batch is either the next rows, in cyclic order, or a random subset of the rows, and a fresh sample is
a row drawn uniformly.

If each run draws the length of its epochs, the kernel ``length`` returns the number of steps before the epoch begins.
An epoch that would exceed the budget is not run; a later call starts it.

``params`` holds numbers that may change between calls. ``options`` holds constants of the compiled loop, so an option
that is off costs nothing. ``state`` is a NamedTuple of views into a flat float64 workspace. The workspace starts with
theta_0; all other entries are zero.
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
"""Kinds of samples of a chain: independent draws, or one trajectory."""
Sampling = Literal["iid", "markov", "dataset"]
"""Kinds of samples: independent draws, one trajectory, or the rows of a data set."""
Inner = Literal["fresh", "resample"]

_CACHE_LINE = 8  # float64


class Epoch(NamedTuple):
    """Shape of an epoch: the size of its batch, its number of steps, and what both count.

    Parameters
    ----------
    n_absorb : int
        Samples in a batch. With 0, the algorithm has no batch, and an epoch is one step on a fresh sample.
    n_steps : int
        Steps after the batch.
    inner_samples : {"fresh", "resample"}
        Source of the samples of the steps. With "fresh", each step takes a new sample; with "resample", it draws one
        from the batch.
    gradients_per_absorb : int, default=1
        Pseudo-gradients that one absorbed sample counts.
    gradients_per_step : int, default=1
        Pseudo-gradients that one step counts.
    warmup : tuple of (int, int), default=()
        The pairs ``(n_absorb, n_steps)`` of the first epochs, where they differ from the later ones.
    subset : bool, default=False
        Whether a batch is a random subset of the rows of a data set. If not, it consists of the next rows.
    random_length : bool, default=False
        Whether each run draws the number of steps of each epoch. ``n_steps`` is then their mean, and the algorithm
        needs the kernel ``length``.

    Examples
    --------
    >>> epoch = Epoch(n_absorb=500, n_steps=500, inner_samples="resample", warmup=((100, 100),))
    >>> epoch.n_gradients
    1000
    >>> epoch.gradients_until(2)
    array(1200)
    """

    n_absorb: int
    n_steps: int
    inner_samples: Inner
    gradients_per_absorb: int = 1
    gradients_per_step: int = 1
    warmup: tuple[tuple[int, int], ...] = ()
    subset: bool = False
    random_length: bool = False

    @property
    def n_gradients(self) -> int:
        """Number of pseudo-gradients that one epoch after the warm-up counts.

        Epochs of random length end at different counts in each run. The engine then counts single pseudo-gradients:
        this is 1, and ``gradients_until`` and ``epochs_at`` return their argument.
        """
        if self.random_length:
            return 1
        return self.n_absorb * self.gradients_per_absorb + self.n_steps * self.gradients_per_step

    @property
    def least_gradients(self) -> int:
        """Smallest budget with which a run can close an epoch."""
        return self.n_absorb + 1 if self.random_length else int(self.gradients_until(1))

    @property
    def samples_per_step(self) -> int:
        """Number of transitions that one step draws: 1 with fresh samples, 0 with samples from the batch."""
        return 1 if self.inner_samples == "fresh" else 0

    def gradients_until(self, n_epochs: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Return the number of pseudo-gradients that the first ``n_epochs`` epochs count.

        Parameters
        ----------
        n_epochs : int or ndarray of int
            Number of closed epochs.

        Returns
        -------
        ndarray of int
            Number of pseudo-gradients, in the shape of ``n_epochs``.
        """
        if self.random_length:
            return np.asarray(n_epochs, np.int64)
        return self._sum_until(n_epochs, self.gradients_per_absorb, self.gradients_per_step)

    def epochs_at(self, n_gradients: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Return the number of epochs that are closed after ``n_gradients`` pseudo-gradients.

        Parameters
        ----------
        n_gradients : int or ndarray of int
            Number of pseudo-gradients.

        Returns
        -------
        ndarray of int
            Number of closed epochs, in the shape of ``n_gradients``.
        """
        ends = self.gradients_until(np.arange(len(self.warmup) + 1))
        after = np.maximum(n_gradients - ends[-1], 0) // self.n_gradients
        return np.asarray(np.searchsorted(ends, n_gradients, side="right") - 1 + after, np.int64)

    def samples_at(self, n_gradients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of transitions that have been drawn after ``n_gradients`` pseudo-gradients.

        Parameters
        ----------
        n_gradients : ndarray of int
            Number of pseudo-gradients.

        Returns
        -------
        ndarray of int
            Number of transitions, in the shape of ``n_gradients``.
        """
        if self.random_length:  # absorbed samples and steps draw one transition each
            return np.asarray(n_gradients, np.int64)
        epochs = self.epochs_at(n_gradients)
        rest = n_gradients - self.gradients_until(epochs)
        sizes = np.array([*(size for size, _ in self.warmup), self.n_absorb])[np.minimum(epochs, len(self.warmup))]
        absorbed = np.minimum(rest // max(self.gradients_per_absorb, 1), sizes)  # an open epoch absorbs first
        stepped = (rest - absorbed * self.gradients_per_absorb) // max(self.gradients_per_step, 1)
        before = self._sum_until(epochs, 1, self.samples_per_step)
        return np.asarray(before + absorbed + stepped * self.samples_per_step, np.int64)

    def _sum_until(self, n_epochs: NDArray[np.int64] | int, per_absorb: int, per_step: int) -> NDArray[np.int64]:
        """Return the total over ``n_epochs`` epochs of a count with these numbers per absorbed sample and per step."""
        later = self.n_absorb * per_absorb + self.n_steps * per_step
        short = [0]  # how much less the first epochs count, cumulated
        for size, n_steps in self.warmup:
            short.append(short[-1] + later - size * per_absorb - n_steps * per_step)
        return np.asarray(n_epochs * later - np.array(short)[np.minimum(n_epochs, len(short) - 1)], np.int64)


@kernel
def ignore(params, options, state, argument):
    """Do nothing: ``absorb`` and ``begin`` of an algorithm without a batch."""


@kernel
def ignore_close(params, options, state):
    """Do nothing: ``close`` of an algorithm without a batch."""


@kernel
def theta_output(params, options, state, epoch, out):
    """Write ``state.theta`` to ``out``: the output of an algorithm that returns its iterate."""
    for i in range(out.size):
        out[i] = state.theta[i]


@dataclass(frozen=True)
class Kernels:
    """Compiled half of an algorithm: functions decorated with `vrtd.kernels.jit.kernel`.

    Kernels change only ``state``, ``stream`` and ``out``. They do not allocate, raise, print or read globals other than
    constants. In their arguments, ``params`` and ``options`` are the results of `Algorithm.params` and
    `Algorithm.options`, ``state`` is the result of ``views``, and ``x`` is a `vrtd.kernels.transition.Transition`.

    Parameters
    ----------
    views : callable
        ``views(workspace, d) -> state`` slices the flat workspace into a NamedTuple of vectors. The order is that of
        the class attributes of `Algorithm`: vectors, matrices, scalars, numbers per row.
    step : callable
        ``step(params, options, state, x, t, epoch)`` makes one step on the sample ``x``. ``t`` counts the steps of the
        epoch from 0.
    output : callable, optional
        ``output(params, options, state, epoch, out)`` writes the parameter that the algorithm returns after ``epoch``
        epochs to ``out``. The default writes ``state.theta``.
    absorb : callable, optional
        ``absorb(params, options, state, x)`` adds a sample to the batch.
    begin : callable, optional
        ``begin(params, options, state, stream)`` prepares the steps once the batch is complete. ``stream`` is the
        random stream of the algorithm.
    close : callable, optional
        ``close(params, options, state)`` ends an epoch with a batch.
    settle : callable, optional
        ``settle(params, options, state, i)`` ends an epoch for coordinate i. Only for kernels on sparse rows, where it
        is called for the features of all rows of the epoch, possibly several times, before ``close``.
    length : callable, optional
        ``length(params, options, state, stream, size, limit) -> int`` draws the number of steps of the next epoch. It
        returns 0 if the epoch would end after ``limit`` pseudo-gradients. Only for ``Epoch(random_length=True)``.
    """

    views: Callable[..., Any]
    step: Callable[..., Any]
    output: Callable[..., Any] = theta_output
    absorb: Callable[..., Any] = ignore
    begin: Callable[..., Any] = ignore
    close: Callable[..., Any] = ignore_close
    settle: Callable[..., Any] = ignore
    length: Callable[..., Any] | None = None


class Tuned(NamedTuple):
    """Values of one hyperparameter that a comparison tries.

    For the first field in `Algorithm.tuned`, the comparison tries a geometric grid between the two values given here.
    For every other field, it tries each of the values. If the first field is a step size, the values of other step
    sizes are multiples of it.

    Parameters
    ----------
    values : tuple of float
        The ends of the grid, or the values.
    power : int, default=0
        Exponent p of a factor max ``|phi|^p`` for the values, which makes them independent of the scale of the
        features. A step size of an update like that of TD has -2.
    is_share : bool, default=False
        Whether the values are fractions of the number of samples of a run. A burn-in of 0.1 is then a tenth of the run.

    Examples
    --------
    >>> Tuned((0.25, 1.0, 4.0), power=-2)
    Tuned(values=(0.25, 1.0, 4.0), power=-2, is_share=False)
    """

    values: tuple[float, ...]
    power: int = 0
    is_share: bool = False


STEP_SIZES = Tuned((2.0**-10, 2.0**5), power=-2)
"""Tuning range for the step size of an update like that of TD, ``alpha phi (...)``."""


class Algorithm(ABC):
    """Base class of the frozen dataclasses that hold the hyperparameters of an algorithm.

    To write an algorithm, derive a frozen dataclass with one field per hyperparameter, each with a default. Describe
    the fields in the section ``Parameters`` of the class docstring: the command line takes its help from there. Set the
    class attributes ``name``, ``kernels`` and ``n_vectors``, and the others where their default is wrong. Implement
    ``params``; override ``options`` and ``epoch`` where needed. `vrtd.algorithms.REGISTRY` lists the algorithms of this
    package.

    Attributes
    ----------
    name : str
        Name in the registry, on the command line and in the names of compiled loops.
    kernels : Kernels
        Compiled functions of the algorithm.
    n_vectors : int
        Vectors of length d in the workspace. The first one is theta.
    n_matrices : int
        Matrices of d x d numbers in the workspace. The default is 0.
    n_scalars : int
        Single numbers in the workspace. The default is 0.
    n_per_row : int
        Numbers in the workspace for each row of a data set. The default is 0.
    sparse_kernels : Kernels or None
        Compiled functions for sparse rows, with O(nnz) work per sample; see `vrtd.kernels.sparse`. The default is None.
    n_sparse_vectors : int
        Vectors that these functions interleave in the workspace, from theta on. The default is 0.
    needs_data_set : bool
        Whether the algorithm uses the same samples repeatedly and so needs a data set. The default is False.
    cost : {"linear", "quadratic"}
        Cost of one update in the number of features. The default is "linear".
    step_size_fields : tuple of str
        Names of the fields that are step sizes. The default is empty.
    tuned : mapping of str to Tuned
        Fields that a comparison tunes. Other fields keep their defaults. The default is empty.

    Notes
    -----
    The workspace of a run is a flat array: the vectors, then the matrices, scalars and numbers per row.
    ``kernels.views`` must slice it in this order.

    Examples
    --------
    >>> import vrtd
    >>> vrtd.TD(step_size=0.1).settings
    {'name': 'td', 'step_size': 0.1, 'radius': None, 'average': False}
    """

    name: ClassVar[str]
    kernels: ClassVar[Kernels]

    # Layout of the workspace, in this order.
    n_vectors: ClassVar[int]
    n_matrices: ClassVar[int] = 0
    n_scalars: ClassVar[int] = 0
    n_per_row: ClassVar[int] = 0

    sparse_kernels: ClassVar[Kernels | None] = None
    n_sparse_vectors: ClassVar[int] = 0
    needs_data_set: ClassVar[bool] = False
    cost: ClassVar[Literal["linear", "quadratic"]] = "linear"
    step_size_fields: ClassVar[tuple[str, ...]] = ()
    tuned: ClassVar[Mapping[str, Tuned]] = {}

    @property
    def settings(self) -> dict[str, Any]:
        """Name and hyperparameters as plain values, as recorded in the provenance of a result."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {"name": self.name} | {key: _plain(value) for key, value in values.items()}

    @property
    def needs_trajectory(self) -> bool:
        """Whether the algorithm needs consecutive samples, as on a trajectory."""
        return False

    @property
    def learns_from_log(self) -> bool:
        """Whether the algorithm can learn from a log whose rows are read once and in order."""
        if self.needs_data_set:
            return False
        epoch = self.epoch("markov")
        return not epoch.warmup and not epoch.random_length

    @property
    def learns_from_sparse_rows(self) -> bool:
        """Whether the algorithm with these settings has a form with O(nnz) work per sparse row."""
        return self.sparse_kernels is not None

    def epoch(self, sampling: Sampling, n_rows: int = 0) -> Epoch:
        """Return the shape of an epoch. The default is one step on a fresh sample.

        Parameters
        ----------
        sampling : {"iid", "markov", "dataset"}
            Kind of samples.
        n_rows : int, default=0
            Number of rows of the data set, for the sampling "dataset".

        Returns
        -------
        Epoch
            The size of the batch, the number of steps, and what they count.
        """
        return Epoch(n_absorb=0, n_steps=1, inner_samples="fresh")

    @abstractmethod
    def params(self) -> Any:
        """Return the hyperparameters that the compiled loop takes as arguments.

        Returns
        -------
        NamedTuple
            Numbers and arrays. The class of the tuple needs a unique name, because Numba distinguishes them by name.
        """

    def options(self) -> tuple[int, ...]:
        """Return the hyperparameters that are compiled into the loop as constants. The default is an empty tuple.

        Returns
        -------
        NamedTuple of int
            Each new combination of values compiles a loop of its own.
        """
        return ()

    @final
    def workspace_size(self, n_features: int, n_rows: int = 0, *, is_sparse: bool = False) -> int:
        """Return the number of float64 values in the workspace of one run.

        Parameters
        ----------
        n_features : int
            Number of features d.
        n_rows : int, default=0
            Number of rows of the data set, for the sampling "dataset".
        is_sparse : bool, default=False
            Whether the workspace is for ``sparse_kernels``.

        Returns
        -------
        int
            Size of the workspace. Scalars are padded to a cache line, which keeps the vectors of the next run aligned.
        """
        scalars = -(-self.n_scalars // _CACHE_LINE) * _CACHE_LINE
        if is_sparse:
            return self.n_sparse_vectors * n_features + scalars
        return self.n_vectors * n_features + self.n_matrices * n_features**2 + scalars + self.n_per_row * n_rows

    @final
    def theta_in(self, workspace: NDArray[np.float64], n_features: int, *, is_sparse: bool) -> NDArray[np.float64]:
        """Return the vector theta of a workspace, as a view.

        Parameters
        ----------
        workspace : ndarray
            Workspace of one run.
        n_features : int
            Number of features d.
        is_sparse : bool
            Whether the workspace is for ``sparse_kernels``.

        Returns
        -------
        ndarray of shape (d,)
            The view.
        """
        step = self.n_sparse_vectors if is_sparse else 1
        return workspace[: step * n_features : step]

    @property
    def largest_step_size(self) -> float | None:
        """Largest step size, which is checked for mean-square stability. None if the update differs from that of TD."""
        return None


def check_sampling(algorithm: Algorithm, sampling: Sampling) -> None:
    """Raise if the algorithm cannot use this kind of samples.

    Parameters
    ----------
    algorithm : Algorithm
        The algorithm.
    sampling : {"iid", "markov", "dataset"}
        Kind of samples.

    Raises
    ------
    InvalidInputError
        If the algorithm needs a data set or consecutive samples, and ``sampling`` does not provide them.

    Examples
    --------
    >>> import vrtd
    >>> check_sampling(vrtd.TDLambda(), "iid")
    Traceback (most recent call last):
    vrtd.errors.InvalidInputError: td_lambda (step_size 0.1, trace_decay 0.8) needs consecutive samples, but got
    sampling='iid'. Use sampling="markov".
    """
    problem = f"{algorithm.name} needs a data set because it uses rows repeatedly, but got sampling={sampling!r}."
    remedy = 'Use sampling="dataset" (on vrtd.Transitions, such as vrtd.record(problem, n_rows)).'
    require(sampling == "dataset" or not algorithm.needs_data_set, problem, remedy)
    settings = ", ".join(f"{key} {value}" for key, value in algorithm.settings.items() if key != "name")
    problem = f"{algorithm.name} ({settings}) needs consecutive samples, but got sampling={sampling!r}."
    require(sampling == "markov" or not algorithm.needs_trajectory, problem, 'Use sampling="markov".')


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, bool | int | float | str | None) else repr(value)
