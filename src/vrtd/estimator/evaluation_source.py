"""The sources of rows for `evaluate`: a log, a table, files, or an environment with a policy."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vrtd.checks import check_count
from vrtd.errors import InvalidInputError
from vrtd.estimator.evaluator import ProgressCallback
from vrtd.estimator.state_values import Board
from vrtd.features import ObservationSpace, as_features, complete
from vrtd.features.hashed import text_for
from vrtd.files import check_archive, check_regular, translate_errors
from vrtd.logs import Chunk, Log, read, write
from vrtd.logs.arrow_values import ArrowStream
from vrtd.logs.environment import EnvironmentLog, from_env
from vrtd.logs.log import WrappedLog
from vrtd.logs.policies import load_policy
from vrtd.logs.reading import ReadOptions, as_log, is_file_name
from vrtd.logs.remote import hide_secrets
from vrtd.problems.environments import environment_name, gymnasium_library, make

_SUFFIXES = (".parquet", ".npz", ".csv")  # of a recording
_SAMPLES = 100_000  # default number of transitions of an environment


class EvaluationSource(NamedTuple):
    """The rows, and what is known about them before they are read."""

    log: Log
    n_rows: int | None  # None if unknown
    name: str  # of the files, or of the environment and its policy; empty for tables
    is_environment: bool = False
    board: Board | None = None  # whose cells are the numbered states


class Task(NamedTuple):
    """A policy to evaluate, and the rows to learn from."""

    log: Log
    n_rows: int | None  # None if unknown
    target: Any  # the policy; None for the policy that generated the rows
    name: str


def list_tasks(
    rows: EvaluationSource, columns: ReadOptions, target: Any, against: Any, against_target: Any, features: Any
) -> list[Task]:
    """Return the policy to evaluate and, if there is one, the policy to compare with."""
    policy, name = read_policy(target, "target")
    first = Task(rows.log, rows.n_rows, policy, name or "the target policy")
    if against is not None and against_target is not None:
        raise InvalidInputError(
            "against and against_target cannot be combined, because a policy is compared with only one other.",
            "Drop against, or drop against_target.",
        )
    if against is not None:
        log = (
            as_log(against, columns, text=_text_for(features))
            if _is_data(against) and not rows.is_environment
            else None
        )
        if not isinstance(log, Log):
            if rows.is_environment:
                problem = "against compares two logs, but the source is an environment."
            else:
                problem = f"against must be a log, a table or files, but is {against!r:.60}."
            raise InvalidInputError(problem, "Record the rows of each environment with record=..., and pass the files.")
        names = _distinguish(rows.name, _name_data(against), "policy")
        return [first._replace(name=names[0]), Task(log, log.n_rows, policy, names[1])]
    if against_target is not None:
        other, other_name = read_policy(against_target, "against_target")
        names = _distinguish(name if target is not None else "the policy of the log", other_name, "target policy")
        return [first._replace(name=names[0]), first._replace(target=other, name=names[1])]
    return [first]


def _distinguish(name: str, other: str, kind: str) -> tuple[str, str]:
    """Return different names for two policies."""
    if name == other:
        name = other = ""
    return name or f"the {kind}", other or f"the other {kind}"


def make_title(rows: EvaluationSource, tasks: Sequence[Task]) -> str:
    """Return the default title of the page."""
    first, *others = tasks
    against = "".join(f" against {other.name}" for other in others)
    if first.target is not None:
        return f"Value of {first.name}{against}" + (f", from rows of {rows.name}" if rows.name else "")
    if rows.is_environment:
        return f"{rows.name}{against}"
    return f"Value of the policy in {rows.name}{against}" if rows.name else f"Value of the policy{against}"


@contextmanager
def open_source(
    source: Any,
    columns: ReadOptions,
    policy: Any,
    n_samples: int | None,
    n_envs: int | None,
    clip_actions: bool,
    features: Any,
    seed: int,
) -> Iterator[EvaluationSource]:
    """Yield the rows of a log or of an environment. An environment that is created here is closed afterwards."""
    if _is_data(source):
        for name, value in (("policy", policy), ("n_envs", n_envs), ("clip_actions", clip_actions or None)):
            if value is not None:
                raise InvalidInputError(
                    f"{name} applies to environments, but the source is a log.", f"Drop {name}, or pass an environment."
                )
        log = as_log(source, columns, text=_text_for(features))
        if not isinstance(log, Log):
            raise InvalidInputError(
                "source must be a Log, a table, files or an environment, but is a Chunk.",
                "Pass a Log.",
            )
        n_rows = log.n_rows if n_samples is None else check_count("n_samples", n_samples)
        yield EvaluationSource(log, n_rows, _name_data(source))
        return
    gym = gymnasium_library()
    if not isinstance(source, str | gym.Env | gym.vector.VectorEnv):
        raise InvalidInputError(
            "source must be a Log, a table, files, a Gymnasium environment or its id, "
            f"but is of type {type(source).__name__}.",
            "Pass one of these, and convert arrays to a log (with vrtd.logs.from_arrays).",
        )
    for name in columns:
        raise InvalidInputError(
            f"{name} applies to tables and files, but the source is an environment.", f"Drop {name}, or pass a table."
        )
    if n_envs is not None:
        check_count("n_envs", n_envs)
        if not isinstance(source, str):
            raise InvalidInputError(
                "n_envs applies to the id of an environment, but the source is an environment.",
                "Drop n_envs, or pass the id.",
            )
    actions, policy_name = read_policy("random" if policy is None else policy, words=("random",))
    env = make(source, n_envs) if isinstance(source, str) else source
    try:
        log = from_env(env, actions, _SAMPLES if n_samples is None else n_samples, seed=seed, clip_actions=clip_actions)
        name = environment_name(source)
        _try_features(features, log, name)
        whole_name = f"{name}, policy {policy_name}" if policy_name else name
        yield EvaluationSource(log, log.n_rows, whole_name, True, _find_board(gym, env))
    finally:
        if env is not source:
            env.close()


def _text_for(features: Any) -> Any:
    """Return how text must be read; functions of observations and actions are not hashed."""
    return text_for(as_features(features) if isinstance(features, str) else features)


def _is_data(source: Any) -> bool:
    """Return whether the source is a log, a table or files, rather than an environment.

    A string that does not name a file is the id of an environment.
    """
    if isinstance(source, str):
        return is_file_name(source)
    return isinstance(source, Log | Chunk | ArrowStream | Mapping | os.PathLike | list | tuple)


def _name_data(source: Any) -> str:
    paths = source if isinstance(source, list | tuple) else [source]
    return ", ".join(hide_secrets(str(path)) for path in paths if isinstance(path, str | os.PathLike))


def _try_features(value: Any, log: EnvironmentLog, name: str) -> None:
    """Raise if the features do not fit the observations of an environment, before rows are generated."""
    features, observations = as_features(value), log.sample_observations(8)
    try:
        complete(features, log.space).bind(observations)(observations)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"features {value} do not fit the observations of {name}: {error}", "Choose other features."
        ) from None


def _find_board(gym: Any, env: Any) -> Board | None:
    """Return the board of a toy environment whose states are cells, or None."""
    from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

    one = env.envs[0].unwrapped if isinstance(env, gym.vector.SyncVectorEnv) else env.unwrapped
    if isinstance(one, FrozenLakeEnv):
        return Board((int(one.nrow), int(one.ncol)), np.asarray(one.desc).tobytes().decode())
    if isinstance(one, CliffWalkingEnv):
        shape, start = (int(one.shape[0]), int(one.shape[1])), int(one.start_state_index)
        # The last row is the start, the cliff and the goal.
        letters = ["C" if start < s < prod(shape) - 1 else " " for s in range(prod(shape))]
        letters[start], letters[-1] = "S", "G"
        return Board(shape, "".join(letters))
    return None


def read_policy(policy: Any, parameter: str = "policy", words: tuple[str, ...] = ()) -> tuple[Any, str]:
    """Return a policy and its name, which is empty if the policy was not given by name.

    A string is one of `words`, the name of a file with an array, or the name of installed code. Code is never read from
    a file.
    """
    if not isinstance(policy, str | Path):
        return policy, ""
    if policy in words:
        return policy, str(policy)
    path = Path(policy)
    if isinstance(policy, str) and ":" in policy and path.suffix not in (".npy", ".npz"):
        return load_policy(policy), policy
    if path.suffix not in (".npy", ".npz"):
        kinds = (*words, "a .npy or .npz file of (S, A) probabilities or (S,) actions", "or installed code")
        remedy = "Name a file, or write the name of code as package.module:function."
        raise InvalidInputError(f"{parameter} must be {', '.join(kinds)}, but is {policy}.", remedy)
    with translate_errors(f"{parameter} {policy}"):
        check_regular(path)
        with path.open("rb") as file:
            check_archive(file, str(path))
            loaded = np.load(file, allow_pickle=False)
            names = [] if isinstance(loaded, np.ndarray) else loaded.files
            array = loaded[names[0]] if len(names) == 1 else loaded
    if not isinstance(array, np.ndarray):  # NumPy returns a member of the archive that is not an array as bytes
        content = f"{len(names)} arrays ({', '.join(names)})" if len(names) > 1 else "no array"
        raise InvalidInputError(
            f"{parameter} {policy} must be a file with one array of numbers, but holds {content}.",
            "Write the file with numpy.save.",
        )
    return array, path.name


def check_record(path: Path, out: Path) -> None:
    """Raise unless rows can be written to the file, which must lie outside the folder of the report."""
    if path.suffix not in _SUFFIXES or path.is_dir():
        raise InvalidInputError(
            f"record must be a {', '.join(_SUFFIXES[:-1])} or {_SUFFIXES[-1]} file, but is {path}.", "Change the name."
        )
    if path.resolve().is_relative_to(out.resolve()) or not path.parent.is_dir():
        raise InvalidInputError(
            f"record must be in an existing folder outside that of the report, but is in {path.parent}.",
            "Name another folder.",
        )


def record_rows(log: Log, path: Path, progress: ProgressCallback | None) -> Log:
    """Write the rows to a file, and return a log that reads them back.

    Ctrl-C ends the recording. The rows written so far are kept; KeyboardInterrupt is raised after they are read back.
    """
    live = _Live(log, path, progress)
    write(live, path)
    return _Recording(read(path, **live.columns), log, live.is_cut)


def _name_columns(rows: Chunk, path: Path) -> ReadOptions:
    """Return those columns of a file with these rows that are read only if named."""
    columns: ReadOptions = {}
    if rows.weight is not None:
        columns["weight"] = "weight"
    if rows.propensity is not None:
        columns["propensity"] = "propensity"
    if rows.action is not None:
        columns["action"] = "action" if rows.action.ndim == 1 or path.suffix == ".npz" else "action_*"
    return columns


class _Live(WrappedLog):
    """A log that ends at Ctrl-C instead of raising it, if it has yielded rows."""

    def __init__(self, log: Log, path: Path, progress: ProgressCallback | None) -> None:
        super().__init__(log)
        self._path, self._progress, self.is_cut = path, progress, False
        self.columns: ReadOptions = {}  # that must be named when the file is read

    def chunks(self) -> Iterator[Chunk]:
        done = 0
        try:
            for chunk in self._log.chunks():
                if not done:
                    self.columns = _name_columns(chunk, self._path)
                yield chunk
                done += chunk.n_rows
                if self._progress is not None:
                    self._progress(done, self.n_rows)
        except KeyboardInterrupt:
            if not done:
                raise
            self.is_cut = True


class _Recording(WrappedLog):
    """A recording that is read back, and that raises KeyboardInterrupt at its end if Ctrl-C ended it."""

    def __init__(self, log: Log, live: Log, is_cut: bool) -> None:
        super().__init__(log)
        self._live, self._is_cut = live, is_cut

    @property
    def space(self) -> ObservationSpace | None:
        return self._live.space

    def chunks(self) -> Iterator[Chunk]:
        yield from self._log.chunks()
        if self._is_cut:
            raise KeyboardInterrupt
