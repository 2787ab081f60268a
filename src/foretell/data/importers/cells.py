"""Rows of tables as numbers and names; what is wrong with them in words that can be counted."""

from __future__ import annotations

import csv
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from foretell.cluster import devices
from foretell.data.importers.source import Rows, csv_rows, open_text
from foretell.data.record import Record, Reject
from foretell.errors import InputError

Row = Mapping[str, Any]
UNREADABLE = (OSError, EOFError, UnicodeDecodeError, zlib.error, csv.Error)


class BadRowError(Exception):
    """A row that cannot be taken; str() is the reason. It names no value, to be counted by."""


def text(row: Row, column: str) -> str:
    """What a column holds, which must be something."""
    value = row.get(column)
    if value is None:
        raise BadRowError(f"column {column!r} is missing")
    if not str(value).strip():
        raise BadRowError(f"{column} is empty")
    return str(value).strip()


def number(row: Row, column: str) -> float:
    """A finite number."""
    value = text(row, column)
    try:
        found = float(value)
    except ValueError:
        raise BadRowError(f"{column} is not a number") from None
    if not math.isfinite(found):
        raise BadRowError(f"{column} is not a number")
    return found


def positive(row: Row, column: str) -> float:
    """A number above zero."""
    found = number(row, column)
    if found <= 0:
        raise BadRowError(f"{column} is not above zero")
    return found


def whole(row: Row, column: str) -> int:
    """A whole number of at least one, written as 8 or as 8.0."""
    found = positive(row, column)
    if found != int(found):
        raise BadRowError(f"{column} is not a whole number")
    return int(found)


def optional(row: Row, **columns: str) -> dict[str, float]:
    """name -> number of those columns that hold one."""
    found = {}
    for name, column in columns.items():
        try:
            found[name] = number(row, column)
        except BadRowError:
            continue
    return found


def attempt(origin: str, make: Callable[..., Record | Reject], *about: Any) -> Record | Reject:
    """What `make(origin, *about)` gives, or the row rejected for what was wrong with it."""
    try:
        return make(origin, *about)
    except (BadRowError, InputError) as error:
        return Reject(origin, str(error))
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        return Reject(origin, f"the row is not understood ({type(error).__name__})")


def table_rows(folder: Path, path: Path, make: Callable[..., Record | Reject], *about: Any) -> Rows:
    """`make(origin, row, *about)` of every row of a CSV file, taken or rejected."""
    for origin, row in readable(folder, path):
        yield row if isinstance(row, Reject) else attempt(origin, make, row, *about)


def readable(folder: Path, path: Path) -> Iterator[tuple[str, dict[str, str] | Reject]]:
    """(origin, row) of a CSV file; what cannot be read at all is a reject in place of a row."""
    name = path.relative_to(folder).as_posix()
    empty = True
    try:
        for origin, row in csv_rows(folder, path):
            empty = False
            yield origin, row
    except UNREADABLE as error:
        yield name, Reject(name, f"file cannot be read further ({type(error).__name__})")
    else:
        if empty:
            yield name, Reject(name, "file holds no rows")


def cells_of(folder: Path, path: Path) -> Iterator[tuple[str, list[str] | Reject]]:
    """(origin, cells) of a CSV file that is no table with one header."""
    name = path.relative_to(folder).as_posix()
    try:
        with open_text(path) as stream:
            reader = csv.reader(stream)
            for cells in reader:
                yield f"{name}:{reader.line_num}", cells
    except UNREADABLE as error:
        yield name, Reject(name, f"file cannot be read further ({type(error).__name__})")


def json_content(folder: Path, path: Path) -> tuple[Any, Reject | None]:
    """What a JSON file holds, or why it cannot be read."""
    name = path.relative_to(folder).as_posix()
    try:
        with open_text(path) as stream:
            return json.load(stream), None
    except (*UNREADABLE, ValueError):
        return None, Reject(name, "file is not JSON")


def cluster_text(device: str, gpus: int = 1, nodes: int = 1) -> str:
    """The cluster as --cluster takes it; empty for a device the catalogue does not have."""
    if device not in devices():
        return ""
    counts = [nodes, gpus] if nodes > 1 else [gpus] if gpus > 1 else []
    return "x".join([*map(str, counts), device])


def single_precision(device: str) -> str:
    """What runs where a source says fp32: cuDNN takes TF32 on its own where a device has it."""
    known = devices().get(device)
    return "tf32" if known is not None and known.supports("tf32") else "fp32"
