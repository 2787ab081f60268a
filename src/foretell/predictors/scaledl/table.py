"""A step as the learned model reads it: distinct kernels with work, shape and how often."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.cluster import Device
from foretell.graph.graph import ATTRS, Floats, Graph, Ints, Kinds
from foretell.graph.ops import DType, OpClass
from foretell.predictors.analytic.fusion import fused_bytes
from foretell.predictors.analytic.rates import GROUP_INDEX, LAYOUT_SENSITIVE, groups_of
from foretell.predictors.scaledl.compiled import convolves_channels_last
from foretell.predictors.scaledl.context import Context, context_of
from foretell.predictors.scaledl.kernels import kernels_of
from foretell.predictors.scaledl.shapes import SHAPE_NAMES, shape_rows
from foretell.predictors.scaledl.wiring import Wiring, wiring_of

UNITS = ("fp32", "tf32", "fp16", "bf16", "fp64", "fp8", "vector")
"""What an operator computes on: matrix units in a number format, or vector units."""
_UNIT = {name: i for i, name in enumerate(UNITS)}
_LOW = {DType.FP16: "fp16", DType.BF16: "bf16", DType.FP64: "fp64"}
_TILE = 128
_CHANNELS_LAST = ATTRS.index("channels_last")
_OPTIMIZER_LAUNCHES = 0.05
_THREAD_PER_PIXEL = ("upsample_bilinear2d", "upsample_bicubic2d")
"""Kernels of PyTorch whose threads, one per pixel of the result, walk through all samples and
channels, unless channels come last: however fast the device, each step waits for its memory."""
_LATENCY_S = 3.3e-7
"""Of such a step; read off the EfficientFormer V2 models: 0.26 to 0.39 us on four devices."""
_KERNEL_PER_SAMPLE = ("im2col", "col2im")
"""Operators that PyTorch launches anew for every sample, unless they are compiled."""
EXTRA_NAMES = ("fused", "leads_chain")
COLUMNS = (*SHAPE_NAMES, *EXTRA_NAMES)
_TURNED = [GROUP_INDEX[name] for name in (*LAYOUT_SENSITIVE, "resample")]
_IN_ORDER = {COLUMNS.index("channels_last_input"): 1.0, COLUMNS.index("permuted"): 0.0}
"""What the columns of the order say where channels are last throughout."""


@dataclass(frozen=True, eq=False, kw_only=True)
class OpTable:
    """Distinct kernels of a step; sizes at its batch."""

    group: Ints
    name: tuple[str, ...]
    unit: Ints
    flops: Floats
    nbytes: Floats
    tiles: Floats
    """Results of the matrix product over those of a tile; 0 for kernels without one."""
    launches: Floats
    waits_s: Floats
    """What passes in waiting for memory whatever the device."""
    shape: Floats
    """[rows, COLUMNS]."""
    row: Ints
    """Which row each kernel of the step is, in execution order."""
    wiring: Wiring

    def __len__(self) -> int:
        return len(self.group)

    def by_op(self, per_kernel: Floats, operators: int) -> Floats:
        """Sums over the kernels of each operator."""
        return np.bincount(self.wiring.op, per_kernel, operators).astype(np.float64)

    @property
    def context(self) -> Context:
        """Who is next to whom."""
        wiring = self.wiring
        if self.row is wiring.kernel:
            return wiring.context
        return context_of(self.row, wiring.edge_src, wiring.edge_dst, np.ones(len(self.row)))


def table_of(step: Graph, precision: str, *, compiled: bool, on_cpu: bool = False) -> OpTable:
    """The kernels of a step."""
    kernels = kernels_of(step.kinds)
    group, unit = _groups_and_units(step.kinds, precision)
    powers = float(step.batch) ** np.arange(3)
    batch, m, n, _ = (kernels.gemm * float(step.batch) ** kernels.gemm_power).T
    sequential = group == GROUP_INDEX["rnn"]
    nbytes = kernels.nbytes @ powers
    launches = np.where(sequential, np.maximum(batch, 1), 1.0)
    # Multi-tensor optimizers launch once for many parameters.
    launches[group == GROUP_INDEX["optimizer"]] = _OPTIMIZER_LAUNCHES
    if not compiled and not on_cpu:
        launches = np.maximum(launches, _kernels_per_sample(step.kinds) @ powers)
    wiring = wiring_of(step)
    name, shape = _names_and_shapes(step.kinds)
    table = OpTable(
        group=group,
        name=name,
        unit=unit,
        flops=kernels.flops @ powers,
        nbytes=nbytes,
        tiles=np.where(sequential, 1, batch) * m * n / _TILE**2,
        launches=launches,
        waits_s=np.zeros(len(group)) if compiled or on_cpu else _steps(step.kinds) @ powers,
        shape=shape,
        row=wiring.kernel,
        wiring=wiring,
    )
    return _fused_table(step, table, on_cpu=on_cpu) if compiled else table


def _fused_table(step: Graph, table: OpTable, *, on_cpu: bool) -> OpTable:
    """The same when compiled."""
    row, chosen, nbytes, leads, extra = _fused(step, table.wiring, table.nbytes)
    shape = table.shape[chosen]
    shape[:, len(SHAPE_NAMES) :] = extra
    if convolves_channels_last(step, on_cpu=on_cpu):
        turned = np.flatnonzero(np.isin(table.group[chosen], _TURNED))
        for column, value in _IN_ORDER.items():
            shape[turned, column] = value
    return OpTable(
        group=table.group[chosen],
        name=tuple(table.name[k] for k in chosen),
        unit=table.unit[chosen],
        flops=table.flops[chosen],
        nbytes=nbytes,
        tiles=table.tiles[chosen],
        launches=table.launches[chosen] * leads,
        waits_s=table.waits_s[chosen],
        shape=shape,
        row=row,
        wiring=table.wiring,
    )


@functools.lru_cache(maxsize=512)
def _names_and_shapes(kinds: Kinds) -> tuple[tuple[str, ...], Floats]:
    """Of every kernel; the same objects for the same kinds, so that identity tells them."""
    rows = shape_rows(kinds)
    shape = np.concatenate([rows, np.zeros((len(rows), len(EXTRA_NAMES)))], 1)
    shape.flags.writeable = False
    return tuple(kernel.name for kernel in kernels_of(kinds).each), shape


def _fused(
    step: Graph, wiring: Wiring, nbytes: Floats
) -> tuple[Ints, Ints, Floats, Floats, Floats]:
    """Rows when compiled: of each kernel that runs, then kernel, bytes, launches, EXTRA_NAMES."""
    kernel, op = wiring.kernel, wiring.op
    moved, launched = fused_bytes(step)
    whole = (step.kind_bytes_read + step.kind_bytes_written)[step.op_kind]
    own = np.where(moved < whole, moved, np.inf)[op]
    rows = np.stack([kernel, np.minimum(own, nbytes[kernel]), launched[op]], 1)
    distinct, row = np.unique(rows, axis=0, return_inverse=True)
    chosen = distinct[:, 0].astype(np.int64)
    leads = distinct[:, 2]
    extra = np.stack([distinct[:, 1] < nbytes[chosen], leads > 0], 1).astype(np.float64)
    return row.reshape(-1), chosen, distinct[:, 1], leads, extra


@functools.lru_cache(maxsize=512)
def _kernels_per_sample(kinds: Kinds) -> Floats:
    """[kernels, 3] launches of operators that go through samples one by one, as polynomials."""
    found = np.zeros((len(kernels_of(kinds)), 3))
    for i, kernel in enumerate(kernels_of(kinds).each):
        if kernel.name in _KERNEL_PER_SAMPLE:
            result = kernel.outputs[0]
            found[i, min(result.powers[0], 2)] = result.dims[0]
    return found


@functools.lru_cache(maxsize=512)
def _steps(kinds: Kinds) -> Floats:
    """[kernels, 3] seconds of the walk through samples and channels, polynomials in the batch."""
    found = np.zeros((len(kernels_of(kinds)), 3))
    for i, kernel in enumerate(kernels_of(kinds).each):
        if kernel.name in _THREAD_PER_PIXEL and not kinds.attrs[kernel.kind, _CHANNELS_LAST]:
            result = kernel.outputs[0]
            walked = math.prod(result.dims[:2])
            found[i, min(sum(result.powers[:2]), 2)] = walked * _LATENCY_S
    return found


@functools.lru_cache(maxsize=512)
def _groups_and_units(kinds: Kinds, precision: str) -> tuple[Ints, Ints]:
    """Of every kernel."""
    kind = kernels_of(kinds).kind
    group = groups_of(kinds)
    return group[kind], _units(kinds, precision, group)[kind]


def _units(kinds: Kinds, precision: str, group: Ints) -> Ints:
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


def alike(unit: Any) -> Any:
    """Units as the network is told them: what holds for fp16 holds for bf16."""
    return unit - (unit == _UNIT["bf16"]) * (_UNIT["bf16"] - _UNIT["fp16"])


def unit_peaks(device: Device) -> Floats:
    """FLOP/s of each of UNITS; where a device lacks a format it computes in fp32."""
    usual = device.peak("fp32")
    peaks = [device.peak(name) if device.supports(name) else usual for name in UNITS[:-1]]
    return np.array([*peaks, device.vector_flops_per_s])
