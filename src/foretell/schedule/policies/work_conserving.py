"""Work-conserving orders: whoever is first among those that fit starts at once."""

from __future__ import annotations

from foretell.schedule.job import Job, Site
from foretell.schedule.policies.ordered import Ordered
from foretell.schedule.policies.shortest import ShortestJob, SmallestWorkload


class ConservingDuration(ShortestJob):
    """By predicted length."""

    name = "wcs-duration"
    asks_lengths = True
    passing = True


class ConservingWorkload(SmallestWorkload):
    """By predicted length times devices."""

    name = "wcs-workload"
    asks_lengths = True
    passing = True


class ConservingSubmit(Ordered):
    """By arrival."""

    name = "wcs-submit"
    asks_lengths = False
    passing = True

    def key(self, job: Job, site: Site) -> float:
        """When it came."""
        return job.arrival_s
