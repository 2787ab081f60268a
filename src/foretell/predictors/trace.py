"""A step as a Chrome/Perfetto trace: open it in ui.perfetto.dev or chrome://tracing."""

from __future__ import annotations

from typing import Any

import numpy as np

from foretell.graph.graph import Floats
from foretell.graph.ops import OpClass, Phase
from foretell.predictors.memory import memory_timeline
from foretell.workload import Workload


def chrome_trace(workload: Workload, op_s: Floats, device: str) -> dict[str, Any]:
    """Trace events of one step: one slice per operator, its phase above it, memory below."""
    step = workload.step
    ends_us = np.cumsum(op_s) * 1e6
    starts_us = ends_us - op_s * 1e6
    labels = [c.label for c in OpClass]
    classes = step.op_class
    flops = step.op_flops()
    events: list[dict[str, Any]] = [
        _meta("process_name", 0, device),
        _meta("thread_name", 0, "phases"),
        _meta("thread_name", 1, "operators"),
    ]
    for phase, first, last in _stretches(step.op_phase):
        events.append(
            _slice(
                Phase(phase).label, "phase", 0, starts_us[first], ends_us[last] - starts_us[first]
            )
        )
    for i, name in enumerate(step.op_name):
        arguments = {"module": step.modules[step.op_module[i]], "flops": float(flops[i])}
        event = _slice(name, labels[classes[i]], 1, starts_us[i], op_s[i] * 1e6)
        events.append({**event, "args": arguments})
    for start, live in zip(starts_us, memory_timeline(workload), strict=True):
        events.append(
            {
                "name": "memory",
                "ph": "C",
                "pid": 0,
                "ts": float(start),
                "args": {"bytes": float(live)},
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _stretches(values: Any) -> list[tuple[int, int, int]]:
    """(value, first, last) of each run of equal values."""
    if not len(values):
        return []
    edges = np.flatnonzero(np.diff(values)) + 1
    firsts = [0, *edges.tolist()]
    lasts = [*(edges - 1).tolist(), len(values) - 1]
    return [(int(values[f]), f, last) for f, last in zip(firsts, lasts, strict=True)]


def _slice(
    name: str, category: str, thread: int, start_us: float, length_us: float
) -> dict[str, Any]:
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "pid": 0,
        "tid": thread,
        "ts": float(start_us),
        "dur": float(length_us),
    }


def _meta(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": 0, "tid": thread, "args": {"name": name}}
