"""Records: whole through a file, plain NetCDF to others, refused by name where they are not
records.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from saccade.errors import FileError
from saccade.records.record import FIRST_SCHEMA, SCHEMA, Arm, Record
from saccade.records.sealed import read_sealed, write_sealed

RATES = [0.1, 0.25]


def trajectory(seeds: int = 3) -> xr.Dataset:
    random = np.random.default_rng(3)
    loss = random.random((2, seeds, 400), dtype=np.float32)  # large enough to be compressed
    loss[1, 2, 250:] = np.nan
    diverged_at = np.full((2, seeds), -1)
    diverged_at[1, 2] = 250
    return xr.Dataset(
        {
            "loss": (
                ("rate", "seed", "step"),
                loss,
                {"long_name": "mean cross-entropy, in nats"},
            ),
            "score": (
                ("rate", "seed", "step", "word"),
                random.random((2, seeds, 400, 2)),
                {"long_name": "s_w, Größe 注意"},
            ),
            "diverged_at": (("rate", "seed"), diverged_at, {"long_name": "step"}),
        },
        {
            "rate": RATES,
            "seed": np.arange(seeds),
            "step": np.arange(400),
            "time": (("rate", "step"), np.outer(RATES, np.arange(400))),
            "topic": ("word", [0, 1]),
        },
        {"seconds": 1.5, "digest": "ab" * 32},
    )


@pytest.fixture(scope="module")
def record() -> Record:
    measured = trajectory()
    prediction = measured[["score"]].isel(seed=0, drop=True) * 1.5
    arms = {
        "FC": Arm(measured, measured.isel(step=[0, -1]), prediction, "Corollary 1, Lu 2021"),
        "TC-CNN": Arm(measured.isel(rate=0)),
        "theory": Arm.of_prediction(prediction, "Theorem 2"),
    }
    return Record(
        study="sen",
        preset="quick",
        config={"rate": None, "note": "naïve, 注意", "sweeps": {"rate": RATES}},
        arms=arms,
        versions={"jax": "0.10"},
        device="CPU, 2 cores",
        precision="float32",
        seconds=7.25,
        verdicts={"A-1": {"verdict": "holds", "value": None}},
        title="Scores and embeddings",
        paper="Lu 2021",
        commit="0123456789abcdef+changes",
        fingerprints={"A-1": "0123456789abcdef"},
    )


@pytest.fixture
def saved(record: Record, tmp_path: Path) -> Path:
    path = tmp_path / "sen.nc"
    record.save(path)
    return path


def test_round_trip(record: Record, saved: Path):
    again = Record.open(saved)
    for field in dataclasses.fields(Record):
        if field.name != "arms":
            assert getattr(again, field.name) == getattr(record, field.name), field.name
    assert set(again.arms) == set(record.arms)
    for name, arm in record.arms.items():
        assert again.arm(name).predicted_by == arm.predicted_by
        for part in ("trajectory", "snapshot", "prediction"):
            expected, got = getattr(arm, part), getattr(again.arm(name), part)
            xr.testing.assert_equal(got, expected)
            for variable in expected.variables:
                assert got[variable].dtype == expected[variable].dtype
                assert got[variable].dims == expected[variable].dims
                assert got[variable].attrs == expected[variable].attrs
    assert again.arm("FC").trajectory.attrs == record.arm("FC").trajectory.attrs


def test_saved_record_is_plain_netcdf(record: Record, saved: Path):
    with xr.open_datatree(saved, engine="h5netcdf") as tree:
        assert tree.attrs["schema"] == SCHEMA
        assert json.loads(tree.attrs["config"]) == record.config
        xr.testing.assert_equal(
            tree["arms/FC/trajectory"].to_dataset(), record.arm("FC").trajectory
        )


def test_sweeps_seeds_and_arms(record: Record):
    assert record.seeds == 3
    np.testing.assert_array_equal(record.sweeps["rate"], RATES)
    with pytest.raises(KeyError, match="has no arm 'TL', only FC, TC-CNN, theory"):
        record.arm("TL")


def test_end_and_diverged(record: Record):
    arm = record.arm("FC")
    assert int(arm.end["step"]) == 399
    xr.testing.assert_equal(arm.end["score"], arm.trajectory["score"].sel(step=399))
    np.testing.assert_array_equal(arm.diverged, [[False, False, False], [False, False, True]])


def test_record_without_arms_or_sweeps(tmp_path: Path):
    empty = Record("sen", "quick", {}, {}, {}, "CPU", "float64", 0.0)
    empty.save(tmp_path / "empty.nc")
    again = Record.open(tmp_path / "empty.nc")
    for field in dataclasses.fields(Record):
        assert getattr(again, field.name) == getattr(empty, field.name), field.name
    assert empty.seeds == 0
    assert empty.sweeps == {}


def test_record_of_the_first_schema_is_read(record: Record, tmp_path: Path):
    """Saccade 0.1 had no title and no commit, and other names of the attributes of a variable."""
    tree, new = record.tree(), ("title", "paper", "commit", "fingerprints")
    tree.attrs = {k: v for k, v in tree.attrs.items() if k not in new}
    tree.attrs["schema"] = FIRST_SCHEMA
    for node in tree.subtree:
        for name in map(str, node.data_vars):
            if "long_name" in node[name].attrs:
                node[name].attrs = {"description": node[name].attrs["long_name"], "unit": "nats"}
    again = Record.open(saved_tree(tmp_path / "old.nc", tree))
    assert (again.title, again.paper, again.commit, again.fingerprints) == ("", "", "", {})
    loss = again.arm("FC").trajectory["loss"]
    assert loss.attrs == {"long_name": "mean cross-entropy, in nats", "units": "nats"}
    np.testing.assert_array_equal(loss, record.arm("FC").trajectory["loss"])


# -- compact ---------------------------------------------------------------------------------------


def one_variable(values: np.ndarray) -> Record:
    dataset = xr.Dataset(
        {"x": ("step", values, {"long_name": "d"}), "n": ("step", np.arange(len(values)))},
        attrs={"seconds": 1.0},
    )
    return Record(
        "sen", "quick", {}, {"a": Arm(dataset, dataset, dataset)}, {}, "CPU", "float32", 1.0
    )


# Normal float32 numbers, away from the largest, which would round to infinity.
NORMAL = (
    st.floats(2.0**-126, 2.0**127, width=32)
    | st.floats(-(2.0**127), -(2.0**-126), width=32)
    | st.just(0.0)
)


@given(values=arrays(np.float32, st.integers(1, 20), elements=NORMAL), bits=st.integers(4, 20))
def test_compact_keeps_so_many_significant_bits(values: np.ndarray, bits: int):
    for part in ("trajectory", "snapshot", "prediction"):
        rounded = getattr(one_variable(values).compact(bits).arm("a"), part)["x"].values.astype(
            float
        )
        # Rounding a mantissa in [1/2, 1) to a multiple of 2^-bits moves it by 2^-bits / 2, at most
        # 2^-bits of itself.
        assert np.all(np.abs(rounded - values) <= 2.0**-bits * np.abs(values.astype(float)))
        mantissa = np.frexp(rounded)[0] * 2.0**bits
        np.testing.assert_array_equal(mantissa, np.round(mantissa))


def test_compact_keeps_fourteen_bits_unless_told():
    values = np.asarray([1.0, 1 + 2**-13, 1 + 2**-14.5, 3.0e-20], dtype=np.float32)
    rounded = one_variable(values).compact().arm("a").trajectory["x"].values
    np.testing.assert_array_equal(rounded[:3], np.asarray([1.0, 1 + 2**-13, 1.0], dtype=np.float32))
    np.testing.assert_allclose(rounded, values, rtol=2**-14)


def test_compact_keeps_missing_and_infinite_numbers_counts_and_words():
    compact = one_variable(np.asarray([np.nan, np.inf, -np.inf, 0.1], dtype=np.float32)).compact()
    dataset = compact.arm("a").trajectory
    np.testing.assert_array_equal(dataset["x"][:3], [np.nan, np.inf, -np.inf])
    np.testing.assert_array_equal(dataset["n"], [0, 1, 2, 3])
    assert dataset["n"].dtype.kind == "i"
    assert dataset["x"].attrs == {"long_name": "d"}
    assert dataset.attrs == {"seconds": 1.0}


def test_compact_record_of_float64_keeps_its_large_numbers():
    values = np.asarray([1e100, 1e-100, 1.0])
    np.testing.assert_allclose(
        one_variable(values).compact().arm("a").trajectory["x"], values, rtol=2**-14
    )


def significant_bits(values: np.ndarray) -> int:
    """Fewest binary digits that hold every number."""
    mantissa = np.frexp(values.astype(float))[0]
    return next(
        bits for bits in range(60) if np.all(mantissa * 2.0**bits == np.round(mantissa * 2.0**bits))
    )


@pytest.mark.parametrize(("precision", "bits"), [("float32", (14, 14)), ("float64", (44, 14))])
def test_compact_keeps_as_many_bits_as_the_precision_of_record_and_variable_has(
    precision: str, bits: tuple[int, int]
):
    numbers = np.random.default_rng(6).random(200)
    dataset = xr.Dataset(
        {"double": ("step", numbers), "single": ("step", numbers.astype(np.float32))}
    )
    whole = Record(
        "sen", "quick", {}, {"a": Arm(dataset, dataset, dataset)}, {}, "CPU", precision, 1.0
    )
    for part in ("trajectory", "snapshot", "prediction"):
        rounded = getattr(whole.compact().arm("a"), part)
        assert (
            significant_bits(rounded["double"].values),
            significant_bits(rounded["single"].values),
        ) == bits
        assert (rounded["double"].dtype, rounded["single"].dtype) == (np.float64, np.float32)
        np.testing.assert_allclose(rounded["double"], numbers, rtol=2.0 ** -bits[0])
    assert significant_bits(whole.compact(8).arm("a").trajectory["double"].values) == 8, (
        "asked for, whatever the precision"
    )


def test_compact_record_is_smaller_on_disk(record: Record, saved: Path, tmp_path: Path):
    record.compact(8).save(tmp_path / "compact.nc")
    assert (tmp_path / "compact.nc").stat().st_size < 0.7 * saved.stat().st_size
    assert Record.open(tmp_path / "compact.nc").study == record.study


# -- refusals --------------------------------------------------------------------------------------


def assert_refused(path: Path, *words: str) -> None:
    with pytest.raises(FileError) as refusal:
        Record.open(path)
    message = str(refusal.value)
    assert "\n" not in message
    for word in (*words, str(path)):
        assert word in message


def saved_tree(path: Path, tree: xr.DataTree) -> Path:
    """A sealed file of any tree."""
    write_sealed(path, bytes(tree.to_netcdf(None, engine="h5netcdf")))  # pyright: ignore[reportArgumentType]
    return path


@pytest.mark.parametrize(
    "missing", ["schema", "study", "preset", "config", "versions", "device", "precision", "seconds"]
)
def test_missing_attribute_is_refused(record: Record, tmp_path: Path, missing: str):
    tree = record.tree()
    del tree.attrs[missing]
    assert_refused(saved_tree(tmp_path / "less.nc", tree), missing, "missing")


def test_other_schema_is_refused(record: Record, tmp_path: Path):
    tree = record.tree()
    tree.attrs["schema"] = "saccade-record-99"
    assert_refused(saved_tree(tmp_path / "newer.nc", tree), "saccade-record-99", SCHEMA)


def test_foreign_netcdf_is_refused(tmp_path: Path):
    path = tmp_path / "weather.nc"
    xr.Dataset({"rain": ("day", [1.0, 2.0])}).to_netcdf(path, engine="h5netcdf")
    assert_refused(path)


def test_sealed_foreign_netcdf_is_refused(tmp_path: Path):
    assert_refused(
        saved_tree(tmp_path / "weather.nc", xr.DataTree(xr.Dataset({"rain": ("day", [1.0, 2.0])})))
    )


@pytest.mark.parametrize(
    "garbage", [b"", b"garbage" * 100, bytes(4096), b"\x89HDF\r\n\x1a\n" + bytes(200)]
)
def test_sealed_garbage_is_refused(tmp_path: Path, garbage: bytes):
    path = tmp_path / "garbage.nc"
    write_sealed(path, garbage)
    assert_refused(path)


@pytest.mark.parametrize("attribute", ["config", "versions"])
def test_attribute_that_is_not_json_is_refused(record: Record, tmp_path: Path, attribute: str):
    tree = record.tree()
    tree.attrs[attribute] = "{rate: 0.1"
    assert_refused(saved_tree(tmp_path / "edited.nc", tree))


def test_record_without_claims_is_refused(record: Record, tmp_path: Path):
    tree = record.tree()
    del tree["claims"]
    assert_refused(saved_tree(tmp_path / "unjudged.nc", tree))


def test_stray_variable_is_no_arm(record: Record, tmp_path: Path):
    tree = record.tree()
    tree["arms"].dataset = xr.Dataset({"stray": ("x", [1.0])})  # pyright: ignore[reportAttributeAccessIssue]
    assert set(Record.open(saved_tree(tmp_path / "stray.nc", tree)).arms) == set(record.arms)


def test_edited_and_cut_records_are_refused(saved: Path):
    content = saved.read_bytes()
    for damaged in (
        content[:-1],
        content[: len(content) // 2],
        content.replace(b"quick", b"paper", 1),
        content + b"\n",
    ):
        assert damaged != content
        saved.write_bytes(damaged)
        assert_refused(saved)


def test_edited_and_sealed_again_is_refused(saved: Path):
    payload = bytearray(read_sealed(saved))
    payload[: len(payload) // 3] = bytes(len(payload) // 3)
    write_sealed(saved, bytes(payload))
    assert_refused(saved)


def test_failed_save_leaves_the_earlier_record(
    record: Record, saved: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    before = saved.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", full)
        with pytest.raises(FileError, match="No space left on device"):
            dataclasses.replace(record, study="other").save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_control_characters_of_a_file_do_not_reach_the_terminal(tmp_path):
    from saccade.records.record import _printable_in, printable

    assert printable("a\x1b]0;b\x07\tc\n") == "a\ufffd]0;b\ufffd\tc\n"
    assert _printable_in({"\x1b": ["\x9b1m", 2, None]}) == {"\ufffd": ["\ufffd1m", 2, None]}
