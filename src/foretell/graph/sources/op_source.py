"""op:NAME,size=..,...: a single operator as a module, to be captured and measured like a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from foretell.errors import InputError
from foretell.graph.capture import Subject
from foretell.graph.hints import reason_of
from foretell.graph.loss import class_targets
from foretell.graph.sources.op_shape import parse_op

_Tensors = tuple[torch.Tensor, ...]
_Sizes = Mapping[str, int]
_Maker = Callable[[_Sizes], tuple[nn.Module, Callable[[int], _Tensors]]]


def build_op(text: str) -> Subject:
    """The operator, with inputs that ask for gradients so that its backward runs too."""
    shape = parse_op(text)
    try:
        with torch.device("meta"):
            module, inputs = _MAKERS[shape.name](shape.sizes)
    except (RuntimeError, TypeError, OverflowError, ValueError) as error:
        raise InputError(
            f"op:{text} cannot be built ({reason_of(error)}): use other sizes"
        ) from error

    def example(batch: int) -> tuple[_Tensors, dict[str, Any]]:
        tensors = inputs(batch)
        return tuple(t.requires_grad_(t.is_floating_point()) for t in tensors), {}

    meta = {"source": f"op:{shape.text}", "sample": "sample"}
    return Subject(module=module, inputs=example, loss=torch.sum, meta=meta)


class _Call(nn.Module):
    """A function as a module without weights."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args)


class _Recurrent(nn.Module):
    def __init__(self, kind: type[nn.LSTM] | type[nn.GRU], sizes: _Sizes) -> None:
        super().__init__()
        self.layers = kind(sizes["in"], sizes["hidden"], sizes["layers"], batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.layers(x)[0]
        return result


class _Parameters(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x.sum()


def _rows(sizes: _Sizes) -> Callable[[int], _Tensors]:
    return lambda batch: (torch.empty(batch, sizes.get("width") or sizes["in"]),)


def _images(sizes: _Sizes) -> Callable[[int], _Tensors]:
    channels = sizes.get("channels") or sizes["in"]
    return lambda batch: (torch.empty(batch, channels, sizes["size"], sizes["size"]),)


def _function(function: Callable[..., torch.Tensor], operands: int = 1) -> _Maker:
    return lambda s: (
        _Call(function),
        lambda batch: tuple(_rows(s)(batch)[0] for _ in [0] * operands),
    )


def _linear(s: _Sizes) -> tuple[nn.Module, Callable[[int], _Tensors]]:
    return nn.Linear(s["in"], s["out"], bias=False), _rows(s)


def _bmm(s: _Sizes) -> tuple[nn.Module, Callable[[int], _Tensors]]:
    def inputs(batch: int) -> _Tensors:
        return torch.empty(batch, s["m"], s["k"]), torch.empty(batch, s["k"], s["n"])

    return _Call(torch.bmm), inputs


def _conv2d(s: _Sizes) -> tuple[nn.Module, Callable[[int], _Tensors]]:
    layer = nn.Conv2d(
        s["in"],
        s["out"],
        s["kernel"],
        s["stride"],
        padding=s["kernel"] // 2,
        groups=s["groups"],
        bias=False,
    )
    return layer, _images(s)


def _attention(s: _Sizes) -> tuple[nn.Module, Callable[[int], _Tensors]]:
    kv_heads = s["kv_heads"] or s["heads"]

    def run(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        fewer = kv_heads != s["heads"]
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=bool(s["causal"]), enable_gqa=fewer
        )

    def inputs(batch: int) -> _Tensors:
        heads = (s["heads"], kv_heads, kv_heads)
        return tuple(torch.empty(batch, h, s["seq"], s["dim"]) for h in heads)

    return _Call(run), inputs


def _embedding(s: _Sizes) -> tuple[nn.Module, Callable[[int], _Tensors]]:
    table = nn.Embedding(s["rows"], s["width"])
    return table, lambda batch: (torch.empty(batch, s["seq"], dtype=torch.int64),)


def _recurrent(kind: type[nn.LSTM] | type[nn.GRU]) -> _Maker:
    return lambda s: (_Recurrent(kind, s), lambda batch: (torch.empty(batch, s["seq"], s["in"]),))


def _cross_entropy(s: _Sizes) -> tuple[nn.Module, Callable[[int], _Tensors]]:
    def run(logits: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits, class_targets(logits.shape[:1], logits.device))

    return _Call(run), lambda batch: (torch.empty(batch, s["classes"]),)


def _parameters(s: _Sizes) -> tuple[nn.Module, Callable[[int], _Tensors]]:
    return _Parameters(s["count"]), lambda batch: (torch.empty(batch, 1),)


_MAKERS: dict[str, _Maker] = {
    "linear": _linear,
    "bmm": _bmm,
    "conv2d": _conv2d,
    "attention": _attention,
    "layer_norm": lambda s: (nn.LayerNorm(s["width"]), _rows(s)),
    "rms_norm": lambda s: (nn.RMSNorm(s["width"]), _rows(s)),
    "softmax": _function(lambda x: x.softmax(-1)),
    "batch_norm": lambda s: (nn.BatchNorm2d(s["channels"]), _images(s)),
    "group_norm": lambda s: (nn.GroupNorm(s["groups"], s["channels"]), _images(s)),
    "relu": _function(F.relu),
    "gelu": _function(F.gelu),
    "silu": _function(F.silu),
    "tanh": _function(torch.tanh),
    "exp": _function(torch.exp),
    "add": _function(torch.add, 2),
    "mul": _function(torch.mul, 2),
    "dropout": lambda s: (nn.Dropout(0.1), _rows(s)),
    "copy": _function(torch.clone),
    "max_pool2d": lambda s: (nn.MaxPool2d(s["kernel"], s["stride"], s["kernel"] // 2), _images(s)),
    "avg_pool2d": lambda s: (nn.AvgPool2d(s["kernel"], s["stride"], s["kernel"] // 2), _images(s)),
    "embedding": _embedding,
    "lstm": _recurrent(nn.LSTM),
    "gru": _recurrent(nn.GRU),
    "cross_entropy": _cross_entropy,
    "parameters": _parameters,
}
