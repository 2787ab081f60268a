"""Compute and communication side by side: when exchanges hide behind compute and when they do not.

One compute stream and one communication stream, both in order. While both are busy, compute is
slowed by `contention`: collectives take multiprocessors and memory bandwidth (on a CPU, cores).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from foretell.graph.graph import Floats

CONTENTION = 0.06
"""Usual on GPUs."""


COMPUTE, COMMUNICATION = "compute", "communication"


class Span(NamedTuple):
    """A stretch of one stream."""

    stream: str
    what: str
    number: int
    """Of the unit or bucket."""
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """What running both streams gave."""

    end_s: float
    compute_s: float
    """What the compute stream would take alone."""
    communication_s: float
    spans: tuple[Span, ...] = ()
    pace: tuple[tuple[float, float], ...] = ()
    """(compute done, time) wherever compute gets faster or slower; empty where spans of the
    compute stream say when it runs."""

    @property
    def exposed_s(self) -> float:
        """Time added by communication: waiting for it, and computing slower beside it."""
        return max(0.0, self.end_s - self.compute_s)

    def clock_s(self, done_s: Floats) -> Floats:
        """When so much of the compute stream is done; copies into buckets are spread over it."""
        work_s, time_s = self._knots
        scaled = done_s * (work_s[-1] / self.compute_s) if self.compute_s else done_s
        return np.asarray(np.interp(scaled, work_s, time_s))

    @functools.cached_property
    def _knots(self) -> Floats:
        return np.array(self.pace).T


def alone(compute_s: float) -> Overlap:
    """Compute with nothing beside it."""
    pace = ((0.0, 0.0), (compute_s, compute_s))
    return Overlap(end_s=compute_s, compute_s=compute_s, communication_s=0.0, pace=pace)


def gathered_pass(
    units: Sequence[int],
    compute_s: Sequence[float],
    gather_s: Sequence[float],
    scatter_s: Sequence[float],
    *,
    prefetch: int,
    overlap: bool,
    contention: float = CONTENTION,
) -> Overlap:
    """A pass over units that gathers each one's parameters first and may reduce gradients after.

    The gather of a unit is issued when the unit `prefetch` before it starts; the exchange of its
    gradients when its compute is done.
    """
    link_s = compute_end = link_busy_s = 0.0
    pending: list[tuple[float, int]] = []
    spans: list[Span] = []
    count = len(compute_s)
    ready = [0.0] * count
    issued = 0

    def run_link(at_s: float, length_s: float, what: str, i: int) -> float:
        nonlocal link_s, link_busy_s
        start = max(link_s, at_s)
        link_s = start + length_s
        link_busy_s += length_s
        if length_s:
            spans.append(Span(COMMUNICATION, what, units[i], start, link_s))
        return link_s

    for i in range(count):
        while issued < count and issued <= i + (prefetch if overlap else 0):
            ready[issued] = run_link(compute_end, gather_s[issued], "gather", issued)
            issued += 1
        for at_s, done in pending:
            run_link(at_s, scatter_s[done], "reduce", done)
        pending.clear()
        start = max(compute_end, ready[i])
        if not overlap:
            start = max(start, link_s)
        beside = max(0.0, min(link_s, start + compute_s[i]) - start)
        compute_end = start + compute_s[i] + contention * beside
        spans.append(Span(COMPUTE, "unit", units[i], start, compute_end))
        if scatter_s[i]:
            pending.append((compute_end, i))
    for at_s, done in pending:
        run_link(at_s, scatter_s[done], "reduce", done)
    return Overlap(
        end_s=max(compute_end, link_s),
        compute_s=sum(compute_s),
        communication_s=link_busy_s,
        spans=tuple(spans),
    )


def bucketed_backward(
    backward_s: float,
    ready_s: Floats,
    bucket_s: Floats,
    *,
    overlap: bool,
    contention: float = CONTENTION,
) -> Overlap:
    """A backward pass with buckets of gradients exchanged as each becomes complete.

    `ready_s` is when each bucket would be complete if nothing slowed compute.
    """
    total = float(bucket_s.sum())
    clock_s = done_s = 0.0
    link_s = 0.0 if overlap else backward_s
    slowdown = 1 + contention if overlap else 1.0
    spans = []
    pace = [(0.0, 0.0)]

    def compute_until(work_s: float) -> None:
        """Advance to where so much of the backward pass is done."""
        nonlocal clock_s, done_s
        rest = work_s - done_s
        slowly = min(rest, max(0.0, link_s - clock_s) / slowdown)
        clock_s += slowly * slowdown
        pace.append((done_s + slowly, clock_s))
        clock_s += rest - slowly
        pace.append((work_s, clock_s))
        done_s = work_s

    for number, (at_s, length_s) in enumerate(
        zip(ready_s.tolist(), bucket_s.tolist(), strict=True)
    ):
        compute_until(max(done_s, at_s))
        start = max(link_s, clock_s)
        link_s = start + length_s
        spans.append(Span(COMMUNICATION, "bucket", number, start, link_s))
    compute_until(max(done_s, backward_s))
    return Overlap(
        end_s=max(link_s, clock_s),
        compute_s=backward_s,
        communication_s=total,
        spans=tuple(spans),
        pace=tuple(pace),
    )
