"""Rows of published files: cells by name, and why a row or a file cannot be read.

What is wrong with a file as a whole is a row too: it has the file's name as its origin, no cells,
and a flaw. So an importer treats it as any row that cannot be taken.
"""

from __future__ import annotations

import csv
import functools
import gzip
import json
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TextIO, TypeVar

from foretell.data.importers.source import Rows, find
from foretell.data.record import Record, Reject
from foretell.errors import InputError, one_line

Made = TypeVar("Made")
Key = TypeVar("Key", bound=Hashable)
About = ParamSpec("About")

LINE = "line"
"""The one column of a file that is no table."""
MERGED = "counted in the median of another row"
"""Why a row is rejected whose value went into a record made of several."""
NO_ROWS = "file holds no rows"
_UNREADABLE = (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error)


class BadRowError(Exception):
    """A row that cannot be taken; str() is the reason, by which rejects are counted."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table."""

    origin: str
    """file:line, or the file where it is about all of it"""
    cells: Mapping[str, str]
    flaw: str = ""
    """What is wrong with the row as a whole."""

    def text(self, name: str) -> str:
        """A cell without surrounding blanks; it may be empty."""
        if name not in self.cells:
            raise BadRowError(missing(name))
        return self.cells[name].strip()

    def filled(self, name: str) -> str:
        """A cell that must hold something."""
        value = self.text(name)
        if not value:
            raise BadRowError(f"{name} is empty")
        return value

    def number(self, name: str) -> float:
        """A finite number."""
        try:
            value = float(self.filled(name))
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise BadRowError(f"{name} is not a number")
        return value

    def positive(self, name: str) -> float:
        """A number above zero."""
        value = self.number(name)
        if value <= 0:
            raise BadRowError(f"{name} is not above zero")
        return value

    def whole(self, name: str, default: int | None = None) -> int:
        """A whole number, as 8 or 8.0; the default, if there is one, stands for an empty cell."""
        if default is not None and not self.text(name):
            return default
        value = self.number(name)
        if value != int(value):
            raise BadRowError(f"{name} is not a whole number")
        return int(value)

    def count(self, name: str, default: int | None = None) -> int:
        """A whole number of one or more."""
        value = self.whole(name, default)
        if value < 1:
            raise BadRowError(f"{name} is not at least 1")
        return value

    def optional(self, **columns: str) -> dict[str, float]:
        """name -> number of those columns that hold one."""
        found = {}
        for name, column in columns.items():
            try:
                found[name] = self.number(column)
            except BadRowError:
                continue
        return found


def missing(column: str) -> str:
    """The reason for which rows without a column are rejected."""
    return f"column {column!r} is missing"


def unreadable(error: Exception) -> str:
    """The flaw of a file that cannot be read to its end."""
    return f"file cannot be read further ({type(error).__name__})"


def place(folder: Path, path: Path) -> str:
    """A file as an origin names it."""
    return path.relative_to(folder).as_posix()


def file_reader(
    read: Callable[[str, TextIO], Iterator[Row]],
) -> Callable[[Path, Path], Iterator[Row]]:
    """Reads a file below a folder: its rows, and a flawed one where it is cut off or empty."""

    @functools.wraps(read)
    def rows(folder: Path, path: Path) -> Iterator[Row]:
        name, empty = place(folder, path), True
        try:
            with _open_text(path) as stream:
                for row in read(name, stream):
                    empty = empty and not any(row.cells.values())
                    yield row
        except _UNREADABLE as error:
            yield Row(name, {}, unreadable(error))
        else:
            if empty:
                yield Row(name, {}, NO_ROWS)

    return rows


@file_reader
def csv_file(name: str, stream: TextIO) -> Iterator[Row]:
    """The rows of a CSV file; a column whose name comes a second time is called 'name (2)'."""
    reader = csv.reader(stream)
    names: list[str] = []
    for cells in reader:
        if cells and not names:
            names = distinct(cells)
        elif cells:
            yield row_of(f"{name}:{reader.line_num}", names, cells)


@file_reader
def lines(name: str, stream: TextIO) -> Iterator[Row]:
    """Every line of a text file, as its only cell."""
    for number, line in enumerate(stream, start=1):
        yield Row(f"{name}:{number}", {LINE: line.rstrip()})


def csv_table(folder: Path, *patterns: str) -> Iterator[Row]:
    """The rows of all CSV files below `folder` that match, each with a header of its own."""
    for path in find(folder, *patterns):
        yield from csv_file(folder, path)


def json_object(folder: Path, path: Path) -> dict[str, Any] | Reject:
    """What a JSON file holds, or why it cannot be had."""
    name = place(folder, path)
    try:
        with _open_text(path) as stream:
            content = json.load(stream)
    except _UNREADABLE as error:
        return Reject(name, unreadable(error))
    except ValueError:
        return Reject(name, "file is not JSON")
    return content if isinstance(content, dict) else Reject(name, "file holds no JSON object")


def row_of(origin: str, names: list[str], cells: list[str]) -> Row:
    """A row of a table with these columns."""
    flaw = ""
    if len(cells) != len(names):
        flaw = f"{'more' if len(cells) > len(names) else 'fewer'} cells than columns"
    return Row(origin, dict(zip(names, cells, strict=False)), flaw)


def distinct(names: list[str]) -> list[str]:
    """Names of columns, told apart by a number where they come again."""
    seen: Counter[str] = Counter()
    found = []
    for name in (n.strip() for n in names):
        seen[name] += 1
        found.append(f"{name} ({seen[name]})" if seen[name] > 1 else name)
    return found


def taken(
    row: Row,
    make: Callable[Concatenate[Row, About], Made],
    *about: About.args,
    **named: About.kwargs,
) -> Made | Reject:
    """What `make(row, *about)` gives, or the row rejected for what was wrong with it."""
    if row.flaw:
        return Reject(row.origin, row.flaw)
    try:
        return make(row, *about, **named)
    except (BadRowError, InputError) as error:
        return Reject(row.origin, one_line(error))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        return Reject(row.origin, f"the row is not understood ({type(error).__name__})")


def each(
    rows: Iterable[Row],
    make: Callable[Concatenate[Row, About], Record],
    *about: About.args,
    **named: About.kwargs,
) -> Rows:
    """A record of every row, or the reason why there is none."""
    for row in rows:
        yield taken(row, make, *about, **named)


def rejected(rows: Iterable[Row], reason: str) -> Iterator[Reject]:
    """Rows none of which is taken."""
    for row in rows:
        yield Reject(row.origin, row.flaw or reason)


def grouped(
    rows: Iterable[Row], key: Callable[[Row], Key]
) -> tuple[dict[Key, list[Row]], list[Reject]]:
    """Rows by their key, in the order of the first of each, and the rows that have none."""
    found: dict[Key, list[Row]] = defaultdict(list)
    rejects = []
    for row in rows:
        where = taken(row, key)
        if isinstance(where, Reject):
            rejects.append(where)
        else:
            found[where].append(row)
    return found, rejects


def merged(
    rows: list[Row],
    make: Callable[Concatenate[list[Row], About], Record],
    *about: About.args,
    **named: About.kwargs,
) -> Rows:
    """A record made of several rows: it has the origin of one, the others are counted as merged."""
    made = taken(rows[0], lambda _: make(rows, *about, **named))
    if isinstance(made, Reject):
        yield from rejected(rows, made.reason)
        return
    yield made
    yield from rejected((row for row in rows if row.origin != made.origin), MERGED)


def _open_text(path: Path) -> TextIO:
    """A text file, unpacked when it is gzipped."""
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8", newline="")
    return path.open(encoding="utf-8", newline="")
