"""A copy of a user's module on the meta device; the original is never touched."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from foretell.errors import CaptureError
from foretell.graph.hints import reason_of


def meta_copy(module: torch.nn.Module) -> torch.nn.Module:
    """The module with shape-only parameters and buffers, its ties intact."""
    memo: dict[int, Any] = {}
    for path, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_lazy(tensor):
            raise CaptureError(
                f"{path!r} belongs to a lazy layer and has no size yet: give the layer its sizes, "
                "or run the model once on real inputs first"
            )
        shape_only = torch.empty_like(tensor.detach(), device="meta")
        memo[id(tensor)] = (
            torch.nn.Parameter(shape_only, tensor.requires_grad)
            if isinstance(tensor, torch.nn.Parameter)
            else shape_only
        )
    for tensor in _results_kept(module):
        memo.setdefault(id(tensor), torch.empty_like(tensor.detach(), device="meta"))
    try:
        return copy.deepcopy(module, memo)
    except Exception as error:
        raise CaptureError(
            f"{type(module).__name__} cannot be copied by copy.deepcopy ({reason_of(error)}), and "
            "capturing works on a copy: keep locks, generators and open files out of the module's "
            "attributes"
        ) from error


def _results_kept(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Tensors in attributes that carry gradients, as weight_norm keeps: they refuse copying."""
    for part in module.modules():
        for value in vars(part).values():
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                yield value
