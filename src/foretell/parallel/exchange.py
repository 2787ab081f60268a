"""Data parallelism inside a step: parameters gathered, gradients reduced, beside compute."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from foretell.comm import Collective
from foretell.graph.graph import Bools, Floats, Ints, itemsize_of
from foretell.graph.ops import Role
from foretell.parallel.shard import expert_parameters
from foretell.parallel.streams import (
    COMMUNICATION,
    Overlap,
    alone,
    bucketed_backward,
    gathered_pass,
)
from foretell.parallel.work import Work

_FIRST_BUCKET_BYTES = 1024**2
_MIB = 1024**2


class Gathered(NamedTuple):
    """One pass each way through the whole model, with gathers and scatters beside it (zero=3)."""

    forward: Overlap
    backward: Overlap

    def communication_s(self, units: Bools) -> float:
        """How long the links of a rank with some of the units are busy with them."""
        return sum(
            span.end_s - span.start_s
            for span in (*self.forward.spans, *self.backward.spans)
            if span.stream == COMMUNICATION and units[span.number]
        )


def gathered_passes(work: Work, forward: Floats, backward: Floats) -> Gathered:
    """Parameter gathers and gradient scatters beside units of these times."""
    nbytes, root = gathered_bytes(work)
    group = work.groups["shard"]
    gather = work.collective_s(Collective.ALL_GATHER, nbytes, group)
    scatter = work.collective_s(Collective.REDUCE_SCATTER, nbytes, group)
    scatter = scatter + work.collective_s(
        Collective.ALL_REDUCE, nbytes / work.layout.shard, work.groups["copies"]
    )
    settings: dict[str, Any] = {
        "prefetch": work.recipe.prefetch,
        # On a CPU there are no streams: gathers and scatters return when they are done.
        "overlap": work.recipe.overlap and work.device.vendor != "cpu",
        "contention": work.times.contention,
    }
    units = range(len(nbytes))
    nothing = np.zeros(len(nbytes))
    copied = nbytes / work.times.copy_bytes_per_s
    packed = copied * (1 + 1 / work.layout.shard)  # the own shard in, everything out
    there = gathered_pass(
        units, (forward + packed).tolist(), gather.tolist(), nothing.tolist(), **settings
    )
    if not work.recipe.training:
        return Gathered(there, alone(0.0))
    kept = root if work.recipe.reshard else np.ones_like(root)
    back = gathered_pass(
        units[::-1],
        (backward + np.where(kept, 0.0, packed) + copied)[::-1].tolist(),
        np.where(kept, 0.0, gather)[::-1].tolist(),
        scatter[::-1].tolist(),
        **settings,
    )
    return Gathered(there, back)


def gathered_bytes(work: Work) -> tuple[Floats, Bools]:
    """Bytes gathered before each unit, and which units are not given up after forward.

    What lies outside the blocks is one group: gathered first, kept, and reduced last.
    """
    nbytes = _unit_parameter_bytes(work)
    root = np.zeros(len(nbytes), dtype=np.bool_)
    root[[0, -1]] = True
    if work.layout.pp == 1:
        nbytes[0] += nbytes[-1]
        nbytes[-1] = 0.0
    return nbytes, root


def _unit_parameter_bytes(work: Work) -> Floats:
    """Bytes of each unit's parameters as they are gathered: in the compute format."""
    parameters = work.graph.parameters
    itemsize = np.minimum(itemsize_of(parameters.dtype), work.recipe.compute_dtype.itemsize)
    itemsize = np.maximum(itemsize, 2) if work.recipe.precision == "fp8" else itemsize
    return work.units.parameter_sums(parameters.numel * itemsize)


def gradient_exchange(work: Work, on_rank: Bools) -> Overlap:
    """Averaging gradients beside the backward pass of one rank."""
    recipe = work.recipe
    nothing = alone(0.0)
    if not recipe.training or work.layout.replicas == 1 or work.placed.gathers:
        return nothing
    total_s = work.total_s
    ops = on_rank[work.units.op] & work.backward
    backward_s = float(total_s[ops].sum())
    clock = np.cumsum(np.where(ops, total_s, 0.0))
    clock = clock - (clock[np.argmax(ops)] - total_s[np.argmax(ops)] if ops.any() else 0.0)
    storages = work.graph.storages
    made = (storages.role == Role.GRADIENT) & (storages.alloc_op >= 0)
    made &= ops[np.maximum(storages.alloc_op, 0)]
    order = np.argsort(storages.alloc_op[made], kind="stable")
    at = storages.alloc_op[made][order]
    nbytes = work.graph.storage_bytes[made][order]
    if not len(at):
        return nothing
    if recipe.fp32_gradients:
        itemsize = recipe.parameter_itemsize
        nbytes = nbytes * 4 / itemsize
    experts = _expert_share(work, nbytes.sum())
    number = buckets(nbytes, recipe.bucket_mb * _MIB)
    sizes = np.bincount(number, weights=nbytes).astype(np.float64)
    ready = np.zeros(len(sizes))
    np.maximum.at(ready, number, clock[at])
    seconds = _exchange_s(work, sizes * (1 - experts), "dp")
    if experts and work.layout.replicas > work.layout.ep:
        seconds = seconds + _exchange_s(work, sizes * experts, "experts")
    copied = np.cumsum(sizes) / work.times.copy_bytes_per_s
    played = bucketed_backward(
        backward_s + copied[-1],
        ready + copied,
        seconds,
        overlap=recipe.overlap,
        contention=work.times.contention,
    )
    # Into the buckets on the way, and out of them once the last one is back.
    return dataclasses.replace(
        played, end_s=played.end_s + copied[-1], compute_s=played.compute_s - copied[-1]
    )


def _exchange_s(work: Work, nbytes: Floats, axis: str) -> Floats:
    if work.recipe.zero:
        group = work.groups["shard"] if axis == "dp" else work.groups[axis]
        seconds = work.collective_s(Collective.REDUCE_SCATTER, nbytes, group)
        if axis == "dp":
            seconds = seconds + work.collective_s(
                Collective.ALL_REDUCE, nbytes / work.layout.shard, work.groups["copies"]
            )
        return np.asarray(seconds)
    return np.asarray(work.collective_s(Collective.ALL_REDUCE, nbytes, work.groups[axis]))


def _expert_share(work: Work, total: float) -> float:
    """Share of gradient bytes that belong to experts, which fewer ranks hold in common."""
    if work.layout.ep == 1 or not total:
        return 0.0
    numel = work.graph.parameters.numel
    return float(numel[expert_parameters(work.placed.whole.graph)].sum() / numel.sum())


def buckets(nbytes: Floats, cap_bytes: float) -> Ints:
    """Bucket of each gradient in order: closed when full, a small one first so that it is soon."""
    number = np.zeros(len(nbytes), dtype=np.int64)
    current, filled, limit = 0, 0.0, min(_FIRST_BUCKET_BYTES, cap_bytes)
    for i, size in enumerate(nbytes.tolist()):
        if filled >= limit:
            current, filled, limit = current + 1, 0.0, cap_bytes
        number[i] = current
        filled += size
    return number
