"""The network over the graph: what an operator's surroundings do to its time.

Two rounds of messages, from producers and from consumers, over what the layer model makes of each
operator. Its last layer starts at zero, so untrained it changes nothing. It sees shapes, never
amounts of work: a correction does not depend on the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import SAGEConv

from foretell.graph.graph import Ints
from foretell.predictors.scaledl.context import Context, Round
from foretell.predictors.scaledl.form import MOST_CORRECTION


@dataclass(frozen=True)
class RoundBatch:
    """One round of several steps, as one graph."""

    own: Tensor
    before: Tensor
    after: Tensor
    """[2, edges]: from nodes of the round before to nodes of this one."""


@dataclass(frozen=True)
class ContextBatch:
    """The surroundings of several steps."""

    first: RoundBatch
    second: RoundBatch
    row: Tensor
    """Which row of the batch's operators each surrounding is about."""
    count: Tensor
    owner: Tensor
    """Which step it belongs to."""


class CrossLayer(nn.Module):
    """Logarithms by which surroundings change the time of operators."""

    def __init__(self, hidden: int, width: int = 32) -> None:
        super().__init__()
        self.enter = nn.Linear(hidden, width)
        self.own = nn.ModuleList([nn.Linear(width, width) for _ in range(2)])
        self.before = nn.ModuleList([_messages(width) for _ in range(2)])
        self.after = nn.ModuleList([_messages(width) for _ in range(2)])
        self.leave = nn.Linear(width, 1)
        nn.init.zeros_(self.leave.weight)
        nn.init.zeros_(self.leave.bias)

    def matrices(self) -> list[nn.Parameter]:
        """Weights between layers, without the last, which starts at zero."""
        return [p for n, p in self.named_parameters() if p.ndim == 2 and not n.startswith("leave")]

    def forward(self, hidden: Tensor, batch: ContextBatch) -> Tensor:
        """One number per surrounding."""
        state = nn.functional.silu(self.enter(hidden))
        for i, part in enumerate((batch.first, batch.second)):
            mine = state[part.own]
            heard = (
                self.own[i](mine)
                + self.before[i]((state, mine), part.before)
                + self.after[i]((state, mine), part.after)
            )
            state = mine + nn.functional.silu(heard)
        found: Tensor = MOST_CORRECTION * torch.tanh(self.leave(state)[:, 0])
        return found


def _messages(width: int) -> SAGEConv:
    return SAGEConv((width, width), width, aggr="mean", root_weight=False, bias=False)


def batch_of(contexts: Sequence[Context], rows: Sequence[int]) -> ContextBatch:
    """Several steps, whose tables have so many rows, as one graph."""
    first = _joined([c.first for c in contexts], rows)
    sizes = [len(c.first) for c in contexts]
    second = _joined([c.second for c in contexts], sizes)
    own = first.own[second.own]
    owner = np.repeat(np.arange(len(contexts)), [len(c.second) for c in contexts])
    return ContextBatch(
        first=first,
        second=second,
        row=own,
        count=torch.from_numpy(np.concatenate([c.count for c in contexts])).float(),
        owner=torch.from_numpy(owner),
    )


def _joined(rounds: Sequence[Round], sizes: Sequence[int]) -> RoundBatch:
    below = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    here = np.concatenate([[0], np.cumsum([len(r) for r in rounds])])[:-1]

    def edges(src: Sequence[Ints], dst: Sequence[Ints]) -> Tensor:
        return torch.from_numpy(
            np.stack(
                [
                    np.concatenate([s + o for s, o in zip(src, below, strict=True)]),
                    np.concatenate([d + o for d, o in zip(dst, here, strict=True)]),
                ]
            )
        )

    return RoundBatch(
        own=torch.from_numpy(
            np.concatenate([r.own + o for r, o in zip(rounds, below, strict=True)])
        ),
        before=edges([r.before_src for r in rounds], [r.before_dst for r in rounds]),
        after=edges([r.after_src for r in rounds], [r.after_dst for r in rounds]),
    )
