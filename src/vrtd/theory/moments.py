"""Exact first and second moments of TD and of VRTD on independent transitions: no simulation.

With y = (u, 1), u = theta - theta_star, every method here moves y by random matrices that do not depend on it, so
Y = E[y y^T] follows a linear recursion (`vrtd.theory.increments` has the notation). A whole run is a matrix power.

TD: u' = u + a Z_x y, hence Y' = Y + a (Z Y + its transpose) + a^2 E[Z_x Y Z_x^T], Z acting on the rows of u.

One epoch of VRTD adds w to u, where w_0 = 0, w_{t+1} = w_t + a (A_x w_t + G) and G = mean over the batch of Z_x y. The
pair (w, G) is moved by random matrices that do not depend on it, too: E[w w^T] and E[w G^T] after M inner steps are
linear in E[G G^T], by a matrix power again. The epoch is then one linear map of Y.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from vrtd.arrays import Floats, frozen
from vrtd.checks import check_choice, check_exact_count, check_positive
from vrtd.errors import InvalidInputError
from vrtd.theory.checks import check_features
from vrtd.theory.increments import Increments, lag_operator
from vrtd.theory.symmetric import corner, operator, orbit, pack, powers, triangle, unpack

Output = Literal["random", "last", "average"]
Anchor = Literal["batch", "mean"]


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments along a run: `mean[k]` = E theta_k, (T, d), and `second[k]` = E[u_k u_k^T], (T, d, d)."""

    mean: Floats
    second: Floats

    @property
    def squared_error(self) -> Floats:
        """(T,) E|theta_k - theta_star|^2."""
        return np.asarray(np.einsum("kii->k", self.second))


def td_terms(increments: Increments, average: bool = False) -> tuple[Floats, Floats, Floats]:
    """T_0, T_1, T_2 of TD's map T = T_0 + a T_1 + a^2 T_2 on pack(Y).

    With `average`, y = (r, u, 1) holds the running sum r of the iterates' errors, too.
    """
    d = increments.n_features
    check_features(d, "averaged TD" if average else "TD")
    n = (2 * d if average else d) + 1
    u, y = slice(n - d - 1, n - 1), slice(n - d - 1, n)

    def add_sum(Y: Floats) -> Floats:
        return _add_rows(Y, slice(d), u) if average else Y

    def drift(Y: Floats) -> Floats:
        moved = _multiply_rows(Y, u, increments.mean, y)
        return add_sum(moved + moved.swapaxes(-1, -2))

    def spread(Y: Floats) -> Floats:
        added = np.zeros_like(Y)
        added[..., u, u] = unpack(pack(Y[..., y, y]) @ increments.square.T, d)
        return add_sum(added)

    return operator(lambda Y: add_sum(Y.copy()), n), operator(drift, n), operator(spread, n)


def _multiply_rows(Y: Floats, rows: slice, matrix: Floats, source: slice) -> Floats:
    """Return `matrix` times the rows `source` of Y, as the `rows` of a matrix that is 0 elsewhere."""
    product = np.zeros_like(Y)
    product[..., rows, :] = matrix @ Y[..., source, :]
    return product


def _add_rows(Y: Floats, rows: slice, source: slice, factor: float = 1.0) -> Floats:
    """Add `factor` times the rows `source` of Y to its `rows`, then the same with columns, in place; return Y."""
    Y[..., rows, :] += factor * Y[..., source, :]
    Y[..., :, rows] += factor * Y[..., :, source]
    return Y


class EpochMap(NamedTuple):
    """How an epoch moves pack(Y): the first one, and every later one, whose batch remembers earlier ones."""

    first: Floats
    later: Floats

    def orbit(self, x: Floats, counts: NDArray[np.int64]) -> Floats:
        """(len(counts), len(x)) pack(Y) after each of the increasing counts of epochs."""
        begun = counts > 0
        path = np.repeat(x[None], len(counts), axis=0)
        path[begun] = orbit(self.later, self.first @ x, counts[begun] - 1)
        return path


def epoch_maps(
    increments: Increments, step_size: float, batch_sizes: Iterable[int], output: Output, anchor: Anchor = "batch"
) -> dict[int, EpochMap]:
    """The map of one epoch on pack(Y) for each batch size; they share the powers of the inner loop.

    Inner samples are taken as independent of each other and of the batch: exact for Algorithm 1. On a trajectory
    (Algorithm 2) that is an approximation. There the batch's mean has its exact covariance, and so have the means of
    successive batches: with E = I + gain A, a later epoch adds the sum over j of E^j gain Cov_j gain^T and its
    transpose, Cov_j being that of a batch and of the j-th after it.
    """
    a, d = float(step_size), increments.n_features
    check_vrtd_features(d, output)
    n = d + 1
    maps = {}

    def move(drift: Floats, Y: Floats) -> Floats:
        added = _multiply_rows(Y, slice(d), drift, slice(n))
        return Y + added + added.swapaxes(-1, -2)

    for M, (gain, spread) in _inner_moments(increments, a, batch_sizes, output).items():
        drift = gain @ increments.mean
        first = operator(partial(move, drift), n)
        square = increments.batch_square(M) if anchor == "batch" else increments.mean_square
        first[corner(n, d)] += spread @ square
        later = first
        if increments.correlation is not None:
            decay = np.eye(d) + drift[:, :d]
            common = (increments.correlation.between(M, decay) / M**2).reshape(d, n, d, n)
            common = np.einsum("ki,ipjq,lj->kplq", decay @ gain, common, gain).reshape(d * n, d * n)
            later = first.copy()
            later[corner(n, d)] += lag_operator(common, d)
        maps[M] = EpochMap(first, later)
    return maps


def _inner_moments(
    increments: Increments, a: float, batch_sizes: Iterable[int], output: Output
) -> dict[int, tuple[Floats, Floats]]:
    """For each M: the gain with E[w | G] = gain G, and the packed map E[G G^T] -> E[w w^T], of the w handed on."""
    d, sizes = increments.n_features, sorted({int(M) for M in batch_sizes})
    n, w, G = 3 * d, slice(d, 2 * d), slice(2 * d, 3 * d)  # y = (r, w, G), r the sum of w_1, ..., w_t
    mean = np.eye(n)
    mean[w, w] += a * increments.A
    mean[w, G] = a * np.eye(d)
    mean[:d] += mean[w]
    means = powers(mean, sizes)

    first = 0 if output == "average" else d  # r is not needed, then
    step = operator(lambda Y: _inner_step(increments, a, Y, summed=output == "average"), n - first)
    if output == "random":  # beside the triangle of (w, G), the sum of E[w_t w_t^T]
        ww = step[corner(2 * d, d)]
        step = np.block([[np.eye(len(ww)), ww], [np.zeros((len(step), len(ww))), step]])
    size = triangle(d)
    chosen = corner(n - first, d) if output != "random" else np.arange(size)
    found = {}
    for M, power in powers(step, sizes).items():
        gain, spread = means[M][w if output == "last" else slice(d), G], power[chosen][:, -size:]
        scale = {"last": 1, "random": M, "average": M * M}[output]
        found[M] = gain / (1 if output == "last" else M), spread / scale
    return found


def _inner_step(increments: Increments, a: float, Y: Floats, summed: bool) -> Floats:
    """One inner step on E[y y^T], y = (w, G) or (r, w, G): w += a A_x w, then w += a G, then r += w."""
    d = increments.n_features
    n = Y.shape[-1]
    w, G = slice(n - 2 * d, n - d), slice(n - d, n)
    moved = _multiply_rows(Y, w, increments.A, w)
    new: Floats = Y + a * (moved + moved.swapaxes(-1, -2))
    square = increments.square[:, corner(d + 1, d)]
    new[..., w, w] += a * a * unpack(pack(Y[..., w, w]) @ square.T, d)
    _add_rows(new, w, G, a)
    return _add_rows(new, slice(d), w) if summed else new


def fixed_point(T: Floats, d: int, what: str) -> Floats:
    """Return (d, d) E[u u^T] of the fixed point of an epoch's map; raise unless the map is mean-square stable."""
    return unpack(fixed_point_vector(T, what)[corner(d + 1, d)], d)


def fixed_point_vector(T: Floats, what: str) -> Floats:
    """Return x of the fixed point (x, 1) of a map whose last coordinate is constant."""
    radius = inner_radius(T)
    if not radius < 1.0:
        raise InvalidInputError(
            "step_size and batch_size must be mean-square stable, with a spectral radius below 1",
            f"{what} and radius {radius:.6g}",
            "lower step_size",
        )
    return np.asarray(np.linalg.solve(np.eye(len(T) - 1) - T[:-1, :-1], T[:-1, -1]), dtype=np.float64)


def inner_radius(T: Floats) -> float:
    """Return the spectral radius of T without its last coordinate, the 1 of y."""
    inner = T[:-1, :-1]
    return float(np.abs(np.linalg.eigvals(inner)).max()) if np.isfinite(inner).all() else np.inf


def read_moments(path: Floats, theta_star: Floats) -> Moments:
    """Moments from packed Y along a run."""
    d = len(theta_star)
    Y = unpack(path, d + 1)
    return Moments(frozen(Y[:, :d, d] + theta_star), frozen(np.ascontiguousarray(Y[:, :d, :d])))


def check_epoch_map(
    increments: Increments, step_size: float, batch_size: int, output: Output, anchor: Anchor
) -> EpochMap:
    """Check the arguments and return the map of one epoch."""
    check_positive("step_size", step_size)
    check_exact_count("batch_size", batch_size)
    check_choice("output", output, get_args(Output))
    check_choice("anchor", anchor, get_args(Anchor))
    return epoch_maps(increments, step_size, [int(batch_size)], output, anchor)[int(batch_size)]


def check_vrtd_features(d: int, output: Output) -> None:
    """Refuse more features than the map of an epoch is computed for."""
    check_features(d, 'VRTD with output="average"' if output == "average" else "VRTD")
