"""Run tasks on an executor of ``concurrent.futures``: processes of this machine, Dask, Ray, or any other.

A task is a pure function of plain data. Its result does not depend on the worker that computes it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import signal
import subprocess
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from concurrent.futures import wait as wait_for
from contextlib import contextmanager, suppress
from functools import cache
from io import BytesIO
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from types import FunctionType
from typing import IO, Any, NamedTuple

from vrtd.checks import check_count, import_extra, require
from vrtd.errors import InvalidInputError, WorkerError

_TRAVELS = 1_000_000  # bytes; shared data of at most this size are sent with every task
_MOST_AHEAD, _BYTES_AHEAD = 4096, 1 << 28  # tasks that are submitted before their results are taken
_FIRST_AHEAD = 4
_MOST_KEPT = 4  # shared data that a worker keeps
_RETRIES = 10  # of a task on Ray whose worker was lost
# Each is set to 1, so that results are the same on any machine.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


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
    """
    content = _pack(shared)
    key, travels = hashlib.sha256(content).hexdigest(), len(content) <= _TRAVELS
    most = max(64, min(_MOST_AHEAD, _BYTES_AHEAD // len(content))) if travels else _MOST_AHEAD
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
    except BrokenExecutor:
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


@cache
def _linear_algebra() -> Any:
    import scipy.linalg  # noqa: F401 - its library must be loaded before it can be limited
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class ProcessExecutor(Executor):
    """Processes of this machine with one thread each, which import nothing from the caller's script.

    Unlike those of ``concurrent.futures.ProcessPoolExecutor``, they do not run the main module again, so scripts need
    no ``if __name__ == "__main__"``. The processes ignore Ctrl-C, which the caller receives.

    Parameters
    ----------
    n_processes : int
        Number of processes.
    """

    def __init__(self, n_processes: int) -> None:
        check_count("n_processes", n_processes)
        self._calls: SimpleQueue[tuple[Future[Any], bytes] | None] = SimpleQueue()
        self._broken: BrokenExecutor | None = None
        self._is_open = True
        self._processes = [_start_process() for _ in range(n_processes)]
        self._threads = [Thread(target=self._serve, args=(each,), daemon=True) for each in self._processes]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule the call ``fn(*args, **kwargs)`` and return its future."""
        if self._broken is not None:
            raise self._broken
        if not self._is_open:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self._calls.put((future, pickle.dumps((fn, args, kwargs))))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes after the calls that were submitted, or at once if these are cancelled."""
        self._is_open = False
        if cancel_futures:
            with suppress(Empty):
                while (each := self._calls.get_nowait()) is not None:
                    each[0].cancel()
            for process in self._processes:
                process.terminate()
        for _ in self._threads:
            self._calls.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.shutdown(cancel_futures=error is not None)

    def _serve(self, process: subprocess.Popen[bytes]) -> None:
        """Send calls to one process and receive their results, until there are no more calls."""
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError), process, process.stdin as calls, process.stdout as results:
            while (each := self._calls.get()) is not None:
                future, call = each
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    if self._broken is not None:
                        raise self._broken
                    is_error, value = pickle.loads(self._ask(process, call, calls, results))  # noqa: S301 - our own process
                except Exception as error:  # also one that was pickled but cannot be restored
                    is_error, value = True, error
                future.set_exception(value) if is_error else future.set_result(value)

    def _ask(self, process: subprocess.Popen[bytes], call: bytes, calls: IO[bytes], results: IO[bytes]) -> bytes:
        """Send a call to one process and return its pickled answer."""
        try:
            _write(call, calls)
            return _read(results)
        except (OSError, EOFError):
            self._broken = BrokenExecutor(f"process {process.pid} ended with exit code {process.wait()}")
            raise self._broken from None


@contextmanager
def ignoring_interrupts() -> Iterator[None]:
    """Start processes inside without Ctrl-C, which a terminal sends to all processes; the caller terminates them."""
    if sys.platform == "win32":  # has no signal masks
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start_process() -> subprocess.Popen[bytes]:
    import vrtd

    # Import this package and its libraries, and nothing from the current folder (-P).
    path = str(Path(vrtd.__file__).parents[1]), os.environ.get("PYTHONPATH")
    with ignoring_interrupts():
        return subprocess.Popen(
            [sys.executable, "-P", "-c", "from vrtd.executors import serve_calls; serve_calls()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict.fromkeys(_ONE_THREAD, "1") | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
        )


def serve_calls() -> None:
    """Run the calls that arrive on stdin, and write their results to what was stdout, until stdin is closed."""
    with os.fdopen(os.dup(1), "wb") as results:
        os.dup2(2, 1)  # what a task prints goes to stderr
        while True:
            try:
                call = _read(sys.stdin.buffer)
            except EOFError:
                return
            _write(_answer(call), results)


def _answer(call: bytes) -> bytes:
    """Return the pickled result of a pickled call, or its error."""
    try:
        function, args, kwargs = pickle.loads(call)  # noqa: S301 - from the parent process
        return pickle.dumps((False, function(*args, **kwargs)))
    except Exception as error:
        try:
            return pickle.dumps((True, error))
        except Exception:  # an error that holds something that cannot be pickled
            return pickle.dumps((True, RuntimeError(f"{type(error).__name__}: {error}")))


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(len(content).to_bytes(8, "little") + content)
    file.flush()


def _read(file: IO[bytes]) -> bytes:
    size = file.read(8)
    content = file.read(int.from_bytes(size, "little"))
    if len(size) < 8 or len(content) < int.from_bytes(size, "little"):
        raise EOFError
    return content


def ray(n_workers: int | None = None, *, address: str | None = None) -> Executor:
    """Return an executor that runs its calls on Ray.

    If this process is connected to Ray, the executor uses that connection and leaves it open. If not, it connects to
    the cluster at ``address``, or starts Ray on this machine, and disconnects when it is shut down. A task whose worker
    is lost runs again, at most ten times.

    Parameters
    ----------
    n_workers : int, optional
        Number of processes of a Ray that is started on this machine. None means one per core.
    address : str, optional
        Address of a running cluster, such as ``"auto"`` or ``"10.0.0.1:6379"``.

    Returns
    -------
    concurrent.futures.Executor
        The executor, which is also a context manager.

    Raises
    ------
    MissingExtraError
        If Ray is not installed.

    Examples
    --------
    >>> import vrtd
    >>> with vrtd.executors.ray(2) as executor:  # doctest: +SKIP
    ...     result = vrtd.simulate(vrtd.problems.random_mdp(), vrtd.TD(0.1), executor=executor)
    """
    if n_workers is not None:
        check_count("n_workers", n_workers)
    both = f"n_workers={n_workers} has no effect together with address={address!r}."
    require(n_workers is None or address is None, both, "Drop one of them.")
    return _RayExecutor(import_extra("ray", "ray"), n_workers, address)


def _apply(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function; Ray takes this one, but no built-in functions."""
    return function(*args, **kwargs)


class _RayExecutor(Executor):
    def __init__(self, library: Any, n_workers: int | None, address: str | None) -> None:
        self._ray, self._pending = library, set[Future[Any]]()
        self._remote = library.remote(num_cpus=1, max_retries=_RETRIES)(_apply)
        self._is_owner = not library.is_initialized()
        if not self._is_owner:
            return
        quiet = {"log_to_driver": False, "logging_level": "error"}
        if address is not None:
            library.init(address=address, **quiet)
            return
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        library.init(num_cpus=n_workers, include_dashboard=False, _node_ip_address="127.0.0.1", **quiet)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Schedule the call ``fn(*args, **kwargs)`` and return its future."""
        reference, future = self._remote.remote(fn, *args, **kwargs), Future[Any]()
        self._pending.add(future)

        def pass_on(done: Future[Any]) -> None:
            if future.set_running_or_notify_cancel():
                error = done.exception()
                if error is None:
                    future.set_result(done.result())
                else:  # that of the function, or that of Ray
                    future.set_exception(getattr(error, "cause", None) or error)

        def end(done: Future[Any]) -> None:
            self._pending.discard(done)
            if done.cancelled():
                self._ray.cancel(reference)

        future.add_done_callback(end)
        reference.future().add_done_callback(pass_on)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Disconnect from Ray if this executor has connected to it, after or without the calls that were submitted."""
        for future in list(self._pending) if cancel_futures else ():
            future.cancel()
        if wait:
            wait_for(list(self._pending))
        if self._is_owner:
            self._ray.shutdown()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.shutdown(cancel_futures=error is not None)
