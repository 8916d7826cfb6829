"""The columns of the table of a sweep."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vrtd.sweeps.cell import Records
from vrtd.sweeps.design import Design
from vrtd.sweeps.exact import METHODS
from vrtd.tables import Table

_QUANTILES = ("q05", "q25", "q50", "q75", "q95")


def make_table(design: Design, records: Records) -> Table:
    """Return one row per cell, metric and checkpoint."""
    n_metrics, n_checkpoints = len(design.metrics), len(design.checkpoints)
    shape = len(records), n_metrics, n_checkpoints

    def spread(values: Any, axis: int) -> NDArray[Any]:
        """Return the values of one axis for each row."""
        column = np.asarray(values)
        return np.broadcast_to(column.reshape([-1 if k == axis else 1 for k in range(3)]), shape).ravel()

    cells = np.arange(len(records))
    settings = cells % design.n_settings
    table = {"problem": spread(np.array(design.names)[cells // design.n_settings], 0)}
    for (name, values), chosen in zip(design.grid.items(), design.choices(settings), strict=True):
        table[name] = spread(_column(values)[chosen], 0)
    table["metric"] = spread(np.array(design.metric_names), 1)
    table["n_gradients"] = spread(design.checkpoints, 2)
    table["n_samples"] = np.broadcast_to(records["n_samples"][:, None, :], shape).ravel()
    table["n_runs"] = np.full(np.prod(shape), design.n_runs)
    table |= {name: records[name].ravel() for name in ("mean", "standard_error")}
    table |= {name: records["quantiles"][:, :, k].ravel() for k, name in enumerate(_QUANTILES)}
    table |= {name: records[name].ravel() for name in ("n_diverged", "exact")}
    table["floor"] = np.broadcast_to(records["floor"][:, :, None], shape).ravel()
    table["method"] = spread(np.array(METHODS)[records["method"]], 0)
    return table


def _column(values: tuple[Any, ...]) -> NDArray[Any]:
    """Return values as numbers if possible, with NaN for None, else as text."""
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and kinds <= {int, float, bool, str}:
        return np.array(values)
    if kinds <= {int, float, type(None)} and kinds != {type(None)}:
        return np.array([np.nan if value is None else float(value) for value in values])
    return np.array(["" if value is None else str(value) for value in values])
