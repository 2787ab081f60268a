"""Make meta tensors behave as they would on a GPU.

On the meta device PyTorch decomposes attention, dropout and recurrent layers, and autocast does
nothing. This function mode sits above autograd and puts back what a GPU would do: one fused
attention operator, one fused dropout, one recurrent operator, and autocast's casts. The rules of
autocast are those of PyTorch's CUDA list.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from foretell.graph import fused

_Call = Callable[..., Any]

_LOWER_PRECISION = frozenset(
    (
        "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc "
        "convolution prelu addmm addmv addr matmul __matmul__ __rmatmul__ einsum mm mv linear "
        "addbmm baddbmm bmm chain_matmul multi_dot tensordot scaled_dot_product_attention lstm "
        "gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell _grouped_mm "
        "grouped_mm"
    ).split()
)
_FP32 = frozenset(
    (
        "acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow "
        "__pow__ __rpow__ softplus layer_norm native_layer_norm group_norm rms_norm norm "
        "cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss_nd nll_loss2d "
        "cross_entropy_loss hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss "
        "mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss "
        "multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp "
        "ctc_loss"
    ).split()
)
_FP32_OUTPUT = frozenset(["prod", "softmax", "log_softmax", "cumprod", "cumsum", "sum"])
_WIDEST = frozenset(
    (
        "addcdiv addcmul atan2 bilinear cross dot grid_sampler index_put scatter_add cat stack"
    ).split()
)
_COMPOSED = ("torch.nn.functional", "torch.functional")
_ASKS_AGAIN = frozenset(
    {"has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"}
)


class GpuSemantics(TorchFunctionMode):
    """Active around a forward pass on meta tensors.

    `autocast_dtype` emulates torch.autocast('cuda', dtype); None leaves number formats alone.
    `fused_attention=False` spells attention out, as PyTorch before 2.0 did.
    """

    def __init__(self, autocast_dtype: torch.dtype | None = None, *, fused_attention: bool = True):
        super().__init__()
        self.autocast_dtype = autocast_dtype
        self.fused_attention = fused_attention
        self._weight_casts: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def __torch_function__(
        self, func: _Call, types_: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        inside = _without_override_check(func)
        if inside is not None:
            # A Python function: look inside instead, its parts come back here one by one.
            with self:
                return inside(*args, **kwargs)
        name = getattr(func, "__name__", "")
        if self.autocast_dtype is not None and name in _AUTOCAST_NAMES:
            args, kwargs = self._autocast(name, self.autocast_dtype, args, kwargs)
        if name == "scaled_dot_product_attention" and _all_meta(args):
            if self.fused_attention and fused.has_fused_attention(*args, **kwargs):
                return fused.attention(*args, **kwargs)
            if self.fused_attention:
                return fused.attention_in_fp32(*args, **kwargs)
            with self:  # its parts follow autocast's rules one by one
                return fused.attention_spelled_out(*args, **kwargs)
        if name == "dropout" and _all_meta(args[:1]):
            return _dropout(*args, **kwargs)
        if name == "softmax" and _widens_half(args, kwargs):
            return torch.ops.aten._softmax.default(args[0], _axis(args, kwargs), True)
        if name == "rms_norm" and _all_meta(args[:1]):
            return fused.rms_norm(*args, **kwargs)
        if name in ("lstm", "gru", "rnn_tanh", "rnn_relu") and _all_meta(args[:1]):
            return fused.recurrent(name, func, args, kwargs)
        return func(*args, **kwargs)

    def forget_casts(self) -> None:
        """Drop cached low-precision weights, as leaving an autocast region does."""
        self._weight_casts.clear()

    def _autocast(
        self, name: str, low: torch.dtype, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if name in _LOWER_PRECISION:
            target = low
        elif name in _FP32:
            target = torch.float32
        elif name in _FP32_OUTPUT:
            first = args[0] if args else None
            explicit = kwargs.get("dtype") is not None or (
                name in ("softmax", "log_softmax") and len(args) > 2 and args[2] is not None
            )
            if isinstance(first, torch.Tensor) and first.dtype == low and not explicit:
                kwargs = {**kwargs, "dtype": torch.float32}
            return args, kwargs
        else:
            found = [t.dtype for t in _tensors(args) if t.is_floating_point()]
            if torch.float32 not in found:
                return args, kwargs
            target = torch.float32
        cast = functools.partial(self._cast, target=target)
        return _map_tensors(cast, args), {k: _map_tensors(cast, v) for k, v in kwargs.items()}

    def _cast(self, tensor: torch.Tensor, target: torch.dtype) -> torch.Tensor:
        eligible = tensor.is_floating_point() and tensor.dtype != torch.float64
        if not eligible or tensor.dtype == target:
            return tensor
        is_weight = tensor.is_leaf and tensor.requires_grad and tensor.dtype == torch.float32
        if not is_weight:
            return tensor.to(target)
        held = self._weight_casts.get(id(tensor))
        if held is None:
            held = self._weight_casts[id(tensor)] = (tensor, tensor.to(target))
        return held[1]


_AUTOCAST_NAMES = _LOWER_PRECISION | _FP32 | _FP32_OUTPUT | _WIDEST


@functools.cache
def _without_override_check(func: _Call) -> _Call | None:
    """A Python function with its 'does anyone override me?' question answered no."""
    if not isinstance(func, types.FunctionType):
        return None
    if func.__globals__.get("__name__") not in _COMPOSED or not _ASKS_AGAIN & set(
        func.__code__.co_names
    ):
        return None
    scope = dict(func.__globals__)
    scope.update(dict.fromkeys(_ASKS_AGAIN, _never))
    copy = types.FunctionType(
        func.__code__, scope, func.__name__, func.__defaults__, func.__closure__
    )
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _never(*_: Any) -> bool:
    return False


def _dropout(input: torch.Tensor, p: float = 0.5, train: bool = True) -> torch.Tensor:
    if not train or p == 0.0:
        return input
    return torch.native_dropout(input, p, True)[0]


def _widens_half(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """GPUs take softmax of float16 to float32 in one kernel."""
    wanted = kwargs.get("dtype") or (args[2] if len(args) > 2 else None)
    x = args[0] if args else None
    is_half = isinstance(x, torch.Tensor) and x.is_meta and x.dtype == torch.float16
    return is_half and wanted == torch.float32 and (len(args) > 1 or "dim" in kwargs)


def _axis(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    return int(args[1] if len(args) > 1 else kwargs["dim"])


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [t for item in value for t in _tensors(item)]
    return []


def _map_tensors(change: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (tuple, list):
        return type(value)(_map_tensors(change, item) for item in value)
    return value


def _all_meta(args: tuple[Any, ...]) -> bool:
    return all(t.is_meta for t in _tensors(args))
