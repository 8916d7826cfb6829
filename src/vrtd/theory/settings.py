"""Which step and batch size to learn with, from what a pilot stretch of the data shows ("auto")."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from vrtd.arrays import check_theta
from vrtd.checks import check_choice, check_count, check_positive
from vrtd.problems import Transitions
from vrtd.theory.modal import ModalOutput, ModalPredictor, SampleModes, find_modes, largest_stable_step
from vrtd.theory.predictions import Prediction
from vrtd.theory.sample_noise import check_rows
from vrtd.theory.search import LEAST_BATCH, STEP_RATIO, refine_grid

# Steps above this share of the limit of stability are not chosen: the limit is itself an estimate.
_MOST_SHARE = 0.85
# Steps times `growth_ratio` stay below this: epochs of VRTD were seen to diverge from 1.5 on.
MOST_GROWTH = 1.25
_EPOCH_RATIO = 1.5  # of the candidates
_LEARNED = 0.5  # of the error at the start
# Where the sample cannot tell: a share of 1 / max |phi|^2, and of the budget.
_BLIND_SHARE, _BLIND_EPOCHS = 0.25, 8


class Settings(NamedTuple):
    """What to learn with, and what is expected of it."""

    step_size: float
    batch_size: int  # 1 for TD
    n_epochs: int
    error: float  # E|theta - theta_star|^2 at the end, as predicted; nan where it is not
    largest_step: float  # beyond it the second moment of the error grows, as far as the sample shows
    prediction: Prediction  # how the error was predicted; NONE if the data are too poor
    reason: str = ""  # why it was not
    remarks: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """How the error was predicted, or why it was not, in words."""
        return self.prediction.describe(self.reason)


class LimitedStep(NamedTuple):
    """A step that was asked for, made safe."""

    step_size: float  # the one that was asked for, or a smaller one
    largest_step: float  # beyond it the second moment of the error grows, as far as the sample shows
    diverges: bool  # whether the one that was asked for is beyond it
    remark: str | None  # what was changed and why, in words


def settings_for(
    sample: Transitions,
    budget: int,
    theta_0: ArrayLike | None = None,
    *,
    algorithm: Literal["vrtd", "td"] = "vrtd",
    output: ModalOutput = "average",
    largest_batch: int | None = None,
    step_size: float | None = None,
    batch_size: int | None = None,
) -> Settings:
    """The step and batch size with the least predicted error after `budget` transitions of a trajectory like `sample`.

    A `step_size` or `batch_size` that is given is kept, and only the other is chosen. VRTD uses M transitions an epoch,
    in whole epochs. Data that are merely poor raise no error: `prediction` is then NONE and `reason` says why.

    >>> import vrtd
    >>> sample = vrtd.record(vrtd.problems.random_mdp(), 5000, shuffle=False)
    >>> found = settings_for(sample, 100_000)
    >>> found.method, found.n_epochs * found.batch_size <= 100_000, found.step_size < found.largest_step
    ('modes of A', True, True)
    """
    check_count("budget", budget)
    for name, count in (("largest_batch", largest_batch), ("batch_size", batch_size)):
        if count is not None:
            check_count(name, count)
    check_choice("algorithm", algorithm, ("vrtd", "td"))
    check_choice("output", output, get_args(ModalOutput))
    if step_size is not None:
        check_positive("step_size", step_size)
    budget = int(budget)
    most = min(budget, int(largest_batch or budget))
    given = 1 if algorithm == "td" else int(batch_size or 0)  # 0: to be chosen
    check_rows(sample)
    d = sample.n_features
    start = check_theta("theta_0", theta_0, d)
    rows = sample.reduce_rank(start)
    remarks: tuple[str, ...] = ()
    if rows.n_features < d:
        remarks = (f"the features of the sample span {rows.n_features} of {d} dimensions: the rest keeps its start",)
    modes = find_modes(rows)
    reason = modes if isinstance(modes, str) else _why_blind(rows)
    if isinstance(modes, str) or reason is not None:
        step, limit = _blind_step(rows)
        M = given or max(1, min(most, budget // _BLIND_EPOCHS))
        step = float(step_size or step)
        return Settings(step, M, max(1, budget // M), np.nan, limit, Prediction.NONE, str(reason), remarks)
    system = SampleModes(rows, modes, sample.basis.T @ start)
    predictor, limit = ModalPredictor(system, output), system.largest_step
    # A step of less than limit / budget would not have moved the fastest mode at the end.
    count = 1 + int(np.log(max(budget, 100)) / np.log(STEP_RATIO))
    # The rows of a batch may be less varied than the sample: a step for which they are unstable would be lowered there.
    largest = min(_MOST_SHARE * limit, MOST_GROWTH / max(growth_ratio(rows), 1e-300))
    steps = np.asarray(largest / STEP_RATIO ** np.arange(count) if step_size is None else [step_size], np.float64)
    cells = [(given, max(1, budget // given))] if given else _batches(budget, most)
    errors, prediction, judge = predictor.grid(steps, cells), Prediction.MODES, predictor
    # Where the budget cannot halve the error of theta, some directions are beyond reach: values can still be learned.
    if not errors.min() <= _LEARNED * predictor.initial:
        prediction, judge = Prediction.MODES_OF_VALUES, predictor.of_values()
        errors = judge.grid(steps, cells)
    found = refine_grid(judge, steps, cells, errors)
    error = found.error if judge is predictor else predictor.grid(np.array(found[:1]), [found[1:3]]).item()
    return Settings(*found[:3], error, limit, prediction, "", remarks)


def limit_step(sample: Transitions, step_size: float) -> LimitedStep:
    """Whether the second moment of the error would grow with this step, and the largest one that is safe.

    >>> import vrtd
    >>> sample = vrtd.record(vrtd.problems.random_mdp(), 5000, shuffle=False)
    >>> limit_step(sample, 0.1).remark is None, limit_step(sample, 10.0).diverges
    (True, True)
    """
    check_positive("step_size", step_size)
    check_rows(sample)
    rows = sample.reduce_rank()
    modes = find_modes(rows)
    limit = _norm_limit(rows) if isinstance(modes, str) else largest_stable_step(rows, modes)
    step = float(step_size)
    if step < limit:
        return LimitedStep(step, limit, False, None)
    safe = _MOST_SHARE * limit
    remark = f"step_size {step:g} would diverge: the data are stable up to {limit:.3g}; take {safe:.3g} instead"
    return LimitedStep(safe, limit, True, remark)


def _batches(budget: int, most: int) -> list[tuple[int, int]]:
    """(batch size, epochs) that use the budget up."""
    least = min(LEAST_BATCH, most)
    fewest, largest = -(-budget // most), budget // least
    n, epochs = float(fewest), {fewest, largest, *range(fewest, min(fewest + 6, largest + 1))}
    while n < largest:
        epochs.add(int(n))
        n *= _EPOCH_RATIO
    sizes = {budget // n for n in epochs}
    return [(M, budget // M) for M in sorted(sizes) if least <= M <= most]


def _why_blind(rows: Transitions) -> str | None:
    scale = float(np.abs(rows.reward).max())
    if not np.abs(rows.noise).max() > 1e-12 * max(scale, 1e-300) * float(np.abs(rows.left).max()):
        return "there is no noise on the sample"
    if rows.lag_window is None:
        return f"correlation outlasts the sample of {len(rows)} rows"
    return None


def growth_ratio(sample: Transitions) -> float:
    """tr E[A_x^T A_x] / -tr A: twice its inverse is about the step at which the second moment begins to grow.

    With equal second moments of phi and phi', -tr A is E w ((1 - gamma) |phi|^2 + gamma |phi' - phi|^2 / 2), which is
    positive for every choice of rows.
    """
    phi, phi_next, gamma, weight = sample.phi, sample.phi_next, sample.discount, sample.weight
    size, moved = np.square(phi).sum(axis=1), np.square(phi_next - phi).sum(axis=1)
    psi = np.square(gamma[:, None] * phi_next - phi).sum(axis=1)
    total = float((weight * ((1.0 - gamma) * size + gamma * moved / 2.0)).sum())
    return float((weight**2 * size * psi).sum()) / total if total > 0.0 else 0.0


def _norm_limit(rows: Transitions) -> float:
    """2 / max(phi . -psi): beyond, a row that comes again and again would push theta ever further."""
    pull = -np.einsum("ni,ni->n", rows.left, rows.psi)
    largest = float(pull.max())
    return 2.0 / largest if largest > 0.0 else np.inf


def _blind_step(rows: Transitions) -> tuple[float, float]:
    """Return a step that is safe for any data of this size, and the largest that is."""
    norm = float(max((rows.left**2).sum(axis=1).max(), (rows.psi**2).sum(axis=1).max()))
    return (_BLIND_SHARE / norm, 1.0 / norm) if norm > 0.0 else (1.0, np.inf)
