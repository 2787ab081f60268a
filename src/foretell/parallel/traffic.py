"""Bytes a step sends: by axis, between stages, and off the node."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from foretell.comm import Collective
from foretell.graph.graph import Bools, itemsize_of
from foretell.parallel.exchange import gathered_bytes
from foretell.parallel.work import Work


@dataclass
class Traffic:
    """Bytes a device sends per step, averaged over pipeline stages."""

    by_axis: dict[str, float] = field(default_factory=dict)
    network_bytes: float = 0.0
    """The part of it that leaves the node."""

    def add(self, axis: str, nbytes: float, network_share: float) -> None:
        """Count what one axis sends."""
        if nbytes:
            self.by_axis[axis] = self.by_axis.get(axis, 0.0) + nbytes
            self.network_bytes += nbytes * network_share


def traffic_of(work: Work) -> Traffic:
    """Everything a device sends in one step."""
    found = Traffic()
    layout, messages = work.layout, work.placed.messages
    for axis, collective, nbytes in zip(
        messages.axis, messages.collective, messages.nbytes, strict=True
    ):
        sent = work.sent_bytes(collective, nbytes, work.groups[axis].size)
        found.add(axis, work.micro * sent / layout.pp, _network_share(work, axis))
    if work.recipe.training and layout.replicas > 1:
        _add_gradients(found, work)
    if layout.pp > 1:
        both = 2 if work.recipe.training else 1
        nbytes = both * work.micro * sum(crossing_bytes(work)[:-1]) / layout.pp
        gpus = min(g.gpus_per_node for g in work.placed.cluster.groups)
        found.add("pp", nbytes, min(1.0, layout.stage_stride / gpus))
    return found


def crossing_bytes(work: Work) -> list[float]:
    """Activations that leave each chunk for the ones after it."""
    graph, forward = work.graph, work.forward
    op_stage = work.placed.stage_of_unit[work.units.op]
    edges = forward[graph.edge_src] & forward[graph.edge_dst]
    last = op_stage.copy()
    np.maximum.at(last, graph.edge_src[edges], op_stage[graph.edge_dst[edges]])
    varies: Bools = np.any(graph.kinds.bytes_written[:, 1:], axis=1)[graph.op_kind]
    written = graph.kind_bytes_written[graph.op_kind]
    result = np.zeros(int(work.placed.stage_of_unit.max()) + 1)
    for op in np.flatnonzero(forward & varies & (last > op_stage)).tolist():
        result[op_stage[op] : last[op]] += written[op]
    return [float(v) for v in result]


def _network_share(work: Work, group: str) -> float:
    """Share of a ring's hops that leave a node."""
    ring = work.groups[group]
    return 1 / ring.per_node if ring.nodes > 1 else 0.0


def _add_gradients(found: Traffic, work: Work) -> None:
    layout, recipe = work.layout, work.recipe
    copies = layout.replicas // layout.shard
    passes = work.micro if recipe.zero == 3 else 1

    def add(group: str, collective: Collective, nbytes: float, size: int) -> None:
        sent = work.sent_bytes(collective, nbytes / layout.pp, size)
        found.add("dp", passes * sent, _network_share(work, group))

    parameters = work.graph.parameters
    nbytes = parameters.numel * itemsize_of(parameters.dtype)
    reduced = float(nbytes[parameters.trainable].sum())
    gathered = float(nbytes.sum())
    if recipe.fp32_gradients:
        reduced *= 4 / recipe.parameter_itemsize
    if recipe.zero == 3:
        unit_bytes, root = gathered_bytes(work)
        reduced = float(unit_bytes.sum())
        gathered = reduced + (float(unit_bytes[~root].sum()) if recipe.reshard else 0.0)
    if recipe.zero:
        add("shard", Collective.ALL_GATHER, gathered, layout.shard)
        add("shard", Collective.REDUCE_SCATTER, reduced, layout.shard)
        add("copies", Collective.ALL_REDUCE, reduced / layout.shard, copies)
    else:
        add("dp", Collective.ALL_REDUCE, reduced, layout.replicas)
