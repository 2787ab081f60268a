"""Logs of clusters as traces: one file per format; the format is found by looking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from foretell.errors import InputError, UnknownNameError
from foretell.schedule.readers.alibaba import Alibaba2020
from foretell.schedule.readers.cases import Cases
from foretell.schedule.readers.gavel import Gavel
from foretell.schedule.readers.headed import ACME, ALIBABA_2023, HELIOS, PLAIN
from foretell.schedule.readers.philly import Philly
from foretell.schedule.readers.pollux import Pollux
from foretell.schedule.readers.rows import Left, Row
from foretell.schedule.readers.sacct import Sacct
from foretell.schedule.readers.swf import Swf

__all__ = ["FORMATS", "Left", "Reader", "Row", "format_of", "read_log"]


class Reader(Protocol):
    """Reads one format."""

    @property
    def about(self) -> str:
        """What it reads, in a few words."""

    def reads(self, path: Path) -> bool:
        """Whether a log looks like it."""

    def read(self, path: Path, unit_s: float = 1.0) -> Iterator[Row | Left]:
        """Every line as a job or as the reason why it is none."""


FORMATS: Mapping[str, Reader] = {
    "alibaba-2020": Alibaba2020(),
    "cases": Cases(),
    "philly": Philly(),
    "swf": Swf(),
    "sacct": Sacct(),
    "gavel": Gavel(),
    "pollux": Pollux(),
    "helios": HELIOS,
    "acme": ACME,
    "alibaba-2023": ALIBABA_2023,
    "csv": PLAIN,
}
"""Those that know their format best come first; the last reads any table with a header."""


def format_of(path: Path) -> str:
    """The first format that a log looks like."""
    if not path.exists():
        raise InputError(f"trace {str(path)!r} does not exist: give a log of jobs")
    if path.is_dir():
        if not FORMATS["alibaba-2020"].reads(path):
            raise InputError(f"trace {str(path)!r} is a folder without tables of jobs: give a file")
        return "alibaba-2020"
    return next(
        (name for name, reader in FORMATS.items() if name != "alibaba-2020" and reader.reads(path)),
        "csv",
    )


def read_log(
    path: Path, log_format: str | None = None, unit_s: float = 1.0
) -> tuple[list[Row], list[Left]]:
    """All jobs of a log in the order they were submitted, and the lines that are none."""
    if log_format is not None and log_format not in FORMATS:
        known = ", ".join(FORMATS)
        raise UnknownNameError("trace format", log_format, FORMATS, f"use one of {known}")
    name = format_of(path) if log_format is None else log_format
    rows: list[Row] = []
    left: list[Left] = []
    for found in FORMATS[name].read(path, unit_s):
        if isinstance(found, Row):
            rows.append(found)
        else:
            left.append(found)
    if not rows:
        why = f"; line {left[0].line}: {left[0].reason}" if left else ""
        raise InputError(
            f"trace {str(path)!r}, read as {name}, has no job that can be scheduled{why}: give "
            "another file, or its format"
        )
    rows.sort(key=lambda row: row.submit_s)
    return rows, left
