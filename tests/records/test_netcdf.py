"""Files of records are read and written as xarray reads and writes them."""

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from saccade.errors import FileError
from saccade.records.netcdf import read_groups, write_groups
from saccade.records.sealed import read_sealed

RESULTS = Path(__file__).parents[2] / "results"


def assert_read_as_by_xarray(payload: bytes) -> None:
    ours = read_groups(payload)
    with xr.open_datatree(io.BytesIO(payload), engine="h5netcdf") as tree:
        tree.load()
        assert set(ours) == {node.path for node in tree.subtree}
        for node in tree.subtree:
            theirs = node.to_dataset()
            xr.testing.assert_identical(ours[node.path], theirs)
            assert list(ours[node.path]) == list(theirs), "in the same order"
            types = [
                {name: one.dtype for name, one in both.variables.items()}
                for both in (ours[node.path], theirs)
            ]
            assert types[0] == types[1]


def test_all_kinds_of_variables():
    data = xr.Dataset(
        {
            "loss": (("seed", "step"), np.asarray([[1.5, np.nan], [0.1, np.inf]]), {"units": "1"}),
            "single": (("seed", "part"), np.ones((2, 3), np.float32)),
            "stopped": ("seed", np.asarray([True, False])),
            "count": ((), np.int64(7)),
            "nothing": ("empty", np.zeros(0)),
            "names": (("step", "bare"), np.asarray([["a", "long text"], ["", "é"]])),
            "large": ("many", np.arange(1000.0)),
        },
        {"seed": [3, 4], "step": [0, 10], "part": ["keys", "queries", "values"]},
        {"seconds": 1.5, "text": "", "digest": "ab"},
    )
    data = data.assign_coords(time=("step", [0.0, 0.1]), kind=("seed", ["x", "y"]))
    groups = {"/": xr.Dataset(attrs={"a": 1}), "/arms/FC": data}
    encoding = {"/arms/FC": {"large": {"zlib": True, "shuffle": True}}}
    tree = xr.DataTree.from_dict(groups)
    theirs = tree.to_netcdf(None, engine="h5netcdf", encoding=encoding)
    assert_read_as_by_xarray(bytes(theirs))  # pyright: ignore[reportArgumentType] (no path: bytes)
    ours = write_groups(groups)
    assert_read_as_by_xarray(ours)
    assert ours == write_groups(groups), "the same bytes twice"
    for path, dataset in read_groups(ours).items():
        xr.testing.assert_identical(dataset, groups.get(path, xr.Dataset()))


@pytest.mark.parametrize("name", ["ktiw_limits", "sen_convolution"])
def test_a_committed_record(name):
    assert_read_as_by_xarray(gzip.decompress(read_sealed(RESULTS / f"{name}.nc.gz")))


def test_dims_of_an_outer_group_are_refused():
    outer = xr.Dataset(coords={"seed": [1, 2]})
    tree = xr.DataTree.from_dict({"/": outer, "/inner": xr.Dataset({"loss": ("seed", [0.1, 0.2])})})
    payload = tree.to_netcdf(None, engine="h5netcdf")
    with pytest.raises(FileError, match=r"^/inner/loss: got a variable without the names of its d"):
        read_groups(bytes(payload))  # pyright: ignore[reportArgumentType] (no path: bytes)


def test_multiples_of_a_scale_are_packed_and_others_are_not():
    exact = np.arange(-50, 50, dtype=np.float32) / 256
    values = {"exact": exact, "rounded": exact + 0.001, "gap": np.where(exact > 0, exact, np.nan)}
    values["large"] = exact * 1e6
    variables = {
        name: xr.Variable("x", one.astype(np.float32), {"units": "1"}, {"scale_factor": 1 / 256})
        for name, one in values.items()
    }
    data = xr.Dataset(variables)
    payload = write_groups({"/": data})
    read = read_groups(payload)["/"]
    xr.testing.assert_identical(read, data)
    assert write_groups({"/": read}) == payload, "packed again"
    with xr.open_dataset(io.BytesIO(payload), engine="h5netcdf", mask_and_scale=False) as raw:
        types = {name: raw[name].dtype for name in values}
    assert types.pop("exact") == np.int16
    assert set(types.values()) == {np.dtype(np.float32)}
    with xr.open_dataset(io.BytesIO(payload), engine="h5netcdf") as theirs:
        np.testing.assert_allclose(theirs["exact"], exact)
