"""Settings of the lab that show one thing each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from vrtd.lab.settings import LabSettings


class Preset(NamedTuple):
    """Named settings, and what to look at."""

    title: str
    text: str
    settings: LabSettings
    view: Mapping[str, str] = MappingProxyType({})  # what only the page needs to know


PRESETS = {
    "floor": Preset(
        "VRTD lowers the floor",
        "Both algorithms take the same step size. TD levels off almost at once. VRTD levels off lower. "
        "Move the batch size: the larger the batch, the lower the floor and the fewer the epochs.",
        LabSettings(batch_size=500, n_gradients=20_000),
    ),
    "trade_off": Preset(
        "TD is fast or accurate",
        "Move the step size of TD. A large step falls fast and levels off high. A small step levels off low, but takes "
        "long to get there. In the map on the left edge (batch size 1) the best step for this budget is in between.",
        LabSettings(algorithm="td", also=(), step_size=0.02, n_gradients=10_000),
    ),
    "growing": Preset(
        "Growing batches do not level off",
        "Batches that grow by a factor from epoch to epoch use almost all samples in the last batch, so the error "
        "keeps falling. VRTD with batches of one size levels off.",
        LabSettings(sampling="markov", algorithm="vrtd_growing", also=("vrtd", "td"), n_gradients=30_000),
    ),
    "bias": Preset(
        "Averaged TD settles off the mark",
        "Along a trajectory, the mean of TD's iterates does not tend to the solution (the star), but to a point beside "
        "it, however long it runs. Richardson-Romberg TD combines the means of three step sizes and comes back. Lower "
        "the step size: the distance shrinks with it. Choose independent samples: it disappears.",
        LabSettings(
            n_features=2, sampling="markov", algorithm="td_averaged", also=("richardson_td",), step_size=0.3,
            n_gradients=30_000,
        ),
    ),
    "plane": Preset(
        "Two features, seen from above",
        "Each line in the plane is theta of one run, and each dot is the end of a run. TD keeps wandering around the "
        "solution. VRTD comes much closer with the same step size.",
        LabSettings(n_features=2, algorithm="vrtd", also=("td",), batch_size=1000, n_gradients=20_000),
        {"plane": "whole"},
    ),
    "counter_example": Preset(
        "The counter-example to Theorem 1",
        "The next state is decided by a fair coin, and the runs start at the solution. The exact error lies above the "
        "bound that Theorem 1 of the paper states, although all of its conditions hold. The corrected bound lies "
        "above it.",
        LabSettings(
            chain="coin", discount=0.5, algorithm="vrtd", also=(), step_size=0.02, batch_size=2000, n_gradients=40_000,
            radius=1.0,
        ),
    ),
    "divergence": Preset(
        "A step that is too large",
        "The step size is beyond the stability limit, the line in the map. The mean squared error grows without bound, "
        "and runs overflow. From there on no mean is drawn.",
        LabSettings(algorithm="td", also=(), step_size=2.0, n_gradients=20_000),
    ),
}  # fmt: skip
