"""What each pipeline rank holds in memory beyond its own graph: shards, buckets, microbatches."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from foretell.comm import Collective
from foretell.graph.graph import Bools, Floats, Ints, itemsize_of
from foretell.parallel.place import Placed
from foretell.parallel.schedule import BACKWARD, FORWARD, Moment, moments
from foretell.parallel.units import stage_graph
from foretell.workload import Workload

_MIB = 1024**2


@dataclass(frozen=True, kw_only=True, eq=False)
class Holding:
    """Multipliers and additions to the memory of a rank's graph."""

    passes: int = 1
    """Forward passes per step: from the second on, gradients of those before are there."""
    moments: tuple[Moment, ...] = (Moment(FORWARD, 0, (0,)), Moment(BACKWARD, 0, (0,)))
    """What the rank may be at, and which other microbatches it holds then."""
    op_chunk: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """Model chunk of each operator of the rank's graph; empty when there is one chunk."""
    parameter_share: float | Floats = 1.0
    """Of every parameter, or of each."""
    gradient_share: float = 1.0
    state_share: float | Floats = 1.0
    """Of the optimizer's state and master weights; one number, or one for each parameter."""
    gathered_bytes: float = 0.0
    """Whole parameters and gradients of the units that are gathered at the peak."""
    buffer_bytes: float = 0.0
    """Buckets and other buffers of collectives."""


ALONE = Holding()


def rank_workloads(placed: Placed) -> list[tuple[Workload, Holding]]:
    """Per pipeline rank what it runs and holds; one entry without a pipeline."""
    pp = placed.layout.pp
    if pp == 1:
        everything = np.ones(placed.units.count, dtype=np.bool_)
        return [(placed.local, _holding(placed, 0, everything))]
    found = []
    for rank in range(pp):
        mine = placed.stage_of_unit % pp == rank
        graph = stage_graph(placed.local.graph, placed.units, placed.stage_of_unit, mine)
        found.append((Workload(graph, placed.local.recipe), _holding(placed, rank, mine)))
    return found


def _holding(placed: Placed, rank: int, mine: Bools) -> Holding:
    recipe, layout = placed.whole.recipe, placed.layout
    here = placed.units.parameters_of(mine)
    owned = placed.owned_share[here]
    parameter_share = owned if placed.gathers else 1.0
    gathered_bytes = _gathered(placed, mine) if placed.gathers else 0.0
    if not recipe.training:
        return Holding(parameter_share=parameter_share, gathered_bytes=gathered_bytes)
    micro = placed.microbatches
    numel = placed.local.graph.parameters.numel[here]
    mean_share = float((owned * numel).sum() / max(numel.sum(), 1))
    return Holding(
        passes=micro,
        moments=moments(recipe.schedule, rank, layout.pp, recipe.virtual_stages, micro),
        op_chunk=(placed.stage_of_unit // layout.pp)[placed.units.op[mine[placed.units.op]]],
        parameter_share=parameter_share,
        gradient_share=0.0 if recipe.fp32_gradients else mean_share if recipe.zero >= 2 else 1.0,
        state_share=0.0 if recipe.offload_optimizer else owned if recipe.zero else 1.0,
        gathered_bytes=gathered_bytes,
        buffer_bytes=_buffers(placed, mine),
    )


def _gathered(placed: Placed, mine: Bools) -> float:
    """What is kept, the block at work and those fetched ahead, with the gradients of one unit."""
    recipe = placed.whole.recipe
    parameters = placed.local.graph.parameters
    itemsize = np.minimum(itemsize_of(parameters.dtype), max(2, recipe.compute_dtype.itemsize))
    sizes = np.where(mine, placed.units.parameter_sums(parameters.numel * itemsize), 0.0)
    root = float(sizes[0] + sizes[-1])
    largest = max(root, float(sizes.max(initial=0.0)))
    gradients = largest if recipe.training else 0.0
    ahead = 1 + (recipe.prefetch if recipe.overlap else 0)
    blocks = np.sort(sizes[1:-1])[::-1][:ahead]
    return root + float(blocks.sum()) + gradients


def _buffers(placed: Placed, mine: Bools) -> float:
    recipe, layout = placed.whole.recipe, placed.layout
    parameters = placed.local.graph.parameters
    here = placed.units.parameters_of(mine) & parameters.trainable
    numel = float(parameters.numel[here].sum())
    total = 0.0
    if recipe.fp32_gradients:
        total += 4 * numel
    elif layout.replicas > 1 and recipe.zero == 0:
        total += numel * recipe.parameter_itemsize
    elif layout.replicas > 1 and recipe.zero < 3:
        total += min(2 * recipe.bucket_mb * _MIB, numel * recipe.parameter_itemsize)
    messages = placed.messages
    gathers = [
        nbytes
        for collective, nbytes in zip(messages.collective, messages.nbytes, strict=True)
        if collective is Collective.ALL_GATHER
    ]
    return total + max(gathers, default=0.0)
