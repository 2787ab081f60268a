"""Rows of published files: what cannot be read is told, and never stops the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.data import Record, Reject
from foretell.data.importers.rows import Row, csv_file, each, json_object, lines, merged


def _record(row: Row, factor: int = 1) -> Record:
    return Record(model="m", time_s=factor / row.number("n"), source="s", origin=row.origin)


def _table(folder: Path, content: bytes) -> list[Row]:
    (folder / "t.csv").write_bytes(content)
    return list(csv_file(folder, folder / "t.csv"))


@pytest.mark.parametrize(
    ("content", "flaw"),
    [
        (b"", "file holds no rows"),
        (b"a,n\n", "file holds no rows"),
        (b"\n \n", "file holds no rows"),
        (b"a,n\n1,2\n\xff\xfe,3\n", "file cannot be read further (UnicodeDecodeError)"),
        (b'a,n\n1,2\n"' + b"x" * 200_000 + b'",3\n', "file cannot be read further (Error)"),
    ],
)
def test_what_is_wrong_with_a_file_is_a_flawed_row_at_its_end(
    content: bytes, flaw: str, tmp_path: Path
) -> None:
    last = _table(tmp_path, content)[-1]
    assert (last.origin, last.cells, last.flaw) == ("t.csv", {}, flaw)


def test_columns_of_one_name_are_told_apart(tmp_path: Path) -> None:
    (row,) = _table(tmp_path, b"n, time ,time\n\n1,2,3\n")
    assert (row.origin, row.cells) == ("t.csv:3", {"n": "1", "time": "2", "time (2)": "3"})


def test_lines_keep_their_numbers_where_some_are_blank(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("a\n\n\tb \n")
    found = [(row.origin, row.cells["line"]) for row in lines(tmp_path, tmp_path / "f")]
    assert found == [("f:1", "a"), ("f:2", ""), ("f:3", "\tb")]


def test_an_error_nobody_foresaw_rejects_its_row_alone(tmp_path: Path) -> None:
    rows = _table(tmp_path, b"a,n\n1,0\n2,4\n3,x\n4\n")
    first, second, *rest = each(rows, _record, 2)
    assert first == Reject("t.csv:2", "the row is not understood (ZeroDivisionError)")
    assert isinstance(second, Record)
    assert second.time_s == 0.5
    assert rest == [
        Reject("t.csv:4", "n is not a number"),
        Reject("t.csv:5", "fewer cells than columns"),
    ]


def test_rows_whose_common_record_cannot_be_made_are_all_rejected(tmp_path: Path) -> None:
    rows = _table(tmp_path, b"a,n\n1,-1\n2,-1\n")
    rejects = list(merged(rows, lambda found: _record(found[-1])))
    assert [row.origin for row in rejects] == ["t.csv:2", "t.csv:3"]
    assert all(isinstance(row, Reject) and "positive" in row.reason for row in rejects)


def test_a_missing_json_file_is_a_reject(tmp_path: Path) -> None:
    found = json_object(tmp_path, tmp_path / "none.json")
    assert found == Reject("none.json", "file cannot be read further (FileNotFoundError)")
