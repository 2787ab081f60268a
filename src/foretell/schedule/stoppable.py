"""Running jobs in the order in which they would be stopped, and who must go to make room."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from foretell.schedule.job import Job


@dataclass(slots=True)
class _Line:
    """Those of one pool, in that order."""

    jobs: list[Job] = field(default_factory=list)
    devices: list[int] = field(default_factory=list)
    """That they and all before them have."""
    ranks: list[float] = field(default_factory=list)


class Stoppable:
    """Good for one moment: counted as far as anybody asked, however many ask."""

    def __init__(self, ranked: Iterable[tuple[float, Job, int]]) -> None:
        """(rank, job, pool) of those that may be stopped, the highest rank first."""
        self._ranked = iter(ranked)
        self._lines: dict[int, _Line] = {}
        self._next: tuple[float, Job, int] | None = None
        """The first that is not counted yet, where somebody looked at it."""

    def for_room(self, devices: int, free: Mapping[int, int], least: float) -> list[Job] | None:
        """Who goes so that one of some pools has so many free devices; None: that is impossible.

        Nobody below the `least` rank goes.
        """
        missing = {pool: devices - count for pool, count in free.items()}
        if any(count <= 0 for count in missing.values()):
            return []
        best, highest = None, -math.inf
        for pool, count in missing.items():
            line = self._lines.get(pool)
            if line is not None and line.devices[-1] >= count:
                last = bisect_left(line.devices, count)
                if line.ranks[last] >= max(least, highest):
                    best, highest = line.jobs[: last + 1], line.ranks[last]
        if best is not None:
            return best
        while (ahead := self._next or next(self._ranked, None)) is not None:
            rank, job, pool = ahead
            if rank < least:
                self._next = ahead
                break
            self._next = None
            line = self._lines.setdefault(pool, _Line())
            line.jobs.append(job)
            line.devices.append(job.devices + (line.devices[-1] if line.devices else 0))
            line.ranks.append(rank)
            if line.devices[-1] >= missing.get(pool, math.inf):
                return list(line.jobs)
        return None
