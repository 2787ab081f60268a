"""Work-conserving orders: whoever is first among those that fit starts at once."""

from __future__ import annotations

from foretell.schedule.job import Job, Site
from foretell.schedule.policies.ordered import Ordered


class ConservingDuration(Ordered):
    """By predicted length."""

    name = "wcs-duration"
    passing = True

    def key(self, job: Job, site: Site) -> float:
        """What is expected to be left of it."""
        return site.remaining_s(job)


class ConservingWorkload(Ordered):
    """By predicted length times devices."""

    name = "wcs-workload"
    passing = True

    def key(self, job: Job, site: Site) -> float:
        """Device-seconds that are expected to be left of it."""
        return site.remaining_s(job) * job.devices


class ConservingSubmit(Ordered):
    """By arrival."""

    name = "wcs-submit"
    passing = True

    def key(self, job: Job, site: Site) -> float:
        """When it came."""
        return job.arrival_s
