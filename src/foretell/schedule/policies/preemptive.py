"""Jobs may stop others to run at once; whom, is what the policies of this kind differ in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

from foretell.schedule.job import Job, Site
from foretell.schedule.queues import Key, SizedQueue


class Preemptive(ABC):
    """The first waiting job takes free devices, or those of jobs it may stop."""

    name: str
    asks_lengths: bool

    def __init__(self) -> None:
        self._waiting = SizedQueue()

    @abstractmethod
    def key(self, job: Job, site: Site) -> Key:
        """The place of a job among those that wait."""

    @abstractmethod
    def victims(self, job: Job, site: Site) -> Iterator[Job]:
        """Running jobs that it may stop, the first to go first."""

    @abstractmethod
    def started(self, job: Job, site: Site) -> None:
        """A job was given devices."""

    @abstractmethod
    def stopped(self, job: Job) -> None:
        """A job has no devices any more, whether or not it had any."""

    @abstractmethod
    def learn(self, site: Site) -> float:
        """How those do that run; when to look again."""

    def submitted(self, job: Job, site: Site) -> None:
        """To its place."""
        self.stopped(job)
        self._waiting.add(job, *self.key(job, site))

    def ended(self, job: Job, site: Site) -> None:
        """It waits no more."""
        self.stopped(job)
        self._waiting.remove(job)

    def decide(self, site: Site) -> float:
        """Start the first, on devices of others if it may; who cannot start lets others pass."""
        again_s = self.learn(site)
        blocked: list[Job] = []
        while (job := self._waiting.first()) is not None:
            if job.devices > site.free_devices and not self._make_room(job, site):
                # Whoever comes behind it may stop nobody more than it could.
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
                self.started(job, site)
        for job in blocked:
            self._waiting.add(job, *self.key(job, site))
        return again_s if len(self._waiting) else math.inf

    def _make_room(self, job: Job, site: Site) -> bool:
        """Stop as many as needed, if that is enough."""
        free, stopped = site.free_devices, []
        for victim in self.victims(job, site):
            free += victim.devices
            stopped.append(victim)
            if free >= job.devices:
                break
        if free < job.devices:
            return False
        for victim in stopped:
            site.stop(victim)
            self.stopped(victim)
            self._waiting.add(victim, *self.key(victim, site))
        return True
