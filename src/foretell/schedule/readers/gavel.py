"""Gavel's and Shockwave's traces: a job type, a number of steps, an arrival, devices.

How long a step takes is in another file of the same project, `simulation_throughputs.json` (steps
per second by device, job type and number of devices), which is looked for beside the trace and in
the folders above.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretell.errors import InputError
from foretell.schedule.readers.rows import BadRow, Left, Row, number, rows_of, shortened, whole
from foretell.schedule.readers.text import cells_of, head_of

_RATES = ("simulation_throughputs.json", "actual_throughputs.json", "actual_throughputs.json.gz")
_DEVICE = "v100"
"""For which traces are generated."""
_TYPE = re.compile(r".+ \(batch size \d+\)")
_ABOVE = 3


@dataclass(frozen=True)
class _Layout:
    """Where a line has what."""

    steps: int
    devices: int
    arrival: int


_LAYOUTS: Mapping[int, _Layout] = {
    7: _Layout(steps=4, arrival=5, devices=6),
    10: _Layout(steps=5, devices=6, arrival=9),
    12: _Layout(steps=5, devices=6, arrival=11),
}
"""By the number of cells: Gavel's first traces, its later ones, Shockwave's."""


class Gavel:
    """Jobs last as long as on V100s, all devices of a job in one server."""

    about = "Gavel, Shockwave: *.trace, with simulation_throughputs.json in a folder above"

    def reads(self, path: Path) -> bool:
        """Whether a file looks like it."""
        head = head_of(path, 1)
        cells = head[0].split(csv.excel_tab.delimiter) if head else []
        return len(cells) in _LAYOUTS and _TYPE.fullmatch(cells[0]) is not None

    def read(self, path: Path, unit_s: float = 1.0) -> Iterator[Row | Left]:
        """All lines of a file."""
        rates = _rates(path)
        lines = cells_of(path, csv.excel_tab.delimiter)
        return rows_of(lines, lambda line, cells: _row(line, cells, rates))


def _rates(path: Path) -> Mapping[str, Any]:
    for folder in list(path.resolve().parents)[:_ABOVE]:
        for name in _RATES:
            if (folder / name).is_file():
                return _read_rates(folder / name)
    raise InputError(
        f"trace {str(path)!r} counts steps, and {_RATES[0]}, which says how long they take, is in "
        "no folder above: put it beside the trace"
    )


def _read_rates(path: Path) -> Mapping[str, Any]:
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        told = json.loads(raw)[_DEVICE]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{str(path)!r} is not Gavel's table of throughputs ({error}): fetch it again"
        ) from error
    if not isinstance(told, Mapping):
        raise InputError(f"{str(path)!r} lists no job types for {_DEVICE}: fetch it again")
    return told


def _row(line: int, cells: Sequence[str], rates: Mapping[str, Any]) -> Row:
    if len(cells) not in _LAYOUTS:
        raise BadRow(f"{len(cells)} cells where these traces have {_shown_sizes()}")
    at, kind = _LAYOUTS[len(cells)], cells[0]
    steps, devices = number(cells[at.steps], "steps"), whole(cells[at.devices], "devices")
    per_s = _steps_per_s(kind, devices, rates)
    return Row(
        line=line,
        id=str(line),
        submit_s=number(cells[at.arrival], "arrival"),
        duration_s=steps / per_s,
        devices=devices,
        name=kind,
    )


def _steps_per_s(kind: str, devices: int, rates: Mapping[str, Any]) -> float:
    try:
        found = float(rates[repr((kind, devices))]["null"])
    except (KeyError, TypeError, ValueError):
        raise BadRow(f"no throughput of {shortened(kind)} on {devices} devices") from None
    if not found > 0:
        raise BadRow(f"{shortened(kind)} does not run on {devices} devices")
    return found


def _shown_sizes() -> str:
    return ", ".join(map(str, _LAYOUTS))
