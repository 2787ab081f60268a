"""A campaign: choose, measure, and choose again with what is known then, until the time is up."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from foretell.calibrate.candidates import models, operators
from foretell.data import Record
from foretell.data.export import whole_file
from foretell.data.store import Store
from foretell.design import plan
from foretell.design.candidates import Candidate, plain
from foretell.design.cost import Effort
from foretell.design.known import runs_on
from foretell.errors import InputError
from foretell.measure.jobs import collective_jobs, job, not_yet_measured
from foretell.measure.runner import Job, Plan, run_jobs
from foretell.measure.task import Task
from foretell.measure.world import World

SHORTEST_S = 20.0
"""A budget below this would be spent on starting processes."""
_START_S = 6.0
_SHARE_ALONE = 0.7
"""Of the budget, for one process, where several are measured too."""
_SHARE_OF_TURN = 0.35
_COLLECTIVE_S = 1.5
_USUAL_PACE = 1.5


@dataclass(frozen=True)
class Turn:
    """One choice that was measured."""

    cluster: str
    measured: int
    spent_s: float
    uncertainty: float
    """Mean standard error of the candidates' predicted times that the choice aimed at."""


@dataclass
class _Kind:
    """Candidates that are chosen from together."""

    candidates: Sequence[Candidate]
    pace: float = _USUAL_PACE
    """What measuring takes over what it was reckoned to take; the first turn tells."""
    turns: int = 0


Tell = Callable[[float, str], None]
"""Called with the seconds spent so far and what is going on."""


@dataclass(kw_only=True)
class Campaign:
    """Measurements of this machine, within a budget of time; goes on where it was interrupted."""

    store: Store
    budget_s: float
    worlds: Sequence[World]
    """Where steps are measured; all with the same threads, one of them with one process."""
    name: str
    """What this campaign measured carries its name, and counts as spent when it goes on."""
    effort: Effort = field(default_factory=lambda: Effort(seconds=0.4, rounds=2))
    seed: int = 0
    tell: Tell = lambda spent_s, what: None

    def __post_init__(self) -> None:
        if self.budget_s < SHORTEST_S:
            raise InputError(
                f"a budget of {self.budget_s:g} s is spent on starting up: give "
                f"{SHORTEST_S:g} s or more"
            )
        if len({w.device.id for w in self.worlds}) > 1:
            raise InputError("processes with different threads are different devices: give one")
        self.store.check_writable()
        self._started = time.monotonic() - self._spent_before()

    @property
    def spent_s(self) -> float:
        """Seconds so far, those of earlier attempts included."""
        return time.monotonic() - self._started

    def records(self) -> list[Record]:
        """Everything in the store that was measured on this machine."""
        name = self.worlds[0].device.name
        return [
            r
            for r in self.store.records(source="foretell")
            if r.environment.get("device", {}).get("name") == name
        ]

    def run(self) -> Iterator[Turn]:
        """Measure until the budget is spent."""
        alone = [w for w in self.worlds if w.total == 1]
        shared = [w for w in self.worlds if w.total > 1]
        until_s = self.budget_s * (_SHARE_ALONE if shared else 1.0)
        for world in alone:
            self.tell(self.spent_s, "capturing candidates")
            kinds = [operators(world.cluster), models(world.cluster, ("train", "infer"))]
            yield from self._turns(kinds, world, until_s)
        for number, world in enumerate(shared, start=1):
            left_s = self.budget_s - until_s
            self._measure(
                self._collectives(world), min(left_s / 2, self.budget_s - self.spent_s - _START_S)
            )
            self.tell(self.spent_s, "capturing candidates")
            until_s += left_s / (len(shared) - number + 1)
            yield from self._turns([models(world.cluster, ("train",))], world, until_s)

    def _turns(
        self, kinds: Sequence[Sequence[Candidate]], world: World, until_s: float
    ) -> Iterator[Turn]:
        """Design, measure and design again.

        Kinds of candidates take turns: operators tell most about constants for their cost, but
        forecasts are of whole steps, which also show what operators alone do not.
        """
        open_to = [_Kind(candidates) for candidates in kinds]
        while open_to and (left_s := until_s - self.spent_s) > _START_S:
            kind = open_to.pop(0)
            waiting = sum(not other.turns for other in open_to)
            turn_s = _turn_s(left_s, waiting)
            try:
                runs, _ = runs_on(world.device, self.records())
                chosen = plan(
                    kind.candidates,
                    (turn_s - _START_S) * world.total / kind.pace,
                    runs=runs,
                    effort=self.effort,
                    seed=self.seed,
                )
            except InputError:  # everything is measured, or nothing left is cheap enough
                continue
            open_to.append(kind)
            kind.turns += 1
            task = Task(options={}, seconds=self.effort.seconds)
            jobs = [job(plain(c.case), world, task) for c in chosen.choices]
            before_s = self.spent_s
            measured = self._measure(jobs, until_s - self.spent_s if waiting == 0 else turn_s)
            took_s = self.spent_s - before_s
            if measured == len(jobs):
                kind.pace = max(1.0, took_s - _START_S) * world.total / chosen.cost_s
            yield Turn(world.cluster, measured, took_s, chosen.uncertainty_after)

    def _collectives(self, world: World) -> list[Job]:
        task = Task(options={}, seconds=_COLLECTIVE_S)
        return not_yet_measured(collective_jobs([world], task), self.records())

    def _measure(self, jobs: Sequence[Job], budget_s: float) -> int:
        if not jobs or budget_s <= 0:
            return 0
        how = Plan(rounds=self.effort.rounds, budget_s=budget_s, seed=self.seed, campaign=self.name)
        report = run_jobs(jobs, self.store, how, self._advance)
        self._advance(0, 0, "")
        return len(report.records)

    def _advance(self, done: int, total: int, what: str) -> None:
        """Keep what was spent, so that a killed campaign goes on with what is left."""
        self.store.directory.mkdir(parents=True, exist_ok=True)
        with whole_file(self._ledger, binary=False) as stream:
            json.dump({"spent_s": self.spent_s}, stream)
        self.tell(self.spent_s, what)

    @property
    def _ledger(self) -> Path:
        return self.store.directory / f"{self.name}.spent"

    def _spent_before(self) -> float:
        try:
            return float(json.loads(self._ledger.read_text(encoding="utf-8"))["spent_s"])
        except (OSError, ValueError, KeyError, TypeError):
            return 0.0


def _turn_s(left_s: float, waiting: int) -> float:
    """How long a turn may take, so that kinds without one yet get theirs."""
    if left_s >= 2 * SHORTEST_S:
        return max(SHORTEST_S, left_s * _SHARE_OF_TURN)
    return left_s / (1 + waiting)
