"""When a job that does not fit yet will, by what is expected of those that run."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from dataclasses import dataclass

from foretell.schedule.job import Job, Offer, Site


@dataclass(frozen=True, slots=True)
class Reservation:
    """Devices kept for a job that waits."""

    start_s: float
    """When it is expected to fit."""
    spare_devices: int
    """That will be free then beside its own."""

    def without(self, devices: int) -> Reservation:
        """After so many of the spare ones were taken for longer."""
        return Reservation(self.start_s, self.spare_devices - devices)

    def leaves_room_for(self, job: Job, offer: Offer, site: Site) -> bool:
        """Whether a job may start now without making it wait longer, if all goes as expected."""
        if job.devices <= self.spare_devices:
            return True
        return site.now_s + site.remaining_s(job) * offer.stretch <= self.start_s


class ExpectedEnds:
    """Of all jobs that run, the first first; by what users stated, if that is asked for."""

    def __init__(self, *, stated: bool = False) -> None:
        self._stated = stated
        self._ends: list[tuple[float, int]] = []
        self._running: dict[int, tuple[float, Job, float]] = {}
        """Job number -> expected end, job, stretch."""

    def started(self, job: Job, offer: Offer, site: Site) -> None:
        """A job was given devices."""
        self._file(job, offer.stretch, site)

    def ended(self, job: Job) -> None:
        """A job has no devices any more, whether or not it had any."""
        known = self._running.pop(job.number, None)
        if known is not None:
            del self._ends[bisect_left(self._ends, (known[0], job.number))]

    def reserve(self, job: Job, site: Site) -> Reservation:
        """For a job that does not fit now."""
        self._correct(site)
        free = site.free_devices
        for end_s, number in self._ends:
            free += self._running[number][1].devices
            if free >= job.devices:
                return Reservation(end_s, free - job.devices)
        return Reservation(math.inf, 0)

    def _correct(self, site: Site) -> None:
        """Jobs that should have ended by now are expected to end later."""
        while self._ends and self._ends[0][0] <= site.now_s:
            _, job, stretch = self._running[self._ends[0][1]]
            self.ended(job)
            self._file(job, stretch, site)

    def expected_end_s(self, job: Job, offer: Offer, site: Site) -> float:
        """Of a job that would start now."""
        return site.now_s + self._left_s(job, offer.stretch, site)

    def _left_s(self, job: Job, stretch: float, site: Site) -> float:
        left_s = job.limit_s - job.served_s / job.devices if self._stated else math.inf
        if not 0 < left_s < math.inf:
            left_s = site.remaining_s(job) * stretch
        return max(left_s, 1e-6)

    def _file(self, job: Job, stretch: float, site: Site) -> None:
        end_s = site.now_s + self._left_s(job, stretch, site)
        insort(self._ends, (end_s, job.number))
        self._running[job.number] = (end_s, job, stretch)
