"""What each pipeline rank holds in memory beyond its own graph: shards, buckets, microbatches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.comm import Collective
from foretell.graph.graph import Bools, itemsize_of
from foretell.parallel.place import Placed
from foretell.parallel.schedule import most_in_flight
from foretell.parallel.units import stage_graph
from foretell.workload import Workload

_MIB = 1024**2


@dataclass(frozen=True, kw_only=True)
class Holding:
    """Multipliers and additions to the memory of a rank's graph."""

    passes: int = 1
    """Forward passes per step: from the second on, gradients of those before are there."""
    in_flight: float = 1.0
    """Microbatches whose saved activations are held at once."""
    parameter_share: float = 1.0
    gradient_share: float = 1.0
    state_share: float = 1.0
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
        graph = stage_graph(placed.local.graph, placed.units, mine)
        found.append((Workload(graph, placed.local.recipe), _holding(placed, rank, mine)))
    return found


def _holding(placed: Placed, rank: int, mine: Bools) -> Holding:
    recipe, layout = placed.whole.recipe, placed.layout
    micro = placed.microbatches
    if not recipe.training:
        return Holding(gathered_bytes=_gathered(placed, mine) if recipe.zero == 3 else 0.0)
    share = 1 / layout.shard
    return Holding(
        passes=micro,
        in_flight=most_in_flight(recipe.schedule, rank, layout.pp, recipe.virtual_stages, micro),
        parameter_share=share if recipe.zero == 3 else 1.0,
        gradient_share=0.0 if recipe.fp32_gradients else share if recipe.zero >= 2 else 1.0,
        state_share=0.0 if recipe.offload_optimizer else share if recipe.zero else 1.0,
        gathered_bytes=_gathered(placed, mine) if recipe.zero >= 2 else 0.0,
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
    if recipe.zero == 2:
        return gradients
    ahead = 1 + (recipe.prefetch if recipe.overlap else 0)
    blocks = np.sort(sizes[1:-1])[::-1][:ahead]
    return root + float(blocks.sum()) + gradients


def _buffers(placed: Placed, mine: Bools) -> float:
    recipe, layout = placed.whole.recipe, placed.layout
    parameters = placed.local.graph.parameters
    here = mine[placed.units.parameter] & parameters.trainable
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
