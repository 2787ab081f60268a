"""Values of tensors that depend on no data: positions, masks, index grids.

A meta tensor has no values, yet models branch on them ("is any position masked?"). Where a tensor
was made from sizes alone its values are facts, so a small real copy follows it through the
operators. Questions about real data have no answer here and get a neutral one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_MAX_ELEMENTS = 1 << 16
_ATTRIBUTE = "_foretell_known"
_FACTORIES = frozenset(
    ("arange zeros ones full scalar_tensor eye linspace tril_indices triu_indices").split()
)
_NEVER = ("rand", "bernoulli", "normal", "uniform", "multinomial", "dropout", "empty", "random")


def value_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """The real copy that follows a meta tensor, if there is one."""
    if not tensor.is_meta:
        return tensor if tensor.numel() <= _MAX_ELEMENTS else None
    return getattr(tensor, _ATTRIBUTE, None)


def follow(
    name: str, func: Any, args: Any, kwargs: Any, inputs: list[torch.Tensor], out: Any
) -> None:
    """Give `out` its real values when those of all inputs are known."""
    if not isinstance(out, torch.Tensor) or not out.is_meta or out.numel() > _MAX_ELEMENTS:
        return
    if not inputs and name not in _FACTORIES:
        return
    if any(value_of(t) is None for t in inputs) or name.startswith(_NEVER):
        _forget_written(name, args)
        return
    values = evaluate(func, args, kwargs)
    if isinstance(values, torch.Tensor) and values.shape == out.shape:
        setattr(out, _ATTRIBUTE, values)


def evaluate(func: Any, args: Any, kwargs: Any) -> Any:
    """The operator on real values, on the CPU; None when it cannot run there."""
    real = _replace(args, _real), _replace(kwargs, _real)
    if "device" in real[1]:
        real[1]["device"] = torch.device("cpu")
    try:
        return func(*real[0], **real[1])
    except (RuntimeError, NotImplementedError, IndexError):
        return None


def scalar_of(tensor: torch.Tensor) -> bool | int | float | None:
    """The number in a tensor of one element, where it is known."""
    value = value_of(tensor)
    if value is None or value.numel() != 1:
        return None
    number: bool | int | float = value.item()
    return number


def assumed_scalar(tensor: torch.Tensor) -> bool | int | float:
    """What reading an unknown number answers: nothing is there, so no."""
    if tensor.dtype == torch.bool:
        return False
    return 0.0 if tensor.is_floating_point() else 0


def _forget_written(name: str, args: Any) -> None:
    """An in-place operator with unknown operands makes its target unknown."""
    target = args[0] if args else None
    if name.endswith("_") and isinstance(target, torch.Tensor) and hasattr(target, _ATTRIBUTE):
        delattr(target, _ATTRIBUTE)


def _real(tensor: torch.Tensor) -> Any:
    return value_of(tensor)


def _replace(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)(_replace(v, change) for v in value)
    if isinstance(value, dict):
        return {k: _replace(v, change) for k, v in value.items()}
    return value
