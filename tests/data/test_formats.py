"""Rows of labelled texts, and every file that is refused, by its sentence and line."""

import csv
import gzip
import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.formats import EXAMPLE, SUFFIXES, Row, read_rows
from saccade.errors import ConfigError, FileError

ROWS = [("pos", "A good film."), ("neg", 'Not "good", at all'), ("pos", "Überragend 🎬")]

THREE_COLUMNS = (
    '\ufeffid,text,label\n1,A good film.,pos\n2,"Not ""good"", at all",neg\n3,Überragend 🎬,pos'
)


def written(folder: Path, name: str, content: str | bytes) -> str:
    content = content.encode() if isinstance(content, str) else content
    file = folder / name
    file.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return str(file)


def refused(sentence: str):
    """The whole message, after the folder of the file."""
    return pytest.raises(FileError, match=rf"(^|/){re.escape(sentence)}$")


def as_csv(rows: list[tuple[str, str]]) -> str:
    def cell(text: str) -> str:
        doubled = text.replace('"', '""')
        return f'"{doubled}"'

    return "".join(f"{cell(label)},{cell(text)}\r\n" for label, text in rows)


def as_jsonl(rows: list[tuple[str, str]]) -> str:
    return "".join(json.dumps({"label": label, "text": text}) + "\n" for label, text in rows)


# -- what is read ----------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "content", "first_line"),
    [
        ("a.tsv", "label\ttext\n" + "".join(f"{a}\t{b}\n" for a, b in ROWS), 2),
        ("A.TSV", "label\ttext\r\n" + "".join(f"{a}\t{b}\r\n" for a, b in ROWS), 2),
        ("a.csv", "label,text\r\n" + as_csv(ROWS), 2),
        ("a.csv", THREE_COLUMNS, 2),
        ("a.jsonl", as_jsonl(ROWS) + "\n\n", 1),
        ("a.jsonl", "\r\n".join(as_jsonl(ROWS).split("\n")), 1),
    ],
)
def test_the_same_rows_in_every_format(name, content, first_line, compressed, tmp_path):
    rows = read_rows(written(tmp_path, name + compressed, content))
    assert rows == [Row(*row, first_line + at) for at, row in enumerate(ROWS)]


def test_columns_by_number_need_no_header(tmp_path):
    file = written(tmp_path, "a.tsv", "A good film.\t7\tpos\nBad.\t8\tneg")
    assert read_rows(file, 2, 0) == [Row("pos", "A good film.", 1), Row("neg", "Bad.", 2)]


def test_columns_by_other_names_and_several_of_them(tmp_path):
    table = written(tmp_path, "a.csv", "class,title,body\n3,Fears,Unions say\n4,The race,is on\n")
    rows = [Row("3", "Fears Unions say", 2), Row("4", "The race is on", 3)]
    assert read_rows(table, "class", ("title", "body")) == rows
    objects = written(tmp_path, "a.jsonl", '{"class": 3, "title": "Fears", "body": "Unions say"}')
    assert read_rows(objects, "class", ("title", "body")) == [rows[0]._replace(line=1)]


def test_tab_separated_texts_have_no_quoting(tmp_path):
    file = written(tmp_path, "a.tsv", 'label\ttext\npos\t"good\nneg\ta "bad" film\u2028\x85 here\n')
    assert [row.text for row in read_rows(file)] == ['"good', 'a "bad" film\u2028\x85 here']


def test_a_quoted_cell_may_hold_line_breaks(tmp_path):
    file = written(tmp_path, "a.csv", 'label,text\npos,"a\n\ngood, film"\nneg,bad\n')
    assert read_rows(file) == [Row("pos", "a\n\ngood, film", 2), Row("neg", "bad", 5)]


def test_the_example_file_is_read():
    rows = read_rows(str(EXAMPLE))
    assert len(rows) == 30
    assert {row.label for row in rows} == {"negative", "positive"}


def test_the_limit_of_the_csv_module_stays(tmp_path):
    before = csv.field_size_limit()
    long = "x" * (before + 1)
    file = written(tmp_path, "a.csv", f"label,text\npos,{long}\n")
    assert read_rows(file, longest_line=before + 10)[0].text == long
    assert csv.field_size_limit() == before


labels = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp"]), min_size=1
)
texts = st.text(st.characters(codec="utf-8")).filter(lambda text: text.strip())


@settings(max_examples=60, deadline=None, derandomize=True)
@given(rows=st.lists(st.tuples(labels, texts), min_size=1))
def test_any_text_comes_back_from_csv_and_json(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for name, content in (("a.csv", "label,text\r\n" + as_csv(rows)), ("a.jsonl", as_jsonl(rows))):
        found = read_rows(written(folder, name, content))
        assert [(row.label, row.text) for row in found] == rows


# -- what is refused -------------------------------------------------------------------------------

EMPTY = "got an empty line, allowed: only at the end; remove the line"
NAMES = (
    "; name the columns with label= and text=, or give their numbers from 0 if the file has no "
    "header"
)
QUOTING = ", allowed: cells in quotation marks, with those within a cell doubled"
WIDER = "; a text with tabs, commas or line breaks needs CSV with quotation marks"
UTF8 = "allowed: text in UTF-8; convert the file"
TABLES = [
    ("", "a.csv: got an empty file, allowed: at least one row"),
    (" \n\n", "a.csv: got an empty file, allowed: at least one row"),
    ("label,text\n", "a.csv: got a header only, allowed: at least one row below it"),
    ("\nlabel,text\n", f"a.csv, line 1: {EMPTY}"),
    ("label,text\npos,a\n\nneg,b\n", f"a.csv, line 3: {EMPTY}"),
    ("label,txt\npos,a\n", f"a.csv, line 1: got no column 'text' among 'label', 'txt'{NAMES}"),
    ("pos,good\nneg,bad\n", f"a.csv, line 1: got no column 'label' among 'pos', 'good'{NAMES}"),
    (
        "label,text,text\npos,a,b\n",
        f"a.csv, line 1: got more than one column 'text' among 'label', 'text', 'text'{NAMES}",
    ),
    (
        "label,text\npos,a\nneg,b,c\n",
        f"a.csv, line 3: got 3 columns, allowed: 2, as in line 1{WIDER}",
    ),
    (
        'label,text\npos,"a\nb"\nneg\n',
        f"a.csv, line 4: got 1 column, allowed: 2, as in line 1{WIDER}",
    ),
    ("label,text\npos,a\nneg, \n", "a.csv, line 3: got the text ' ', allowed: at least one word"),
    (
        "label,text\n,a\n",
        "a.csv, line 2: got the label '', allowed: a text without spaces at its ends",
    ),
    (
        "label,text\npos ,a\n",
        "a.csv, line 2: got the label 'pos ', allowed: a text without spaces at its ends",
    ),
    (
        'label,text\npos,"a\nneg,b\n',
        f"a.csv, line 2: got a quotation mark that is not closed{QUOTING}",
    ),
    (
        'label,text\npos,"a" b\n',
        f"a.csv, line 2: got a cell with ',' expected after '\"'{QUOTING}",
    ),
    (
        f"label,text\npos,a\npos,{'x' * 57}\n",
        "a.csv, line 3: got 61 characters, allowed: at most 60; raise longest_line if the line is "
        "meant to be that long",
    ),
    (
        'label,text\npos,a\npos,"' + 20 * "long\n",
        "a.csv, line 3: got a cell of more than 60 characters, allowed: shorter ones; close its "
        "quotation mark or raise longest_line",
    ),
    (b"label,text\npos,caf\xe9\n", f"a.csv, line 2: got the byte 0xe9, {UTF8}"),
    ("label,text\npos,a\n".encode("utf-16"), f"a.csv, line 1: got the byte 0xff, {UTF8}"),
    (b"\xef\xbb\xbflabel,text\npos,a\nneg,\xff\n", f"a.csv, line 3: got the byte 0xff, {UTF8}"),
]
OBJECTS = [
    ("", "a.jsonl: got an empty file, allowed: at least one row"),
    ('{"label": 1, "text": "a"}\n\n{}', f"a.jsonl, line 2: {EMPTY}"),
    (
        '{"label": 1, "text": "a"}\n{"label": 1, text}\n',
        "a.jsonl, line 2: got no JSON (Expecting property name enclosed in double quotes), "
        "allowed: an object per line",
    ),
    ("[1, 2]", "a.jsonl, line 1: got an array, allowed: an object per line"),
    ("7", "a.jsonl, line 1: got a number, allowed: an object per line"),
    (
        '{"label": 1, "body": "a"}',
        "a.jsonl, line 1: got the keys 'label', 'body', allowed: with 'text'; name the keys with "
        "label= and text=",
    ),
    ('{"label": 1, "text": null}', "a.jsonl, line 1: 'text': got null, allowed: a string"),
    ('{"label": 1, "text": 5}', "a.jsonl, line 1: 'text': got a number, allowed: a string"),
    ('{"label": 1, "text": ["a"]}', "a.jsonl, line 1: 'text': got an array, allowed: a string"),
    (
        '{"label": true, "text": "a"}',
        "a.jsonl, line 1: 'label': got true, allowed: a string or a whole number",
    ),
    (
        '{"label": 0.5, "text": "a"}',
        "a.jsonl, line 1: 'label': got a fraction, allowed: a string or a whole number",
    ),
    (
        '{"label": 1, "text": "\\ud800"}',
        "a.jsonl, line 1: 'text': got half of a surrogate pair, allowed: text in UTF-8",
    ),
    ('{"label": 1, "text": " "}', "a.jsonl, line 1: got the text ' ', allowed: at least one word"),
]


@pytest.mark.parametrize(("content", "sentence"), TABLES)
def test_a_bad_table_is_refused_by_its_line(content, sentence, tmp_path):
    with refused(sentence):
        read_rows(written(tmp_path, "a.csv", content), longest_line=60)


@pytest.mark.parametrize(("content", "sentence"), OBJECTS)
def test_a_bad_object_is_refused_by_its_line(content, sentence, tmp_path):
    with refused(sentence):
        read_rows(written(tmp_path, "a.jsonl", content))


def test_a_deeply_nested_object_is_refused(tmp_path):
    with pytest.raises(FileError, match=r"line 1: got no JSON .*, allowed: an object per line"):
        read_rows(written(tmp_path, "a.jsonl", "[" * 50_000), longest_line=60_000)


def test_a_tab_in_a_text_is_one_column_too_many(tmp_path):
    with refused(f"a.tsv, line 2: got 3 columns, allowed: 2, as in line 1{WIDER}"):
        read_rows(written(tmp_path, "a.tsv", "label\ttext\npos\ta\tb\n"))


def test_a_column_number_beyond_the_table_is_refused(tmp_path):
    with refused("a.tsv, line 1: got 2 columns, but no column 2; columns count from 0"):
        read_rows(written(tmp_path, "a.tsv", "pos\tgood\n"), 0, 2)


def test_a_file_that_cannot_be_opened_is_refused(tmp_path):
    with pytest.raises(FileError, match=r"^cannot read .*/none\.tsv: No such file or directory$"):
        read_rows(str(tmp_path / "none.tsv"))


CUT = gzip.compress(b"pos\tgood" * 99, mtime=0)[:-9]


@pytest.mark.parametrize("content", [b"label\ttext\n", CUT], ids=["plain", "cut"])
def test_a_file_that_is_not_compressed_as_its_name_says_is_refused(content, tmp_path):
    file = tmp_path / "a.tsv.gz"
    file.write_bytes(content)
    with refused(
        f"a.tsv.gz: got {len(content)} bytes that are no whole gzip file; compress the text again, "
        "or drop .gz from the name of a file that is not compressed"
    ):
        read_rows(str(file))


@pytest.mark.parametrize("name", ["a.txt", "a", "a.gz", "tsv", "a.tsv.xz"])
def test_another_format_is_refused(name):
    with pytest.raises(ConfigError, match=re.escape(f"path: got '{name}', allowed: names that")):
        read_rows(name)
    assert SUFFIXES == (".tsv", ".csv", ".jsonl")


@pytest.mark.parametrize(
    ("label", "text", "allowed"),
    [
        ("label", 1, "names for all, or numbers from 0 for all"),
        (0, -1, "names for all, or numbers from 0 for all"),
        (True, 1, "names for all, or numbers from 0 for all"),
        ("label", (), "names for all, or numbers from 0 for all"),
        ("label", "", "names for all, or numbers from 0 for all"),
        ("text", "text", "every column once"),
        (0, (1, 1), "every column once"),
    ],
)
def test_columns_that_no_table_has_are_refused(label, text, allowed):
    got = f"columns: got label={label!r}, text={text!r}, allowed: {allowed}"
    with pytest.raises(ConfigError, match=re.escape(got)):
        read_rows("a.csv", label, text)


def test_json_has_no_column_numbers():
    with pytest.raises(ConfigError, match=r"for a\.jsonl, allowed: names, since JSON has no order"):
        read_rows("a.jsonl", 0, 1)
