"""A parallel plan in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from foretell.graph.ops import Phase
from foretell.parallel.place import Placed
from foretell.parallel.step import StepRun
from foretell.parallel.tensor import Split

_LITTLE_SPLIT = 0.8
_UNEVEN = 0.15
_ZERO = {1: "optimizer state", 2: "optimizer state and gradients", 3: "everything"}


def describe(placed: Placed) -> str:
    """The plan in one line; empty on one device."""
    layout, recipe = placed.layout, placed.whole.recipe
    if layout.world == 1 and placed.microbatches == 1:
        return ""
    parts = [f"dp={layout.dp}"] if layout.dp > 1 else []
    for name in ("tp", "cp", "ep"):
        if getattr(layout, name) > 1:
            parts.append(f"{name}={getattr(layout, name)}")
    if recipe.sp:
        parts.append("sp")
    if layout.pp > 1:
        chunks = f" x {recipe.virtual_stages} chunks" if recipe.virtual_stages > 1 else ""
        parts.append(f"pp={layout.pp}{chunks} ({recipe.schedule})")
    if recipe.zero and layout.replicas > 1:
        parts.append(f"zero={recipe.zero} ({_ZERO[recipe.zero]} over {layout.shard})")
    if placed.microbatches > 1:
        parts.append(f"{placed.microbatches} microbatches of {recipe.batch}")
    if recipe.offload_optimizer:
        parts.append("optimizer on the host")
    return ", ".join(parts)


def plan_notes(placed: Placed, run: StepRun) -> list[str]:
    """What a reader of the plan should know."""
    layout, notes = placed.layout, []
    if layout.tp > 1:
        share = _split_share(placed)
        if share < _LITTLE_SPLIT:
            notes.append(
                f"tp={layout.tp} splits {share:.0%} of the forward FLOPs; the rest runs whole on "
                "every rank"
            )
    if placed.whole.recipe.zero and layout.replicas == 1:
        notes.append(
            f"zero={placed.whole.recipe.zero} shares nothing out: there is one data-parallel rank"
        )
    if layout.pp > 1 and placed.microbatches < layout.pp:
        plural = "es" if placed.microbatches > 1 else ""
        notes.append(
            f"{placed.microbatches} microbatch{plural} cannot fill {layout.pp} pipeline stages: "
            "give a larger global_batch"
        )
    return notes + _balance_notes(run.pipeline.busy_s)


def _balance_notes(busy_s: Sequence[float]) -> list[str]:
    """Whether one pipeline stage holds the others up."""
    longest = int(np.argmax(busy_s))
    excess = busy_s[longest] / max(float(np.mean(busy_s)), 1e-12) - 1
    if excess <= _UNEVEN:
        return []
    return [
        f"stage {longest} has {excess:.0%} more work than the mean of the {len(busy_s)} pipeline "
        "stages: the others wait for it"
    ]


def _split_share(placed: Placed) -> float:
    graph = placed.whole.graph
    flops = graph.at(1).op_flops()
    forward = graph.op_phase == Phase.FORWARD
    split = forward & (placed.plan.op_split != Split.WHOLE)
    return float(flops[split].sum() / max(flops[forward].sum(), 1.0))
