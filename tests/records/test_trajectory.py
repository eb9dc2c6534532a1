"""Values at places along training, and the first step of something, for members that differ."""

import numpy as np
import pytest
import xarray as xr

from saccade.records.trajectory import at_place, at_start, fall, first_step, half_rise

STEPS = [0, 10, 30]


def trajectory(values) -> xr.DataArray:
    """Two rates (so two times) x two seeds x three recorded steps."""
    time = (("rate", "step"), np.outer([0.1, 0.2], STEPS))
    coordinates = {"rate": [0.1, 0.2], "seed": [3, 4], "step": STEPS, "time": time}
    return xr.DataArray(np.asarray(values, float), coordinates, ("rate", "seed", "step"))


LOSS = trajectory([[[4.0, 2.0, 1.0], [2.0, 3.0, 4.0]], [[1.0, 1.0, 0.0], [8.0, 4.0, np.nan]]])


def test_fall_is_the_last_value_as_a_share_of_the_first():
    expected = xr.DataArray(
        [[0.25, 2.0], [0.0, np.nan]], {"rate": [0.1, 0.2], "seed": [3, 4]}, ("rate", "seed")
    )
    xr.testing.assert_identical(fall(LOSS), expected)


def test_nothing_has_fallen_by_the_first_step():
    assert np.all(fall(LOSS.isel(step=[0])) == 1)


def test_values_at_a_place_of_each_member_have_no_steps_any_more():
    place = xr.DataArray([[0, 2], [1, 0]], {"rate": [0.1, 0.2], "seed": [3, 4]}, ("rate", "seed"))
    found = at_place(LOSS, place)
    np.testing.assert_array_equal(found, [[4, 4], [1, 8]])
    assert set(found.coords) == {"rate", "seed"}
    xr.testing.assert_identical(at_start(LOSS), at_place(LOSS, 0 * place))


@pytest.mark.parametrize("never", [np.nan, np.inf])
def test_first_step_is_that_of_each_member_or_never(never: float):
    found = first_step(LOSS < 2.5, never)
    np.testing.assert_array_equal(found, [[10, 0], [0, never]])
    assert set(found.coords) == {"rate", "seed"}


def test_half_rise_lies_between_recorded_steps_on_a_line():
    steps = [0, 10, 20, 40]
    rising = xr.DataArray(
        [[1.0, 2.0, 4.0, 5.0], [0.0, 0.0, 0.0, 8.0]],
        {"seed": [0, 1], "step": steps},
        ["seed", "step"],
    )
    rising = rising.assign_coords(time=("step", np.asarray(steps, float)))
    # Half of the way from 1 to 5 is 3, half-way between steps 10 and 20; half of 8 is half-way
    # between 20 and 40.
    np.testing.assert_allclose(half_rise(rising), [15.0, 30.0])


def test_half_rise_of_what_does_not_rise_is_nan():
    steps = [0, 10]
    values = xr.DataArray([[1.0, 1.0], [2.0, 1.0], [1.0, 3.0]], {"step": steps}, ["seed", "step"])
    values = values.assign_coords(time=("step", np.asarray(steps, float)))
    found = half_rise(values)
    assert np.isnan(found[0])
    assert np.isnan(found[1])
    assert float(found[2]) == 5.0
