"""When everything of a step runs: passes, operators and communication of every pipeline rank."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from foretell.graph.graph import Bools, Floats, Ints
from foretell.graph.ops import Phase
from foretell.parallel.place import Placed
from foretell.parallel.schedule import BACKWARD, FORWARD, WEIGHTS, TaskSpan
from foretell.parallel.step import StepRun, play, times_reduced, weight_gradients
from foretell.parallel.streams import COMMUNICATION, COMPUTE, Overlap, Span

_TASKS = {FORWARD: "forward", BACKWARD: "backward", WEIGHTS: "weight gradients"}


class Track(IntEnum):
    """What runs one after the other on a rank."""

    PASSES = 0
    OPERATORS = 1
    EXCHANGES = 2
    """Gradients and parameters, between replicas."""
    MESSAGES = 3
    """Between the ranks that share a layer."""
    TRANSFERS = 4
    """To the next pipeline stage and back."""


class Event(NamedTuple):
    """A stretch of one track."""

    rank: int
    track: Track
    what: str
    number: int
    """Of the microbatch, operator, unit, bucket or message; -1 where there is one only."""
    start_s: float
    end_s: float
    chunk: int = 0
    """Of the rank's model chunks, the one a pass goes through."""


class _Layout(NamedTuple):
    """What a pass through a model chunk consists of, in seconds from its start."""

    ops: Ints
    start_s: Floats
    end_s: Floats
    exchanges: Sequence[Span]


def timeline(placed: Placed, run: StepRun, detailed: Container[int]) -> Iterator[Event]:
    """Every pass of the step, with all that belongs to it for the `detailed` microbatches."""
    spans, parts = play(placed, run.stages, whole=True).spans, run.stretched(1 / run.stretch)
    for number in range(placed.layout.pp):
        rank = _Rank(placed, parts, number, [s for s in spans if s.rank == number])
        for event in rank.events(detailed):
            start_s, end_s = event.start_s * run.stretch, event.end_s * run.stretch
            yield event._replace(start_s=start_s, end_s=end_s)


class _Rank:
    """One pipeline rank: its tasks, later by what its gradient exchange costs."""

    def __init__(self, placed: Placed, run: StepRun, rank: int, tasks: Sequence[TaskSpan]) -> None:
        self.placed, self.run, self.rank = placed, run, rank
        self.tasks = [task for task in tasks if task.end_s > task.start_s]
        self.tail = run.tails[rank]
        self.exchanged = self._exchanged()
        self.ends_s = np.array(list(self.exchanged.values()))
        self.layouts: dict[tuple[str, int], _Layout] = {}

    def events(self, detailed: Container[int]) -> Iterator[Event]:
        """Everything on every track of the rank."""
        for task in self.tasks:
            what, chunk, micro = task.task
            start_s, end_s = self._moved(task, np.array([task.start_s, task.end_s])).tolist()
            yield Event(self.rank, Track.PASSES, _TASKS[what], micro, start_s, end_s, chunk)
            if micro in detailed:
                yield from self._computed(task, self._layout(task))
        yield from self._transfers()
        free_s = 0.0
        for _, what, number, start_s, end_s in self._exchanges(detailed):
            # What one pass begins before the link is done with another shows from then on.
            start_s = max(free_s, start_s)
            if end_s > start_s:
                yield self._event(Track.EXCHANGES, what, number, start_s, end_s)
                free_s = end_s
        yield from self._finish()

    def _event(self, track: Track, what: str, number: int, start_s: float, end_s: float) -> Event:
        return Event(self.rank, track, what, number, start_s, end_s)

    def _transfers(self) -> Iterator[Event]:
        """What passes hand to neighbouring stages, one microbatch at a time over a link."""
        stages, free_s = self.run.stages, {FORWARD: 0.0, BACKWARD: 0.0}
        for task in self.tasks:
            what, chunk, micro = task.task
            stage = chunk * self.placed.layout.pp + self.rank
            first = stage if what == FORWARD else stage - 1
            if what == WEIGHTS or not 0 <= first < len(stages) - 1:
                continue
            start_s = max(free_s[what], float(self._moved(task, np.array([task.end_s]))[0]))
            free_s[what] = start_s + stages[first].send_s
            label = f"{_TASKS[what]} to stage {first + (what == FORWARD)}"
            yield Event(self.rank, Track.TRANSFERS, label, micro, start_s, free_s[what], chunk)

    def _computed(self, task: TaskSpan, layout: _Layout) -> Iterator[Event]:
        """Operators, those that recompute as a whole, and messages."""
        ops = layout.ops.tolist()
        start_s = self._moved(task, task.start_s + layout.start_s).tolist()
        end_s = self._moved(task, task.start_s + layout.end_s).tolist()
        for op, start, end in zip(ops, start_s, end_s, strict=True):
            yield self._event(Track.OPERATORS, "", op, start, end)
        phase = self.placed.local.graph.op_phase[layout.ops]
        for value, first, last in _runs(phase):
            if value == Phase.RECOMPUTE:
                label = Phase.RECOMPUTE.label
                yield self._event(Track.PASSES, label, task.task[2], start_s[first], end_s[last])
        yield from self._messages(dict(zip(ops, zip(start_s, end_s, strict=True), strict=True)))

    def _messages(self, times_s: dict[int, tuple[float, float]]) -> Iterator[Event]:
        """Messages inside the pass: after their operator, or from its start when beside it."""
        messages, free_s = self.placed.messages, 0.0
        columns = zip(
            messages.op.tolist(),
            messages.hidden_behind.tolist(),
            messages.collective,
            messages.axis,
            self.run.message_s.tolist(),
            strict=True,
        )
        for number, (after, beside, collective, axis, seconds) in enumerate(columns):
            if (after if beside < 0 else beside) not in times_s:
                continue
            ready_s = times_s[after][1] if beside < 0 else times_s[beside][0]
            start_s = max(free_s, ready_s)
            free_s = start_s + seconds
            what = f"{axis} {collective.value}"
            yield self._event(Track.MESSAGES, what, number, start_s, free_s)

    def _exchanges(self, detailed: Container[int]) -> Iterator[Span]:
        """Gathers and scatters of every pass, or buckets beside those that exchange gradients."""
        for task in self.tasks:
            if task.task[2] in detailed:
                for span in self._layout(task).exchanges:
                    yield _later(span, task.start_s)
        for before, (micro, end_s) in enumerate(self.exchanged.items()):
            if micro in detailed:
                begin_s = end_s - self.tail.compute_s + before * self.tail.exposed_s
                for span in self.tail.spans:
                    yield _later(span, begin_s)

    def _finish(self) -> Iterator[Event]:
        """The optimizer, the parameters that other ranks have updated, the training loop."""
        start_s = max((task.end_s for task in self.tasks), default=0.0)
        start_s += len(self.exchanged) * self.tail.exposed_s
        optimizer_s, gather_s = self.run.finishes[self.rank]
        done_s = start_s + optimizer_s
        if optimizer_s:
            label = Phase.OPTIMIZER.label
            yield self._event(Track.PASSES, label, -1, start_s, done_s)
            count = len(self.placed.local.graph)
            ops = count + np.flatnonzero(self.run.op_rank[count:] == self.rank)
            took_s = self.run.op_s[ops]
            ends_s = start_s + np.cumsum(took_s) * (optimizer_s / took_s.sum())
            for op, begin, end in zip(
                ops.tolist(), [start_s, *ends_s[:-1].tolist()], ends_s.tolist(), strict=True
            ):
                yield self._event(Track.OPERATORS, "", op, begin, end)
        gathered_s = done_s + gather_s
        if gather_s:
            yield self._event(Track.EXCHANGES, "gather parameters", -1, done_s, gathered_s)
        if "loop" in self.run.phase_s:
            end_s = gathered_s + self.run.phase_s["loop"]
            yield self._event(Track.PASSES, "loop", -1, gathered_s, end_s)

    def _exchanged(self) -> dict[int, float]:
        """Microbatches whose gradients are exchanged, and when the rank has computed them."""
        if not self.tail.communication_s:
            return {}
        last = {task.task[2]: task.end_s for task in self.tasks}
        found = sorted(last.items(), key=lambda item: item[1])
        return dict(found[-times_reduced(self.placed) :])

    def _moved(self, task: TaskSpan, time_s: Floats) -> Floats:
        """Times of a task with exchanges before it and beside it."""
        before = int(np.searchsorted(self.ends_s, task.end_s))
        moved = time_s + before * self.tail.exposed_s
        if before < len(self.ends_s):
            begin_s = self.ends_s[before] - self.tail.compute_s
            done_s = np.maximum(0.0, time_s - begin_s)
            moved += self.tail.clock_s(done_s) - done_s
        return moved

    def _layout(self, task: TaskSpan) -> _Layout:
        what, chunk, _ = task.task
        if (what, chunk) not in self.layouts:
            stage = chunk * self.placed.layout.pp + self.rank
            length_s = task.end_s - task.start_s
            self.layouts[what, chunk] = _layout(self.placed, self.run, what, stage, length_s)
        return self.layouts[what, chunk]


def _later(span: Span, by_s: float) -> Span:
    return span._replace(start_s=span.start_s + by_s, end_s=span.end_s + by_s)


def _layout(placed: Placed, run: StepRun, what: str, stage: int, length_s: float) -> _Layout:
    mine = placed.stage_of_unit == stage
    ops = np.flatnonzero(mine[placed.units.op] & _in_task(placed, what))
    if run.gathered is None or what == WEIGHTS:
        took_s = run.op_s[ops] + run.wait_s[ops]
        start_s = np.cumsum(took_s) - took_s
        return _Layout(ops, start_s, start_s + run.op_s[ops], ())
    overlap = run.gathered.forward if what == FORWARD else run.gathered.backward
    return _beside_gathers(placed, run, ops, _cut(overlap, mine, length_s))


def _in_task(placed: Placed, what: str) -> Bools:
    graph = placed.local.graph
    if what == FORWARD:
        return graph.phase_mask(Phase.FORWARD)
    backward = graph.phase_mask(Phase.BACKWARD, Phase.RECOMPUTE)
    if placed.whole.recipe.schedule != "zero-bubble":
        return backward
    weights = weight_gradients(graph)
    return backward & (weights if what == WEIGHTS else ~weights)


def _cut(overlap: Overlap, mine: Bools, length_s: float) -> list[Span]:
    """The part of a pass through the whole model that is some units', at a given length."""
    computed = [span for span in overlap.spans if span.stream == COMPUTE]
    places = [i for i, span in enumerate(computed) if mine[span.number]]
    first, last = places[0], places[-1]
    begin_s = computed[first - 1].end_s if first else 0.0
    end_s = computed[last].end_s if last + 1 < len(computed) else overlap.end_s
    scale = length_s / (end_s - begin_s)
    here = [_later(span, -begin_s) for span in overlap.spans if mine[span.number]]
    return [s._replace(start_s=s.start_s * scale, end_s=s.end_s * scale) for s in here]


def _beside_gathers(placed: Placed, run: StepRun, ops: Ints, spans: Sequence[Span]) -> _Layout:
    """Operators inside the spans of their units."""
    unit = placed.units.op[ops]
    order, starts, ends = [], [], []
    for span in spans:
        here = ops[unit == span.number]
        if span.stream != COMPUTE or not len(here):
            continue
        took_s = run.op_s[here] + run.wait_s[here]
        scale = (span.end_s - span.start_s) / max(float(took_s.sum()), 1e-12)
        start_s = span.start_s + (np.cumsum(took_s) - took_s) * scale
        order.append(here)
        starts.append(start_s)
        ends.append(start_s + run.op_s[here] * scale)
    exchanges = [span for span in spans if span.stream == COMMUNICATION]
    return _Layout(np.concatenate(order), np.concatenate(starts), np.concatenate(ends), exchanges)


def _runs(values: Ints) -> list[tuple[int, int, int]]:
    """(value, first, last) of each run of equal values."""
    edges = np.flatnonzero(np.diff(values)) + 1
    firsts = [0, *edges.tolist()]
    lasts = [*(edges - 1).tolist(), len(values) - 1]
    return [(int(values[f]), f, last) for f, last in zip(firsts, lasts, strict=True)]
