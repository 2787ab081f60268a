"""Which ranks communicate, and over which links."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretell.cluster import Cluster, NodeGroup
from foretell.errors import InputError


@dataclass(frozen=True)
class Group:
    """Ranks that communicate, `per_node` of them in each node."""

    size: int
    per_node: int
    node_group: NodeGroup
    """Whose links they use; of a mixed cluster the narrowest."""
    oversubscription: float = 1.0
    sharing: int = 1
    """How many such groups in a node use its ports at the same time."""

    def __post_init__(self) -> None:
        for field in ("size", "per_node", "sharing"):
            _check_count(field, getattr(self, field))
        if self.size % self.per_node:
            raise InputError(
                f"a group of {self.size} ranks cannot have {self.per_node} in every node: "
                "per_node must divide size"
            )
        if self.per_node > self.node_group.gpus_per_node:
            raise InputError(
                f"per_node={self.per_node} ranks do not fit a node of "
                f"{self.node_group.gpus_per_node}: lower per_node"
            )
        if not 1 <= self.oversubscription < math.inf:
            raise InputError(
                f"oversubscription={self.oversubscription!r} must be 1 or more: "
                "write 4 for a 4:1 tree"
            )

    @property
    def nodes(self) -> int:
        return self.size // self.per_node

    @property
    def network_bytes_per_s(self) -> float:
        """What the group's ranks in one node together can send to other nodes.

        A rank uses the ports nearest to it: a lone rank does not get those of its neighbours.
        """
        node = self.node_group
        ports_per_rank = max(1.0, node.nics_per_node / node.gpus_per_node)
        ports = min(node.nics_per_node / self.sharing, self.per_node * ports_per_rank)
        return ports * node.network_link.bandwidth_bytes_per_s / self.oversubscription


def group_on(cluster: Cluster, size: int, stride: int = 1) -> Group:
    """Ranks 0, stride, 2 stride, ... of a cluster whose ranks fill one node after another.

    All groups of that shape run at once: with eight devices in a node and stride eight, eight
    groups share its ports. Where ranks spread unevenly, the next number of nodes is taken over
    which they spread evenly.
    """
    _check_count("size", size)
    _check_count("stride", stride)
    last = (size - 1) * stride + 1
    if last > cluster.total_devices:
        raise InputError(
            f"{size} ranks, every {stride}. device, need {last} devices and {cluster} has "
            f"{cluster.total_devices}: take fewer"
        )
    gpus = min(group.gpus_per_node for group in cluster.groups)
    nodes = _even_nodes(size, stride, gpus)
    per_node = size // nodes
    return Group(
        size=size,
        per_node=per_node,
        node_group=min(cluster.groups, key=_node_bandwidth if nodes > 1 else _link_bandwidth),
        oversubscription=cluster.oversubscription if nodes > 1 else 1.0,
        sharing=max(1, gpus // per_node) if nodes > 1 else 1,
    )


def _even_nodes(size: int, stride: int, gpus: int) -> int:
    """Nodes touched, raised until they divide the ranks and no node holds too many."""
    touched = size if stride >= gpus else math.ceil(((size - 1) * stride + 1) / gpus)
    return next(n for n in range(touched, size + 1) if size % n == 0)


def _node_bandwidth(group: NodeGroup) -> float:
    return group.network_link.bandwidth_bytes_per_s * group.nics_per_node


def _link_bandwidth(group: NodeGroup) -> float:
    return group.gpu_link.bandwidth_bytes_per_s


def _check_count(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{field}={value!r} of a group must be a whole number of 1 or more")
