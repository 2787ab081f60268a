"""Hardware as data: devices, links and clusters, from the catalogue or the user's own file."""

from foretell.cluster.catalogue import aliases, device, devices, link, links, search
from foretell.cluster.cluster import Cluster, NodeGroup, node_group
from foretell.cluster.detect import detect_gpus, detect_local, device_for_driver_name
from foretell.cluster.device import DTYPES, Device
from foretell.cluster.link import Link
from foretell.cluster.spec import parse_cluster

__all__ = [
    "DTYPES",
    "Cluster",
    "Device",
    "Link",
    "NodeGroup",
    "aliases",
    "detect_gpus",
    "detect_local",
    "device",
    "device_for_driver_name",
    "devices",
    "link",
    "links",
    "node_group",
    "parse_cluster",
    "search",
]
