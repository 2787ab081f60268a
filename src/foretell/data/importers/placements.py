"""Placements as schedulers' traces write them: one digit per node, the GPUs used there."""

from __future__ import annotations

import math
from dataclasses import dataclass

from foretell.data.importers.rows import BadRowError, Row


@dataclass(frozen=True)
class Placement:
    """Where the GPUs of a row were."""

    text: str
    nodes: int
    gpus_per_node: int
    """On the fullest node."""
    devices: int


def placement_of(row: Row) -> Placement:
    """One digit per node, or nodes and GPUs."""
    if "placement" not in row.cells:
        nodes, gpus = row.count("num_nodes"), row.count("num_replicas")
        if nodes > gpus:
            raise BadRowError("fewer GPUs than nodes")
        return Placement(f"{gpus} on {nodes} nodes", nodes, math.ceil(gpus / nodes), gpus)
    digits = gpus_by_node(row)
    return Placement(row.text("placement"), len(digits), max(digits), sum(digits))


def gpus_by_node(row: Row) -> list[int]:
    """[4, 3, 1] of '431'."""
    text = row.text("placement")
    if not text.isdecimal() or "0" in text:
        raise BadRowError("placement is not one digit above zero per node")
    return [int(digit) for digit in text]
