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
        (lambda: Tabular(4097), "4097"),
        (lambda: Tabular().bind(np.array([10**12])), "1000000000001"),
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
        (lambda: Tiles(8, 8).bind(np.zeros((2, 4))), "32768"),
        (lambda: Tiles(8, (8, 8, 9)), "4608"),
        (lambda: Tiles(5000), "40000"),
        (lambda: Stack(Tabular(4000), Tabular(97)).bind(np.array([0])), "4097"),
        (lambda: Stack(Tabular(4000), Tabular(97))(np.array([0])), "4097"),
    ]:
        with pytest.raises(
            InvalidInputError, match=f"there must be at most 4096 features; got {number}.*; .* ?(fewer|lower)"
        ):
            make()


def test_numbers_that_are_features_already_may_be_more():
    wide = np.zeros((2, 2**17 + 1), np.float32)
    assert Identity().bind(wide[:, :-1]).n_features == 2**17
    for make in (lambda: Identity(2**17 + 1), lambda: Identity().bind(wide), lambda: Identity()(wide)):
        with pytest.raises(InvalidInputError, match="there must be at most 131072 features; got 131073; use fewer"):
            make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Fourier(2)(OBSERVATIONS), "low and high must be known before Fourier features are used; got features"),
        (lambda: Fourier(2, low=[0, None], high=[1, 1])(OBSERVATIONS), "low and high must be known"),
        (lambda: RBF(2).n_features, "how many numbers an observation has must be known before RBF features are used"),
        (lambda: Identity().n_features, "how many numbers an observation has must be known before Identity"),
        (lambda: Tabular()(np.array([1])), "the number of states must be known before Tabular features are used"),
        (lambda: Scaled(Tabular(2))(np.array([1])), "factor must be known before Scaled features are used"),
        (lambda: Fourier(-1), "order must be a whole number of at least 0; got -1"),
        (lambda: Polynomial(1.5), "degree must be a whole number of at least 0; got 1.5"),
        (lambda: RBF(), "either n or shape must be given; got neither"),
        (lambda: RBF(3, shape=(2,)), r"either n or shape must be given; got n = 3 and shape = \(2,\)"),
        (lambda: RBF(0), "n must be a whole number of at least 1; got 0"),
        (lambda: RBF(shape=4), "shape must have a number for each dimension; got 4"),
        (lambda: RBF(shape=()), r"shape must have a number for each dimension; got \(\)"),
        (lambda: RBF(shape=(3, "2")), "shape must be a whole number of at least 1; got '2'"),
        (lambda: RBF(shape=(3, 2), low=0, high=1), "for each dimension of the observation; got 2 for 1 dimensions"),
        (lambda: RBF(shape=(3, 2)).bind(np.zeros((2, 3))), "for each dimension of the observation; got 2 for 3"),
        (lambda: RBF(4, width=0), "width must be a positive, finite number; got 0"),
        (lambda: RBF(4, width=0.001), "width must be at least 0.01; got 0.001; pass about 1"),
        (lambda: RBF(4, bias=1), "bias must be True or False; got 1"),
        (lambda: RBF(4, normalise=None), "normalise must be True or False; got None"),
        (lambda: RandomFourier(0), "n must be a whole number of at least 1; got 0"),
        (lambda: RandomFourier(4, bandwidth=-1), "bandwidth must be a positive, finite number; got -1"),
        (lambda: RandomFourier(4, seed=-1), "seed must be a whole number of at least 0; got -1"),
        (lambda: RandomFourier(4, seed=2**64), r"seed must be below 2\*\*64; got 18446744073709551616"),
        (lambda: RandomFourier(4096).bind(np.zeros((1, 5000))), r"at most 2\*\*22; got 4096 times 5000; lower n"),
        (lambda: RBF(4095).bind(np.zeros((1, 5000))), r"at most 2\*\*22; got 2049 for 5000 dimensions; use rff"),
        (lambda: Tiles(0), "n_tilings must be a whole number of at least 1; got 0"),
        (lambda: Tiles(8, 0), "tiles must be a whole number of at least 1; got 0"),
        (lambda: Tiles(8, ()), r"tiles must have a number for each dimension; got \(\)"),
        (lambda: Tiles(8, (4, 2.5)), "tiles must be a whole number of at least 1; got 2.5"),
        (lambda: Tiles(8, (4, 4)).bind(np.zeros(3)), "tiles must have a number for each dimension of the observation"),
        (lambda: Fourier(1, low=[0, 1], high=[1]), "low and high must be equally long; got 2 and 1"),
        (lambda: Fourier(1, low=[0, 1], high=[1, 1]), "low must lie below high, at a finite distance; got 1.0 and 1.0"),
        (lambda: Fourier(1, low=-1.7e308, high=1.7e308), "distance; got -1.7e.308 and 1.7e.308 in dimension 0"),
        (lambda: Fourier(1).bind(np.array([-1.7e308, 1.7e308])), "low must lie below high, at a finite distance"),
        (lambda: Fourier(1, low="0"), "low must have a number for each dimension of the observation; got '0'"),
        (lambda: Fourier(1, low=[]), r"low must have a number for each dimension of the observation; got \[\]"),
        (lambda: Fourier(1, low=["a"]), r"low\[0\] must be a finite number, or None to take it from data; got 'a'"),
        (lambda: Fourier(1, high=[1, True]), r"high\[1\] must be a finite number, or None .*; got True"),
        (lambda: Fourier(1, low=[np.inf]), r"low\[0\] must be a finite number, or None .*; got inf"),
        (lambda: Fourier(1, low=[10**400]), r"low\[0\] must be a finite number"),
        (lambda: Table([1.0, 2.0]), r"array must have a row of features for each state; got the shape \(2,\)"),
        (lambda: Table(np.zeros((0, 3))), r"array must have a row of features for each state; got the shape \(0, 3\)"),
        (lambda: Table([[1.0], [np.nan]]), r"array must be finite; got nan at index \(1, 0\)"),
        (lambda: Stack(), "a Stack must have features; got none"),
        (lambda: Stack(3), "features must be made of Features; got int; wrap it with vrtd.features.as_features"),
        (lambda: Scaled("rbf:20"), "features must be made of Features; got str"),
        (lambda: Scaled(Identity(), 0), "factor must be a positive, finite number; got 0"),
        (lambda: Identity(0), "n must be a whole number of at least 1; got 0"),
        (lambda: Tabular(()), r"n_states must have a number for each dimension; got \(\)"),
        (lambda: Tabular((3, 0)), "n_states must be a whole number of at least 1; got 0"),
        (lambda: Tabular(3, other=1), "other must be True or False; got 1"),
        (lambda: OneHot(3), "sizes must have a number for each dimension; got 3"),
        (lambda: Standardised([], []), r"centre must have a number for each number of the observation; got \[\]"),
        (lambda: Standardised([0.0]), "centre and scale must be equally long"),
        (lambda: Standardised([0.0], [1.0, 2.0]), "centre and scale must be equally long"),
        (lambda: Standardised([np.nan], [1.0]), r"centre\[0\] must be a finite number, or None; got nan"),
        (lambda: Standardised([0.0], [0.0]), r"scale\[0\] must be a positive, finite number, or None; got 0.0"),
        (lambda: Standardised([0.0], [1.0], drop=[1]), r"drop must be below 1; got \(1,\)"),
        (lambda: Standardised(drop=3), "drop must be a list of numbers; got 3"),
        (lambda: Standardised()(OBSERVATIONS), "centre and scale must be known before Standardised features are used"),
        (lambda: Standardised().n_features, "how many numbers an observation has must be known before Standardised"),
    ],
)  # fmt: skip
def test_what_a_constructor_refuses(make, message):
    with pytest.raises(InvalidInputError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Tabular(3)(np.array([0, 3])), r"in 0\.\.2; got 3 in row 1; say how many states there are: tabular:4"),
        (lambda: Tabular(3)(np.array([[0], [-1]])), r"every observation must be a state in 0\.\.2; got -1 in row 1"),
        (lambda: Table([[1.0]])(np.array([0, 0, 2.0])), r"must be a state in 0\.\.0; got 2.0 in row 2"),
        (lambda: Tabular(3)(np.array([0.5])), r"every observation must be a state in 0\.\.2; got 0.5 in row 0"),
        (lambda: Tabular((2, 3))(np.array([[0, 3]])), r"in 0\.\.1, 0\.\.2; got \[0, 3\] in row 0.*: tabular:2x4"),
        (lambda: Tabular((2, 3))(np.array([0, 1])), "observations must be states: 2 whole numbers each"),
        (lambda: Tabular(3)(np.array([9999])), "got 9999 in row 0; count states from 0"),
        (lambda: Tabular(3, other=True)(np.array([0.5])), "got 0.5 in row 0"),
        (lambda: OneHot((2, 3))(np.array([[2, 0]])), r"be states in 0\.\.1, 0\.\.2; got \[2, 0\] in row 0"),
        (lambda: Standardised().bind(np.zeros((0, 2))), "there must be an observation to take means from; got none"),
        (lambda: Standardised().bind(np.array([[1.0, np.inf]])), "means are taken from must be finite; got inf"),
        (lambda: Standardised().bind(np.array([1e300, -1e300])), "small enough for their variance"),
        (lambda: Standardised([0.0], [1.0])(OBSERVATIONS), "observations must have 1 numbers each"),
        (lambda: Tabular().bind(np.array([0.0, np.nan])), "a whole number of at least 0; got nan in row 1"),
        (lambda: Tabular().bind(np.array([3, -3])), "every observation must be a whole number of at least 0; got -3"),
        (lambda: Tabular().bind(np.zeros(0)), "there must be an observation to count states by; got none"),
        (lambda: Tabular(3)(np.zeros((2, 2))), r"must be states: one whole number each; got an array of float64"),
        (lambda: Tabular(3)(np.array(["a"])), "must be states: one whole number each; got an array of <U1"),
        (lambda: Fourier(2).bind(np.zeros((0, 2))), "there must be an observation to take bounds from; got none"),
        (lambda: Fourier(2).bind(np.array([[1, 2], [3, np.inf]])), "must be finite; got inf in row 1, column 1"),
        (lambda: Fourier(2).bind(np.array([[np.nan, np.inf]])), "bounds are taken from must be finite; got nan"),
        (lambda: Fourier(2, **BOUNDS)(np.zeros((2, 3))), "observations must have 2 numbers each, .*; got 3"),
        (lambda: Fourier(2, low=[0, 0]).bind(np.zeros((2, 3))), "observations must have 2 numbers each"),
        (lambda: Identity(2)(np.zeros((2, 3))), "observations must have 2 numbers each, as the features have; got 3"),
        (lambda: Identity()(np.array(["a"])), "observations must be real numbers; got an array of <U1"),
        (lambda: Identity()(np.array([1j])), "observations must be real numbers; got an array of complex128"),
        (lambda: Identity()(np.float64(1.0)), r"observations must have one row each.*; got the shape \(\)"),
        (lambda: Identity()(np.zeros((3, 0))), r"with at least one number; got the shape \(3, 0\)"),
        (lambda: Scaled(Identity()).bind(np.zeros((0, 2))), "there must be an observation to take the factor from"),
        (lambda: Scaled(Identity()).bind(np.zeros((3, 2))), "features must not all be zero to be scaled; got 0.0"),
        (lambda: Scaled(Identity()).bind(np.array([1, np.inf])), "a factor is taken from must be finite; got a row 1"),
    ],
)  # fmt: skip
def test_what_data_are_refused(make, message):
    with pytest.raises(DataError, match=message):
        make()
