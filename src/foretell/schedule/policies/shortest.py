"""Shortest predicted job first, and smallest predicted workload first; the first may block."""

from __future__ import annotations

from foretell.schedule.job import Job, Site
from foretell.schedule.policies.ordered import Ordered


class ShortestJob(Ordered):
    """By predicted length (SPJF)."""

    name = "spjf"
    asks_lengths = True
    passing = False

    def key(self, job: Job, site: Site) -> float:
        """What is expected to be left of it."""
        return site.remaining_s(job)


class SmallestWorkload(Ordered):
    """By predicted length times devices (SPWF)."""

    name = "spwf"
    asks_lengths = True
    passing = False

    def key(self, job: Job, site: Site) -> float:
        """Device-seconds that are expected to be left of it."""
        return site.remaining_s(job) * job.devices
