"""Gradient exchange of plain data parallelism: ring all-reduce overlapped with backward."""

from __future__ import annotations

from dataclasses import dataclass

from foretell.cluster import Cluster
from foretell.graph.graph import itemsize_of
from foretell.workload import Workload

_LAST_BUCKET_BYTES = 25 * 1024**2
_OVERLAP = 0.9


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """What data parallelism adds to a step."""

    sent_bytes: float = 0.0
    total_s: float = 0.0
    exposed_s: float = 0.0
    notes: tuple[str, ...] = ()

    def breakdown(self) -> dict[str, float]:
        """Phase rows; empty on one device."""
        return {"exposed_communication": self.exposed_s} if self.total_s else {}


def gradient_exchange(workload: Workload, cluster: Cluster, backward_s: float) -> Exchange:
    """Time and traffic of averaging gradients over all devices once per step."""
    devices = cluster.total_devices
    if devices == 1 or not workload.recipe.training:
        return Exchange()
    parameters = workload.graph.parameters
    sizes = parameters.numel * itemsize_of(parameters.dtype)
    gradient_bytes = float(sizes[parameters.trainable].sum())
    sent_bytes = 2 * (devices - 1) / devices * gradient_bytes
    bandwidth, latency_s = _slowest_hop(cluster)
    per_byte_s = 2 * (devices - 1) / devices / bandwidth
    total_s = gradient_bytes * per_byte_s + 2 * (devices - 1) * latency_s
    tail_s = min(gradient_bytes, _LAST_BUCKET_BYTES) * per_byte_s
    hidden_s = min(total_s - tail_s, _OVERLAP * backward_s)
    return Exchange(
        sent_bytes=sent_bytes,
        total_s=total_s,
        exposed_s=total_s - hidden_s,
        notes=("data parallel: ring all-reduce of gradients, overlapped with backward",),
    )


def _slowest_hop(cluster: Cluster) -> tuple[float, float]:
    """Bandwidth per ring and latency of the narrowest link a ring over all devices crosses."""
    hops = []
    for group in cluster.groups:
        if group.gpus_per_node > 1:
            hops.append((group.gpu_link.bandwidth_bytes_per_s, group.gpu_link.latency_s))
        if cluster.total_nodes > 1:
            ports = group.network_link.bandwidth_bytes_per_s * group.nics_per_node
            hops.append((ports / cluster.oversubscription, group.network_link.latency_s))
    return min(hops)
