"""Groups of equal nodes, and the cluster they make together."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from foretell.cluster import catalogue
from foretell.cluster.device import Device
from foretell.cluster.link import Link
from foretell.errors import InputError

_MOST = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeGroup:
    """`count` equal nodes; node_group() fills in what is usual for a device."""

    count: int
    device: Device
    gpus_per_node: int
    gpu_link: Link
    network_link: Link
    nics_per_node: int
    host_memory_bytes: int | None = None
    price_usd_per_hour: tuple[float, float] | None = None
    """(low, high) for one device; None takes the device's own."""

    def __post_init__(self) -> None:
        for field in ("count", "gpus_per_node", "nics_per_node"):
            self._check_count(field, getattr(self, field), _MOST)
        if self.host_memory_bytes is not None:
            self._check_count("host_memory_bytes", self.host_memory_bytes)
        if not self.network_link.is_network:
            raise InputError(
                f"link {self.network_link.id!r} ({self.network_link.kind}) cannot join nodes: "
                "name a network such as ib-ndr or eth-25g"
            )
        if self.gpu_link.is_network and self.gpu_link.kind != "loopback":
            raise InputError(
                f"link {self.gpu_link.id!r} ({self.gpu_link.kind}) cannot join the GPUs of a "
                "node: name one such as nvlink4 or pcie5"
            )
        if self.price_usd_per_hour is not None:
            low, high = self.price_usd_per_hour
            if not 0 <= low <= high < math.inf:
                raise InputError(
                    f"nodes of {self.device.id}: price {low} to {high} must be 0 or more and rising"
                )

    @property
    def total_devices(self) -> int:
        return self.count * self.gpus_per_node

    @property
    def device_price_usd_per_hour(self) -> tuple[float, float] | None:
        """(low, high) of one device: this group's price, else the catalogue's, else None."""
        return self.price_usd_per_hour or self.device.price_usd_per_hour

    @property
    def spec(self) -> str:
        """Canonical text, with only what differs from the usual."""
        counts = (self.count, self.gpus_per_node) if self.count > 1 else (self.gpus_per_node,)
        text = "" if counts == (1,) else "".join(f"{n}x" for n in counts)
        text += self.device.id
        ports = self.nics_per_node != self.device.usual_nics(self.gpus_per_node)
        if ports or self.network_link.id != self.device.network:
            text += ":" + (f"{self.nics_per_node}x" if ports else "") + self.network_link.id
        if self.gpu_link.id != self.device.gpu_link:
            text += f":{self.gpu_link.id}"
        return text

    def _check_count(self, field: str, value: object, most: float = math.inf) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InputError(
                f"nodes of {self.device.id}: {field}={value!r} must be a whole number of 1 or more"
            )
        if value > most:
            raise InputError(f"nodes of {self.device.id}: {field}={value} must be at most {most}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """What a job runs on: one group, or several for a heterogeneous cluster.

    `oversubscription` is the ratio of the ports' bandwidth to that of the switches above them:
    1 for a non-blocking fabric, 4 for a 4:1 tree.
    """

    groups: tuple[NodeGroup, ...]
    oversubscription: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        if not self.groups:
            raise InputError("a cluster needs at least one group of nodes: add one")
        if not 1 <= self.oversubscription < math.inf:
            raise InputError(
                f"oversubscription={self.oversubscription!r} must be 1 or more: "
                "write 4 for a 4:1 tree"
            )

    def __str__(self) -> str:
        return self.name or self.spec

    @property
    def total_devices(self) -> int:
        return sum(group.total_devices for group in self.groups)

    @property
    def total_nodes(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The distinct devices, in the order of the groups."""
        return tuple(dict.fromkeys(group.device for group in self.groups))

    @property
    def is_single_device(self) -> bool:
        return self.total_devices == 1

    @property
    def is_homogeneous(self) -> bool:
        """Whether all devices are of one kind."""
        return len(self.devices) == 1

    @property
    def spec(self) -> str:
        """Canonical text, which parse_cluster() reads back.

        It leaves out prices, host memory, oversubscription and name; a device or link of the
        user's own is read back only beside the file that describes it.
        """
        return "+".join(group.spec for group in self.groups)

    @property
    def price_usd_per_hour(self) -> tuple[float, float] | None:
        """(low, high) of the whole cluster, None when a group has no price."""
        low = high = 0.0
        for group in self.groups:
            price = group.device_price_usd_per_hour
            if price is None:
                return None
            low += price[0] * group.total_devices
            high += price[1] * group.total_devices
        return low, high


def node_group(
    device: Device,
    *,
    count: int = 1,
    gpus_per_node: int = 1,
    gpu_link: Link | None = None,
    network_link: Link | None = None,
    nics_per_node: int | None = None,
    host_memory_bytes: int | None = None,
    price_usd_per_hour: tuple[float, float] | None = None,
    find_link: Callable[[str], Link] = catalogue.link,
) -> NodeGroup:
    """Nodes of a device with its usual links and ports where none are given."""
    return NodeGroup(
        count=count,
        device=device,
        gpus_per_node=gpus_per_node,
        gpu_link=gpu_link or find_link(device.gpu_link),
        network_link=network_link or find_link(device.network),
        nics_per_node=device.usual_nics(gpus_per_node) if nics_per_node is None else nics_per_node,
        host_memory_bytes=host_memory_bytes,
        price_usd_per_hour=price_usd_per_hour,
    )
