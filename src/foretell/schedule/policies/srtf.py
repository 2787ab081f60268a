"""Shortest remaining time first, by prediction: a job may stop longer ones to run at once."""

from __future__ import annotations

import math

from foretell.schedule.job import Job, Running, Site
from foretell.schedule.queues import SizedQueue


class ShortestRemaining:
    """Preemptive; stops the longest first, and only for a job that is much shorter."""

    name = "srtf"

    def __init__(self, much: float = 2.0) -> None:
        self._waiting = SizedQueue()
        self._much = much
        """How many times as long a job must have left as one that stops it."""

    def submitted(self, job: Job, site: Site) -> None:
        """To its place among those that wait."""
        self._waiting.add(job, site.remaining_s(job))

    def ended(self, job: Job, site: Site) -> None:
        """It waits no more."""
        self._waiting.remove(job)

    def decide(self, site: Site) -> float:
        """The shortest first: on free devices, else on those of longer jobs."""
        blocked = []
        while (job := self._waiting.first()) is not None:
            if job.devices > site.free_devices and not self._make_room(job, site):
                # Nobody longer runs than this one: those behind it may only use what is free.
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
        for job in blocked:
            self._waiting.add(job, site.remaining_s(job))
        return math.inf

    def _make_room(self, job: Job, site: Site) -> bool:
        """Stop jobs with much more left, the longest first, if that is enough."""
        least_s = self._much * site.remaining_s(job)
        longer = [
            (site.remaining_s(run.job), run)
            for run in site.running()
            if run.job.preemptible and site.remaining_s(run.job) > least_s
        ]
        longer.sort(key=lambda each: (-each[0], each[1].job.number))
        free, stopped = site.free_devices, list[Running]()
        for _, run in longer:
            if free >= job.devices:
                break
            free += run.job.devices
            stopped.append(run)
        if free < job.devices:
            return False
        for run in stopped:
            site.stop(run.job)
            self._waiting.add(run.job, site.remaining_s(run.job))
        return True
