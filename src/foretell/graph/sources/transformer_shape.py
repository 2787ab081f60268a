"""transformer:layers=24,hidden=1024,...: the numbers that define a transformer, without torch.

layers, hidden, heads, seq, vocab   required sizes
ffn=4*hidden                        width of the feed-forward block
kv_heads=heads                      fewer: grouped-query attention
gated                               gated (SwiGLU) feed-forward, three matrices
rmsnorm                             RMSNorm instead of LayerNorm
rope                                rotary positions instead of learned ones
experts=, topk=2                    mixture of experts in every layer
tied                                output matrix shared with the embedding
nobias                              linear layers without bias (implied by rmsnorm)
encoder                             bidirectional attention (BERT-like)
dropout                             dropout of attention weights and block outputs in training
fused_gate                          gated activation as one operator that saves its inputs only
fused_loss                          cross entropy as one in-place operator over fp32 logits
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from foretell.errors import InputError, UnknownNameError


@dataclass(frozen=True, kw_only=True)
class TransformerShape:
    """The numbers that define a decoder-only transformer."""

    layers: int
    hidden: int
    heads: int
    seq: int
    vocab: int
    ffn: int = 0
    kv_heads: int = 0
    experts: int = 0
    topk: int = 2
    gated: bool = False
    rmsnorm: bool = False
    rope: bool = False
    tied: bool = False
    nobias: bool = False
    encoder: bool = False
    dropout: bool = False
    fused_gate: bool = False
    fused_loss: bool = False

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "seq", "vocab", "topk"):
            if getattr(self, name) < 1:
                raise InputError(f"transformer: {name}={getattr(self, name)} must be at least 1")
        if self.hidden % self.heads:
            raise InputError(
                f"transformer: hidden={self.hidden} is not divisible by heads={self.heads}"
            )
        if self.heads % (self.kv_heads or self.heads):
            raise InputError(
                f"transformer: heads={self.heads} is not divisible by kv_heads={self.kv_heads}"
            )
        if self.fused_gate and not self.gated:
            raise InputError("transformer: fused_gate goes with gated: add gated")
        if self.experts and self.topk > self.experts:
            raise InputError(f"transformer: topk={self.topk} exceeds experts={self.experts}")
        if self.rope and self.hidden // self.heads % 2:
            raise InputError(
                f"transformer: rope turns pairs, and hidden/heads={self.hidden // self.heads} is "
                "odd: choose other sizes"
            )

    @property
    def ffn_width(self) -> int:
        """Width of the feed-forward block."""
        return self.ffn or 4 * self.hidden

    @property
    def bias(self) -> bool:
        """Whether linear layers have a bias."""
        return not (self.nobias or self.rmsnorm)


def parse_transformer(text: str) -> TransformerShape:
    """The part after 'transformer:' -> shape."""
    known = {f.name: f for f in fields(TransformerShape)}
    values: dict[str, Any] = {}
    for part in text.split(","):
        name, equals, value = (p.strip() for p in part.partition("="))
        if not name:
            raise InputError(f"transformer:{text} has an empty option: remove the extra comma")
        if name not in known:
            raise UnknownNameError(
                "transformer option", name, known, f"the options are {', '.join(known)}"
            )
        if name in values:
            raise InputError(f"transformer: {name} is given twice: keep one of them")
        is_flag = known[name].type == "bool"
        values[name] = _flag(name, equals + value) if is_flag else _number(name, value)
    if "topk" in values and not values.get("experts"):
        raise InputError("transformer: topk goes with experts: add experts=<whole number>")
    missing = [n for n in ("layers", "hidden", "heads", "seq", "vocab") if n not in values]
    if missing:
        raise InputError(
            f"transformer:{text} lacks {', '.join(missing)}: write "
            "transformer:layers=24,hidden=1024,heads=16,seq=1024,vocab=50304"
        )
    return TransformerShape(**values)


def _flag(name: str, text: str) -> bool:
    if text in ("", "=1", "=true", "=yes"):
        return True
    if text in ("=0", "=false", "=no"):
        return False
    raise InputError(f"transformer: {name}{text} is not understood: write {name}, or {name}=0")


def _number(name: str, text: str) -> int:
    if text.isascii() and text.isdecimal():
        return int(text)
    raise InputError(f"transformer: {name}={text} is not understood: write {name}=<whole number>")
