"""Jobs in portions that travel to other machines as plain data, and run there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Self

from foretell.data.store import Store
from foretell.measure.runner import Job, Plan, Report, run_jobs
from foretell.measure.task import Task
from foretell.measure.world import World

_JOBS = 6


@dataclass(frozen=True)
class Chunk:
    """A few jobs of one world."""

    world: World
    tasks: tuple[Task, ...]
    plan: Plan

    @property
    def cores(self) -> int:
        """Processor cores it keeps busy on one machine."""
        return self.world.processes * (self.world.namespaces or 1) * max(1, self.world.threads)

    def run(self, store: Store) -> Report:
        """Measure here."""
        return run_jobs([Job(task, self.world) for task in self.tasks], store, self.plan)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The reverse of to_dict."""
        world = {**data["world"], "hosts": tuple(data["world"]["hosts"])}
        return cls(
            World(**world), tuple(Task(**task) for task in data["tasks"]), Plan(**data["plan"])
        )


def chunks_of(jobs: Sequence[Job], plan: Plan) -> list[Chunk]:
    """Neighbouring jobs of one world together, a few at a time."""
    found = []
    for world, group in groupby(jobs, key=lambda job: job.world):
        tasks = [job.task for job in group]
        for start in range(0, len(tasks), _JOBS):
            found.append(Chunk(world, tuple(tasks[start : start + _JOBS]), plan))
    return found
