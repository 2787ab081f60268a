"""Jobs that wait, in some order, with quick answers to who of them would fit."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from foretell.schedule.job import Job

Key = tuple[float, ...]


class SizedQueue:
    """Jobs by the devices they need, each kind in order: the first that fits is found at once."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[Key, int, Job]]] = {}
        self._keys: dict[int, Key] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, job: Job) -> bool:
        return job.number in self._keys

    def add(self, job: Job, *key: float) -> None:
        """A job with its place in the order; again, its place changes."""
        self._keys[job.number] = key
        heapq.heappush(self._waiting.setdefault(job.devices, []), (key, job.number, job))

    def remove(self, job: Job) -> None:
        """Whether or not it is there."""
        self._keys.pop(job.number, None)

    def first(self, most_devices: float = float("inf")) -> Job | None:
        """The first in the order that needs no more devices than that."""
        best: tuple[Key, int, Job] | None = None
        for devices, waiting in self._waiting.items():
            if devices > most_devices:
                continue
            while waiting and self._keys.get(waiting[0][1]) != waiting[0][0]:
                heapq.heappop(waiting)
            if waiting and (best is None or waiting[0][:2] < best[:2]):
                best = waiting[0]
        return None if best is None else best[2]


class ArrivalQueue:
    """Jobs in the order of arrival, also of those alone that need few devices."""

    def __init__(self) -> None:
        self._sizes: dict[int, dict[int, Job]] = {}
        """Devices -> number -> job, in the order of numbers."""

    def add(self, job: Job) -> None:
        """To its place; jobs that come back go where they were."""
        mine = self._sizes.setdefault(job.devices, {})
        comes_back = bool(mine) and job.number < next(reversed(mine))
        mine[job.number] = job
        if comes_back:
            self._sizes[job.devices] = dict(sorted(mine.items()))

    def remove(self, job: Job) -> None:
        """Whether or not it is there."""
        self._sizes.get(job.devices, {}).pop(job.number, None)

    def first(self) -> Job | None:
        """Who came first."""
        heads = [next(iter(mine.values())) for mine in self._sizes.values() if mine]
        return min(heads, key=lambda job: job.number, default=None)

    def fitting(self, devices: int) -> Iterator[Job]:
        """Who needs no more than so many, in order; the queue must not change meanwhile."""
        sizes = [mine.values() for n, mine in self._sizes.items() if n <= devices]
        return heapq.merge(*sizes, key=lambda job: job.number)
