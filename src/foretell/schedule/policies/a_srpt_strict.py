"""A-SRPT as it is published: jobs start once they are done on a single machine under SRPT.

Nothing is stopped and nothing starts early, which buys the bound of docs/scheduling.md.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from foretell.schedule.job import Job, Offer, Site
from foretell.schedule.virtual import VirtualMachine


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long a job waits for servers where its iterations are short."""

    stretch: float = 1.25
    """Up to which it starts at once."""
    share: float = 0.1
    """Of its predicted length that it waits otherwise."""

    def until_s(self, job: Job, offer: Offer, since_s: float) -> float:
        """When it starts anyway; `since_s` is when it could have."""
        return since_s if offer.stretch <= self.stretch else since_s + self.share * job.predicted_s


class StrictASrpt:
    """Starts in the order of the virtual machine, never before it is done there."""

    name = "a-srpt-strict"
    asks_lengths = True

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._virtual = VirtualMachine()
        self._jobs: dict[int, Job] = {}
        self._queue: deque[Job] = deque()
        self._queued: set[int] = set()
        self._could_s: float | None = None
        """Since when the first job could have started."""

    def submitted(self, job: Job, site: Site) -> None:
        """To the virtual machine; one that comes back has been there, and goes first."""
        if job.number in self._jobs:
            self._queue.appendleft(job)
            self._queued.add(job.number)
            return
        self._jobs[job.number] = job
        size_s = job.devices * job.predicted_s / site.devices
        self._enter(self._virtual.add(job.number, size_s, site.now_s))

    def ended(self, job: Job, site: Site) -> None:
        """It is forgotten."""
        del self._jobs[job.number]
        if job.number in self._queued:
            self._queued.remove(job.number)
            self._queue.remove(job)

    def decide(self, site: Site) -> float:
        """Start from the head while there is room that is good enough."""
        self._enter(self._virtual.advance(site.now_s))
        while self._queue and self._queue[0].devices <= site.free_devices:
            job = self._queue[0]
            offer = site.offer(job)
            if offer is None:
                break
            if self._could_s is None:
                self._could_s = site.now_s
            until_s = self._patience.until_s(job, offer, self._could_s)
            if until_s > site.now_s:
                return min(until_s, self._virtual.next_s())
            self._queue.popleft()
            self._queued.remove(job.number)
            site.start(job, offer)
            self._could_s = None
        return self._virtual.next_s()

    def _enter(self, numbers: list[int]) -> None:
        left = [n for n in numbers if n in self._jobs]
        self._queue.extend(self._jobs[n] for n in left)
        self._queued.update(left)
