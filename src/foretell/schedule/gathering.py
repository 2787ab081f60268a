"""Running jobs change places, so that those that need many devices have them on few servers.

A job whose devices are further apart than they need to be takes longer for every iteration that
is left. What it would gain by moving, and by small jobs making way for it, is set against the
restarts.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from foretell.schedule.job import Job, Offer, Site

APART = 1.1
"""Stretch from which on a job is looked at."""
_WORTH = 2.0
"""How many times as much as the restarts cost a move must gain."""
_MOST = 16
"""Jobs that make way for one."""
_SOON_S = 1.0
_SMALL = 0.5
"""Of a job's devices: who has more does not make way for it."""


@dataclass(frozen=True, slots=True)
class Move:
    """A better place for a job, and who makes way for it."""

    offer: Offer
    others: tuple[Job, ...]


class Gathering:
    """Who runs where, and which moves would be worth it."""

    def __init__(self, every_s: float) -> None:
        self._every_s = max(every_s, _SOON_S)
        """How long nobody looks again at a job that nobody could bring together."""
        self._offers: dict[int, Offer] = {}
        self._on: dict[int, dict[int, dict[int, tuple[Job, int]]]] = {}
        """Pool -> server -> number of a job -> the job and how many devices it has there."""
        self._apart: dict[int, Job] = {}
        self._look: list[tuple[float, int]] = []
        """When to look at which job that is apart."""
        self._changed = False
        """Whether anybody came or went since somebody looked."""

    def started(self, job: Job, offer: Offer, now_s: float) -> None:
        """A job was given devices."""
        self._offers[job.number] = offer
        servers = self._on.setdefault(offer.pool, {})
        for server, count in offer.share:
            servers.setdefault(server, {})[job.number] = (job, count)
        self._changed = True
        if offer.stretch > APART and job.preemptible:
            self._apart[job.number] = job
            heapq.heappush(self._look, (now_s + self._every_s, job.number))

    def stopped(self, job: Job) -> None:
        """A job that had devices has none any more."""
        offer = self._offers.pop(job.number)
        for server, _ in offer.share:
            del self._on[offer.pool][server][job.number]
        self._apart.pop(job.number, None)
        self._changed = True

    def pool_of(self, job: Job) -> int:
        """Where a job that runs has its devices."""
        return self._offers[job.number].pool

    def due(self, now_s: float) -> Iterator[tuple[Job, Offer]]:
        """Jobs to look at now, and where they are; the others may come and go meanwhile."""
        due = []
        while self._look and self._look[0][0] <= now_s:
            number = heapq.heappop(self._look)[1]
            if number in self._apart:
                due.append(number)
        self._changed = False
        for number in due:
            if number in self._apart:
                heapq.heappush(self._look, (now_s + self._every_s, number))
                yield self._apart[number], self._offers[number]

    def look_again_s(self) -> float:
        """When somebody is due again who might fare better than last time."""
        while self._look and self._look[0][1] not in self._apart:
            heapq.heappop(self._look)
        return self._look[0][0] if self._look and self._changed else math.inf

    def move(self, job: Job, now: Offer, site: Site, may_go: Callable[[Job], bool]) -> Move | None:
        """How it comes together if that is worth it; `now` is where it is or else would go."""
        left_s, runs = site.remaining_s(job), job.number in self._offers
        own = (job,) if runs else ()

        def worth_it(offer: Offer | None, restarts: int) -> bool:
            return (
                offer is not None
                and left_s * (now.stretch - offer.stretch) > _WORTH * site.restart_s * restarts
            )

        if runs:
            offer = site.offer(job, own)
            if offer is not None and worth_it(offer, 1):
                return Move(offer, ())
        others = self._in_the_way(job, now.pool, site.free_by_server(now.pool), may_go)
        if others is None:
            return None
        offer = site.offer(job, (*own, *others))
        if offer is not None and worth_it(offer, len(others) + runs):
            return Move(offer, tuple(others))
        return None

    def _in_the_way(
        self, job: Job, pool: int, free: Iterable[tuple[int, int]], may_go: Callable[[Job], bool]
    ) -> list[Job] | None:
        """The fewest small jobs that leave it as few servers as it needs."""
        on = self._on.get(pool, {})
        room = dict.fromkeys(on, 0) | dict(free)
        cleared: list[tuple[int, int, int, Sequence[Job]]] = []
        for server, idle in room.items():
            here = on.get(server, {})
            has = idle + (here[job.number][1] if job.number in here else 0)
            size = idle + sum(count for _, count in here.values())
            gives = min(job.devices, size)
            go = _fewest(job, here.values(), gives - has, may_go)
            if go is not None:
                cleared.append((len(go), -gives, server, go))
        found: list[Job] = []
        needs = job.devices
        for _, given, _, go in sorted(cleared, key=lambda each: each[:3]):
            found += go
            needs += given
            if needs <= 0:
                return found if len(found) <= _MOST else None
        return None


def _fewest(
    job: Job, here: Iterable[tuple[Job, int]], needs: int, may_go: Callable[[Job], bool]
) -> Sequence[Job] | None:
    """Whose going leaves a server with so many more free devices."""
    small = [
        (count, other)
        for other, count in here
        if other is not job and count == other.devices <= _SMALL * job.devices
    ]
    found: list[Job] = []
    larger: Job | None = None
    for count, other in sorted(small, key=lambda each: (-each[0], each[1].number)):
        if needs <= 0:
            break
        if not may_go(other):
            continue
        if count <= needs:
            found.append(other)
            needs -= count
        else:
            larger = other
    if needs > 0 and larger is not None:
        return [*found, larger]
    return found if needs <= 0 else None
