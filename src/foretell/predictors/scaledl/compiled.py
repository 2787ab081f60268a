"""In which order torch.compile lets convolutions run, whatever order the input has.

Its compiler turns all convolutions of a step to channels last where it expects that to help. The
rule and its factors are those of PyTorch (torch/_inductor/graph.py, decide_layout_opt): FLOPs are
weighed by kind of convolution in inference, a single unfavourable one decides in training.
"""

from __future__ import annotations

import functools

import numpy as np

from foretell.graph.graph import Graph, Kinds
from foretell.graph.ops import OpClass, Phase
from foretell.predictors.scaledl.kernels import kernels_of

_GROUPED, _SMALL, _NARROWING, _USUAL = range(4)
_FACTORS = np.array([1.358, 0.783, 0.725, 0.823])
"""Time with channels last over time with channels first, as the compiler expects it."""
_MOST_NODES = 300
"""Of the compiler's graph for every convolution, beyond which it leaves the order alone."""
_NODES_PER_OPERATOR = 7
"""Views, parameters and parts included; 5.6 to 8.7 in five networks. Copies are one each."""
_FEW_CHANNELS = 64


def convolves_channels_last(step: Graph, *, on_cpu: bool) -> bool:
    """Whether a compiled step has channels last in all of its convolutions."""
    forward = step.op_kind[step.op_phase == Phase.FORWARD]
    sort = _sorts(step.kinds)[forward]
    is_convolution = sort >= 0
    count = int(is_convolution.sum())
    if not count:
        return False
    if on_cpu:
        return True
    copies = int((step.kinds.op_class[forward] == OpClass.COPY).sum())
    if _NODES_PER_OPERATOR * (len(forward) - copies) + copies >= _MOST_NODES * count:
        return False
    sort = sort[is_convolution]
    if len(forward) == len(step):
        flops = step.kind_flops[forward][is_convolution]
        return bool(flops @ _FACTORS[sort] <= flops.sum())
    return bool(not np.isin(sort, (_GROUPED, _NARROWING)).any() and (sort != _SMALL).any())


@functools.lru_cache(maxsize=512)
def _sorts(kinds: Kinds) -> np.ndarray:
    """The sort of convolution of every kind; -1 for other operators."""
    found = np.full(len(kinds), -1)
    for kernel in kernels_of(kinds).each:
        if kernel.name != "convolution" or kernel.weight is None:
            continue
        results, inputs, *window = kernel.weight.dims
        if kinds.attrs[kernel.kind, 1] > 1 and inputs > 1:
            sort = _GROUPED
        elif results <= _FEW_CHANNELS and inputs <= _FEW_CHANNELS:
            sort = _SMALL
        elif results * 2 <= inputs and window and window[0] > 1:
            sort = _NARROWING
        else:
            sort = _USUAL
        found[kernel.kind] = sort
    return found
