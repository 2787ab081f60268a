"""Times of the single operators of a step, from PyTorch's profiler."""

from __future__ import annotations

from typing import Any

from torch.profiler import ProfilerActivity, profile, supported_activities

from foretell.measure.steps import Step

_STEPS = 3


def operator_rows(step: Step) -> list[dict[str, Any]]:
    """Per operator and input shapes: calls per step and seconds per call, longest first."""
    activities = supported_activities() & {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    with profile(activities=list(activities), record_shapes=True) as profiler:
        for _ in range(_STEPS):
            step(lambda: None)
    rows = []
    for event in profiler.key_averages(group_by_input_shape=True):
        total_us = getattr(event, "self_device_time_total", 0) or event.self_cpu_time_total
        if event.key.startswith("aten::") and total_us > 0:
            rows.append(
                {
                    "operator": event.key.removeprefix("aten::"),
                    "shapes": event.input_shapes,
                    "calls": event.count / _STEPS,
                    "seconds": total_us / 1e6 / event.count,
                }
            )
    return sorted(rows, key=lambda row: -row["seconds"] * row["calls"])
