"""Reads a cluster as people write it on a command line.

    cluster   one or more groups joined by + or a comma, or a path ending in .toml
    group     [[NODES x] GPUS x] DEVICE [: [PORTS x] NETWORK] [: GPU-LINK]

    a100-80gb                       one GPU
    8xa100-80gb                     one node of eight
    2x8xh100-sxm                    two nodes of eight, on the network usual for the device
    2x8xh100-sxm:ib-ndr             on the network named
    2x8xa100-40gb:4xefa-100         with four ports in each node
    4xrtx-a6000:nvlink3-bridge      with another link inside the node
    1x8xa100-80gb+2x4xv100-16gb     two kinds of nodes
    local                           this machine
    2xlocal@1                       two processes on this machine, with one core each

Links are told apart by their kind, so their order is free. Case and blanks do not matter.
"""

from __future__ import annotations

import re

from foretell.cluster import catalogue
from foretell.cluster.cluster import Cluster, NodeGroup, node_group
from foretell.cluster.device import Device
from foretell.cluster.file import read_cluster_file
from foretell.cluster.link import Link
from foretell.errors import InputError, described

_EXAMPLES = "write for example a100-80gb, 8xa100-80gb or 2x8xh100-sxm:ib-ndr"
# More in one node is nearly always a forgotten number of nodes, and would promise far too much.
_MOST_GPUS_PER_NODE = 16
_MOST_DIGITS = 7


def parse_cluster(text: str) -> Cluster:
    """The cluster a text or a .toml file describes."""
    if not isinstance(text, str):
        raise InputError(f"cluster is {described(text)}: {_EXAMPLES}")
    text = text.strip()
    if text.lower().endswith(".toml"):
        return read_cluster_file(text)
    parts = re.split(r"[+,]", text)
    if not all(part.strip() for part in parts):
        what = "has an empty group" if text else "is empty"
        raise InputError(f"cluster {text!r} {what}: {_EXAMPLES}")
    return Cluster(groups=tuple(_group(re.sub(r"\s", "", part.lower())) for part in parts))


def _group(text: str) -> NodeGroup:
    head, *link_texts = text.split(":")
    counts, name = _leading_counts(head, text)
    if len(counts) > 2 or not name:
        raise InputError(f"cluster {text!r} is not NODESxGPUSxDEVICE: {_EXAMPLES}")
    device = catalogue.device(name)
    count, gpus = (1, *counts)[-2:] if counts else (1, 1)
    _check_node_size(gpus, device, text)
    network_link, nics, gpu_link = _links(link_texts, text)
    return node_group(
        device,
        count=count,
        gpus_per_node=gpus,
        network_link=network_link,
        nics_per_node=nics,
        gpu_link=gpu_link,
    )


def _links(texts: list[str], group: str) -> tuple[Link | None, int | None, Link | None]:
    """Network, ports and link inside the node among what follows the colons."""
    network_link: Link | None = None
    gpu_link: Link | None = None
    nics: int | None = None
    for text in texts:
        ports, name = _leading_counts(text, group)
        if not name or len(ports) > 1:
            raise InputError(f"cluster {group!r} has no link after a colon: write :ib-ndr")
        link = catalogue.link(name)
        if (network_link if link.is_network else gpu_link) is not None:
            raise InputError(
                f"cluster {group!r} names two {'networks' if link.is_network else 'GPU links'}: "
                "keep one"
            )
        if link.is_network:
            network_link, nics = link, ports[0] if ports else None
        elif ports:
            raise InputError(
                f"cluster {group!r} counts ports of {link.id}: only networks have ports, "
                f"write :{link.id}"
            )
        else:
            gpu_link = link
    return network_link, nics, gpu_link


def _leading_counts(text: str, group: str) -> tuple[list[int], str]:
    """'2x8xa100' -> [2, 8], 'a100'."""
    counts: list[int] = []
    while match := re.match(r"([-0-9.]+)[x*]", text):
        number = match.group(1)
        if not number.isdigit() or len(number) > _MOST_DIGITS or int(number) < 1:
            raise InputError(
                f"cluster {group!r} has the count {number}: write a whole number of 1 or more, "
                "up to a million"
            )
        counts.append(int(number))
        text = text[match.end() :]
    return counts, text


def _check_node_size(gpus: int, device: Device, group: str) -> None:
    most = max(_MOST_GPUS_PER_NODE, device.gpus_per_node)
    if gpus > most:
        usual = device.gpus_per_node
        raise InputError(
            f"cluster {group!r} has {gpus} devices in one node, at most {most} fit: "
            f"write {max(1, gpus // usual)}x{usual}x{device.id} for several nodes"
        )
