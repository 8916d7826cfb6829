"""A sweep in a process of its own, for tests that kill it: ``python sweep_driver.py OUT LOG [SECONDS]``.

Every computed cell is one line of LOG, which is written when the cell begins.
"""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

import vrtd
from vrtd.sweeps import cell, groups, segments

GRID = {"step_size": [0.001 * k for k in range(1, 41)], "radius": [None, 10.0]}
SIZE: dict[str, Any] = {"n_runs": 4, "n_gradients": 500, "threads": 1, "exact": False}


def run(out: str, log: str, seconds: float) -> None:
    """Run the sweep, with a pause of some seconds in each cell."""
    measure_cell = cell._measure_cell

    def slowly(design: Any, i: int, *rest: Any) -> Any:
        with open(log, "a") as file:
            file.write(f"{i}\n")
        time.sleep(seconds)
        return measure_cell(design, i, *rest)

    cell._measure_cell = slowly
    segments._PAUSE = 0.0  # write after every group
    groups._SECONDS = groups._LEAST_SECONDS = 1e-9
    vrtd.sweep("boyan_chain", "td", GRID, out=out, **SIZE)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
    run(sys.argv[1], sys.argv[2], float(sys.argv[3]))
