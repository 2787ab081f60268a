"""Shortest remaining time first, by prediction: a job may stop longer ones to run at once."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.schedule.job import Job, Site
from foretell.schedule.policies.preemptive import Preemptive
from foretell.schedule.queues import Key
from foretell.schedule.working import Working


class ShortestRemaining(Preemptive):
    """Stops the longest first, and only for a job that is much shorter."""

    name = "srtf"
    asks_lengths = True

    def __init__(self, much: float = 2.0) -> None:
        super().__init__()
        self._much = much
        """How many times as long a job must have left as one that stops it."""
        self._working = Working(lambda site, job: site.remaining_s(job))

    def key(self, job: Job, site: Site) -> Key:
        """What is expected to be left of it."""
        return (site.remaining_s(job),)

    def ranked(self, site: Site) -> Iterator[tuple[float, Job]]:
        """By what they have left."""
        return self._working.most_left_first(site.now_s)

    def least_rank(self, job: Job, site: Site) -> float:
        """So much more than it has left itself."""
        return self._much * site.remaining_s(job)

    def started(self, job: Job, site: Site) -> None:
        """To those that run."""
        self._working.started(job, site)

    def stopped(self, job: Job) -> None:
        """From those that run."""
        self._working.stopped(job)

    def learn(self, site: Site) -> float:
        """How long those that run still need."""
        return self._working.look_again(site)
