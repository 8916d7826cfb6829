"""What features are: a map from observations to R^d that treats every row by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.errors import InvalidInputError

#: Rows are dense: more features than this would make every row longer than what it tells.
MOST_FEATURES = 4096


class Features(ABC):
    """phi: observations (n, ...) -> (n, d).

    The row of an observation must not depend, in any bit, on which others come with it: that is what makes every split
    of a log give the same parameters. float32 observations give float32 rows, all others float64. An observation that
    is not finite gives a row that is not finite, or a DataError; never a row that looks right.
    """

    def bind(self, observations: NDArray[Any]) -> Self:  # noqa: ARG002
        """The same features with what they take from data (a range, a scale) taken from these observations; itself when
        there is nothing to take. Only bound features can be called."""
        return self

    @property
    def needs_data(self) -> bool:
        """Whether `bind` takes more from the observations than their shape."""
        return False

    @property
    @abstractmethod
    def n_features(self) -> int:
        """d; an InvalidInputError before it is known."""

    @property
    def largest_norm(self) -> float | None:
        """No row is longer than this, whatever the observation; None where that is not known."""
        return None

    @abstractmethod
    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """(n, d) C-contiguous rows."""

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Plain values from which `vrtd.features.from_settings` builds the same features again, {"kind": ..., ...};
        arrays as lists. Raises InvalidInputError where that cannot be (a function of the user's)."""


def check_most(n_features: int, do: str) -> None:
    """Refuse rows that are too long, before anything of their length is made."""
    if n_features > MOST_FEATURES:
        large = n_features.bit_length() > 60  # a grid in many dimensions; the number itself would fill the screen
        got = f"more than 10**{(n_features.bit_length() - 1) * 3 // 10}" if large else n_features
        raise InvalidInputError(f"there must be at most {MOST_FEATURES} features", got, do)


def unbound(features: Features, what: str) -> InvalidInputError:
    """What is raised where bound features are needed."""
    return InvalidInputError(
        f"{what} must be known before {type(features).__name__} features are used",
        "features that are not bound",
        "call features.bind(observations) and use what it returns",
    )
