"""Run each meta kernel once per distinct call; afterwards make its outputs from notes.

Shape rules of many operators are Python code and cost a hundred microseconds; an empty meta
tensor costs three.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

Signature = tuple[Any, ...]


class Fresh(NamedTuple):
    """An output in memory of its own."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype


class Same(NamedTuple):
    """An output that is one of the inputs, as in-place operators return."""

    position: int


class Constant(NamedTuple):
    """An output that is not a tensor."""

    value: Any


class Plan:
    """How to make an operator's outputs again; `kind` is the caller's number for the call."""

    __slots__ = ("container", "items", "kind")

    def __init__(self, out: Any, inputs: list[torch.Tensor], kind: int) -> None:
        self.kind = kind
        self.container: type | None = type(out) if isinstance(out, (tuple, list)) else None
        outs = list(out) if self.container else [out]
        shared = {t.untyped_storage()._cdata for t in inputs}
        items = [_note(o, inputs, shared) for o in outs]
        self.items: list[Fresh | Same | Constant] | None = (
            None if any(i is None for i in items) else [i for i in items if i is not None]
        )

    def replay(self, func: Any, args: Any, kwargs: Any, inputs: list[torch.Tensor]) -> Any:
        """Outputs as the operator would give them for these inputs."""
        if self.items is None:
            return func(*args, **kwargs)
        outs = [_make(item, inputs) for item in self.items]
        return self.container(outs) if self.container else outs[0]


def signature(func: Any, args: Any, kwargs: Any, inputs: list[torch.Tensor]) -> Signature:
    """What the shape of the outputs depends on; tensors are collected into `inputs`."""
    key: list[Any] = [func]
    for arg in args:
        _encode(arg, key, inputs)
    for name, arg in kwargs.items():
        key.append(name)
        _encode(arg, key, inputs)
    return tuple(key)


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors of an operator's result, flattened."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in tensors_in(item)]
    return []


def _encode(arg: Any, key: list[Any], inputs: list[torch.Tensor]) -> None:
    if isinstance(arg, torch.Tensor):
        inputs.append(arg)
        key.extend((arg.shape, arg.stride(), arg.dtype, arg.is_meta))
    elif isinstance(arg, (tuple, list)):
        key.append(len(arg))
        for item in arg:
            _encode(item, key, inputs)
    else:
        # 1, 1.0 and True are equal as keys but promote types differently.
        key.extend((type(arg), arg))


def _note(out: Any, inputs: list[torch.Tensor], shared: set[int]) -> Fresh | Same | Constant | None:
    if isinstance(out, (tuple, list)):
        return None
    if not isinstance(out, torch.Tensor):
        return Constant(out)
    for position, tensor in enumerate(inputs):
        if tensor is out:
            return Same(position)
    if not out.is_meta or out.untyped_storage()._cdata in shared:
        return None
    return Fresh(tuple(out.shape), out.stride(), out.dtype)


def _make(item: Fresh | Same | Constant, inputs: list[torch.Tensor]) -> Any:
    if isinstance(item, Fresh):
        return torch.empty_strided(item.shape, item.stride, dtype=item.dtype, device="meta")
    return inputs[item.position] if isinstance(item, Same) else item.value
