"""Compute and communication side by side: when exchanges hide behind compute and when they do not.

One compute stream and one communication stream, both in order. While both are busy, compute is
slowed by `contention`: collectives take multiprocessors and memory bandwidth (on a CPU, cores).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretell.graph.graph import Floats

CONTENTION = 0.06
"""Usual on GPUs."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A stretch of one stream."""

    stream: str
    name: str
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

    @property
    def exposed_s(self) -> float:
        """Time added by communication: waiting for it, and computing slower beside it."""
        return max(0.0, self.end_s - self.compute_s)


def gathered_pass(
    compute_s: Sequence[float],
    gather_s: Sequence[float],
    scatter_s: Sequence[float],
    *,
    prefetch: int,
    overlap: bool,
    contention: float = CONTENTION,
    names: Sequence[str] = (),
) -> Overlap:
    """A pass over units that gathers each unit's parameters first and may reduce gradients after.

    The gather of a unit is issued when the unit `prefetch` before it starts; the exchange of its
    gradients when its compute is done.
    """
    starts: list[float] = []
    link_s = compute_end = link_busy_s = 0.0
    pending: list[tuple[float, float, str]] = []
    spans: list[Span] = []
    count = len(compute_s)
    ready = [0.0] * count
    issued = 0

    def run_link(at_s: float, length_s: float, name: str) -> float:
        nonlocal link_s, link_busy_s
        start = max(link_s, at_s)
        link_s = start + length_s
        link_busy_s += length_s
        if length_s:
            spans.append(Span(stream="communication", name=name, start_s=start, end_s=link_s))
        return link_s

    def label(i: int) -> str:
        return names[i] if i < len(names) else str(i)

    for unit in range(count):
        while issued < count and issued <= unit + (prefetch if overlap else 0):
            at_s = compute_end
            ready[issued] = run_link(at_s, gather_s[issued], f"gather {label(issued)}")
            issued += 1
        for at_s, length_s, name in pending:
            run_link(at_s, length_s, name)
        pending.clear()
        start = max(compute_end, ready[unit])
        if not overlap:
            start = max(start, link_s)
        beside = max(0.0, min(link_s, start + compute_s[unit]) - start)
        length = compute_s[unit] + contention * beside
        starts.append(start)
        compute_end = start + length
        spans.append(Span(stream="compute", name=label(unit), start_s=start, end_s=compute_end))
        if scatter_s[unit]:
            pending.append((compute_end, scatter_s[unit], f"reduce {label(unit)}"))
    for at_s, length_s, name in pending:
        run_link(at_s, length_s, name)
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
    if not overlap or not len(bucket_s):
        return Overlap(end_s=backward_s + total, compute_s=backward_s, communication_s=total)
    clock_s = done_s = link_s = 0.0
    spans = []

    def compute_until(work_s: float) -> None:
        """Advance to where so much of the backward pass is done."""
        nonlocal clock_s, done_s
        rest = work_s - done_s
        slowly = min(rest, max(0.0, link_s - clock_s) / (1 + contention))
        clock_s += slowly * (1 + contention) + (rest - slowly)
        done_s = work_s

    for number, (at_s, length_s) in enumerate(zip(ready_s, bucket_s, strict=True)):
        compute_until(max(done_s, float(at_s)))
        start = max(link_s, clock_s)
        link_s = start + float(length_s)
        spans.append(
            Span(stream="communication", name=f"bucket {number}", start_s=start, end_s=link_s)
        )
    compute_until(max(done_s, backward_s))
    return Overlap(
        end_s=max(link_s, clock_s),
        compute_s=backward_s,
        communication_s=total,
        spans=tuple(spans),
    )
