"""The second moment at which the error of a method with a constant step settles."""

from __future__ import annotations

from typing import Literal, get_args

from vrtd.algorithms import ChainSampling
from vrtd.arrays import Floats, frozen
from vrtd.checks import check_choice
from vrtd.errors import InvalidInputError
from vrtd.problems import LinearProblem
from vrtd.theory.checks import check_problem
from vrtd.theory.enumeration import enumerated_epoch_map
from vrtd.theory.increments import correlated_increments, independent_increments
from vrtd.theory.markov import MarkovTD, stationary_by_state
from vrtd.theory.moments import Anchor, Output, check_vrtd_features, checked_epoch_map, fixed_point


def stationary_second_moment(
    problem: LinearProblem,
    step_size: float,
    batch_size: int = 1,
    output: Output = "random",
    anchor: Anchor = "batch",
    sampling: ChainSampling = "iid",
    method: Literal["exact", "approximate"] = "exact",
) -> Floats:
    """(d, d) limit of E[u u^T] for VRTD; for TD with the default batch size of 1.

    On a trajectory with batches above 1 (Algorithm 2) it is exact on tiny chains; elsewhere `method="approximate"` must
    be asked for. With the `anchor` "mean" (independent samples only) the limit is 0.

    >>> from vrtd.problems import random_mdp
    >>> problem = random_mdp()
    >>> [round(float(stationary_second_moment(problem, 0.1, M).trace()), 3) for M in (1, 50)]
    [1.669, 1.056]
    >>> round(float(stationary_second_moment(problem, 0.1, sampling="markov").trace()), 3)
    0.536
    """
    check_problem(problem)
    check_choice("sampling", sampling, get_args(ChainSampling))
    check_choice("method", method, ("exact", "approximate"))
    what, d = f"step_size {step_size}, batch_size {batch_size}", problem.n_features
    if sampling == "markov" and anchor != "batch":
        raise InvalidInputError(
            'anchor "mean" is for independent samples', f"sampling {sampling!r}", "drop one of them"
        )
    check_vrtd_features(d, output)
    increments = independent_increments(problem) if sampling == "iid" else correlated_increments(problem)
    T = checked_epoch_map(increments, step_size, batch_size, output, anchor)
    if sampling == "iid" or (method == "approximate" and batch_size > 1):
        return frozen(fixed_point(T, d, what))
    if batch_size == 1:
        return frozen(MarkovTD(problem).stationary(float(step_size)))
    exact = enumerated_epoch_map(problem, float(step_size), int(batch_size), output)
    return frozen(stationary_by_state(exact, problem.mrp.stationary, d, what))
