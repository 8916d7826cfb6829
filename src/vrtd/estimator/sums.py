"""The function `accumulate`, which computes the sums of the closed form over a part of a log, and these sums."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, Unpack

from vrtd.arrays import Floats
from vrtd.checks import check_count
from vrtd.errors import DataError, InvalidInputError, ModelFileError
from vrtd.estimator.episodes import Head
from vrtd.estimator.evaluator import Evaluator
from vrtd.estimator.least_squares import MatrixSums, flush
from vrtd.estimator.model_file import (
    check_parts,
    decode,
    decode_arguments,
    encode,
    encode_arguments,
    join_tree,
    split_tree,
)
from vrtd.estimator.partitions import (
    PairwiseSum,
    PartFit,
    add_fits,
    close,
    extend,
    finish,
    first_state,
    is_divisible,
    later_state,
)
from vrtd.estimator.state import FitState, Setup
from vrtd.features import ObservationSpace, TargetFeatures, complete
from vrtd.features.auto import guess_space
from vrtd.files import pack_arrays, read_arrays
from vrtd.logs import Chunk
from vrtd.logs.columns import EpisodeEnd, Missing
from vrtd.logs.encoding import Encoder
from vrtd.logs.log import checked_chunks
from vrtd.logs.partition import ChunkPartition, Counts, Pairing, Partition, PartitionEdges
from vrtd.logs.parts import PartsLog
from vrtd.logs.reading import ReadOptions, as_log
from vrtd.tables import library

_FORMAT = "vrtd-sums-1"
_MOST_SAMPLED = 1000  # rows that the sums of a part keep, for diagnostics


class _Rules(NamedTuple):
    """Settings of a `Pairing` as plain data."""

    missing: Missing
    episode_end: EpisodeEnd | None


class Sums:
    """Sums over consecutive rows of a log, from which the closed form of all rows follows.

    `accumulate` returns them. ``one + other`` are the sums of the rows of both, where the rows of `other` follow those
    of `one`. Transitions from the last rows of `one` to the first rows of `other` are included.

    Parameters
    ----------
    setup : Setup
        Arguments of the evaluator.
    pairing : Pairing or None
        How the rows at the ends become transitions. None if all transitions are complete.
    fit : PartFit
        The sums, and the rows at the ends.

    Examples
    --------
    >>> import pyarrow, vrtd
    >>> table = pyarrow.table({"state": [0, 1, 0, 1, 1, 0], "reward": [0.0, 1.0, 0.0, 1.0, 2.0, 0.0]})
    >>> features = vrtd.features.Tabular(2)
    >>> parts = [vrtd.accumulate(table.slice(k, 3), features, 0.5) for k in (0, 3)]
    >>> sums = parts[0] + parts[1]
    >>> sums.to_evaluator().n_rows_
    5
    """

    def __init__(self, setup: Setup, pairing: Pairing | None, fit: PartFit) -> None:
        self._setup, self._pairing, self._fit = setup, pairing, fit

    @property
    def n_rows(self) -> int:
        """Number of transitions, without those at the ends of the part that need the rows around them."""
        return self._fit.state.n_rows

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return len(self._sums.squares)

    @property
    def A(self) -> Floats:
        """Sum of the matrices A_x over the transitions, of shape (d, d)."""
        return self._sums.total[:, :-1].copy()

    @property
    def b(self) -> Floats:
        """Sum of the vectors b_x over the transitions, of shape (d,)."""
        return self._sums.total[:, -1].copy()

    @property
    def _sums(self) -> MatrixSums:
        assert self._fit.state.sums is not None
        return flush(self._fit.state.sums)

    def __add__(self, other: Sums) -> Sums:
        if not isinstance(other, Sums):
            return NotImplemented
        mine, its = encode_arguments(self._setup), encode_arguments(other._setup)
        if repr(mine) != repr(its) or self._rules != other._rules:
            raise InvalidInputError(
                "Sums with different features, discounts or settings of the log cannot be added.",
                "Pass the same arguments to accumulate for each part.",
            )
        return Sums(self._setup, self._pairing, add_fits(self._setup, self._pairing, self._fit, other._fit))

    @property
    def _rules(self) -> _Rules | None:
        pairing = self._pairing
        return None if pairing is None else _Rules(pairing.encoder.missing, pairing.episode_end)

    def to_evaluator(self) -> Evaluator:
        """Return the evaluator that a fit of these rows gives.

        Returns
        -------
        Evaluator
            Evaluator with the closed form. The first and the last row are those of the log.
        """
        start = PartFit(first_state(self._setup, self._fit.state))
        whole = finish(self._setup, self._pairing, add_fits(self._setup, self._pairing, start, self._fit))
        if not whole.state.n_rows:
            raise DataError("The sums have no transition.", "Add the sums of other parts first.")
        evaluator = Evaluator("closed_form", features=self._fit.state.features, discount=self._setup.discount)
        evaluator._setup, evaluator._state = self._setup, whole.state
        return evaluator

    def to_arrow(self) -> Any:
        """Return the sums as a table with one row, for another process or a file.

        Returns
        -------
        pyarrow.RecordBatch
            Columns ``n_rows`` (int64) and ``sums`` (binary). `from_arrow` reads them.
        """
        arrow, fit = library(), self._fit
        tree = encode_arguments(self._setup) | {
            "state": encode(fit.state.trim()),
            "edges": encode(fit.edges),
            "counts": encode(fit.counts),
            "head": encode(fit.head),
            "rules": encode(self._rules),
        }
        if tree["features"] is None:
            raise InvalidInputError(
                "Features that are functions or transformers cannot be written.",
                "Use features of vrtd.features, or add the sums in one process.",
            )
        content = pack_arrays(*split_tree(_FORMAT, tree))
        columns = {"n_rows": arrow.array([self.n_rows]), "sums": arrow.array([content], arrow.large_binary())}
        return arrow.RecordBatch.from_pydict(columns)

    @staticmethod
    def from_arrow(data: Any) -> Sums:
        """Read the sums that `to_arrow` wrote, and add them in their order.

        Parameters
        ----------
        data : pyarrow.RecordBatch or pyarrow.Table
            One row for each part, in the order of the log.

        Returns
        -------
        Sums
            Sums over all parts.

        Raises
        ------
        ModelFileError
            If a row is damaged, or was written by another version of vrtd.
        """
        sums = PairwiseSum[Sums](Sums.__add__)
        for i, content in enumerate(data.column("sums").to_pylist()):
            sums.put(i, _unpack(content))
        if sums.total is None:
            raise DataError("The data have no row with sums.", "Pass at least one row.")
        return sums.total

    def __repr__(self) -> str:
        return f"Sums({self.n_rows:,} transitions, {self.n_features} features, discount {self._setup.discount:g})"


def accumulate(
    part: Any,
    features: Any,
    discount: float,
    *,
    space: ObservationSpace | None = None,
    n_parts: int = 1,
    **columns: Unpack[ReadOptions],
) -> Sums:
    """Compute the sums of the closed form over a part of a log.

    Parts can be accumulated anywhere, and their sums be added in the order of the log. The result is the fit of the
    whole log, up to rounding.

    Parameters
    ----------
    part : Log, Chunk, table, or path
        Consecutive rows of the log, as for `Evaluator.fit`.
    features : Features, str, array_like or callable
        Features of the states. Features that take ranges or other constants from data must have taken them already,
        such as ``evaluator.features`` after a fit to the first rows.
    discount : float
        Discount factor gamma in [0, 1].
    space : ObservationSpace or None, default=None
        ``Log.space`` of the first rows, so that categories and missing values are encoded alike in all parts.
    n_parts : int, default=1
        Number of parts of the log. The sums of one of many parts have fewer blocks of rows for intervals, and so are
        smaller.
    **columns
        Options of `vrtd.logs.read` for a table or files, see `Evaluator.fit`.

    Returns
    -------
    Sums
        The sums, which can be added and written.

    Raises
    ------
    InvalidInputError
        If features are not bound, or are too many for the closed form.
    DataError
        If the rows cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> import vrtd
    >>> log = vrtd.logs.from_arrays(np.eye(3), np.ones(3), np.roll(np.eye(3), 1, axis=0))
    >>> vrtd.accumulate(log, "identity", 0.9)
    Sums(2 transitions, 3 features, discount 0.9)
    """
    check_count("n_parts", n_parts)
    if isinstance(features, TargetFeatures):
        raise InvalidInputError(
            "accumulate evaluates the policy of the log, but the features are those of a target policy.",
            "Use vrtd.Evaluator(target=...).fit(log, executor=...).",
        )
    given = Evaluator("closed_form", features=features, discount=discount)._given
    log = as_log(part, columns, space)
    partition: Partition | ChunkPartition
    if isinstance(log, Chunk):
        log.check()
        partition, space = ChunkPartition([log]), guess_space(log.observations)
    else:
        whole, space = log.whole() if isinstance(log, PartsLog) else None, log.space
        partition = whole or ChunkPartition(checked_chunks(log, False))
    chunks = (chunk for chunk in partition.chunks() if chunk.n_rows)
    first = next(chunks, None)
    setup = replace(given, features=complete(given.features, space)) if first is None else given.fit_to(space, first)
    if setup.features.needs_data:
        raise InvalidInputError(
            "Features that take constants from data must have taken them from the first rows of the whole log.",
            "Fit an evaluator to the first rows, and pass its attribute features.",
        )
    waiting = (*partition.edges.lead, partition.edges.first) if first is None else (first,)
    seen = next((rows for rows in waiting if rows is not None), None)
    if seen is None:
        raise DataError("The part has no rows.", "Pass a part with at least one row.")
    features = setup.features.bind(seen.observations)
    bound = FitState(space=space, features=features, is_weighted=seen.weight is not None)
    state = later_state(setup, bound)
    if not is_divisible(state):
        raise InvalidInputError(
            f"The sums of blocks of rows do not fit into memory for {features.n_features:,} features.",
            "Use fewer features, or vrtd.Evaluator(cost='linear').fit(log, executor=...).",
        )
    fit = extend(setup, PartFit(state), chunks if first is None else chain([first], chunks))
    fit = fit._replace(edges=partition.edges.without_objects(), counts=partition.counts)
    fit = close(fit, n_parts)
    pairing = partition.pairing if isinstance(partition, Partition) else None
    return Sums(setup, pairing, fit._replace(state=_shorten(fit.state)))


def _shorten(state: FitState) -> FitState:
    """Return the state with few rows in its sample, so that it is small."""
    n = min(state.n_sampled, _MOST_SAMPLED)
    return state._replace(n_sampled=n, capacity=n).trim()


def _check(state: FitState, edges: PartitionEdges, head: Head | None) -> None:
    """Raise ValueError unless the parts of sums that were read are consistent."""
    check_parts(state)
    if state.sums is None or state.episodes is None or not is_divisible(state):
        raise ValueError("no sums")
    for block in (*edges.lead, edges.first, edges.last):
        if block is not None:
            block.check()
    if head is not None and head.ahead is not None and head.ahead.shape != state.sums.squares.shape:
        raise ValueError("wrong number of features")


def _unpack(content: bytes) -> Sums:
    """Read the sums of one part; a damaged row may cause any exception."""
    try:
        tree = join_tree(*read_arrays(content, _FORMAT))
        evaluator = Evaluator(**decode_arguments(tree, "The sums", None, None))
        state: FitState = decode(FitState, tree["state"])
        edges, counts = decode(PartitionEdges, tree["edges"]), decode(Counts, tree["counts"])
        head, rules = decode(Head | None, tree["head"]), decode(_Rules | None, tree["rules"])
    except InvalidInputError:
        raise
    except Exception as error:
        raise ModelFileError(
            f"The sums are damaged, or were written by another version of vrtd ({type(error).__name__}). Accumulate "
            "this part again."
        ) from error
    pairing = None if rules is None else Pairing(Encoder(state.space, rules.missing), rules.episode_end)
    return Sums(evaluator._given, pairing, PartFit(state, edges, counts, head))
