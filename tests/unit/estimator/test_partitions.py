"""Fits in partitions: equal to a fit of all rows in order, with the same bits on any executor."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow.parquet import write_table
from threadpoolctl import threadpool_limits

import vrtd
from tests.helpers.random_logs import random_log
from tests.helpers.tasks import Shuffled, count_threads
from vrtd.errors import DataError, InvalidInputError
from vrtd.estimator import partitioned_fit
from vrtd.estimator.least_squares import flush
from vrtd.estimator.linear_estimate import estimate_point
from vrtd.estimator.partitioned_fit import _fit_on, open_partitions
from vrtd.estimator.partitions import PairwiseSum, PartFit, extend, later_state
from vrtd.executors import ProcessExecutor
from vrtd.logs import Chunk, Log, from_arrays, partition, read

N = 3008  # a multiple of the length of blocks: mean values leave out rows of an open block
OPTIONS: dict[str, Any] = {
    "observations": ["x", "y", "segment"], "reward": "gain", "terminated": "bought", "episode": "session",
    "episode_end": "terminated",
}  # fmt: skip


@pytest.fixture(autouse=True)
def small_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partitions of 200 rows."""
    for module in (partition, partitioned_fit, vrtd.logs.parts):
        monkeypatch.setattr(module, "PARTITION_ROWS", 200)


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessExecutor]:
    with ProcessExecutor(2) as executor:
        yield executor


def sessions(seed: int, n: int = N) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    session = np.cumsum(rng.random(n) < 0.1)
    x, y = rng.standard_normal(n).cumsum() % 3.0, rng.standard_normal(n)
    last = np.append(session[1:] != session[:-1], True)
    return {
        "x": x,
        "y": y,
        "segment": rng.choice(["new", "known", "rare"], n, p=[0.5, 0.45, 0.05]),
        "gain": x * 0.3 + y + rng.standard_normal(n),
        "bought": last & (rng.random(n) < 0.6),
        "session": session,
    }


def write_files(folder: Path, columns: dict[str, Any], n_files: int = 3) -> list[Path]:
    table, paths = pyarrow.table(columns), [folder / f"{i}.parquet" for i in range(n_files)]
    size = -(-len(table) // n_files)
    for i, path in enumerate(paths):
        write_table(table.slice(i * size, size), path, row_group_size=170)
    return paths


def fit(data: Any, discount: float = 0.9, executor: Executor | None = None, **options: Any) -> vrtd.Evaluator:
    evaluator = vrtd.Evaluator("closed_form", discount=discount, pilot_rows=500)
    return evaluator.fit(data, executor=executor, **(options or OPTIONS))


def in_order(data: Any, discount: float = 0.9, **options: Any) -> vrtd.Evaluator:
    """The fit of all rows without partitions."""
    evaluator = vrtd.Evaluator("closed_form", discount=discount, pilot_rows=500)
    return evaluator.partial_fit(data, **(options or OPTIONS))


def same_bits(one: vrtd.Evaluator, other: vrtd.Evaluator, folder: Path) -> None:
    """Two fits have the same state, as their files show."""
    paths = folder / "one.npz", folder / "other.npz"
    one.save(paths[0])
    other.save(paths[1])
    with np.load(paths[0]) as a, np.load(paths[1]) as b:
        assert a.files == b.files
        for name in a.files:
            assert a[name].tobytes() == b[name].tobytes(), name


def close(one: vrtd.Evaluator, other: vrtd.Evaluator) -> None:
    """Two fits agree up to rounding, apart from the blocks of rows."""
    a, b = one._state, other._state
    for name in ("n_rows", "n_distinct", "is_weighted"):
        assert getattr(a, name) == getattr(b, name), name
    for name in ("total", "squares", "total_phi"):
        mine, its = (getattr(flush(each.sums), name) for each in (a, b))
        np.testing.assert_allclose(mine, its, rtol=1e-9, atol=1e-9)
    for name in ("starts", "returns", "states"):
        mine, its = getattr(a.episodes, name), getattr(b.episodes, name)
        assert (mine is None) == (its is None)
        if mine is not None:
            np.testing.assert_allclose(mine.total, its.total, rtol=1e-9, atol=1e-9)
            assert mine.ends.rows == tuple(sorted(set(mine.ends.rows)))
    assert a.episodes.is_open == b.episodes.is_open
    if a.episodes.is_open:
        assert a.episodes.is_whole == b.episodes.is_whole
    if a.episodes.is_open and a.episodes.is_whole and a.episodes.returns is not None:
        np.testing.assert_allclose(a.episodes.total, b.episodes.total, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(a.episodes.factor, b.episodes.factor, rtol=1e-9)
        assert a.episodes.start.tobytes() == b.episodes.start.tobytes()
    n = min(a.n_sampled, b.n_sampled)  # the sample of a fit in partitions is from the first one
    if n:
        assert a.buffer.phi[:n].tobytes() == b.buffer.phi[:n].tobytes()
        assert a.starts[:n].tobytes() == b.starts[:n].tobytes()


@pytest.mark.parametrize("discount", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_files_in_partitions_give_the_estimate_of_all_rows(tmp_path: Path, discount: float, seed: int) -> None:
    paths = write_files(tmp_path, sessions(seed))
    whole, divided = in_order(paths, discount), fit(paths, discount)
    close(divided, whole)
    observations = {"x": [0.1, 1.0], "y": [0.0, 1.0], "segment": ["new", "rare"]}
    one, other = (each.predict(observations, return_interval=0.9) for each in (divided, whole))
    np.testing.assert_allclose(one.value, other.value, rtol=1e-9)
    np.testing.assert_allclose(one.high - one.low, other.high - other.low, rtol=0.3)  # blocks end elsewhere
    np.testing.assert_allclose(divided.policy_value().value, whole.policy_value().value, rtol=1e-9)
    np.testing.assert_allclose(divided.mean_value().value, whole.mean_value().value, rtol=1e-9)
    assert divided._state.log_remarks == whole._state.log_remarks


@pytest.mark.slow
def test_random_logs_in_partitions_give_the_sums_of_all_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, n_logs = np.random.default_rng(0), 0
    for _ in range(250):
        log = random_log(rng, tmp_path, most=150)
        if log is None:
            continue
        size, discount = int(rng.integers(1, 30)), float(rng.choice([0.0, 0.5, 0.9]))
        for module in (partition, partitioned_fit, vrtd.logs.parts):
            monkeypatch.setattr(module, "PARTITION_ROWS", size)
        chunk = next(log.chunks())
        features = vrtd.features.Identity().bind(chunk.observations)
        pilot = int(rng.integers(1, 20))
        whole, divided = (
            vrtd.Evaluator("closed_form", features=features, discount=discount, pilot_rows=pilot) for _ in range(2)
        )
        whole.partial_fit(log)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(vrtd.Evaluator, "_check", lambda self: self)  # few rows may not determine theta
            divided.fit(log)
        close(divided, whole)
        n_logs += 1
    assert n_logs > 180


def test_arrays_and_other_logs_are_cut_at_fixed_rows(tmp_path: Path, processes: ProcessExecutor) -> None:
    problem = vrtd.problems.random_mdp(seed=0)
    rows = vrtd.record(problem, 1000, seed=1, shuffle=False)
    arrays = from_arrays(rows.phi, rows.reward, rows.phi_next)
    chunks = list(arrays.chunks())

    class Whole(Log):
        """A log that says only what it must."""

        n_rows = None

        def chunks(self) -> Iterator[Chunk]:
            whole = Chunk.concatenate(chunks)
            for first in range(0, whole.n_rows, 77):
                yield whole.part(first, first + 77)

    for log in (arrays, Whole()):
        evaluators = [vrtd.Evaluator("closed_form", features=None, discount=0.9, pilot_rows=50) for _ in range(4)]
        evaluators[0].partial_fit(log)
        evaluators[1].fit(log)
        evaluators[2].fit(log, executor=processes)
        with Shuffled(seed=0) as shuffled:
            evaluators[3].fit(log, executor=shuffled)
        close(evaluators[1], evaluators[0])
        assert evaluators[1]._state.sums.ends != evaluators[0]._state.sums.ends
        same_bits(evaluators[1], evaluators[2], tmp_path)
        same_bits(evaluators[1], evaluators[3], tmp_path)


def test_bits_do_not_depend_on_the_executor(tmp_path: Path, processes: ProcessExecutor) -> None:
    paths = write_files(tmp_path, sessions(2))
    alone = fit(paths)
    with ProcessExecutor(1) as one_process, Shuffled(seed=0) as shuffled:
        executors: list[Executor] = [one_process, processes, shuffled]
        for executor in executors:
            same_bits(alone, fit(paths, executor=executor), tmp_path)
    assert shuffled.order != sorted(shuffled.order)


def test_linear_algebra_has_one_thread_as_in_a_worker() -> None:
    """With more threads, products of matrices can have other bits."""
    with threadpool_limits(2):
        assert count_threads(None, 0) == 2
        seen = []

        class Watched(Log):
            n_rows = None

            def chunks(self) -> Iterator[Chunk]:
                for first in range(0, 600, 100):
                    seen.append(count_threads(None, 0))
                    rows = np.random.default_rng(first).random((100, 2))
                    yield next(from_arrays(rows, rows[:, 0], rows).chunks())

        vrtd.Evaluator("closed_form", features=None, discount=0.5, pilot_rows=150).fit(Watched())
        assert seen[2:] == [1] * 4  # the first chunks bind the features
        assert count_threads(None, 0) == 2


def test_files_are_sent_at_once_and_rows_a_few_partitions_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting(Shuffled):
        n_submitted = 0

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            self.n_submitted += 1
            return super().submit(fn, *args, **kwargs)

    def count_sent(log: Log) -> tuple[int, int]:
        """Return the partitions of a log, and the most that are on their way at once."""
        given = vrtd.Evaluator("closed_form", features=None, discount=0.9, pilot_rows=200)._given
        partitioned, _ = open_partitions(given, log, None)
        assert partitioned is not None
        with Counting(seed=0) as executor, closing(_fit_on(executor, partitioned)) as fits:
            return partitioned.n_partitions, max(executor.n_submitted - i for i, _ in enumerate(fits))

    n_partitions, n_sent = count_sent(read(write_files(tmp_path, sessions(9)), **OPTIONS))
    assert n_partitions == n_sent > 8
    rows = np.random.default_rng(0).random((N, 2))
    monkeypatch.setattr(partitioned_fit, "_BYTES_AHEAD", 5 * rows[:200].nbytes)
    assert count_sent(from_arrays(rows, rows[:, 0], rows)) == (16, 5)


def test_a_sorted_log_and_a_target_policy(tmp_path: Path, processes: ProcessExecutor) -> None:
    columns = sessions(3)
    rng = np.random.default_rng(0)
    columns["when"], columns["choice"] = np.arange(N), rng.integers(0, 2, N)
    shuffled = {name: values[rng.permutation(N)] for name, values in columns.items()}
    order = np.argsort(rng.random(N))
    shuffled = {name: values[order] for name, values in columns.items()}
    options = OPTIONS | {"order_by": "when"}
    whole, divided = in_order(pyarrow.table(shuffled), **options), fit(pyarrow.table(shuffled), **options)
    close(divided, whole)
    same_bits(divided, fit(pyarrow.table(shuffled), executor=processes, **options), tmp_path)

    def evaluator() -> vrtd.Evaluator:
        return vrtd.Evaluator("closed_form", discount=0.9, pilot_rows=500, target=np.array([0, 1]))

    states = {**columns, "state": (columns["x"] > 1.5).astype(int)}
    options = OPTIONS | {"observations": "state", "action": "choice"}
    paths = write_files(tmp_path, states)
    whole, divided = evaluator().partial_fit(read(paths, **options)), evaluator().fit(paths, **options)
    close(divided, whole)
    same_bits(divided, evaluator().fit(paths, executor=processes, **options), tmp_path)


def test_a_bad_row_of_a_later_partition_is_named(tmp_path: Path, processes: ProcessExecutor) -> None:
    columns = sessions(4)
    columns["gain"][2500] = np.inf
    paths = write_files(tmp_path, columns)
    for executor in (None, processes):
        with pytest.raises(DataError, match=r"not finite at .*2\.parquet, column gain, row 494"):
            fit(paths, executor=executor)


def test_an_episode_that_appears_again_in_a_later_partition_is_an_error(tmp_path: Path) -> None:
    columns = sessions(5)
    columns["session"][2600:] = columns["session"][40]
    with pytest.raises(DataError, match=r"The episode \d+ appears again after another one, in a later part"):
        fit(write_files(tmp_path, columns))


def test_an_interrupted_fit_keeps_the_first_partitions(tmp_path: Path) -> None:
    columns = sessions(6)
    evaluator = vrtd.Evaluator("closed_form", discount=0.9, pilot_rows=500)

    def interrupt(done: int, total: int | None) -> None:
        assert total == N
        if done > 1500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluator.fit(write_files(tmp_path, columns), progress=interrupt, **OPTIONS)
    assert 1500 < evaluator.n_rows_ < 1800  # with the rows of the partition that was interrupted
    assert np.isfinite(evaluator.theta_).all()


def test_a_fit_in_partitions_can_be_saved_and_continued(tmp_path: Path) -> None:
    columns, later = sessions(7), sessions(8)
    later["session"] = later["session"] + 100_000
    paths = write_files(tmp_path, columns)
    divided = fit(paths)
    divided.save(tmp_path / "model.npz")
    loaded = vrtd.Evaluator.load(tmp_path / "model.npz")
    same_bits(divided, loaded, tmp_path)
    for each in (divided, loaded):
        each.partial_fit(pyarrow.table(later), **OPTIONS)
    same_bits(divided, loaded, tmp_path)
    whole = in_order(paths)
    whole.partial_fit(pyarrow.table(later), **OPTIONS)
    np.testing.assert_allclose(divided.theta_, whole.theta_, rtol=1e-9)


def test_other_methods_refuse_an_executor(processes: ProcessExecutor) -> None:
    for evaluator in (vrtd.Evaluator("td", discount=0.9), vrtd.Evaluator("gtd2", discount=0.9)):
        with pytest.raises(InvalidInputError, match="executor is for the closed form and"):
            evaluator.fit(sessions(0), executor=processes, **OPTIONS)
    with pytest.raises(InvalidInputError, match="executor is for one pass"):
        vrtd.Evaluator(discount=0.9).fit(sessions(0), executor=processes, n_passes=2, **OPTIONS)


def test_other_methods_learn_all_rows_in_order(tmp_path: Path) -> None:
    paths = write_files(tmp_path, sessions(0))
    for algorithm in (vrtd.TD(0.01), "vrtd"):
        one, other = (vrtd.Evaluator(algorithm, discount=0.9, pilot_rows=500) for _ in range(2))
        one.fit(paths, **OPTIONS)
        other.partial_fit(paths, **OPTIONS)
        np.testing.assert_array_equal(one.theta_, other.theta_)
        assert one.n_rows_ == other.n_rows_ == N


def test_sums_do_not_depend_on_the_order_of_arrival() -> None:
    for n in range(1, 40):
        expected = None
        for seed in range(3):
            numbers = list(range(n))
            random.Random(seed).shuffle(numbers)
            sums = PairwiseSum[str](lambda a, b: f"({a} {b})")
            for i in numbers:
                sums.put(i, str(i))
            assert expected in (None, sums.total)
            expected = sums.total
        assert expected is not None
        assert expected.replace("(", "").replace(")", "") == " ".join(map(str, range(n)))
    sums = PairwiseSum[str](lambda a, b: f"({a} {b})")
    for i in (0, 1, 2, 4, 5):
        sums.put(i, str(i))
    assert sums.total == "((0 1) 2)"


def runs_of(rows: Any, executor: Executor, algorithm: str = "auto", **options: Any) -> vrtd.Evaluator:
    evaluator = vrtd.Evaluator(algorithm, features=None, discount=0.95, pilot_rows=100, cost="linear")
    return evaluator.fit(rows, executor=executor, **options)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["richardson_td", "vrtd"])
def test_runs_on_partitions_are_averaged(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: ProcessExecutor
) -> None:
    for module in (partition, partitioned_fit, vrtd.logs.parts):
        monkeypatch.setattr(module, "PARTITION_ROWS", 1000)
    problem = vrtd.problems.random_mdp(seed=0)
    rows = vrtd.record(problem, 30_001, seed=1, shuffle=False)
    log = from_arrays(rows.phi, rows.reward, rows.phi_next)
    with ThreadPoolExecutor(1) as thread:
        found = runs_of(log, thread, algorithm)
    with Shuffled(seed=0) as shuffled:
        for executor in (processes, shuffled):
            same_bits(found, runs_of(log, executor, algorithm), tmp_path)
    assert found.n_rows_ == 30_001
    # The mean of the estimates of all runs, with the weights of their rows, of which each is corrected on its own.
    linear = found._state.linear
    assert len(linear.runs.ends.rows) == 30
    with ThreadPoolExecutor(1) as thread:
        each, _ = open_partitions(found._given, log, thread)
    assert each is not None
    estimates, n_rows = [], []
    for part in each.partitions:
        run = extend(each.setup, PartFit(later_state(each.setup, each.bound)), part.chunks()).state.linear
        if run.n_rows:  # the only row of the last partition waits
            estimates.append(estimate_point(run).theta)
            n_rows.append(run.n_rows)
    mean = np.average(estimates, axis=0, weights=n_rows)
    spread = np.std(estimates, axis=0) / np.sqrt(len(estimates))
    if algorithm == "richardson_td":  # VRTD with the rows of one run only is less accurate than its mean
        assert np.abs(found.theta_ - mean).max() < 0.5 * spread.max()
    exact = problem.phi @ problem.theta_star
    values = found.predict(problem.phi, return_interval=1 - 1e-8)  # 50 states: below 1e-6 that one lies outside
    assert ((values.low < exact) & (exact < values.high)).all()
    assert (values.high - values.low < 20 * np.std(exact)).all()
    assert found.mean_value().value == pytest.approx(float((rows.phi @ found.theta_).mean()), rel=1e-3)
    found.save(tmp_path / "runs.npz")
    same_bits(found, vrtd.Evaluator.load(tmp_path / "runs.npz"), tmp_path)
    with pytest.raises(InvalidInputError, match="cannot be continued, because it is a mean of runs"):
        found.partial_fit(log)


def test_auto_takes_extrapolated_td_for_runs(processes: ProcessExecutor) -> None:
    rng = np.random.default_rng(0)
    n, d = 2000, 600
    phi = rng.standard_normal((n, d))
    log = from_arrays(phi, rng.standard_normal(n), np.roll(phi, -1, axis=0))
    evaluator = vrtd.Evaluator(features=None, discount=0.5, pilot_rows=200).fit(log, executor=processes)
    assert evaluator.algorithm_.name == "richardson_td"
    assert np.isfinite(evaluator.theta_).all()
    phi = rng.standard_normal((500, 950))
    log = from_arrays(phi, phi[:, 0], np.roll(phi, -1, axis=0))
    evaluator = vrtd.Evaluator("closed_form", features=None, discount=0.5, pilot_rows=50)
    with pytest.raises(InvalidInputError, match="closed form of 950 features is not computed in partitions"):
        evaluator.fit(log, executor=processes)
