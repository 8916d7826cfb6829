"""Model files: one .npz file with arrays and a JSON header, without pickled objects, written atomically.

`encode` converts a tree of named tuples into plain values and arrays, and `decode` rebuilds it from the types that the
tuples declare.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from vrtd.algorithms import REGISTRY, VRTD, Algorithm, RichardsonTD
from vrtd.errors import InvalidInputError, ModelFileError
from vrtd.estimator.block_totals import Ends
from vrtd.estimator.episodes import Episodes, no_episodes
from vrtd.estimator.iterative_least_squares import IterativeFit
from vrtd.estimator.learner import Learner, batch_rows, first_learner
from vrtd.estimator.least_squares import MatrixSums, most_blocks, most_held, no_sums
from vrtd.estimator.linear_settings import kept_rows
from vrtd.estimator.linear_state import LinearFit
from vrtd.estimator.sparse_fit import SparseFit
from vrtd.estimator.sparse_reservoir import SparseReservoir
from vrtd.estimator.state import FitState, Setup, bind_features
from vrtd.features import Features, Target, TargetFeatures, complete, from_settings, table_of
from vrtd.files import is_out_of_memory, read_arrays, read_bytes, write_arrays
from vrtd.logs import Chunk
from vrtd.problems import Transitions
from vrtd.sparse import is_scipy_sparse, is_sparse, make_rows

_FORMAT = "vrtd-model-10"
_CODE = "code"
_COLUMNS = ("phi", "reward", "phi_next", "discount", "weight", "ends")
Tree = Mapping[str, Any]  # names to plain values, arrays, or further trees


def encode(value: Any) -> Any:
    """Convert a value into plain values, arrays and trees of them."""
    match value:
        case None | bool() | int() | float() | str() | np.ndarray():
            return value
        case _ if is_scipy_sparse(value):
            parts = {"data": value.data, "indices": value.indices, "indptr": value.indptr}
            return parts | {"width": int(value.shape[1])}
        case Algorithm():
            return _algorithm_settings(value)
        case Features():
            return feature_settings(value)
        case Transitions():
            columns = {name: encode(getattr(value, name)) for name in _COLUMNS}
            return columns if value.is_weighted else columns | {"weight": None}
        case Chunk():
            return {name: encode(column) for name, column in value.columns.items()}
        case tuple() | list() if type(value) in (tuple, list):
            return {str(i): encode(item) for i, item in enumerate(value)}
        case Mapping():
            return {str(key): encode(item) for key, item in value.items()}
        case _:
            return {name: encode(item) for name, item in zip(value._fields, value, strict=True)}


def decode(kind: Any, tree: Any) -> Any:
    """Rebuild a value of type `kind` from its tree; a malformed tree may cause any exception."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return None if tree is None else decode(next(part for part in arguments if part is not NoneType), tree)
    if origin is Mapping:
        return {arguments[0](key): decode(arguments[1], item) for key, item in tree.items()}
    if origin in (tuple, Sequence):
        return tuple(decode(arguments[0], tree[str(i)]) for i in range(len(tree)))
    if origin is Literal:
        _require(tree in arguments, f"{tree!r} instead of {kind}")
        return tree
    if origin is np.ndarray or kind in (bool, int, float, str):
        _require(type(tree) is (origin or kind), f"{type(tree).__name__} instead of {kind}")
        return tree
    if kind is Any:
        return _decode_table(tree)
    if isinstance(kind, type) and issubclass(kind, Algorithm):
        algorithm = _build_algorithm(tree)
        _require(isinstance(algorithm, kind), "wrong algorithm")
        return algorithm
    if kind is Features:
        return from_settings(tree)
    if kind is Transitions:
        columns: Any = [None if tree[name] is None else _decode_table(tree[name]) for name in _COLUMNS]
        return Transitions.wrap(*columns)
    if kind is Chunk:
        chunk = Chunk(**{name: _decode_table(column) for name, column in tree.items()})
        chunk.check()
        return chunk
    return kind(**{name: decode(hint, tree[name]) for name, hint in _hints(kind).items()})


def _decode_table(tree: Any) -> Any:
    """Return an array, or sparse rows whose indices are checked, because compiled loops do not check them."""
    if not isinstance(tree, Mapping):
        return np.ascontiguousarray(tree)
    data, indices, indptr, width = (tree[name] for name in ("data", "indices", "indptr", "width"))
    rows = make_rows(data, indices, indptr, int(width))
    rows.check_format(full_check=True)
    return rows


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)


def check_parts(state: FitState) -> None:
    """Raise ValueError unless the parts of a state are consistent; compiled loops do not check their arrays."""
    learner, linear, sums, sparse = state.learner, state.linear, state.sums, state.sparse
    if state.features is None:
        _require(learner is None and linear is None and sums is None and sparse is None, "parts without features")
        return
    d = state.features.n_features
    pairs: list[tuple[Any, Any]] = []  # arrays, each with an array of the required shape and type
    if state.visited is not None:
        table = table_of(state.features)
        pairs.append((state.visited, np.zeros(0 if table is None else table.n_features, np.bool_)))
    if state.buffer is not None:
        _check_rows(state.buffer, state.n_sampled, d, None)
        seen = state.observations, state.next_observations, state.starts
        _require(all(values is not None and values.shape[0] == state.n_sampled for values in seen), "observations")
        _require(state.action is None or len(state.action) == state.n_sampled, "actions")
    if learner is not None:
        on_sparse_rows = state.buffer is not None and state.buffer.is_sparse
        fresh = first_learner(learner.algorithm, None, np.zeros(d), 0, is_sparse=on_sparse_rows)
        pairs += [(learner.state, fresh.state), (learner.stream, fresh.stream), (learner.theta, fresh.theta)]
        pairs += [(theta, fresh.theta) for theta in learner.path.theta]
        _require(len(learner.path.n_rows) == len(learner.path.theta) > 0, "path of wrong length")
        _require(bool(np.isfinite(learner.state).all() and np.isfinite(learner.theta).all()), "numbers not finite")
        _require(learner.n_waiting < batch_rows(learner.algorithm), "more waiting rows than a batch")
        _check_waiting(learner, d, state.buffer)
        _check_phases(learner)
    if linear is not None:
        pairs += _linear_pairs(linear, d)
    if state.iterative is not None:
        pairs += _iterative_pairs(state.iterative, d)
    if sparse is not None:
        pairs += _sparse_pairs(sparse, d)
    if sums is not None:
        pairs += _sums_pairs(sums, d, state.buffer)
    if state.episodes is not None and state.episodes.first_rows is not None:
        pairs += _sample_pairs(state.episodes.first_rows, d)
    elif state.episodes is not None:
        pairs += _episode_pairs(state.episodes, d)
    _require(all(a.shape == b.shape and a.dtype == b.dtype for a, b in pairs), "arrays of wrong shape or type")


def _check_phases(learner: Learner) -> None:
    """Raise unless the learner comes to the end of its phase, and to the next point of its path."""
    path, until = learner.path, learner.lowered_until
    _require(min(learner.n_rows, learner.n_epochs) >= 0 and min(path.stride, learner.pause) > 0, "negative counts")
    _require(path.next > path.n_rows[-1] >= 0 and path.next >= learner.n_rows, "path behind the rows")
    _require(until is None or until >= learner.n_epochs, "step lowered in the past")
    _require(learner.rows_left is None or learner.rows_left >= 0, "phase of wrong length")


def _sums_pairs(sums: MatrixSums, d: int, like: Transitions | None) -> list[tuple[Any, Any]]:
    """Return the arrays of sums, each with an array of the required shape and type."""
    empty, n, gradients = no_sums(d), len(sums.marks), sums.gradients
    pairs = [(sums.squares, empty.squares), (sums.total_phi, empty.total_phi), (sums.total, empty.total)]
    pairs += [(total, empty.total) for total in sums.totals]
    pairs += [(mark, np.zeros((2, d))) for mark in sums.marks]
    _require(n < most_blocks(d), "wrong number of blocks")
    _check_ends(sums.ends, n)
    _require(sums.ends.last <= sums.n_summed < sums.ends.next, "block of wrong size")
    _check_waiting(sums, d, like)
    if gradients is not None:
        pairs += [(vector, empty.squares) for vector in (gradients.anchor, gradients.total, *gradients.marks)]
    if sums.held is not None:
        _require(sums.n_summed <= most_held(d), "too many held rows")
        _check_rows(sums.held, sums.n_summed, d, like)
    has_matrices = not most_held(d) or not sums.n_summed
    _require((sums.held is None and gradients is None) == has_matrices, "blocks of wrong kind")
    _require(gradients is None or (sums.held is None and len(gradients.marks) == n), "wrong number of gradients")
    _require(len(sums.totals) == (0 if most_held(d) else n), "wrong number of matrices")
    return pairs


def _iterative_pairs(fit: IterativeFit, d: int) -> list[tuple[Any, Any]]:
    """Return the arrays of an iterative solution, each with an array of the required shape and type."""
    if fit.theta is None:
        return []
    n, vector = len(fit.ends.rows), np.zeros(d)
    _require(not n or fit.ends.last == fit.n_rows, "blocks of other rows")
    _check_ends(fit.ends, n)
    pairs: list[tuple[Any, Any]] = [(each, vector) for each in (fit.theta, fit.squares, fit.mean_phi)]
    pairs += [(fit.own, np.zeros(n)), (fit.rare, np.zeros(d if n else 0, np.bool_))]
    pairs += [(fit.leak, vector)] if fit.leak.size else []
    return pairs if fit.influence is None else [*pairs, (fit.influence, np.zeros((n, d), np.float32))]


def _linear_pairs(linear: LinearFit, d: int) -> list[tuple[Any, Any]]:
    """Return the arrays of a linear fit, each with an array of the required shape and type."""
    _require(isinstance(linear.algorithm, RichardsonTD) or _grows(linear.algorithm), "wrong algorithm")
    state, reservoir = np.zeros(linear.algorithm.workspace_size(d)), linear.reservoir
    pairs: list[tuple[Any, Any]] = [(linear.state, state), (linear.mark, state)]
    pairs += [(each, np.zeros((3, d))) for each in (linear.open, *linear.blocks)]
    pairs += [(linear.total_phi, np.zeros((2, d))), (reservoir.stream, np.zeros(2, np.uint64))]
    pairs += [] if linear.scale is None else [(linear.scale, np.ones(d))]
    _require(bool(np.isfinite(linear.state).all() and np.isfinite(linear.mark).all()), "numbers not finite")
    _require(linear.block > 0 and linear.n_rows >= linear.n_marked >= len(linear.blocks) * linear.block, "rows")
    if linear.runs is None:
        _require(linear.rows_left > 0, "batch of wrong length")
        _require(reservoir.capacity == kept_rows(d), "wrong size of the reservoir")
    else:
        _check_ends(linear.runs.ends, len(linear.runs.marks))
        pairs += [(each, np.zeros(3 * d + 1)) for each in (linear.runs.total, *linear.runs.marks)]
    _require(reservoir.capacity > 0 and (reservoir.buffer is None) == (reservoir.n_seen == 0), "rows")
    if reservoir.buffer is not None:
        _check_rows(reservoir.buffer, reservoir.n_kept, d, None)
    return pairs


def _sparse_pairs(fit: SparseFit, d: int) -> list[tuple[Any, Any]]:
    """Return the arrays of a fit to sparse rows, each with an array of the required shape and type."""
    _require(_grows(fit.chosen), "wrong algorithm")
    vector, single = np.zeros(d), np.zeros(d, np.float32)
    pairs: list[tuple[Any, Any]] = [(fit.state, np.zeros(4 * d))]
    pairs += [(each, single) for each in (*fit.moves.values(), *(block.gradient for block in fit.blocks))]
    pairs += [] if fit.scale is None else [(fit.scale, vector)]
    of_blocks = [array for block in fit.blocks for array in (block.gradient, block.value)]
    numbers = [fit.state, fit.value, fit.largest, *fit.moves.values(), *of_blocks]
    _require(all(bool(np.isfinite(each).all()) for each in numbers), "numbers not finite")
    _require(bool(((fit.state[3::4] >= 0.0) & (fit.state[3::4] < 1 << 32)).all()), "wrong bits")
    known = {*fit.moves, fit.anchor}
    _require(sorted(known) == list(range(min(known), fit.anchor + 1)), "moves of other anchors")
    counts = [fit.counts, *(block.counts for block in fit.blocks)]
    _require(all(known.issuperset(each) for each in counts), "anchors")
    _require(all(sum(each.values()) == fit.block for each in counts[1:]), "blocks of wrong size")
    _require(fit.block > 0 and fit.n_rows == sum(sum(each.values()) for each in counts), "rows")
    _require(0 <= fit.batch <= fit.n_rows <= fit.batch_end and fit.batch < fit.batch_end, "batch")
    return pairs + _sample_pairs(fit.reservoir, d)


def _sample_pairs(reservoir: SparseReservoir, d: int) -> list[tuple[Any, Any]]:
    """Return the arrays of a sample of sparse rows, and check its rows."""
    _require(min(reservoir.capacity, reservoir.most_bytes) > 0 and len(reservoir.parts) == len(reservoir.keys), "rows")
    _require(sum(map(len, reservoir.keys)) <= max(reservoir.n_seen, 0), "rows")
    for part in reservoir.parts:
        _check_rows(part, len(part), d, None)
    pairs = [(reservoir.stream, np.zeros(2, np.uint64))]
    return pairs + [
        (keys, np.zeros(len(part), np.uint64)) for part, keys in zip(reservoir.parts, reservoir.keys, strict=True)
    ]


def _grows(algorithm: Algorithm) -> bool:
    return isinstance(algorithm, VRTD) and algorithm.grows


def _episode_pairs(episodes: Episodes, d: int) -> list[tuple[Any, Any]]:
    """Return the arrays of episodes, each with an array of the required shape and type."""
    pairs = [] if episodes.start is None else [(episodes.start, np.zeros(d))]
    fresh = no_episodes(d, has_returns=True, has_states=True)
    for name in ("starts", "returns", "states"):
        totals, empty = getattr(episodes, name), getattr(fresh, name)
        if totals is not None:
            _require(totals.most == empty.most > len(totals.marks), "wrong number of blocks")
            _check_ends(totals.ends, len(totals.marks))
            pairs += [(array, empty.total) for array in (totals.total, *totals.marks)]
    return pairs


def _check_ends(ends: Ends, n_blocks: int) -> None:
    _require(ends.block > 0 and len(ends.rows) == n_blocks, "wrong number of ends")
    _require(all(end - start >= ends.block for start, end in pairwise((0, *ends.rows))), "ends in wrong order")


def _check_waiting(part: Learner | MatrixSums, d: int, like: Transitions | None) -> None:
    _require(part.n_waiting >= 0 and (part.buffer is None) == (part.n_waiting == 0), "wrong number of waiting rows")
    if part.buffer is not None:
        _check_rows(part.buffer, part.n_waiting, d, like)


def _check_rows(rows: Transitions, n: int, d: int, like: Transitions | None) -> None:
    kind, weight = rows.phi.dtype, [rows.weight] if rows.is_weighted else []
    _require(kind in (np.float32, np.float64) and rows.phi_next.dtype == kind, "features of wrong type")
    _require(rows.phi.shape == rows.phi_next.shape == (n, d), "features of wrong shape")
    _require(is_sparse(rows.phi) == is_sparse(rows.phi_next), "features of two kinds")
    vectors = [rows.ends, rows.reward, rows.discount, *weight]
    _require(all(vector.shape == (n,) for vector in vectors), "columns of wrong length")
    types = [vector.dtype for vector in vectors]
    _require(types == [np.bool_, *[np.float64] * (len(vectors) - 1)], "columns of wrong type")
    if like is not None:
        _require(like.phi.dtype == kind and like.is_weighted == rows.is_weighted, "rows unlike those of the sample")


_SETTINGS = ("algorithm", "step_size", "batch_size", "n_samples", "pilot_rows", "cost")
_OTHERS = ("discount", "theta_0", "closed_form", "seed")


def write_model(path: str | os.PathLike[str], setup: Setup, state: FitState) -> None:
    """Write the arguments and the state of an evaluator."""
    write_tree(path, encode_arguments(setup) | {"state": encode(state.trim())})


def encode_arguments(setup: Setup) -> dict[str, Any]:
    """Convert the arguments of an evaluator into a tree."""
    settings = {name: encode(getattr(setup.settings, name)) for name in _SETTINGS}
    return {
        "arguments": settings | {name: getattr(setup, name) for name in _OTHERS},
        "features": _given_settings(setup.features),
        "target": _target_settings(setup.target),
    }


def _given_settings(features: Features) -> dict[str, Any] | None:
    """Return the features of observations as plain values; features of a target are rebuilt from them."""
    if isinstance(features, TargetFeatures):
        return feature_settings(features.features) if isinstance(features.features, Features) else None
    return feature_settings(features)


def _target_settings(target: Target | None) -> Any:
    """Return a target policy as plain values, None if there is none, and "code" if it is the user's code."""
    try:
        return None if target is None else target.settings
    except InvalidInputError:
        return _CODE


def write_tree(path: str | os.PathLike[str], tree: Tree) -> None:
    """Write the tree of a model."""
    write_arrays(path, *split_tree(_FORMAT, tree))


def split_tree(form: str, tree: Tree) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the arrays of a file; arrays are named by their path in the tree."""
    arrays: dict[str, Any] = {}
    return {"format": form, "tree": _split(tree, "", arrays)}, arrays


def join_tree(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tree from the header and the arrays of a file."""
    tree: dict[str, Any] = header["tree"]
    for name, array in arrays.items():
        *way, last = name.split("/")
        node = tree
        for part in way:
            node = node[part]
        node[last] = array
    return tree


@contextmanager
def read_model(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Yield the tree of a file; exceptions that a damaged file causes, also in the block, become a ModelFileError."""
    content = read_bytes(path)
    try:
        yield join_tree(*read_arrays(content, _FORMAT))
    except InvalidInputError:
        raise
    except Exception as error:  # a damaged file may cause any exception
        if is_out_of_memory(error):
            raise
        raise ModelFileError(
            f"{path} is not a model of this version of vrtd, or is damaged ({type(error).__name__}). Check the path, "
            "or fit again."
        ) from error


def decode_arguments(tree: Tree, path: str | os.PathLike[str], features: Any, target: Any) -> dict[str, Any]:
    """Return the arguments of the evaluator; `features` and `target` are passed if they were the user's code."""
    arguments, settings, policy = dict(tree["arguments"]), tree["features"], tree["target"]
    if policy == _CODE and target is None:
        problem = f"The target policy of {path} was a function or an object, which is not in the file."
        raise InvalidInputError(problem, "Pass the same policy again: target=...")
    if policy != _CODE and target is not None:
        problem = f"{path} {'has no' if policy is None else 'already contains its'} target policy."
        raise InvalidInputError(problem, "Drop target, or fit again to evaluate another policy.")
    if settings is None and features is None:
        raise InvalidInputError(
            f"The features of {path} were a function or an object, which is not in the file.",
            "Pass the same features again: features=...",
        )
    if not isinstance(arguments["algorithm"], str):
        arguments["algorithm"] = decode(Algorithm, arguments["algorithm"])
    arguments["target"] = target if policy == _CODE else policy
    return arguments | {"features": from_settings(settings) if features is None else features}


def decode_state(tree: Tree, setup: Setup) -> FitState:
    """Rebuild the state of a fit from the tree of a file, and check it."""
    state: FitState = decode(FitState, tree["state"])
    if state.buffer is not None and state.features is None:
        state = state._replace(features=_bound_again(setup, state))
    check_parts(state)
    return state


def _bound_again(setup: Setup, state: FitState) -> Features:
    """Bind features of the user's code to the rows to which they were bound before."""
    features: Any = setup.features
    if isinstance(features, TargetFeatures) and state.is_weighted:  # by propensities: features are those of states
        features = features.features
    n = setup.settings.pilot_rows if state.n_pilot is None else state.n_pilot
    if features.needs_data and state.n_sampled < n:
        raise InvalidInputError(
            f"features cannot be fitted again, because the model has only {state.n_sampled:,} of {n:,} pilot rows.",
            "Pass fitted features: features=evaluator.features of the evaluator that was saved.",
        )
    if state.buffer is None or state.observations is None or state.next_observations is None:
        raise ValueError("a sample without observations")
    terminated = (state.buffer.discount == 0.0) & (setup.discount > 0.0)
    rows = Chunk(
        state.observations, state.buffer.reward, state.next_observations, terminated, terminated, action=state.action
    )
    rows.check()
    setup = replace(setup, features=complete(features, state.space))
    return bind_features(setup, [rows.part(0, n)])


def feature_settings(features: Features) -> dict[str, Any] | None:
    """Return features as plain values, or None if they are the user's code."""
    try:
        return features.settings
    except InvalidInputError:
        return None


def _algorithm_settings(algorithm: Algorithm) -> dict[str, Any]:
    """Return the algorithm as plain values from which `_build_algorithm` can rebuild it."""
    settings = algorithm.settings
    try:
        same = _build_algorithm(settings) == algorithm
    except (InvalidInputError, KeyError, TypeError):
        same = False
    if not same:
        raise InvalidInputError(
            f"The algorithm cannot be saved, because its settings are not plain values: {algorithm!r}.",
            "Use a constant step size.",
        )
    return settings


def _build_algorithm(settings: Mapping[str, Any]) -> Algorithm:
    fields = dict(settings)
    return REGISTRY[fields.pop("name")](**fields)


def _split(tree: Tree, way: str, arrays: dict[str, Any]) -> dict[str, Any]:
    """Return the tree without its arrays, which are put into `arrays` under their paths."""
    plain: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, np.ndarray):
            arrays[way + name] = value
        else:
            plain[name] = _split(value, f"{way}{name}/", arrays) if isinstance(value, Mapping) else value
    return plain
