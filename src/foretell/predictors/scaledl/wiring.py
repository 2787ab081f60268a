"""Which kernels a step runs and who feeds whom: the same at every batch, so worked out once."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from foretell.graph.graph import Graph, Ints
from foretell.predictors.scaledl.context import Context, context_of
from foretell.predictors.scaledl.kernels import kernels_of


@dataclass(frozen=True, eq=False)
class Wiring:
    """Kernels of a step in execution order, and edges between them."""

    kernel: Ints
    """Which kernel of the step's kinds each is."""
    op: Ints
    """Which operator of the step each belongs to."""
    edge_src: Ints
    edge_dst: Ints

    @functools.cached_property
    def context(self) -> Context:
        """Their surroundings, when rows are kernels."""
        return context_of(self.kernel, self.edge_src, self.edge_dst, np.ones(len(self.kernel)))


def wiring_of(step: Graph) -> Wiring:
    """The wiring of a step."""
    return _wiring(_Wires(step))


class _Wires:
    """A step as a key: equal to another that has the very same operators and edges."""

    def __init__(self, step: Graph) -> None:
        self.step = step
        self.parts = (step.kinds, step.op_kind, step.edge_src, step.edge_dst)

    def __hash__(self) -> int:
        return hash(tuple(map(id, self.parts)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Wires) and all(
            mine is theirs for mine, theirs in zip(self.parts, other.parts, strict=True)
        )


@functools.lru_cache(maxsize=256)
def _wiring(wires: _Wires) -> Wiring:
    step, kernels = wires.step, kernels_of(wires.step.kinds)
    second = kernels.second[step.op_kind]
    twice = second >= 0
    op = np.repeat(np.arange(len(step)), 1 + twice)
    at = np.cumsum(1 + twice) - 1 - twice
    kernel = kernels.first[step.op_kind][op]
    kernel[at[twice] + 1] = second[twice]
    sources, targets = [], []
    for from_second in (False, True):
        for to_second in (False, True):
            kept = (twice[step.edge_src] | (not from_second)) & (
                twice[step.edge_dst] | (not to_second)
            )
            sources.append(at[step.edge_src[kept]] + from_second)
            targets.append(at[step.edge_dst[kept]] + to_second)
    return Wiring(kernel, op, np.concatenate(sources), np.concatenate(targets))
