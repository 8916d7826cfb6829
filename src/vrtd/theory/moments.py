"""Exact first and second moments of TD and VRTD on independent transitions, without simulation.

Let y = (u, 1) with u = theta - theta_star. Every method here multiplies y by random matrices that do not depend on y.
So Y = E[y y^T] follows a linear recursion, and a run is a matrix power. `vrtd.theory.increments` has the notation.

TD: u' = u + a Z_x y, hence Y' = Y + a (Z Y + its transpose) + a^2 E[Z_x Y Z_x^T], where Z acts on the rows of u. With
several iterates with steps a, 2a, 4a, ... on the same samples, and a running sum of them, y is longer (`Iterates`).

One epoch of VRTD adds w to u, where w_0 = 0, w_{t+1} = w_t + a (A_x w_t + G) and G = mean over the batch of Z_x y. The
pair (w, G) is also multiplied by random matrices that do not depend on it. So E[w w^T] and E[w G^T] after the inner
steps are linear in E[G G^T], again by a matrix power, and the epoch is one linear map of Y.
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
from vrtd.errors import UnstableStepError
from vrtd.theory.checks import Computation, check_features
from vrtd.theory.increments import Correlation, Increments, lag_operator
from vrtd.theory.symmetric import corner, operator, orbit, pack, powers, triangle, unpack

Anchor = Literal["batch", "mean"]

# Earlier batches are neglected if their covariance with the current batch is below this share of its own covariance.
_NEGLIGIBLE = 1e-10
_OF_LEVELS: dict[int, Computation] = {
    2: "RichardsonTD with 2 levels",
    3: "RichardsonTD with 3 levels",
    4: "RichardsonTD with 4 levels",
}


@dataclass(frozen=True, eq=False)
class Moments:
    """First and second moments along a run.

    Attributes
    ----------
    mean : ndarray of shape (n_times, d)
        ``E theta_k``.
    second : ndarray of shape (n_times, d, d)
        ``E[u_k u_k^T]`` with ``u_k = theta_k - theta_star``.
    """

    mean: Floats
    second: Floats

    @property
    def squared_error(self) -> Floats:
        """Expected squared error ``E|theta_k - theta_star|^2``, of shape (n_times,)."""
        return np.asarray(np.einsum("kii->k", self.second))


class Iterates(NamedTuple):
    """Layout of y = (r, u^0, ..., u^(K-1), 1).

    u^m is the error of TD with the step 2^m a on the same samples, and r is the running sum of h_m u^m. Without weights
    h there is no r.
    """

    levels: int = 1  # K
    weights: tuple[float, ...] = ()  # h; (1.0,) for averaged TD

    def size(self, d: int) -> int:
        """Return the length of y."""
        return (self.levels + bool(self.weights)) * d + 1

    def rows(self, d: int) -> list[slice]:
        """Return the position of each u^m in y."""
        first = d if self.weights else 0
        return [slice(first + m * d, first + (m + 1) * d) for m in range(self.levels)]

    def start(self, u: Floats) -> Floats:
        """Return y before the first update."""
        sums = np.zeros(len(u) if self.weights else 0)
        return np.concatenate([sums, np.tile(u, self.levels), [1.0]])

    def add_sum(self, Y: Floats, sign: float = 1.0) -> Floats:
        """Add ``sign`` times the weighted sum of the u^m to r in Y = E[y y^T], in place, and return Y."""
        d = (Y.shape[-1] - 1) // (self.levels + bool(self.weights))
        for weight, u in zip(self.weights, self.rows(d), strict=False):
            _add_rows(Y, slice(d), u, sign * weight)
        return Y

    def check_features(self, d: int) -> None:
        """Raise if there are more features than these moments are computed for."""
        check_features(d, _OF_LEVELS.get(self.levels, "averaged TD" if self.weights else "TD"))


LAST_ITERATE = Iterates()  # plain TD


def td_terms(increments: Increments, iterates: Iterates = LAST_ITERATE) -> tuple[Floats, Floats, Floats]:
    """Return T_0, T_1, T_2 of TD's map T = T_0 + a T_1 + a^2 T_2 on pack(Y)."""
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
    """Return a matrix with `matrix` times the rows `source` of Y in its `rows`, and 0 elsewhere."""
    product = np.zeros_like(Y)
    product[..., rows, :] = matrix @ Y[..., source, :]
    return product


def _add_rows(Y: Floats, rows: slice, source: slice, factor: float = 1.0) -> Floats:
    """Add `factor` times the rows `source` of Y to its `rows`, then the same with columns, in place, and return Y."""
    Y[..., rows, :] += factor * Y[..., source, :]
    Y[..., :, rows] += factor * Y[..., :, source]
    return Y


class EpochMap(NamedTuple):
    """Maps of pack(Y) for the first epoch, and for later ones, whose batches are correlated with earlier batches."""

    first: Floats
    later: Floats

    def orbit(self, x: Floats, counts: NDArray[np.int64]) -> Floats:
        """Return pack(Y) after each of the increasing counts of epochs, (len(counts), len(x))."""
        begun = counts > 0
        path = np.repeat(x[None], len(counts), axis=0)
        path[begun] = orbit(self.later, self.first @ x, counts[begun] - 1)
        return path


class _Epoch(NamedTuple):
    """An epoch whose batch is independent of all others: E[u'] = E[u] + gain E[G], and the map of pack(Y)."""

    gain: Floats
    map: Floats

    def decay(self, A: Floats) -> Floats:
        """Return the factor by which the epoch multiplies E[u]."""
        return np.asarray(np.eye(len(A)) + self.gain @ A)


def epoch_maps(
    increments: Increments,
    step_size: float,
    batch_sizes: Iterable[int],
    output: Output,
    anchor: Anchor = "batch",
    n_steps: int | None = None,
) -> dict[int, EpochMap]:
    """Return the map of one epoch on pack(Y) for each batch size M; the powers of the inner loop are shared.

    An epoch makes M inner steps, or ``n_steps`` if that is less. Inner samples are treated as independent of each other
    and of the batch. This is exact for Algorithm 1 and an approximation for Algorithm 2, on a trajectory. There the
    covariance of the mean over a batch is exact, and so is the covariance of the means of successive batches. With
    E = I + gain A, a later epoch adds the sum over j of E^j gain Cov_j gain^T and its transpose, where Cov_j is the
    covariance of the means of a batch and of the j-th batch after it.
    """
    maps = {}
    for M, epoch in _separate_epochs(increments, float(step_size), batch_sizes, output, anchor, n_steps).items():
        maps[M] = EpochMap(epoch.map, _later_map(increments, epoch, M))
    return maps


def successive_epoch_maps(
    increments: Increments, step_size: float, batch_sizes: Sequence[int], output: Output, n_steps: int | None = None
) -> tuple[list[Floats], Floats]:
    """Return the maps of the first epochs, with batches of these sizes, and of later epochs, with the last size.

    The rest is as for ``epoch_maps``. The covariance of the means of a batch and of every earlier one is exact.
    """
    epochs = _separate_epochs(increments, float(step_size), batch_sizes, output, "batch", n_steps)
    maps = []
    for k, M in enumerate(batch_sizes):
        current, T = epochs[M], epochs[M].map
        if increments.correlation is not None:
            least = _NEGLIGIBLE * float(np.abs(_pair_sum(increments.correlation, M)).max())
            kept, gap = current.decay(increments.A), 0
            for size in reversed(batch_sizes[:k]):  # backwards in time; `kept` is the factor of an error since then
                common = _pairs_between(increments.correlation, size, gap, M)
                if not np.abs(common).max() > least:
                    break
                T = T + _remember(kept @ epochs[size].gain, common / (size * M), current.gain)
                kept, gap = kept @ epochs[size].decay(increments.A), gap + size
        maps.append(T)
    return maps, _later_map(increments, epochs[batch_sizes[-1]], batch_sizes[-1])


def _later_map(increments: Increments, epoch: _Epoch, M: int) -> Floats:
    """Return the map of an epoch after many epochs with batches of the same size."""
    if increments.correlation is None:
        return epoch.map
    decay = epoch.decay(increments.A)
    return epoch.map + _remember(decay @ epoch.gain, increments.correlation.between(M, decay) / M**2, epoch.gain)


def _pairs_between(correlation: Correlation, earlier: int, gap: int, later: int) -> Floats:
    """Return the sum of C_k over pairs of transitions from two batches with `gap` transitions between them."""
    whole = _pair_sum(correlation, earlier + gap + later) + _pair_sum(correlation, gap)
    return whole - _pair_sum(correlation, earlier + gap) - _pair_sum(correlation, gap + later)


def _pair_sum(correlation: Correlation, n: int) -> Floats:
    """Return the sum of C_k over pairs of n consecutive transitions."""
    return n * correlation.within(max(n, 1))


def _remember(kept: Floats, common: Floats, gain: Floats) -> Floats:
    """Return the part of the map of an epoch that comes from the covariance with the mean of an earlier batch."""
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
    """Return an epoch with an independent batch for each batch size."""
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
    """Return the gain and the packed map E[G G^T] -> E[w w^T] of the output w, for each number of inner steps.

    The gain is the matrix with E[w | G] = gain G.
    """
    d = increments.n_features
    skipped = {length: length // 2 if output == "tail" else 0 for length in lengths}  # first steps, not averaged
    n, w, G = 3 * d, slice(d, 2 * d), slice(2 * d, 3 * d)  # y = (r, w, G), r the sum of w_1, ..., w_t
    mean = np.eye(n)
    mean[w, w] += a * increments.A
    mean[w, G] = a * np.eye(d)
    mean[:d] += mean[w]
    means = powers(mean, {*lengths, *skipped.values()})

    summed = output in ("average", "tail")
    first = 0 if summed else d  # without sums r is not needed
    step = operator(lambda Y: _inner_step(increments, a, Y, summed), n - first)
    if output == "random":  # add the sum of E[w_t w_t^T] to the triangle of (w, G)
        ww = step[corner(2 * d, d)]
        step = np.block([[np.eye(len(ww)), ww], [np.zeros((len(step), len(ww))), step]])
    size = triangle(d)
    chosen = corner(n - first, d) if output != "random" else np.arange(size)
    wG, GG = slice(-triangle(2 * d), None), slice(-size, None)  # triangles of (w, G) and of G are always at the end
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
    """Apply one inner step to E[y y^T], y = (w, G) or (r, w, G): w += a A_x w, then w += a G, then r += w."""
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
    """Return E[u u^T], (d, d), of the fixed point of the map of an epoch; raise unless it is mean-square stable."""
    return unpack(fixed_point_vector(T, what)[corner(d + 1, d)], d)


def fixed_point_vector(T: Floats, what: str) -> Floats:
    """Return x of the fixed point (x, 1) of a map whose last coordinate is constant."""
    radius = inner_radius(T)
    if not radius < 1.0:
        raise UnstableStepError(
            f"the second moment diverges with {what}: the spectral radius of its map is {radius:.6g}, not below 1.",
            "Lower step_size.",
        )
    return np.asarray(np.linalg.solve(np.eye(len(T) - 1) - T[:-1, :-1], T[:-1, -1]), dtype=np.float64)


def inner_radius(T: Floats) -> float:
    """Return the spectral radius of T without its last coordinate, the 1 of y."""
    inner = T[:-1, :-1]
    return float(np.abs(np.linalg.eigvals(inner)).max()) if np.isfinite(inner).all() else np.inf


def read_moments(path: Floats, theta_star: Floats) -> Moments:
    """Return the moments from packed Y along a run."""
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
    """Raise if there are more features than the map of an epoch is computed for."""
    match output:
        case "average":
            check_features(d, 'VRTD with output="average"')
        case "tail":
            check_features(d, 'VRTD with output="tail"')
        case _:
            check_features(d, "VRTD")
