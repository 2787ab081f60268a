"""What Slurm's accounting prints: sacct --parsable2 (or -p) with a header."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from foretell.errors import InputError
from foretell.schedule.readers.rows import (
    BadRow,
    Left,
    NoJob,
    Row,
    moment_s,
    number,
    rows_of,
    shortened,
)
from foretell.schedule.readers.text import cells_of, head_of

_DELIMITER = "|"
_MUST = ("JobID", "Submit")
_GPUS = re.compile(r"gres/gpu(?::(?P<kind>[\w.-]+))?=(?P<count>\d+)")
_TIME = re.compile(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)")
_NOTHING = ("", "Unknown", "None", "INVALID")
_NO_LIMIT = ("UNLIMITED", "Partition_Limit")
_COMMAND = (
    "sacct --parsable2 --format=JobID,JobName,User,Account,Submit,Start,End,Elapsed,Timelimit,"
    "ReqTRES,State"
)


class Sacct:
    """One line a job; lines of its steps are passed over."""

    about = f"Slurm: {_COMMAND}"

    def reads(self, path: Path) -> bool:
        """Whether a file looks like it."""
        head = head_of(path, 1)
        return bool(head) and set(_MUST) <= set(head[0].split(_DELIMITER))

    def read(self, path: Path, unit_s: float = 1.0) -> Iterator[Row | Left]:
        """All lines of a file; times are in Slurm's own notation."""
        lines = cells_of(path, _DELIMITER)
        _, header = next(lines, (0, ()))
        names = [name.strip() for name in header]
        missing = [name for name in _MUST if name not in names]
        if not {"Elapsed", "ElapsedRaw"} & set(names):
            missing.append("Elapsed")
        if not {"ReqTRES", "AllocTRES"} & set(names):
            missing.append("ReqTRES")
        if missing:
            raise InputError(
                f"trace {str(path)!r} lacks the columns {', '.join(missing)}: make it with "
                f"{_COMMAND}"
            )
        return rows_of(lines, lambda line, cells: _row(line, names, cells))


def _row(line: int, names: Sequence[str], cells: Sequence[str]) -> Row:
    if len(cells) != len(names):
        raise BadRow(f"{len(cells)} cells where the header names {len(names)}")
    told = {name: cell.strip() for name, cell in zip(names, cells, strict=True)}
    if "." in told["JobID"]:
        raise NoJob("is a step of a job")
    devices, kind = _devices(told)
    return Row(
        line=line,
        id=told["JobID"],
        submit_s=moment_s(told["Submit"], "Submit"),
        duration_s=_elapsed_s(told),
        devices=devices,
        user=told.get("User", ""),
        group=told.get("Account", ""),
        name=told.get("JobName", ""),
        limit_s=_limit_s(told),
        device=kind,
    )


def _devices(told: Mapping[str, str]) -> tuple[int, str]:
    """How many and of which kind; the most that any entry says, as kinds add up to the whole."""
    tres = told.get("ReqTRES") or told.get("AllocTRES") or ""
    found = [(int(m["count"]), m["kind"] or "") for m in _GPUS.finditer(tres)]
    if not found:
        raise NoJob("needs no GPU")
    kinds = [kind for _, kind in found if kind]
    return max(count for count, _ in found), kinds[0] if len(kinds) == 1 else ""


def _elapsed_s(told: Mapping[str, str]) -> float:
    if told.get("ElapsedRaw"):
        return number(told["ElapsedRaw"], "ElapsedRaw")
    return _seconds(told["Elapsed"], "Elapsed")


def _limit_s(told: Mapping[str, str]) -> float:
    if told.get("TimelimitRaw"):
        return number(told["TimelimitRaw"], "TimelimitRaw") * 60
    text = told.get("Timelimit", "")
    return math.inf if text in (*_NOTHING, *_NO_LIMIT) else _seconds(text, "Timelimit")


def _seconds(text: str, what: str) -> float:
    """Of [days-][hours:]minutes:seconds."""
    if text in _NOTHING:
        raise NoJob("never ran")
    match = _TIME.fullmatch(text)
    if match is None:
        raise BadRow(f"{what} {shortened(text)} is not [days-]hours:minutes:seconds")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
