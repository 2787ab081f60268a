"""What a job is made of: stages with replicas, what they compute and what they tell each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foretell.errors import InputError
from foretell.graph.graph import Floats, Ints


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the model that `replicas` devices run, each on its share of the samples."""

    replicas: int
    compute_s: float
    """Forward and backward of one iteration on one replica."""
    parameter_bytes: float = 0.0
    """Gradients that the replicas add up once per iteration."""


@dataclass(frozen=True, slots=True)
class Flow:
    """What one stage sends another in one iteration: activations there, gradients back."""

    source: int
    target: int
    nbytes: float


@dataclass(frozen=True, eq=False)
class Edges:
    """Traffic between the devices of a job, in bytes per iteration."""

    one: Ints
    other: Ints
    nbytes: Floats

    def __len__(self) -> int:
        return len(self.one)


@dataclass(frozen=True)
class Shape:
    """The graph of a job: one device per replica of each stage.

    Devices are numbered stage by stage.
    """

    stages: tuple[Stage, ...]
    flows: tuple[Flow, ...] = ()

    def __post_init__(self) -> None:
        if not self.stages:
            raise InputError("a job needs at least one stage: add one")
        for number, stage in enumerate(self.stages):
            _check_stage(number, stage)
        for flow in self.flows:
            _check_flow(flow, len(self.stages))
        _check_order(self.flows, len(self.stages))

    @cached_property
    def devices(self) -> int:
        """How many it needs, all at once."""
        return sum(stage.replicas for stage in self.stages)

    @cached_property
    def first_device(self) -> tuple[int, ...]:
        """Of every stage, and one past the last."""
        ends = np.cumsum([0, *(stage.replicas for stage in self.stages)])
        return tuple(int(e) for e in ends)

    @cached_property
    def stage_of(self) -> Ints:
        """The stage of every device."""
        return np.repeat(np.arange(len(self.stages)), [s.replicas for s in self.stages])

    @cached_property
    def flow_edges(self) -> Edges:
        """What devices of different stages send each other."""
        parts = [self._between(flow) for flow in self.flows]
        return _edges([edge for part in parts for edge in part])

    @cached_property
    def ring_edges(self) -> Edges:
        """What replicas of a stage pass on when they add up gradients in a ring."""
        found = []
        for number, stage in enumerate(self.stages):
            k, first = stage.replicas, self.first_device[number]
            if k > 1 and stage.parameter_bytes > 0:
                hops = [(i, (i + 1) % k) for i in range(k if k > 2 else 1)]
                found += [(first + a, first + b, ring_bytes(stage)) for a, b in hops]
        return _edges(found)

    def _between(self, flow: Flow) -> list[tuple[int, int, float]]:
        """Replicas hold equal, contiguous shares of the samples; those that overlap talk."""
        a, b = self.stages[flow.source].replicas, self.stages[flow.target].replicas
        start, end = self.first_device[flow.source], self.first_device[flow.target]
        found = []
        for i in range(a):
            for j in range(i * b // a, -((-(i + 1) * b) // a)):
                # Shares are [i b, (i + 1) b) and [j a, (j + 1) a) of a b samples.
                common = min((i + 1) * b, (j + 1) * a) - max(i * b, j * a)
                if common > 0:
                    found.append((start + i, end + j, flow.nbytes * common / (a * b)))
        return found


def ring_bytes(stage: Stage) -> float:
    """What every replica of a stage sends per iteration to add up gradients."""
    k = stage.replicas
    return 2 * (k - 1) / k * stage.parameter_bytes


def data_parallel(replicas: int, *, compute_s: float, parameter_bytes: float) -> Shape:
    """One stage on so many devices."""
    return Shape((Stage(replicas, compute_s, parameter_bytes),))


def pipeline(stages: Sequence[Stage], activation_bytes: Sequence[float]) -> Shape:
    """Stages in a row, and what passes between each and the next in one iteration."""
    if len(activation_bytes) != len(stages) - 1:
        raise InputError(
            f"{len(stages)} stages in a row have {len(stages) - 1} gaps, not "
            f"{len(activation_bytes)}: give one number of activation bytes for each"
        )
    flows = [Flow(i, i + 1, nbytes) for i, nbytes in enumerate(activation_bytes)]
    return Shape(tuple(stages), tuple(flows))


def _edges(found: Sequence[tuple[int, int, float]]) -> Edges:
    one, other, nbytes = zip(*found, strict=True) if found else ((), (), ())
    return Edges(
        np.array(one, dtype=np.int64),
        np.array(other, dtype=np.int64),
        np.array(nbytes, dtype=np.float64),
    )


def _check_stage(number: int, stage: Stage) -> None:
    if isinstance(stage.replicas, bool) or not isinstance(stage.replicas, int):
        raise InputError(f"stage {number}: replicas={stage.replicas!r} must be a whole number")
    if stage.replicas < 1:
        raise InputError(f"stage {number}: replicas={stage.replicas} must be 1 or more")
    if not 0 < stage.compute_s < math.inf:
        raise InputError(f"stage {number}: compute_s={stage.compute_s!r} must be above zero")
    if not 0 <= stage.parameter_bytes < math.inf:
        raise InputError(
            f"stage {number}: parameter_bytes={stage.parameter_bytes!r} must be 0 or more"
        )


def _check_flow(flow: Flow, stages: int) -> None:
    for end in (flow.source, flow.target):
        if not 0 <= end < stages:
            raise InputError(
                f"flow {flow.source} -> {flow.target}: there is no stage {end}, "
                f"stages are 0 to {stages - 1}"
            )
    if not 0 <= flow.nbytes < math.inf:
        raise InputError(
            f"flow {flow.source} -> {flow.target}: nbytes={flow.nbytes!r} must be 0 or more"
        )


def _check_order(flows: Sequence[Flow], stages: int) -> None:
    """Stages must have an order in which they can run."""
    waiting = [0] * stages
    after: list[list[int]] = [[] for _ in range(stages)]
    for flow in flows:
        waiting[flow.target] += 1
        after[flow.source].append(flow.target)
    ready = [s for s in range(stages) if not waiting[s]]
    done = 0
    while ready:
        done += 1
        for target in after[ready.pop()]:
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    if done < stages:
        stuck = ", ".join(str(s) for s in range(stages) if waiting[s])
        raise InputError(
            f"stages {stuck} wait for each other in a cycle: leave out the flow that leads back"
        )
