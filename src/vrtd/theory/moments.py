"""Exact first and second moments of TD and of VRTD on independent transitions: no simulation.

With y = (u, 1), u = theta - theta_star, every method here moves y by random matrices that do not depend on it, so
Y = E[y y^T] follows a linear recursion (`vrtd.theory.increments` has the notation). A whole run is a matrix power.

TD: u' = u + a Z_x y, hence Y' = Y + a (Z Y + its transpose) + a^2 E[Z_x Y Z_x^T], Z acting on the rows of u. Several
iterates with steps a, 2a, 4a, ... on the same samples, and a running sum of them, make y longer (`Iterates`).

One epoch of VRTD adds w to u, where w_0 = 0, w_{t+1} = w_t + a (A_x w_t + G) and G = mean over the batch of Z_x y. The
pair (w, G) is moved by random matrices that do not depend on it, too: E[w w^T] and E[w G^T] after the inner steps are
linear in E[G G^T], by a matrix power again. The epoch is then one linear map of Y.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from vrtd.algorithms.vrtd import Output
from vrtd.arrays import Floats, frozen
from vrtd.checks import check_choice, check_exact_count, check_positive
from vrtd.errors import InvalidInputError
from vrtd.theory.checks import Computation, check_features
from vrtd.theory.increments import Correlation, Increments, lag_operator
from vrtd.theory.symmetric import corner, operator, orbit, pack, powers, triangle, unpack

Anchor = Literal["batch", "mean"]

# Batches whose covariance with the current one is below this share of what the current one has inside are forgotten.
_NEGLIGIBLE = 1e-10
_OF_LEVELS: dict[int, Computation] = {
    2: "RichardsonTD with 2 levels",
    3: "RichardsonTD with 3 levels",
    4: "RichardsonTD with 4 levels",
}


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments along a run: `mean[k]` = E theta_k, (T, d), and `second[k]` = E[u_k u_k^T], (T, d, d)."""

    mean: Floats
    second: Floats

    @property
    def squared_error(self) -> Floats:
        """(T,) E|theta_k - theta_star|^2."""
        return np.asarray(np.einsum("kii->k", self.second))


class Iterates(NamedTuple):
    """What y holds: the errors u^m of TD with the steps 2^m a on the same samples, and r, the running sum of h_m u^m.

    y = (r, u^0, ..., u^(K-1), 1), without r if there are no weights h.
    """

    levels: int = 1  # K
    weights: tuple[float, ...] = ()  # h; (1.0,) for averaged TD

    def size(self, d: int) -> int:
        """How many numbers y has."""
        return (self.levels + bool(self.weights)) * d + 1

    def rows(self, d: int) -> list[slice]:
        """Where each u^m is."""
        first = d if self.weights else 0
        return [slice(first + m * d, first + (m + 1) * d) for m in range(self.levels)]

    def start(self, u: Floats) -> Floats:
        """y before the first update."""
        sums = np.zeros(len(u) if self.weights else 0)
        return np.concatenate([sums, np.tile(u, self.levels), [1.0]])

    def add_sum(self, Y: Floats, sign: float = 1.0) -> Floats:
        """Add to r what it sums, in place, in Y = E[y y^T]; with the sign -1 take it away again; return Y."""
        d = (Y.shape[-1] - 1) // (self.levels + bool(self.weights))
        for weight, u in zip(self.weights, self.rows(d), strict=False):
            _add_rows(Y, slice(d), u, sign * weight)
        return Y

    def check_features(self, d: int) -> None:
        """Refuse more features than these moments are computed for."""
        check_features(d, _OF_LEVELS.get(self.levels, "averaged TD" if self.weights else "TD"))


LAST_ITERATE = Iterates()  # of TD


def td_terms(increments: Increments, iterates: Iterates = LAST_ITERATE) -> tuple[Floats, Floats, Floats]:
    """T_0, T_1, T_2 of TD's map T = T_0 + a T_1 + a^2 T_2 on pack(Y)."""
    d = increments.n_features
    iterates.check_features(d)
    n, levels = iterates.size(d), list(enumerate(iterates.rows(d)))

    def drift(Y: Floats) -> Floats:
        moved = np.zeros_like(Y)
        for m, u in levels:
            moved[..., u, :] = 2.0**m * (increments.mean @ Y[..., np.r_[u, n - 1], :])
        return iterates.add_sum(moved + moved.swapaxes(-1, -2))

    def spread(Y: Floats) -> Floats:
        added = np.zeros_like(Y)
        for k, v in levels:
            for m, u in levels:
                cross = Y[..., np.r_[v, n - 1][:, None], np.r_[u, n - 1]]
                both = (cross + cross.swapaxes(-1, -2)) / 2.0  # Z_x X Z_x^T = phi (zeta^T X zeta) phi^T
                added[..., v, u] = 2.0 ** (k + m) * unpack(pack(both) @ increments.square.T, d)
        return iterates.add_sum(added)

    return operator(iterates.add_sum, n), operator(drift, n), operator(spread, n)


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


class _Epoch(NamedTuple):
    """An epoch whose batch remembers no other: E[u'] = E[u] + gain E[G], and its map on pack(Y)."""

    gain: Floats
    map: Floats

    def decay(self, A: Floats) -> Floats:
        """What the epoch makes of E[u]."""
        return np.asarray(np.eye(len(A)) + self.gain @ A)


def epoch_maps(
    increments: Increments,
    step_size: float,
    batch_sizes: Iterable[int],
    output: Output,
    anchor: Anchor = "batch",
    n_steps: int | None = None,
) -> dict[int, EpochMap]:
    """The map of one epoch on pack(Y) for each batch size M; they share the powers of the inner loop.

    An epoch makes M inner steps, or `n_steps` if these are fewer. Inner samples are taken as independent of each other
    and of the batch: exact for Algorithm 1. On a trajectory (Algorithm 2) that is an approximation. There the batch's
    mean has its exact covariance, and so have the means of successive batches: with E = I + gain A, a later epoch adds
    the sum over j of E^j gain Cov_j gain^T and its transpose, Cov_j being that of a batch and of the j-th after it.
    """
    maps = {}
    for M, epoch in _separate_epochs(increments, float(step_size), batch_sizes, output, anchor, n_steps).items():
        maps[M] = EpochMap(epoch.map, _later_map(increments, epoch, M))
    return maps


def successive_epoch_maps(
    increments: Increments, step_size: float, batch_sizes: Sequence[int], output: Output, n_steps: int | None = None
) -> tuple[list[Floats], Floats]:
    """The maps of the first epochs, whose batches have these sizes, and of every later one, whose batch is as the last.

    The rest is as for `epoch_maps`. The mean of a batch has its exact covariance with that of every earlier one.
    """
    epochs = _separate_epochs(increments, float(step_size), batch_sizes, output, "batch", n_steps)
    maps = []
    for k, M in enumerate(batch_sizes):
        current, T = epochs[M], epochs[M].map
        if increments.correlation is not None:
            least = _NEGLIGIBLE * float(np.abs(_pair_sum(increments.correlation, M)).max())
            kept, gap = current.decay(increments.A), 0
            for size in reversed(batch_sizes[:k]):  # the batch before, and so on; kept: of an error since then
                common = _pairs_between(increments.correlation, size, gap, M)
                if not np.abs(common).max() > least:
                    break
                T = T + _remember(kept @ epochs[size].gain, common / (size * M), current.gain)
                kept, gap = kept @ epochs[size].decay(increments.A), gap + size
        maps.append(T)
    return maps, _later_map(increments, epochs[batch_sizes[-1]], batch_sizes[-1])


def _later_map(increments: Increments, epoch: _Epoch, M: int) -> Floats:
    """The map of an epoch that follows many of its kind."""
    if increments.correlation is None:
        return epoch.map
    decay = epoch.decay(increments.A)
    return epoch.map + _remember(decay @ epoch.gain, increments.correlation.between(M, decay) / M**2, epoch.gain)


def _pairs_between(correlation: Correlation, earlier: int, gap: int, later: int) -> Floats:
    """The sum of C_k over pairs of one transition of each of two batches, with so many transitions between them."""
    whole = _pair_sum(correlation, earlier + gap + later) + _pair_sum(correlation, gap)
    return whole - _pair_sum(correlation, earlier + gap) - _pair_sum(correlation, gap + later)


def _pair_sum(correlation: Correlation, n: int) -> Floats:
    """The sum of C_k over pairs of n consecutive transitions."""
    return n * correlation.within(max(n, 1))


def _remember(kept: Floats, common: Floats, gain: Floats) -> Floats:
    """What the covariance of the means of an earlier batch and of this one adds to the map of an epoch."""
    d = len(gain)
    n = d + 1
    common = np.einsum("ki,ipjq,lj->kplq", kept, common.reshape(d, n, d, n), gain).reshape(d * n, d * n)
    added = np.zeros((triangle(n), triangle(n)))
    added[corner(n, d)] = lag_operator(common, d)
    return added


def _separate_epochs(
    increments: Increments,
    a: float,
    batch_sizes: Iterable[int],
    output: Output,
    anchor: Anchor,
    n_steps: int | None,
) -> dict[int, _Epoch]:
    """Epochs by the size of their batch."""
    d = increments.n_features
    check_vrtd_features(d, output)
    n = d + 1

    def move(drift: Floats, Y: Floats) -> Floats:
        added = _multiply_rows(Y, slice(d), drift, slice(n))
        return Y + added + added.swapaxes(-1, -2)

    lengths = {M: min(M, n_steps or M) for M in sorted({int(M) for M in batch_sizes})}
    inner = _inner_moments(increments, a, sorted(set(lengths.values())), output)
    epochs = {}
    for M, length in lengths.items():
        gain, spread = inner[length]
        T = operator(partial(move, gain @ increments.mean), n)
        square = increments.batch_square(M) if anchor == "batch" else increments.mean_square
        T[corner(n, d)] += spread @ square
        epochs[M] = _Epoch(gain, T)
    return epochs


def _inner_moments(
    increments: Increments, a: float, lengths: Sequence[int], output: Output
) -> dict[int, tuple[Floats, Floats]]:
    """For each number of inner steps: the gain with E[w | G] = gain G, and the packed map E[G G^T] -> E[w w^T], of the
    w handed on."""
    d = increments.n_features
    skipped = {length: length // 2 if output == "tail" else 0 for length in lengths}  # steps whose w are not averaged
    n, w, G = 3 * d, slice(d, 2 * d), slice(2 * d, 3 * d)  # y = (r, w, G), r the sum of w_1, ..., w_t
    mean = np.eye(n)
    mean[w, w] += a * increments.A
    mean[w, G] = a * np.eye(d)
    mean[:d] += mean[w]
    means = powers(mean, {*lengths, *skipped.values()})

    summed = output in ("average", "tail")
    first = 0 if summed else d  # r is not needed, then
    step = operator(lambda Y: _inner_step(increments, a, Y, summed), n - first)
    if output == "random":  # beside the triangle of (w, G), the sum of E[w_t w_t^T]
        ww = step[corner(2 * d, d)]
        step = np.block([[np.eye(len(ww)), ww], [np.zeros((len(step), len(ww))), step]])
    size = triangle(d)
    chosen = corner(n - first, d) if output != "random" else np.arange(size)
    wG, GG = slice(-triangle(2 * d), None), slice(-size, None)  # triangles of (w, G) and of G, at the end of any
    steps = powers(step, {k for length, skip in skipped.items() for k in (skip, length - skip)})
    found = {}
    for length, skip in skipped.items():
        if output == "last":
            gain, scale = means[length][w, G], 1
        else:
            count = length - skip
            gain, scale = (means[length] - means[skip])[:d, G] / count, count if output == "random" else count**2
        found[length] = gain, steps[length - skip][chosen][:, wG] @ steps[skip][wG, GG] / scale
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
            "step_size and batch_size must be stable, with a spectral radius of moments below 1",
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
    match output:
        case "average":
            check_features(d, 'VRTD with output="average"')
        case "tail":
            check_features(d, 'VRTD with output="tail"')
        case _:
            check_features(d, "VRTD")
