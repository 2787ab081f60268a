"""A captured model made real: weights and inputs with numbers in them, on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from foretell.graph.capture import Subject
from foretell.workload import Recipe

_IDS = 64
_SPREAD = 0.02
_LOW = {"bf16": torch.bfloat16, "fp16": torch.float16}


def real_module(subject: Subject, recipe: Recipe, device: torch.device, seed: int = 0) -> nn.Module:
    """The model with small random weights, the same for the same seed."""
    module = subject.module
    tied = _ties(module)
    module = module.to_empty(device=device)
    for owner, name, first_owner, first_name in tied:
        setattr(owner, name, getattr(first_owner, first_name))
    torch.manual_seed(seed)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            _fill(tensor)
        for name, buffer in module.named_buffers():
            if name.endswith("running_var"):
                buffer.fill_(1.0)
    if recipe.precision in _LOW:
        module.to(_LOW[recipe.precision])
    if recipe.channels_last:
        module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return module.train(recipe.training)


def real_inputs(
    subject: Subject, recipe: Recipe, device: torch.device, batch: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the module is called with; token ids are small, masks let everything through."""
    with torch.device("meta"):
        args, kwargs = subject.call(batch, training=recipe.training)

    def real(value: Any, name: str = "") -> Any:
        if isinstance(value, torch.Tensor):
            return _real_tensor(value, name, recipe, device)
        if isinstance(value, Mapping):
            return {k: real(v, str(k)) for k, v in value.items()}
        if isinstance(value, (tuple, list)):
            return type(value)(real(v, name) for v in value)
        return value

    return tuple(real(a) for a in args), {k: real(v, k) for k, v in kwargs.items()}


def _real_tensor(
    like: torch.Tensor, name: str, recipe: Recipe, device: torch.device
) -> torch.Tensor:
    if "mask" in name:
        return torch.ones(like.shape, dtype=like.dtype, device=device)
    if not like.is_floating_point():
        most = 1 if "type" in name else _IDS
        return torch.randint(0, most, like.shape, device=device).to(like.dtype)
    value = torch.randn(like.shape, device=device, dtype=_LOW.get(recipe.precision, like.dtype))
    if recipe.channels_last and value.dim() == 4:
        value = value.contiguous(memory_format=torch.channels_last)
    return value.requires_grad_(like.requires_grad and recipe.training)


def _fill(tensor: torch.Tensor) -> None:
    if tensor.is_floating_point():
        tensor.normal_(0, _SPREAD)
    elif tensor.is_complex():
        tensor.real.normal_(0, _SPREAD)
        tensor.imag.zero_()
    else:
        tensor.zero_()


def _ties(module: nn.Module) -> list[tuple[nn.Module, str, nn.Module, str]]:
    """Parameters that two modules share: (module, name, the first module that has it, name)."""
    first: dict[int, tuple[nn.Module, str]] = {}
    ties = []
    for owner in module.modules():
        for name, parameter in owner.named_parameters(recurse=False):
            known = first.setdefault(id(parameter), (owner, name))
            if known != (owner, name):
                ties.append((owner, name, *known))
    return ties


def loss_of(subject: Subject) -> Callable[[Any], torch.Tensor]:
    """The model's own loss, or the usual one."""
    from foretell.graph.loss import default_loss

    return subject.loss or default_loss
