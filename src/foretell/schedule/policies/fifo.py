"""First in, first out: the job at the head waits until it fits, and all others behind it."""

from __future__ import annotations

import math
from collections import deque

from foretell.schedule.job import Job, Site


class Fifo:
    """Strict order of arrival."""

    name = "fifo"

    def __init__(self) -> None:
        self._queue: deque[Job] = deque()

    def submitted(self, job: Job, site: Site) -> None:
        """To the end of the queue; jobs that come back go where they were."""
        if self._queue and job.number < self._queue[-1].number:
            self._queue = deque(sorted((*self._queue, job), key=lambda j: j.number))
        else:
            self._queue.append(job)

    def ended(self, job: Job, site: Site) -> None:
        """Nobody to tell."""

    def decide(self, site: Site) -> float:
        """Start from the head while there is room."""
        while self._queue and self._queue[0].devices <= site.free_devices:
            offer = site.offer(self._queue[0])
            if offer is None:
                break
            site.start(self._queue.popleft(), offer)
        return math.inf
