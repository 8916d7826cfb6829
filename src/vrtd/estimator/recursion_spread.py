"""Distribution of the error of TD and VRTD, from the second moments of their recursion."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vrtd.algorithms import TD, VRTD, Algorithm
from vrtd.arrays import Floats
from vrtd.errors import InvalidInputError
from vrtd.estimator.estimates import Estimates, block_degrees
from vrtd.estimator.learner import Learner
from vrtd.estimator.spread import Limit, Spread, find_slowness, split_noise
from vrtd.lazy import cached_property
from vrtd.problems import Transitions
from vrtd.series import block_covariances
from vrtd.sparse import to_dense
from vrtd.theory.recursion import recursion_moments

# After this many further epochs the initial transient is 0, and the mean error is bias.
_FOREVER = 1 << 40
# An interval is unreliable if the run is further from the closed form of the sample than this multiple of the expected
# distance.
_FAR = 5.0
_LEAST_ROWS = 32  # for a variance from block means
_LEAST_SEEN = 10  # the noise of a feature is known if it is not 0 in this many rows of the sample


@dataclass(frozen=True, eq=False, kw_only=True)
class RecursionSpread(Spread):
    """Spread of a recursion: its covariance, initial transient and bias; `influence` is that of the closed form."""

    covariance: Floats  # (d, d)
    remainder: Floats  # (d,) E theta - theta_star: transient and bias
    bias: Floats  # (d,) the part of the remainder that does not vanish with more rows
    optimal: Floats  # (d, d) n times the least covariance that is possible with n rows
    reference: Floats  # (d, d) covariance of the closed form of the rows from which `covariance` was computed
    start_covariance: Floats  # (d, d) additional covariance, because the distance of the start is an estimate

    def _estimates(self, phi: Floats) -> Estimates:
        of_blocks = block_degrees((self.influence - self.influence.mean(axis=0)) @ phi.T)
        degrees = np.where(self._inflation(phi) > 1.0, of_blocks, np.inf)
        return Estimates(phi @ self.theta, self.standard_error(phi), degrees, np.abs(phi @ self.remainder))

    def standard_error(self, phi: Floats) -> Floats:
        """Return the standard error of phi.theta for each row, including the uncertainty of the initial transient."""
        return np.sqrt(self._noise(phi) + _squares(phi, self.start_covariance))

    def _noise(self, phi: Floats) -> Floats:
        """Return the variance of phi.theta for each row."""
        return _squares(phi, self.covariance) * self._inflation(phi)

    @cached_property
    def _block_covariances(self) -> tuple[Floats, Floats]:
        return block_covariances(self.influence)

    def _inflation(self, phi: Floats) -> Floats:
        """Return the ratio of the variance of block means to the reference, at least 1, due to long correlations.

        Positive covariances of adjacent blocks are added, because blocks may be shorter than the correlation time.
        """
        own, between = self._block_covariances
        blocks = _squares(phi, own) + _squares(phi, between)
        known = _squares(phi, self.reference)
        return np.maximum(1.0, np.divide(blocks, known, out=np.ones_like(known), where=known > 0.0))

    def estimates(self, phi: Any) -> Estimates:
        """Estimate ``phi.theta`` with its standard error; the matrices need dense rows."""
        return super().estimates(to_dense(phi))

    def converged(self, phi: Floats) -> bool:
        """Check whether the initial transient is small and the intervals are reliable."""
        start = _rms(phi @ self.remainder) + float(np.sqrt(_squares(phi, self.start_covariance).mean()))
        return self.doubt is None and bool(start <= 1.96 * np.sqrt(self._noise(phi).mean()))

    def errors(self, phi: Floats, n_rows: int) -> dict[Limit, float]:
        """Estimate the parts of the error of ``phi.theta``."""
        variance = float(np.square(self.standard_error(phi)).mean())
        least = float(np.einsum("ni,ij,nj->n", phi, self.optimal, phi, optimize=True).mean()) / max(n_rows, 1)
        start: dict[Limit, float] = {
            "transient": _rms(phi @ (self.remainder - self.bias)),
            "bias": _rms(phi @ self.bias),
        }
        return start | split_noise(variance, least)


def measure_recursion(
    learner: Learner, sample: Transitions, reduced: Transitions, theta_0: Floats, n_distinct: int
) -> RecursionSpread:
    """Return the spread of TD or VRTD, from the second moment of its recursion with the moments of the sample.

    With several passes the recursion tends to the closed form of the distinct rows, whose covariance is added.
    `reduced` is the sample with features of full rank.
    """
    ends = [phase.first_epoch for phase in learner.phases[1:]] + [learner.n_epochs]
    legs = [
        (*_settings(phase.algorithm), end - phase.first_epoch)
        for phase, end in zip(learner.phases, ends, strict=True)
        if end > phase.first_epoch
    ]
    algorithm, n = learner.algorithm, len(sample)
    output = algorithm.returned if isinstance(algorithm, VRTD) else "last"
    assert output != "tail"  # growing batches have another kind of interval
    if n < _LEAST_ROWS:
        raise InvalidInputError(
            f"An interval of the recursion needs at least {_LEAST_ROWS} rows, but there are {n}.", "Use more data."
        )
    B = sample.basis
    start = B.T @ theta_0
    moments = recursion_moments(reduced, legs, start, output)
    if not np.isfinite(moments.covariance).all():
        raise InvalidInputError(
            "The recursion has no interval: "
            f"{moments.remark or f'its moments are not finite for the first {n:,} rows'}.",
            "Use more data, other features, or a smaller step.",
        )
    stays = np.zeros(B.shape[1])
    if legs and isinstance(algorithm, TD):  # the mean of VRTD's recursion tends to theta_star
        stays = recursion_moments(reduced, [(legs[-1][0], 1, _FOREVER)], start, output).mean
    covariance = moments.covariance
    if learner.n_rows > n_distinct:
        covariance = covariance + moments.optimal / max(n_distinct, 1)
    # theta_star of the sample is an estimate, so that the distance of the start is uncertain.
    left = moments.left @ moments.optimal @ moments.left.T / n
    optimal = B @ moments.optimal @ B.T
    blocks = reduced.merged_influence @ B.T
    n_seen = (sample.phi != 0.0).sum(axis=0)
    found = RecursionSpread(
        theta=learner.theta.copy(),
        influence=blocks,
        spans=sample.spans,
        unseen=np.flatnonzero(n_seen == 0),
        rare=np.flatnonzero((n_seen > 0) & (n_seen < _LEAST_SEEN)),
        covariance=B @ covariance @ B.T,
        remainder=B @ moments.mean,
        bias=B @ stays,
        optimal=optimal,
        # Plus one standard error, so that the noise of block means rarely widens an interval.
        reference=optimal / n * (1.0 + np.sqrt(2.0 / len(blocks))),
        start_covariance=B @ left @ B.T,
    )
    doubt = moments.remark or find_slowness(reduced, n) or _find_mismatch(found, sample, reduced, theta_0)
    return replace(found, doubt=doubt)


def _find_mismatch(found: RecursionSpread, sample: Transitions, reduced: Transitions, theta_0: Floats) -> str | None:
    """Return why the sample does not describe the run, or None."""
    moved, n = found.theta - theta_0, len(sample)
    outside = sample.outside(moved)
    if outside @ outside > 1e-6 * (moved @ moved):
        return f"later rows have features outside the span of the first {n:,} rows"
    phi, closed_form = sample.phi, sample.basis @ reduced.theta_star + sample.outside(theta_0)
    expected = _rms(found.standard_error(phi)) + _rms(phi @ found.remainder)
    expected += float(np.sqrt(_squares(phi, found.optimal / n).mean()))
    if not _rms(phi @ (found.theta - closed_form)) <= _FAR * expected:
        return f"the run is further from the closed form of the first {n:,} rows than its noise explains"
    return None


def _settings(algorithm: Algorithm) -> tuple[float, int]:
    """Return the step and batch size of an algorithm whose moments are known."""
    if isinstance(algorithm, VRTD):
        return float(algorithm.step_size), int(algorithm.batch_size)
    assert isinstance(algorithm, TD)
    return float(algorithm.largest_step_size), 1


def _squares(phi: Floats, form: Floats) -> Floats:
    """Return phi^T form phi for each row, or 0 where it is negative."""
    square: Floats = np.maximum(np.einsum("ni,ij,nj->n", phi, form, phi, optimize=True), 0.0)
    return square


def _rms(values: Floats) -> float:
    return float(np.sqrt(np.square(values).mean()))
