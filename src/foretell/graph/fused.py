"""Operators that GPUs run as one kernel and the meta device does not.

Attention, RMSNorm, recurrent layers, SwiGLU, and cross entropy that overwrites its logits.

Each is a shape-only operator in the `foretell` namespace with an autograd rule, so that a
recorder sees one forward and one backward operator with the right inputs, outputs and saved
tensors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

_LIBRARY = torch.library.Library("foretell", "FRAGMENT")
_LIBRARY.define(
    "attention(Tensor q, Tensor k, Tensor v, Tensor? mask, bool causal) -> (Tensor, Tensor)"
)
_LIBRARY.define(
    "attention_backward(Tensor q, Tensor k, Tensor v, Tensor? mask, Tensor out, Tensor lse, "
    "Tensor grad, bool causal, bool mask_grad) -> (Tensor, Tensor, Tensor, Tensor)"
)
_LIBRARY.define("rms_norm(Tensor x, Tensor? weight, int axes) -> (Tensor, Tensor)")
_LIBRARY.define(
    "rms_norm_backward(Tensor grad, Tensor x, Tensor rstd, Tensor? weight) -> (Tensor, Tensor)"
)
_LIBRARY.define("rnn(Tensor x, Tensor[] weights, Tensor[] states, int width) -> (Tensor, Tensor)")
_LIBRARY.define(
    "rnn_backward(Tensor x, Tensor[] weights, Tensor reserve, Tensor grad) -> (Tensor, Tensor[])"
)
_LIBRARY.define("cross_entropy_(Tensor(a!) logits, Tensor target) -> Tensor")
_LIBRARY.define(
    "cross_entropy_backward_(Tensor(a!) softmax, Tensor target, Tensor grad) -> Tensor(a!)"
)
_LIBRARY.define("swiglu(Tensor gate, Tensor value) -> Tensor")
_LIBRARY.define("swiglu_backward(Tensor grad, Tensor gate, Tensor value) -> (Tensor, Tensor)")


def _attention_meta(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    out = (
        _dense_like(q) if v.shape[-1] == q.shape[-1] else q.new_empty((*q.shape[:-1], v.shape[-1]))
    )
    return out, q.new_empty(q.shape[:-1], dtype=torch.float32)


def _attention_backward_meta(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: torch.Tensor | None,
    out: torch.Tensor,
    lse: torch.Tensor,
    grad: torch.Tensor,
    causal: bool,
    mask_grad: bool,
) -> tuple[torch.Tensor, ...]:
    grad_mask = torch.empty_like(mask) if mask_grad and mask is not None else q.new_empty(0)
    return _dense_like(q), _dense_like(k), _dense_like(v), grad_mask


def _dense_like(x: torch.Tensor) -> torch.Tensor:
    """Memory in the order of x's strides but without its gaps, as attention kernels write it."""
    return torch.empty_like(x, memory_format=torch.preserve_format)


def _rms_norm_meta(
    x: torch.Tensor, weight: torch.Tensor | None, axes: int
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), x.new_empty((*x.shape[:-axes], 1), dtype=torch.float32)


def _rms_norm_backward_meta(
    grad: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, weight: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(x), x.new_empty(0) if weight is None else torch.empty_like(weight)


def _rnn_meta(
    x: torch.Tensor, weights: list[torch.Tensor], states: list[torch.Tensor], width: int
) -> tuple[torch.Tensor, torch.Tensor]:
    # The reserve keeps gate activations of every layer for backward, as cuDNN's does.
    out = x.new_empty((*x.shape[:-1], width))
    gates = sum(w.shape[0] for w in weights if w.dim() == 2) // 2
    return out, x.new_empty((*x.shape[:-1], gates))


def _rnn_backward_meta(
    x: torch.Tensor, weights: list[torch.Tensor], reserve: torch.Tensor, grad: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return torch.empty_like(x), [torch.empty_like(w) for w in weights]


def _cross_entropy_meta(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return logits.new_empty(logits.shape[:-1])


def _cross_entropy_backward_meta(
    softmax: torch.Tensor, target: torch.Tensor, grad: torch.Tensor
) -> torch.Tensor:
    return softmax


def _swiglu_meta(gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return gate.new_empty(gate.shape)


def _swiglu_backward_meta(
    grad: torch.Tensor, gate: torch.Tensor, value: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return gate.new_empty(gate.shape), value.new_empty(value.shape)


for _name, _kernel in {
    "attention": _attention_meta,
    "attention_backward": _attention_backward_meta,
    "rms_norm": _rms_norm_meta,
    "rms_norm_backward": _rms_norm_backward_meta,
    "rnn": _rnn_meta,
    "rnn_backward": _rnn_backward_meta,
    "cross_entropy_": _cross_entropy_meta,
    "cross_entropy_backward_": _cross_entropy_backward_meta,
    "swiglu": _swiglu_meta,
    "swiglu_backward": _swiglu_backward_meta,
}.items():
    _LIBRARY.impl(_name, _kernel, "Meta")


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, mask: Any, causal: bool) -> Any:
        out, lse = torch.ops.foretell.attention(q, k, v, mask, causal)
        ctx.save_for_backward(q, k, v, mask, out, lse)
        ctx.causal = causal
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        q, k, v, mask, out, lse = ctx.saved_tensors
        wants_mask = bool(ctx.needs_input_grad[3])
        dq, dk, dv, dmask = torch.ops.foretell.attention_backward(
            q, k, v, mask, out, lse, grads[0], ctx.causal, wants_mask
        )
        return dq, dk, dv, dmask if wants_mask else None, None


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """scaled_dot_product_attention as one operator (dropout happens inside the kernel)."""
    leading = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    query, key, value = (
        t if t.shape[:-3] == leading else t.expand(*leading, *t.shape[-3:])
        for t in (query, key, value)
    )
    result: torch.Tensor = _Attention.apply(  # type: ignore[no-untyped-call]
        query, key, value, attn_mask, is_causal
    )
    return result


def has_fused_attention(query: torch.Tensor, key: torch.Tensor, *_: Any, **__: Any) -> bool:
    """Whether there is a kernel for it: for one dimension of heads and one of samples."""
    return query.dim() == key.dim() == 4


def attention_in_fp32(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """What PyTorch does where no kernel is fused: every part by itself, and in full precision."""
    q, k, v = (t.to(torch.float32) for t in (query, key, value))
    return attention_spelled_out(q, k, v, *args, **kwargs).to(query.dtype)


def attention_spelled_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """The same as separate matrix products and a softmax, as before fused kernels existed."""
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = (t.repeat_interleave(repeats, -3) for t in (key, value))
    scores = query * (scale or 1.0 / math.sqrt(query.shape[-1])) @ key.transpose(-2, -1)
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, float("-inf"))
    elif attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        else:
            scores = scores + attn_mask
    weights = scores.softmax(-1)
    if dropout_p > 0.0:
        weights = torch.native_dropout(weights, dropout_p, True)[0]
    return weights.to(value.dtype) @ value


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, axes: int) -> Any:
        out, rstd = torch.ops.foretell.rms_norm(x, weight, axes)
        ctx.save_for_backward(x, rstd, weight)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, rstd, weight = ctx.saved_tensors
        dx, dweight = torch.ops.foretell.rms_norm_backward(grads[0], x, rstd, weight)
        return dx, None if weight is None else dweight, None


def rms_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    eps: float | None = None,
) -> torch.Tensor:
    """torch's rms_norm as one operator, which it is on GPUs."""
    result: torch.Tensor = _RmsNorm.apply(  # type: ignore[no-untyped-call]
        input, weight, len(normalized_shape)
    )
    return result


class _Recurrent(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, width: int, layers: int, states: Any, *weights: Any) -> Any:
        ctx.set_materialize_grads(False)
        out, reserve = torch.ops.foretell.rnn(x, list(weights), list(states), width)
        ctx.save_for_backward(x, reserve, *weights)
        ctx.width = width
        finals = [s.new_empty((layers, *s.shape[1:]), dtype=x.dtype) for s in states]
        return (out, *finals)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, reserve, *weights = ctx.saved_tensors
        grad = grads[0] if grads[0] is not None else x.new_empty((*x.shape[:-1], ctx.width))
        dx, dweights = torch.ops.foretell.rnn_backward(x, list(weights), reserve, grad)
        return dx, None, None, None, *dweights


def recurrent(
    name: str, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """torch's lstm/gru/rnn_tanh/rnn_relu on plain (not packed) input as one operator."""
    if kwargs or len(args) != 9 or not isinstance(args[2], (list, tuple)):
        return original(*args, **kwargs)
    x, state, weights, _, layers, _, _, bidirectional, batch_first = args
    states = list(state) if isinstance(state, (list, tuple)) else [state]
    directions = 2 if bidirectional else 1
    width = states[0].shape[-1] * directions
    weights = [w.to(x.dtype) for w in weights]
    out, *finals = _Recurrent.apply(  # type: ignore[no-untyped-call]
        x.transpose(0, 1) if batch_first else x, width, layers * directions, states, *weights
    )
    return (out.transpose(0, 1) if batch_first else out, *finals)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Any, target: Any) -> Any:
        loss = torch.ops.foretell.cross_entropy_(logits, target)
        ctx.save_for_backward(logits, target)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        softmax, target = ctx.saved_tensors
        return torch.ops.foretell.cross_entropy_backward_(softmax, target, grads[0]), None


def cross_entropy(logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Loss per row; the logits become the softmax and then their own gradient, as in Megatron."""
    result: torch.Tensor = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        logits, target
    )
    return result


class _SwiGlu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Any, value: Any) -> Any:
        ctx.save_for_backward(gate, value)
        return torch.ops.foretell.swiglu(gate, value)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return torch.ops.foretell.swiglu_backward(grads[0], *ctx.saved_tensors)


def swiglu(gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """silu(gate) * value as one operator that saves its inputs only."""
    result: torch.Tensor = _SwiGlu.apply(  # type: ignore[no-untyped-call]
        gate, value
    )
    return result
