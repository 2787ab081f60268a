"""Least attained service, as in Tiresias: who has had little goes first, whatever their length.

Device-time falls into classes; inside a class jobs go by arrival, and a job is stopped only for one
of a lower class, so that two equal jobs do not take turns for ever.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence

from foretell.schedule.job import Job, Site
from foretell.schedule.policies.preemptive import Preemptive
from foretell.schedule.queues import Key

_CLASSES_DEVICE_S = (3_600.0, 36_000.0)
_SOON_S = 1e-3


class LeastAttained(Preemptive):
    """Needs no prediction."""

    name = "las"
    asks_lengths = False

    def __init__(self, classes_device_s: Sequence[float] = _CLASSES_DEVICE_S) -> None:
        super().__init__()
        self._limits = (*classes_device_s, math.inf)
        self._classes: list[dict[int, Job]] = [{} for _ in self._limits]
        """Who runs, by class."""
        self._started: dict[int, tuple[int, float]] = {}
        """Class and start of those that run."""
        self._leave: list[tuple[float, int]] = []
        """When who leaves a class."""

    def key(self, job: Job, site: Site) -> Key:
        """Its class, and when it came."""
        return (self._class(job.served_s), job.arrival_s)

    def ranked(self, site: Site) -> Iterator[tuple[float, Job]]:
        """By class, and the latest first."""
        for class_ in range(len(self._limits) - 1, 0, -1):
            for number in sorted(self._classes[class_], reverse=True):
                yield class_, self._classes[class_][number]

    def least_rank(self, job: Job, site: Site) -> float:
        """The class above its own."""
        return self._class(job.served_s) + 1

    def started(self, job: Job, site: Site) -> None:
        """To its class, until it leaves it."""
        self._file(job, site.now_s, site.now_s)

    def stopped(self, job: Job) -> None:
        """From its class."""
        known = self._started.pop(job.number, None)
        if known is not None:
            del self._classes[known[0]][job.number]

    def learn(self, site: Site) -> float:
        """Who has left a class; when the next will."""
        while self._leave and self._leave[0][0] <= site.now_s:
            _, number = heapq.heappop(self._leave)
            known = self._started.get(number)
            if known is not None:
                class_, started_s = known
                self._file(self._classes[class_].pop(number), started_s, site.now_s)
        while self._leave and self._leave[0][1] not in self._started:
            heapq.heappop(self._leave)
        return self._leave[0][0] if self._leave else math.inf

    def _file(self, job: Job, started_s: float, now_s: float) -> None:
        served = job.served_s + (now_s - started_s) * job.devices
        class_ = self._class(served)
        self._classes[class_][job.number] = job
        self._started[job.number] = (class_, started_s)
        ahead = self._limits[class_] - served
        if ahead < math.inf:
            heapq.heappush(self._leave, (now_s + max(ahead / job.devices, _SOON_S), job.number))

    def _class(self, served: float) -> int:
        return sum(served >= limit for limit in self._limits[:-1])
