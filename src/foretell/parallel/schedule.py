"""Pipeline schedules: in which order each rank runs microbatches, and how long the whole takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

FORWARD, BACKWARD, WEIGHTS = "F", "B", "W"
_NEVER = float("inf")
Task = tuple[str, int, int]
"""(what, chunk of this rank, microbatch)"""
_Transfer = tuple[str, int, int]
"""(what it is needed for, by which stage, microbatch)"""

# One batched call sends one way and receives the other, and compute waits for all of it.
_WAITS_WHEN_TURNING = ("gpipe", "1f1b")

# Uneven stages take some rounds of pp microbatches to fall into step: the rest is extrapolated.
_ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class StageTimes:
    """Seconds of one model chunk (a stage, or one of several on a rank) per microbatch."""

    forward_s: float
    backward_s: float
    """Gradients of activations and weights together."""
    weights_s: float
    """The part of it that makes weight gradients, which may wait."""
    send_s: float
    """Activations to the next chunk (gradients come back the same way)."""


class Moment(NamedTuple):
    """A task and the microbatches whose activations a rank holds besides the one at work."""

    what: str
    chunk: int
    beside: tuple[int, ...]
    """Per chunk of the rank."""


class TaskSpan(NamedTuple):
    """One task on one rank."""

    rank: int
    task: Task
    start_s: float
    end_s: float


@dataclass(frozen=True, kw_only=True)
class Pipelined:
    """How a schedule went."""

    end_s: tuple[float, ...]
    """When each rank is done."""
    busy_s: tuple[float, ...]
    spans: tuple[TaskSpan, ...]

    @property
    def length_s(self) -> float:
        """When the last rank is done."""
        return max(self.end_s)


def run_schedule(
    schedule: str,
    stages: Sequence[StageTimes],
    pp: int,
    micro: int,
    *,
    asked_for: bool = False,
    whole: bool = False,
) -> Pipelined:
    """Simulate `micro` microbatches through len(stages) chunks on `pp` ranks.

    `asked_for`: transfers begin when their receiver waits, as gloo's do. On GPUs hosts run ahead
    and ask early. `whole`: every microbatch is played and has its spans, none is extrapolated.
    """
    few = _ROUNDS * pp
    if few < micro and not whole:
        longer, shorter = (_simulate(schedule, stages, pp, n, asked_for) for n in (few, few - pp))
        period = (longer.length_s - shorter.length_s) / pp
        period = max(period, *_work_s(stages, pp))  # no rank is faster than its own work
        rest = micro - few
        work = _work_s(stages, pp)
        return Pipelined(
            end_s=tuple(e + rest * period for e in longer.end_s),
            busy_s=tuple(b + rest * w for b, w in zip(longer.busy_s, work, strict=True)),
            spans=longer.spans,
        )
    return _simulate(schedule, stages, pp, micro, asked_for)


def _work_s(stages: Sequence[StageTimes], pp: int) -> list[float]:
    """Seconds of one microbatch on each rank."""
    return [sum(s.forward_s + s.backward_s for s in stages[rank::pp]) for rank in range(pp)]


def task_order(schedule: str, rank: int, pp: int, virtual: int, micro: int) -> list[Task]:
    """What a rank does, in order."""
    if schedule == "gpipe":
        return [(FORWARD, 0, k) for k in range(micro)] + [(BACKWARD, 0, k) for k in range(micro)]
    if schedule == "interleaved":
        return _interleaved(rank, pp, virtual, micro)
    warm = min(pp - rank - 1, micro)
    order: list[Task] = [(FORWARD, 0, k) for k in range(warm)]
    for k in range(micro - warm):
        order += [(FORWARD, 0, warm + k), (BACKWARD, 0, k)]
    order += [(BACKWARD, 0, k) for k in range(micro - warm, micro)]
    return order if schedule == "1f1b" else _with_weights(order, rank, micro)


def moments(schedule: str, rank: int, pp: int, virtual: int, micro: int) -> tuple[Moment, ...]:
    """The distinct moments of a step on one rank, in terms of what it holds."""
    rounds = micro if schedule == "gpipe" else min(micro, _ROUNDS * pp)
    held = [0] * virtual
    found: dict[Moment, None] = {}
    for what, chunk, _ in task_order(schedule, rank, pp, virtual, rounds):
        if what == BACKWARD:
            held[chunk] -= 1
        if what != WEIGHTS:
            found[Moment(what, chunk, tuple(held))] = None
        if what == FORWARD:
            held[chunk] += 1
    return tuple(found)


def _interleaved(rank: int, pp: int, virtual: int, micro: int) -> list[Task]:
    total = micro * virtual
    warm = min((pp - rank - 1) * 2 + (virtual - 1) * pp, total)

    def chunk_and_micro(step: int, forward: bool) -> tuple[int, int]:
        group, within = divmod(step, pp * virtual)
        chunk = within // pp
        return (chunk if forward else virtual - 1 - chunk), group * pp + within % pp

    order: list[Task] = [(FORWARD, *chunk_and_micro(k, True)) for k in range(warm)]
    for k in range(total - warm):
        order.append((FORWARD, *chunk_and_micro(warm + k, True)))
        order.append((BACKWARD, *chunk_and_micro(k, False)))
    order += [(BACKWARD, *chunk_and_micro(k, False)) for k in range(total - warm, total)]
    return order


def _with_weights(order: list[Task], rank: int, micro: int) -> list[Task]:
    """Zero bubble (H1): weight gradients wait `rank` microbatches and fill the cool-down."""
    result: list[Task] = []
    done = 0
    for task in order:
        result.append(task)
        if task[0] == BACKWARD and task[2] >= rank:
            result.append((WEIGHTS, 0, done))
            done += 1
    result += [(WEIGHTS, 0, k) for k in range(done, micro)]
    return result


class _Links:
    """Activations and gradients on their way, one after another on each link.

    Asked for: a transfer begins no earlier than its receiver waits for it, and the request queues
    behind what the receiver itself is sending the same way.
    """

    def __init__(self, stages: Sequence[StageTimes], asked_for: bool) -> None:
        self.stages, self.asked_for = stages, asked_for
        self.offered: dict[_Transfer, float] = {}
        self.asked: dict[_Transfer, float] = {}
        self.arrived: dict[_Transfer, float] = {}
        self.let_go: dict[_Transfer, float] = {}
        """When the sender is done with it."""
        self.free_s: dict[tuple[str, int], float] = {}

    def offer(self, transfer: _Transfer, at_s: float) -> None:
        self.offered[transfer] = at_s
        self._begin(transfer)

    def ask(self, transfer: _Transfer, at_s: float) -> None:
        if self.asked_for and transfer not in self.asked:
            what, to, _ = transfer
            back = (BACKWARD, to - 1) if what == FORWARD else (FORWARD, to + 1)
            self.asked[transfer] = max(at_s, self.free_s.get(back, 0.0))
            self._begin(transfer)

    def arrival_s(self, transfer: _Transfer) -> float:
        """When it is there; never, as long as nobody has sent it."""
        what, to, _ = transfer
        if what == WEIGHTS or (what == FORWARD and to == 0):
            return 0.0
        return self.arrived.get(transfer, _NEVER)

    def _begin(self, transfer: _Transfer) -> None:
        if transfer not in self.offered or (self.asked_for and transfer not in self.asked):
            return
        what, to, _ = transfer
        send_s = self.stages[to - 1 if what == FORWARD else to].send_s
        start = max(
            self.offered[transfer], self.asked.get(transfer, 0.0), self.free_s.get((what, to), 0.0)
        )
        self.arrived[transfer] = self.free_s[what, to] = start + send_s
        # A socket takes all that was asked for at once; a GPU sends as long as it takes.
        self.let_go[transfer] = start if self.asked_for else start + send_s


def _simulate(
    schedule: str, stages: Sequence[StageTimes], pp: int, micro: int, asked_for: bool
) -> Pipelined:
    virtual = len(stages) // pp
    orders = [task_order(schedule, rank, pp, virtual, micro) for rank in range(pp)]
    links = _Links(stages, asked_for)
    split = schedule == "zero-bubble"
    turning = schedule in _WAITS_WHEN_TURNING
    clock, busy, position = [0.0] * pp, [0.0] * pp, [0] * pp
    unsent: list[_Transfer | None] = [None] * pp
    spans: list[TaskSpan] = []
    waiting = list(range(pp))
    last = len(stages) - 1
    while waiting:
        before = len(spans)
        for rank in waiting:
            order, at = orders[rank], position[rank]
            while at < len(order):
                what, chunk, k = order[at]
                stage = chunk * pp + rank
                links.ask((what, stage, k), clock[rank])
                start = max(clock[rank], links.arrival_s((what, stage, k)))
                held = unsent[rank]
                if held is not None:
                    start = max(start, links.let_go.get(held, _NEVER))
                if start == _NEVER:
                    break
                end = clock[rank] = start + _task_s(what, stages[stage], split)
                busy[rank] += end - start
                sent: _Transfer | None = None
                if what == FORWARD and stage == last:
                    links.arrived[BACKWARD, stage, k] = end
                elif what != WEIGHTS and (what == FORWARD or stage > 0):
                    sent = (what, stage + 1 if what == FORWARD else stage - 1, k)
                    links.offer(sent, end)
                at += 1
                turns = turning and at < len(order) and order[at][0] != what
                unsent[rank] = sent if turns else None
                spans.append(TaskSpan(rank, (what, chunk, k), start, end))
            position[rank] = at
        waiting = [r for r in waiting if position[r] < len(orders[r])]
        if waiting and len(spans) == before:
            raise AssertionError(f"schedule {schedule} waits for itself")
    return Pipelined(end_s=tuple(clock), busy_s=tuple(busy), spans=tuple(spans))


def _task_s(what: str, times: StageTimes, split: bool) -> float:
    if what == FORWARD:
        return times.forward_s
    if what == WEIGHTS:
        return times.weights_s
    return times.backward_s - (times.weights_s if split else 0.0)
