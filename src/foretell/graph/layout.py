"""In which order tensors lie in memory, as far as it decides how fast a kernel is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from foretell.graph.ops import OpClass

_CHANNELS_MATTER = frozenset((OpClass.CONV, OpClass.NORM, OpClass.POOL, OpClass.RESAMPLE))
_ORDER_MATTERS = frozenset(
    (
        OpClass.NORM,
        OpClass.SOFTMAX,
        OpClass.ELEMENTWISE,
        OpClass.REDUCTION,
        OpClass.POOL,
        OpClass.COPY,
        OpClass.RESAMPLE,
    )
)


class Layout(NamedTuple):
    """What of the order counts for a kernel."""

    channels_last: bool = False
    """Its input has channels innermost."""
    permuted: bool = False
    """Its largest tensors lie in different orders, so some are walked with gaps."""
    sliced: bool = False
    """Its largest input is part of a larger tensor."""


def in_order_of_gpu(name: str, inputs: Sequence[torch.Tensor], out: Any) -> Any:
    """Results of a convolution in the order a GPU gives them; the shape rule knows one order only.

    Channels come last if they do in the input or in the weight; norms over groups of channels put
    them first again.
    """
    if name in ("native_group_norm", "native_group_norm_backward"):
        first, *others = out
        return (first if first is None else first.contiguous(), *others)
    if name == "convolution" and out.dim() == 4 and any(map(_has_channels_last, inputs[:2])):
        return out.contiguous(memory_format=torch.channels_last)
    if name == "convolution_backward" and any(map(_has_channels_last, inputs[:3])):
        to_input, *others = out
        if to_input is not None and to_input.dim() == 4:
            to_input = to_input.contiguous(memory_format=torch.channels_last)
        return (to_input, *others)
    return out


def _has_channels_last(tensor: torch.Tensor) -> bool:
    """By the steps between elements alone, as PyTorch decides: parts of larger tensors count."""
    if tensor.dim() != 4 or tensor.stride(1) == 0:
        return False
    least = 0
    for axis in (1, 3, 2, 0):
        size, step = tensor.shape[axis], tensor.stride(axis)
        if not size or step < least or (axis == 0 and least == tensor.stride(1)):
            return False
        least = step * max(size, 1)
    return True


def layout_of(
    op_class: OpClass, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> Layout:
    """The layout of a call."""
    channels_last = op_class in _CHANNELS_MATTER and any(map(_has_channels_last, inputs[:1]))
    if op_class is OpClass.CONV:
        asked = channels_last or any(map(_has_channels_last, inputs[1:3]))
        return Layout(asked, permuted=asked and not channels_last)
    if op_class not in _ORDER_MATTERS:
        return Layout(channels_last)
    size = max((t.numel() for t in (*inputs, *outputs)), default=0)
    large = [t for t in inputs if t.numel() == size]
    orders = {_order(t) for t in (*large, *(t for t in outputs if t.numel() == size))}
    sliced = any(not _is_whole(t) for t in large)
    return Layout(channels_last, len(orders) > 1, sliced)


def _order(tensor: torch.Tensor) -> tuple[int, ...]:
    """Dimensions from the outermost in memory to the innermost, but those of size one."""
    steps = [(-step, i) for i, (n, step) in enumerate(_walked(tensor)) if n > 1]
    return tuple(i for _, i in sorted(steps))


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether its elements fill their part of memory; what is spread by expanding is left out."""
    expected = 1
    for size, step in sorted(_walked(tensor), key=lambda each: each[1]):
        if size == 1 or step == 0:
            continue
        if step != expected:
            return False
        expected *= size
    return True


def _walked(tensor: torch.Tensor) -> list[tuple[int, int]]:
    return list(zip(tensor.shape, tensor.stride(), strict=True))
