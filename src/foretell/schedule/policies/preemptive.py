"""Jobs may stop others to run at once; whom, is what the policies of this kind differ in."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

from foretell.schedule.job import Job, Site
from foretell.schedule.queues import Key, SizedQueue
from foretell.schedule.stoppable import Stoppable


class Preemptive(ABC):
    """The first waiting job takes free devices, or those of jobs it may stop."""

    name: str
    asks_lengths: bool

    def __init__(self) -> None:
        self._waiting = SizedQueue()
        self._pool: dict[int, int] = {}
        """Of every job that has devices."""

    @abstractmethod
    def key(self, job: Job, site: Site) -> Key:
        """The place of a job among those that wait."""

    @abstractmethod
    def ranked(self, site: Site) -> Iterator[tuple[float, Job]]:
        """Ranks of running jobs, the first to be stopped first, with the highest."""

    @abstractmethod
    def least_rank(self, job: Job, site: Site) -> float:
        """Of those that it may stop."""

    @abstractmethod
    def started(self, job: Job, site: Site) -> None:
        """A job was given devices."""

    @abstractmethod
    def stopped(self, job: Job) -> None:
        """A job has no devices any more."""

    @abstractmethod
    def learn(self, site: Site) -> float:
        """How those do that run; when to look again."""

    def submitted(self, job: Job, site: Site) -> None:
        """To its place."""
        self._let_go(job)
        self._waiting.add(job, *self.key(job, site))

    def ended(self, job: Job, site: Site) -> None:
        """It waits no more."""
        self._let_go(job)
        self._waiting.remove(job)

    def decide(self, site: Site) -> float:
        """Start the first, on devices of others if it may; who cannot start lets others pass."""
        again_s = self.learn(site)
        blocked: list[Job] = []
        may_go = self._stoppable(site)
        while (job := self._waiting.first()) is not None:
            if job.devices > site.free_devices and not self._make_room(job, site, may_go):
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
                self._pool[job.number] = offer.pool
                self.started(job, site)
                may_go = self._stoppable(site)
        for job in blocked:
            self._waiting.add(job, *self.key(job, site))
        return again_s if len(self._waiting) else math.inf

    def _stoppable(self, site: Site) -> Stoppable:
        return Stoppable(
            (rank, job, self._pool[job.number])
            for rank, job in self.ranked(site)
            if job.preemptible
        )

    def _make_room(self, job: Job, site: Site, may_go: Stoppable) -> bool:
        """Stop as many as needed, if that is enough."""
        gone = may_go.for_room(job.devices, site.room(job), self.least_rank(job, site))
        for victim in gone or ():
            site.stop(victim)
            self._let_go(victim)
            self._waiting.add(victim, *self.key(victim, site))
        return gone is not None

    def _let_go(self, job: Job) -> None:
        if self._pool.pop(job.number, None) is not None:
            self.stopped(job)
