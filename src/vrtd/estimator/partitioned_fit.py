"""Fits of large logs in partitions, in this process or on an executor, with the same bits."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from vrtd.algorithms import RichardsonTD
from vrtd.errors import InvalidInputError, VrtdError, WorkerError
from vrtd.estimator.fit import decide, receive, start_linearly
from vrtd.estimator.partitions import (
    PairwiseSum,
    PartFit,
    add_fits,
    close,
    extend,
    finish,
    first_state,
    has_runs,
    is_divisible,
    later_state,
    settings_of,
    without_sample,
)
from vrtd.estimator.state import FitState, Setup
from vrtd.executors import one_thread_for_linear_algebra, run_tasks
from vrtd.features import MOST_FEATURES, ObservationSpace
from vrtd.logs import Chunk, Log
from vrtd.logs.log import checked_chunks
from vrtd.logs.partition import PARTITION_ROWS, ChunkPartition, Pairing, Partition, cut
from vrtd.logs.parts import PartsLog
from vrtd.sparse import row_bytes

_PARTITION_BYTES = 1 << 27  # of the observations of a partition that is not read from files or tables
# Partitions in memory that are sent before their results are taken: bytes of their observations, and least number.
_BYTES_AHEAD, _LEAST_AHEAD = 1 << 29, 4
Tell = Callable[[int, int | None], None]  # takes the rows done, and the total if it is known


class Partitioned(NamedTuple):
    """Log in partitions, with features that are bound to its first rows."""

    log: Log
    setup: Setup
    bound: FitState
    partitions: Iterable[Partition | ChunkPartition]
    n_partitions: int  # 1 if it is unknown
    pairing: Pairing | None  # None if the partitions consist of complete transitions
    ahead: int | None  # partitions that are sent before their results are taken; None if they are not in memory


def open_partitions(
    given: Setup, log: Log, executor: Executor | None
) -> tuple[Partitioned | None, Iterable[Chunk] | None]:
    """Divide a log into partitions, if it is large and its fit consists of sums that can be added.

    Otherwise the second value has the chunks of the log, of which some may have been read already, or None if none has.
    With O(d) work per row only a fit on an executor is divided, because it is another estimate.
    """
    files = log.divide() if isinstance(log, PartsLog) else []
    if len(files) > 1 and isinstance(log, PartsLog):
        with closing(_generate(checked_chunks(log, False))) as chunks:
            setup, bound, first = _bind(given, log.space, chunks, executor)
        if bound is None:
            return None, None
        n_rows = max(PARTITION_ROWS, (log.n_rows or 0) // len(files))
        ahead = _count_ahead(first[0], n_rows) if files[0].is_in_memory else None
        return Partitioned(log, setup, bound, files, len(files), log.pairing, ahead), None
    if log.n_rows is not None and log.n_rows <= PARTITION_ROWS:
        return None, None
    others = _generate(checked_chunks(log, False))
    setup, bound, first = _bind(given, log.space, others, executor)
    if bound is None:
        return None, chain(first, others)
    first[-1] = first[-1].copy()  # `cut` reads the next chunk before it returns the last rows of one
    all_chunks = chain(first, others)
    n_bytes = max(1, int(row_bytes(first[0].observations)))
    n_rows = min(PARTITION_ROWS, max(1, _PARTITION_BYTES // n_bytes))
    n_partitions = 1 if log.n_rows is None else -(-log.n_rows // n_rows)
    ahead = _count_ahead(first[0], n_rows)
    return Partitioned(log, setup, bound, cut(all_chunks, n_rows), n_partitions, None, ahead), None


def _count_ahead(first: Chunk, n_rows: int) -> int:
    """Return how many partitions of so many rows are sent before their results are taken."""
    return max(_LEAST_AHEAD, _BYTES_AHEAD // max(1, n_rows * int(row_bytes(first.observations))))


def _generate(chunks: Iterable[Chunk]) -> Generator[Chunk, None, None]:
    yield from chunks


def _bind(
    given: Setup, space: ObservationSpace | None, chunks: Iterator[Chunk], executor: Executor | None
) -> tuple[Setup, FitState | None, list[Chunk]]:
    """Bind the features to the first chunks; the state is None if the fit is not divided."""
    setup, state = given, FitState(space=space)
    taken: list[Chunk] = []
    for chunk in chunks:
        taken.append(chunk)
        setup = setup if state.n_rows else given.fit_to(space, chunk)
        for each in receive(setup, state, chunk):
            state = each
            if state.features is not None:
                break
        if state.features is not None:
            break
        taken[-1] = chunk.copy()  # the log may use the memory of a chunk for the next one
    else:
        state = decide(setup, state, is_all=True)
    if state.features is None or is_divisible(state) or executor is None:
        return setup, state if state.features is not None and is_divisible(state) else None, taken
    is_auto, is_wide = given.settings.is_auto, state.features.n_features > MOST_FEATURES
    if setup.resolve(state.features).keeps_sparse(state.features) and (is_wide or not is_auto):
        remedy = "Drop executor." if is_wide else "Drop executor, or pass algorithm='richardson_td'."
        raise InvalidInputError("Sparse rows are not learned in partitions.", remedy)
    if not (has_runs(state) or state.sparse):
        raise InvalidInputError(
            f"The closed form of {state.features.n_features:,} features is not computed in partitions.",
            "Drop executor, or pass cost='linear'.",
        )
    if is_auto:  # in partitions it has smaller errors than VRTD, whose batches begin anew in each
        setup = replace(setup, settings=replace(setup.settings, algorithm=RichardsonTD.name, cost="linear"))
    resolved = setup.resolve(state.features)
    start = start_linearly(resolved, first_state(resolved, state), list(_first_rows(taken, setup.settings.pilot_rows)))
    return setup, state._replace(linear=start.trim().linear, remarks=start.remarks), taken


def _first_rows(chunks: Iterable[Chunk], n_rows: int) -> Iterator[Chunk]:
    for chunk in chunks:
        if n_rows > 0:
            yield chunk.part(0, n_rows)
        n_rows -= chunk.n_rows


@one_thread_for_linear_algebra()  # so that bits depend neither on the executor nor on the number of cores
def fit_partitions(
    log: Partitioned, executor: Executor | None, report: Tell | None, keep: Callable[[FitState], None]
) -> FitState:
    """Return the state after all rows; `keep` receives the state after the first rows if an error stops the fit."""
    setup = log.setup.resolve(log.bound.features)
    sums, n_done = PairwiseSum[PartFit](partial(add_fits, setup, log.pairing)), 0
    fits = _fit_here(log, report) if executor is None else _fit_on(executor, log)
    try:
        for i, fit in fits:
            sums.put(i, _unpack(log.bound, fit))
            n_done += fit.state.n_rows
            if report is not None and executor is not None:
                report(n_done, log.log.n_rows)
        whole = sums.total
        assert whole is not None
        whole = finish(setup, log.pairing, whole)
    except BaseException:
        if (so_far := sums.total) is not None:
            keep(so_far.state)
        raise
    if isinstance(log.log, PartsLog) and log.pairing is not None:
        log.log.complete(whole.counts)
    # If almost all rows of the first partition were dropped, the sample is that of the pilot rows.
    return whole.state if whole.state.n_sampled >= log.bound.n_sampled else whole.state.with_sample_of(log.bound)


def _fit_here(log: Partitioned, report: Tell | None) -> Iterator[tuple[int, PartFit]]:
    """Yield the number and the fit of each partition; if an error stops a fit, yield what it has before the error."""
    shared, total, n_done = _shared(log), log.log.n_rows, 0
    for i, partition in enumerate(log.partitions):
        latest: list[PartFit] = []

        def tell(fit: PartFit, latest: list[PartFit] = latest, n_before: int = n_done) -> None:
            latest[:] = [fit]
            if report is not None:
                report(n_before + fit.state.n_rows, total)

        try:
            fit = fit_partition(shared, i, partition, tell)
        except BaseException:
            for fit in latest:
                yield i, _pack(fit, partition, log.n_partitions)
            raise
        n_done += fit.state.n_rows
        yield i, fit


def _fit_on(executor: Executor, log: Partitioned) -> Iterator[tuple[int, PartFit]]:
    """Yield the number and the fit of each partition, in the order in which they are finished."""
    tasks: Iterable[tuple[int, Partition | ChunkPartition]]
    tasks = ((i, each.load()) for i, each in enumerate(log.partitions))
    if log.ahead is None:
        tasks = list(tasks)  # all are sent at once, so that all workers begin
    try:
        yield from run_tasks(executor, fit_partition, _shared(log), tasks, _describe, most_ahead=log.ahead)
    except WorkerError as error:
        if isinstance(error.__cause__, VrtdError):  # from the log, so it says all that the user needs
            raise error.__cause__ from None
        raise


def _shared(log: Partitioned) -> tuple[Setup, FitState, int]:
    return log.setup, settings_of(log.bound), log.n_partitions


def _describe(i: int) -> str:
    return f"Partition {i} of the log"


def fit_partition(
    shared: tuple[Setup, FitState, int],
    i: int,
    partition: Partition | ChunkPartition,
    tell: Callable[[PartFit], None] | None = None,
) -> PartFit:
    """Return the fit of partition i, without what all partitions share."""
    setup, bound, n_partitions = shared
    setup = setup.resolve(bound.features)
    first = PartFit(without_sample(later_state(setup, bound)) if i else first_state(setup, bound))
    fit = extend(setup, first, partition.chunks() if i else partition.chunks_from_start(), tell)
    return _pack(fit, partition, n_partitions)


def _pack(fit: PartFit, partition: Partition | ChunkPartition, n_partitions: int) -> PartFit:
    fit = close(fit._replace(edges=partition.edges, counts=partition.counts), n_partitions)
    return fit._replace(state=fit.state.trim()._replace(features=None, space=None))


def _unpack(bound: FitState, fit: PartFit) -> PartFit:
    return fit._replace(state=fit.state._replace(features=bound.features, space=bound.space))
