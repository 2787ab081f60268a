"""Where a job goes: which servers, and which of its devices to which of them, by name."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.errors import InputError, UnknownNameError
from foretell.graph.graph import Ints
from foretell.schedule.heavy_edge import cut_bytes, heavy_edge, in_order
from foretell.schedule.job import Offer
from foretell.schedule.pace import Pace, pace_of
from foretell.schedule.pool import Pool, PoolSpec, Share
from foretell.schedule.shape import Shape

_MOST_EXACT = 12
"""Devices up to which all ways are tried."""


@dataclass(frozen=True)
class Way:
    """Chooses servers, then tells devices which of them is theirs."""

    choose: Callable[[Pool, int, random.Random], Share | None]
    assign: Callable[[Shape, Sequence[int]], Ints]


def exact(shape: Shape, room: Sequence[int]) -> Ints:
    """The least cut there is, by trying all ways; for small jobs."""
    assert shape.devices <= _MOST_EXACT, f"more than {_MOST_EXACT} devices have too many ways"
    best, least = None, np.inf
    for ways in itertools.product(range(len(room)), repeat=shape.devices):
        if any(ways.count(server) > room[server] for server in range(len(room))):
            continue
        server_of = np.array(ways, dtype=np.int64)
        if (cut := cut_bytes(shape, server_of)) < least:
            best, least = server_of, cut
    assert best is not None
    return best


def _random_devices(pool: Pool, devices: int, chance: random.Random) -> Share | None:
    if devices > pool.free_devices:
        return None
    free = [server for server, count in pool.free_servers() for _ in range(count)]
    counts: dict[int, int] = {}
    for server in sorted(chance.sample(free, devices)):
        counts[server] = counts.get(server, 0) + 1
    return tuple(counts.items())


WAYS: dict[str, Way] = {
    "heavy-edge": Way(lambda pool, n, _: pool.fewest_servers(n), heavy_edge),
    "consolidated": Way(lambda pool, n, _: pool.fewest_servers(n), in_order),
    "best-fit": Way(lambda pool, n, _: pool.smallest_holes(n), in_order),
    "spread": Way(lambda pool, n, _: pool.most_servers(n), in_order),
    "random": Way(_random_devices, in_order),
    "exact": Way(lambda pool, n, _: pool.fewest_servers(n), exact),
}


class Placement:
    """Offers of one way of placing, with paces kept: many jobs are alike."""

    def __init__(
        self,
        shapes: Sequence[Shape],
        pools: Sequence[PoolSpec],
        way: str = "heavy-edge",
        seed: int = 0,
    ) -> None:
        if way not in WAYS:
            raise UnknownNameError("placement", way, WAYS, f"use one of {', '.join(WAYS)}")
        self._shapes, self._pools, self._way = shapes, pools, WAYS[way]
        self._chance = random.Random(seed)
        self._paces: dict[tuple[int, int, tuple[int, ...]], tuple[Pace, float]] = {}
        self._least: dict[int, float] = {}

    def least_s(self, shape: int) -> float:
        """An iteration on the fewest servers of the best pool, when all is free."""
        if shape not in self._least:
            found = []
            for number, spec in enumerate(self._pools):
                share = Pool(spec).fewest_servers(self._shapes[shape].devices)
                if share is not None:
                    found.append(self._pace(shape, number, share)[1])
            if not found:
                raise InputError(
                    f"a job of {self._shapes[shape].devices} devices fits no pool of the cluster: "
                    "leave it out or enlarge the cluster"
                )
            self._least[shape] = min(found)
        return self._least[shape]

    def most_s(self, shape: int) -> float:
        """The same on as many servers as there are, in the worst pool that has room."""
        found = []
        for number, spec in enumerate(self._pools):
            share = Pool(spec).most_servers(self._shapes[shape].devices)
            if share is not None:
                found.append(self._pace(shape, number, share)[1])
        return max(found)

    def offer(self, number: int, pool: Pool, shape: int) -> Offer | None:
        """Where in a pool a job of some shape would go now."""
        share = self._way.choose(pool, self._shapes[shape].devices, self._chance)
        if share is None:
            return None
        return Offer(number, share, self._pace(shape, number, share)[1] / self.least_s(shape))

    def pace(self, offer: Offer, shape: int) -> Pace:
        """How iterations go where it was offered."""
        return self._pace(shape, offer.pool, offer.share)[0]

    def _pace(self, shape: int, pool: int, share: Share) -> tuple[Pace, float]:
        room = tuple(count for _, count in share)
        key = (shape, pool, room)
        if key not in self._paces:
            made, spec = self._shapes[shape], self._pools[pool]
            pace = pace_of(made, self._way.assign(made, room), spec.wires, spec.speed)
            self._paces[key] = (pace, pace.iteration_s())
        return self._paces[key]
