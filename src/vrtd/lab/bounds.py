"""Which bounds the lab shows, as calls of functions of ``vrtd.theory``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vrtd import theory
from vrtd.errors import InvalidInputError
from vrtd.lab.settings import LabSettings
from vrtd.problems import LinearProblem
from vrtd.theory import Bound


class BoundCall(NamedTuple):
    """Call of a bound, without the problem and the start."""

    label: str
    function: str  # of vrtd.theory
    arguments: dict[str, Any]


def compute_bound(call: BoundCall, problem: LinearProblem) -> Bound[Any] | str:
    """Return a bound for runs from 0, or why it does not exist on this chain."""
    try:
        bound: Bound[Any] = getattr(theory, call.function)(
            problem, theta_0=np.zeros(problem.n_features), **call.arguments
        )
    except InvalidInputError as error:
        return str(error)
    return bound


def choose_bounds(settings: LabSettings) -> list[BoundCall]:
    """Return the bounds of the main algorithm; averages and growing batches have none."""
    step = {"step_size": settings.step_size}
    radius = {} if settings.radius is None else {"radius": settings.radius}
    batch = step | {"batch_size": settings.batch_size}
    match settings.algorithm, settings.sampling:
        case "vrtd", "iid":
            return [
                BoundCall("Theorem 1, printed", "vrtd_iid_bound", batch | radius | {"form": "printed"}),
                BoundCall("Theorem 1, corrected", "vrtd_iid_bound", batch | radius | {"form": "corrected"}),
                BoundCall("Theorem 1, sharpened", "vrtd_iid_bound", batch | {"form": "sharp"}),
            ]
        case "vrtd", _:
            return [
                BoundCall("Theorem 2, printed", "vrtd_markov_bound", batch | radius | {"form": "printed"}),
                BoundCall("Theorem 2, corrected", "vrtd_markov_bound", batch | radius | {"form": "corrected"}),
            ]
        case "td", "iid":
            return [
                BoundCall("Appendix F.1, printed", "td_iid_bound", step | {"form": "printed"}),
                BoundCall("Appendix F.1, sharpened", "td_iid_bound", step | {"form": "sharp"}),
            ]
        case "td", _:
            return [BoundCall("Appendix F.2", "td_markov_bound", step | radius)]
    return []
