"""The door to Gymnasium, an optional library: environments are made here and nowhere else."""

from __future__ import annotations

from typing import Any

from vrtd.errors import InvalidInputError, MissingExtraError


def gymnasium_library() -> Any:
    """The module `gymnasium`."""
    try:
        import gymnasium
    except ImportError:
        raise MissingExtraError("gymnasium", "gym") from None
    return gymnasium


def make(name: str, n_envs: int | None = None) -> Any:
    """`gymnasium.make(name)`, or a vector environment of `n_envs` of them."""
    gym = gymnasium_library()
    try:
        return gym.make(name) if n_envs is None else gym.make_vec(name, num_envs=n_envs, vectorization_mode="sync")
    except (gym.error.Error, ImportError) as error:
        raise InvalidInputError(
            "env must be an environment or the id of one that Gymnasium can make",
            f"{name!r} ({error})",
            "register it, install what it needs, or pass the environment itself",
        ) from error
