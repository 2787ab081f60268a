"""Alibaba's PAI log of 2020: a folder with a table of jobs and one of their tasks."""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from foretell.errors import InputError
from foretell.schedule.readers.rows import BadRow, Left, NoJob, Row, number, rows_of
from foretell.schedule.readers.text import cells_of

_JOBS, _TASKS = "pai_job_table", "pai_task_table"
_JOB_COLUMNS = "job_name inst_id user status start_time end_time".split()
_TASK_COLUMNS = (
    "job_name task_name inst_num status start_time end_time plan_cpu plan_mem plan_gpu gpu_type"
).split()
_SUFFIXES = (".csv", ".csv.gz")


@dataclass(frozen=True)
class _Needs:
    """What all tasks of a job need together."""

    devices: int
    kind: str


class Alibaba2020:
    """Instances times planned GPUs (in hundredths) over all tasks, rounded up.

    The log knows when a job started, not when it was submitted: that counts as its arrival.
    """

    about = f"Alibaba PAI 2020: the folder of {_JOBS}.csv and {_TASKS}.csv"

    def reads(self, path: Path) -> bool:
        """Whether a folder looks like it."""
        return path.is_dir() and _table(path, _JOBS) is not None

    def read(self, path: Path, unit_s: float = 1.0) -> Iterator[Row | Left]:
        """All jobs."""
        jobs, tasks = _table(path, _JOBS), _table(path, _TASKS)
        if jobs is None or tasks is None:
            raise InputError(f"trace {str(path)!r} lacks {_JOBS}.csv or {_TASKS}.csv: fetch both")
        needs = _needs(tasks)
        return rows_of(
            _lines(jobs, _JOB_COLUMNS), lambda line, cells: _row(line, cells, needs, unit_s)
        )


def _table(folder: Path, name: str) -> Path | None:
    return next((p for end in _SUFFIXES if (p := folder / f"{name}{end}").is_file()), None)


def _lines(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    """Upstream's tables have no header; one with the right names is passed over."""
    for line, cells in cells_of(path, csv.excel.delimiter):
        if list(cells) != list(columns):
            yield line, cells


def _needs(path: Path) -> dict[str, _Needs]:
    hundredths: dict[str, float] = defaultdict(float)
    kinds: dict[str, set[str]] = defaultdict(set)
    for line, cells in _lines(path, _TASK_COLUMNS):
        if len(cells) != len(_TASK_COLUMNS):
            raise InputError(
                f"{str(path)!r} has {len(cells)} cells in line {line}, not {len(_TASK_COLUMNS)}: "
                "fetch it again"
            )
        name, instances, planned, kind = cells[0], cells[2], cells[8], cells[9]
        try:
            hundredths[name] += float(instances or 0) * float(planned or 0)
        except ValueError:
            raise InputError(
                f"{str(path)!r} has instances {instances!r} and GPUs {planned!r} in line {line}: "
                "they must be numbers"
            ) from None
        if planned:
            kinds[name].add(kind)
    return {
        name: _Needs(
            math.ceil(all_ / 100), next(iter(kinds[name])) if len(kinds[name]) == 1 else ""
        )
        for name, all_ in hundredths.items()
    }


def _row(line: int, cells: Sequence[str], needs: dict[str, _Needs], unit_s: float) -> Row:
    if len(cells) != len(_JOB_COLUMNS):
        raise BadRow(f"{len(cells)} cells where the table has {len(_JOB_COLUMNS)}")
    name, _, user, _, start, end = cells
    if name not in needs:
        raise NoJob("has no tasks")
    if not start or not end:
        raise NoJob("has not ended")
    start_s = number(start, "start_time") * unit_s
    return Row(
        line=line,
        id=name,
        submit_s=start_s,
        duration_s=number(end, "end_time") * unit_s - start_s,
        devices=needs[name].devices,
        user=user,
        device=needs[name].kind,
    )
