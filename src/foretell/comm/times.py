"""The time of a collective: routes made of stages, in the protocol that is cheapest.

A stage is what one link does: steps, each a hop's latency, and bytes through its bandwidth.
Stages of a route work on one chunk after another, so the slowest one sets the pace while their
latencies add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from foretell.cluster import Link, links
from foretell.comm.constants import PATTERNS, PROTOCOLS, Constants, Pattern, shipped_constants
from foretell.comm.group import Group
from foretell.comm.traffic import Collective, carried_as, ring_steps, sent_share
from foretell.errors import InputError

Floats = npt.NDArray[np.float64]

_PATTERN = {Collective.ALL_TO_ALL: "exchange", Collective.SEND_RECV: "pair"}
"""All others go around the ring, unless a link has constants under their own name."""
_BRIDGED_RANKS = 2


@dataclass(frozen=True)
class _Stage:
    """One link's part of a route."""

    pattern: Pattern
    bandwidth_bytes_per_s: float
    latency_s: float
    steps: float
    sent: float
    """Bytes through the bandwidth, per byte of the collective's size."""


@overload
def collective_s(
    kind: Collective,
    nbytes: float,
    group: Group,
    *,
    in_switch: bool = ...,
    constants: Constants | None = ...,
) -> float: ...
@overload
def collective_s(
    kind: Collective,
    nbytes: npt.NDArray[Any],
    group: Group,
    *,
    in_switch: bool = ...,
    constants: Constants | None = ...,
) -> Floats: ...
def collective_s(
    kind: Collective,
    nbytes: float | npt.NDArray[Any],
    group: Group,
    *,
    in_switch: bool = True,
    constants: Constants | None = None,
) -> float | Floats:
    """Seconds a collective of `nbytes` takes; of an array, an array.

    `in_switch=False` forbids reducing inside the switch, which integers cannot.
    """
    sizes = np.asarray(nbytes, dtype=np.float64)
    if not np.all(sizes >= 0) or not np.all(np.isfinite(sizes)):
        raise InputError(f"nbytes={nbytes!r} of {kind.value} must be 0 or more and finite")
    if kind is Collective.SEND_RECV and group.size > 2:
        raise InputError(
            f"send_recv joins two ranks and the group has {group.size}: give a group of two"
        )
    seconds = np.zeros_like(sizes)
    if group.size > 1:
        routes = _routes(kind, group, in_switch, constants or shipped_constants())
        seconds = np.minimum.reduce([_route_s(route, sizes) for route in routes])
    return float(seconds) if np.ndim(nbytes) == 0 else seconds


def _route_s(stages: Sequence[_Stage], nbytes: Floats) -> Floats:
    """Seconds of a route in its cheapest protocol."""
    blend = stages[0].pattern.blend
    shared = [p for p in PROTOCOLS if all(p in s.pattern.protocols for s in stages)]
    times = []
    for name in shared:
        latency_s = max(s.pattern.protocols[name].start_s for s in stages)
        byte_s = 0.0
        for stage in stages:
            protocol = stage.pattern.protocols[name]
            latency_s += stage.steps * protocol.hop * stage.latency_s
            rate = stage.bandwidth_bytes_per_s * protocol.efficiency
            byte_s = max(byte_s, stage.sent / rate)
        times.append((latency_s**blend + (nbytes * byte_s) ** blend) ** (1 / blend))
    fastest: Floats = np.minimum.reduce(times)
    return fastest


def _routes(
    kind: Collective, group: Group, in_switch: bool, constants: Constants
) -> list[tuple[_Stage, ...]]:
    """The ways a library would consider."""
    level = _Levels(group, constants)
    if kind is Collective.ALL_TO_ALL:
        return [level.exchange()]
    routes = [level.ring(kind)]
    if kind in (Collective.ALL_REDUCE, Collective.BROADCAST) and group.nodes > 1:
        routes.append(level.tree(kind))
    if kind is Collective.ALL_REDUCE and in_switch:
        routes += level.switch()
    return routes


@dataclass(frozen=True)
class _Levels:
    """The stages of a group: inside its nodes and between them."""

    group: Group
    constants: Constants

    def ring(self, kind: Collective) -> tuple[_Stage, ...]:
        """Once around all ranks, node by node."""
        group, name = self.group, _PATTERN.get(kind, kind.value)
        kind = carried_as(kind, group.node_group.device)
        steps = ring_steps(kind, group.size)
        between = steps * (group.nodes - 1) / (group.size - 1)
        share = sent_share(kind, group.size)
        return self._stages(name, (steps - between, share), (between, share), group.size)

    def tree(self, kind: Collective) -> tuple[_Stage, ...]:
        """Along each node, then up and down a tree of nodes: fewer steps for the same bytes."""
        group = self.group
        passes = 2 if kind is Collective.ALL_REDUCE else 1
        share = sent_share(kind, group.size)
        inside = (ring_steps(kind, group.per_node), share)
        between = (passes * math.log2(group.nodes), share)
        return self._stages("ring", inside, between, group.size)

    def exchange(self) -> tuple[_Stage, ...]:
        """Each rank to each: those of its node over one link, all others over the other."""
        size, per_node = self.group.size, self.group.per_node
        inside = (per_node - 1, (per_node - 1) / size)
        # All ranks of the node send through its ports.
        between = (size - per_node, per_node * (size - per_node) / size)
        return self._stages("exchange", inside, between, size)

    def switch(self) -> list[tuple[_Stage, ...]]:
        """Reduced and spread by the switch, and along a tree where there are more nodes."""
        group, link = self.group, self._inside_link()
        pattern = self.constants.pattern("switch", link, group.node_group.device)
        if pattern is None or group.per_node < 2:
            return []
        # A rank's own share never leaves it, but the switch still sees all ranks' copies.
        sent = group.per_node / (group.per_node - 1)
        stages = [_Stage(pattern, link.bandwidth_bytes_per_s, link.latency_s, 2, sent)]
        if group.nodes > 1:
            steps = 2 * math.log2(group.nodes)
            share = sent_share(Collective.ALL_REDUCE, group.nodes)
            stages.append(self._network("ring", steps, share))
        return [tuple(stages)]

    def _stages(
        self,
        name: str,
        inside: tuple[float, float],
        between: tuple[float, float],
        ranks: int,
    ) -> tuple[_Stage, ...]:
        """(steps, sent) inside nodes and between them as stages; none for what is not crossed."""
        group, stages = self.group, []
        if group.per_node > 1:
            link = self._inside_link()
            pattern = self._pattern(name, link)
            steps, sent = inside
            rate = link.bandwidth_bytes_per_s * pattern.reach_of(group.per_node)
            edged = sent + pattern.edge / ranks
            stages.append(_Stage(pattern, rate, link.latency_s, steps, edged))
        if group.nodes > 1:
            stages.append(self._network(name, *between))
        return tuple(stages)

    def _network(self, name: str, steps: float, sent: float) -> _Stage:
        link = self.group.node_group.network_link
        pattern = self._pattern(name, link)
        return _Stage(pattern, self.group.network_bytes_per_s, link.latency_s, steps, sent)

    def _pattern(self, name: str, link: Link) -> Pattern:
        device = self.group.node_group.device
        found = self.constants.pattern(name, link, device)
        if found is None and name not in PATTERNS:
            name = "ring"
            found = self.constants.pattern(name, link, device)
        if found is None:
            raise InputError(f"the collective constants have no {name!r} for {link.id}: fit again")
        return found

    def _inside_link(self) -> Link:
        """The link inside a node: bridges join pairs, more ranks meet over the host's link."""
        node = self.group.node_group
        if self.group.per_node > _BRIDGED_RANKS and node.gpu_link.id.endswith("-bridge"):
            return links().get(node.device.host_link, node.gpu_link)
        return node.gpu_link
