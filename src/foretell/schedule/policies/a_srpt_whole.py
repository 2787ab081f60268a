"""A-SRPT that starts early and backfills, and stops nobody: for jobs that cannot go on later.

Whoever is first by the single machine among those that fit starts, except that devices are kept for
the first job whose turn there has come, so that nobody passes it who would make it wait.
"""

from __future__ import annotations

import math

from foretell.schedule.job import Job, Site
from foretell.schedule.queues import SizedQueue
from foretell.schedule.reservation import ExpectedEnds
from foretell.schedule.virtual import VirtualMachine


class WholeASrpt:
    """Starts early where devices would idle, and lets others pass who harm nobody."""

    name = "a-srpt-whole"
    asks_lengths = True

    def __init__(self) -> None:
        self._virtual = VirtualMachine()
        self._waiting = SizedQueue()
        self._due = SizedQueue()
        """Those among them whose virtual turn has come, in that order."""
        self._jobs: dict[int, Job] = {}
        self._turns = 0
        self._ends = ExpectedEnds()

    def submitted(self, job: Job, site: Site) -> None:
        """To the virtual machine and to the queue."""
        size_s = job.devices * (job.predicted_s - job.done_s) / site.devices
        if job.number in self._jobs:
            self._ends.ended(job)
        else:
            self._jobs[job.number] = job
            self._turn(self._virtual.add(job.number, size_s, site.now_s))
        self._waiting.add(job, 1.0, size_s)

    def ended(self, job: Job, site: Site) -> None:
        """It is forgotten."""
        del self._jobs[job.number]
        self._ends.ended(job)
        self._waiting.remove(job)
        self._due.remove(job)

    def decide(self, site: Site) -> float:
        """Start whoever is first and fits, around what is kept for the first whose turn it is."""
        self._turn(self._virtual.advance(site.now_s))
        kept = None
        while True:
            first = self._due.first() if kept is None else None
            if first is not None and first.devices > site.free_devices:
                kept = self._ends.reserve(first, site)
            job = self._waiting.first(site.free_devices)
            if job is None:
                break
            offer = site.offer(job)
            if offer is None or (kept and not kept.leaves_room_for(job, offer, site)):
                break
            self._waiting.remove(job)
            self._due.remove(job)
            site.start(job, offer)
            self._ends.started(job, offer, site)
        return self._virtual.next_s() if len(self._waiting) else math.inf

    def _turn(self, numbers: list[int]) -> None:
        for number in numbers:
            self._turns += 1
            job = self._jobs.get(number)
            if job is not None and job in self._waiting:
                self._waiting.add(job, 0.0, self._turns)
                self._due.add(job, self._turns)
