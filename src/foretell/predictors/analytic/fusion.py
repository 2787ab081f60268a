"""What torch.compile saves: chains of elementwise operators become one kernel.

Tensors that only pass between fusible operators are neither written nor read again, unless
backward needs them; only operators whose result leaves the chain launch a kernel.
"""

from __future__ import annotations

import numpy as np

from foretell.graph.graph import Floats, Graph
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


def fused_bytes(step: Graph) -> tuple[Floats, Floats]:
    """(bytes moved, kernels launched) per operator of the step when it is compiled."""
    read = step.kind_bytes_read[step.op_kind]
    written = step.kind_bytes_written[step.op_kind]
    fusible = np.isin(step.op_class, FUSIBLE)
    same_phase = step.op_phase[step.edge_src] == step.op_phase[step.edge_dst]
    inside = fusible[step.edge_src] & fusible[step.edge_dst] & same_phase
    spared = np.zeros(len(step))
    np.add.at(spared, step.edge_dst[inside], written[step.edge_src[inside]])
    read = np.maximum(read - spared, 0.0)
    leaves = _leaves_its_chain(step, inside)
    written = np.where(fusible & ~leaves, 0.0, written)
    launched = np.where(fusible & ~leaves, 0.0, 1.0)
    return read + written, launched


def _leaves_its_chain(step: Graph, inside: np.ndarray) -> np.ndarray:
    """True for operators with a result that somebody outside of the chain reads or keeps."""
    leaves = np.ones(len(step), dtype=np.bool_)
    leaves[step.edge_src] = False
    leaves[step.edge_src[~inside]] = True
    saved = step.storages.alloc_op[step.storages.role == Role.SAVED]
    leaves[saved] = True
    return leaves
