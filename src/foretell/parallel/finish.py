"""The end of a step: the optimizer, on the device or on the host, and parameters sent around."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from foretell.comm import Collective
from foretell.graph.graph import Bools, itemsize_of
from foretell.parallel.work import Work

_HOST_BYTES_PER_S = 25e9
"""What one device moves to and from the host's memory."""
_HOST_STEP_BYTES_PER_S = 190e9
"""Memory bandwidth of a host whose processors run the optimizer, shared by its devices."""
_RANK_STEP_BYTES_PER_S = 105e9
"""What the few threads of one rank reach of it."""
_HOST_STEP_BYTES = 28
"""Moved per parameter: four fp32 arrays read, three written."""


class Finish(NamedTuple):
    """What a rank does after its last gradient is there."""

    optimizer_s: float
    gather_s: float
    """Of the parameters that others have updated."""


def finish_of(work: Work, on_rank: Bools) -> Finish:
    """The end of the step on one pipeline rank."""
    recipe = work.recipe
    if not recipe.training or not len(work.optimizer_op_s):
        return Finish(0.0, 0.0)
    trainable = np.flatnonzero(work.graph.parameters.trainable)
    mine = on_rank[work.units.parameter[trainable]]
    owned = work.placed.owned_share[trainable][mine] if recipe.zero else np.ones(int(mine.sum()))
    compute = float((work.optimizer_op_s[mine] * owned).sum())
    numel = work.graph.parameters.numel[trainable][mine]
    share = float((owned * numel).sum() / max(numel.sum(), 1))
    itemsize = itemsize_of(work.graph.parameters.dtype[trainable][mine])
    nbytes = float((numel * itemsize).sum())
    if recipe.offload_optimizer:
        compute = _host_optimizer_s(work, nbytes, float(numel.sum()), share)
    gather = 0.0
    if recipe.zero in (1, 2):
        gather = float(work.collective_s(Collective.ALL_GATHER, nbytes, work.groups["shard"]))
    return Finish(compute, gather)


def _host_optimizer_s(work: Work, nbytes: float, numel: float, share: float) -> float:
    """Gradients to the host, the step there, and the rank's share of the parameters back.

    Gradients pass through every rank's buckets whole: measured, they take as long on eight
    ranks as on one.
    """
    devices = work.placed.cluster.groups[0].gpus_per_node
    moved = (1 + share) * nbytes / _HOST_BYTES_PER_S
    touched = numel * share * _HOST_STEP_BYTES
    return moved + touched * (1 / _RANK_STEP_BYTES_PER_S + devices / _HOST_STEP_BYTES_PER_S)
