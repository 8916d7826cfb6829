"""Maps of positive values: their colours, regions and legend."""

import numpy as np
import pytest

from vrtd.plots import draw_map, new_panels


def test_a_map_shows_what_overflows_as_the_ceiling_and_names_its_regions():
    axes = new_panels(1)[0]
    values = np.array([[0.1, 5.0], [np.inf, 0.2]])
    regions = {"here": np.array([[True, False], [False, False]]), "not": np.zeros((2, 2), bool)}
    keys = draw_map(
        axes, np.array([1, 4]), np.array([0.1, 1.0]), values,
        ceiling=2.0, x_label="", y_label="", colour_label="", regions=regions,
    )  # fmt: skip
    assert [key.get_label() for key in keys] == ["here: applies", "not: applies nowhere"]
    mesh = axes.collections[0]
    assert np.ravel(mesh.get_array()).tolist() == [0.1, 2.0, 2.0, 0.2]
    assert axes.get_xlim() == pytest.approx((0.5, 8.0))  # half an octave about each centre, an octave below the first
