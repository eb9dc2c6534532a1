"""Results of slow work that is no training, as files have them: named arrays and a header."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from saccade.errors import ConfigError

__all__: list[str] = []


def as_arrays(result: Any, title: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A result as a header and named arrays: a dataset, or a tree of tuples, dicts and arrays."""
    import xarray as xr

    if isinstance(result, xr.DataArray):
        raise ConfigError(f"cached {title}: gave a DataArray, allowed: a Dataset; use to_dataset()")
    if isinstance(result, xr.Dataset):
        payload = bytes(result.to_netcdf(None, engine="h5netcdf"))  # pyright: ignore[reportArgumentType]
        return {"tree": "dataset"}, {"0": np.frombuffer(payload, np.uint8)}
    arrays: dict[str, np.ndarray] = {}

    def shape(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {"dict": {str(key): shape(one) for key, one in value.items()}}
        if isinstance(value, tuple | list):
            return {"tuple": [shape(one) for one in value]}
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            raise ConfigError(
                f"cached {title}: gave a {type(value).__name__}, allowed: numbers, arrays, tuples "
                "and dicts of them, or an xarray Dataset"
            )
        arrays[str(len(arrays))] = array
        return len(arrays) - 1

    return {"tree": shape(result)}, arrays


def from_arrays(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    if header["tree"] == "dataset":
        import xarray as xr

        with xr.open_dataset(io.BytesIO(arrays["0"].tobytes()), engine="h5netcdf") as dataset:
            return dataset.load()

    def filled(tree: Any) -> Any:
        if isinstance(tree, int):
            return arrays[str(tree)]
        if "dict" in tree:
            return {key: filled(one) for key, one in tree["dict"].items()}
        return tuple(filled(one) for one in tree["tuple"])

    return filled(header["tree"])
