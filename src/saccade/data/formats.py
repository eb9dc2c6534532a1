"""Labelled texts in files: rows of a label and a text, from TSV, CSV and JSON Lines.

A file is read as it is or not at all: what does not fit is refused with the number of its line.
TSV has no quoting (a text holds no tab and no line break), CSV has the usual one, JSON Lines has an
object per line. Any of them may be compressed by gzip (`.gz`).
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from saccade.errors import ConfigError, FileError
from saccade.files import at_line, decoded_text

Column = str | int
"""A column by its name, or by its number from 0 in a table without a header."""
SUFFIXES = (".tsv", ".csv", ".jsonl")
LONGEST_LINE = 100_000
"""Characters. A longer line is usually a sign of another format."""
EXAMPLE = Path(__file__).with_name("example.tsv")
"""A small file with a header, for examples and tests."""
EXAMPLE_PAIRS = tuple(Path(__file__).with_name(f"example_pairs.{one}.txt") for one in ("en", "de"))
"""Twenty sentences and their translations, for examples and tests."""


class Row(NamedTuple):
    """A labelled text, and the line of the file in which it begins."""

    label: str
    text: str
    line: int


def read_rows(
    path: str,
    label: Column = "label",
    text: Column | tuple[Column, ...] = "text",
    longest_line: int = LONGEST_LINE,
) -> list[Row]:
    """All rows of a file, in order. Several text columns are joined by spaces.

    Columns with names need a header; with numbers, the first line is a row like any other.
    """
    check_columns(path, label, text)
    texts = text if isinstance(text, tuple) else (text,)
    whole = _text(path)
    _check_lines(path, whole, longest_line)
    match suffix_of(path):
        case ".tsv":
            return _table(path, _tab_separated(whole), label, texts)
        case ".csv":
            return _table(path, _comma_separated(path, whole, longest_line), label, texts)
        case _:
            return _objects(path, whole, label, texts)


def read_lines(path: str, longest_line: int = LONGEST_LINE) -> list[str]:
    """The lines of a text file, none of which is empty but at its end."""
    whole = _text(path)
    _check_lines(path, whole, longest_line)
    lines = [line.removesuffix("\r") for line in whole.split("\n")]
    for number, line in enumerate(lines, 1):
        if not line.strip():
            raise _empty_line(path, number)
    return lines


def suffix_of(path: str) -> str:
    """The format of a file, by its name."""
    suffix = Path(path.lower().removesuffix(".gz")).suffix
    if suffix not in SUFFIXES:
        allowed = ", ".join(f"{one}, {one}.gz" for one in SUFFIXES)
        raise ConfigError(f"path: got {path!r}, allowed: names that end in {allowed}")
    return suffix


def check_columns(path: str, label: Any, text: Any) -> None:
    """Refuse columns that no file of this format can have."""
    columns = (label, *(text if isinstance(text, tuple) else (text,)))
    shown = f"label={label!r}, text={text!r}"
    named = [isinstance(column, str) and column != "" for column in columns]
    numbered = [type(column) is int and column >= 0 for column in columns]
    if len(columns) < 2 or not (all(named) or all(numbered)):
        raise ConfigError(
            f"columns: got {shown}, allowed: names for all, or numbers from 0 for all in a table "
            "without a header"
        )
    if len(set(columns)) < len(columns):
        raise ConfigError(f"columns: got {shown}, allowed: every column once")
    if suffix_of(path) == ".jsonl" and not all(named):
        raise ConfigError(
            f"columns: got {shown} for {path}, allowed: names, since JSON has no order"
        )


def _text(path: str) -> str:
    text = decoded_text(path)
    if not text.strip():
        raise FileError(f"{path}: got an empty file, allowed: at least one row")
    # Empty lines at the end are no rows.
    return text.rstrip("\r\n")


def _check_lines(path: str, text: str, longest_line: int) -> None:
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > longest_line:
            raise at_line(
                path,
                number,
                f"got {len(line)} characters, allowed: at most {longest_line}; raise longest_line "
                "if the line is meant to be that long",
            )


def _row(path: str, line: int, label: str, text: str) -> Row:
    if label == "" or label != label.strip():
        raise at_line(
            path, line, f"got the label {label!r}, allowed: a text without spaces at its ends"
        )
    if not text.strip():
        raise at_line(path, line, f"got the text {text!r}, allowed: at least one word")
    return Row(label, text, line)


def _empty_line(path: str, line: int) -> FileError:
    return at_line(path, line, "got an empty line, allowed: only at the end; remove the line")


# -- tables ----------------------------------------------------------------------------------------


def _tab_separated(text: str) -> Iterable[tuple[int, list[str]]]:
    for number, line in enumerate(text.split("\n"), 1):
        cells = line.removesuffix("\r")
        yield number, cells.split("\t") if cells else []


def _comma_separated(path: str, text: str, longest: int) -> Iterable[tuple[int, list[str]]]:
    """Rows with the lines in which they begin: a quoted cell may hold line breaks."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows, before, line = [], csv.field_size_limit(longest), 1
    try:
        for cells in reader:
            rows.append((line, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        raise at_line(path, line, _unreadable(str(error), longest)) from error
    finally:
        csv.field_size_limit(before)
    return rows


def _unreadable(error: str, longest: int) -> str:
    """What is wrong with a cell, from the message of the csv module."""
    if "field limit" in error:
        return (
            f"got a cell of more than {longest} characters, allowed: shorter ones; close its "
            "quotation mark or raise longest_line"
        )
    unclosed = error == "unexpected end of data"
    got = "a quotation mark that is not closed" if unclosed else f"a cell with {error}"
    return f"got {got}, allowed: cells in quotation marks, with those within a cell doubled"


def _table(
    path: str,
    lines: Iterable[tuple[int, list[str]]],
    label: Column,
    texts: Sequence[Column],
) -> list[Row]:
    numbered = iter(lines)
    start, first = next(numbered)
    if not first:
        raise _empty_line(path, start)
    places = [_place(path, first, column) for column in (label, *texts)]
    rows = []
    if isinstance(label, int):
        rows.append(_chosen(path, start, first, places))
    for line, cells in numbered:
        if not cells:
            raise _empty_line(path, line)
        if len(cells) != len(first):
            raise at_line(
                path,
                line,
                f"got {_columns(cells)}, allowed: {len(first)}, as in line {start}; a text with "
                "tabs, commas or line breaks needs CSV with quotation marks",
            )
        rows.append(_chosen(path, line, cells, places))
    if not rows:
        raise FileError(f"{path}: got a header only, allowed: at least one row below it")
    return rows


def _chosen(path: str, line: int, cells: list[str], places: list[int]) -> Row:
    label, *texts = [cells[place] for place in places]
    return _row(path, line, label, " ".join(texts))


def _columns(cells: list[str]) -> str:
    return f"{len(cells)} column{'' if len(cells) == 1 else 's'}"


def _place(path: str, first: list[str], column: Column) -> int:
    """Where a column stands, by the first row."""
    if isinstance(column, int):
        if column >= len(first):
            raise at_line(
                path, 1, f"got {_columns(first)}, but no column {column}; columns count from 0"
            )
        return column
    if first.count(column) != 1:
        got = ", ".join(repr(name if len(name) < 40 else f"{name[:37]}...") for name in first[:8])
        many = "no" if column not in first else "more than one"
        raise at_line(
            path,
            1,
            f"got {many} column {column!r} among {got}; name the columns with label= and text=, or "
            "give their numbers from 0 if the file has no header",
        )
    return first.index(column)


# -- JSON ------------------------------------------------------------------------------------------


def _objects(path: str, text: str, label: Column, texts: Sequence[Column]) -> list[Row]:
    rows = []
    for line, content in enumerate(text.split("\n"), 1):
        if not content.strip():
            raise _empty_line(path, line)
        try:
            found = json.loads(content)
        except (ValueError, RecursionError) as error:
            why = str(error).partition(": line 1 column")[0]
            raise at_line(
                path, line, f"got no JSON ({why}), allowed: an object per line"
            ) from error
        if not isinstance(found, dict):
            raise at_line(path, line, f"got {_kind(found)}, allowed: an object per line")
        values = [_value(path, line, found, label, (str, int), "a string or a whole number")]
        values += [_value(path, line, found, one, (str,), "a string") for one in texts]
        rows.append(_row(path, line, values[0], " ".join(values[1:])))
    return rows


def _value(
    path: str, line: int, found: dict[str, Any], name: Column, kinds: tuple[type, ...], allowed: str
) -> str:
    if name not in found:
        got = ", ".join(map(repr, list(found)[:8])) or "none"
        raise at_line(
            path,
            line,
            f"got the keys {got}, allowed: with {name!r}; name the keys with label= and text=",
        )
    value = found[name]
    if type(value) not in kinds:
        raise at_line(path, line, f"{name!r}: got {_kind(value)}, allowed: {allowed}")
    try:
        str(value).encode()
    except UnicodeEncodeError as error:
        raise at_line(
            path, line, f"{name!r}: got half of a surrogate pair, allowed: text in UTF-8"
        ) from error
    return str(value)


def _kind(value: Any) -> str:
    """A JSON value in JSON's words."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    kinds = {dict: "an object", list: "an array", str: "a string", float: "a fraction"}
    return kinds.get(type(value), "a number")
