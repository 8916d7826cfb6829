"""Linear cost with many features: no d x d matrix, whatever is asked of a fit, and memory that rows do not fill."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

import vrtd
from tests.helpers.fits import make_evaluator
from vrtd.estimator import sample_inverse
from vrtd.logs import Chunk

D, N, PIECE, PILOT = 3000, 2500, 250, 250
MATRIX = 8 * D * D  # bytes


@pytest.fixture(scope="module")
def rows() -> Chunk:
    rng, no = np.random.default_rng(0), np.zeros(N, bool)
    phi = rng.normal(size=(N + 1, D)) / np.sqrt(D)
    return Chunk(phi[:-1], rng.normal(size=N), phi[1:], no, no)


def learn(rows: Chunk, algorithm: str, n: int) -> vrtd.Evaluator:
    evaluator = make_evaluator(algorithm=algorithm, cost="linear", pilot_rows=PILOT)
    for first in range(0, n, PIECE):
        evaluator.partial_fit(rows.part(first, first + PIECE))
    return evaluator


def ask(evaluator: vrtd.Evaluator, rows: Chunk) -> list[Any]:
    at = rows.observations[:20]
    found = [evaluator.predict(at, return_interval=0.95), evaluator.mean_value(0.95), evaluator.theta_interval(0.95)]
    return [*found, evaluator.diagnostics_.as_dict(), str(evaluator.diagnostics_), repr(evaluator)]


@pytest.fixture
def small_matrices_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse the factors of a matrix with d rows and d columns or more."""

    def refuse(place: Any, name: str) -> None:
        original = getattr(place, name)

        def guarded(matrix: Any, *args: Any, **options: Any) -> Any:
            assert min(np.shape(matrix)[-2:]) < D, name
            return original(matrix, *args, **options)

        monkeypatch.setattr(place, name, guarded)

    for name in ("eig", "eigh", "eigvals", "eigvalsh", "svd", "qr", "solve", "inv", "pinv", "lstsq", "cholesky"):
        refuse(np.linalg, name)
    refuse(sample_inverse, "lu_factor")


@pytest.mark.filterwarnings("ignore:The intervals are unreliable")  # of fewer rows than features
@pytest.mark.usefixtures("small_matrices_only")
@pytest.mark.parametrize("algorithm", ["auto", "vrtd"])
def test_nothing_takes_a_matrix(algorithm: str, rows: Chunk) -> None:
    ask(learn(rows, algorithm, 750), rows)  # compile and import before memory is counted
    tracemalloc.start()
    try:
        few = learn(rows, algorithm, N // 2)
        kept = tracemalloc.get_traced_memory()[0]
        many = learn(rows, algorithm, N)
        grown = tracemalloc.get_traced_memory()[0] - 2 * kept
        del few
        found = ask(many, rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.isfinite(found[0].low).all()
    assert found[2].value.tobytes() == many.theta_.tobytes()
    each = many.predict(np.eye(3, D, 600), return_interval=0.95)
    np.testing.assert_allclose([bound[600:603] for bound in found[2]], each, rtol=1e-9)
    assert peak - kept < MATRIX
    assert grown < 0.1 * (N // 2) * 16 * D  # less than a tenth of the rows between


@pytest.mark.usefixtures("small_matrices_only")
def test_a_page_takes_no_matrix(rows: Chunk) -> None:
    assert "n_steps 1,500" in learn(rows, "auto", 750)._repr_html_()
