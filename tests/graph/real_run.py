"""What a real CPU run does, in the terms of a Graph: the other side of the truth tests."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import conv_flop_count, flop_registry

from foretell.graph import Graph

Key = tuple[str, tuple[tuple[int, ...], ...]]

_FREE = frozenset(
    (
        "detach alias lift_fresh _unsafe_view _reshape_alias empty empty_like new_empty "
        "empty_strided new_empty_strided _local_scalar_dense"
    ).split()
)
_SAME = {
    "_scaled_dot_product_flash_attention_for_cpu": "attention",
    "_scaled_dot_product_flash_attention_for_cpu_backward": "attention_backward",
    "_native_batch_norm_legit": "native_batch_norm",
}


class RealRun(TorchDispatchMode):
    """Counts (operator, input shapes) of everything that runs a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[Key] = Counter()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[-1]
        if not func.is_view and name not in _FREE:
            self.calls[comparable(name, shapes_of((args, list((kwargs or {}).values()))))] += 1
            rule = flop_registry.get(func._overloadpacket)
            if name == "convolution_backward":
                # torch's own rule for the weight gradient forgets the groups
                grad, x, w, transposed, wanted = *args[:3], args[7], args[10]
                once = conv_flop_count(x.shape, w.shape, grad.shape, transposed)
                self.flops += once * sum(wanted[:2])
            elif rule is not None and "attention" not in name:
                self.flops += rule(*args, **(kwargs or {}), out_val=out)
        return out


def run_for_real(
    module: torch.nn.Module,
    inputs: tuple[list[Any], dict[str, Any]],
    loss: Callable[[Any], torch.Tensor] | None,
) -> RealRun:
    """One step on CPU with real numbers; `loss` None means inference."""
    record = RealRun()
    grad = torch.enable_grad() if loss is not None else torch.no_grad()
    with grad, record, contextlib.suppress(StopIteration):
        out = module(*inputs[0], **inputs[1])
        if loss is not None:
            loss(out).backward()
    return record


def graph_calls(graph: Graph) -> Counter[Key]:
    """The same count from a captured graph."""
    calls: Counter[Key] = Counter()
    for kind, count in enumerate(graph.kind_counts):
        name = graph.kinds.name[kind]
        calls[comparable(name, graph.shapes(kind, outputs=False))] += int(count)
    return calls


def comparable(name: str, shapes: list[tuple[int, ...]]) -> Key:
    """One name and shape list for what CPU and GPU spell differently."""
    # CPU's attention takes its gradient first and other auxiliary tensors last.
    first = 1 if name == "_scaled_dot_product_flash_attention_for_cpu_backward" else 0
    name = _SAME.get(name, name)
    if name.startswith("attention"):
        shapes = shapes[first : first + 3]
    if name.startswith("native_batch_norm") or name == "native_batch_norm_backward":
        shapes = shapes[:1]
    return name.rstrip("_"), tuple(shapes)


def shapes_of(value: Any) -> list[tuple[int, ...]]:
    """Shapes of all tensors in nested arguments, in order."""
    if isinstance(value, torch.Tensor):
        return [tuple(value.shape)]
    if isinstance(value, (tuple, list)):
        return [s for item in value for s in shapes_of(item)]
    return []
