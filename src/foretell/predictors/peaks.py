"""Peak FLOP/s of operators in the number format each of them runs in."""

from __future__ import annotations

import numpy as np

from foretell.cluster import Device
from foretell.graph.graph import Floats, Graph
from foretell.graph.ops import DType, OpClass

_LOW = ((DType.FP16, "fp16"), (DType.BF16, "bf16"), (DType.FP64, "fp64"))


def kind_peaks(graph: Graph, device: Device, precision: str) -> Floats:
    """FLOP/s per operator kind."""
    by_dtype = np.full(len(DType), device.peak("fp32"))
    for dtype, name in _LOW:
        if device.supports(name):
            by_dtype[dtype] = device.peak(name)
    peaks = by_dtype[graph.kinds.dtype]
    if device.supports("tf32"):
        # PyTorch lets convolutions use TF32 unless told otherwise; matrix products ask for it.
        wide = graph.kinds.op_class == OpClass.CONV
        if precision == "tf32":
            wide |= np.isin(graph.kinds.op_class, (OpClass.MATMUL, OpClass.BMM))
        peaks[(graph.kinds.dtype == DType.FP32) & wide] = device.peak("tf32")
    if precision == "fp8" and device.supports("fp8"):
        peaks[graph.kinds.op_class == OpClass.MATMUL] = device.peak("fp8")
    return peaks
