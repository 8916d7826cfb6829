"""Rows of a stream as the estimator gets them, and learners that take them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.reference.sampling import Sample
from vrtd.estimator.learner import Learner, first_learner
from vrtd.problems import Transitions

GAMMA = 0.9


def some_rows(n: int, d: int, dtype: Any = np.float64, weighted: bool = False, seed: int = 0) -> Transitions:
    rng = np.random.default_rng(seed)
    phi, phi_next = (rng.normal(size=(2, n, d)) / np.sqrt(d)).astype(dtype)
    weight = rng.uniform(0.5, 1.5, n) if weighted else None
    reward, terminated = rng.normal(size=n), rng.random(n) < 0.1
    ends = terminated | (rng.random(n) < 0.3)
    return Transitions.wrap(phi, reward, phi_next, np.where(terminated, 0.0, GAMMA), weight, ends)


def with_columns(rows: Transitions, **changes: Any) -> Transitions:
    """The rows with other columns, unchecked."""
    columns = {name: getattr(rows, name) for name in ("phi", "reward", "phi_next", "discount", "ends")}
    return Transitions.wrap(**({"weight": rows.weight if rows.is_weighted else None} | columns | changes))


def to_samples(rows: Transitions) -> list[Sample]:
    """Transitions for the transcriptions."""
    return list(map(Sample, rows.phi, rows.phi_next, rows.reward, rows.discount, rows.weight, rows.ends))


def drawer(rows: Transitions) -> Any:
    """The same, one at a call."""
    transitions = iter(to_samples(rows))
    return lambda: next(transitions)


def learner(algorithm: Any, d: int, seed: int = 3) -> Learner:
    return first_learner(algorithm, None, np.linspace(-1.0, 1.0, d), seed)
