"""Waiting jobs in the order of a number, which the policies of this kind differ in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

from foretell.schedule.job import Job, Site
from foretell.schedule.queues import SizedQueue


class Ordered(ABC):
    """Starts jobs by a key, the least first, and never stops them."""

    name: str
    asks_lengths: bool
    passing: bool
    """Whether jobs behind the first may start when that one does not fit."""

    def __init__(self) -> None:
        self._waiting = SizedQueue()

    @abstractmethod
    def key(self, job: Job, site: Site) -> float:
        """The place of a job in the order."""

    def submitted(self, job: Job, site: Site) -> None:
        """To its place."""
        self._waiting.add(job, self.key(job, site))

    def ended(self, job: Job, site: Site) -> None:
        """It waits no more."""
        self._waiting.remove(job)

    def decide(self, site: Site) -> float:
        """Start the first, or the first that fits, while there is one."""
        set_aside = []
        while True:
            job = self._waiting.first(site.free_devices if self.passing else math.inf)
            if job is None:
                break
            offer = site.offer(job) if job.devices <= site.free_devices else None
            if offer is not None:
                self._waiting.remove(job)
                site.start(job, offer)
            elif self.passing:  # enough devices, but not in one pool that it may have
                self._waiting.remove(job)
                set_aside.append(job)
            else:
                break
        for job in set_aside:
            self._waiting.add(job, self.key(job, site))
        return math.inf
