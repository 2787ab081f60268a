"""Who is next to whom in a step, with equal surroundings kept once.

Kernels of one kind whose neighbours are alike, and whose neighbours' neighbours are alike, look
the same to two rounds of messages. A step of thousands of kernels has some hundreds of such
surroundings, so the network over the graph is trained on those, with their counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foretell.graph.graph import Floats, Ints


@dataclass(frozen=True, eq=False)
class Inflow:
    """Edges in the order of the nodes they lead to."""

    src: Ints
    into: Ints
    """Nodes that any edge leads to."""
    first: Ints
    """The first edge of each of them."""
    count: Ints

    @classmethod
    def of(cls, src: Ints, dst: Ints) -> Inflow:
        """From edges in any order."""
        order = np.argsort(dst, kind="stable")
        into, first, count = np.unique(dst[order], return_index=True, return_counts=True)
        return cls(src[order], into, first, count)


@dataclass(frozen=True, eq=False)
class Round:
    """What a round of messages needs: nodes, and edges into them from those of the round before."""

    own: Ints
    """Which node of the round before each node was."""
    before_src: Ints
    before_dst: Ints
    """Edges from producers."""
    after_src: Ints
    after_dst: Ints
    """Edges from consumers."""

    def __len__(self) -> int:
        return len(self.own)

    @cached_property
    def before(self) -> Inflow:
        """What producers send."""
        return Inflow.of(self.before_src, self.before_dst)

    @cached_property
    def after(self) -> Inflow:
        """What consumers send."""
        return Inflow.of(self.after_src, self.after_dst)


@dataclass(frozen=True, eq=False)
class Context:
    """Two rounds, and how often each surrounding of the second occurs."""

    first: Round
    """Nodes of the round before are rows of the OpTable."""
    second: Round
    count: Floats
    place: Ints
    """Which surrounding each kernel of the step is in."""


def context_of(row: Ints, edge_src: Ints, edge_dst: Ints, passes: Floats) -> Context:
    """The surroundings of nodes that are such rows of a table and run so often."""
    first_of, first = _round(row, edge_src, edge_dst)
    second_of, second = _round(first_of, edge_src, edge_dst)
    count = np.bincount(second_of, passes, len(second)).astype(np.float64)
    return Context(first, second, count, second_of)


def _round(colour: Ints, edge_src: Ints, edge_dst: Ints) -> tuple[Ints, Round]:
    """Finer colours of the nodes, and one node per colour with edges from the old ones."""
    signature = _hashes(colour)
    total = signature.copy()
    for src, dst, salt in ((edge_src, edge_dst, 1), (edge_dst, edge_src, 2)):
        mixed = _hashes(colour[src] * 4 + salt)
        summed = np.zeros(len(colour), dtype=np.uint64)
        np.add.at(summed, dst, mixed)
        total = _mix(total, summed)
    _, chosen, fine = np.unique(total, return_index=True, return_inverse=True)
    fine = fine.reshape(-1).astype(np.int64)
    place = np.full(len(colour), -1, dtype=np.int64)
    place[chosen] = np.arange(len(chosen))
    before = _edges(colour, place, edge_src, edge_dst)
    after = _edges(colour, place, edge_dst, edge_src)
    return fine, Round(colour[chosen], *before, *after)


def _edges(colour: Ints, place: Ints, src: Ints, dst: Ints) -> tuple[Ints, Ints]:
    """Edges into the nodes that stand for their colour, from colours."""
    kept = place[dst] >= 0
    return colour[src[kept]], place[dst[kept]]


def _hashes(values: Ints) -> np.ndarray:
    """Numbers that look random, the same for equal values."""
    x = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = x ^ (x >> np.uint64(31))
    return mixed


def _mix(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    mixed: np.ndarray = _hashes((left ^ (right * np.uint64(0x9E3779B97F4A7C15))).view(np.int64))
    return mixed
