"""Sums over a Spark DataFrame, through ``DataFrame.mapInArrow``. Only pyarrow is needed to import this module."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Unpack

from vrtd.estimator import accumulate
from vrtd.features import ObservationSpace
from vrtd.logs.reading import ReadOptions, check_options
from vrtd.tables import library

#: Schema of the rows that `partition_sums` returns, as ``DataFrame.mapInArrow`` takes it.
SCHEMA = "n_rows long, sums binary"


def partition_sums(
    features: Any,
    discount: float,
    *,
    space: ObservationSpace | None = None,
    n_parts: int = 1,
    **columns: Unpack[ReadOptions],
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for ``DataFrame.mapInArrow`` that computes the sums of each partition.

    The rows of an episode must be in one partition, in order: ``data.repartition("session").sortWithinPartitions(
    "session", "time")``. The result has one row per partition that is not empty. Read all of them with
    ``vrtd.Sums.from_arrow(result.toArrow())``.

    Parameters
    ----------
    features : Features, str, array_like or callable
        Bound features of the states, see `vrtd.accumulate`.
    discount : float
        Discount factor gamma in [0, 1].
    space : ObservationSpace or None, default=None
        ``Log.space`` of the first rows, see `vrtd.accumulate`.
    n_parts : int, default=1
        Number of partitions of the DataFrame, see `vrtd.accumulate`.
    **columns
        Options of `vrtd.logs.read`: names of columns, ``episode_end`` and ``missing``.

    Returns
    -------
    callable
        Function from an iterator of record batches to an iterator of record batches, with the schema ``SCHEMA``.

    Examples
    --------
    >>> import pyarrow
    >>> import vrtd
    >>> from vrtd.spark import partition_sums
    >>> data = pyarrow.table({"state": [0, 1, 0, 1], "reward": [0.0, 1.0, 0.0, 1.0]})
    >>> sums = partition_sums(vrtd.features.Tabular(2), 0.5)(iter(data.to_batches()))
    >>> vrtd.Sums.from_arrow(next(sums)).to_evaluator().n_rows_
    3
    """
    check_options(columns)
    return partial(_sum, features=features, discount=discount, space=space, n_parts=n_parts, columns=columns)


def _sum(
    batches: Iterable[Any],
    *,
    features: Any,
    discount: float,
    space: ObservationSpace | None,
    n_parts: int,
    columns: ReadOptions,
) -> Iterator[Any]:
    """Yield the sums over the rows of one partition; nothing if it is empty."""
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return
    reader = library().RecordBatchReader.from_batches(first.schema, _prepend(first, rows))
    yield accumulate(reader, features, discount, space=space, n_parts=n_parts, **columns).to_arrow()


def _prepend(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from others
