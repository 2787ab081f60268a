"""Shortest remaining time first, by prediction: a job may stop longer ones to run at once."""

from __future__ import annotations

from foretell.schedule.job import Job, Site
from foretell.schedule.policies.preemptive import Preemptive
from foretell.schedule.queues import Key


class ShortestRemaining(Preemptive):
    """Stops the longest first, and only for a job that is much shorter."""

    name = "srtf"
    asks_lengths = True

    def __init__(self, much: float = 2.0) -> None:
        super().__init__()
        self._much = much
        """How many times as long a job must have left as one that stops it."""

    def key(self, job: Job, site: Site) -> Key:
        """What is expected to be left of it."""
        return (site.remaining_s(job),)

    def victims(self, job: Job, site: Site) -> list[Job]:
        """Those with much more left, the longest first."""
        least_s = self._much * site.remaining_s(job)
        found = [
            (-site.remaining_s(run.job), run.job.number, run.job)
            for run in site.running()
            if run.job.preemptible and site.remaining_s(run.job) > least_s
        ]
        return [longer for _, _, longer in sorted(found, key=lambda each: each[:2])]
