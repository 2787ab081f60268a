"""How long an iteration of a job takes on the servers it was given.

Every stage takes its compute, what its devices tell each other inside a server, and the time that
the ports of its busiest server need for what the job sends out there; the slowest stage sets the
pace. Jobs that share a server's ports take turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.graph.graph import Floats, Ints
from foretell.schedule.shape import Shape, ring_bytes


@dataclass(frozen=True, slots=True)
class Wires:
    """What joins devices: inside a server, and all ports of a server together."""

    inside_bytes_per_s: float
    port_bytes_per_s: float


@dataclass(frozen=True, eq=False)
class Pace:
    """An iteration on some servers."""

    stage_s: Floats
    """Of every stage, without what leaves a server."""
    port_s: Floats
    """Of every server, how long its ports are busy with this job alone."""
    sends: np.ndarray
    """[stages, servers] whether a stage sends anything out of a server."""

    def iteration_s(self, sharers: Sequence[int] | None = None) -> float:
        """With so many jobs at the ports of each server; alone unless told."""
        port_s = self.port_s if sharers is None else self.port_s * np.asarray(sharers)
        waits_s = (self.sends * port_s).max(axis=1, initial=0.0)
        return float((self.stage_s + waits_s).max())


def pace_of(shape: Shape, server_of: Ints, wires: Wires, speed: float = 1.0) -> Pace:
    """The pace of a job whose devices are on such servers; `speed` divides what it computes."""
    servers, stages = int(server_of.max()) + 1, len(shape.stages)
    sends = np.zeros((stages, servers), dtype=np.bool_)
    port_bytes = np.zeros(servers)
    stage_s = np.array([stage.compute_s / speed for stage in shape.stages])
    stage_s += _flows(shape, server_of, sends, port_bytes) / wires.inside_bytes_per_s
    for number, stage in enumerate(shape.stages):
        if stage.replicas < 2 or not stage.parameter_bytes:
            continue
        mine = server_of[shape.first_device[number] : shape.first_device[number + 1]]
        used = np.unique(mine)
        if len(used) > 1:
            port_bytes[used] += ring_bytes(stage)
            sends[number, used] = True
        else:
            stage_s[number] += ring_bytes(stage) / wires.inside_bytes_per_s
    return Pace(stage_s, port_bytes / wires.port_bytes_per_s, sends)


def _flows(shape: Shape, server_of: Ints, sends: np.ndarray, port_bytes: Floats) -> Floats:
    """[stages] bytes inside servers of each stage's busiest device; notes what leaves servers."""
    edges, stage_of = shape.flow_edges, shape.stage_of
    inside = np.zeros(shape.devices)
    apart = server_of[edges.one] != server_of[edges.other]
    for device in (edges.one, edges.other):
        np.add.at(inside, device[~apart], edges.nbytes[~apart])
        leaving = device[apart]
        np.add.at(port_bytes, server_of[leaving], edges.nbytes[apart])
        sends[stage_of[leaving], server_of[leaving]] = True
    most: Floats = np.maximum.reduceat(inside, shape.first_device[:-1])
    return most
