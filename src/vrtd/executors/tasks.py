"""The function ``run_tasks``, which runs tasks on any executor of ``concurrent.futures``.

A task is a pure function of plain data. Its result does not depend on the worker that computes it.
"""

from __future__ import annotations

import hashlib
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import contextmanager
from functools import cache
from io import BytesIO
from queue import SimpleQueue
from threading import Lock
from types import FunctionType
from typing import Any, NamedTuple

from vrtd.checks import check_count, require
from vrtd.errors import InvalidInputError, WorkerError

_TRAVELS = 1_000_000  # bytes; shared data of at most this size are sent with every task
_MOST_AHEAD, _BYTES_AHEAD = 4096, 1 << 28  # tasks that are submitted before their results are taken
_FIRST_AHEAD = 4
_MOST_KEPT = 4  # shared data that a worker keeps


class _Missing(NamedTuple):
    """Answer of a worker that does not have the shared data of a task."""


_kept: OrderedDict[str, Any] = OrderedDict()  # shared data of this worker by their digest, the oldest first
_lock = Lock()  # a worker may run tasks in several threads


def check_executor(executor: Any, threads: Any) -> None:
    """Raise unless ``executor`` is None or an executor, and ``threads`` is None or a number that belongs to it."""
    if threads is not None:
        check_count("threads", threads)
    problem = f"executor must be a concurrent.futures.Executor, but got {executor!r}."
    remedy = "Pass client.get_executor() for Dask, or the result of vrtd.executors.ray() for Ray."
    require(executor is None or isinstance(executor, Executor), problem, remedy)
    both = f"threads={threads} has no effect together with executor, whose workers use one thread each."
    require(executor is None or threads is None, both, "Drop one of them.")


def run_tasks(
    executor: Executor,
    function: Callable[..., Any],
    shared: Any,
    tasks: Iterable[tuple[Any, ...]],
    describe: Callable[[int], str],
    most_ahead: int | None = None,
) -> Iterator[tuple[int, Any]]:
    """Call ``function(shared, *task)`` for each task, and yield the number of each task with its result.

    Results come in the order in which they are finished. Tasks of a sequence are submitted at once. Those of another
    iterable are taken when workers can take them, so a generator may decide on a task after it has seen earlier
    results. If the caller stops early, tasks that have not begun are cancelled. From its first task on, a process
    uses one thread for linear algebra, so that results are the same on any machine.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        The executor. It stays open.
    function : callable
        Function in an importable module.
    shared : object
        Data that all tasks need. Large data are sent to a worker only when it does not have them yet.
    tasks : iterable of tuple
        Arguments of each task.
    describe : callable
        Function from the number of a task to its name in error messages.
    most_ahead : int or None, default=None
        Number of tasks that are submitted before their results are taken. Pass a small number if tasks are large.
    """
    content = _pack(shared)
    key, travels = hashlib.sha256(content).hexdigest(), len(content) <= _TRAVELS
    most = max(64, min(_MOST_AHEAD, _BYTES_AHEAD // len(content))) if travels else _MOST_AHEAD
    most = most if most_ahead is None else most_ahead
    first = most if travels and isinstance(tasks, Sequence) else _FIRST_AHEAD
    finished: SimpleQueue[Future[Any]] = SimpleQueue()
    pending: dict[Future[Any], tuple[int, tuple[Any, ...]]] = {}

    def submit(i: int, task: tuple[Any, ...], is_sent: bool) -> None:
        with warnings.catch_warnings():  # of Dask, which does not know that large data are sent once
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            future = executor.submit(_call, function, key, content if is_sent else None, task)
        pending[future] = i, task
        future.add_done_callback(finished.put)

    numbered, n_finished = enumerate(tasks), 0
    try:
        while True:
            # The window grows with the results, so that the first ones are known before most tasks are made.
            while len(pending) < min(most, first + 2 * n_finished) and (each := next(numbered, None)):
                submit(*each, travels)
            if not pending:
                return
            future = finished.get()
            i, task = pending.pop(future)
            result = _result_of(future, describe(i))
            if isinstance(result, _Missing):
                submit(i, task, True)
            else:
                n_finished += 1
                yield i, result
    except BrokenExecutor as error:
        problem = f"A worker ended unexpectedly ({type(error).__name__}: {error})."
        raise WorkerError(problem, "Run the same call again: finished work that was written to out is kept.") from error
    finally:
        for future in pending:
            future.cancel()


class _Pickler(pickle.Pickler):
    """Pickler that refuses what only the script of the caller has, which workers do not run."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, type | FunctionType) and thing.__module__ == "__main__":
            raise pickle.PicklingError(f"{thing.__qualname__} is defined in the script __main__")
        return NotImplemented


def _pack(shared: Any) -> bytes:
    file = BytesIO()
    try:
        _Pickler(file).dump(shared)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        problem = f"The problem or the algorithm cannot be sent to another process: {error}."
        raise InvalidInputError(problem, "Define its classes and functions in a module, or drop executor.") from None
    return file.getvalue()


def _result_of(future: Future[Any], name: str) -> Any:
    """Return the result of a task; an error names the task."""
    try:
        return future.result()
    except (BrokenExecutor, WorkerError):  # a WorkerError names what failed within the task
        raise
    except CancelledError:
        problem = f"{name} was cancelled by the executor."
        raise WorkerError(problem, "Check that its workers can be reached, then run the same call again.") from None
    except Exception as error:
        problem = f"{name} failed: {type(error).__name__}: {f'{error}'.rstrip('.')}."
        raise WorkerError(problem, "Fix the cause, then run the same call again.") from error


def _call(function: Callable[..., Any], key: str, content: bytes | None, task: tuple[Any, ...]) -> Any:
    """Run a task in a worker."""
    with _lock:
        if key not in _kept:
            if content is None:
                return _Missing()
            _kept[key] = pickle.loads(content)  # noqa: S301 - from the process that sent the task
            if len(_kept) > _MOST_KEPT:
                _kept.popitem(last=False)
        _kept.move_to_end(key)
        shared = _kept[key]
        # For good, because tasks may run in several threads of this process.
        _linear_algebra().limit(limits=1)
    return function(shared, *task)


@contextmanager
def one_thread_for_linear_algebra() -> Iterator[None]:
    """Give linear algebra in this process the same bits as in a worker, which uses one thread for it."""
    with _linear_algebra().limit(limits=1):
        yield


@cache
def _linear_algebra() -> Any:
    import scipy.linalg  # noqa: F401 - its library must be loaded before it can be limited
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
