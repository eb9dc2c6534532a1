"""Reads the netCDF files of records, ten times as fast as xarray does through h5netcdf.

A record has hundreds of small variables, for each of which a general reader looks up dimensions
many times over. This one reads what `Record.save` writes: numbers, booleans and texts, with
dimension scales in the same group, without dates, packed numbers or dimensions of outer groups.
"""

import io
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import xarray as xr

from saccade.core.errors import FileError

_NOT_A_VARIABLE = b"This is a netCDF dimension but not a netCDF variable"
_HIDDEN = {
    "CLASS",
    "NAME",
    "DIMENSION_LIST",
    "REFERENCE_LIST",
    "_FillValue",
    "_NCProperties",
    "_Netcdf4Coordinates",
    "_Netcdf4Dimid",
    "coordinates",
    "dtype",
}
"""Attributes by which HDF5, netCDF and xarray store dimensions, coordinates and types."""


def read_groups(payload: bytes) -> dict[str, xr.Dataset]:
    """The groups of a file by their paths: "/" and, for example, "/arms/FC/trajectory"."""
    with h5py.File(io.BytesIO(payload), "r") as file:
        return {str(group.name): _dataset(group) for group in _groups(file)}


def _groups(group: h5py.Group) -> Iterator[h5py.Group]:
    yield group
    for one in group.values():
        if isinstance(one, h5py.Group):
            yield from _groups(one)


def _dataset(group: h5py.Group) -> xr.Dataset:
    found = {name: one for name, one in group.items() if isinstance(one, h5py.Dataset)}
    about: dict[str, Any] = {name: one.attrs for name, one in found.items()}
    scales = {name for name, one in found.items() if one.is_scale}
    dims = {int(about[name]["_Netcdf4Dimid"]): name for name in scales}
    bare = {name for name in scales if about[name]["NAME"].startswith(_NOT_A_VARIABLE)}
    variables, coordinates = {}, set(_listed(group))
    for name, one in found.items():
        if name in bare:
            continue
        along = [int(number) for number in about[name].get("_Netcdf4Coordinates", ())]
        if len(along) != one.ndim or not dims.keys() >= set(along):
            raise FileError(f"{one.name}: got a variable without the names of its dims")
        variables[name] = ([dims[number] for number in along], _values(one), _attributes(one))
        coordinates.update(_listed(one))
    data = xr.Dataset(variables, attrs=_attributes(group))
    return data.set_coords([name for name in data if name in coordinates])


def _listed(one: h5py.Group | h5py.Dataset) -> list[str]:
    """Coordinates that are no dims, which every variable along them lists."""
    return str(one.attrs.get("coordinates", "")).split()


def _values(one: h5py.Dataset) -> Any:
    if h5py.check_string_dtype(one.dtype) is not None:
        return np.asarray(one.asstr()[()], str)
    values = one[()]
    return np.asarray(values, bool) if one.attrs.get("dtype") == "bool" else values


def _attributes(one: h5py.Group | h5py.Dataset) -> dict[str, Any]:
    return {name: _plain(one.attrs[name]) for name in one.attrs if name not in _HIDDEN}


def _plain(value: Any) -> Any:
    """An attribute as it was before it was written: a text, or one number and no list of one."""
    if isinstance(value, h5py.Empty):
        return ""
    if isinstance(value, bytes):
        return value.decode()
    return value[0] if isinstance(value, np.ndarray) and value.shape == (1,) else value
