"""A step as the learned model reads it: distinct operators with work, shape and how often."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.cluster import Device
from foretell.graph.graph import Floats, Graph, Ints
from foretell.graph.ops import DType, OpClass
from foretell.predictors.analytic.fusion import fused_bytes
from foretell.predictors.analytic.rates import GROUP_INDEX, rate_groups
from foretell.predictors.analytic.roofline import launches_of
from foretell.predictors.scaledl.shapes import SHAPE_NAMES, shape_rows

UNITS = ("fp32", "tf32", "fp16", "bf16", "fp64", "fp8", "vector")
"""What an operator computes on: matrix units in a number format, or vector units."""
_UNIT = {name: i for i, name in enumerate(UNITS)}
_LOW = {DType.FP16: "fp16", DType.BF16: "bf16", DType.FP64: "fp64"}
_TILE = 128
EXTRA_NAMES = ("fused", "leads_chain")
COLUMNS = (*SHAPE_NAMES, *EXTRA_NAMES)


@dataclass(frozen=True, eq=False, kw_only=True)
class OpTable:
    """Distinct operators of a step; sizes at its batch."""

    group: Ints
    name: tuple[str, ...]
    unit: Ints
    flops: Floats
    nbytes: Floats
    tiles: Floats
    """Results of the matrix product over those of a tile; 0 for operators without one."""
    launches: Floats
    shape: Floats
    """[rows, COLUMNS]."""
    row: Ints
    """Which row each operator of the step is, in execution order."""

    def __len__(self) -> int:
        return len(self.group)


def table_of(step: Graph, precision: str, *, compiled: bool) -> OpTable:
    """The operators of a step."""
    kinds, group = step.kinds, rate_groups(step)
    batch, m, n, _ = step.kind_gemm.T
    sequential = group == GROUP_INDEX["rnn"]
    tiles = np.where(sequential, 1, batch) * m * n / _TILE**2
    launches = np.where(sequential, np.maximum(batch, 1), launches_of(group))
    nbytes = step.kind_bytes_read + step.kind_bytes_written
    shape = shape_rows(kinds)
    extra = np.zeros((len(kinds), len(EXTRA_NAMES)))
    if not compiled:
        return OpTable(
            group=group,
            name=kinds.name,
            unit=_units(step, precision, group),
            flops=step.kind_flops,
            nbytes=nbytes,
            tiles=tiles,
            launches=launches,
            shape=np.concatenate([shape, extra], 1),
            row=step.op_kind,
        )
    moved, launched = fused_bytes(step)
    distinct, first, row = np.unique(
        np.stack([step.op_kind, moved, launched], 1), axis=0, return_index=True, return_inverse=True
    )
    kind = step.op_kind[first]
    extra = np.stack([distinct[:, 1] < nbytes[kind], distinct[:, 2] > 0], 1).astype(np.float64)
    return OpTable(
        group=group[kind],
        name=tuple(kinds.name[k] for k in kind),
        unit=_units(step, precision, group)[kind],
        flops=step.kind_flops[kind],
        nbytes=distinct[:, 1],
        tiles=tiles[kind],
        launches=launches[kind] * distinct[:, 2],
        shape=np.concatenate([shape[kind], extra], 1),
        row=row.reshape(-1),
    )


def _units(step: Graph, precision: str, group: Ints) -> Ints:
    kinds = step.kinds
    found = np.full(len(kinds), _UNIT["fp32"])
    for dtype, name in _LOW.items():
        found[kinds.dtype == dtype] = _UNIT[name]
    # PyTorch lets convolutions use TF32 unless told otherwise; matrix products ask for it.
    wide = kinds.op_class == OpClass.CONV
    if precision == "tf32":
        wide |= np.isin(kinds.op_class, (OpClass.MATMUL, OpClass.BMM))
    found[(kinds.dtype == DType.FP32) & wide] = _UNIT["tf32"]
    if precision == "fp8":
        found[kinds.op_class == OpClass.MATMUL] = _UNIT["fp8"]
    depthwise = np.isin(group, [GROUP_INDEX["depthwise"], GROUP_INDEX["depthwise_backward"]])
    found[depthwise] = _UNIT["vector"]
    return found


def unit_peaks(device: Device) -> Floats:
    """FLOP/s of each of UNITS; where a device lacks a format it computes in fp32."""
    usual = device.peak("fp32")
    peaks = [device.peak(name) if device.supports(name) else usual for name in UNITS[:-1]]
    return np.array([*peaks, device.vector_flops_per_s])
