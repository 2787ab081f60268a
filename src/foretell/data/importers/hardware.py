"""What rows ran on: clusters as --cluster takes them, and what a device makes of fp32."""

from __future__ import annotations

from foretell.cluster import devices
from foretell.data.importers.rows import BadRowError


def cluster_text(device: str, gpus: int, nodes: int = 1, network: str = "") -> str:
    """Nodes with the same number of GPUs; one node needs no network."""
    if nodes == 1:
        return f"{gpus}x{device}"
    return f"{nodes}x{gpus}x{device}" + (f":{network}" if network else "")


def full_nodes(device: str, gpus: int, per_node: int, network: str = "") -> str:
    """GPUs that fill node after node, or a part of one."""
    if gpus <= per_node:
        return cluster_text(device, gpus)
    if gpus % per_node:
        raise BadRowError("GPUs that do not fill their nodes")
    return cluster_text(device, per_node, gpus // per_node, network)


def known_cluster(device: str, gpus: int = 1, nodes: int = 1) -> str:
    """The cluster; empty for a device the catalogue does not have."""
    if device not in devices():
        return ""
    return device if gpus == nodes == 1 else cluster_text(device, gpus, nodes)


def single_precision(device: str) -> str:
    """What runs where a source says fp32: cuDNN takes TF32 on its own where a device has it."""
    known = devices().get(device)
    return "tf32" if known is not None and known.supports("tf32") else "fp32"
