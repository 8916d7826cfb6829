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


def make(name: str) -> Any:
    """`gymnasium.make(name)`."""
    gym = gymnasium_library()
    try:
        return gym.make(name)
    except (gym.error.Error, ImportError) as error:
        raise InvalidInputError(
            "env must be an environment or the id of one that Gymnasium can make",
            f"{name!r} ({error})",
            "register it, install what it needs, or pass the environment itself",
        ) from error
