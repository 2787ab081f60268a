"""The Standard Workload Format of the Parallel Workloads Archive: 18 numbers a line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from foretell.schedule.readers.rows import BadRow, Left, NoJob, Row, number, rows_of, whole
from foretell.schedule.readers.text import head_of, open_text

_COLUMNS = 18
_COMMENT = ";"
_UNKNOWN = -1
_ID, _SUBMIT, _RUN, _ALLOCATED, _ASKED, _LIMIT, _USER, _GROUP, _EXECUTABLE = (
    0,
    1,
    3,
    4,
    7,
    8,
    11,
    12,
    13,
)


class Swf:
    """Processors count as devices, executables as names."""

    about = "Standard Workload Format: *.swf"

    def reads(self, path: Path) -> bool:
        """Whether a file looks like it."""
        head = [line for line in head_of(path, 200) if line.strip()]
        jobs = [line.split() for line in head if not line.startswith(_COMMENT)]
        is_named = ".swf" in path.suffixes
        return is_named or (bool(jobs) and len(jobs[0]) == _COLUMNS and _all_numbers(jobs[0]))

    def read(self, path: Path, unit_s: float = 1.0) -> Iterator[Row | Left]:
        """All lines of a file."""
        return rows_of(_lines(path), lambda line, cells: _row(line, cells, unit_s))


def _lines(path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    with open_text(path) as stream:
        for line, text in enumerate(stream, 1):
            cells = text.split()
            if cells and not text.lstrip().startswith(_COMMENT):
                yield line, cells


def _row(line: int, cells: Sequence[str], unit_s: float) -> Row:
    if len(cells) != _COLUMNS:
        raise BadRow(f"{len(cells)} numbers where the format has {_COLUMNS}")
    duration = number(cells[_RUN], "run time")
    if duration == _UNKNOWN:
        raise NoJob("its run time is not known")
    limit = number(cells[_LIMIT], "requested time")
    asked, had = whole(cells[_ASKED], "processors"), whole(cells[_ALLOCATED], "processors")
    return Row(
        line=line,
        id=cells[_ID],
        submit_s=number(cells[_SUBMIT], "submit time") * unit_s,
        duration_s=duration * unit_s,
        devices=asked if asked > 0 else max(had, 0),
        user=_known(cells[_USER]),
        group=_known(cells[_GROUP]),
        name=_known(cells[_EXECUTABLE]),
        limit_s=limit * unit_s if limit > 0 else math.inf,
    )


def _known(text: str) -> str:
    return "" if text == str(_UNKNOWN) else text


def _all_numbers(cells: Sequence[str]) -> bool:
    return all(cell.lstrip("-").replace(".", "", 1).isdigit() for cell in cells)
