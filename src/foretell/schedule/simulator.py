"""Plays a trace on a cluster under a policy, event by event, exactly."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from foretell.errors import InputError
from foretell.schedule.history import History
from foretell.schedule.job import Job, Offer, Policy, Running
from foretell.schedule.pace import Pace
from foretell.schedule.placement import Placement
from foretell.schedule.pool import Pool, PoolSpec
from foretell.schedule.sizes import Sizes
from foretell.schedule.trace import NONE, Trace

_FINISH, _FAIL, _JOIN = range(3)
"""Kinds of events, in the order they count at one instant."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A server that is away for a while."""

    server: int
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What holds on the site whatever the policy."""

    restart_s: float = 60.0
    """What a job loses when it goes on after it was stopped: saving, loading, warming up."""
    checkpoint_every_s: float = 1800.0
    """How often it saves its state by itself; what came after is lost when a server fails."""
    contention: bool = False
    """Whether jobs that span servers slow each other down at the ports."""
    outages: tuple[Outage, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.restart_s < math.inf:
            raise InputError(f"restart_s={self.restart_s!r} must be 0 or more")
        if not self.checkpoint_every_s > 0:
            raise InputError(f"checkpoint_every_s={self.checkpoint_every_s!r} must be above zero")


@dataclass(slots=True, eq=False)
class _Run:
    """A job on its devices."""

    job: Job
    offer: Offer
    started_s: float
    seen_s: float
    """Until when its progress is counted; later than now while it warms up."""
    iteration_s: float
    pace: Pace | None
    """Where it spans servers and others may get in its way."""
    saved: float
    """Iterations done when its state was last kept."""
    version: int = 0


class Simulation:
    """A site that is only played. One object plays one trace once."""

    def __init__(
        self,
        trace: Trace,
        pools: Sequence[PoolSpec],
        policy: Policy,
        sizes: Sizes,
        placement: Placement,
        rules: Rules = Rules(),
    ) -> None:
        self.now_s = 0.0
        self._trace, self._policy, self._sizes, self._rules = trace, policy, sizes, rules
        self._pools = [Pool(spec) for spec in pools]
        self._placement = placement
        self._events: list[tuple[float, int, int, int]] = []
        self._runs: dict[int, _Run] = {}
        self._jobs: dict[int, Job] = {}
        self._done: dict[int, float] = {}
        """Iterations that jobs have behind them, of those that ever started."""
        self._at_ports: dict[int, set[int]] = {}
        self._plans = 0
        self._shape = trace.shape.tolist()
        self._iterations = trace.iterations.tolist()
        self._wants = [self._pools_for(name) for name in (*trace.devices_wanted, None)]
        self._wanted = trace.wants.tolist()
        self.history = History()
        self._check()
        for outage in rules.outages:
            heapq.heappush(self._events, (outage.start_s, _FAIL, outage.server, 0))
            heapq.heappush(self._events, (outage.end_s, _JOIN, outage.server, 0))

    # What policies see.

    @property
    def restart_s(self) -> float:
        """What a job loses when it goes on after it was stopped."""
        return self._rules.restart_s

    @property
    def devices(self) -> int:
        """That work at the moment, free or not."""
        return sum(pool.devices_up for pool in self._pools)

    @property
    def free_devices(self) -> int:
        """Of all pools."""
        return sum(pool.free_devices for pool in self._pools)

    def offer(self, job: Job, without: Collection[Job] = ()) -> Offer | None:
        """The place with the shortest iterations among those with room."""
        if without:
            return self._offer_without(job, without)
        best = None
        for number in self._wants[self._wanted[job.number]]:
            pool = self._pools[number]
            if pool.free_devices >= job.devices:
                found = self._placement.offer(number, pool, self._shape[job.number])
                if found is not None and (best is None or found.stretch < best.stretch):
                    best = found
        return best

    def _offer_without(self, job: Job, gone: Collection[Job]) -> Offer | None:
        held = [self._runs[each.number].offer for each in gone]
        for offer in held:
            self._pools[offer.pool].give(offer.share)
        found = self.offer(job)
        for offer in held:
            self._pools[offer.pool].take(offer.share)
        return found

    def room(self, job: Job) -> Mapping[int, int]:
        """Free devices of each pool that it may use."""
        pools = self._wants[self._wanted[job.number]]
        return {number: self._pools[number].free_devices for number in pools}

    def free_by_server(self, pool: int) -> Iterable[tuple[int, int]]:
        """(server, free devices) of those of a pool that have any."""
        return self._pools[pool].free_servers()

    def start(self, job: Job, offer: Offer) -> None:
        """Give a job devices."""
        number = job.number
        assert number not in self._runs, "a job that has devices cannot start again"
        self._pools[offer.pool].take(offer.share)
        done = self._done.get(number)
        warm_s = self.now_s if done is None else self.now_s + self._rules.restart_s
        least_s = self._placement.least_s(self._shape[number])
        run = _Run(job, offer, self.now_s, warm_s, least_s * offer.stretch, None, done or 0.0)
        self._runs[number] = run
        self._done.setdefault(number, 0.0)
        if self._rules.contention and len(offer.share) > 1:
            run.pace = self._placement.pace(offer, self._shape[number])
            self._arrive_at_ports(run)
        else:
            self._plan(run)

    def stop(self, job: Job) -> None:
        """Take its devices away; what it has done is kept."""
        run = self._runs[job.number]
        self._advance(run)
        self._leave(run)

    def running(self) -> list[Running]:
        """Jobs that have devices, in the order they were given them."""
        return [Running(run.job, run.offer, run.started_s) for run in self._runs.values()]

    def remaining_s(self, job: Job) -> float:
        """How much longer it is expected to need on the fewest servers."""
        self._look_at(job)
        return self._sizes.left_s(job)

    def per_chance_s(self, job: Job) -> float:
        """The least time expected to pass there per chance that it is done."""
        self._look_at(job)
        return self._sizes.per_chance_s(job)

    def _look_at(self, job: Job) -> None:
        run = self._runs.get(job.number)
        if run is not None:
            self._advance(run)

    # What happens.

    def play(self, tell: Callable[[float], None] = lambda share: None) -> History:
        """Until all jobs are done."""
        arrivals = self._trace.arrival_s.tolist()
        count, arrived, wake_s = len(arrivals), 0, math.inf
        events, policy = self._events, self._policy
        while arrived < count or self._jobs:
            next_s = min(arrivals[arrived] if arrived < count else math.inf, wake_s)
            if events and events[0][0] <= next_s:
                next_s = events[0][0]
            if next_s == math.inf:
                stuck = self._trace.ids[next(iter(self._jobs))]
                raise InputError(
                    f"policy {policy.name!r} leaves job {stuck!r} waiting for ever on free devices"
                )
            self.now_s = next_s
            while events and events[0][0] <= next_s:
                self._happen(heapq.heappop(events))
            while arrived < count and arrivals[arrived] <= next_s:
                self._submit(arrived)
                arrived += 1
                if not arrived & 1023:
                    tell(arrived / count)
            wake_s = policy.decide(self)
        tell(1.0)
        return self.history

    def _submit(self, number: int) -> None:
        trace = self._trace
        job = Job(
            number=number,
            devices=int(trace.devices[number]),
            arrival_s=self.now_s,
            predicted_s=0.0,
            limit_s=float(trace.limit_s[number]),
            user=int(trace.user[number]),
            deadline_s=float(trace.deadline_s[number]),
            preemptible=bool(trace.preemptible[number]),
        )
        self._jobs[number] = job
        job.predicted_s = self._sizes.predicted_s(job)
        self._policy.submitted(job, self)

    def _happen(self, event: tuple[float, int, int, int]) -> None:
        _, kind, number, version = event
        if kind == _FINISH:
            run = self._runs.get(number)
            if run is not None and run.version == version:
                self._finish(run)
        elif kind == _FAIL:
            self._fail(number)
        else:
            self._pool_of(number).join(number)

    def _finish(self, run: _Run) -> None:
        job = run.job
        self._advance(run)
        job.done_s = self._iterations[job.number] * self._placement.least_s(self._shape[job.number])
        self._leave(run)
        del self._jobs[job.number], self._done[job.number]
        self.history.finished(job.number, self.now_s)
        self._sizes.learn(job, job.done_s)
        self._policy.ended(job, self)

    def _fail(self, server: int) -> None:
        pool = self._pool_of(server)
        hit = [r for r in self._runs.values() if any(s == server for s, _ in r.offer.share)]
        for run in hit:
            self._advance(run)
            self._done[run.job.number] = run.saved
            run.job.done_s = run.saved * self._placement.least_s(self._shape[run.job.number])
            self._leave(run)
        pool.fail(server)
        for run in hit:
            self._policy.submitted(run.job, self)

    # How runs go on.

    def _plan(self, run: _Run) -> None:
        """Say when it will be done if nothing changes."""
        left = self._iterations[run.job.number] - self._done[run.job.number]
        ends_s = max(run.seen_s, self.now_s) + left * run.iteration_s
        self._plans += 1
        run.version = self._plans  # what was planned before does not count any more
        heapq.heappush(self._events, (ends_s, _FINISH, run.job.number, run.version))

    def _advance(self, run: _Run) -> None:
        """Count what was done until now."""
        if self.now_s <= run.seen_s:
            return
        number, rules = run.job.number, self._rules
        before = self._done[number]
        passed_s = self.now_s - run.seen_s
        done = min(before + passed_s / run.iteration_s, self._iterations[number])
        every = rules.checkpoint_every_s / run.iteration_s
        if done - run.saved >= every:
            run.saved += every * int((done - run.saved) / every)
        run.job.done_s += (done - before) * self._placement.least_s(self._shape[number])
        self._done[number] = done
        run.seen_s = self.now_s

    def _leave(self, run: _Run) -> None:
        number, offer = run.job.number, run.offer
        run.job.served_s += (self.now_s - run.started_s) * run.job.devices
        del self._runs[number]
        self._pools[offer.pool].give(offer.share)
        self.history.ran(number, run.started_s, self.now_s, offer.share)
        if run.pace is not None:
            self._leave_ports(run)

    def _arrive_at_ports(self, run: _Run) -> None:
        for server, _ in run.offer.share:
            self._at_ports.setdefault(server, set()).add(run.job.number)
        self._share_ports(run)

    def _leave_ports(self, run: _Run) -> None:
        for server, _ in run.offer.share:
            self._at_ports[server].discard(run.job.number)
        self._share_ports(run)

    def _share_ports(self, run: _Run) -> None:
        """New paces for all that meet at the ports of a job that came or went."""
        met = sorted({n for server, _ in run.offer.share for n in self._at_ports[server]})
        for other in (self._runs[n] for n in met):
            assert other.pace is not None
            self._advance(other)
            sharers = [len(self._at_ports[server]) for server, _ in other.offer.share]
            other.iteration_s = other.pace.iteration_s(sharers)
            self._plan(other)

    def _pool_of(self, server: int) -> Pool:
        for pool in self._pools:
            if pool.spec.first_server <= server < pool.spec.first_server + pool.spec.servers:
                return pool
        count = sum(pool.spec.servers for pool in self._pools)
        raise InputError(
            f"server {server} cannot fail, there are {count}: number them from 0 to {count - 1}"
        )

    def _pools_for(self, device: str | None) -> list[int]:
        return [i for i, p in enumerate(self._pools) if device in (None, p.spec.device)]

    def _check(self) -> None:
        trace = self._trace
        for wanted in range(NONE, len(trace.devices_wanted)):
            mine = trace.wants == wanted
            if not mine.any():
                continue
            most = max((self._pools[n].spec.devices for n in self._wants[wanted]), default=0)
            large = mine & (trace.devices > most)
            if large.any():
                number = int(large.argmax())
                kind = "" if wanted == NONE else f" {trace.devices_wanted[wanted]}"
                raise InputError(
                    f"job {trace.ids[number]!r} needs {trace.devices[number]}{kind} devices and "
                    f"the largest pool of the cluster has {most}: leave it out or enlarge the "
                    "cluster"
                )
