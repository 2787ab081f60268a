"""The loop that steps a workload until its time is known: warm-up, blocks, agreement to stop."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from foretell.measure.clock import Memory, Reference, now_s, sent_bytes
from foretell.measure.sampler import UsageSampler
from foretell.measure.statistics import steady_from, summarise
from foretell.measure.steps import Step
from foretell.measure.task import Task

_WARM_STEPS = 2
_SHORTEST_S = 2e-3
_BLOCK_S = 0.25
_FEWEST_SAMPLES = 5
_MOST_AT_ONCE = 2000
_PATIENCE = 4


@dataclass
class Samples:
    """What one process saw."""

    step_s: list[float] = field(default_factory=list)
    phase_s: list[list[float]] = field(default_factory=list)
    reference_s: list[float] = field(default_factory=list)
    sent_bytes: float = 0.0
    memory: dict[str, float] = field(default_factory=dict)
    series: dict[str, Any] = field(default_factory=dict)
    """Usage of this process over time; empty unless it was watched."""


class StepSampler:
    """Steps a workload on this process, in agreement with the others."""

    def __init__(
        self, device: torch.device, interface: str, usage: UsageSampler | None = None
    ) -> None:
        self.device, self.interface, self.usage = device, interface, usage
        self.together = dist.is_initialized() and dist.get_world_size() > 1
        self.reference = Reference(device)

    def sample(self, step: Step, task: Task) -> Samples:
        """Warm up, then sample until time, number or precision is reached."""
        memory = Memory(self.device)
        for _ in range(_WARM_STEPS):
            started = now_s(self.device)
            step(_no_mark)
            last_s = now_s(self.device) - started
        last_s = self._agreed(last_s)
        at_once = min(_MOST_AT_ONCE, max(1, math.ceil(_SHORTEST_S / last_s)))
        per_block = max(1, round(_BLOCK_S / (last_s * at_once)))
        found = Samples()
        sent_before = self._sent()
        self._watch()
        began, steps = now_s(self.device), 0
        while True:
            found.reference_s.append(self.reference.seconds())
            for _ in range(per_block):
                self._one(step, at_once, found)
                steps += at_once
                late = now_s(self.device) - began > _PATIENCE * task.seconds
                if late and not self.together:  # processes that work together stop together
                    break
            enough = self._enough(found, task, now_s(self.device) - began)
            if self._agreed(float(enough)):
                break
        if self.usage is not None:
            found.series = self.usage.stop().to_dict()
        found.sent_bytes = (self._sent() - sent_before) / steps
        found.memory = memory.peaks()
        return found

    def _watch(self) -> None:
        if self.usage is not None:
            self.usage.start(
                [os.getpid()],
                [self.interface] if self.together else [],
                threads=torch.get_num_threads(),
                devices=[self.device.index] if self.device.type == "cuda" else [],
            )

    def _one(self, step: Step, at_once: int, found: Samples) -> None:
        marks: list[float] = []
        start = now_s(self.device)
        for _ in range(at_once):
            step(lambda: marks.append(now_s(self.device)))
        end = now_s(self.device)
        found.step_s.append((end - start) / at_once)
        if at_once == 1 and len(marks) == 3:
            found.phase_s.append(np.diff([start, *marks]).tolist())

    def _enough(self, found: Samples, task: Task, spent_s: float) -> bool:
        count = len(found.step_s)
        if spent_s >= task.seconds:
            return count >= _FEWEST_SAMPLES or spent_s >= _PATIENCE * task.seconds
        steady = found.step_s[steady_from(found.step_s) :]
        if len(steady) < 4 * _FEWEST_SAMPLES:
            return False
        known = summarise(steady).relative_width <= task.width and spent_s >= task.seconds / 2
        return known or count >= task.most_samples

    def _agreed(self, value: float) -> float:
        """The first process's number, on all of them."""
        if not self.together:
            return value
        number = torch.tensor([value], dtype=torch.float64, device=self._plain_device())
        dist.broadcast(number, 0)
        return float(number.item())

    def _plain_device(self) -> torch.device:
        return self.device if self.device.type == "cuda" else torch.device("cpu")

    def _sent(self) -> float:
        if not self.together:
            return 0.0
        dist.barrier()
        sharing = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        return sent_bytes(self.interface) / sharing


def _no_mark() -> None:
    pass


def gathered(mine: Samples) -> list[Samples]:
    """Everybody's samples, on every process."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [mine]
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    return found
