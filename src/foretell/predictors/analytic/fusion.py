"""What torch.compile saves: neighbouring elementwise operators become one kernel.

Tensors that only pass between operators of one kernel are neither written nor read again, unless
backward needs them. A kernel runs when all that it reads is there: what lies before a convolution
or a product and what lies behind it are never one, so the far end of a shortcut is read again.
"""

from __future__ import annotations

import numpy as np

from foretell.graph.graph import Floats, Graph, Ints
from foretell.graph.ops import OpClass, Role

FUSIBLE = (
    OpClass.ELEMENTWISE,
    OpClass.NORM,
    OpClass.SOFTMAX,
    OpClass.REDUCTION,
    OpClass.COPY,
    OpClass.FILL,
    OpClass.RANDOM,
    OpClass.LOSS,
)
_SPREAD = 2.0
"""Times the result of a reduction, from which on who reads it walks through the data once more."""


def fused_bytes(step: Graph) -> tuple[Floats, Floats]:
    """(bytes moved, kernels launched) per operator of the step when it is compiled."""
    read = step.kind_bytes_read[step.op_kind]
    written = step.kind_bytes_written[step.op_kind]
    fusible = np.isin(step.op_class, FUSIBLE)
    inside = _inside_kernels(step, fusible, written)
    spared = np.zeros(len(step))
    np.add.at(spared, step.edge_dst[inside], written[step.edge_src[inside]])
    read = np.maximum(read - spared, 0.0)
    stays = fusible & ~_leaves_its_kernel(step, inside)
    written = np.where(stays, 0.0, written)
    launched = np.where(stays, 0.0, 1.0)
    return read + written, launched


def _inside_kernels(step: Graph, fusible: np.ndarray, written: Floats) -> np.ndarray:
    """Which edges join two operators of the same kernel."""
    src, dst = step.edge_src, step.edge_dst
    same_phase = step.op_phase[src] == step.op_phase[dst]
    reduced = (step.op_class[src] == OpClass.REDUCTION) & (written[dst] > _SPREAD * written[src])
    joinable = fusible[src] & fusible[dst] & same_phase & ~reduced
    round_ = _rounds(src, dst, ~joinable, len(step))
    inside: np.ndarray = joinable & (round_[src] == round_[dst])
    return inside


def _rounds(src: Ints, dst: Ints, apart: np.ndarray, operators: int) -> Ints:
    """The round in which each operator can run, where edges that keep apart lead to the next."""
    found = [0] * operators
    order = np.lexsort((src, dst))
    edges = (src[order].tolist(), dst[order].tolist(), apart[order].tolist())
    for before, after, later in zip(*edges, strict=True):
        found[after] = max(found[after], found[before] + later)
    return np.array(found, dtype=np.int64)


def _leaves_its_kernel(step: Graph, inside: np.ndarray) -> np.ndarray:
    """True for operators with a result that somebody outside of the kernel reads or keeps."""
    leaves = np.ones(len(step), dtype=np.bool_)
    leaves[step.edge_src] = False
    leaves[step.edge_src[~inside]] = True
    saved = step.storages.alloc_op[step.storages.role == Role.SAVED]
    leaves[saved] = True
    return leaves
