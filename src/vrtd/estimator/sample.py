"""The first rows of a log, which a fit keeps: settings, intervals and diagnostics rest on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import DataError, InvalidInputError, NotFittedError
from vrtd.estimator.rows import append
from vrtd.estimator.state import FitState
from vrtd.logs import Chunk
from vrtd.problems import Transitions

# Intervals need more rows than settings do: rare rewards must have come often enough.
_MOST_ROWS, _MOST_BYTES = 50_000, 1 << 25


def keep_until(state: FitState, last: int, rows: Transitions, chunk: Chunk, repeats: bool) -> FitState:
    """Keep the rows before `last` that are not kept yet; pilot rows are."""
    if repeats or (state.n_sampled == state.capacity and state.room is not None):
        return state
    first = max(0, state.n_sampled - state.n_rows)
    return state if first >= last else keep_rows(state, rows.part(first, last), chunk.part(first, last))


def keep_rows(state: FitState, rows: Transitions, chunk: Chunk) -> FitState:
    """Keep the first rows of the log, and their observations, as far as there is room."""
    if state.observations is not None:
        check_alike(chunk.observations, state.observations)
    row_bytes = max(16 * rows.n_features, 2 * chunk.observations[:1].nbytes)
    size = max(1, min(_MOST_ROWS, _MOST_BYTES // row_bytes))
    first, last = state.n_sampled, min(state.n_sampled + len(rows), size)
    seen, seen_next = (
        _longer(values, first, chunk.observations, size) for values in (state.observations, state.next_observations)
    )
    seen[first:last] = chunk.observations[: last - first]
    seen_next[first:last] = chunk.successors[: last - first]
    room = append(state.room, first, rows.part(0, last - first), size)
    return state._replace(room=room, observations=seen, next_observations=seen_next, n_sampled=last, capacity=size)


def check_alike(observations: NDArray[Any], before: NDArray[Any]) -> None:
    """Raise unless the observations have the type and the shape of those before."""
    if observations.dtype != before.dtype:
        raise DataError(f"all parts of a log must be of one type, {before.dtype}", observations.dtype, "convert them")
    if observations.shape[1:] != before.shape[1:]:
        raise DataError(
            f"observations must have one shape, {before.shape[1:]} per row",
            observations.shape[1:],
            "keep observations of different shapes apart",
        )


def _longer(values: NDArray[Any] | None, n: int, like: NDArray[Any], size: int) -> NDArray[Any]:
    """Return room for `size` observations that begins with the first n of `values`."""
    if values is not None and len(values) == size:
        return values
    room = np.empty((size, *like.shape[1:]), like.dtype)
    if values is not None:
        room[:n] = values[:n]
    return room


def sample_of(state: FitState, n_rows: int | None = None) -> Transitions:
    """Return the first rows of the log, as many as are kept, or `n_rows` of them, in float64."""
    if state.room is None:
        raise NotFittedError("an evaluator must have seen rows", "none", "call fit or partial_fit")
    n = state.n_sampled if n_rows is None else min(n_rows, state.n_sampled)
    rows = state.room.part(0, n)
    phi, phi_next = (np.asarray(table, dtype=np.float64) for table in (rows.phi, rows.phi_next))
    weight = rows.weight if rows.is_weighted else None
    sample = Transitions.wrap(phi, rows.reward, phi_next, rows.discount, weight, rows.ends)
    if sample.rank == 0:
        raise InvalidInputError(
            "some feature must not be 0 on every row", f"only zeros in the first {n:,} rows", "use other features"
        )
    return sample
