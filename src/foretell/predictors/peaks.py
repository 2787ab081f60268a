"""Peak FLOP/s of operators in the number format each of them runs in."""

from __future__ import annotations

import functools

import numpy as np

from foretell.cluster import Device
from foretell.errors import InputError
from foretell.graph.graph import Floats, Graph, Kinds
from foretell.graph.ops import DType, OpClass

_LOW = ((DType.FP16, "fp16"), (DType.BF16, "bf16"), (DType.FP64, "fp64"))


def kind_peaks(graph: Graph, device: Device, precision: str) -> Floats:
    """FLOP/s per operator kind; not to be written to."""
    return _peaks(graph.kinds, device, precision)


@functools.lru_cache(maxsize=256)
def _peaks(kinds: Kinds, device: Device, precision: str) -> Floats:
    by_dtype = np.full(len(DType), device.peak("fp32"))
    for dtype, name in _LOW:
        if device.supports(name):
            by_dtype[dtype] = device.peak(name)
    peaks = by_dtype[kinds.dtype]
    if device.supports("tf32"):
        # PyTorch lets convolutions use TF32 unless told otherwise; matrix products ask for it.
        wide = kinds.op_class == OpClass.CONV
        if precision == "tf32":
            wide |= np.isin(kinds.op_class, (OpClass.MATMUL, OpClass.BMM))
        peaks[(kinds.dtype == DType.FP32) & wide] = device.peak("tf32")
    if precision == "fp8" and device.supports("fp8"):
        peaks[kinds.op_class == OpClass.MATMUL] = device.peak("fp8")
    peaks.flags.writeable = False
    return peaks


def check_precision(precision: str, device: Device) -> None:
    """Refuse a number format that the device does not have."""
    needed = precision.removeprefix("amp-")
    if not device.supports(needed):
        have = ", ".join(device.peak_flops_per_s)
        raise InputError(
            f"device {device.id!r} does not compute in {needed}, which precision={precision} "
            f"needs: it has {have}"
        )
