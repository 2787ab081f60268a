"""Rows of published tables: cells by name, and why a row cannot be read."""

from __future__ import annotations

import contextlib
import csv
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from foretell.data.importers.source import Rows, find, open_text
from foretell.data.record import Record, Reject
from foretell.errors import InputError, one_line

Key = TypeVar("Key", bound=Hashable)

MERGED = "counted in the median of another row"
"""Why a row is rejected whose value went into a record made of several."""


class BadRowError(Exception):
    """A row that cannot be taken; str() is the reason."""


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    origin: str
    """file:line"""
    cells: Mapping[str, str]
    flaw: str = ""
    """What is wrong with the row as a whole."""

    def text(self, name: str) -> str:
        """A cell without surrounding blanks; it may be empty."""
        if name not in self.cells:
            raise BadRowError(f"column {name!r} is missing")
        return self.cells[name].strip()

    def number(self, name: str) -> float:
        """A finite number."""
        try:
            value = float(self.text(name))
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
        """A whole number; the default, if there is one, stands for an empty cell."""
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


def csv_table(folder: Path, *patterns: str) -> Iterator[Row]:
    """The rows of all CSV files below `folder` that match, each with a header of its own."""
    for path in find(folder, *patterns):
        yield from csv_file(folder, path)


def csv_file(folder: Path, path: Path) -> Iterator[Row]:
    """The rows of a CSV file; a column whose name comes a second time is called 'name (2)'."""
    with readable(path), open_text(path) as stream:
        reader = csv.reader(stream)
        names: list[str] = []
        for cells in reader:
            if cells and not names:
                names = distinct(cells)
            elif cells:
                yield row_of(f"{place(folder, path)}:{reader.line_num}", names, cells)


def each(rows: Iterable[Row], make: Callable[[Row], Record]) -> Rows:
    """A record of every row, or the reason why there is none."""
    for row in rows:
        try:
            yield make(_sound(row))
        except (BadRowError, InputError) as error:
            yield Reject(row.origin, one_line(error))


def grouped(
    rows: Iterable[Row], key: Callable[[Row], Key]
) -> tuple[dict[Key, list[Row]], list[Reject]]:
    """Rows by their key, in the order of the first of each, and the rows that have none."""
    found: dict[Key, list[Row]] = defaultdict(list)
    rejects = []
    for row in rows:
        try:
            found[key(_sound(row))].append(row)
        except (BadRowError, InputError) as error:
            rejects.append(Reject(row.origin, one_line(error)))
    return found, rejects


def merged(record: Record, rows: Iterable[Row]) -> Rows:
    """A record made of several rows: it has the origin of one, the others are counted as merged."""
    yield record
    for row in rows:
        if row.origin != record.origin:
            yield Reject(row.origin, MERGED)


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what can go wrong while a file is read into one sentence."""
    try:
        yield
    except (OSError, EOFError, zlib.error, csv.Error, ValueError) as error:
        raise InputError(
            f"file {str(path)!r} cannot be read ({one_line(error)}): fetch it again"
        ) from error


def _sound(row: Row) -> Row:
    if row.flaw:
        raise BadRowError(row.flaw)
    return row


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


def place(folder: Path, path: Path) -> str:
    """A file as an origin names it."""
    return path.relative_to(folder).as_posix()
