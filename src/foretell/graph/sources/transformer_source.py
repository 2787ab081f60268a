"""transformer:layers=24,hidden=1024,...: GPT, Llama and mixture-of-experts models from numbers.

For models that exist only as a table row. Plain PyTorch modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from foretell.errors import InputError
from foretell.graph import fused
from foretell.graph.capture import Subject
from foretell.graph.hints import reason_of
from foretell.graph.loss import class_targets
from foretell.graph.sources.transformer_shape import TransformerShape, parse_transformer

_DROPOUT = 0.1


def build_transformer(text: str, *, seq: int | None = None) -> Subject:
    """A parametric transformer with next-token loss, ready to capture."""
    shape = parse_transformer(text)
    length = shape.seq if seq is None else seq
    try:
        with torch.device("meta"):
            module = Transformer(shape, max(length, shape.seq))
    except (RuntimeError, TypeError, OverflowError) as error:
        raise InputError(
            f"transformer:{text} cannot be built ({reason_of(error)}): use smaller sizes"
        ) from error

    def inputs(batch: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (torch.empty((batch, length), dtype=torch.int64),), {}

    def loss(logits: Any) -> torch.Tensor:
        target = class_targets(logits.shape[:2], logits.device)
        rows = logits.flatten(0, 1).float()
        if shape.fused_loss:
            return fused.cross_entropy(rows, target.flatten()).mean()
        return F.cross_entropy(rows, target.flatten())

    return Subject(
        module=module,
        inputs=inputs,
        loss=loss,
        meta={"source": f"transformer:{text}", "seq": length, "sample": "sequence"},
    )


class Transformer(nn.Module):
    """Embedding, blocks, final norm, output matrix."""

    def __init__(self, shape: TransformerShape, max_seq: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(shape.vocab, shape.hidden)
        self.positions = None if shape.rope else nn.Embedding(max_seq, shape.hidden)
        self.drop = nn.Dropout(_DROPOUT) if shape.dropout else None
        self.layers = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = _norm(shape)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        if shape.tied:
            self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        if self.positions is not None:
            x = x + self.positions(torch.arange(ids.shape[1], device=ids.device))
        x = x if self.drop is None else self.drop(x)
        for layer in self.layers:
            x = layer(x)
        result: torch.Tensor = self.head(self.norm(x))
        return result


class Block(nn.Module):
    """Pre-norm attention and feed-forward with residuals."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.attention_norm = _norm(shape)
        self.attention = Attention(shape)
        self.mlp_norm = _norm(shape)
        self.mlp: nn.Module = Experts(shape) if shape.experts else FeedForward(shape)
        self.drop = nn.Dropout(_DROPOUT) if shape.dropout else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self._dropped(self.attention(self.attention_norm(x)))
        return x + self._dropped(self.mlp(self.mlp_norm(x)))

    def _dropped(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.drop is None else self.drop(x)


class Attention(nn.Module):
    """Causal self-attention, grouped-query when kv_heads < heads."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads or shape.heads
        self.width = shape.hidden // shape.heads
        self.rope, self.causal = shape.rope, not shape.encoder
        self.dropout = _DROPOUT if shape.dropout else 0.0
        qkv = (self.heads + 2 * self.kv_heads) * self.width
        self.qkv = nn.Linear(shape.hidden, qkv, bias=shape.bias)
        self.out = nn.Linear(shape.hidden, shape.hidden, bias=shape.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        sizes = [h * self.width for h in (self.heads, self.kv_heads, self.kv_heads)]
        q, k, v = (
            part.unflatten(-1, (-1, self.width)).transpose(1, 2)
            for part in self.qkv(x).split(sizes, -1)
        )
        if self.rope:
            q, k = _rotate(q), _rotate(k)
        grouped = self.heads != self.kv_heads
        y = F.scaled_dot_product_attention(
            q,
            k,
            v,
            dropout_p=self.dropout if self.training else 0.0,
            is_causal=self.causal,
            enable_gqa=grouped,
        )
        result: torch.Tensor = self.out(y.transpose(1, 2).reshape(batch, length, -1))
        return result


class FeedForward(nn.Module):
    """Two matrices with GELU, or three with a SiLU gate."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.gate_by = _gating(shape)
        self.up = nn.Linear(shape.hidden, shape.ffn_width, bias=shape.bias)
        self.gate = (
            nn.Linear(shape.hidden, shape.ffn_width, bias=shape.bias) if shape.gated else None
        )
        self.down = nn.Linear(shape.ffn_width, shape.hidden, bias=shape.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.up(x)
        y = self.gate_by(self.gate(x), y) if self.gate is not None else F.gelu(y)
        result: torch.Tensor = self.down(y)
        return result


class Experts(nn.Module):
    """Top-k routing to experts, each token's copies evenly spread (grouped matrix products)."""

    def __init__(self, shape: TransformerShape) -> None:
        super().__init__()
        self.experts, self.topk, self.gated = shape.experts, shape.topk, shape.gated
        self.gate_by = _gating(shape)
        self.router = nn.Linear(shape.hidden, shape.experts, bias=False)
        width = shape.ffn_width * (2 if shape.gated else 1)
        self.up = nn.Parameter(torch.empty(shape.experts, shape.hidden, width))
        self.down = nn.Parameter(torch.empty(shape.experts, shape.ffn_width, shape.hidden))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = self.router(tokens).softmax(-1).topk(self.topk, -1)
        order = chosen.flatten().argsort()
        ends = torch.empty(self.experts, dtype=torch.int32, device=x.device)
        copies = tokens[order // self.topk]
        y = _grouped(copies, self.up, ends)
        if self.gated:
            gate, value = y.chunk(2, -1)
            y = self.gate_by(gate, value)
        else:
            y = F.gelu(y)
        y = _grouped(y, self.down, ends) * weights.flatten()[order].unsqueeze(-1).to(y.dtype)
        mixed = torch.zeros_like(tokens).index_add(0, order // self.topk, y.to(tokens.dtype))
        return mixed.view_as(x)


def _grouped(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """[tokens, k] times each token's expert's [k, n]; torch's kernel takes bfloat16 only."""
    kept = x.dtype
    low = torch.bfloat16
    result: torch.Tensor = torch._grouped_mm(x.to(low), weight.to(low), offs=ends).to(kept)
    return result


def _gating(shape: TransformerShape) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return fused.swiglu if shape.fused_gate else _gated


def _gated(gate: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * value


def _norm(shape: TransformerShape) -> nn.Module:
    return nn.RMSNorm(shape.hidden) if shape.rmsnorm else nn.LayerNorm(shape.hidden)


def _rotate(x: torch.Tensor) -> torch.Tensor:
    """Rotary positions in the half-split form."""
    length, width = x.shape[-2], x.shape[-1]
    cos = torch.empty(length, width, device=x.device, dtype=x.dtype)
    sin = torch.empty_like(cos)
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin
