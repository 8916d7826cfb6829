"""Options that choose where a command computes: processes of this machine, Dask or Ray, or a GPU."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager

from vrtd.cli.parser import one_of
from vrtd.errors import InvalidInputError

_EXECUTORS = ("processes", "dask", "ray")
_DEVICES = ("cpu", "cuda", "auto")
_ALLOWED_FAILURES = 10  # workers of Dask that end with a task before the task counts as the cause


def add_executor_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Add the options. They belong to --threads, which is then the number of workers that are started."""
    text = (
        "Compute on worker processes with one thread each: processes of this machine, or those of Dask or Ray, which "
        "are started on this machine unless --address is given. --threads is the number of workers that are started. "
        "(default: threads or processes of this machine, as the command needs)"
    )
    parser.add_argument("--executor", **one_of(_EXECUTORS), default=None, help=text)
    text = "Address of a running cluster: that of the Dask scheduler, such as tcp://10.0.0.1:8786, or of Ray."
    parser.add_argument("--address", default=None, metavar="ADDRESS", help=text)


def add_device_option(parser: argparse.ArgumentParser | argparse._ArgumentGroup, default: str) -> None:
    """Add the option --device, whose text is that of the library."""
    parser.add_argument("--device", **one_of(_DEVICES), default=default)


@contextmanager
def opened_executor(arguments: argparse.Namespace) -> Iterator[Executor | None]:
    """Return a context whose value is the chosen executor, or None without --executor. It is closed at the end."""
    kind, address, threads = arguments.executor, arguments.address, vars(arguments).get("threads")
    if address is not None and kind not in ("dask", "ray"):
        with_kind = "no --executor" if kind is None else f"--executor {kind}"
        raise InvalidInputError(
            f"--address belongs to --executor dask or ray, but got {with_kind}.", "Drop it, or change --executor."
        )
    if address is not None and threads is not None:
        raise InvalidInputError(
            f"--threads {threads} has no effect on the cluster at {address}.", "Drop --threads or --address."
        )
    if kind is None:
        yield None
        return

    from vrtd import executors
    from vrtd.checks import check_count
    from vrtd.engine.blocks import available_threads

    n_workers = available_threads() if threads is None else check_count("threads", threads)
    with ExitStack() as stack:
        if kind == "processes":
            yield stack.enter_context(executors.ProcessExecutor(n_workers))
        elif kind == "ray":
            yield stack.enter_context(executors.ray(None if address else n_workers, address=address))
        else:
            yield stack.enter_context(_dask_executor(n_workers, address))


@contextmanager
def _dask_executor(n_workers: int, address: str | None) -> Iterator[Executor]:
    """Return a context with an executor on the cluster at ``address``, or on one that is started here."""
    from multiprocessing import resource_tracker

    import dask
    from distributed import Client, LocalCluster

    from vrtd.executors.processes import ignoring_interrupts

    with ExitStack() as stack:
        if address is None:
            resource_tracker.ensure_running()  # its start would allow interrupts again
            stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": _ALLOWED_FAILURES}))
            with ignoring_interrupts():
                local = LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",  # with None, it is port 8787, which may be in use
                    silence_logs=logging.CRITICAL,
                )
            address = stack.enter_context(local).scheduler_address
        executor = stack.enter_context(Client(address)).get_executor(pure=False)
        try:
            yield executor
        finally:
            executor.shutdown(wait=False)
