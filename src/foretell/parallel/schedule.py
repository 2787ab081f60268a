"""Pipeline schedules: in which order each rank runs microbatches, and how long the whole takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from foretell.errors import InputError

FORWARD, BACKWARD, WEIGHTS = "F", "B", "W"
_NEVER = float("inf")
Task = tuple[str, int, int]
"""(what, chunk of this rank, microbatch)"""

# One batched call sends one way and receives the other, and compute waits for all of it.
_WAITS_WHEN_TURNING = ("gpipe", "1f1b")

# From the second round of microbatches on, a step repeats itself: the rest is extrapolated.
_ROUNDS = 2


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


def run_schedule(schedule: str, stages: Sequence[StageTimes], pp: int, micro: int) -> Pipelined:
    """Simulate `micro` microbatches through len(stages) chunks on `pp` ranks."""
    virtual = len(stages) // pp
    if virtual > 1 and micro % pp:
        raise InputError(
            f"schedule=interleaved deals microbatches out in rounds of pp={pp}, and "
            f"{micro} do not divide: change global_batch or batch"
        )
    few = _ROUNDS * pp
    if few < micro:
        fewer = few - (pp if virtual > 1 else 1)
        longer, shorter = (_simulate(schedule, stages, pp, n) for n in (few, fewer))
        period = (longer.length_s - shorter.length_s) / (few - fewer)
        rest = micro - few
        work = [
            sum(stages[c].forward_s + stages[c].backward_s for c in range(rank, len(stages), pp))
            for rank in range(pp)
        ]
        return Pipelined(
            end_s=tuple(e + rest * period for e in longer.end_s),
            busy_s=tuple(b + rest * w for b, w in zip(longer.busy_s, work, strict=True)),
            spans=longer.spans,
        )
    return _simulate(schedule, stages, pp, micro)


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
    rounds = micro if schedule == "gpipe" else min(micro, 2 * _ROUNDS * pp)
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


def _simulate(schedule: str, stages: Sequence[StageTimes], pp: int, micro: int) -> Pipelined:
    virtual = len(stages) // pp
    orders = [task_order(schedule, rank, pp, virtual, micro) for rank in range(pp)]
    arrived: list[list[float]] = [[_NEVER] * micro for _ in stages]
    gradient_arrived: list[list[float]] = [[_NEVER] * micro for _ in stages]
    arrived[0] = [0.0] * micro
    sent = {(what, s): 0.0 for what in (FORWARD, BACKWARD) for s in range(len(stages))}
    split = schedule == "zero-bubble"
    turning = schedule in _WAITS_WHEN_TURNING
    clock, busy, position = [0.0] * pp, [0.0] * pp, [0] * pp
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
                times = stages[stage]
                if what == FORWARD:
                    length, ready = times.forward_s, arrived[stage][k]
                elif what == BACKWARD:
                    length = times.backward_s - (times.weights_s if split else 0.0)
                    ready = gradient_arrived[stage][k]
                else:
                    length, ready = times.weights_s, 0.0
                if ready == _NEVER:
                    break
                start = max(clock[rank], ready)
                end = clock[rank] = start + length
                busy[rank] += length
                if what != WEIGHTS:
                    to = stage + 1 if what == FORWARD else stage - 1
                    if 0 <= to <= last:
                        send_s = times.send_s if what == FORWARD else stages[to].send_s
                        done = sent[what, stage] = max(end, sent[what, stage]) + send_s
                        (arrived if what == FORWARD else gradient_arrived)[to][k] = done
                        if turning and at + 1 < len(order) and order[at + 1][0] != what:
                            clock[rank] = done
                    elif what == FORWARD:
                        gradient_arrived[stage][k] = end
                spans.append(TaskSpan(rank, (what, chunk, k), start, end))
                at += 1
            position[rank] = at
        waiting = [r for r in waiting if position[r] < len(orders[r])]
        if waiting and len(spans) == before:
            raise AssertionError(f"schedule {schedule} waits for itself")
    return Pipelined(end_s=tuple(clock), busy_s=tuple(busy), spans=tuple(spans))
