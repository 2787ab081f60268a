"""Tables whose first line names their columns: our own, Philly's, Helios', Acme's and many more."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    whole,
)
from foretell.schedule.readers.text import cells_of, delimiter_of, head_of

_NAMES: Mapping[str, tuple[str, ...]] = {
    "id": ("id", "job_id", "jobid"),
    "submit": (
        "submit_s",
        "arrival_s",
        "submit_time",
        "submission_time",
        "arrival_time",
        "timestamp",
        "submit",
        "arrival",
        "submitted",
        "time",
        "creation_time",
    ),
    "duration": ("duration_s", "duration", "run_time", "runtime", "length", "elapsed"),
    "start": ("start_s", "start_time", "start", "scheduled_time"),
    "end": ("end_s", "end_time", "end", "deletion_time"),
    "devices": (
        "devices",
        "num_gpus",
        "num_gpu",
        "gpu_num",
        "gpus",
        "n_gpus",
        "gpu_request",
        "num_replicas",
        "cpus",
    ),
    "user": ("user", "user_id", "username"),
    "group": ("group", "group_id", "vc", "cluster", "account", "project", "organization"),
    "name": ("application", "model_name", "job_name", "executable", "app_name", "name"),
    "limit": ("limit_s", "time_limit", "timelimit", "limit"),
    "deadline": ("deadline_s", "deadline"),
    "device": ("device", "gpu_type", "gpu_spec", "gpu_model"),
}
"""Field -> names that columns have for it; the first that is there and not taken counts."""


@dataclass(frozen=True, kw_only=True)
class Schema:
    """What a format of this kind calls its columns."""

    about: str
    must: frozenset[str] = frozenset()
    """Columns by which it is recognised; it must have all of them."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NAMES)

    def reads(self, path: Path) -> bool:
        """Whether a file looks like it."""
        head = head_of(path, 1)
        return bool(head) and self.must <= set(_header(head[0]))

    def read(self, path: Path, unit_s: float = 1.0) -> Iterator[Row | Left]:
        """All lines of a file; numbers that are times count in units of so many seconds."""
        head = head_of(path, 1)
        if not head:
            raise InputError(f"trace {str(path)!r} is empty: give a log of jobs")
        lines = cells_of(path, delimiter_of(head[0]))
        _, header = next(lines, (0, ()))
        known = [name.strip().lower() for name in header]
        at: dict[str, int] = {}
        for wanted, names in self.names.items():
            free = (n for n in names if n in known and known.index(n) not in at.values())
            if (found := next(free, None)) is not None:
                at[wanted] = known.index(found)
        self._check(path, known, at)
        return rows_of(lines, _Reader(at, len(known), unit_s).row)

    def _check(self, path: Path, known: Sequence[str], at: Mapping[str, int]) -> None:
        missing = sorted(self.must - set(known))
        if missing:
            raise InputError(
                f"trace {str(path)!r} has no column {', '.join(missing)}: its header must name it"
            )
        timed = "duration" in at or {"start", "end"} <= set(at)
        lacking = [f for f in ("submit", "devices") if f not in at]
        if lacking or not timed:
            wanted = [*lacking, *([] if timed else ["duration"])]
            shown = "; ".join(f"{f} ({', '.join(self.names[f])})" for f in wanted)
            raise InputError(
                f"trace {str(path)!r} lacks columns: its first line must name one for each of "
                f"{shown}"
            )


@dataclass(frozen=True)
class _Reader:
    """Cells to rows, by the place of each column."""

    at: Mapping[str, int]
    width: int
    unit_s: float

    def row(self, line: int, cells: Sequence[str]) -> Row:
        """One line."""
        if len(cells) != self.width:
            raise BadRow(f"{len(cells)} cells where the header names {self.width}")
        at = self.at

        def cell(name: str) -> str:
            return cells[at[name]].strip() if name in at else ""

        return Row(
            line=line,
            id=cell("id") or str(line),
            submit_s=self._moment_s(cell("submit"), "submitted"),
            duration_s=self._duration_s(cell("duration"), cell("start"), cell("end")),
            devices=whole(cell("devices") or "0", "devices"),
            user=cell("user"),
            group=cell("group"),
            name=cell("name"),
            limit_s=self._length_s(cell("limit"), "time limit") if cell("limit") else math.inf,
            deadline_s=self._deadline_s(cell("deadline")),
            device=cell("device"),
        )

    def _deadline_s(self, text: str) -> float:
        return self._moment_s(text, "deadline") if text else math.inf

    def _duration_s(self, duration: str, start: str, end: str) -> float:
        if duration:
            return self._length_s(duration, "duration")
        if not start or not end:
            raise NoJob("has not ended")
        return self._moment_s(end, "end") - self._moment_s(start, "start")

    def _moment_s(self, text: str, what: str) -> float:
        found = moment_s(text, what)
        return found * self.unit_s if _is_number(text) else found

    def _length_s(self, text: str, what: str) -> float:
        return number(text, what) * self.unit_s


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _header(line: str) -> list[str]:
    return [name.strip().lower() for name in line.split(delimiter_of(line))]


def _with(**names: tuple[str, ...]) -> Mapping[str, tuple[str, ...]]:
    return {**_NAMES, **names}


PLAIN = Schema(about="any table whose first line names its columns")
HELIOS = Schema(
    about="Helios: cluster_log.csv",
    must=frozenset("job_id user vc gpu_num node_num state submit_time duration queue".split()),
)
ACME = Schema(
    about="Acme: trace_seren.csv, trace_kalos.csv",
    must=frozenset("job_id user node_num gpu_num type state submit_time duration queue".split()),
    names=_with(name=("type",)),
)
ALIBABA_2023 = Schema(
    about="Alibaba 2023: openb_pod_list_*.csv; shared devices count whole",
    must=frozenset("name num_gpu gpu_milli creation_time deletion_time scheduled_time".split()),
    names=_with(
        id=("name",),
        submit=("creation_time",),
        start=("scheduled_time",),
        end=("deletion_time",),
        user=(),
        group=("qos",),
        name=(),
        device=("gpu_spec",),
    ),
)
