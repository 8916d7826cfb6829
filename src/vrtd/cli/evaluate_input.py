"""Where the rows of `vrtd evaluate` come from: an environment under a policy, or files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vrtd.errors import InvalidInputError

if TYPE_CHECKING:
    from vrtd.features import Features
    from vrtd.logs import Log

COLUMNS = ("observations", "next_observations", "reward", "terminated", "truncated", "weight", "episode")
OF_ENV = ("policy", "samples", "n_envs", "record")
OF_DATA = (*COLUMNS, "format")
_SAMPLES = 100_000


class Input(NamedTuple):
    """Rows, and features that fit them."""

    log: Log
    n_rows: int | None  # of the log, where it is known
    features: Features
    n_features: int  # as the first observations show
    n_numbers: int  # in an observation
    title: str
    shape: tuple[int, int] | None  # of the board that numbered states are on
    close: Callable[[], None]


def environment(given: Mapping[str, Any]) -> Input:
    """The rows of --env, with the bounds and states of its observation space for the features."""
    from vrtd.logs.environment import from_env
    from vrtd.problems.environments import gymnasium_library, make

    gym, name = gymnasium_library(), given["env"]
    policy, words = _policy(given.get("policy", "random"))
    if "n_envs" in given:
        env = _make_several(gym, name, given["n_envs"])
        space = env.single_observation_space
    else:
        env = make(name)
        space = env.observation_space
    try:
        log = from_env(env, policy, given.get("samples", _SAMPLES), seed=given["seed"])
        features, n_features, size = _fitting(gym, space, name, given.get("features"))
        return Input(
            log, log.n_rows, features, n_features, size, f"{name}, policy {words}", _board(gym, env), env.close
        )
    except BaseException:
        env.close()
        raise


def files(given: Mapping[str, Any]) -> Input:
    """The rows of --data; what the features take from data they take from the rows."""
    from vrtd.features import as_features
    from vrtd.logs import read

    paths = given["data"]
    columns = {option: given[option] for option in OF_DATA if option in given}
    for option, names in columns.items():
        if isinstance(names, list) and len(names) == 1:  # one column is taken as it is, several are put together
            columns[option] = names[0]
    log = read(paths, **columns)
    chunks = log.chunks()
    start = next(chunks)
    first, n_rows = start.observations, log.n_rows
    if n_rows is None and next(chunks, None) is None:  # a short file of a format that does not say how many
        n_rows = start.n_rows
    are_states = first.ndim == 1 and first.dtype.kind in "iu"
    features = as_features(given.get("features", "tabular" if are_states else None))
    n_features = features.bind(first).n_features
    return Input(log, n_rows, features, n_features, first[0].size, ", ".join(paths), None, lambda: None)


def _fitting(gym: Any, space: Any, name: str, words: str | None) -> tuple[Features, int, int]:
    """The features, tried on observations of the space; how many there are, and how many numbers an observation has."""
    import numpy as np

    from vrtd.features import parse, with_bounds, with_states

    spaces = gym.spaces
    if words is None and not isinstance(space, spaces.Discrete):
        raise InvalidInputError(
            f"--features must be given for the observations of {name}, {space!s:.100}", "none", "give e.g. rbf:20"
        )
    features = parse("tabular" if words is None else words)
    space.seed(0)
    try:
        if isinstance(space, spaces.Discrete):
            features = with_states(features, int(space.start + space.n))
            features = with_bounds(features, int(space.start), int(space.start + space.n) - 1)
        elif isinstance(space, spaces.Box):
            features = with_bounds(features, space.low, space.high)
        elif isinstance(space, spaces.MultiDiscrete):
            features = with_bounds(features, space.start, space.start + space.nvec - 1)
        elif isinstance(space, spaces.MultiBinary):
            features = with_bounds(features, np.zeros(space.shape), np.ones(space.shape))
        observations = np.stack([np.asarray(space.sample()) for _ in range(8)])
        bound = features.bind(observations)
        bound(observations)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"--features must fit the observations of {name}, {space!s:.100}",
            f"{words or 'tabular'} ({error})",
            "choose others",
        ) from None
    return features, bound.n_features, observations[0].size


def _make_several(gym: Any, name: str, n_envs: int) -> Any:
    from vrtd.checks import check_count

    check_count("n_envs", n_envs)
    try:
        return gym.make_vec(name, num_envs=n_envs, vectorization_mode="sync")
    except (gym.error.Error, ImportError) as error:
        raise InvalidInputError(
            "--env must be the id of an environment that Gymnasium can make", f"{name!r} ({error})", "check the id"
        ) from None


def _board(gym: Any, env: Any) -> tuple[int, int] | None:
    """Rows and columns of the toy environments whose states are the cells of a board."""
    from gymnasium.envs.toy_text.cliffwalking import CliffWalkingEnv
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

    one = env.unwrapped if isinstance(env, gym.Env) else None
    if isinstance(env, gym.vector.SyncVectorEnv):
        one = env.envs[0].unwrapped
    if isinstance(one, FrozenLakeEnv):
        return int(one.nrow), int(one.ncol)
    if isinstance(one, CliffWalkingEnv):
        return int(one.shape[0]), int(one.shape[1])
    return None


def _policy(words: str) -> tuple[Any, str]:
    """ "random", or the array of a file, which no code comes from."""
    if words == "random":
        return words, words
    path = Path(words)
    if path.suffix not in (".npy", ".npz"):
        raise InvalidInputError(
            "--policy must be random, or a .npy or .npz file of (S, A) probabilities or (S,) actions", words, "name one"
        )
    import numpy as np

    from vrtd.files import check_regular, translate_errors

    with translate_errors(f"--policy {words}"):
        check_regular(path)
        with path.open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return loaded, path.name
            names = loaded.files
            array = loaded[names[0]] if len(names) == 1 else None
    if isinstance(array, np.ndarray):  # NumPy returns a member that is no array as bytes
        return array, path.name
    raise InvalidInputError(
        f"--policy {words} must be a file with one array of numbers",
        f"arrays {', '.join(names)}" if len(names) > 1 else "no array",
        "write it with numpy.save",
    )
