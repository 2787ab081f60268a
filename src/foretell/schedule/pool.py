"""Equal servers, and which of their devices are free."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foretell.cluster import Cluster, NodeGroup
from foretell.schedule.pace import Wires

Share = tuple[tuple[int, int], ...]
"""(server, devices there) of a job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSpec:
    """Servers of one kind."""

    device: str
    first_server: int
    servers: int
    devices_per_server: int
    wires: Wires
    speed: float = 1.0
    """Of its devices, relative to those that jobs state their compute for."""
    nodes: NodeGroup | None = None
    """What its servers are, where somebody said it: forecasts need to know."""

    @property
    def devices(self) -> int:
        """All of them together."""
        return self.servers * self.devices_per_server


def pools_of(cluster: Cluster) -> tuple[PoolSpec, ...]:
    """The pools of a cluster, one per group of nodes; speeds by peak, relative to the first."""
    found: list[PoolSpec] = []
    first, usual = 0, max(cluster.groups[0].device.peak_flops_per_s.values())
    for group in cluster.groups:
        found.append(
            PoolSpec(
                device=group.device.id,
                first_server=first,
                servers=group.count,
                devices_per_server=group.gpus_per_node,
                wires=Wires(
                    group.gpu_link.bandwidth_bytes_per_s,
                    group.network_link.bandwidth_bytes_per_s * group.nics_per_node,
                ),
                speed=max(group.device.peak_flops_per_s.values()) / usual,
                nodes=group,
            )
        )
        first += group.count
    return tuple(found)


class Pool:
    """The state of a pool: servers filed by how many devices are free on them."""

    def __init__(self, spec: PoolSpec) -> None:
        self.spec = spec
        self.free_devices = spec.devices
        self._free = [spec.devices_per_server] * spec.servers
        self._filed: list[list[int]] = [[] for _ in range(spec.devices_per_server + 1)]
        self._filed[-1] = list(range(spec.servers))
        self._down: set[int] = set()

    @property
    def devices_up(self) -> int:
        """All devices of servers that work."""
        return self.spec.devices - len(self._down) * self.spec.devices_per_server

    def free_on(self, server: int) -> int:
        """Free devices of one server, by its number in the whole cluster."""
        return self._free[server - self.spec.first_server]

    def take(self, share: Share) -> None:
        """Occupy devices."""
        for server, count in share:
            self._change(server - self.spec.first_server, -count)

    def give(self, share: Share) -> None:
        """Let devices go."""
        for server, count in share:
            self._change(server - self.spec.first_server, count)

    def fail(self, server: int) -> None:
        """A server is gone; its jobs must have given back their devices before."""
        local = server - self.spec.first_server
        assert self._free[local] == self.spec.devices_per_server
        self._change(local, -self.spec.devices_per_server)
        self._down.add(local)

    def join(self, server: int) -> None:
        """A failed server is back."""
        local = server - self.spec.first_server
        self._down.remove(local)
        self._change(local, self.spec.devices_per_server)

    def is_down(self, server: int) -> bool:
        """Whether a server has failed."""
        return server - self.spec.first_server in self._down

    def fewest_servers(self, devices: int) -> Share | None:
        """The fewest servers with so many free devices: full ones first, the last as it fits."""
        if devices > self.free_devices:
            return None
        found: list[tuple[int, int]] = []
        left = devices
        for free in range(len(self._filed) - 1, 0, -1):
            for server in self._filed[free]:
                if left <= free:
                    found.append((self._tightest(left, found), left))
                    return self._share(found)
                found.append((server, free))
                left -= free
        return None

    def smallest_holes(self, devices: int) -> Share | None:
        """One server that it fills best if one has room, else the smallest holes first."""
        if devices > self.free_devices:
            return None
        if any(self._filed[free] for free in range(devices, len(self._filed))):
            return self._share([(self._tightest(devices, []), devices)])
        found, left = [], devices
        for free in range(1, len(self._filed)):
            for server in self._filed[free]:
                found.append((server, min(free, left)))
                left -= found[-1][1]
                if not left:
                    return self._share(found)
        return None

    def most_servers(self, devices: int) -> Share | None:
        """As many servers as there are, the emptiest first, a device at a time."""
        if devices > self.free_devices:
            return None
        order = [s for free in range(len(self._filed) - 1, 0, -1) for s in self._filed[free]]
        counts = dict.fromkeys(order, 0)
        left = devices
        while left:
            for server in order:
                if left and counts[server] < self._free[server]:
                    counts[server] += 1
                    left -= 1
        return self._share([(s, c) for s, c in counts.items() if c])

    def free_servers(self) -> Iterable[tuple[int, int]]:
        """(server, free devices) of all servers with any, in order."""
        first = self.spec.first_server
        return ((first + s, free) for s, free in enumerate(self._free) if free)

    def _tightest(self, devices: int, taken: Sequence[tuple[int, int]]) -> int:
        """The server with the least room that has enough, none of those taken."""
        used = {server for server, _ in taken}
        return next(
            server
            for free in range(devices, len(self._filed))
            for server in self._filed[free]
            if server not in used
        )

    def _share(self, found: Sequence[tuple[int, int]]) -> Share:
        first = self.spec.first_server
        return tuple((first + server, count) for server, count in found)

    def _change(self, local: int, by: int) -> None:
        old = self._free[local]
        new = old + by
        assert 0 <= new <= self.spec.devices_per_server, "devices taken twice or given back twice"
        filed = self._filed[old]
        del filed[bisect_left(filed, local)]
        insort(self._filed[new], local)
        self._free[local] = new
        self.free_devices += by
