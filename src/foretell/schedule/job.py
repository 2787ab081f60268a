"""A job as policies see it, and what they may do with it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from foretell.schedule.pool import Share


@dataclass(slots=True, eq=False, kw_only=True)
class Job:
    """A submitted job. Policies read it; only the site it runs on changes it."""

    number: int
    """In the order of arrival."""
    devices: int
    arrival_s: float
    predicted_s: float
    """How long it is expected to take in all on the fewest servers."""
    limit_s: float
    """What its user said it takes at most; infinite if nothing was said."""
    user: int
    deadline_s: float
    preemptible: bool
    done_s: float = 0.0
    """How much of it is done, in seconds on the fewest servers, when it was last looked at."""
    served_s: float = 0.0
    """Device-seconds it was given so far."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Devices that a job could have now."""

    pool: int
    share: Share
    stretch: float
    """How much longer an iteration takes there than on the fewest servers of the best pool."""


@dataclass(slots=True, eq=False)
class Running:
    """A job that has devices."""

    job: Job
    offer: Offer
    started_s: float


class Site(Protocol):
    """A cluster that jobs run on, simulated or real, as policies see it."""

    now_s: float

    @property
    def restart_s(self) -> float:
        """What a job loses when it goes on after it was stopped."""

    @property
    def devices(self) -> int:
        """That work at the moment, free or not."""

    @property
    def free_devices(self) -> int:
        """Of all pools."""

    def offer(self, job: Job, without: Collection[Job] = ()) -> Offer | None:
        """Where it would go now, best place first, if some that run were gone; None: no room."""

    def room(self, job: Job) -> Mapping[int, int]:
        """Free devices of each pool that it may use."""

    def free_by_server(self, pool: int) -> Iterable[tuple[int, int]]:
        """(server, free devices) of those of a pool that have any."""

    def start(self, job: Job, offer: Offer) -> None:
        """Give a job devices."""

    def stop(self, job: Job) -> None:
        """Take them away again; what it has done is kept."""

    def running(self) -> list[Running]:
        """Jobs that have devices, in the order they were given them."""

    def remaining_s(self, job: Job) -> float:
        """How much longer it is expected to need on the fewest servers."""

    def per_chance_s(self, job: Job) -> float:
        """The least time expected to pass there per chance that it is done: at most the former."""


class Policy(Protocol):
    """Decides which jobs start where and when. One object serves one site.

    The site calls `submitted` when a job arrives or comes back because its servers failed, `ended`
    when it is done or was withdrawn, and `decide` after each change. Policies keep their own queue.
    """

    name: str
    asks_lengths: bool
    """Whether it goes by how long jobs are expected to be."""

    def submitted(self, job: Job, site: Site) -> None:
        """A job wants devices."""

    def ended(self, job: Job, site: Site) -> None:
        """A job needs nothing any more."""

    def decide(self, site: Site) -> float:
        """Start and stop jobs; return when to be asked again at the latest, or infinity."""
