"""Logs as text: opened, unpacked, in lines and cells."""

from __future__ import annotations

import csv
import gzip
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from foretell.errors import InputError

_DELIMITERS = ",\t|;"
_GZIP = b"\x1f\x8b"


def open_text(path: Path) -> TextIO:
    """A log, packed by gzip or not."""
    try:
        with path.open("rb") as stream:
            packed = stream.read(2) == _GZIP
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="") if packed else _plain(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def _plain(path: Path) -> TextIO:
    return path.open(encoding="utf-8-sig", newline="")


def head_of(path: Path, count: int = 20) -> list[str]:
    """The first lines."""
    with open_text(path) as stream:
        try:
            return [line.rstrip("\r\n") for line in itertools.islice(stream, count)]
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise _unreadable(path, error) from error


def delimiter_of(header: str) -> str:
    """What separates the names in a header."""
    return max(_DELIMITERS, key=header.count)


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and lines, without empty ones."""
    with open_text(path) as stream:
        try:
            for number, line in enumerate(stream, start=1):
                if text := line.strip():
                    yield number, text
        except (OSError, EOFError, UnicodeDecodeError) as error:
            raise _unreadable(path, error) from error


def cells_of(path: Path, delimiter: str) -> Iterator[tuple[int, Sequence[str]]]:
    """Line numbers and cells, without empty lines."""
    with open_text(path) as stream:
        lines = csv.reader(stream, delimiter=delimiter)
        try:
            for cells in lines:
                if cells:
                    yield lines.line_num, cells
        except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> InputError:
    why = (error.strerror if isinstance(error, OSError) else None) or error
    return InputError(f"trace {str(path)!r} cannot be read ({why}): give a text file of jobs")
