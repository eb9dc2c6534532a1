"""The record of a study: an `xarray.DataTree`, saved as sealed NetCDF-4 (docs/record.md).

/                        attributes: schema, study, config, versions, device, ...
/arms/NAME/trajectory    probes along training; dims (sweeps), seed, step, the probe's own
/arms/NAME/snapshot      probes at the first and the last step
/arms/NAME/prediction    the theory's variables, under the same names on the same axes
/claims                  verdicts as they were judged when the record was written
"""

import dataclasses
import gzip
import json
import unicodedata
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import xarray as xr

from saccade.errors import FileError
from saccade.records.netcdf import read_attributes, read_groups, write_groups
from saccade.records.sealed import read_sealed, write_sealed

T = TypeVar("T")
SCHEMA = "saccade-record-2"
FIRST_SCHEMA = "saccade-record-1"
"""That of saccade 0.1: no title, flat configs, attributes `description` and `unit`."""
_ROOT = ("study", "preset", "config", "versions", "device", "precision", "seconds")
_OPTIONAL = ("title", "paper", "commit")
_TABLES = ("config", "versions", "fingerprints")
"""Attributes kept as JSON."""
_PARTS = ("trajectory", "snapshot", "prediction")


class MissingArmError(KeyError):
    """An arm was asked for that the run did not have (a sweep leaves some out)."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclasses.dataclass(frozen=True)
class Arm:
    """One arm of an experiment: what was measured, and what the theory says."""

    trajectory: xr.Dataset = dataclasses.field(default_factory=xr.Dataset)
    """What was measured along the steps; of a computation without steps, its result."""
    snapshot: xr.Dataset = dataclasses.field(default_factory=xr.Dataset)
    """What was measured at the first and the last step."""
    prediction: xr.Dataset = dataclasses.field(default_factory=xr.Dataset)
    """What a theory predicts: the same names on the same axes."""
    predicted_by: str = ""
    """The theory behind the prediction."""

    @staticmethod
    def of_prediction(prediction: xr.Dataset, predicted_by: str) -> "Arm":
        """An arm of theory alone, for predictions that no measured trajectory goes into."""
        return Arm(prediction=prediction, predicted_by=predicted_by)

    @property
    def seconds(self) -> float:
        """Time spent training, over all interruptions."""
        return self.trajectory.attrs.get("seconds", 0.0)

    @property
    def digest(self) -> str:
        """Content address of the training; empty if it cannot be kept."""
        return self.trajectory.attrs.get("digest", "")

    def with_prediction(self, prediction: xr.Dataset, predicted_by: str) -> Self:
        """This arm with what a theory says about it."""
        return dataclasses.replace(self, prediction=prediction, predicted_by=predicted_by)

    def with_variables(self, **variables: Any) -> Self:
        """This arm with further variables of its trajectory."""
        return dataclasses.replace(self, trajectory=self.trajectory.assign(variables))

    def at_steps(self, steps: Any) -> Self:
        """This arm at some of its recorded steps; snapshots stay."""
        parts = {name: getattr(self, name) for name in ("trajectory", "prediction")}
        kept = {name: part.sel(step=steps) for name, part in parts.items() if "step" in part.dims}
        return dataclasses.replace(self, **kept)

    def with_snapshot_of_one_seed(self) -> Self:
        """This arm with the snapshots of its first seed: large tables that are only drawn."""
        first = self.snapshot.isel(seed=slice(0, 1), missing_dims="ignore")
        return dataclasses.replace(self, snapshot=first)

    def followed_by(self, later: "Arm") -> "Arm":
        """This arm and its continuation as one, without weights."""
        parts: dict[str, xr.Dataset] = {}
        for name in ("trajectory", "snapshot"):
            before, after = getattr(self, name), getattr(later, name)
            whole: Any = xr.concat(
                [before, after.isel(step=slice(1, None))],
                "step",
                data_vars="minimal",
                coords="minimal",
                compat="override",
            )
            # What has no steps, such as where a member stopped, is what the continuation says.
            ends = {
                variable: values
                for variable, values in after.data_vars.items()
                if "step" not in values.dims
            }
            parts[name] = whole.assign(ends)
        seconds = self.seconds + later.seconds
        trajectory = parts["trajectory"].assign_attrs(seconds=seconds)
        return Arm(trajectory, parts["snapshot"], self.prediction, self.predicted_by)

    @property
    def diverged(self) -> xr.DataArray:
        """True for the members whose loss stopped being finite; dims (sweeps), seed."""
        if "diverged_at" not in self.trajectory:
            return xr.DataArray(False)  # an arm of theory alone
        return self.trajectory["diverged_at"] >= 0

    @property
    def not_trained(self) -> xr.DataArray | None:
        """True for the members whose chunk failed; None if all were trained."""
        return self.trajectory.get("not_trained")

    @property
    def end(self) -> xr.Dataset:
        """The trajectory at the last step."""
        return self.trajectory.isel(step=-1)


Arms = Mapping[str, Arm]


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """Everything that one run of a study left."""

    study: str
    preset: str
    config: Mapping[str, Any]
    arms: Mapping[str, Arm]
    versions: Mapping[str, str]
    device: str
    precision: str
    seconds: float
    verdicts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Judged when the record was made: claim id -> plain JSON, with what was computed. Reports
    judge again from the arms, and compare with these to tell what is registered."""
    title: str = ""
    paper: str = ""
    """Title and papers of the study; empty in records of saccade 0.1."""
    commit: str = ""
    """The commit from which the record was made, if it is known."""
    fingerprints: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Of a record of version 0.2, which knew claims by their source: claim id -> fingerprint."""

    def in_double_precision(self, name: str) -> Arm:
        """An arm whose numbers of single precision are doubles, so that measures compute in double
        precision; converted once.
        """
        if name not in self._doubles:
            arm = self.arms[name]
            parts = {part: _in_double_precision(getattr(arm, part)) for part in _PARTS}
            self._doubles[name] = dataclasses.replace(arm, **parts)
        return self._doubles[name]

    @cached_property
    def _doubles(self) -> dict[str, Arm]:
        return {}

    def arm(self, name: str) -> Arm:
        if name not in self.arms:
            known = ", ".join(self.arms)
            raise MissingArmError(f"record of {self.study} has no arm {name!r}, only {known}")
        return self.arms[name]

    @property
    def seeds(self) -> int:
        return max((arm.trajectory.sizes.get("seed", 0) for arm in self.arms.values()), default=0)

    @property
    def sweeps(self) -> dict[str, np.ndarray]:
        """Names and values of what the user swept (kept in the config)."""
        return {name: np.asarray(values) for name, values in self.config.get("sweeps", {}).items()}

    def groups(self) -> dict[str, xr.Dataset]:
        """The groups of its file, by their paths."""
        about = {key: getattr(self, key) for key in (*_ROOT, *_OPTIONAL)}
        tables = [key for key in _TABLES if key != "fingerprints" or self.fingerprints]
        about |= {key: json.dumps(dict(getattr(self, key))) for key in tables}
        found = {"/": xr.Dataset(attrs={"schema": SCHEMA} | about)}
        for name, arm in self.arms.items():
            theory = {"theory": arm.predicted_by} if arm.predicted_by else {}
            parts = (arm.trajectory, arm.snapshot, arm.prediction.assign_attrs(theory))
            for part, dataset in zip(_PARTS, parts, strict=True):
                if dataset.data_vars:
                    found[f"/arms/{name}/{part}"] = dataset
        return found | {"/claims": xr.Dataset(attrs={"verdicts": json.dumps(dict(self.verdicts))})}

    def tree(self) -> xr.DataTree:
        """As xarray opens its file."""
        return xr.DataTree.from_dict(self.groups())

    def save(self, path: Path) -> None:
        """Write atomically, sealed and compressed; a name that ends in .gz compresses the file
        itself once more, because most of a small record is HDF5's own bookkeeping.
        """
        payload, packed = write_groups(self.groups()), Path(path).suffix == ".gz"
        write_sealed(Path(path), gzip.compress(payload, mtime=0) if packed else payload)

    @staticmethod
    def open(path: Path) -> "Record":
        """Read a whole record, or say in one sentence why the file is not one."""
        return _read(path, lambda payload: _from_groups(read_groups(payload)))

    @staticmethod
    def study_of(path: Path) -> str:
        """The name of a record's study, without its numbers."""
        return _read(path, lambda payload: str(read_attributes(payload)["study"]))

    def as_committed(self) -> "Record":
        """The record as its file will have it: compact, and read back from the bytes."""
        return _from_groups(read_groups(write_groups(self.compact().groups())))

    def compact(self, bits: int | None = None) -> "Record":
        """A smaller copy: floats rounded to so many significant binary digits.

        By default 14 (one part in 16,384); the double-precision numbers of a record of double
        precision keep 44 (one part in 1.7e13), because its checks go far below that.
        """

        def smaller(dataset: xr.Dataset) -> xr.Dataset:
            variables = {}
            for name, one in dataset.data_vars.items():
                if one.dtype.kind == "f":
                    double = self.precision == "float64" and one.dtype.itemsize == 8
                    values = rounded(one.values, bits or (44 if double else 14))
                    variables[name] = one.dims, values, one.attrs, one.encoding
            return dataset.assign(variables)

        arms = {
            name: dataclasses.replace(arm, **{part: smaller(getattr(arm, part)) for part in _PARTS})
            for name, arm in self.arms.items()
        }
        return dataclasses.replace(self, arms=arms)


def _read(path: Path, reader: Callable[[bytes], T]) -> T:
    payload = read_sealed(Path(path))
    try:
        if payload.startswith(b"\x1f\x8b"):
            payload = gzip.decompress(payload)
        return reader(payload)
    except FileError as error:
        raise FileError(f"{path}: {error}") from error
    except Exception as error:
        why = f"not a record of this version ({type(error).__name__}: {error})"
        raise FileError(f"{path}: sealed, but {why}") from error


def _in_double_precision(dataset: xr.Dataset) -> xr.Dataset:
    shorter = {
        name: one.astype(np.float64)
        for name, one in dataset.variables.items()
        if one.dtype.kind == "f" and one.dtype.itemsize < 8
    }
    coordinates = {name: shorter.pop(name) for name in [*shorter] if name in dataset.coords}
    return dataset.assign(shorter).assign_coords(coordinates)


def rounded(values: np.ndarray, bits: int) -> np.ndarray:
    """Round to so many significant binary digits: the zeros at the end then compress away."""
    mantissa, exponent = np.frexp(values)
    return np.ldexp(np.round(mantissa * 2**bits) / 2**bits, exponent).astype(values.dtype)


def _from_groups(groups: Mapping[str, xr.Dataset]) -> Record:
    about = groups["/"].attrs
    missing = [key for key in ("schema", *_ROOT) if key not in about]
    if missing:
        raise FileError(f"not a saccade record: attribute {missing[0]!r} is missing")
    schema = about["schema"]
    if schema not in (SCHEMA, FIRST_SCHEMA):
        known = f"{FIRST_SCHEMA!r} and {SCHEMA!r}"
        raise FileError(f"record of schema {schema!r}; this version of saccade reads {known}")
    arms = {}
    paths = [path.split("/") for path in groups if path.startswith("/arms/")]
    for name in dict.fromkeys(path[2] for path in paths):
        parts = {part: _part(groups, name, part, schema) for part in _PARTS}
        arms[name] = Arm(**parts, predicted_by=parts["prediction"].attrs.get("theory", ""))
    fields: dict[str, Any] = {key: printable(about.get(key, "")) for key in (*_ROOT, *_OPTIONAL)}
    fields |= {key: _printable_in(json.loads(about.get(key, "{}"))) for key in _TABLES}
    fields["seconds"] = float(about["seconds"])
    return Record(
        **fields, arms=arms, verdicts=_printable_in(json.loads(groups["/claims"].attrs["verdicts"]))
    )


def printable(value: Any) -> str:
    """A text of somebody else's file, without the control characters that steer a terminal."""
    return "".join(
        letter if letter in "\n\t" or unicodedata.category(letter) != "Cc" else "\ufffd"
        for letter in str(value)
    )


def _printable_in(value: Any) -> Any:
    """The same, of all texts of a JSON value."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _printable_in(one) for key, one in value.items()}
    return [_printable_in(one) for one in value] if isinstance(value, list) else value


def _part(groups: Mapping[str, xr.Dataset], arm: str, part: str, schema: str) -> xr.Dataset:
    """One part of an arm, with the attributes of this schema."""
    dataset = groups.get(f"/arms/{arm}/{part}", xr.Dataset())
    if schema == FIRST_SCHEMA:
        names = {"description": "long_name", "unit": "units"}
        for variable in dataset.variables.values():
            variable.attrs = {names.get(key, key): value for key, value in variable.attrs.items()}
    return dataset
