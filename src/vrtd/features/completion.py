"""Fill in what is known before any data: the bounds of a space, the number of states, the columns of a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vrtd.checks import require
from vrtd.features.auto import Auto
from vrtd.features.bounded import Bounded
from vrtd.features.compose import change_parts
from vrtd.features.features import Features
from vrtd.features.hashed import Hashed
from vrtd.features.pairs import TargetFeatures
from vrtd.features.spaces import Bounds, ObservationSpace
from vrtd.features.standardised import Standardised
from vrtd.features.tabular import Tabular


def complete(features: Features, space: ObservationSpace | None) -> Features:
    """Return the same features, with values that are not set taken from a space.

    Features inside ``Stack``, ``Scaled`` and ``Selected`` are completed, too.

    Parameters
    ----------
    features : Features
        The features. Values that are set do not change.
    space : ObservationSpace or None
        Space of the observations. With None, the features do not change.

    Returns
    -------
    Features
        The features with the bounds, the number of states or the columns of the space.

    Examples
    --------
    >>> from vrtd.features import Fourier
    >>> complete(Fourier(3), ObservationSpace("box", low=(-1.2, None), high=(0.6, None)))
    Fourier(low=(-1.2, None), high=(0.6, None), order=3)
    >>> complete(Tabular(), ObservationSpace("states", sizes=(16,)))
    Tabular(n_states=16, other=False)
    """
    if space is None:
        return features

    def fill(part: Features) -> Features:
        match part:
            case Auto(space=None):
                return Auto(space)
            case TargetFeatures(n_actions=None, space=None):
                return replace(part, space=space)
            case Tabular(n_states=None) if space.sizes:
                return replace(part, n_states=space.sizes)
            case Hashed() if space.columns:
                return replace(part, categories=tuple(sorted({*(part.categories or ()), *space.hashed})))
            case Standardised(centre=None, drop=()):
                return Standardised.of_columns(space.columns)
            case Bounded() if space.bounds is not None:
                low, high = space.bounds
                return replace(part, low=_merge(part.low, low), high=_merge(part.high, high))
            case _:
                return part

    return change_parts(features, fill)


def _merge(bounds: Any, known: Bounds) -> Bounds:
    if bounds is None:
        return known
    require(
        len(bounds) == len(known),
        f"low and high of the features have {len(bounds)} numbers, but observations have {len(known)}.",
        "Pass one low and high per number of an observation.",
    )
    return tuple(bound if bound is not None else other for bound, other in zip(bounds, known, strict=True))
