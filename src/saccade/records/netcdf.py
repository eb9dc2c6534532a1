"""Reads and writes the netCDF files of records, several times as fast as xarray does by h5netcdf.

A record has hundreds of small variables, for each of which a general reader or writer looks up
dimensions many times over. This one knows what records hold: numbers, booleans and texts, with
dimensions in the same group, without dates or dimensions of outer groups. A variable whose encoding
has a `scale_factor` is packed into whole numbers of 16 bits, if it has multiples of it only.
"""

import io
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import h5py
import numpy as np
import xarray as xr

from saccade.errors import FileError

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
    "scale_factor",
}
"""Attributes by which HDF5, netCDF and xarray store dimensions, coordinates and types."""


UNPACKED = 2000
"""Bytes up to which a variable is not compressed."""
_COMPRESSED: dict[str, Any] = {"compression": 9, "shuffle": True}
"""With a variable in one piece: neighbours are alike, and a table takes a quarter less."""


def read_groups(payload: bytes) -> dict[str, xr.Dataset]:
    """The groups of a file by their paths: "/" and, for example, "/arms/FC/trajectory"."""
    with h5py.File(io.BytesIO(payload), "r") as file:
        return {str(group.name): _dataset(group) for group in _groups(file)}


def read_attributes(payload: bytes) -> dict[str, Any]:
    """The attributes of a file's first group."""
    with h5py.File(io.BytesIO(payload), "r") as file:
        return _attributes(file)


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
        scale = {key: about[name][key] for key in ("scale_factor",) if key in about[name]}
        named = [dims[number] for number in along]
        variables[name] = (named, _values(one), _attributes(one), scale)
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
    if "scale_factor" in one.attrs:
        return (values * np.asarray(one.attrs["scale_factor"])).astype(np.float32)
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


def write_groups(groups: Mapping[str, xr.Dataset]) -> bytes:
    """A netCDF-4 file with these groups, which xarray and other netCDF readers open as well."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", track_order=True) as file:
        number = itertools.count()
        for path, dataset in groups.items():
            group = file if path == "/" else file.create_group(path, track_order=True)
            _write(group, dataset, number)
    return buffer.getvalue()


def _write(group: h5py.Group, dataset: xr.Dataset, number: Iterator[int]) -> None:
    group.attrs.update(dataset.attrs)
    numbers = {str(dim): next(number) for dim in dataset.sizes}
    scales = {}
    for dim, size in dataset.sizes.items():
        if dim not in dataset.variables:
            scales[dim] = group.create_dataset(str(dim), (size,), ">f4")
            scales[dim].make_scale(f"{_NOT_A_VARIABLE.decode()}. {size:10d}")
    # Coordinates first: variables are attached to them.
    for name in sorted(dataset.variables, key=lambda name: name not in dataset.sizes):
        variable = dataset.variables[name]
        scale = variable.encoding.get("scale_factor")
        made = _created(group, str(name), variable.values, scale)
        made.attrs.update(variable.attrs)
        along = np.asarray([numbers[str(dim)] for dim in variable.dims], np.int32)
        if along.size:
            made.attrs["_Netcdf4Coordinates"] = along
        if name in dataset.sizes:
            scales[name] = made
            made.make_scale(str(name))
            continue
        for place, dim in enumerate(variable.dims):
            made.dims[place].attach_scale(scales[dim])
        others = [
            str(one)
            for one in dataset.coords
            if one not in dataset.sizes and set(dataset[one].dims) <= set(variable.dims)
        ]
        if others and name not in dataset.coords:
            made.attrs["coordinates"] = " ".join(others)
    for dim, scale in scales.items():
        scale.attrs["_Netcdf4Dimid"] = np.int32(numbers[str(dim)])


def _created(
    group: h5py.Group, name: str, values: np.ndarray, scale: float | None = None
) -> h5py.Dataset:
    if scale and values.size:
        counts = values / scale
        # False for NaN, and for numbers that packing would round.
        if np.all((np.abs(counts) < np.iinfo(np.int16).max) & (counts == np.round(counts))):
            packed = counts.astype(np.int16)
            made = group.create_dataset(name, data=packed, **_COMPRESSED, chunks=packed.shape)
            made.attrs["scale_factor"] = scale
            return made
    if values.dtype.kind in "UO":
        return group.create_dataset(name, data=values.astype(object), dtype=h5py.string_dtype())
    if values.dtype.kind == "b":
        made = group.create_dataset(name, data=values.astype(np.int8))
        made.attrs["dtype"] = "bool"
        return made
    # A small variable needs more room for the index of its chunks than compression saves.
    packed = values.ndim > 0 and values.nbytes > UNPACKED
    how: dict[str, Any] = _COMPRESSED | {"chunks": values.shape} if packed else {}
    return group.create_dataset(name, data=values, **how)
