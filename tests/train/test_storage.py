"""Sealed files: whole or refused by name, written at once or not at all, locked while they are
owned.
"""

import errno
import io
import os
import pickle
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import FileError
from saccade.records.sealed import read_sealed, write_sealed
from saccade.train.storage import locked, read_state, write_state

HEADER = {
    "digest": "ab" * 32,
    "step": 7,
    "finished": False,
    "seconds": 1.5,
    "name": "Aufmerksamkeit, 注意",
}
ARRAYS = {
    "carry:0": np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4),
    "carry:1": np.asarray([-1, 2**31 - 1], dtype=np.int32),
    "probes:loss": np.asarray([[np.nan, np.inf, -0.0]]),
    "empty": np.zeros((0, 3)),
}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    path = tmp_path / "one.training"
    write_state(path, HEADER, ARRAYS)
    return path


def assert_refused(path: Path) -> None:
    """Both readers give one sentence that names the file."""
    for read in (read_sealed, read_state):
        with pytest.raises(FileError) as refusal:
            read(path)
        assert str(path) in str(refusal.value)
        assert "\n" not in str(refusal.value)


@settings(max_examples=50, deadline=None)
@given(payload=st.binary(max_size=300))
def test_payload_round_trip(tmp_path_factory: pytest.TempPathFactory, payload: bytes):
    path = tmp_path_factory.getbasetemp() / "payload" / "file"
    write_sealed(path, payload)
    assert read_sealed(path) == payload


def test_state_round_trip(state: Path):
    header, arrays = read_state(state)
    assert header == HEADER
    assert arrays.keys() == ARRAYS.keys()
    for name, expected in ARRAYS.items():
        assert arrays[name].dtype == expected.dtype
        assert arrays[name].tobytes() == expected.tobytes()
        assert arrays[name].shape == expected.shape


def test_cut_file_is_refused_wherever_it_is_cut(state: Path):
    content = state.read_bytes()
    cuts = {*range(64), *range(0, len(content), 37), *range(len(content) - 64, len(content))}
    for length in sorted(cuts):
        state.write_bytes(content[:length])
        assert_refused(state)


def test_flipped_bit_is_refused_wherever_it_is(state: Path):
    content = state.read_bytes()
    places = random.Random(7)
    for _ in range(200):
        changed = bytearray(content)
        changed[places.randrange(len(content))] ^= 1 << places.randrange(8)
        state.write_bytes(changed)
        assert_refused(state)
    trailer = range(len(content) - 48, len(content))
    for place in trailer:
        changed = bytearray(content)
        changed[place] ^= 1
        state.write_bytes(changed)
        assert_refused(state)


@pytest.mark.parametrize("more", [b"\0", b"x", b"\n", b"more than a trailer" * 10])
def test_appended_bytes_are_refused(state: Path, more: bytes):
    state.write_bytes(state.read_bytes() + more)
    assert_refused(state)


def test_two_files_in_one_are_refused(state: Path):
    state.write_bytes(state.read_bytes() * 2)
    assert_refused(state)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"a letter to the editor",
        b"SACCADE\x01" * 20,
        pickle.dumps({"header": list(range(100))}),
        bytes(1000),
    ],
    ids=["empty", "text", "magic alone", "pickle", "zeros"],
)
def test_foreign_file_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "foreign.training"
    path.write_bytes(content)
    assert_refused(path)


def test_sealed_pickle_is_not_opened(tmp_path: Path):
    """A seal keeps out accidents; what it holds is still never unpickled."""
    path = tmp_path / "sealed.training"
    opened = tmp_path / "opened"

    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(opened),)

    write_sealed(path, pickle.dumps(Trap()))
    with pytest.raises(FileError, match="not a training state") as refusal:
        read_state(path)
    assert str(path) in str(refusal.value)
    assert not opened.exists()


def test_object_arrays_are_not_opened(tmp_path: Path):
    buffer = io.BytesIO()
    np.savez(buffer, header=np.asarray([{"a": 1}], dtype=object))
    path = tmp_path / "objects.training"
    write_sealed(path, buffer.getvalue())
    with pytest.raises(FileError, match="not a training state"):
        read_state(path)


def test_sealed_state_without_a_header_is_refused(tmp_path: Path):
    buffer = io.BytesIO()
    np.savez(buffer, loss=np.zeros(3))
    path = tmp_path / "headless.training"
    write_sealed(path, buffer.getvalue())
    with pytest.raises(FileError, match="not a training state") as refusal:
        read_state(path)
    assert str(path) in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).endswith("; delete it and run again")


def test_missing_file_and_folder_are_refused(tmp_path: Path):
    assert_refused(tmp_path / "missing.training")
    assert_refused(tmp_path)


# -- writing ---------------------------------------------------------------------------------------


def left_over(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".part")]


@pytest.mark.parametrize("call", ["fsync", "replace", "fdopen"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_failed_write_leaves_the_old_file_and_no_other(
    state: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
):
    before = state.read_bytes()

    def refuse(*arguments, **options):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(FileError, match=os.strerror(number)) as refusal:
            write_sealed(state, b"new" * 1000)
    assert str(state) in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert state.read_bytes() == before
    assert left_over(state.parent) == []


def test_write_below_a_file_is_refused(state: Path):
    with pytest.raises(FileError) as refusal:
        write_sealed(state / "below" / "file", b"payload")
    assert str(state) in str(refusal.value)
    assert read_state(state)[0] == HEADER


def test_write_over_a_folder_is_refused(tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FileError, match="cannot write"):
        write_sealed(folder, b"payload")
    assert left_over(tmp_path) == []


def test_write_makes_folders_and_replaces_what_was_there(tmp_path: Path):
    path = tmp_path / "a" / "b" / "file"
    write_sealed(path, b"first, and longer")
    write_sealed(path, b"second")
    assert read_sealed(path) == b"second"
    assert os.listdir(path.parent) == ["file"]


def test_written_file_has_the_permissions_of_any_new_file(tmp_path: Path):
    before = os.umask(0o027)
    try:
        write_sealed(tmp_path / "file", b"payload")
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(before)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


# -- locks -----------------------------------------------------------------------------------------

HOLDER = """
import sys, time
from pathlib import Path
from saccade.train.storage import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
    time.sleep(0.2)
    Path(sys.argv[2]).write_text("done")
"""


def holder(lock: Path, mark: Path) -> subprocess.Popen[str]:
    """Another process that holds the lock until its input ends, and leaves a mark just before it
    lets go.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(lock), str(mark)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_second_process_waits_for_the_first(tmp_path: Path):
    lock, mark = tmp_path / "one.lock", tmp_path / "mark"
    process = holder(lock, mark)
    waited: list[bool] = []
    assert process.stdin is not None

    def waiting() -> None:
        waited.append(mark.exists())
        process.stdin.close()  # pyright: ignore[reportOptionalMemberAccess]

    with locked(lock, waiting):
        assert mark.read_text() == "done"
    assert waited == [False]
    process.stdin = None  # closed above
    process.communicate(timeout=20)
    assert process.returncode == 0


def test_lock_of_a_killed_process_is_free(tmp_path: Path):
    lock, mark = tmp_path / "one.lock", tmp_path / "mark"
    process = holder(lock, mark)
    process.kill()
    process.communicate()
    begun = time.monotonic()
    with locked(lock):
        assert time.monotonic() - begun < 5
    assert not mark.exists()


def test_lock_is_free_after_an_error(tmp_path: Path):
    waited: list[None] = []
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "one.lock"):
        _ = 1 / 0
    with locked(tmp_path / "one.lock", lambda: waited.append(None)):
        assert waited == []


def test_lock_that_cannot_be_made_is_refused(tmp_path: Path):
    file = tmp_path / "occupied"
    file.write_text("not a folder")
    with pytest.raises(FileError) as refusal, locked(file / "one.lock"):
        pass
    assert str(file) in str(refusal.value)
