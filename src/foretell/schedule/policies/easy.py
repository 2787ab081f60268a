"""EASY backfilling: order of arrival, and whoever does not delay the first may pass it.

Lengths are what users state, as on most clusters; where they state nothing, what is predicted.
"""

from __future__ import annotations

import itertools
import math

from foretell.schedule.job import Job, Site
from foretell.schedule.queues import ArrivalQueue
from foretell.schedule.reservation import ExpectedEnds

_LOOKS_AT = 1000
"""Waiting jobs that are tried behind the first."""


class Easy:
    """Only the first waiting job has a reservation."""

    name = "easy"
    asks_lengths = True

    def __init__(self) -> None:
        self._queue = ArrivalQueue()
        self._ends = ExpectedEnds(stated=True)

    def submitted(self, job: Job, site: Site) -> None:
        """To its place in the queue."""
        self._ends.ended(job)
        self._queue.add(job)

    def ended(self, job: Job, site: Site) -> None:
        """It waits no more, and its devices are free."""
        self._queue.remove(job)
        self._ends.ended(job)

    def decide(self, site: Site) -> float:
        """Start from the head while there is room, then whoever keeps out of its way."""
        while (first := self._queue.first()) is not None and self._start(first, site):
            pass
        if first is not None and site.free_devices:
            self._fill(first, site)
        return math.inf

    def _fill(self, first: Job, site: Site) -> None:
        """Start jobs behind the first that end before it can start, or use what it leaves."""
        kept = self._ends.reserve(first, site)
        behind = itertools.islice(self._queue.fitting(site.free_devices), _LOOKS_AT)
        for job in [job for job in behind if job is not first]:
            offer = site.offer(job) if job.devices <= site.free_devices else None
            if offer is None:
                continue
            in_time = self._ends.expected_end_s(job, offer, site) <= kept.start_s
            if in_time or job.devices <= kept.spare_devices:
                kept = kept if in_time else kept.without(job.devices)
                self._start(job, site)

    def _start(self, job: Job, site: Site) -> bool:
        offer = site.offer(job) if job.devices <= site.free_devices else None
        if offer is None:
            return False
        self._queue.remove(job)
        site.start(job, offer)
        self._ends.started(job, offer, site)
        return True
