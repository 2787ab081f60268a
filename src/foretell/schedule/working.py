"""Jobs that run, by how long they still need."""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from foretell.schedule.job import Job, Site

_LOOK_AGAIN = 0.5
"""Of what is left, after which a job is looked at again: it may need longer than was thought."""
_SOON_S = 300.0


class Working:
    """Jobs in the order of their expected ends, which stays the same while nothing is learned."""

    def __init__(self, left_s: Callable[[Site, Job], float]) -> None:
        self._left_s = left_s
        """Of a job, at the pace of the fewest servers."""
        self._ends: list[tuple[float, int]] = []
        self._running: dict[int, tuple[float, Job, float]] = {}
        """Job number -> that end, job, by how much its place stretches it."""
        self._again: list[tuple[float, int]] = []
        """When to look at which job again."""

    def __contains__(self, job: object) -> bool:
        return isinstance(job, Job) and job.number in self._running

    def started(self, job: Job, site: Site, stretch: float = 1.0) -> None:
        """A job was given devices, where it takes `stretch` times as long."""
        left_s = self._left_s(site, job) * stretch
        end_s = site.now_s + left_s
        insort(self._ends, (end_s, job.number))
        self._running[job.number] = (end_s, job, stretch)
        again_s = site.now_s + max(_LOOK_AGAIN * left_s, _SOON_S)
        heapq.heappush(self._again, (again_s, job.number))

    def stopped(self, job: Job) -> None:
        """A job has no devices any more, whether or not it had any."""
        known = self._running.pop(job.number, None)
        if known is not None:
            del self._ends[bisect_left(self._ends, (known[0], job.number))]

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

    def most_left_first(self, now_s: float) -> Iterator[tuple[float, Job]]:
        """Seconds left and whose, the most first; nobody may come or go meanwhile."""
        for end_s, number in reversed(self._ends):
            yield end_s - now_s, self._running[number][1]
