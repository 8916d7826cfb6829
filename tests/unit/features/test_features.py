"""Every kind of features against a plain transcription of its formula."""

import subprocess
import sys
from itertools import product
from math import comb, cos, exp, log, pi, sqrt
from statistics import NormalDist

import numpy as np
import pytest

from tests.helpers.statistics import FAMILY_RATE
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

LOW, HIGH = np.array([-1.2, -0.07]), np.array([0.6, 0.07])
BOUNDS = {"low": tuple(LOW), "high": tuple(HIGH)}
OBSERVATIONS = np.random.default_rng(1).uniform(LOW, HIGH, size=(50, 2))
X = (OBSERVATIONS - LOW) / (HIGH - LOW)


def test_identity_is_the_same_array_without_a_copy():
    for dtype in (np.float32, np.float64):
        rows = np.ones((3, 2), dtype)
        assert Identity()(rows) is rows
        assert Identity(2)(rows) is rows
    assert Identity()(np.arange(3)).tolist() == [[0.0], [1.0], [2.0]]
    assert Identity()(np.ones((4, 2, 3))).shape == (4, 6)
    assert Identity()(np.ones((6, 4))[::2, ::2]).flags.c_contiguous
    assert Identity().bind(np.ones((4, 2, 3))) == Identity(6)
    assert Identity(6).n_features == 6


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, np.float64, np.float32, np.float16, bool])
def test_tabular_rows_are_one_hot(dtype):
    states = np.array([0, 1, 1, 0]).astype(dtype)
    rows = Tabular(300)(states)
    assert rows.dtype == (np.float32 if dtype is np.float32 else np.float64)
    assert np.array_equal(rows, np.eye(300)[[0, 1, 1, 0]])
    assert np.array_equal(Tabular(300)(states[:, None]), rows)
    assert Tabular().bind(states) == Tabular(2)


def test_tabular_has_a_feature_for_each_combination():
    states = np.array([[1, 2, 0], [0, 0, 1], [1, 2, 0]])
    rows = Tabular((2, 3, 2))(states)
    assert np.array_equal(rows, np.eye(12)[[10, 1, 10]])
    assert Tabular().bind(states) == Tabular((2, 3, 2))
    assert np.array_equal(Tabular((2, 3, 2))(states.astype(np.float32).reshape(3, 3, 1)), rows)
    assert Tabular([5]) == Tabular(5)
    assert Tabular((2, 3, 2)).find_places(states).tolist() == [10, 1, 10]


@pytest.mark.parametrize("states", [[0, 4, -1, 3, 10**17], [0.0, 4.0, -1.0, 3.0, 1e300]])
def test_tabular_has_a_feature_for_all_other_states(states):
    made = Tabular(4, other=True)
    assert made.n_features == 5
    assert made(np.array(states)).argmax(axis=1).tolist() == [0, 4, 4, 3, 4]
    assert made(np.array([2**63], np.uint64)).argmax(axis=1).tolist() == [4]
    assert Tabular((2, 2), other=True)(np.array([[1, 0], [0, 2], [5, 1]])).argmax(axis=1).tolist() == [2, 4, 4]


def test_one_hot_is_a_table_for_each_variable():
    sizes = (3, 2, 4)
    states = np.array(list(product(*map(range, sizes))))
    rows = OneHot(sizes)(states)
    plain = np.concatenate([np.eye(size)[column] for size, column in zip(sizes, states.T, strict=True)], axis=1)
    assert np.array_equal(rows, np.delete(plain, [3, 5], axis=1))
    assert np.linalg.matrix_rank(rows) == np.linalg.matrix_rank(plain) == OneHot(sizes).n_features
    assert np.linalg.norm(rows, axis=1).max() == OneHot(sizes).largest_norm


def test_standardised_is_the_formula():
    made = Standardised().bind(OBSERVATIONS)
    z = (OBSERVATIONS - OBSERVATIONS.mean(axis=0)) / OBSERVATIONS.std(axis=0)
    assert made(OBSERVATIONS) == pytest.approx(np.insert(z, 0, 1.0, axis=1), rel=1e-12)
    assert made.bind(OBSERVATIONS * 9) is made
    half = Standardised((None, 0.0, 5.0), (None, 1.0, 2.0), drop=(1,)).bind(
        np.array([[1.0, 8.0, 9.0], [3.0, 8.0, 9.0]])
    )
    assert half == Standardised((2.0, 0.0, 5.0), (1.0, 1.0, 2.0), drop=[1])
    assert half(np.array([[5.0, 8.0, 9.0]])).tolist() == [[1.0, 3.0, 2.0]]


def test_a_number_without_variation_is_only_centred():
    """The spread of equal numbers is not 0 when it is computed: 0.1 + ... + 0.1 is rounded."""
    rows = np.full((1000, 2), 0.1)
    rows[:, 1] += np.arange(1000.0)
    assert rows[:, 0].std() > 0.0
    made = Standardised().bind(rows)
    assert (made.centre[0], made.scale[0]) == (0.1, 1.0)
    assert (made(rows)[:, 1] == 0.0).all()


def test_a_table_looks_rows_up():
    array = np.random.default_rng(0).normal(size=(7, 3))
    table = Table(array)
    states = np.array([6, 0, 3, 3])
    assert np.array_equal(table(states), array[states])
    assert np.array_equal(table(states.astype(np.float32)), array[states].astype(np.float32))
    assert table(states.astype(np.float32)).dtype == np.float32
    assert (table.n_states, table.n_features) == (7, 3)
    assert table.largest_norm == np.linalg.norm(array, axis=1).max()
    before = table(states)
    array[:] = 0.0  # the caller's own
    assert np.array_equal(table(states), before)


@pytest.mark.parametrize("degree", [0, 1, 2, 5])
def test_polynomials_are_all_monomials(degree):
    made = Polynomial(degree, **BOUNDS)
    powers = sorted(
        (e for e in product(range(degree + 1), repeat=2) if sum(e) <= degree), key=lambda e: (sum(e), -e[0])
    )
    assert made.n_features == len(powers) == comb(2 + degree, degree)
    expected = [[x**a * y**b for a, b in powers] for x, y in X]
    assert made(OBSERVATIONS) == pytest.approx(np.array(expected), rel=1e-13)


@pytest.mark.parametrize(("k", "degree"), [(1, 7), (3, 4), (6, 3)])
def test_the_number_of_polynomials(k, degree):
    assert Polynomial(degree, low=[0] * k, high=[1] * k)(np.ones((2, k))).shape == (2, comb(k + degree, degree))


@pytest.mark.parametrize("order", [0, 1, 3, 9])
def test_fourier_is_the_basis_of_konidaris(order):
    made = Fourier(order, **BOUNDS)
    coefficients = list(product(range(order + 1), repeat=2))
    assert made.n_features == len(coefficients) == (order + 1) ** 2
    expected = [[cos(pi * (a * x + b * y)) for a, b in coefficients] for x, y in X]
    assert made(OBSERVATIONS) == pytest.approx(np.array(expected), abs=1e-14 * (order + 1))


@pytest.mark.parametrize(
    ("n", "k", "grid"),
    [
        (20, 1, (20,)),
        (20, 2, (5, 4)),
        (24, 2, (5, 4)),
        (25, 2, (5, 5)),
        (20, 3, (3, 3, 2)),
        (20, 6, (2, 2, 2, 2, 1, 1)),
    ],
)
def test_the_largest_even_grid(n, k, grid):
    made = RBF(n, low=[0] * k, high=[1] * k)
    assert made.grid(k) == grid
    assert made.n_features == np.prod(grid) + 1 <= n + 1


@pytest.mark.parametrize("options", [{}, {"width": 0.4}, {"bias": False}, {"normalise": True, "width": 0.05}])
@pytest.mark.parametrize("shape", [(5, 4), (1, 3)])
def test_rbf_are_gaussians_on_a_grid(shape, options):
    made = RBF(shape=shape, **options, **BOUNDS)
    width = options.get("width", 1.0)
    centres = [np.linspace(0, 1, size) if size > 1 else np.array([0.5]) for size in shape]
    w = [width / (size - 1) if size > 1 else width for size in shape]
    expected = np.array(
        [[-((x - a) ** 2) / (2 * w[0] ** 2) - (y - b) ** 2 / (2 * w[1] ** 2) for a in centres[0] for b in centres[1]]
         for x, y in X]
    )  # fmt: skip
    if options.get("normalise"):
        expected -= expected.max(axis=1, keepdims=True)
    expected = np.exp(expected)
    if options.get("normalise"):
        expected /= expected.sum(axis=1, keepdims=True)
        assert made(OBSERVATIONS).sum(axis=1) == pytest.approx(1.0)
    if options.get("bias", not options.get("normalise")):
        expected = np.insert(expected, 0, 1.0, axis=1)
    assert made(OBSERVATIONS) == pytest.approx(expected, rel=1e-11, abs=1e-300)


def test_an_rbf_in_many_dimensions():
    x = np.random.default_rng(0).random(100)
    made = RBF(7, low=[0] * 100, high=[1] * 100)  # two centres along the first two, one along all others
    common = exp(-0.5 * float(((x[2:] - 0.5) ** 2).sum()))
    ends = [[exp(-0.5 * (t - c) ** 2) for c in (0, 1)] for t in x[:2]]
    expected = [1.0, *(a * b * common for a in ends[0] for b in ends[1])]
    assert made(x[None])[0] == pytest.approx(expected, rel=1e-12)


def test_a_normalised_rbf_is_never_nothing():
    """Far from every centre, and where all bumps underflow."""
    made = RBF(3, normalise=True, width=0.01, low=0, high=1)
    assert made(np.array([1e300, -1e300, 0.26, 0.25])) == pytest.approx(
        np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0], [0.5, 0.5, 0]]), abs=1e-12
    )


def test_random_fourier_is_the_formula():
    made = RandomFourier(30, bandwidth=3.0, seed=5, **BOUNDS)
    frequency, phase = made._frequency_and_phase
    waves = list(zip(*frequency, phase, strict=True))
    expected = [[sqrt(2 / 30) * cos(2 * pi * (u * x + v * y + c)) for u, v, c in waves] for x, y in X]
    assert made(OBSERVATIONS) == pytest.approx(np.array(expected), abs=1e-13)
    assert not np.array_equal(made(OBSERVATIONS), RandomFourier(30, bandwidth=3.0, seed=6, **BOUNDS)(OBSERVATIONS))


def test_random_fourier_of_a_seed_never_changes():
    """What a stored model relies on: the first words of PCG64's seed 0 as fractions, and how they are used."""
    words = [0.6369616873214543, 0.2697867137638703, 0.0409735239361946]
    words += [0.016527635528529094, 0.8132702392002724, 0.9127555772777217]
    frequency, phase = RandomFourier(3, bandwidth=0.5 * (2 * pi) ** 2, low=0, high=1)._frequency_and_phase
    assert frequency[0] == pytest.approx([NormalDist().inv_cdf(word) for word in words[::2]], rel=1e-12)
    assert phase == pytest.approx(words[1::2], rel=1e-12)
    more = RandomFourier(100, bandwidth=0.5 * (2 * pi) ** 2, low=0, high=1)._frequency_and_phase
    assert np.array_equal(more[0][:, :3], frequency)
    assert np.array_equal(more[1][:3], phase)


def test_random_fourier_approximates_the_kernel():
    """phi(x).phi(x') is a mean of 4096 independent terms 2 cos cos in [-2, 2]: Hoeffding's bound for all 1275 pairs at
    the rate of a family. Features of another bandwidth are found out."""
    limit = sqrt(16.0 * log(2.0 * 1275 / FAMILY_RATE) / (2.0 * 4096))
    kernel = np.array([[exp(-4.0 * float(((a - b) ** 2).sum())) for a in X] for b in X])
    for bandwidth, fits in [(4.0, True), (16.0, False), (1.0, False)]:
        rows = RandomFourier(4096, bandwidth=bandwidth, **BOUNDS)(OBSERVATIONS)
        assert (np.abs(rows @ rows.T - kernel).max() < limit) == fits


def test_a_constant_is_exactly_one():
    for made in (Fourier(3), Polynomial(3), RBF(9), RBF(9, normalise=True, bias=True), Fourier(0)):
        assert (made.bind(OBSERVATIONS)(OBSERVATIONS)[:, 0] == 1.0).all()


@pytest.mark.parametrize(("n_tilings", "tiles"), [(1, 5), (8, 4), (4, (3, 6)), (8, 1)])
def test_tiles_are_the_plain_loop(n_tilings, tiles):
    made = Tiles(n_tilings, tiles, **BOUNDS)
    grid = tiles if isinstance(tiles, tuple) else (tiles, tiles)
    expected = np.zeros((len(X), n_tilings, *grid))
    for row, point in enumerate(X):
        for tiling in range(n_tilings):
            place = []
            for j in range(2):
                width = 1 / (grid[j] - 1 + 1 / n_tilings)
                shift = (tiling * (2 * j + 1) / n_tilings) % 1.0 * width
                place.append(min(int((point[j] + shift) / width), grid[j] - 1))
            expected[row, tiling, *place] = 1.0
    rows = made(OBSERVATIONS)
    assert made.n_features == n_tilings * np.prod(grid)
    assert np.array_equal(rows, expected.reshape(len(X), -1))
    assert (rows.sum(axis=1) == n_tilings).all()


def test_neighbours_share_tiles():
    """Along one dimension, one tiling changes at each part of a tile, and after a whole tile none is shared."""
    n, tiles = 8, 5
    parts = n * (tiles - 1) + 1
    rows = Tiles(n, tiles, low=0, high=parts)(np.arange(parts) + 0.5)
    shared = rows @ rows.T
    apart = np.abs(np.subtract.outer(np.arange(parts), np.arange(parts)))
    assert np.array_equal(shared, np.maximum(n - apart, 0))
    assert (rows.sum(axis=0) > 0).all()  # no tile that nothing can reach


def test_observations_outside_the_bounds():
    outside, on = np.array([[-9.0, 9.0]]), np.array([[-1.2, 0.07]])
    for made in (
        Polynomial(3, **BOUNDS),
        Fourier(3, **BOUNDS),
        Tiles(4, 4, **BOUNDS),
        RBF(9, normalise=True, **BOUNDS),
    ):
        assert np.array_equal(made(outside), made(on))
    for made in (RandomFourier(9, **BOUNDS), RBF(9, **BOUNDS)):
        assert not np.array_equal(made(outside), made(on))
        assert np.isfinite(made(outside)).all()
    assert RBF(9, **BOUNDS)(np.array([[1e300, 0.0]])).tolist() == [[1.0] + [0.0] * 9]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_bounds_come_from_the_data(dtype):
    observations = np.array([[1, 5, 3], [2, 5, -1], [0, 5, 0]], dtype)
    free = Fourier(2)
    bound = free.bind(observations)
    assert bound == Fourier(2, low=(0, 4.5, -1), high=(2, 5.5, 3))
    assert free == Fourier(2)
    assert bound.bind(observations + 100) is bound
    assert bound.n_dimensions == 3
    assert np.isfinite(bound(observations)).all()
    half = Fourier(2, low=(None, None, -10.0), high=(7.0, None, None)).bind(observations)
    assert half == Fourier(2, low=(0, 4.5, -10), high=(7, 5.5, 3))
    assert Fourier(2, high=[7, 7, 7]).bind(observations) == Fourier(2, low=(0, 5, -1), high=(7, 7, 7))
    beside = Fourier(2, low=(3, 0, 0), high=(None, 9, 9)).bind(observations)  # the data lie below the bound
    assert beside == Fourier(2, low=(3, 0, 0), high=(4, 9, 9))
    assert Fourier(2, low=(0, 0, 0), high=(None, 9, 9)).bind(observations[2:]).high == (1, 9, 9)
    assert Fourier(2, low=(None, 0, 0), high=(-2, 9, 9)).bind(observations).low == (-3, 0, 0)


def test_a_constant_that_is_huge_has_room():
    made = RBF(4).bind(np.array([1e300, 1e300]))
    assert np.isfinite(made(np.array([1e300]))).all()


def test_a_stack_is_side_by_side():
    parts = Fourier(2), RBF(6), Identity()
    made = Stack(*parts).bind(OBSERVATIONS)
    expected = np.concatenate([part.bind(OBSERVATIONS)(OBSERVATIONS) for part in parts], axis=1)
    assert np.array_equal(made(OBSERVATIONS), expected)
    assert made.n_features == 9 + 7 + 2
    assert made.bind(OBSERVATIONS * 2) is made
    assert made.largest_norm is None
    assert Stack(Tabular(2), Tabular(3)).largest_norm == sqrt(2)


def test_scaled_takes_the_norm_that_is_known():
    for made, norm in [
        (Tabular(4), 1.0),
        (Table([[3.0, 4.0], [0.0, 1.0]]), 5.0),
        (Fourier(3), 4.0),
        (Polynomial(2), sqrt(6)),
        (RandomFourier(10), sqrt(2)),
        (Tiles(8, 2), sqrt(8)),
        (RBF(9, normalise=True), 1.0),
        (RBF(9, normalise=True, bias=True), sqrt(2)),
    ]:
        states = isinstance(made, Tabular | Table)
        bound = Scaled(made).bind(np.array([0]) if states else OBSERVATIONS)
        assert bound.features.largest_norm == pytest.approx(norm)
        assert bound.factor == pytest.approx(1 / norm)
        assert bound.largest_norm == pytest.approx(1.0)


@pytest.mark.parametrize(
    "made", [RBF(20), RBF(20, width=3.0), RBF(20, width=0.3), RBF(3, bias=False), RBF(20, width=1e9)]
)
def test_the_largest_norm_of_an_rbf_is_a_tight_bound(made):
    bound = made.bind(OBSERVATIONS)
    grid = np.stack(np.meshgrid(*(np.linspace(a, b, 61) for a, b in zip(bound.low, bound.high, strict=True))), axis=-1)
    found = np.linalg.norm(bound(grid.reshape(-1, 2)), axis=1).max()
    assert found <= bound.largest_norm * (1 + 1e-12) <= 1.35 * found


def test_every_known_norm_holds_everywhere():
    points = np.random.default_rng(0).normal(size=(500, 2)) * 0.5
    for made in (Polynomial(3), Fourier(3), RandomFourier(9), Tiles(4, 3), RBF(9), RBF(9, normalise=True, bias=True)):
        bound = Scaled(made).bind(OBSERVATIONS)
        assert np.linalg.norm(bound(points), axis=1).max() <= 1 + 1e-12


def test_scaled_takes_the_norm_of_the_data_otherwise():
    rows = np.array([[3.0, 4.0], [1.0, 0.0]])
    bound = Scaled(Identity()).bind(rows)
    assert bound == Scaled(Identity(2), 0.2)
    assert bound(rows).tolist() == [[3.0 * 0.2, 4.0 * 0.2], [0.2, 0.0]]
    assert rows[0, 0] == 3.0  # the caller's own
    assert bound.bind(rows * 9) is bound
    assert bound.largest_norm is None
    assert Scaled(Identity(), 2.0).bind(rows).n_features == 2
    many = np.ones((9000, 1))
    many[8500] = -4.0
    assert Scaled(Identity()).bind(many).factor == 0.25


def test_the_room_loads_nothing_heavy():
    code = (
        "import sys, numpy as np, vrtd.features as F;"
        "F.Polynomial(2).bind(np.zeros((2, 2)))(np.zeros((2, 2)));"
        "print([m for m in ('numba', 'scipy', 'sklearn', 'matplotlib', 'pandas') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
