"""Bytes a step sends: by axis, between stages, and off the node."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from foretell.comm import Collective
from foretell.graph.graph import Bools, itemsize_of
from foretell.parallel.exchange import gathered_bytes
from foretell.parallel.shard import expert_parameters
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
            self.by_axis[axis] = self.by_axis.get(axis, 0.0) + float(nbytes)
            self.network_bytes += float(nbytes) * network_share


def traffic_of(work: Work) -> Traffic:
    """Everything a device sends in one step."""
    found = Traffic()
    layout, messages = work.layout, work.placed.messages
    for axis, collective, nbytes in zip(
        messages.axis, messages.collective, messages.nbytes, strict=True
    ):
        sent = work.sent_bytes(collective, nbytes, work.groups[axis].size)
        found.add(axis, work.micro * sent / layout.pp, _network_share(work, axis))
    if layout.replicas > 1:
        _add_data_parallel(found, work)
    if layout.pp > 1:
        both = 2 if work.recipe.training else 1
        nbytes = both * work.micro * sum(crossing_bytes(work)[:-1]) / layout.pp
        gpus = min(g.gpus_per_node for g in work.placed.cluster.groups)
        several = work.placed.cluster.total_nodes > 1
        found.add("pp", nbytes, min(1.0, layout.stage_stride / gpus) if several else 0.0)
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


def _add_data_parallel(found: Traffic, work: Work) -> None:
    layout, recipe = work.layout, work.recipe
    gathers = work.placed.gathers
    passes = work.micro if recipe.zero >= 2 else 1

    def add(group: str, collective: Collective, nbytes: float) -> None:
        sent = work.sent_bytes(collective, nbytes / layout.pp, work.groups[group].size)
        found.add("dp", sent, _network_share(work, group))

    parameters = work.graph.parameters
    nbytes = parameters.numel * itemsize_of(parameters.dtype)
    experts = expert_parameters(work.placed.whole.graph) & (layout.ep > 1)
    wide = 4 / recipe.parameter_itemsize if recipe.fp32_gradients else 1.0
    reduced = wide * float(nbytes[parameters.trainable & ~experts].sum())
    if gathers:
        unit_bytes, root = gathered_bytes(work)
        again = float(unit_bytes[~root].sum()) if recipe.reshard and recipe.training else 0.0
        add("shard", Collective.ALL_GATHER, work.micro * (float(unit_bytes.sum()) + again))
        reduced = float(unit_bytes.sum())
    if not recipe.training:
        return
    if recipe.zero:
        add("shard", Collective.REDUCE_SCATTER, passes * reduced)
        add("copies", Collective.ALL_REDUCE, passes * reduced / layout.shard)
        if not gathers:
            add("shard", Collective.ALL_GATHER, float(nbytes[~experts].sum()))
    else:
        add("dp", Collective.ALL_REDUCE, reduced)
    if experts.any() and not gathers:
        add("experts", Collective.ALL_REDUCE, passes * wide * float(nbytes[experts].sum()))
