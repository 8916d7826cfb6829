"""The function ``record``, which keeps the transitions of one simulated run in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from vrtd.algorithms import ChainSampling
from vrtd.checks import check_choice, check_count, check_fits, check_flag, require
from vrtd.engine.arguments import bind_problem, choose_sampling
from vrtd.kernels.jit import UNBOUND, specialise
from vrtd.kernels.random import ENVIRONMENT, make_streams
from vrtd.problems import LinearProblem, Simulator, Transitions
from vrtd.sources.source import make_slots

_TEST_ROWS, _TEST_RUN = 100_000, 2**62  # no simulation reaches this run number

reset = draw = read = UNBOUND  # bound to the kernels of one source


def write_rows(data, slots, cursor, stream, phi, reward, phi_next, discount, weight, ends):
    """Write the transitions of a run to arrays: the template of the compiled loop."""
    reset(data, slots, 0, cursor, stream)
    for i in range(reward.size):
        x = read(data, slots, 0, draw(data, slots, 0, 0, cursor, stream))
        reward[i], discount[i], weight[i], ends[i] = x.reward, x.discount, x.weight, x.carry == 0.0
        for j in range(phi.shape[1]):
            phi[i, j], phi_next[i, j] = x.phi[x.row, j], x.phi_next[x.row_next, j]


def record(
    problem: LinearProblem | Simulator,
    n_rows: int,
    *,
    sampling: ChainSampling = "markov",
    seed: int = 0,
    run: int = 0,
    initial: int | ArrayLike = "stationary",
    shuffle: bool = True,
) -> Transitions:
    """Return the first transitions of one run of ``simulate``.

    They are those of ``simulate`` with the same problem, sampling and seed.

    Parameters
    ----------
    problem : LinearProblem or Simulator
        Problem that supplies the transitions.
    n_rows : int
        Number of transitions.
    sampling : {"markov", "iid"}, default="markov"
        Kind of samples: one trajectory ("markov") or independent draws ("iid").
    seed : int, default=0
        Seed of the random streams.
    run : int, default=0
        Number of the run.
    initial : "stationary", int or array_like of shape (S,), default="stationary"
        State in which the trajectory begins, or its distribution.
    shuffle : bool, default=True
        Shuffle the rows, so that batches of consecutive rows are alike. False keeps their order.

    Returns
    -------
    Transitions
        The rows, which can be simulated with ``sampling="dataset"``.

    Raises
    ------
    InvalidInputError
        If an argument is invalid.

    Examples
    --------
    >>> import vrtd
    >>> vrtd.record(vrtd.problems.random_mdp(), 1000)
    Transitions(1000 rows, 4 features)
    """
    check_choice("sampling", sampling, ("iid", "markov"))
    for name, value, least in (("n_rows", n_rows, 1), ("seed", seed, 0), ("run", run, 0)):
        check_count(name, value, least=least)
    wrong_type = f"problem must be a LinearProblem or a Simulator, but got {problem!r}."
    require(isinstance(problem, LinearProblem | Simulator), wrong_type, "Build LinearProblem(mrp, phi).")
    check_flag("shuffle", shuffle)
    source = bind_problem(problem, choose_sampling(problem, sampling), initial, specialise=False)
    n, d = int(n_rows), source.n_features
    check_fits(f"The rows, n_rows={n} with {d} features", 16 * n * (d + 2), "Record fewer rows.")
    rows = np.empty((n, d)), np.empty(n), np.empty((n, d)), np.empty(n), np.empty(n), np.empty(n, np.bool_)
    bindings = {"reset": source.reset, "draw": source.draw, "read": source.read}
    loop = specialise(write_rows, f"record_{source.name}", bindings)
    cursor = np.zeros(source.cursor_size, source.cursor_dtype)
    stream = make_streams(seed, np.array([run]), ENVIRONMENT)[0]
    loop(source.data, make_slots(source, 1, 1), cursor, stream, *rows)
    order = np.random.default_rng([seed, run]).permutation(n) if shuffle else slice(None)
    phi, reward, phi_next, discount, weight, ends = (values[order] for values in rows)
    if shuffle or sampling == "iid":
        ends[:] = True
    return Transitions(phi, reward, phi_next, discount, weight if (weight != 1.0).any() else None, ends)


def record_test_rows(simulator: Simulator) -> Transitions:
    """Return transitions for estimating the metrics of a simulator. No run of ``simulate`` uses them."""
    return record(simulator, _TEST_ROWS, run=_TEST_RUN, shuffle=False)
