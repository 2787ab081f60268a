"""A-SRPT on a cluster that can stop jobs: the default.

The single machine of the paper would work on the job with least work left, devices times time. Here
the cluster itself is that machine, and what is left is the mean over all lengths that the job may
still have. A running job that may be done soon is not stopped for the chance that it is not. The
oldest jobs are served in any case.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from foretell.schedule.elders import Elders
from foretell.schedule.gathering import APART, Gathering, Move
from foretell.schedule.job import Job, Offer, Site
from foretell.schedule.queues import SizedQueue
from foretell.schedule.stoppable import Stoppable
from foretell.schedule.working import Working

_TRIED = 8
"""Waiting jobs that may look for others to stop before only free devices count."""


class ASrpt:
    """Works on what is nearest to its end, as the single machine would, at the price of restarts.

    Who waits with least work is first, and stops running jobs that need much longer. The oldest
    are owed a share of all device-time and insist on it, so whatever is predicted, nobody waits for
    ever.
    """

    name = "a-srpt"
    asks_lengths = True

    def __init__(
        self, much: float = 3.0, share_of_oldest: float = 0.05, least_turn_s: float = 300.0
    ) -> None:
        self._much = much
        """How many times as long a job must still need as one that stops it."""
        self._least_turn_s = least_turn_s
        """How long a job runs before anybody but the oldest stops it."""
        self._waiting = SizedQueue()
        self._working = Working(lambda site, job: site.per_chance_s(job))
        self._elders = Elders(share_of_oldest)
        self._known: set[int] = set()
        self._left_s: dict[int, float] = {}
        """How long each job that waits is expected to need."""
        self._turn_s: dict[int, float] = {}
        """When each job was given its devices."""
        self._gathering = Gathering(least_turn_s)

    def submitted(self, job: Job, site: Site) -> None:
        """To the queue; one that comes back keeps its age."""
        if job.number in self._known:
            self._let_go(job)
        else:
            self._known.add(job.number)
            self._elders.submitted(job)
        self._wait(job, site)

    def ended(self, job: Job, site: Site) -> None:
        """It is forgotten."""
        self._known.remove(job.number)
        self._let_go(job)
        self._elders.ended(job)
        self._waiting.remove(job)
        self._turn_s.pop(job.number, None)
        self._left_s.pop(job.number, None)

    def decide(self, site: Site) -> float:
        """The oldest if they insist, then whoever has least work left."""
        insist = self._elders.advance(site.now_s, site.devices, self._working)
        again_s = math.inf
        if len(self._waiting):
            again_s = self._working.look_again(site)
            if insist:
                self._serve_elders(site)
            self._serve(site)
        gather_at_s = self._bring_together(site)
        insist_at_s = self._elders.insist_at_s(site.devices, site.free_devices)
        return min(again_s, insist_at_s, gather_at_s) if len(self._waiting) else gather_at_s

    def _serve_elders(self, site: Site) -> None:
        for job in [job for job in self._elders if job in self._waiting]:
            if self._has_room(job, site, self._stoppable(site, fresh=True), 0.0):
                self._start(job, site)

    def _serve(self, site: Site) -> None:
        """Whoever has least work left; who cannot start lets others pass."""
        may_go = self._stoppable(site)
        blocked: list[Job] = []
        while first := self._waiting.first(self._most_devices(blocked, site)):
            least_s = self._much * self._left_s[first.number]
            if self._has_room(first, site, may_go, least_s) and self._start(first, site):
                may_go = self._stoppable(site)
            else:
                self._waiting.remove(first)
                blocked.append(first)
        for each in blocked:
            self._queue(each)

    def _bring_together(self, site: Site) -> float:
        """Those whose devices are apart, where it is worth the restarts; when to look again."""
        for job, offer in self._gathering.due(site.now_s):
            move = self._gathering.move(
                job, offer, site, self._may_stop(site.now_s - self._least_turn_s)
            )
            if move is not None:
                self._stop(job, site)
                self._make(move, job, site)
        return self._gathering.look_again_s()

    def _make(self, move: Move, job: Job, site: Site) -> None:
        for other in move.others:
            self._stop(other, site)
        self._begin(job, move.offer, site)
        for other in sorted(move.others, key=lambda each: -each.devices):
            offer = site.offer(other)
            if offer is None:
                self._wait(other, site)
            else:
                self._begin(other, offer, site)

    def _stop(self, job: Job, site: Site) -> None:
        site.stop(job)
        self._let_go(job)

    def _most_devices(self, blocked: Sequence[Job], site: Site) -> float:
        """How many a job may need to be tried: those that are free, once stopping leads nowhere."""
        if not blocked:
            return math.inf
        most, _ = next(self._working.most_left_first(site.now_s), (0.0, None))
        leads_somewhere = most >= self._much * self._left_s[blocked[-1].number]
        return math.inf if leads_somewhere and len(blocked) < _TRIED else site.free_devices

    def _wait(self, job: Job, site: Site) -> None:
        self._left_s[job.number] = site.remaining_s(job)
        self._queue(job)

    def _queue(self, job: Job) -> None:
        """By work."""
        self._waiting.add(job, self._left_s[job.number] * job.devices)

    def _start(self, job: Job, site: Site) -> bool:
        offer = site.offer(job)
        if offer is None:
            return False
        if offer.stretch > APART:
            move = self._gathering.move(
                job, offer, site, self._may_stop(site.now_s - self._least_turn_s)
            )
            if move is not None:
                self._make(move, job, site)
                return True
        self._begin(job, offer, site)
        return True

    def _begin(self, job: Job, offer: Offer, site: Site) -> None:
        self._waiting.remove(job)
        site.start(job, offer)
        self._gathering.started(job, offer, site.now_s)
        self._working.started(job, site, offer.stretch)
        self._elders.started(job)
        self._turn_s[job.number] = site.now_s

    def _let_go(self, job: Job) -> None:
        if job in self._working:
            self._working.stopped(job)
            self._elders.stopped(job)
            self._gathering.stopped(job)

    def _has_room(self, job: Job, site: Site, may_go: Stoppable, least_s: float) -> bool:
        """Whether there is room, stopping as many as needed if that is enough."""
        gone = may_go.for_room(job.devices, site.room(job), least_s)
        for victim in gone or ():
            self._stop(victim, site)
            self._wait(victim, site)
        return gone is not None

    def _stoppable(self, site: Site, *, fresh: bool = False) -> Stoppable:
        """Running jobs, those that need longest first; those that began just now if `fresh`."""
        may_stop = self._may_stop(math.inf if fresh else site.now_s - self._least_turn_s)
        return Stoppable(
            (left_s, job, self._gathering.pool_of(job))
            for left_s, job in self._working.most_left_first(site.now_s)
            if may_stop(job)
        )

    def _may_stop(self, began_s: float) -> Callable[[Job], bool]:
        """Whether a job that runs since then or longer may be stopped."""
        return lambda job: (
            job.preemptible
            and self._turn_s[job.number] <= began_s
            and not self._elders.protects(job)
        )
