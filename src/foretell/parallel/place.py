"""A workload dealt out over a cluster: what one rank runs, in which units and stages."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from foretell.cluster import Cluster
from foretell.comm import Group, group_on
from foretell.errors import InputError
from foretell.graph.graph import Graph
from foretell.graph.ops import OpClass
from foretell.parallel.messages import Messages, messages_of
from foretell.parallel.shard import Shares, expert_parameters, shard_graph
from foretell.parallel.tensor import TensorPlan, plan_tensor
from foretell.parallel.units import Units, units_of
from foretell.workload import Layout, Workload


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
    messages: Messages

    @property
    def microbatches(self) -> int:
        """Forward passes per optimizer step."""
        return self.whole.recipe.accumulation(self.layout.dp)

    @property
    def groups(self) -> dict[str, Group]:
        """The ranks that talk to each other, by axis."""
        layout = self.layout
        return {
            "tp": group_on(self.cluster, layout.tp),
            "cp": group_on(self.cluster, layout.cp, layout.tp),
            "ep": group_on(self.cluster, layout.ep, layout.tp),
            "dp": group_on(self.cluster, layout.replicas, layout.tp),
            "shard": group_on(self.cluster, layout.shard, layout.tp),
            "copies": group_on(
                self.cluster, layout.replicas // layout.shard, layout.tp * layout.shard
            ),
            "experts": group_on(self.cluster, layout.replicas // layout.ep, layout.tp * layout.ep),
            "pp": group_on(self.cluster, min(layout.pp, 2), layout.stage_stride),
        }


def place(workload: Workload, cluster: Cluster) -> Placed:
    """Resolve a workload's parallelism on a cluster; refuses what no framework runs."""
    recipe = workload.recipe
    layout = recipe.layout(cluster.total_devices)
    shares = Shares(tp=layout.tp, sp=recipe.sp, cp=layout.cp, ep=layout.ep)
    _check(workload, shares)
    plan, sharded = _sharded(workload.graph, shares, recipe.tp_modules)
    return Placed(
        whole=workload,
        local=Workload(sharded, recipe),
        layout=layout,
        cluster=cluster,
        plan=plan,
        units=units_of(workload.graph),
        messages=_messages(workload.graph, recipe.batch, shares, recipe.tp_modules),
    )


@functools.lru_cache(maxsize=128)
def _sharded(
    graph: Graph, shares: Shares, named: tuple[tuple[str, str], ...]
) -> tuple[TensorPlan, Graph]:
    plan = plan_tensor(graph, shares.tp, named)
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
        if not (graph.op_class == OpClass.ATTENTION).any() or not workload.seq:
            raise InputError(
                f"cp={shares.cp} splits sequences between ranks, and this model has no fused "
                "attention over a sequence: use dp"
            )
        if workload.seq % shares.cp:
            raise InputError(f"cp={shares.cp} does not divide the sequence of {workload.seq} tokens")
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
