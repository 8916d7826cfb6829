"""What a space tells fills in what features leave open, and nothing else."""

import numpy as np
import pytest

from vrtd.errors import InvalidInputError
from vrtd.features import (
    RBF,
    Auto,
    Column,
    Fourier,
    Identity,
    ObservationSpace,
    Scaled,
    Selected,
    Stack,
    Standardised,
    Tabular,
    complete,
)


def box(low, high):
    return ObservationSpace("box", low=tuple(low), high=tuple(high))


def test_bounds_of_a_space_fill_what_is_not_set():
    most = float(np.finfo(np.float32).max)
    space = box([-1.0, None, 2.0, -most], [1.0, None, 2.0, most])
    filled = complete(Scaled(Stack(Fourier(1), Identity(), RBF(9, low=(None, 0, None, None)))), space)
    assert filled == Scaled(
        Stack(
            Fourier(1, low=(-1, None, None, None), high=(1, None, None, None)),
            Identity(),
            RBF(9, low=(-1, 0, None, None), high=(1, None, None, None)),
        )
    )
    assert filled.bind(np.zeros((2, 4))).features.features[0].low == (-1, -0.5, -0.5, -0.5)
    assert complete(Selected(Fourier(1)), space).features.low == (-1, None, None, None)
    assert complete(Fourier(1), box([-np.inf], [3.0])) == Fourier(1, low=[None], high=[3])
    with pytest.raises(InvalidInputError, match="low and high of the features have 1 numbers, but observations have 4"):
        complete(Fourier(1, low=0), space)


def test_states_fill_what_is_not_set():
    space = ObservationSpace("states", sizes=(5,))
    given = Stack(Tabular(), Tabular(3), Tabular(other=True), Fourier(2), Identity())
    filled = Stack(Tabular(5), Tabular(3), Tabular(5, other=True), Fourier(2, low=0, high=4), Identity())
    assert complete(given, space) == filled
    assert complete(Tabular(), ObservationSpace("states", sizes=(32, 11, 2))) == Tabular((32, 11, 2))
    assert complete(Tabular(), ObservationSpace("states")) == Tabular()


def test_columns_fill_what_is_not_set():
    space = ObservationSpace("columns", (Column("a"), Column("b", levels=("x", "y")), Column("c", fill=0.0)))
    filled = complete(Standardised(), space)
    assert filled.centre == (None, 0.0, 0.0, 0.0, None, 0.0)
    assert filled.scale == (None, 1.0, 1.0, 1.0, None, 1.0)
    assert filled.drop == (1,)
    given = Standardised([1.0] * 6, [2.0] * 6)
    assert complete(given, space) is given
    assert complete(Standardised(), ObservationSpace("columns")) == Standardised()


def test_automatic_features_get_the_space():
    space = ObservationSpace("states", sizes=(5,))
    assert complete(Stack(Auto(), Identity()), space) == Stack(Auto(space), Identity())
    assert complete(Auto(space), ObservationSpace("features")) == Auto(space)
    assert complete(Auto(), None) == Auto()
