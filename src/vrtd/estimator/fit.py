"""Learning from rows: each function takes the state of a fit and returns the next one.

The evaluator assigns a state only after a whole piece of the log is learned, so that an exception, including Ctrl-C,
leaves the state before unchanged. Consecutive states share buffers, of which only the first rows belong to a state, and
arrays that are never written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms import GTD, GTD2, LSTD, TDC, Algorithm, RecursiveLSTD
from vrtd.arrays import Floats, frozen
from vrtd.errors import DataError, DivergenceError, InvalidInputError
from vrtd.estimator.auto_settings import CLOSED_FORM, check_step, check_step_linearly
from vrtd.estimator.episodes import add_rows, no_episodes, sample_episodes
from vrtd.estimator.iterative_least_squares import IterativeFit
from vrtd.estimator.learner import Learner, first_learner, learn, next_phase
from vrtd.estimator.least_squares import add, no_sums
from vrtd.estimator.linear_fit import first_linear_fit, learn_linearly
from vrtd.estimator.linear_settings import kept_rows
from vrtd.estimator.linear_state import LinearFit
from vrtd.estimator.rows import NotFiniteError, clear_final, first_not_finite, is_finite, join_rows
from vrtd.estimator.sparse_fit import SparseFit, first_sparse_fit, learn_sparsely
from vrtd.estimator.state import (
    FitState,
    Setup,
    bind_features,
    check_alike,
    initial_theta,
    keep_rows,
    keep_until,
    sample_of,
)
from vrtd.features import MOST_FEATURES, Features, Identity, TargetFeatures, table_of
from vrtd.features.features import MOST_DENSE
from vrtd.logs import Chunk, Log
from vrtd.logs.log import checked_chunks, is_any
from vrtd.problems import Transitions
from vrtd.report.numbers import describe_settings
from vrtd.sparse import is_sparse, squared_norms, to_dense

# Size of the pieces of a chunk: bytes of computed features, bytes of observations that are features already and are not
# copied, and the least number of rows.
_PIECE_BYTES, _VIEW_BYTES, _LEAST_PIECE = 1 << 23, 1 << 26, 1024
_SPARSE_PIECE = 1 << 14  # rows
# Methods that are stable on every log with a small step, because they do not follow A itself.
_ALWAYS_STABLE = (CLOSED_FORM, GTD.name, GTD2.name, TDC.name, LSTD.name, RecursiveLSTD.name)
_MOST_CHECKED = 512  # features; beyond, the eigenvalues of A are not checked
_ROUNDED = 1e-6  # a probability may exceed 1 by this rounding error
_UNSTABLE = 1e-9  # relative to the largest entry of A; smaller real parts of eigenvalues may be rounding errors
_FIELDS = {"phi": "observations", "phi_next": "next_observations", "reward": "reward", "weight": "weight"}


def receive(setup: Setup, state: FitState, chunk: Chunk, repeats: bool = False) -> Iterable[FitState]:
    """Return or yield the state after each piece of a checked chunk; `repeats` marks rows of a later pass."""
    setup, chunk = setup.resolve(state.features), _weigh(setup, state, _fill_narrow(chunk))
    if state.features is not None and 0 < len(chunk.reward) <= _LEAST_PIECE:  # small chunks come often
        return (update(setup, _with_weights(state, chunk), chunk, repeats),)
    return _receive(setup, state, chunk, repeats)


def _fill_narrow(chunk: Chunk) -> Chunk:
    """Return the chunk with dense observations if they have few columns."""
    if not is_sparse(chunk.observations) or chunk.observations.shape[1] > MOST_DENSE:
        return chunk
    dense = {name: getattr(chunk, name).toarray() for name in ("observations", "next_observations")}
    return chunk._replace(**dense)


def _receive(setup: Setup, state: FitState, chunk: Chunk, repeats: bool) -> Iterator[FitState]:
    if not chunk.n_rows:
        return
    state = _with_weights(state, chunk)
    if state.features is None and not (setup.settings.needs_pilot or setup.features.needs_data):
        bound = bind_features(setup, [chunk.part(0, _LEAST_PIECE)])
        if not setup.resolve(bound).settings.needs_pilot:
            state = begin(setup.resolve(bound), state, bound)
    at, n = 0, chunk.n_rows
    if state.features is None:
        at = setup.settings.pilot_rows - state.n_rows
        state = _wait(state, chunk.part(0, at))
        if state.n_rows == setup.settings.pilot_rows:
            state = decide(setup, state)
        yield state
    setup = setup.resolve(state.features)
    while at < n:
        assert state.features is not None
        last = min(n, at + _piece_rows(setup, state.features))
        if state.sparse is not None:
            last = min(last, at + state.sparse.rows_left)
        state = update(setup, state, chunk if last - at == n else chunk.part(at, last), repeats)
        yield state
        at = last


def decide(setup: Setup, state: FitState, is_all: bool = False) -> FitState:
    """Bind the features, choose the settings, and learn from the rows that wait.

    With `is_all` no more rows will come, so that settings are chosen for these.
    """
    chunks, n = state.waiting, state.n_rows
    if not chunks:
        return state
    state = state._replace(waiting=(), n_rows=0, n_pilot=n, n_expected=n if is_all else None)
    features = bind_features(setup, chunks)
    setup = setup.resolve(features)
    state = begin(setup, state, features)
    assert state.features is not None
    size, n_kept = _piece_rows(setup, state.features), 0
    if setup.settings.is_linear:
        pieces = list(_pieces(chunks, size))
        state = start_linearly(setup, state, pieces)
        for chunk in pieces:
            state = update(setup, state, chunk)
        return state
    if setup.settings.needs_pilot:
        for chunk in _pieces(chunks, size):
            rows = _rows(setup, state, chunk)
            state = keep_rows(state, clear_final(rows, chunk.terminated) or rows, chunk)
            if state.n_sampled < n_kept + len(rows):  # the buffer is full; the other features are computed later
                break
            n_kept = state.n_sampled
        state = _check_pilot(setup, state)
    for chunk in _pieces(chunks, size):
        first, last = state.n_rows, state.n_rows + chunk.n_rows
        known = state.buffer.part(first, last) if state.buffer is not None and last <= n_kept else None
        state = update(setup, state, chunk, False, known)
    return state


def start_linearly(setup: Setup, state: FitState, pieces: list[Chunk]) -> FitState:
    """Choose settings from the first rows, as many as a `LinearFit` keeps."""
    assert state.features is not None
    settings, n = setup.settings, kept_rows(1 if setup.settings.is_sparse else state.features.n_features)
    pilot: list[Transitions] = []
    for chunk in pieces:
        rows = _rows(setup, state, chunk.part(0, n))
        pilot.append(clear_final(rows, chunk.terminated[:n]) or rows)
        n -= len(rows)
        if not n:
            break
    first = join_rows(pilot)
    first.check_magnitude()
    if not (first.phi.data if first.is_sparse else first.phi).any():
        raise InvalidInputError(f"All features are 0 in the first {len(first):,} rows.", "Use other features.")
    if setup.target is not None and first.n_features <= _MOST_CHECKED:
        _check_stability(first.astype(np.float64), settings.algorithm)
    if first.is_sparse:
        algorithm: Any = settings.algorithm
        sparse = first_sparse_fit(algorithm, settings.given_step, first, initial_theta(setup, state), setup.seed)
        remarks = (_describe_start(sparse),) if sparse.lowers_step else check_step_linearly(sparse.algorithm, first)
        return _add_remarks(state._replace(sparse=sparse, is_checked=True), remarks)
    linear = first_linear_fit(settings.algorithm, settings.given_step, first, initial_theta(setup, state), setup.seed)
    is_chosen = linear.lowers_step
    remarks = (_describe_start(linear),) if is_chosen else check_step_linearly(linear.algorithm, first)
    return _add_remarks(state._replace(linear=linear, is_checked=True), remarks)


def _describe_start(linear: LinearFit | SparseFit) -> str:
    scaled = "" if linear.scale is None else ", with each feature divided by its root mean square"
    return f"settings chosen from the pilot rows: {describe_settings(linear.algorithm.settings)}{scaled}"


def _pieces(chunks: tuple[Chunk, ...], size: int) -> Iterator[Chunk]:
    for chunk in chunks:
        for first in range(0, chunk.n_rows, size):
            yield chunk.part(first, first + size)


def read_again(setup: Setup, state: FitState, log: Log | Chunk) -> Iterator[Transitions]:
    """Yield all rows of a log from which the state was learned, with features."""
    assert state.features is not None
    chunks = (log,) if isinstance(log, Chunk) else checked_chunks(log, False)
    for chunk in chunks:
        for piece in _pieces((_weigh(setup, state, _fill_narrow(chunk)),), _piece_rows(setup, state.features)):
            rows = _rows(setup, state, piece)
            yield clear_final(rows, piece.terminated) or rows


def _with_weights(state: FitState, chunk: Chunk) -> FitState:
    """Raise unless all rows or no rows have importance ratios."""
    is_weighted = chunk.weight is not None
    if state.is_weighted is None:
        state = state._replace(is_weighted=is_weighted)
    if state.is_weighted != is_weighted:
        raise DataError("Some parts of the log have weights, and others have none.", "Add weights of 1 to the others.")
    if is_weighted:
        chunk.check_weight(state.n_rows)
    return state


def _weigh(setup: Setup, state: FitState, chunk: Chunk) -> Chunk:
    """Return the chunk with importance ratios, if its actions have propensities."""
    if setup.target is None or chunk.propensity is None or chunk.action is None:
        return chunk
    if chunk.weight is not None:
        raise DataError(
            "The log has both propensities and weights, but weights are computed from propensities.",
            "Drop the weights.",
        )
    if chunk.action.dtype.kind == "f":
        raise DataError(
            f"propensity needs actions that are integers or words, but they are {chunk.action.dtype}.",
            "Drop propensity, or number the actions.",
        )
    is_bad = ~((chunk.propensity > 0.0) & (chunk.propensity <= 1.0 + _ROUNDED))
    if is_bad.any():
        row = int(np.argmax(is_bad))
        place = chunk.place("propensity", row, state.n_rows)
        raise DataError(
            f"propensity must lie in (0, 1], but is {chunk.propensity[row]} ({place}).",
            "Name the column with the probability of the action that was taken, or drop this row.",
        )
    ratio = setup.target.probability_of(chunk.observations, chunk.action) / chunk.propensity
    return chunk._replace(weight=ratio)


def begin(setup: Setup, state: FitState, features: Features) -> FitState:
    """Return the state before the first row with these bound features."""
    d = features.n_features
    if setup.theta_0 is not None and setup.theta_0.shape != (d,):
        raise InvalidInputError(
            f"theta_0 must have the shape ({d},), but has the shape {setup.theta_0.shape}.", "Pass one per feature."
        )
    # The feature that all other states share does not count as a state that may be unvisited.
    table, is_pairs = table_of(features), isinstance(features, TargetFeatures)
    visited = None if table is None else np.arange(table.n_features) >= prod(table.sizes)
    if setup.needs_sums(features) and d > MOST_FEATURES:
        limit = f"limited to {MOST_FEATURES:,} features, because it keeps d^2 numbers, but d is {d:,}"
        if not setup.settings.is_closed_form:
            raise InvalidInputError(f"closed_form=True is {limit}.", "Drop it, or pass algorithm='closed_form'.")
        problem = f"In one pass over the rows, the closed form is {limit}."
        raise InvalidInputError(problem, "Pass cost='linear', or fewer features (or all rows to vrtd.Evaluator.fit).")
    sums = no_sums(d) if setup.needs_sums(features) else None
    has_returns = setup.target is None and not state.is_weighted
    if setup.keeps_sparse(features) and d > MOST_FEATURES:  # totals would have too many numbers
        episodes = sample_episodes(setup.seed)
    else:
        episodes = no_episodes(d, has_returns=has_returns, has_states=is_pairs)
    iterative = IterativeFit() if setup.is_iterative(features) else None
    return state._replace(features=features, visited=visited, sums=sums, episodes=episodes, iterative=iterative)


def _piece_rows(setup: Setup, features: Features) -> int:
    if setup.keeps_sparse(features) and features.n_features > MOST_FEATURES:  # each piece copies vectors of d numbers
        return max(_SPARSE_PIECE, features.n_features // 32)
    n_bytes = _VIEW_BYTES if isinstance(features, Identity) else _PIECE_BYTES
    return max(_LEAST_PIECE, n_bytes // (8 * features.n_features))


def _wait(state: FitState, chunk: Chunk) -> FitState:
    """Keep the rows until the pilot rows are complete."""
    chunk.check_finite(state.n_rows)
    if state.waiting:
        first = state.waiting[0]
        check_alike(chunk.observations, first.observations)
        if (chunk.action is None) != (first.action is None):
            raise _no_actions()
        if chunk.action is not None and first.action is not None:
            check_alike(chunk.action, first.action, "actions")
    return state._replace(waiting=(*state.waiting, chunk.copy()), n_rows=state.n_rows + chunk.n_rows)


def _rows(setup: Setup, state: FitState, chunk: Chunk) -> Transitions:
    """Return the chunk with features in place of observations."""
    features, seen = state.features, state.observations
    assert features is not None
    if seen is not None and chunk.observations.dtype is not seen.dtype:
        check_alike(chunk.observations, seen)
    if isinstance(features, Identity):
        phi, phi_next = features(chunk.observations), features(chunk.next_observations)
    else:
        try:
            phi, phi_next = _features_of_rows(features, chunk), features(chunk.successors)
        except DataError as error:
            raise _locate(features, chunk, error, state.n_rows) from error
    if is_sparse(phi) and not setup.keeps_sparse(features):
        phi, phi_next = phi.toarray(), phi_next.toarray()
    discount = _constant(setup.discount, phi.shape[0])
    if is_any(chunk.terminated):
        discount = np.where(chunk.terminated, 0.0, discount)
    return Transitions.wrap(phi, chunk.reward, phi_next, discount, chunk.weight, chunk.ends)


@lru_cache(maxsize=4)  # most pieces of a log have the same size
def _constant(value: float, n: int) -> Floats:
    return frozen(np.full(n, value))


def _features_of_rows(features: Features, chunk: Chunk) -> Any:
    if not isinstance(features, TargetFeatures):
        return features(chunk.observations)
    if chunk.action is None:
        raise _no_actions()
    return features.of_pairs(chunk.observations, chunk.action)


def _no_actions() -> DataError:
    return DataError(
        "A part of the log has no actions, but other parts have.", "Name the column of the actions: action=..."
    )


def _locate(features: Features, chunk: Chunk, error: DataError, n_before: int) -> DataError:
    """Return the error of a feature function with the place of the first row that causes it."""
    tries: dict[str, Callable[[Chunk], Any]] = {
        "observations": lambda rows: _features_of_rows(features, rows),
        "next_observations": lambda rows: features(rows.successors),
    }
    for field, attempt in tries.items():
        low, high = 0, chunk.n_rows  # rows before `low` are valid; if any row is not, it is before `high`
        while high > low:
            middle = (low + high) // 2
            try:
                attempt(chunk.part(0, middle + 1))
                low = middle + 1
            except DataError:
                high = middle
        if low < chunk.n_rows:
            where = chunk.place(field, low, n_before)
            return DataError(f"{error.problem.removesuffix('.')} ({where}).", error.remedy)
    return error


def update(
    setup: Setup, state: FitState, chunk: Chunk, repeats: bool = False, known: Transitions | None = None
) -> FitState:
    """Return the state after a piece of the log; `known` are its rows of features if they are computed already."""
    rows, before, settings = _rows(setup, state, chunk) if known is None else known, state, setup.settings
    n, n_rows = chunk.n_rows, state.n_rows + chunk.n_rows
    if setup.discount == 1.0 and n_rows >= settings.rows_to_end:  # the same rows are checked for every split
        check_ends(setup, state, chunk.terminated[: max(0, settings.rows_to_end - state.n_rows)])
    learner, linear, sums, sparse = state.learner, state.linear, state.sums, state.sparse
    try:
        # Loops over sparse rows skip rows without features, and sums over blocks hide what is not finite.
        if (rows.is_sparse or settings.is_closed_form) and not is_finite(rows):
            raise NotFiniteError
        if (linear is not None or sparse is not None) and repeats:
            state = _add_remarks(state, ("later passes are skipped, because the method uses each row once",))
        elif sparse is not None:
            sparse = learn_sparsely(sparse, rows)
        elif linear is not None and linear.runs is None:
            linear = learn_linearly(linear, rows)
        elif linear is not None:  # rows between partitions, which are few
            pass
        elif not settings.is_closed_form:
            at = 0
            if learner is None:
                state, learner = _begin_phase(setup, state, None, rows.is_sparse)
            while at < n:
                left = learner.rows_left
                if left == 0:
                    state, learner = _begin_phase(setup, keep_until(state, at, rows, chunk, repeats), learner)
                    left = learner.rows_left
                # A phase must not end in a piece with a row that is not finite.
                if left is not None and left < n - at and not is_finite(rows):
                    raise NotFiniteError
                last = n if left is None else min(n, at + left)
                learner = learn(learner, rows.part(at, last))
                at = last
        if sums is not None and not repeats:
            sums = add(sums, rows)
    except NotFiniteError:
        cleaned = clear_final(rows, chunk.terminated)
        if cleaned is None:
            raise _explain(setup, before, rows, chunk, learner) from None
        return update(setup, before, chunk, repeats, cleaned)
    state = keep_until(state, n, rows, chunk, repeats)
    n_distinct = state.n_distinct if repeats else n_rows
    terminates = state.terminates or (setup.discount == 1.0 and bool(chunk.terminated.any()))
    visited = None if state.visited is None else _mark_visited(state, chunk)
    episodes = state.episodes
    if episodes is not None and not repeats:
        phi_of = partial(_features_of_states, state.features, rows, chunk)
        episodes = add_rows(episodes, state.n_rows, rows, chunk, setup.discount, phi_of)
    # This is faster than _replace.
    state = FitState(n_rows, n_distinct, terminates, learner, linear, sparse, sums, visited, episodes, *state[9:])
    if not state.is_checked and state.n_sampled >= min(settings.pilot_rows, state.capacity):
        state = _check_pilot(setup, state)
    return state


def _features_of_states(
    features: Features | None, rows: Transitions, chunk: Chunk, at: NDArray[np.int64]
) -> NDArray[Any]:
    """Return the features of the states in rows `at`; those of the rows, unless they depend on actions."""
    return features(chunk.observations[at]) if isinstance(features, TargetFeatures) else to_dense(rows.phi[at])


def _begin_phase(
    setup: Setup, state: FitState, learner: Learner | None, on_sparse_rows: bool = False
) -> tuple[FitState, Learner]:
    """Begin the first phase, or the next one: choose its settings and add remarks on them."""
    settings, theta_0 = setup.settings, initial_theta(setup, state)
    if state.n_expected is not None:
        settings = replace(settings, n_samples=state.n_expected)
    if learner is None:
        sample = sample_of(state, settings.pilot_rows) if settings.needs_pilot else None
        if sample is not None and setup.target is not None:
            _check_stability(sample, settings.algorithm)
        algorithm, n_epochs, remarks = settings.decide(sample, theta_0, 0)
        learner = first_learner(algorithm, n_epochs, theta_0, setup.seed, settings.chooses_step, on_sparse_rows)
    else:
        algorithm, n_epochs, remarks = settings.decide(sample_of(state), theta_0, learner.n_rows)
        learner = next_phase(learner, algorithm, n_epochs)
    return _add_remarks(state, remarks), learner


def _mark_visited(state: FitState, chunk: Chunk) -> NDArray[np.bool_]:
    table = table_of(state.features)
    assert state.visited is not None
    assert table is not None
    visited = state.visited.copy()
    visited[table.find_places(chunk.observations)] = True
    return visited


def _add_remarks(state: FitState, remarks: tuple[str, ...]) -> FitState:
    return state._replace(remarks=(*state.remarks, *(remark for remark in remarks if remark not in state.remarks)))


def check_ends(setup: Setup, state: FitState, terminated: NDArray[np.bool_] | None = None) -> None:
    """Raise if the discount is 1 and no transition has terminated so far, these rows included."""
    if setup.discount == 1.0 and not state.terminates and not (terminated is not None and terminated.any()):
        raise InvalidInputError(
            "discount must be below 1 if no transition terminates, because values are infinite otherwise.",
            "Lower discount, or mark the rows that terminate.",
        )


def _check_pilot(setup: Setup, state: FitState) -> FitState:
    """Warn if the step that the user chose diverges on the pilot rows."""
    assert state.buffer is not None
    step = setup.settings.given_step
    remarks: tuple[str, ...] = ()
    n = min(state.n_sampled, setup.settings.pilot_rows)
    if setup.target is not None and not setup.settings.needs_pilot:
        _check_stability(sample_of(state, n), setup.settings.algorithm)
    if step is not None and not _is_surely_stable(step, state.buffer.part(0, n), setup.discount):
        sample = sample_of(state, n)
        run = state.algorithm
        if not sample.is_sparse:
            remarks = check_step(step, sample)
        elif run is not None:
            remarks = check_step_linearly(run, sample)
    return _add_remarks(state, remarks)._replace(is_checked=True)


def _check_stability(sample: Transitions, algorithm: str | Algorithm) -> None:
    """Raise if a method that follows A diverges on these rows with every step: off-policy, A may be unstable."""
    name = algorithm if isinstance(algorithm, str) else algorithm.name
    if name in _ALWAYS_STABLE:
        return
    A = sample.reduce_rank().A
    if float(np.linalg.eigvalsh(A + A.T)[-1]) < 0.0:  # a sufficient condition that is cheap to check
        return
    rate = float(np.linalg.eigvals(A).real.max())
    if rate > _UNSTABLE * float(np.abs(A).max()):
        raise InvalidInputError(
            f"{name} diverges with every step size: in the first {len(sample):,} rows an eigenvalue of A has the "
            f"positive real part {rate:.3g}, because the target policy visits other states than the log.",
            "Use algorithm='closed_form', 'gtd2' or 'tdc'.",
        )


def _is_surely_stable(step: float, rows: Transitions, discount: float) -> bool:
    """Return whether a |phi|^2 (1 + gamma)^2 <= 2 (1 - gamma).

    This is sufficient for a bounded second moment of TD on independent on-policy rows, and cheap to check.
    """
    if rows.is_sparse:
        largest = max(float(squared_norms(table).max()) for table in (rows.phi, rows.phi_next))
    else:
        largest = max(float(np.einsum("ni,ni->n", table, table).max()) for table in (rows.phi, rows.phi_next))
    return not rows.is_weighted and step * largest * (1.0 + discount) ** 2 <= 2.0 * (1.0 - discount)


def _explain(setup: Setup, state: FitState, rows: Transitions, chunk: Chunk, learner: Learner | None) -> Exception:
    """Return the error for numbers that are not finite: a bad row of the log, or a run that diverged."""
    place = first_not_finite(rows)
    if place is not None:
        field, row = _FIELDS[place[0]], place[1]
        return DataError(
            f"A number in {field} is not finite at {chunk.place(field, row, state.n_rows)}.", "Fix or drop the row."
        )
    where = f"in rows {state.n_rows:,} to {state.n_rows + len(rows.reward):,}"
    if setup.settings.chooses_step:
        return DivergenceError(
            f"The parameters overflowed {where} with the step size that 'auto' chose. Scale the features and "
            "the rewards, or use the closed form: algorithm='closed_form'."
        )
    run = learner or state.linear or state.sparse
    assert run is not None  # the closed form fails only on bad rows
    algorithm = run.algorithm
    if algorithm.largest_step_size is None:
        return DivergenceError(
            f"The parameters overflowed {where} with {algorithm!r}. Scale the features and the rewards, or "
            "change the settings of the algorithm."
        )
    return DivergenceError(
        f"The parameters overflowed {where} with the step size {algorithm.largest_step_size:g}. Lower the step "
        "size, or pass step_size='auto'."
    )
