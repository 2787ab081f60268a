"""Collect distinct operator calls and turn them into the kinds table of a Graph.

Calls are recorded at a large prime batch: a size divisible by the prime scales with the batch,
so its coefficient and power are readable from the number itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from foretell.graph import cost
from foretell.graph.cost import Call, TensorSpec, batch_polynomial, scale_shape
from foretell.graph.graph import ATTRS, Kinds
from foretell.graph.ops import DType, OpClass

DTYPES: dict[torch.dtype, DType] = {
    torch.float32: DType.FP32,
    torch.float16: DType.FP16,
    torch.bfloat16: DType.BF16,
    torch.float64: DType.FP64,
    torch.float8_e4m3fn: DType.FP8,
    torch.float8_e5m2: DType.FP8,
    torch.int64: DType.INT64,
    torch.int32: DType.INT32,
    torch.int16: DType.INT16,
    torch.int8: DType.INT8,
    torch.uint8: DType.INT8,
    torch.bool: DType.BOOL,
    torch.complex64: DType.COMPLEX64,
    torch.complex128: DType.COMPLEX128,
}


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """A tensor's shape, the part of it that exists in memory, and its number format."""
    shape = tuple(tensor.shape)
    dense = tuple(
        1 if step == 0 else size for size, step in zip(shape, tensor.stride(), strict=True)
    )
    return TensorSpec(shape, dense, DTYPES.get(tensor.dtype, DType.FP32))


def split_batch(size: int, prime: int) -> tuple[int, int]:
    """(coefficient, power) with size = coefficient * prime**power."""
    power = 0
    while size and size % prime == 0:
        size //= prime
        power += 1
    return size, power


def attributes(name: str, args: tuple[Any, ...]) -> dict[str, Any]:
    """The non-tensor arguments that costs and predictors look at."""
    if name == "convolution":
        _, _, _, stride, _, dilation, transposed, _, groups = args
        return _conv(stride, dilation, transposed, groups)
    if name == "convolution_backward":
        _, _, _, _, stride, _, dilation, transposed, _, groups, mask = args
        return _conv(stride, dilation, transposed, groups) | {"flags": tuple(mask)}
    if name == "attention":
        return {"causal": bool(args[4])}
    if name == "attention_backward":
        return {"causal": bool(args[7])}
    if name.startswith(("max_pool", "avg_pool")) and not name.endswith("backward"):
        stride = args[2] if len(args) > 2 and args[2] else args[1]
        return {"stride": int(stride[0])}
    return {}


def _conv(stride: Any, dilation: Any, transposed: bool, groups: int) -> dict[str, Any]:
    return {
        "stride": int(max(stride)),
        "dilation": int(max(dilation)),
        "transposed": bool(transposed),
        "groups": int(groups),
    }


class KindTable:
    """Numbers distinct calls; `to_kinds` makes the columns."""

    def __init__(self, prime: int) -> None:
        self.prime = prime
        self._number: dict[Call, int] = {}

    def add(self, call: Call) -> int:
        """The number of a call, new or known."""
        return self._number.setdefault(call, len(self._number))

    def to_kinds(self) -> Kinds:
        """All calls as columns."""
        calls = list(self._number)
        scaled = [_Scaled(call, self.prime) for call in calls]
        tensors = [t for call in calls for t in (*call.inputs, *call.outputs)]
        counts = [len(c.inputs) + len(c.outputs) for c in calls]
        dims = [split_batch(d, self.prime) for t in tensors for d in t.shape]
        gemms = [s.gemm() for s in scaled]
        return Kinds(
            name=tuple(c.name for c in calls),
            op_class=_ints([c.op_class for c in calls]),
            dtype=_ints([compute_dtype(c) for c in calls]),
            flops=_ints([s.polynomial(cost.flops) for s in scaled], 3),
            bytes_read=_ints([s.polynomial(cost.bytes_read) for s in scaled], 3),
            bytes_written=_ints([s.polynomial(cost.bytes_written) for s in scaled], 3),
            gemm=_ints([[c for c, _ in g] for g in gemms], 4),
            gemm_power=_ints([[p for _, p in g] for g in gemms], 4),
            attrs=_ints([[getattr(c, name) for name in ATTRS] for c in calls], len(ATTRS)),
            tensor_start=_offsets(counts),
            tensor_is_output=np.array(
                [out for c in calls for out in [False] * len(c.inputs) + [True] * len(c.outputs)],
                dtype=np.bool_,
            ),
            tensor_dtype=_ints([t.dtype for t in tensors]),
            dim_start=_offsets([len(t.shape) for t in tensors]),
            dim=_ints([c for c, _ in dims]),
            dim_power=_ints([p for _, p in dims]),
        )


def compute_dtype(call: Call) -> DType:
    """The number format an operator computes in: its first floating-point tensor's."""
    if call.op_class is OpClass.FILL and call.outputs:
        return call.outputs[0].dtype
    for tensor in (*call.inputs, *call.outputs):
        if tensor.dtype.is_float:
            return tensor.dtype
    return call.inputs[0].dtype if call.inputs else DType.FP32


class _Scaled:
    """A call whose shapes can be evaluated at any batch."""

    def __init__(self, call: Call, prime: int) -> None:
        self.call = call
        self.prime = prime
        self._at: dict[int, Call] = {}

    def at(self, batch: int) -> Call:
        if batch not in self._at:
            c = self.call
            self._at[batch] = Call(
                name=c.name,
                op_class=c.op_class,
                inputs=tuple(self._tensor(t, batch) for t in c.inputs),
                outputs=tuple(self._tensor(t, batch) for t in c.outputs),
                stride=c.stride,
                groups=self._size(c.groups, batch),
                dilation=c.dilation,
                transposed=c.transposed,
                causal=c.causal,
                channels_last=c.channels_last,
                permuted=c.permuted,
                sliced=c.sliced,
                flags=c.flags,
            )
        return self._at[batch]

    def polynomial(self, rule: Any) -> tuple[int, int, int]:
        return batch_polynomial(lambda batch: rule(self.at(batch)))

    def gemm(self) -> list[tuple[int, int]]:
        g = cost.gemm(self.call)
        return [split_batch(v, self.prime) for v in (g.batch, g.m, g.n, g.k)]

    def _tensor(self, tensor: TensorSpec, batch: int) -> TensorSpec:
        return TensorSpec(
            self._shape(tensor.shape, batch), self._shape(tensor.dense, batch), tensor.dtype
        )

    def _shape(self, shape: tuple[int, ...], batch: int) -> tuple[int, ...]:
        if not shape:
            return ()
        base, power = zip(*(split_batch(d, self.prime) for d in shape), strict=True)
        return scale_shape(base, power, batch)

    def _size(self, size: int, batch: int) -> int:
        base, power = split_batch(size, self.prime)
        return base * int(batch**power)


def _ints(values: Any, width: int | None = None) -> Any:
    array = np.asarray(values, dtype=np.int64)
    return array.reshape(-1, width) if width else array


def _offsets(counts: list[int]) -> Any:
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
