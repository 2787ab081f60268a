"""Least attained service, as in Tiresias: who has had little goes first, whatever their length.

Device-time falls into classes; inside a class jobs go by arrival, and a job is stopped only for one
of a lower class, so that two equal jobs do not take turns for ever.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from foretell.schedule.job import Job, Running, Site
from foretell.schedule.policies.preemptive import Preemptive
from foretell.schedule.queues import Key

_CLASSES_DEVICE_S = (3_600.0, 36_000.0)
_SOON_S = 1e-3


class LeastAttained(Preemptive):
    """Needs no prediction."""

    name = "las"
    asks_lengths = False

    def __init__(self, classes_device_s: Sequence[float] = _CLASSES_DEVICE_S) -> None:
        super().__init__()
        self._classes = tuple(classes_device_s)

    def key(self, job: Job, site: Site) -> Key:
        """Its class, and when it came."""
        return (self._class(job.served_s), job.arrival_s)

    def victims(self, job: Job, site: Site) -> list[Job]:
        """Those of higher classes, the highest and latest first."""
        mine = self._class(job.served_s)
        found = [
            (-self._class(_served(run, site)), -run.job.number, run.job)
            for run in site.running()
            if run.job.preemptible and self._class(_served(run, site)) > mine
        ]
        return [higher for _, _, higher in sorted(found, key=lambda each: each[:2])]

    def decide(self, site: Site) -> float:
        """As all of this kind; again when a running job leaves its class while others wait."""
        super().decide(site)
        if not len(self._waiting):
            return math.inf
        soonest_s = math.inf
        for run in site.running():
            served = _served(run, site)
            ahead = [limit - served for limit in self._classes if limit > served]
            if ahead:
                wait_s = max(min(ahead) / run.job.devices, _SOON_S)
                soonest_s = min(soonest_s, site.now_s + wait_s)
        return soonest_s

    def _class(self, served: float) -> int:
        return sum(served >= limit for limit in self._classes)


def _served(run: Running, site: Site) -> float:
    """Device-seconds of a running job until now."""
    return run.job.served_s + (site.now_s - run.started_s) * run.job.devices
