"""Jobs that run, by how much work is left of them."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterator

from foretell.schedule.job import Job, Site

_LOOK_AGAIN = 0.5
"""Of what is left, after which a job is looked at again: it may need longer than was thought."""
_SOON_S = 10.0


class Working:
    """Jobs by devices, those of equal numbers in the order of their expected ends.

    Of these the last has most work left, and stays it while nothing else is learned: only the last
    of each number need be compared.
    """

    def __init__(self) -> None:
        self._ends: dict[int, list[tuple[float, int]]] = {}
        self._running: dict[int, tuple[float, Job, float]] = {}
        """Job number -> that end, job, by how much its place stretches it."""
        self._again: list[tuple[float, int]] = []
        """When to look at which job again."""

    def __contains__(self, job: object) -> bool:
        return isinstance(job, Job) and job.number in self._running

    def started(self, job: Job, site: Site, stretch: float = 1.0) -> None:
        """A job was given devices; `stretch` makes what is left of it count for more."""
        left_s = site.remaining_s(job) * stretch
        end_s = site.now_s + left_s
        insort(self._ends.setdefault(job.devices, []), (end_s, job.number))
        self._running[job.number] = (end_s, job, stretch)
        again_s = site.now_s + max(_LOOK_AGAIN * left_s, _SOON_S)
        heapq.heappush(self._again, (again_s, job.number))

    def stopped(self, job: Job) -> None:
        """A job has no devices any more, whether or not it had any."""
        known = self._running.pop(job.number, None)
        if known is not None:
            ends = self._ends[job.devices]
            del ends[bisect_left(ends, (known[0], job.number))]

    def look_again(self, site: Site) -> float:
        """Learn how those do that are due; when the next is."""
        while self._again and self._again[0][0] <= site.now_s:
            _, number = heapq.heappop(self._again)
            known = self._running.get(number)
            if known is not None:
                _, job, stretch = known
                self.stopped(job)
                self.started(job, site, stretch)
        while self._again and self._again[0][1] not in self._running:
            heapq.heappop(self._again)
        return self._again[0][0] if self._again else float("inf")

    def most_left_first(self, now_s: float, *, as_work: bool = True) -> Iterator[tuple[float, Job]]:
        """Device-seconds left, or seconds, and whose, the most first."""

        def head(devices: int, at: int) -> tuple[float, int, int]:
            left_s = self._ends[devices][at][0] - now_s
            return -left_s * (devices if as_work else 1), devices, at

        heads = [head(devices, len(ends) - 1) for devices, ends in self._ends.items() if ends]
        heapq.heapify(heads)
        while heads:
            left, devices, at = heads[0]
            yield -left, self._running[self._ends[devices][at][1]][1]
            if at:
                heapq.heapreplace(heads, head(devices, at - 1))
            else:
                heapq.heappop(heads)
