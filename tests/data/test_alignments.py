"""Gold alignments: the usual formats, and what is refused."""

import gzip
from pathlib import Path

import pytest

from saccade.data.alignments import GoldAlignment, check_alignments, read_alignments
from saccade.errors import ConfigError, FileError


def written(folder: Path, text: str) -> Path:
    file = folder / "gold.txt"
    file.write_text(text, encoding="utf-8")
    return file


def test_sure_and_possible_links(tmp_path):
    first, second = read_alignments(written(tmp_path, "0-0 1p2\t2?1\r\n10-3\n"))
    assert first.sure == {(0, 0)}
    assert first.possible == {(0, 0), (1, 2), (2, 1)}, "a sure link is possible, too"
    assert second.sure == second.possible == {(10, 3)}


def test_positions_from_one(tmp_path):
    (found,) = read_alignments(written(tmp_path, "1-1 2p3"), first=1)
    assert found == GoldAlignment.of([(0, 0)], [(1, 2)])
    assert found.reversed == GoldAlignment.of([(0, 0)], [(2, 1)])


def test_a_line_without_links_is_a_pair(tmp_path):
    """Also the last line, which ends with the file's last line feed."""
    found = read_alignments(written(tmp_path, "0-0\n\n1-1\n\n"))
    assert [len(one.sure) for one in found] == [1, 0, 1, 0]


def test_a_compressed_file(tmp_path):
    file = tmp_path / "gold.gz"
    file.write_bytes(gzip.compress(b"0-0\n"))
    assert read_alignments(file) == [GoldAlignment.of([(0, 0)])]


@pytest.mark.parametrize(
    ("text", "first", "message"),
    [
        ("0-0\n1_2\n", 0, r"gold\.txt, line 2: got '1_2', allowed: links such as 3-4, 3p4 or 3\?4"),
        ("0-0 1-", 0, r"line 1: got '1-', allowed"),
        ("-1-2", 0, r"line 1: got '-1-2', allowed"),
        ("1-1\n0-1\n", 1, r"line 2: got '0-1', allowed: positions from 1"),
    ],
)
def test_other_lines_are_refused(tmp_path, text, first, message):
    with pytest.raises(FileError, match=message):
        read_alignments(written(tmp_path, text), first)


def test_other_settings_and_files_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="first: got 2, allowed: 0 or 1"):
        read_alignments(written(tmp_path, "0-0"), first=2)  # pyright: ignore[reportArgumentType]
    with pytest.raises(FileError, match=r"cannot read .*none"):
        read_alignments(tmp_path / "none")


def test_alignments_fit_their_pairs():
    gold = [GoldAlignment.of([(0, 1)]), GoldAlignment.of([], [(2, 0)])]
    check_alignments(gold, [(1, 2), (3, 1)])
    with pytest.raises(ConfigError, match=r"got 2 of 1 pairs, allowed: one per pair"):
        check_alignments(gold, [(1, 2)])
    with pytest.raises(
        ConfigError, match=r"in line 2, allowed: positions from 0 to 1 and 0; files"
    ):
        check_alignments(gold, [(1, 2), (2, 1)])
