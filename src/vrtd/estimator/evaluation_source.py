"""Where the rows of an evaluation come from: a log, or an environment under a policy, perhaps by way of a file; with
features that fit them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vrtd.checks import check_count
from vrtd.errors import DataError, InvalidInputError
from vrtd.estimator.evaluator import ProgressCallback
from vrtd.features import Features, as_features, complete
from vrtd.files import check_regular, translate_errors
from vrtd.logs import Chunk, Log, read, write
from vrtd.logs.environment import EnvironmentLog, from_env
from vrtd.logs.log import WrappedLog
from vrtd.problems.environments import gymnasium_library, make

_SUFFIXES = (".parquet", ".npz", ".csv")  # of a recording
_SAMPLES = 100_000  # transitions of an environment, unless told


class EvaluationSource(NamedTuple):
    """Rows, features that fit them, and what is known of both before the rows are read."""

    log: Log
    n_rows: int | None  # None: not known
    features: Features
    n_numbers: int  # in an observation
    title: str
    shape: tuple[int, int] | None = None  # of the board that numbered states are on


@contextmanager
def open_source(
    source: Any, policy: Any, n_samples: int | None, n_envs: int | None, features: Any, seed: int
) -> Iterator[EvaluationSource]:
    """Give the rows of a log or of an environment; an environment that is made here is closed in the end."""
    if isinstance(source, Log):
        for name, value in (("policy", policy), ("n_envs", n_envs)):
            if value is not None:
                raise InvalidInputError(f"{name} is for environments", "a log", f"drop {name}, or pass an environment")
        yield _read_log(source, n_samples, features)
        return
    gym = gymnasium_library()
    if not isinstance(source, str | gym.Env | gym.vector.VectorEnv):
        raise InvalidInputError(
            "source must be a Log, a Gymnasium environment or the id of one",
            type(source).__name__,
            "make a log with vrtd.logs: from_arrays, read",
        )
    if n_envs is not None:
        check_count("n_envs", n_envs)
        if not isinstance(source, str):
            raise InvalidInputError("n_envs is for the id of an environment", "an environment", "drop n_envs")
    actions, words = read_policy("random" if policy is None else policy)
    env = make(source, n_envs) if isinstance(source, str) else source
    try:
        log = from_env(env, actions, _SAMPLES if n_samples is None else n_samples, seed=seed)
        name = source if isinstance(source, str) else env.spec.id if env.spec else type(env.unwrapped).__name__
        is_vector = isinstance(env, gym.vector.VectorEnv)
        space = env.single_observation_space if is_vector else env.observation_space
        chosen, n_numbers = _fit_space(log, space, name, features)
        yield EvaluationSource(log, log.n_rows, chosen, n_numbers, f"{name}{words}", _board_shape(gym, env))
    finally:
        if env is not source:
            env.close()


def _read_log(log: Log, n_samples: int | None, features: Any) -> EvaluationSource:
    """Look at the first chunk of a log."""
    n_rows = log.n_rows if n_samples is None else check_count("n_samples", n_samples)
    chunks = (chunk for chunk in log.chunks() if chunk.n_rows)
    start = [chunk.copy() for chunk in islice(chunks, 1)]  # the log may use the memory of a chunk for the next one
    if not start:
        raise DataError("a log must hold a transition", "none", "check the file, and remarks of rows dropped")
    if n_rows is None:
        start += islice(chunks, 1)
        if len(start) == 1:  # a short file of a format that does not say how many
            n_rows = start[0].n_rows
    seen = start[0].observations
    begun = _Begun(log, chain(start, chunks))
    chosen = complete(as_features("auto" if features is None else features), log.space)
    return EvaluationSource(begun, n_rows, chosen, seen[0].size, "Policy evaluation")


class _Begun(WrappedLog):
    """A log whose first reading has begun, so that one that can be read only once is read only once."""

    def __init__(self, log: Log, chunks: Iterator[Chunk]) -> None:
        super().__init__(log)
        self._begun: Iterator[Chunk] | None = chunks

    def chunks(self) -> Iterator[Chunk]:
        begun, self._begun = self._begun, None
        yield from self._log.chunks() if begun is None else begun


def _fit_space(log: EnvironmentLog, space: Any, name: str, given: Any) -> tuple[Features, int]:
    """Return features with what an observation space tells, tried on some of its observations, and how many numbers an
    observation has."""
    observations = log.sample_observations(8)
    try:
        features = complete(as_features("auto" if given is None else given), log.space)
        features.bind(observations)(observations)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"features must fit the observations of {name}, {space!s:.100}", f"{given} ({error})", "choose others"
        ) from None
    return features, observations[0].size


def _board_shape(gym: Any, env: Any) -> tuple[int, int] | None:
    """Return rows and columns of the toy environments whose states are the cells of a board."""
    from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

    one = env.envs[0].unwrapped if isinstance(env, gym.vector.SyncVectorEnv) else env.unwrapped
    if isinstance(one, FrozenLakeEnv):
        return int(one.nrow), int(one.ncol)
    if isinstance(one, CliffWalkingEnv):
        return int(one.shape[0]), int(one.shape[1])
    return None


def read_policy(policy: Any) -> tuple[Any, str]:
    """Return the policy, read from its file where one is named, and words for the title. No code comes from a file."""
    if not isinstance(policy, str | Path):
        return policy, ""
    if policy == "random":
        return policy, ", policy random"
    path = Path(policy)
    if path.suffix not in (".npy", ".npz"):
        raise InvalidInputError(
            "policy must be random, or a .npy or .npz file of (S, A) probabilities or (S,) actions", policy, "name one"
        )
    with translate_errors(f"policy {policy}"):
        check_regular(path)
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            names = [] if isinstance(loaded, np.ndarray) else loaded.files
            array = loaded[names[0]] if len(names) == 1 else loaded
    if not isinstance(array, np.ndarray):  # NumPy returns a member that is no array as bytes
        raise InvalidInputError(
            f"policy {policy} must be a file with one array of numbers",
            f"arrays {', '.join(names)}" if len(names) > 1 else "no array",
            "write it with numpy.save",
        )
    return array, f", policy {path.name}"


def check_record(path: Path, out: Path) -> None:
    """Raise unless rows can be written to the file, which must not be in the folder of the report."""
    if path.suffix not in _SUFFIXES or path.is_dir():
        raise InvalidInputError(f"record must be a {', '.join(_SUFFIXES)} file", path, "change the name")
    if path.resolve().is_relative_to(out.resolve()) or not path.parent.is_dir():
        raise InvalidInputError("record must be in a folder that exists, and not in out", path.parent, "name another")


def record_rows(log: Log, path: Path, progress: ProgressCallback | None) -> Log:
    """Write the rows and read them back. Ctrl-C ends the recording: what was made until then is kept and can be read,
    and then it is raised again."""
    live = _Live(log, progress)
    write(live, path)
    return _Cut(read(path)) if live.is_cut else read(path)


class _Live(WrappedLog):
    """Ends where it is interrupted, if there is a row."""

    def __init__(self, log: Log, progress: ProgressCallback | None) -> None:
        super().__init__(log)
        self._progress, self.is_cut = progress, False

    def chunks(self) -> Iterator[Chunk]:
        done = 0
        try:
            for chunk in self._log.chunks():
                yield chunk
                done += chunk.n_rows
                if self._progress is not None:
                    self._progress(done, self.n_rows)
        except KeyboardInterrupt:
            if not done:
                raise
            self.is_cut = True


class _Cut(WrappedLog):
    """The rows of a log, and then the interruption that ended its recording."""

    def chunks(self) -> Iterator[Chunk]:
        yield from self._log.chunks()
        raise KeyboardInterrupt
