"""Measuring many workloads: in batches, round by round in changing order, into the store."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from foretell.api import workload_of
from foretell.cluster import parse_cluster
from foretell.data import Record
from foretell.data.store import Store
from foretell.errors import ForetellError, InputError
from foretell.measure.crew import Crew
from foretell.measure.details import Details
from foretell.measure.environment import environment
from foretell.measure.records import collective_records, record_of
from foretell.measure.task import Answer, Task
from foretell.measure.world import World
from foretell.parallel import place
from foretell.predictors.memory import CPU_MEMORY, rank_memory

Progress = Callable[[int, int, str], None]
_BATCH = 6
_MOST_OF_MEMORY = 0.85
_MOST_ROUNDS = 1000


@dataclass(frozen=True)
class Job:
    """A task and where it runs."""

    task: Task
    world: World


@dataclass
class Plan:
    """How jobs are measured."""

    rounds: int = 2
    budget_s: float | None = None
    seed: int = 0
    check_memory: bool = True
    needs: str = ""
    """What a machine must have to be given jobs: a Ray resource, or a Slurm constraint."""
    campaign: str = ""
    """What the measurements are for, kept with each of them."""

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= _MOST_ROUNDS:
            raise InputError(f"rounds={self.rounds} must be between 1 and {_MOST_ROUNDS}")


@dataclass
class Report:
    """What became of the jobs."""

    records: list[Record] = field(default_factory=list)
    left: int = 0
    """Jobs the budget left no time for."""


def run_jobs(
    jobs: Sequence[Job],
    store: Store,
    plan: Plan,
    progress: Progress = lambda *_: None,
    details: Details | None = None,
) -> Report:
    """Measure jobs and append what comes of each batch to the store as soon as it is known.

    `details` keeps more than records.

    The rounds of a batch are interleaved, so that whatever slows the machine down for a while
    does not hit one workload alone.
    """
    report, started, done = Report(), time.monotonic(), 0
    order = random.Random(plan.seed)
    by_world: dict[World, list[Task]] = {}
    for job in jobs:
        by_world.setdefault(job.world, []).append(job.task)

    def out_of_time() -> bool:
        return plan.budget_s is not None and time.monotonic() - started > plan.budget_s

    for world, tasks in by_world.items():
        with Crew(world) as crew:
            facts = environment(world.device, world.threads_each)
            facts |= {"campaign": plan.campaign} if plan.campaign else {}
            for batch in _batches(tasks, _BATCH):
                answers: list[list[Answer]] = [[] for _ in batch]
                try:
                    for _ in range(plan.rounds):
                        for i in order.sample(range(len(batch)), len(batch)):
                            if out_of_time() or _is_settled(batch[i], answers[i]):
                                continue
                            progress(done, len(jobs), str(batch[i].options["model"]))
                            answers[i].append(_answer(crew, batch[i], plan))
                            done += len(answers[i]) == 1
                finally:  # what has an answer is kept, even when somebody interrupts
                    found = [
                        record
                        for task, given in zip(batch, answers, strict=True)
                        if given
                        for record in _records(task, world, given, facts)
                    ]
                    store.append(found)
                for task, given in zip(batch, answers, strict=True):
                    if given and details is not None:
                        details.keep(task, world, given)
                report.records += found
                report.left += sum(not given for given in answers)
                progress(done, len(jobs), "")
    return report


def _answer(crew: Crew, task: Task, plan: Plan) -> Answer:
    reason = _too_large(task, crew.world) if plan.check_memory else ""
    return Answer(outcome="does-not-fit", reason=reason) if reason else crew.do(task)


def _is_settled(task: Task, answers: Sequence[Answer]) -> bool:
    """A failure is not tried again, nor is a table of collectives taken twice."""
    return bool(answers) and (answers[-1].outcome != "ok" or bool(answers[-1].rows))


def _records(
    task: Task, world: World, answers: Sequence[Answer], facts: dict[str, Any]
) -> list[Record]:
    if str(task.options["model"]).startswith("collective:"):
        return collective_records(task, world, answers[-1], facts)
    return [record_of(task, world, answers, facts)]


def _too_large(task: Task, world: World) -> str:
    """Why a workload would fill this machine's memory; empty when it would not, or on a GPU."""
    if world.device.vendor != "cpu" or str(task.options["model"]).startswith("collective:"):
        return ""
    try:
        case = task.case
        workload, cluster = workload_of(case, parse_cluster(world.cluster))
        needed = max(m.total_bytes for m in rank_memory(place(workload, cluster), CPU_MEMORY))
    except ForetellError:
        return ""  # the worker says what is wrong with it
    here = needed * world.processes * (world.namespaces or 1)
    room = world.device.memory_bytes * _MOST_OF_MEMORY
    if here <= room:
        return ""
    return (
        f"the processes would need {here / 2**30:.1f} GiB of this machine's "
        f"{world.device.memory_bytes / 2**30:.1f} GiB: use a smaller batch or model"
    )


def _batches(tasks: Iterable[Task], size: int) -> Iterable[list[Task]]:
    iterator = iter(tasks)
    while batch := list(islice(iterator, size)):
        yield batch
