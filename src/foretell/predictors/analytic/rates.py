"""Which efficiency constants an operator is priced with: its rate group."""

from __future__ import annotations

import functools

import numpy as np

from foretell.graph.graph import Graph, Ints, Kinds
from foretell.graph.ops import OpClass

GROUPS = (
    "other",
    "matmul",
    "bmm",
    "conv",
    "conv_backward",
    "pointwise",
    "pointwise_backward",
    "grouped",
    "grouped_backward",
    "depthwise",
    "depthwise_backward",
    "attention",
    "attention_backward",
    "norm",
    "norm_backward",
    "softmax",
    "elementwise",
    "reduction",
    "pool",
    "pool_backward",
    "embedding",
    "index",
    "copy",
    "fill",
    "rnn",
    "resample",
    "scan",
    "loss",
    "random",
    "optimizer",
)
GROUP_INDEX = {name: i for i, name in enumerate(GROUPS)}
LAYOUT_SENSITIVE = tuple(
    name for name in GROUPS if name.startswith(("conv", "point", "group", "depth", "norm", "pool"))
)
FUSIBLE = ("norm", "norm_backward", "softmax", "elementwise", "reduction", "copy", "loss", "random")


def rate_groups(graph: Graph) -> Ints:
    """GROUPS index per kind."""
    return groups_of(graph.kinds)


@functools.lru_cache(maxsize=512)
def groups_of(kinds: Kinds) -> Ints:
    """GROUPS index per kind."""
    names = [_group(kinds, i) for i in range(len(kinds))]
    return np.array([GROUP_INDEX[n] for n in names], dtype=np.int64)


def _group(kinds: Kinds, i: int) -> str:
    op_class = OpClass(int(kinds.op_class[i]))
    backward = "_backward" if "backward" in kinds.name[i] else ""
    if op_class is OpClass.CONV:
        return _conv_group(kinds, i) + backward
    if op_class in (OpClass.ATTENTION, OpClass.NORM, OpClass.POOL):
        return op_class.label + backward
    return op_class.label if op_class.label in GROUP_INDEX else "other"


def _conv_group(kinds: Kinds, i: int) -> str:
    groups = int(kinds.attrs[i, 1])
    n = int(kinds.gemm[i, 2])
    if groups > 1:
        # One output channel per group: no matrix product is left to speak of.
        return "depthwise" if n <= 2 and groups >= 8 else "grouped"
    start = int(kinds.tensor_start[i])
    weight = start + (2 if "backward" in kinds.name[i] else 1)
    dims = kinds.dim[int(kinds.dim_start[weight]) : int(kinds.dim_start[weight + 1])]
    return "pointwise" if int(np.prod(dims[2:])) == 1 else "conv"
