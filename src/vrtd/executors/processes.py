"""Processes of this machine as an executor."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, Any

from vrtd.checks import check_count

# Each is set to 1, so that results are the same on any machine.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class ProcessExecutor(Executor):
    """Processes of this machine with one thread each, which import nothing from the caller's script.

    Unlike those of ``concurrent.futures.ProcessPoolExecutor``, they do not run the main module again, so scripts need
    no ``if __name__ == "__main__"``. The processes ignore Ctrl-C and SIGHUP, which the caller receives.

    Parameters
    ----------
    n_processes : int
        Number of processes.

    Examples
    --------
    >>> with ProcessExecutor(1) as executor:
    ...     executor.submit(divmod, 7, 2).result()
    (3, 1)
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
        """Schedule the call ``fn(*args, **kwargs)``.

        Parameters
        ----------
        fn : callable
            Function of an importable module.
        *args, **kwargs : object
            Its arguments, which are pickled.

        Returns
        -------
        concurrent.futures.Future
            The future of the result.
        """
        if self._broken is not None:
            raise self._broken
        if not self._is_open:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        self._calls.put((future, pickle.dumps((fn, args, kwargs))))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the processes.

        Parameters
        ----------
        wait : bool, default=True
            Whether to return only when the processes have ended.
        cancel_futures : bool, default=False
            Whether to end them at once. By default they finish the calls that were submitted.
        """
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
    """Start processes inside without SIGINT and SIGHUP, which a terminal sends to all; the caller terminates them."""
    if sys.platform == "win32":  # has no signal masks
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
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
            [sys.executable, "-P", "-c", "from vrtd.executors.processes import serve_calls; serve_calls()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict.fromkeys(_ONE_THREAD, "1") | {"PYTHONPATH": os.pathsep.join(filter(None, path))},
        )


def serve_calls() -> None:
    """Run the calls that arrive on stdin, and write their results to what was stdout, until stdin is closed."""
    with suppress(BrokenPipeError), os.fdopen(os.dup(1), "wb") as results:  # broken if the caller was killed
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
