"""Fits of a small log with all kinds of settings; fits that several tests read are made once."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import vrtd
from tests.helpers.some_logs import DISCOUNT, chunk
from vrtd.features import RBF, Scaled
from vrtd.logs import Chunk

N = 20_000
SETTINGS: dict[str, dict[str, Any]] = {
    "auto": {},
    "the best method": {"algorithm": "auto"},
    "auto, told how many rows": {"n_samples": N},
    "auto, few pilot rows": {"pilot_rows": 700},
    "td": {"algorithm": "td"},
    "closed_form": {"algorithm": "closed_form"},
    "given": {"step_size": 0.02, "batch_size": 777},
    "an algorithm": {"algorithm": vrtd.VRTD(0.05, 500), "closed_form": True},
    "features from data": {"features": Scaled(RBF(3)), "step_size": 0.1, "batch_size": 100, "pilot_rows": 1234},
}


def make_evaluator(**settings: Any) -> vrtd.Evaluator:
    """Return an evaluator whose observations are features, with VRTD unless the settings say otherwise."""
    return vrtd.Evaluator(**({"algorithm": "vrtd", "features": None, "discount": DISCOUNT} | settings))


def fitted(**settings: Any) -> vrtd.Evaluator:
    return make_evaluator(**settings).fit(chunk(0, N))


@cache
def whole_fit(name: str) -> vrtd.Evaluator:
    """The fit with the settings of this name; it is shared, so it must not learn on."""
    return fitted(**SETTINGS[name])


@cache
def whole_diagnostics(name: str) -> dict[str, Any]:
    return whole_fit(name).diagnostics_.as_dict()


def fed(pieces: Any, **settings: Any) -> vrtd.Evaluator:
    evaluator = make_evaluator(**settings)
    for first, last in pieces:
        evaluator.partial_fit(chunk(first, last))
    return evaluator


def weighted(first: int, last: int) -> Chunk:
    return chunk(first, last)._replace(weight=np.full(last - first, 2.0))
