"""A workload dealt out over a cluster: what one rank runs, in which units and stages."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import numpy as np

from foretell.cluster import Cluster
from foretell.comm import Group, group_on
from foretell.errors import InputError
from foretell.graph.graph import Floats, Graph, Ints
from foretell.graph.ops import OpClass
from foretell.parallel.messages import Messages, messages_of
from foretell.parallel.shard import Shares, expert_parameters, shard_graph
from foretell.parallel.tensor import Split, TensorPlan, plan_tensor, whole_plan
from foretell.parallel.units import Units, split_stages, units_of
from foretell.workload import Layout, Workload

_TYPICAL_BATCH = 8
_FLOPS_PER_BYTE = 150.0
"""FLOPs a device does in the time it moves one byte, in order of magnitude."""


@dataclass(frozen=True, eq=False)
class Placed:
    """One job on one cluster, before its operators have times."""

    whole: Workload
    """As if one device ran all of it."""
    local: Workload
    """What one rank runs of every layer; pipeline stages are cut from it."""
    layout: Layout
    cluster: Cluster
    plan: TensorPlan
    units: Units
    stage_of_unit: Ints
    """Model chunk of each unit; chunk c runs on pipeline rank c modulo pp."""
    messages: Messages

    @property
    def microbatches(self) -> int:
        """Forward passes per optimizer step."""
        return self.whole.recipe.accumulation(self.layout.dp)

    @property
    def gathers(self) -> bool:
        """Whether ranks keep shards of parameters and gather them before use."""
        return self.whole.recipe.zero == 3 and self.layout.shard > 1

    @property
    def groups(self) -> dict[str, Group]:
        """The ranks that talk to each other, by axis."""
        return _groups(self.cluster, self.layout)

    @property
    def owned_share(self) -> Floats:
        """Per parameter, the share of it that zero leaves to one rank.

        Experts are shared by fewer ranks: those of one place in the expert-parallel group. Where
        tensor parallelism leaves experts whole and splits the sequence, its ranks hold copies.
        """
        layout, parameters = self.layout, self.local.graph.parameters
        if layout.ep == 1:
            return np.full(len(parameters), 1 / layout.shard)
        copied = (self.plan.parameter_split == Split.WHOLE) & self.whole.recipe.sp
        sharing = layout.shard * np.where(copied, layout.tp, 1) / layout.ep
        experts = expert_parameters(self.local.graph)
        return np.where(experts, 1 / np.maximum(sharing, 1.0), 1 / layout.shard)

    def pair(self, left: int, right: int) -> Group:
        """Two ranks that send to each other."""
        found = group_on(self.cluster, 2, max(1, abs(right - left)))
        gpus = found.node_group.gpus_per_node
        if left // gpus == right // gpus:
            return found
        return dataclasses.replace(
            found, per_node=1, sharing=gpus, oversubscription=self.cluster.oversubscription
        )


@functools.lru_cache(maxsize=256)
def _groups(cluster: Cluster, layout: Layout) -> dict[str, Group]:
    copies = layout.replicas // layout.shard
    shared = layout.replicas // layout.ep
    return {
        "tp": group_on(cluster, layout.tp),
        "cp": group_on(cluster, layout.cp, layout.tp),
        "ep": group_on(cluster, layout.ep, layout.tp),
        "dp": group_on(cluster, layout.replicas, layout.tp),
        "shard": group_on(cluster, layout.shard, layout.tp),
        "copies": group_on(cluster, copies, layout.tp * layout.shard),
        "experts": group_on(cluster, shared, layout.tp * layout.ep),
    }


def place(workload: Workload, cluster: Cluster) -> Placed:
    """Resolve a workload's parallelism on a cluster; refuses what no framework runs."""
    recipe = workload.recipe
    layout = recipe.layout(cluster.total_devices)
    shares = Shares(tp=layout.tp, sp=recipe.sp, cp=layout.cp, ep=layout.ep, joint=recipe.tp_joint)
    _check(workload, shares)
    plan, sharded = _sharded(workload.graph, shares, recipe.tp_modules)
    return Placed(
        whole=workload,
        local=workload if sharded is workload.graph else Workload(sharded, recipe),
        layout=layout,
        cluster=cluster,
        plan=plan,
        units=units_of(workload.graph),
        stage_of_unit=_stages(workload, layout),
        messages=_messages(workload.graph, recipe.batch, shares, recipe.tp_modules),
    )


def _stages(workload: Workload, layout: Layout) -> Ints:
    recipe = workload.recipe
    chunks = layout.pp * recipe.virtual_stages
    name = f"pp={layout.pp}"
    if recipe.virtual_stages > 1:
        name += f" x virtual_stages={recipe.virtual_stages}"
    units = units_of(workload.graph)
    if chunks == 1:
        return np.zeros(units.count, dtype=np.int64)
    return split_stages(units, _unit_work(workload.graph, units), chunks, what=name)


def _unit_work(graph: Graph, units: Units) -> Floats:
    """How heavy units are, before anybody has timed them."""
    kinds = graph.at(_TYPICAL_BATCH)
    moved = kinds.kind_bytes_read + kinds.kind_bytes_written
    work = (kinds.kind_flops + _FLOPS_PER_BYTE * moved)[graph.op_kind]
    return units.sums(work, np.ones(len(graph), dtype=np.bool_))


@functools.lru_cache(maxsize=128)
def _sharded(
    graph: Graph, shares: Shares, named: tuple[tuple[str, str], ...]
) -> tuple[TensorPlan, Graph]:
    plan = plan_tensor(graph, shares.tp, named) if shares.tp > 1 else whole_plan(graph)
    return plan, shard_graph(graph, plan, shares)


@functools.lru_cache(maxsize=128)
def _messages(
    graph: Graph, batch: int, shares: Shares, named: tuple[tuple[str, str], ...]
) -> Messages:
    plan, _ = _sharded(graph, shares, named)
    return messages_of(graph.at(batch), plan, shares)


def _check(workload: Workload, shares: Shares) -> None:
    graph = workload.graph
    if shares.cp > 1:
        sample = graph.meta.get("sample", "sample")
        if not workload.seq:
            raise InputError(
                f"cp={shares.cp} splits sequences between ranks, and this model reads {sample}s, "
                "not sequences of tokens: use dp"
            )
        if not (graph.op_class == OpClass.ATTENTION).any():
            raise InputError(
                f"cp={shares.cp} splits sequences between ranks, and this model has no fused "
                "attention over them: use dp"
            )
        if workload.seq % shares.cp:
            raise InputError(
                f"cp={shares.cp} does not divide the sequence of {workload.seq} tokens"
            )
    if shares.sp and not workload.seq:
        raise InputError("sp splits sequences, and this model reads none: leave it out")
    if shares.sp and workload.seq and workload.seq % shares.tp:
        raise InputError(
            f"sp splits sequences over tp={shares.tp}, which does not divide {workload.seq} tokens"
        )
    if shares.ep > 1:
        experts = expert_parameters(graph)
        if not experts.any():
            raise InputError(f"ep={shares.ep} deals experts out, and this model has none: use dp")
        counts = {graph.parameters.shape[i][0] for i in np.flatnonzero(experts)}
        if len(counts) == 1 and min(counts) % shares.ep:
            raise InputError(f"ep={shares.ep} does not divide the {min(counts)} experts")
