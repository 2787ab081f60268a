"""First in, first out: the job at the head waits until it fits, and all others behind it."""

from __future__ import annotations

import math

from foretell.schedule.job import Job, Site
from foretell.schedule.queues import ArrivalQueue


class Fifo:
    """Strict order of arrival."""

    name = "fifo"
    asks_lengths = False

    def __init__(self) -> None:
        self._queue = ArrivalQueue()

    def submitted(self, job: Job, site: Site) -> None:
        """To its place in the queue."""
        self._queue.add(job)

    def ended(self, job: Job, site: Site) -> None:
        """It waits no more."""
        self._queue.remove(job)

    def decide(self, site: Site) -> float:
        """Start from the head while there is room."""
        while (job := self._queue.first()) is not None and job.devices <= site.free_devices:
            offer = site.offer(job)
            if offer is None:
                break
            self._queue.remove(job)
            site.start(job, offer)
        return math.inf
