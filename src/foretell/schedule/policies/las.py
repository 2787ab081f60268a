"""Least attained service, as in Tiresias: who has had little goes first, whatever their length.

Device-time falls into classes; inside a class jobs go by arrival, and a job is stopped only for one
of a lower class, so that two equal jobs do not take turns for ever.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from foretell.schedule.job import Job, Site
from foretell.schedule.queues import SizedQueue

_CLASSES_DEVICE_S = (3_600.0, 36_000.0)


class LeastAttained:
    """Needs no prediction; preemptive."""

    name = "las"

    def __init__(self, classes_device_s: Sequence[float] = _CLASSES_DEVICE_S) -> None:
        self._classes = tuple(classes_device_s)
        self._waiting = SizedQueue()
        self._running: dict[int, tuple[Job, float]] = {}
        """Job and when it was started."""

    def submitted(self, job: Job, site: Site) -> None:
        """To its class."""
        self._running.pop(job.number, None)
        self._wait(job)

    def ended(self, job: Job, site: Site) -> None:
        """It waits no more, and its devices are free."""
        self._waiting.remove(job)
        self._running.pop(job.number, None)

    def decide(self, site: Site) -> float:
        """Lower classes first: on free devices, else on those of higher classes."""
        blocked = []
        while (job := self._waiting.first()) is not None:
            if job.devices > site.free_devices and not self._make_room(job, site):
                self._waiting.remove(job)
                blocked.append(job)
                if (job := self._waiting.first(site.free_devices)) is None:
                    break
            offer = site.offer(job)
            self._waiting.remove(job)
            if offer is None:
                blocked.append(job)
            else:
                site.start(job, offer)
                self._running[job.number] = (job, site.now_s)
        for job in blocked:
            self._wait(job)
        return self._next_change_s(site) if len(self._waiting) else math.inf

    def _wait(self, job: Job) -> None:
        self._waiting.add(job, self._class(job.served_s), job.arrival_s)

    def _class(self, served: float) -> int:
        return sum(served >= limit for limit in self._classes)

    def _served(self, job: Job, since_s: float, site: Site) -> float:
        return job.served_s + (site.now_s - since_s) * job.devices

    def _make_room(self, job: Job, site: Site) -> bool:
        """Stop jobs of higher classes, the highest and latest first, if that is enough."""
        mine = self._class(job.served_s)
        higher = [
            (self._class(self._served(other, since_s, site)), other.arrival_s, other.number, other)
            for other, since_s in self._running.values()
            if other.preemptible
        ]
        higher = sorted(each for each in higher if each[0] > mine)[::-1]
        free, stopped = site.free_devices, []
        for *_, other in higher:
            if free >= job.devices:
                break
            free += other.devices
            stopped.append(other)
        if free < job.devices:
            return False
        for other in stopped:
            del self._running[other.number]
            site.stop(other)
            self._wait(other)
        return True

    def _next_change_s(self, site: Site) -> float:
        """When the next running job leaves its class."""
        soonest = math.inf
        for job, since_s in self._running.values():
            served = self._served(job, since_s, site)
            left = [limit - served for limit in self._classes if limit > served]
            if left:
                soonest = min(soonest, site.now_s + max(min(left) / job.devices, 1e-3))
        return soonest
