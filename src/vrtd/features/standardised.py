"""Features that standardise the numbers of an observation, with a constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from vrtd.checks import as_number, check_count, require
from vrtd.errors import DataError
from vrtd.features.features import (
    Features,
    as_rows,
    check_bound,
    check_finite,
    check_most,
    check_some,
    check_width,
    finite_rows,
)
from vrtd.features.spaces import Column

_FEWER = "Use fewer columns."


@dataclass(frozen=True)
class Standardised(Features):
    """A constant 1, then (x_j - centre_j) / scale_j for each number x_j of the observation.

    Parameters
    ----------
    centre, scale : sequence of float, optional
        Centre and scale of each number of the observation. ``bind`` replaces those that are None by the mean and the
        standard deviation of the data. A number that does not vary in the data is only centred.
    drop : sequence of int, default=()
        Numbers of the observation without a feature. The indicators of a category sum to 1, so one of them must be
        dropped beside the constant.

    Examples
    --------
    >>> Standardised().bind(np.array([[1.0], [3.0]]))(np.array([[3.0], [4.0]])).tolist()
    [[1.0, 1.0], [1.0, 2.0]]
    """

    centre: Sequence[float | None] | None = None
    scale: Sequence[float | None] | None = None
    drop: Sequence[int] = field(default=(), kw_only=True)

    kind = "standardised"

    def __post_init__(self) -> None:
        for name in ("centre", "scale"):
            value = getattr(self, name)
            holds = value is None or (isinstance(value, list | tuple) and len(value) > 0)
            require(
                holds,
                f"{name} must have an entry for each number of the observations, but got {value!r:.60}.",
                "Pass a list of numbers.",
            )
            if value is not None:
                object.__setattr__(self, name, tuple(_as_entry(name, j, entry) for j, entry in enumerate(value)))
        has_both = (self.centre is None) == (self.scale is None)
        same = has_both and (self.centre is None or len(self.centre) == len(self.scale or ()))
        require(
            same, f"centre and scale must have the same length, but are {self.centre} and {self.scale}.", "Pass both."
        )
        require(
            isinstance(self.drop, list | tuple),
            f"drop must be a list of whole numbers, but got {self.drop!r:.60}.",
            "Pass a list.",
        )
        object.__setattr__(self, "drop", tuple(sorted({check_count("drop", j, least=0) for j in self.drop})))
        if self.centre is not None:
            k = len(self.centre)
            require(
                all(j < k for j in self.drop),
                f"drop must hold whole numbers below {k}, but got {self.drop}.",
                "Count the numbers of the observations from 0.",
            )
            check_most(self.n_features, _FEWER)

    @classmethod
    def of_columns(cls, columns: Sequence[Column]) -> Self:
        """Return the features of the columns of a table.

        Numbers that are 0 or 1 by construction are not scaled.

        Parameters
        ----------
        columns : sequence of Column
            The columns.

        Returns
        -------
        Standardised
            The features, with centres and scales of columns of numbers taken from data by ``bind``.
        """
        centre: list[float | None] = []
        drop = []
        for column in columns:
            require(
                not column.is_hashed,
                f"The text of column {column.name!r} was read as a hash, which only hashed features can use.",
                "Pass features='hash:20', or read text as categories.",
            )
            if column.levels is not None:
                drop.append(len(centre))  # the first level, which is in the rows from which the levels were taken
                centre += [0.0] * len(column.numbers)
            else:
                centre += [None] if column.fill is None else [None, 0.0]
        scale = tuple(None if entry is None else 1.0 for entry in centre)
        return cls(tuple(centre), scale, drop=tuple(drop)) if centre else cls()

    @property
    def needs_data(self) -> bool:
        """Whether ``bind`` takes centres or scales from data."""
        return self.centre is None or self.scale is None or None in (*self.centre, *self.scale)

    def bind(self, observations: NDArray[Any]) -> Self:
        """Return these features with the centres and scales that are not set.

        Parameters
        ----------
        observations : ndarray of shape (n, ...)
            Observations whose mean and standard deviation are taken.

        Returns
        -------
        Standardised
            The bound features, or the features themselves if they are bound already.
        """
        if not self.needs_data:
            return self
        rows = as_rows(observations)
        check_some(rows, "determine centre and scale", "Pass centre and scale.")
        unknown = (None,) * rows.shape[1]
        centre, scale = self.centre or unknown, self.scale or unknown
        check_width(rows, len(centre))
        check_finite(rows, "determine centre and scale")
        with np.errstate(over="ignore", invalid="ignore"):
            means, spreads = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
        fixed = rows.min(axis=0) == rows.max(axis=0)  # rounding could make their spread very small instead of 0
        means[fixed], spreads[fixed] = rows[0, fixed], 1.0
        require(
            np.isfinite(means).all() and np.isfinite(spreads).all(),
            "observations are so large that their variance overflows.",
            "Rescale the column.",
            DataError,
        )
        return replace(
            self,
            centre=tuple(m if c is None else c for c, m in zip(centre, means.tolist(), strict=True)),
            scale=tuple(s if c is None else c for c, s in zip(scale, spreads.tolist(), strict=True)),
        )

    @property
    def n_features(self) -> int:
        """Number of features d."""
        centre = check_bound(self, "the number of features", self.centre)
        return 1 + len(centre) - len(self.drop)

    def __call__(self, observations: NDArray[Any]) -> NDArray[np.floating[Any]]:
        """Return the rows of observations, of shape (n, d)."""
        self._check_known()
        rows = as_rows(observations)
        centre, scale = np.array(self.centre, np.float64), np.array(self.scale, np.float64)
        check_width(rows, len(centre))
        keep = np.setdiff1d(np.arange(len(centre)), self.drop)
        out = np.empty((len(rows), self.n_features), rows.dtype)
        out[:, 0] = 1.0
        with np.errstate(over="ignore"):
            out[:, 1:] = (rows[:, keep].astype(np.float64) - centre[keep]) / scale[keep]
        out[~finite_rows(rows)] = np.nan
        return out

    def _check_known(self) -> None:
        check_bound(self, "centre and scale", None if self.needs_data else self.centre)


def _as_entry(name: str, j: int, value: Any) -> float | None:
    if value is None:
        return None
    number = as_number(value)
    kind = "finite" if name == "centre" else "positive, finite"
    require(
        isfinite(number) and (name == "centre" or number > 0.0),
        f"{name}[{j}] must be a {kind} number or None, but got {value!r:.60}.",
        "Pass a number.",
    )
    return number
