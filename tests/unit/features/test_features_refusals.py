"""What features refuse: too many, what makes no sense, and data that do not fit; with every message."""

import numpy as np
import pytest

from vrtd.errors import DataError, InvalidInputError
from vrtd.features import (
    RBF,
    Fourier,
    Identity,
    OneHot,
    Polynomial,
    RandomFourier,
    Scaled,
    Stack,
    Standardised,
    Table,
    Tabular,
    Tiles,
)

BOUNDS = {"low": (-1.2, -0.07), "high": (0.6, 0.07)}
OBSERVATIONS = np.zeros((3, 2))


def test_too_many_features_are_refused_before_they_are_made():
    wide = np.zeros((2, 28_224), np.float32)
    for make, number in [
        (lambda: Table(np.broadcast_to(np.zeros(1), (10**9, 5000))), "5000"),
        (lambda: Table([[0.0] * 4097]), "4097"),
        (lambda: Fourier(4096), "4097"),
        (lambda: Fourier(1).bind(wide), r"more than 10\*\*84"),
        (lambda: Fourier(7, low=[0] * 5, high=[1] * 5), "32768"),
        (lambda: Polynomial(10**30), r"more than 10\*\*29"),
        (lambda: Polynomial(4000).bind(wide), r"more than 10\*\*"),
        (lambda: Polynomial(3).bind(np.zeros((2, 40))), "12341"),
        (lambda: RBF(4096), "4097"),
        (lambda: RBF(shape=(100, 100)), "10001"),
        (lambda: RandomFourier(5000), "5000"),
        (lambda: Stack(Tabular(4000), Tabular(97)).bind(np.array([0])), "4097"),
        (lambda: Stack(Tabular(4000), Tabular(97))(np.array([0])), "4097"),
    ]:
        with pytest.raises(
            InvalidInputError,
            match=f"The number of features must be at most 4096, but is {number}.*[.] .* ?([Ff]ewer|[Ll]ower)",
        ):
            make()


def test_sparse_rows_may_have_more_features():
    assert (Tabular(513).is_sparse, Tabular(512).is_sparse) == (True, False)
    assert OneHot((500, 13)).is_sparse is False
    assert OneHot((500, 14)).is_sparse is True
    for make, number in [
        (lambda: Tabular(2**24 + 1), "16777217"),
        (lambda: Tabular().bind(np.array([10**12])), "1000000000001"),
        (lambda: OneHot((2**24, 2)), "16777217"),
        (lambda: Tiles(8, 8).bind(np.zeros((2, 9))), "1073741824"),
        (lambda: Tiles(8, (200, 200, 200)), "64000000"),
        (lambda: Tiles(10_000_000), "80000000"),
    ]:
        with pytest.raises(
            InvalidInputError,
            match=f"The number of features must be at most 16777216, but is {number}.*[.] .* ?([Ff]ewer|[Gg]roup)",
        ):
            make()


def test_numbers_that_are_features_already_may_be_more():
    wide = np.zeros((2, 2**17 + 1), np.float32)
    assert Identity().bind(wide[:, :-1]).n_features == 2**17
    for make in (lambda: Identity(2**17 + 1), lambda: Identity().bind(wide), lambda: Identity()(wide)):
        with pytest.raises(
            InvalidInputError, match=r"number of features must be at most 131072, but is 131073\. Use fewer"
        ):
            make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Fourier(2)(OBSERVATIONS),
            "Fourier features must be bound before use, to determine low and high. Call features.bind",
        ),
        (
            lambda: Fourier(2, low=[0, None], high=[1, 1])(OBSERVATIONS),
            "must be bound before use, to determine low and high",
        ),
        (lambda: RBF(2).n_features, "RBF features must be bound before use, to determine the number of dimensions"),
        (
            lambda: Identity().n_features,
            "Identity features must be bound before use, to determine the number of features",
        ),
        (
            lambda: Tabular()(np.array([1])),
            "Tabular features must be bound before use, to determine the number of states",
        ),
        (
            lambda: Scaled(Tabular(2))(np.array([1])),
            "Scaled features must be bound before use, to determine the factor",
        ),
        (lambda: Fourier(-1), "order must be a whole number of at least 0, but got -1"),
        (lambda: Polynomial(1.5), "degree must be a whole number of at least 0, but got 1.5"),
        (lambda: RBF(), "Exactly one of n and shape must be passed, but got neither"),
        (lambda: RBF(3, shape=(2,)), r"Exactly one of n and shape must be passed, but got n = 3 and shape = \(2,\)"),
        (lambda: RBF(0), "n must be a whole number of at least 1, but got 0"),
        (lambda: RBF(shape=4), "shape must have one number per dimension, but got 4"),
        (lambda: RBF(shape=()), r"shape must have one number per dimension, but got \(\)"),
        (lambda: RBF(shape=(3, "2")), "shape must be a whole number of at least 1, but got '2'"),
        (lambda: RBF(shape=(3, 2), low=0, high=1), "per dimension of the observations, but has 2 for 1 dimensions"),
        (lambda: RBF(shape=(3, 2)).bind(np.zeros((2, 3))), "per dimension of the observations, but has 2 for 3"),
        (lambda: RBF(4, width=0), "width must be a positive, finite number, but got 0"),
        (lambda: RBF(4, width=0.001), "width must be at least 0.01, but got 0.001. Pass about 1"),
        (lambda: RBF(4, bias=1), "bias must be True or False, but got 1"),
        (lambda: RBF(4, normalise=None), "normalise must be True or False, but got None"),
        (lambda: RandomFourier(0), "n must be a whole number of at least 1, but got 0"),
        (lambda: RandomFourier(4, bandwidth=-1), "bandwidth must be a positive, finite number, but got -1"),
        (lambda: RandomFourier(4, seed=-1), "seed must be a whole number of at least 0, but got -1"),
        (lambda: RandomFourier(4, seed=2**64), r"seed must be below 2\*\*64, but got 18446744073709551616"),
        (lambda: RandomFourier(4096).bind(np.zeros((1, 5000))), r"at most 2\*\*22, but is 4096 times 5000. Lower n"),
        (
            lambda: RBF(4095).bind(np.zeros((1, 5000))),
            r"at most 2\*\*22, but there are 2049 in 5000 dimensions. Use rff",
        ),
        (lambda: Tiles(0), "n_tilings must be a whole number of at least 1, but got 0"),
        (lambda: Tiles(8, 0), "tiles must be a whole number of at least 1, but got 0"),
        (lambda: Tiles(8, ()), r"tiles must have one number per dimension, but got \(\)"),
        (lambda: Tiles(8, (4, 2.5)), "tiles must be a whole number of at least 1, but got 2.5"),
        (lambda: Tiles(8, (4, 4)).bind(np.zeros(3)), "tiles must have one number per dimension of the observations"),
        (lambda: Fourier(1, low=[0, 1], high=[1]), "low and high must have the same length, but have 2 and 1 numbers"),
        (
            lambda: Fourier(1, low=[0, 1], high=[1, 1]),
            "low must be less than high, by a finite difference, but they are 1.0 and 1.0",
        ),
        (
            lambda: Fourier(1, low=-1.7e308, high=1.7e308),
            "difference, but they are -1.7e.308 and 1.7e.308 in dimension 0",
        ),
        (lambda: Fourier(1).bind(np.array([-1.7e308, 1.7e308])), "low must be less than high, by a finite difference"),
        (lambda: Fourier(1, low="0"), "low must have one number per dimension of the observations, but got '0'"),
        (lambda: Fourier(1, low=[]), r"low must have one number per dimension of the observations, but got \[\]"),
        (lambda: Fourier(1, low=["a"]), r"low\[0\] must be a finite number, or None to take it from data, but got 'a'"),
        (lambda: Fourier(1, high=[1, True]), r"high\[1\] must be a finite number, or None .*, but got True"),
        (lambda: Fourier(1, low=[np.inf]), r"low\[0\] must be a finite number, or None .*, but got inf"),
        (lambda: Fourier(1, low=[10**400]), r"low\[0\] must be a finite number"),
        (lambda: Table([1.0, 2.0]), r"array must have one row of features per state, but has the shape \(2,\)"),
        (lambda: Table(np.zeros((0, 3))), r"array must have one row of features per state, but has the shape \(0, 3\)"),
        (lambda: Table([[1.0], [np.nan]]), r"array must be finite, but got nan at index \(1, 0\)"),
        (lambda: Stack(), "A Stack must have features, but got none"),
        (lambda: Stack(3), "features must be a Features object, but got int. Wrap it with vrtd.features.as_features"),
        (lambda: Scaled("rbf:20"), "features must be a Features object, but got str"),
        (lambda: Scaled(Identity(), 0), "factor must be a positive, finite number, but got 0"),
        (lambda: Identity(0), "n must be a whole number of at least 1, but got 0"),
        (lambda: Tabular(()), r"n_states must have one number per dimension, but got \(\)"),
        (lambda: Tabular((3, 0)), "n_states must be a whole number of at least 1, but got 0"),
        (lambda: Tabular(3, other=1), "other must be True or False, but got 1"),
        (lambda: OneHot(3), "sizes must have one number per dimension, but got 3"),
        (lambda: Standardised([], []), r"centre must have an entry for each number of the observations, but got \[\]"),
        (lambda: Standardised([0.0]), "centre and scale must have the same length"),
        (lambda: Standardised([0.0], [1.0, 2.0]), "centre and scale must have the same length"),
        (lambda: Standardised([np.nan], [1.0]), r"centre\[0\] must be a finite number or None, but got nan"),
        (lambda: Standardised([0.0], [0.0]), r"scale\[0\] must be a positive, finite number or None, but got 0.0"),
        (lambda: Standardised([0.0], [1.0], drop=[1]), r"drop must hold whole numbers below 1, but got \(1,\)"),
        (lambda: Standardised(drop=3), "drop must be a list of whole numbers, but got 3"),
        (
            lambda: Standardised()(OBSERVATIONS),
            "Standardised features must be bound before use, to determine centre and scale",
        ),
        (
            lambda: Standardised().n_features,
            "Standardised features must be bound before use, to determine the number of features",
        ),
    ],
)  # fmt: skip
def test_what_a_constructor_refuses(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: Tabular(3)(np.array([0, 3])),
            r"in 0\.\.2, but got 3 in row 1. Set the number of states, e.g. tabular:4",
        ),
        (
            lambda: Tabular(3)(np.array([[0], [-1]])),
            r"Every observation must be a state in 0\.\.2, but got -1 in row 1",
        ),
        (lambda: Table([[1.0]])(np.array([0, 0, 2.0])), r"must be a state in 0\.\.0, but got 2.0 in row 2"),
        (lambda: Tabular(3)(np.array([0.5])), r"Every observation must be a state in 0\.\.2, but got 0.5 in row 0"),
        (
            lambda: Tabular((2, 3))(np.array([[0, 3]])),
            r"in 0\.\.1, 0\.\.2, but got \[0, 3\] in row 0.*, e.g. tabular:2x4",
        ),
        (lambda: Tabular((2, 3))(np.array([0, 1])), "observations must be states, with 2 whole numbers each"),
        (lambda: Tabular(3)(np.array([9999])), "got 9999 in row 0. Number the states from 0"),
        (lambda: Tabular(3, other=True)(np.array([0.5])), "got 0.5 in row 0"),
        (lambda: OneHot((2, 3))(np.array([[2, 0]])), r"be states in 0\.\.1, 0\.\.2, but got \[2, 0\] in row 0"),
        (
            lambda: Standardised().bind(np.zeros((0, 2))),
            "At least one observation is needed to determine centre and scale, but there is none",
        ),
        (
            lambda: Standardised().bind(np.array([[1.0, np.inf]])),
            "must be finite to determine centre and scale, but got inf",
        ),
        (lambda: Standardised().bind(np.array([1e300, -1e300])), "so large that their variance overflows"),
        (lambda: Standardised([0.0], [1.0])(OBSERVATIONS), "observations must have the shape \\(n, 1\\)"),
        (lambda: Tabular().bind(np.array([0.0, np.nan])), "a whole number of at least 0, but got nan in row 1"),
        (
            lambda: Tabular().bind(np.array([3, -3])),
            "Every observation must be a whole number of at least 0, but got -3",
        ),
        (
            lambda: Tabular().bind(np.zeros(0)),
            "At least one observation is needed to determine the number of states, but there is none",
        ),
        (
            lambda: Tabular(3)(np.zeros((2, 2))),
            r"must be states, with one whole number each, but got an array of float64",
        ),
        (lambda: Tabular(3)(np.array(["a"])), "must be states, with one whole number each, but got an array of <U1"),
        (
            lambda: Fourier(2).bind(np.zeros((0, 2))),
            "At least one observation is needed to determine low and high, but there is none",
        ),
        (
            lambda: Fourier(2).bind(np.array([[1, 2], [3, np.inf]])),
            "must be finite to determine low and high, but got inf in row 1, column 1",
        ),
        (
            lambda: Fourier(2).bind(np.array([[np.nan, np.inf]])),
            "must be finite to determine low and high, but got nan",
        ),
        (
            lambda: Fourier(2, **BOUNDS)(np.zeros((2, 3))),
            "observations must have the shape \\(n, 2\\) .*, but have \\(n, 3\\)",
        ),
        (lambda: Fourier(2, low=[0, 0]).bind(np.zeros((2, 3))), "observations must have the shape \\(n, 2\\)"),
        (
            lambda: Identity(2)(np.zeros((2, 3))),
            "observations must have the shape \\(n, 2\\) for these features, but have \\(n, 3\\)",
        ),
        (lambda: Identity()(np.array(["a"])), "observations must be real numbers, but have dtype <U1"),
        (lambda: Identity()(np.array([1j])), "observations must be real numbers, but have dtype complex128"),
        (
            lambda: Identity()(np.float64(1.0)),
            r"observations must have at least one number per row, but have the shape \(\)",
        ),
        (lambda: Identity()(np.zeros((3, 0))), r"at least one number per row, but have the shape \(3, 0\)"),
        (
            lambda: Scaled(Identity()).bind(np.zeros((0, 2))),
            "At least one observation is needed to determine the factor",
        ),
        (lambda: Scaled(Identity()).bind(np.zeros((3, 2))), "Features whose largest norm is 0.0 cannot be scaled"),
        (
            lambda: Scaled(Identity()).bind(np.array([1, np.inf])),
            "must be finite to determine the factor, but those of row 1 are not",
        ),
    ],
)  # fmt: skip
def test_what_data_are_refused(make, message):
    with pytest.raises(DataError, match=message):
        make()
