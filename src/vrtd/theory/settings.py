"""Choice of the step size and the batch size from a sample of the data ("auto")."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike

from vrtd.arrays import check_theta
from vrtd.checks import check_choice, check_count, check_positive
from vrtd.problems import Transitions
from vrtd.sparse import squared_norms
from vrtd.theory.modal import ModalOutput, ModalPredictor, SampleModes, find_modes, largest_stable_step
from vrtd.theory.predictions import Prediction
from vrtd.theory.sample_noise import check_rows
from vrtd.theory.search import LEAST_BATCH, STEP_RATIO, refine_grid

# Steps above this share of the stability limit are not chosen, because the limit is an estimate.
_MOST_SHARE = 0.85
# The step times `growth_ratio` stays below this. Epochs of VRTD were seen to diverge from 1.5 on.
MOST_GROWTH = 1.25
_EPOCH_RATIO = 1.5  # between the candidates for the number of epochs
_LEARNED = 0.5  # share of the initial error that counts as learned
# Fallback if the sample is too poor: a share of 1 / max |phi|^2 as the step, and the number of epochs.
_BLIND_SHARE, _BLIND_EPOCHS = 0.25, 8


class Settings(NamedTuple):
    """Chosen step size and batch size, with the predicted error.

    Attributes
    ----------
    step_size : float
        Step size.
    batch_size : int
        Transitions per batch; 1 for TD.
    n_epochs : int
        Epochs within the budget.
    error : float
        Predicted ``E|theta - theta_star|^2`` at the end; nan without a prediction.
    largest_step : float
        Estimated step size above which the second moment of the error grows.
    prediction : Prediction
        How the error was predicted; ``NONE`` if the data are too poor.
    reason : str
        Why there is no prediction.
    remarks : tuple of str
        Further remarks on the sample.
    """

    step_size: float
    batch_size: int
    n_epochs: int
    error: float
    largest_step: float
    prediction: Prediction
    reason: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        """Text that says how the error was predicted, or why it was not."""
        return self.prediction.describe(self.reason)


class LimitedStep(NamedTuple):
    """Step size that is limited to a stable one.

    Attributes
    ----------
    step_size : float
        The requested step size, or a smaller one.
    largest_step : float
        Estimated step size above which the second moment of the error grows.
    diverges : bool
        Whether the requested step size is above ``largest_step``.
    remark : str or None
        Text that says what was changed, and why.
    """

    step_size: float
    largest_step: float
    diverges: bool
    remark: str | None


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
    """Choose the step size and the batch size with the least predicted error after a budget of transitions.

    The prediction follows the eigenmodes of A of the sample. Poor data raise no error: then the settings are a cautious
    fallback, ``prediction`` is ``NONE`` and ``reason`` says why.

    Parameters
    ----------
    sample : Transitions
        Consecutive transitions of a trajectory like the one to learn from.
    budget : int
        Number of transitions to learn from. VRTD uses one batch of them per epoch.
    theta_0 : array_like of shape (n_features,), default=None
        Start. By default it is the zero vector.
    algorithm : {"vrtd", "td"}, default="vrtd"
        Algorithm to choose settings for.
    output : {"average", "random", "last"}, default="average"
        Iterate that an epoch of VRTD returns.
    largest_batch : int, default=None
        Upper limit of the batch size. By default it is the budget.
    step_size : float, default=None
        Step size to keep. By default it is chosen.
    batch_size : int, default=None
        Batch size to keep. By default it is chosen.

    Returns
    -------
    Settings
        Step size, batch size, epochs and predicted error.

    Examples
    --------
    >>> import vrtd
    >>> sample = vrtd.record(vrtd.problems.random_mdp(), 5000, shuffle=False)
    >>> settings = settings_for(sample, 100_000)
    >>> settings.method, settings.n_epochs * settings.batch_size <= 100_000, settings.step_size < settings.largest_step
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
    given = 1 if algorithm == "td" else int(batch_size or 0)  # 0 if it is to be chosen
    check_rows(sample)
    d = sample.n_features
    start = check_theta("theta_0", theta_0, d)
    rows = sample.reduce_rank(start)
    remarks: tuple[str, ...] = ()
    if rows.n_features < d:
        remarks = (
            f"the features of the sample span {rows.n_features} of {d} dimensions: theta stays at theta_0 elsewhere",
        )
    modes = find_modes(rows)
    reason = modes if isinstance(modes, str) else _why_blind(rows)
    if isinstance(modes, str) or reason is not None:
        step, limit = _blind_step(rows)
        M = given or max(1, min(most, budget // _BLIND_EPOCHS))
        step = float(step_size or step)
        return Settings(step, M, max(1, budget // M), np.nan, limit, Prediction.NONE, str(reason), remarks)
    system = SampleModes(rows, modes, sample.basis.T @ start)
    predictor, limit = ModalPredictor(system, output), system.largest_step
    # With a step below limit / budget not even the fastest mode would converge within the budget.
    count = 1 + int(np.log(max(budget, 100)) / np.log(STEP_RATIO))
    # The rows of one batch may be less varied than the sample, so the step also has to be stable for them.
    largest = min(_MOST_SHARE * limit, MOST_GROWTH / max(growth_ratio(rows), 1e-300))
    steps = np.asarray(largest / STEP_RATIO ** np.arange(count) if step_size is None else [step_size], np.float64)
    cells = [(given, max(1, budget // given))] if given else _batches(budget, most)
    errors, prediction, judge = predictor.grid(steps, cells), Prediction.MODES, predictor
    # If the budget cannot halve the error of theta, some directions cannot be learned. The values still can.
    if not errors.min() <= _LEARNED * predictor.initial:
        prediction, judge = Prediction.MODES_OF_VALUES, predictor.of_values()
        errors = judge.grid(steps, cells)
    found = refine_grid(judge, steps, cells, errors)
    error = found.error if judge is predictor else predictor.grid(np.array(found[:1]), [found[1:3]]).item()
    return Settings(*found[:3], error, limit, prediction, "", remarks)


def limit_step(sample: Transitions, step_size: float) -> LimitedStep:
    """Limit a step size to one for which the second moment of the error does not grow.

    Parameters
    ----------
    sample : Transitions
        Consecutive transitions.
    step_size : float
        The requested step size.

    Returns
    -------
    LimitedStep
        The requested step size if it is stable on the sample, otherwise 0.85 times the estimated stability limit.

    Examples
    --------
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
    remark = f"step_size {step:g} would diverge, because the stability limit of the data is {limit:.3g}; use {safe:.3g}"
    return LimitedStep(safe, limit, True, remark)


def _batches(budget: int, most: int) -> list[tuple[int, int]]:
    """Return pairs of batch size and number of epochs that use up the budget."""
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
        return "the sample has no noise"
    if rows.lag_window is None:
        return f"the noise is correlated over more than the sample of {len(rows)} rows"
    return None


def growth_ratio(sample: Transitions) -> float:
    """Return tr E[A_x^T A_x] / -tr A.

    Twice its inverse is about the step at which the second moment begins to grow. If phi and phi' have equal second
    moments, -tr A is E w ((1 - gamma) |phi|^2 + gamma |phi' - phi|^2 / 2), which is positive for every choice of rows.
    """
    phi, phi_next, gamma, weight = sample.phi, sample.phi_next, sample.discount, sample.weight
    if sample.is_sparse:
        size, moved, psi = (squared_norms(table) for table in (phi, phi_next - phi, sample.psi))
    else:
        size, moved = np.square(phi).sum(axis=1), np.square(phi_next - phi).sum(axis=1)
        psi = np.square(gamma[:, None] * phi_next - phi).sum(axis=1)
    total = float((weight * ((1.0 - gamma) * size + gamma * moved / 2.0)).sum())
    return float((weight**2 * size * psi).sum()) / total if total > 0.0 else 0.0


def _norm_limit(rows: Transitions) -> float:
    """Return 2 / max(phi . -psi); above this step, repeating a single row would make theta diverge."""
    pull = -np.einsum("ni,ni->n", rows.left, rows.psi)
    largest = float(pull.max())
    return 2.0 / largest if largest > 0.0 else np.inf


def _blind_step(rows: Transitions) -> tuple[float, float]:
    """Return a step that is safe for any data with features of this size, and the largest such step."""
    norm = float(max((rows.left**2).sum(axis=1).max(), (rows.psi**2).sum(axis=1).max()))
    return (_BLIND_SHARE / norm, 1.0 / norm) if norm > 0.0 else (1.0, np.inf)
