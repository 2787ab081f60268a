"""Max-min fairness: the user with the fewest devices at the moment is served next."""

from __future__ import annotations

import math
from collections import deque

from foretell.schedule.job import Job, Site


class MaxMinFair:
    """Jobs of one user in the order of arrival; nobody is stopped."""

    name = "max-min"
    asks_lengths = False

    def __init__(self) -> None:
        self._queues: dict[int, deque[Job]] = {}
        self._held: dict[int, int] = {}
        self._running: set[int] = set()

    def submitted(self, job: Job, site: Site) -> None:
        """To the end of its user's queue; jobs that come back go first."""
        queue = self._queues.setdefault(job.user, deque())
        if job.number in self._running:
            self._let_go(job)
            queue.appendleft(job)
        else:
            queue.append(job)

    def ended(self, job: Job, site: Site) -> None:
        """Its user holds fewer devices, or waits for fewer."""
        if job.number in self._running:
            self._let_go(job)
        else:
            self._queues[job.user].remove(job)

    def decide(self, site: Site) -> float:
        """Again and again the user with the fewest devices whose first job fits."""
        while site.free_devices:
            users = sorted(
                (self._held.get(user, 0), queue[0].number, user)
                for user, queue in self._queues.items()
                if queue and queue[0].devices <= site.free_devices
            )
            if not any(self._start(user, site) for _, _, user in users):
                break
        return math.inf

    def _start(self, user: int, site: Site) -> bool:
        queue = self._queues[user]
        offer = site.offer(queue[0])
        if offer is None:
            return False
        job = queue.popleft()
        if not queue:
            del self._queues[user]
        self._held[user] = self._held.get(user, 0) + job.devices
        self._running.add(job.number)
        site.start(job, offer)
        return True

    def _let_go(self, job: Job) -> None:
        self._running.remove(job.number)
        self._held[job.user] -= job.devices
