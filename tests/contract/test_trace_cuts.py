"""No trace goes on where the rows of a log do not: at truncations, between segments, from one pass to the next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.some_logs import split
from tests.reference.sampling import Sample
from tests.reference.traces import td_lambda, true_online_td
from vrtd.errors import DataError, InvalidInputError
from vrtd.features import Fourier
from vrtd.logs import Chunk, Log

GAMMA, N = 0.9, 400
ALGORITHM = vrtd.TDLambda(0.1, 0.7)
RNG = np.random.default_rng(0)
PHI, PHI_NEXT = RNG.normal(size=(2, N, 4)) / 2
REWARD, TERMINATED, TRUNCATED = RNG.normal(size=N), RNG.random(N) < 0.05, RNG.random(N) < 0.1
TRUNCATED[-1] = TERMINATED[-1] = False


def rows(first: int = 0, last: int = N, truncated: Any = TRUNCATED) -> Chunk:
    part = slice(first, last)
    return Chunk(PHI[part], REWARD[part], PHI_NEXT[part], TERMINATED[part], truncated[part])


def expected(ends: Any, n_passes: int = 1, algorithm: Any = ALGORITHM) -> Any:
    discount = np.where(TERMINATED, 0.0, GAMMA)
    samples = list(map(Sample, PHI, PHI_NEXT, REWARD, discount, np.ones(N), ends)) * n_passes
    transcription = {"td_lambda": td_lambda, "true_online_td": true_online_td}[algorithm.name]
    return transcription(algorithm, "markov", iter(samples).__next__, None, np.zeros(4), N * n_passes)[-1]


class VectorLog(Log):
    """Rows of several environments, in chunks that do not care for their segments."""

    segment = 13
    n_rows = N

    def chunks(self) -> Iterator[Chunk]:
        for first in range(0, N, 30):
            chunk = rows(first, min(N, first + 30))
            room = [values.copy() for values in chunk[:5]]
            yield Chunk(*room)
            for values in room:  # as a log may use its memory again
                values.fill(1)


def evaluator(features: Any = None, **settings: Any) -> vrtd.Evaluator:
    return vrtd.Evaluator(ALGORITHM, features=features, discount=GAMMA, **settings)


@pytest.mark.parametrize("algorithm", [ALGORITHM, vrtd.TrueOnlineTD(0.1, 0.7)], ids=lambda algorithm: algorithm.name)
def test_a_trace_does_not_go_on_from_a_truncation(algorithm: Any) -> None:
    theta = vrtd.Evaluator(algorithm, features=None, discount=GAMMA).fit(rows()).theta_
    np.testing.assert_allclose(theta, expected(TRUNCATED, algorithm=algorithm), rtol=1e-11, atol=1e-13)
    leak = expected(TERMINATED, algorithm=algorithm)
    assert np.abs(theta - leak).max() > 1e-3


def test_a_trace_goes_on_from_fit_to_partial_fit() -> None:
    whole = evaluator().fit(rows()).theta_
    last = int(np.flatnonzero(~(TRUNCATED | TERMINATED))[200])
    parts = evaluator().fit(rows(0, last + 1)).partial_fit(rows(last + 1))
    assert parts.theta_.tobytes() == whole.tobytes()


def test_intervals_of_the_closed_form_are_refused_for_methods_with_traces() -> None:
    found = vrtd.Evaluator(vrtd.LSTD(0.7), features=None, discount=GAMMA, closed_form=True).fit(rows())
    with pytest.raises(
        InvalidInputError, match=r"Closed-form intervals exist only for trace_decay=0, .* but trace_decay is 0.7"
    ):
        found.predict(PHI[:2], return_interval=0.9, method="closed_form")


def test_a_trace_does_not_go_on_from_one_environment_to_another() -> None:
    theta = evaluator().fit(VectorLog()).theta_
    ends = TRUNCATED | (np.arange(1, N + 1) % VectorLog.segment == 0)
    np.testing.assert_allclose(theta, expected(ends), rtol=1e-11, atol=1e-13)
    assert np.abs(theta - expected(TRUNCATED)).max() > 1e-3


@pytest.mark.parametrize("kind", ["chunk", "log"])
def test_a_trace_does_not_go_on_from_one_pass_to_the_next(kind: str) -> None:
    ends = TRUNCATED.copy()
    if kind == "log":
        ends |= np.arange(1, N + 1) % VectorLog.segment == 0
    theta = evaluator().fit(rows() if kind == "chunk" else VectorLog(), n_passes=2).theta_
    leak = expected(ends, 2)
    ends[-1] = True
    np.testing.assert_allclose(theta, expected(ends, 2), rtol=1e-11, atol=1e-13)
    assert np.abs(theta - leak).max() > 1e-7  # a pass later little is left of it, but it is seen


@pytest.mark.parametrize(
    "algorithm",
    [ALGORITHM, vrtd.TrueOnlineTD(0.1, 0.7), vrtd.LSTD(0.7), vrtd.RecursiveLSTD(0.7)],
    ids=lambda algorithm: algorithm.name,
)
def test_traces_do_not_depend_on_how_rows_are_split_or_models_stored(algorithm: Any, tmp_path: Path) -> None:
    whole = vrtd.Evaluator(algorithm, features=None, discount=GAMMA).fit(rows()).theta_
    for seed in range(3):
        parts = vrtd.Evaluator(algorithm, features=None, discount=GAMMA)
        for first, last in split(N, seed, 60):
            parts.partial_fit(rows(first, last))
            parts.save(tmp_path / "model.npz")
            parts = vrtd.Evaluator.load(tmp_path / "model.npz")
        assert parts.theta_.tobytes() == whole.tobytes()


def test_rows_that_wait_for_the_features_keep_their_truncations(tmp_path: Path) -> None:
    """Features that take their range from data see 100 rows first; the log of several environments comes in two."""
    features = Fourier(3)

    def one_number(log: Any, first: int = 0, last: int = N) -> Chunk:
        return Chunk(PHI[first:last, 0].copy(), *log[1:2], PHI_NEXT[first:last, 0].copy(), *log[3:])

    parts = evaluator(features=features, pilot_rows=100)
    for first, last in ((0, 37), (37, N)):
        parts.partial_fit(one_number(rows(first, last), first, last))
        parts.save(tmp_path / "model.npz")
        parts = vrtd.Evaluator.load(tmp_path / "model.npz")
    cut = evaluator(features=features, pilot_rows=100).fit(one_number(rows())).theta_
    leaking = evaluator(features=features, pilot_rows=100).fit(one_number(rows(truncated=TERMINATED))).theta_
    assert parts.theta_.tobytes() == cut.tobytes()
    assert np.abs(cut - leaking).max() > 1e-3


def test_a_bad_chunk_of_several_environments_is_refused() -> None:
    class Bad(VectorLog):
        def chunks(self) -> Iterator[Chunk]:
            yield rows()._replace(truncated=TRUNCATED.tolist())  # type: ignore[arg-type]

    with pytest.raises(DataError, match="The field 'truncated' of a chunk must be an array with one bool per row"):
        evaluator().fit(Bad())
