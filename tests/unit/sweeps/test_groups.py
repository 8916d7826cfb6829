"""Groups of cells: neighbours have the same compiled loop, and the sizes follow the times of earlier groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba.core import event

import vrtd
from vrtd.sweeps.cell import MeasuredCells
from vrtd.sweeps.design import Design
from vrtd.sweeps.groups import Groups


def measured(cells: Any, seconds: float) -> MeasuredCells:
    return MeasuredCells(cells, np.zeros(len(cells)), 0.0, 0.0, seconds)


def loops_of(problems: Any, algorithm: Any, grid: Any, **size: Any) -> Any:
    """Return the numbers of the compiled loops of the cells."""
    found = []
    original = Design.check_settings

    def keep(self: Design) -> Any:
        found.append(original(self))
        return found[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Design, "check_settings", keep)
        vrtd.sweep(problems, algorithm, grid, **size)
    return found[0].reshape(-1, *(len(values) for values in grid.values()))


def test_every_cell_is_in_one_group_and_loops_are_neighbours() -> None:
    loops = np.arange(1000) % 3
    missing = np.arange(0, 1000, 2)
    groups = list(Groups(missing, loops, 10**6))
    assert sorted(np.concatenate(groups)) == missing.tolist()
    of_groups = [set(loops[group]) for group in groups]
    assert all(len(each) == 1 for each in of_groups)
    order = [each.pop() for each in of_groups]
    assert order == sorted(order)


def test_a_group_takes_about_a_second_once_the_loop_has_been_timed() -> None:
    groups = Groups(np.arange(100_000), np.zeros(100_000, np.int64), 10**6)
    each = iter(groups)
    first = next(each)
    assert 0.001 * len(first) <= 0.25
    groups.add_times(measured(first, 0.05 * len(first)))
    assert len(next(each)) == 20
    groups.add_times(measured(np.arange(100_000 - len(first)), 0.0005 * (100_000 - len(first))))
    assert len(next(each)) == pytest.approx(2000, rel=0.05)


def test_the_last_groups_are_short() -> None:
    groups = Groups(np.arange(1000), np.zeros(1000, np.int64), 10**6)
    each = iter(groups)
    groups.add_times(measured(next(each), 0.01 * 12))
    sizes = [len(group) for group in each]
    assert sizes[0] > 3 * sizes[-1]


def test_an_empty_sweep_has_no_groups() -> None:
    assert list(Groups(np.array([], np.int64), np.zeros(5, np.int64), 10)) == []


@pytest.mark.slow
def test_cells_have_the_same_number_exactly_if_they_have_the_same_loop() -> None:
    small = {"n_runs": 2, "n_gradients": 200, "threads": 1, "exact": False}
    grid = {"step_size": [0.1, 0.2], "batch_size": [10, 20], "output": ["last", "random"], "n_steps": [None, 5]}
    loops = loops_of("boyan_chain", "vrtd", grid, **small)
    assert len(np.unique(loops)) == 4
    assert (loops == loops[:, :1, :1]).all()
    problems = {"a": vrtd.problems.boyan_chain(), "b": vrtd.problems.random_walk(), "c": vrtd.problems.boyan_chain()}
    loops = loops_of(problems, "td", {"step_size": [0.1, 0.2], "average": [True, False]}, **small)
    assert (loops[0] == loops[2]).all()
    assert not set(loops[0].ravel()) & set(loops[1].ravel())


def test_a_new_setting_with_the_number_of_a_known_one_compiles_nothing() -> None:
    small = {"n_runs": 2, "n_gradients": 100, "threads": 1, "exact": False}
    vrtd.sweep("boyan_chain", "td", {"step_size": [0.1]}, **small)
    with event.install_recorder("numba:compile") as recorder:
        loops = loops_of("boyan_chain", "td", {"step_size": [0.3, 0.1]}, **small)
    assert len(set(loops.ravel())) == 1
    assert len(recorder.buffer) == 0
