"""A step as a Chrome/Perfetto trace: open it in ui.perfetto.dev or chrome://tracing.

One process per distinct pipeline rank, with a track each for passes, operators, what replicas
exchange, what the ranks of a layer tell each other and what stages hand on.
"""

from __future__ import annotations

from typing import Any

from foretell.errors import InputError
from foretell.graph.ops import OpClass
from foretell.parallel import Event, Placed, StepRun, Track, rank_workloads, timeline
from foretell.predictors.memory import memory_timeline

_MOST_EVENTS = 200_000
_TRACKS = {
    Track.PASSES: "passes",
    Track.OPERATORS: "operators",
    Track.EXCHANGES: "communication between replicas",
    Track.MESSAGES: "communication inside layers",
    Track.TRANSFERS: "communication between stages",
}


def chrome_trace(placed: Placed, run: StepRun, device: str) -> dict[str, Any]:
    """Trace events of one step."""
    passes, count = placed.microbatches, len(placed.local.graph)
    if passes * len(run.stages) > _MOST_EVENTS:
        raise InputError(
            f"global_batch asks for {passes} passes a step, too many for a trace: "
            "give a larger batch or a smaller global_batch"
        )
    everything = passes * count <= _MOST_EVENTS
    shown = range(passes) if everything else (0, passes - 1)
    events = [
        {"name": kind, "ph": "M", "pid": rank, "tid": int(track), "args": {"name": name}}
        for rank in range(placed.layout.pp)
        for kind, track, name in (
            ("process_name", 0, f"stage {rank} ({device})" if placed.layout.pp > 1 else device),
            *(("thread_name", track, name) for track, name in _TRACKS.items()),
        )
    ]
    slices = _Slices(placed)
    for event in timeline(placed, run, shown):
        events += slices.of(event)
    about: dict[str, Any] = {"step_time_s": run.step_s, "passes": passes}
    if not everything:
        about["shown"] = f"operators of the first and the last of {passes} passes"
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


class _Slices:
    """Events of a step in the trace's words."""

    def __init__(self, placed: Placed) -> None:
        self.step = placed.local.step
        self.names, self.flops = self.step.op_name, self.step.op_flops().tolist()
        labels = [c.label for c in OpClass]
        self.classes = [labels[c] for c in self.step.op_class]
        blocks = placed.local.graph.meta.get("blocks", ())
        self.units = ("before blocks", *blocks, "after blocks")
        # What a pipeline rank holds depends on the microbatch as well.
        alone = placed.layout.pp == 1
        self.live = memory_timeline(*rank_workloads(placed)[0]).tolist() if alone else []

    def of(self, event: Event) -> list[dict[str, Any]]:
        """The slice of an event; an operator's with the memory that is in use."""
        rank, track, what, number, start_s, end_s, chunk = event
        found = {
            "name": what,
            "cat": what,
            "ph": "X",
            "pid": rank,
            "tid": int(track),
            "ts": start_s * 1e6,
            "dur": (end_s - start_s) * 1e6,
        }
        if track is Track.OPERATORS:
            module = self.step.modules[self.step.op_module[number]]
            found |= {"name": self.names[number], "cat": self.classes[number]}
            found["args"] = {"module": module, "flops": self.flops[number]}
            if self.live:
                live = {"bytes": self.live[number]}
                counter = {"name": "memory", "ph": "C", "pid": rank, "ts": found["ts"]}
                return [found, {**counter, "args": live}]
        elif track in (Track.PASSES, Track.TRANSFERS) and number >= 0:
            found["name"] = f"{what} {number}" + (f" chunk {chunk}" if chunk else "")
        elif track is Track.EXCHANGES and number >= 0:
            named = what in ("gather", "reduce")
            found["name"] = f"{what} {self.units[number] if named else number}"
        return [found]
