"""Which device of a job goes to which server, so that little has to pass between servers.

Heavy-edge mapping: server by server, the heaviest edge among the devices that are left goes in
first, then the device with most traffic to those already there. Devices of different servers then
change places while that lowers the cut; small jobs, where it costs little, also go through
exchanges that raise it for a while (Kernighan and Lin).
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Sequence

import numpy as np

from foretell.graph.graph import Floats, Ints
from foretell.schedule.shape import Shape

_SMALL = 16
"""Devices up to which exchanges may go through worse places."""
_ROUNDS = 4
"""Of exchanges, each over all devices."""
_TINY = 1e-9


def heavy_edge(shape: Shape, room: Sequence[int]) -> Ints:
    """The server of every device; `room` is how many each server takes, and holds all of them."""
    assert sum(room) >= shape.devices
    if len(room) == 1:
        return np.zeros(shape.devices, dtype=np.int64)
    weight = _weights(shape)
    largest_first = sorted(range(len(room)), key=lambda s: (-room[s], s))
    starts = [_grown(shape, room, largest_first), in_order(shape, room)]
    if shape.devices > _SMALL:
        best = min(starts, key=lambda server_of: _cut(weight, server_of))
        return _exchanged(weight, best, len(room))
    starts.append(_grown(shape, room, largest_first[::-1]))
    found = [_through_worse(weight, server_of, room) for server_of in starts]
    return min(found, key=lambda server_of: _cut(weight, server_of))


def in_order(shape: Shape, room: Sequence[int]) -> Ints:
    """Devices in their order, server by server."""
    found: Ints = np.repeat(np.arange(len(room)), room)[: shape.devices]
    return found


def cut_bytes(shape: Shape, server_of: Ints) -> float:
    """What passes between servers in one iteration."""
    return _cut(_weights(shape), server_of)


def _cut(weight: Floats, server_of: Ints) -> float:
    return float((weight * (server_of[:, None] != server_of)).sum() / 2)


@functools.lru_cache(maxsize=1024)
def _weights(shape: Shape) -> Floats:
    """[devices, devices] bytes between each two; not to be written to."""
    found = np.zeros((shape.devices, shape.devices))
    for edges in (shape.flow_edges, shape.ring_edges):
        np.add.at(found, (edges.one, edges.other), edges.nbytes)
    found += found.T
    found.flags.writeable = False
    return found


@functools.lru_cache(maxsize=1024)
def _edges(shape: Shape) -> tuple[list[tuple[int, int]], list[dict[int, float]]]:
    """Edges, the heaviest first; and the neighbours of every device."""
    weight = _weights(shape)
    near = [{int(v): float(row[v]) for v in np.flatnonzero(row)} for row in weight]
    pairs = [(-w, u, v) for u, others in enumerate(near) for v, w in others.items() if u < v]
    return [(u, v) for _, u, v in sorted(pairs)], near


def _grown(shape: Shape, room: Sequence[int], order: Sequence[int]) -> Ints:
    """Servers filled one after the other."""
    edges, near = _edges(shape)
    server_of = [-1] * shape.devices
    waiting = iter(edges)
    rest = iter(range(shape.devices))
    left = shape.devices
    for server in order:
        space = min(room[server], left)
        left -= space
        pull: dict[int, float] = {}
        frontier: list[tuple[float, int]] = []
        while space:
            chosen = _most_drawn(frontier, pull, server_of)
            if not chosen and space > 1:
                chosen = next((e for e in waiting if server_of[e[0]] < 0 > server_of[e[1]]), ())
            if not chosen:
                chosen = (next(d for d in rest if server_of[d] < 0),)
            space -= len(chosen)
            for device in chosen:
                server_of[device] = server
                for other, nbytes in near[device].items():
                    if server_of[other] < 0:
                        pull[other] = pull.get(other, 0.0) + nbytes
                        heapq.heappush(frontier, (-pull[other], other))
    return np.array(server_of, dtype=np.int64)


def _most_drawn(
    frontier: list[tuple[float, int]], pull: dict[int, float], server_of: list[int]
) -> tuple[int, ...]:
    """The device with most traffic to those of the server; none if nobody left talks to them."""
    while frontier:
        drawn, device = frontier[0]
        if server_of[device] < 0 and -drawn == pull[device]:
            return (device,)
        heapq.heappop(frontier)
    return ()


def _exchanged(weight: Floats, server_of: Ints, servers: int) -> Ints:
    """Devices change places, the best partner for each in turn, while the cut falls."""
    towards = _towards(weight, server_of, servers)
    for _ in range(_ROUNDS):
        improved = False
        for device in np.flatnonzero(_unhappy(towards, server_of)).tolist():
            gain = _gains(weight, towards, server_of, device)
            partner = int(np.argmax(gain))
            if gain[partner] > _TINY * weight[device].sum():
                _swap(weight, towards, server_of, device, partner)
                improved = True
        if not improved:
            break
    return server_of


def _unhappy(towards: Floats, server_of: Ints) -> np.ndarray:
    """Devices that another server draws more than their own."""
    own = np.take_along_axis(towards, server_of[:, None], 1)[:, 0]
    found: np.ndarray = towards.max(1) > own
    return found


def _through_worse(weight: Floats, server_of: Ints, room: Sequence[int]) -> Ints:
    """Best exchanges one after the other, each device once; the best state on the way, again.

    Free places take part as devices that talk to nobody.
    """
    devices, servers = len(server_of), len(room)
    spare = np.repeat(np.arange(servers), np.array(room) - np.bincount(server_of, None, servers))
    whole = np.zeros((devices + len(spare), devices + len(spare)))
    whole[:devices, :devices] = weight
    now = np.concatenate([server_of, spare])
    best, least = now.copy(), _cut(whole, now)
    for _ in range(_ROUNDS):
        improved = False
        now = best.copy()
        towards = _towards(whole, now, servers)
        open_ = np.ones(len(now), dtype=np.bool_)
        for _ in range(len(now) // 2):
            own = np.take_along_axis(towards, now[:, None], 1)[:, 0]
            leaves = towards[:, now] - own[:, None]
            gain = leaves + leaves.T - 2 * whole
            gain[(now[:, None] == now) | ~open_ | ~open_[:, None]] = -np.inf
            one, other = np.unravel_index(int(np.argmax(gain)), gain.shape)
            if np.isinf(gain[one, other]):
                break
            _swap(whole, towards, now, int(one), int(other))
            open_[[one, other]] = False
            if (cut := _cut(whole, now)) < least * (1 - _TINY):
                best, least, improved = now.copy(), cut, True
        if not improved:
            break
    return best[:devices]


def _towards(weight: Floats, server_of: Ints, servers: int) -> Floats:
    """[devices, servers] bytes between each device and those of each server."""
    found: Floats = weight @ (server_of[:, None] == np.arange(servers))
    return found


def _gains(weight: Floats, towards: Floats, server_of: Ints, device: int) -> Floats:
    """By how much the cut falls if the device changes places with each other one."""
    here = server_of[device]
    leaves = towards[device, server_of] - towards[device, here]
    comes = towards[:, here] - np.take_along_axis(towards, server_of[:, None], 1)[:, 0]
    gain: Floats = leaves + comes - 2 * weight[device]
    gain[server_of == here] = -np.inf
    return gain


def _swap(weight: Floats, towards: Floats, server_of: Ints, one: int, other: int) -> None:
    here, there = int(server_of[one]), int(server_of[other])
    moved = weight[one] - weight[other]
    towards[:, here] -= moved
    towards[:, there] += moved
    server_of[one], server_of[other] = there, here
