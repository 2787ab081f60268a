"""Workloads of Pollux and Sia: an application, a batch, a number of replicas.

How long such a job takes is worked out from the measurements of the same projects, a folder per
application that is looked for above the workload: how many iterations a batch needs to the end of
training (`validation-BATCH.csv`), and how long one takes on so many replicas (`placements*.csv`).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from foretell.errors import InputError
from foretell.schedule.readers.rows import (
    BadRow,
    Left,
    Row,
    number,
    rows_of,
    shortened,
    whole,
)
from foretell.schedule.readers.text import cells_of, head_of

_HEADER = "name time application num_replicas batch_size".split()
_PLACES = ("sched/traces", "traces")
_TABLES = ("placements.csv", "placements-aws.csv")
"""Both on servers of four T4."""
_ABOVE = 5


class Pollux:
    """Jobs last as long as on T4s, on as few servers of four as they fit."""

    about = "Pollux, Sia: workload-*.csv, with the folder of traces per application above"

    def reads(self, path: Path) -> bool:
        """Whether a file looks like it."""
        head = head_of(path, 1)
        return bool(head) and head[0].split(",") == _HEADER

    def read(self, path: Path, unit_s: float = 1.0) -> Iterator[Row | Left]:
        """All lines of a file."""
        measured = _folder(path)
        known: dict[str, _Application] = {}
        lines = cells_of(path, csv.excel.delimiter)
        next(lines, None)

        def row(line: int, cells: Sequence[str]) -> Row:
            if len(cells) != len(_HEADER):
                raise BadRow(f"{len(cells)} cells where the header names {len(_HEADER)}")
            name, submitted, application, replicas, batch = cells
            if application not in known:
                known[application] = _Application(measured / application)
            devices = whole(replicas, "num_replicas")
            return Row(
                line=line,
                id=name,
                submit_s=number(submitted, "time") * unit_s,
                duration_s=known[application].duration_s(devices, whole(batch, "batch_size")),
                devices=devices,
                name=application,
            )

        return rows_of(lines, row)


def _folder(path: Path) -> Path:
    for above in list(path.resolve().parents)[:_ABOVE]:
        for place in _PLACES:
            if (above / place).is_dir():
                return above / place
    raise InputError(
        f"trace {str(path)!r} names applications, and their measurements ({_PLACES[0]}) are in no "
        "folder above: keep the layout of upstream"
    )


class _Application:
    """What was measured of one."""

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise BadRow(f"application {shortened(folder.name)} was not measured")
        self._folder = folder

    def duration_s(self, replicas: int, batch: int) -> float:
        """Of training to the end."""
        if replicas < 1 or batch < replicas:
            raise BadRow(f"batch {batch} on {replicas} replicas: give each a sample at least")
        return self._iterations(batch) * self._step_s(replicas, batch / replicas)

    def _iterations(self, batch: int) -> float:
        files = {int(p.stem.rpartition("-")[2]): p for p in self._folder.glob("validation-*.csv")}
        if batch not in files:
            raise BadRow(f"batch {batch} of {self._folder.name} was not measured")
        rows = list(_table(files[batch]))
        return float(rows[-1]["iteration"])

    def _step_s(self, replicas: int, local: float) -> float:
        """On the measured number of devices that is nearest, between measured batches."""
        nearest = min(self._steps, key=lambda n: (abs(n - replicas), n))
        sizes, times = self._steps[nearest]
        within = float(np.interp(local, sizes, times))
        return within * max(1.0, local / float(sizes[-1]))

    @cached_property
    def _steps(self) -> Mapping[int, tuple[np.ndarray, np.ndarray]]:
        """Devices -> batches per device and seconds, on the fewest servers measured."""
        path = next(p for name in _TABLES if (p := self._folder / name).is_file())
        found: dict[int, dict[str, list[tuple[float, float]]]] = {}
        for row in _table(path):
            placement = row["placement"]
            places = found.setdefault(sum(map(int, placement)), {})
            places.setdefault(placement, []).append(
                (float(row["local_bsz"]), float(row["step_time"]))
            )
        best = {n: places[min(places, key=lambda p: (len(p), p))] for n, places in found.items()}
        return {
            n: (np.array([b for b, _ in sorted(rows)]), np.array([t for _, t in sorted(rows)]))
            for n, rows in best.items()
        }


def _table(path: Path) -> Iterator[Mapping[str, str]]:
    with path.open(newline="") as stream:
        yield from csv.DictReader(stream)
