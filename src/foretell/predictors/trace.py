"""A step as a Chrome/Perfetto trace: open it in ui.perfetto.dev or chrome://tracing.

One process per distinct pipeline rank. Without a pipeline it shows every operator of the first
pass; with one, what the rank does with each microbatch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from foretell.graph.graph import Floats, Graph
from foretell.graph.ops import OpClass, Phase
from foretell.parallel import Placed, StepRun
from foretell.predictors.memory import memory_timeline

_TASKS = {"F": "forward", "B": "backward", "W": "weight gradients"}


def chrome_trace(placed: Placed, run: StepRun, device: str) -> dict[str, Any]:
    """Trace events of one step."""
    events = _one_rank(placed, run, device) if placed.layout.pp == 1 else _pipeline(run, device)
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _one_rank(placed: Placed, run: StepRun, device: str) -> list[dict[str, Any]]:
    """One slice per operator, its phase above it, communication and memory below."""
    step = placed.local.step
    waits = _waits(placed, run, step)
    starts_us = (np.cumsum(run.op_s + waits) - run.op_s - waits) * 1e6
    ends_us = starts_us + run.op_s * 1e6
    events = [_meta("process_name", 0, 0, device)]
    events += [
        _meta("thread_name", 0, thread, name)
        for thread, name in enumerate(("phases", "operators", "communication"))
    ]
    for phase, first, last in _stretches(step.op_phase):
        length = ends_us[last] - starts_us[first]
        events.append(_slice(Phase(phase).label, "phase", 0, 0, starts_us[first], length))
    events += _operators(step, starts_us, run.op_s)
    events += _messages(placed, run, ends_us)
    for start, live in zip(starts_us, memory_timeline(placed.local), strict=True):
        counter = {"name": "memory", "ph": "C", "pid": 0, "ts": float(start)}
        events.append({**counter, "args": {"bytes": float(live)}})
    return events


def _waits(placed: Placed, run: StepRun, step: Graph) -> Floats:
    """Seconds compute stands still after each operator, for messages inside the pass."""
    waits = np.zeros(len(step))
    blocking = placed.messages.hidden_behind < 0
    np.add.at(waits, placed.messages.op[blocking], run.message_s[blocking])
    return waits


def _operators(step: Graph, starts_us: Floats, op_s: Floats) -> list[dict[str, Any]]:
    labels = [c.label for c in OpClass]
    classes, flops = step.op_class, step.op_flops()
    return [
        {
            **_slice(name, labels[classes[i]], 0, 1, starts_us[i], op_s[i] * 1e6),
            "args": {"module": step.modules[step.op_module[i]], "flops": float(flops[i])},
        }
        for i, name in enumerate(step.op_name)
    ]


def _messages(placed: Placed, run: StepRun, ends_us: Floats) -> list[dict[str, Any]]:
    """Messages inside the pass, then the exchange of gradients beside its backward part."""
    events = []
    free_us = 0.0
    for op, collective, axis, seconds in zip(
        placed.messages.op.tolist(),
        placed.messages.collective,
        placed.messages.axis,
        run.message_s.tolist(),
        strict=True,
    ):
        start = max(float(ends_us[op]), free_us)
        free_us = start + seconds * 1e6
        events.append(_slice(f"{axis} {collective.value}", axis, 0, 2, start, seconds * 1e6))
    phase = placed.local.graph.op_phase
    behind = np.flatnonzero((phase == Phase.BACKWARD) | (phase == Phase.RECOMPUTE))
    begin_us = float(ends_us[behind[0] - 1]) if len(behind) and behind[0] else 0.0
    for span in run.tails[0].spans:
        start, length = begin_us + span.start_s * 1e6, (span.end_s - span.start_s) * 1e6
        events.append(_slice(span.name, "dp", 0, 2, start, length))
    return events


def _pipeline(run: StepRun, device: str) -> list[dict[str, Any]]:
    events = []
    ranks = len(run.pipeline.end_s)
    for rank in range(ranks):
        events.append(_meta("process_name", rank, 0, f"stage {rank} ({device})"))
        events.append(_meta("thread_name", rank, 0, "compute"))
        events.append(_meta("thread_name", rank, 1, "gradient exchange"))
    for rank, (what, chunk, micro), start_s, end_s in run.pipeline.spans:
        name = f"{_TASKS[what]} {micro}" + (f" chunk {chunk}" if chunk else "")
        length = (end_s - start_s) * 1e6
        events.append(_slice(name, _TASKS[what], rank, 0, start_s * 1e6, length))
    for rank, tail in enumerate(run.tails):
        if tail.communication_s:
            start = run.pipeline.end_s[rank] - tail.compute_s
            for span in tail.spans:
                at, length = (start + span.start_s) * 1e6, (span.end_s - span.start_s) * 1e6
                events.append(_slice(span.name, "dp", rank, 1, at, length))
    return events


def _stretches(values: Any) -> list[tuple[int, int, int]]:
    """(value, first, last) of each run of equal values."""
    if not len(values):
        return []
    edges = np.flatnonzero(np.diff(values)) + 1
    firsts = [0, *edges.tolist()]
    lasts = [*(edges - 1).tolist(), len(values) - 1]
    return [(int(values[f]), f, last) for f, last in zip(firsts, lasts, strict=True)]


def _slice(
    name: str, category: str, process: int, thread: int, start_us: float, length_us: float
) -> dict[str, Any]:
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "pid": process,
        "tid": thread,
        "ts": float(start_us),
        "dur": float(length_us),
    }


def _meta(kind: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
