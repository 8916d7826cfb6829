"""Ray as an executor."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Executor, Future
from concurrent.futures import wait as wait_for
from typing import Any

from vrtd.checks import check_count, import_extra, require

_RETRIES = 10  # of a task whose worker was lost


def ray(n_workers: int | None = None, *, address: str | None = None) -> Executor:
    """Return an executor that runs its calls on Ray.

    If this process is connected to Ray, the executor uses that connection and leaves it open. If not, it connects to
    the cluster at ``address``, or starts Ray on this machine, and disconnects when it is shut down. A task whose worker
    is lost runs again, at most ten times.

    A Ray that is started here can only be reached from this machine, unless the library was imported before; this
    process cannot connect to a cluster of other machines afterwards. Any other Ray listens on all network addresses, so
    use it in networks that you trust.

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
    if address is None:  # must be set before the import, and Ray then listens on 127.0.0.1
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
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
        library.init(num_cpus=n_workers, include_dashboard=False, **quiet)

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
