"""Time of each operator on a device: a smooth roofline over FLOPs and bytes.

    time = overhead + (compute^p + memory^p)^(1/p)
    compute = FLOPs / (peak x efficiency of its group x how well its shape fills the device)
    memory  = bytes / (bandwidth x efficiency of its group x cache gain)

Predicting, fitting and the design of measurements all read the same `op_parts`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from foretell.cluster import Device
from foretell.graph.graph import Floats, Graph, Ints
from foretell.predictors.analytic.constants import FamilyConstants
from foretell.predictors.analytic.fusion import fused_bytes
from foretell.predictors.analytic.rates import GROUP_INDEX, rate_groups
from foretell.predictors.peaks import kind_peaks

SHARPNESS = 3.0
"""p of the smooth maximum."""

_NOTHING = 1e-30  # keeps the root differentiable for operators without work

_TILE = 128
_VECTOR_GROUPS = np.array([GROUP_INDEX["depthwise"], GROUP_INDEX["depthwise_backward"]])
_LAUNCHES = {
    "conv_backward": 2,
    "pointwise_backward": 2,
    "grouped_backward": 2,
    "depthwise_backward": 2,
}


@dataclass(frozen=True, kw_only=True)
class OpColumns:
    """What the roofline needs to know of each operator kind, for one device and recipe."""

    group: Ints
    flops: Floats
    nbytes: Floats
    peak_flops_per_s: Floats
    tile_s: Floats
    """Time of one tile at a multiprocessor's peak; inf for operators without matrix products."""
    waves: Floats
    """Tiles per multiprocessor; inf for operators without matrix products."""
    tile_fill: Floats
    """Share of the tiles' area that holds results."""
    launches: Floats


@dataclass(frozen=True)
class PricedStep:
    """The distinct operators of a step as columns, and which of them each operator is."""

    columns: OpColumns
    row: Ints


def price_step(step: Graph, device: Device, precision: str, *, compiled: bool) -> PricedStep:
    """What the roofline needs to know of a step on a device."""
    group = rate_groups(step)
    columns = shape_columns(
        group=group,
        gemm=step.kind_gemm,
        flops=step.kind_flops,
        nbytes=step.kind_bytes_read + step.kind_bytes_written,
        peak_flops_per_s=_peaks(step, device, precision, group),
        device=device,
    )
    if not compiled:
        return PricedStep(columns, step.op_kind)
    nbytes, launched = fused_bytes(step)
    distinct, first, row = np.unique(
        np.stack([step.op_kind, nbytes, launched], 1),
        axis=0,
        return_index=True,
        return_inverse=True,
    )
    kind = step.op_kind[first]
    fused = {f.name: getattr(columns, f.name)[kind] for f in dataclasses.fields(OpColumns)}
    fused["nbytes"] = distinct[:, 1]
    fused["launches"] = columns.launches[kind] * distinct[:, 2]
    return PricedStep(OpColumns(**fused), row.reshape(-1))


def shape_columns(
    *,
    group: Ints,
    gemm: Floats,
    flops: Floats,
    nbytes: Floats,
    peak_flops_per_s: Floats,
    device: Device,
) -> OpColumns:
    """Columns from sizes alone; `gemm` is [kinds, 4] batch, m, n, k, zero where there is none."""
    batch, m, n, k = gemm.T
    is_gemm = k > 0
    sequential = group == GROUP_INDEX["rnn"]  # its products wait for each other
    tiles = np.where(sequential, 1, batch) * np.ceil(m / _TILE) * np.ceil(n / _TILE)
    width = np.clip(n, 32, _TILE) / _TILE  # kernels with narrower tiles exist
    waves = tiles * width / device.sm_count * _tile_shrink(peak_flops_per_s, device)
    return OpColumns(
        group=group,
        flops=flops,
        nbytes=nbytes,
        peak_flops_per_s=peak_flops_per_s,
        tile_s=np.where(is_gemm, 2 * _TILE**2 * k * device.sm_count / peak_flops_per_s, np.inf),
        waves=np.where(is_gemm, waves, np.inf),
        tile_fill=np.where(is_gemm, n / np.maximum(np.ceil(n / 32) * 32, 1), 1.0),
        launches=np.where(sequential, np.maximum(batch, 1), launches_of(group)),
    )


def _tile_shrink(peak_flops_per_s: Floats, device: Device) -> Floats:
    """Fast matrix units are fed by larger tiles; slower formats have more and smaller ones."""
    fastest = device.peak_flops_per_s.get("fp16", 0.0)
    result: Floats = np.sqrt(np.maximum(1.0, fastest / peak_flops_per_s))
    return result


class MemoryRates(Protocol):
    """What the roofline reads of a Device beside its peaks: numbers, or one per operator."""

    @property
    def l2_bytes(self) -> Any: ...

    @property
    def memory_bandwidth_bytes_per_s(self) -> Any: ...


@dataclass(frozen=True, eq=False)
class OpParts:
    """What the time of each kind is made of."""

    overhead_s: Floats
    compute_s: Floats
    memory_s: Floats
    busy_s: Floats
    """The smooth maximum of compute and memory."""


def op_parts(columns: OpColumns, device: MemoryRates, constants: FamilyConstants) -> OpParts:
    """The parts of every kind's time on the device."""
    fill = columns.tile_fill / (
        (1 + constants.tile_latency_s / columns.tile_s) * (1 + constants.half_waves / columns.waves)
    )
    compute = columns.flops / (columns.peak_flops_per_s * constants.compute[columns.group] * fill)
    bandwidth = device.memory_bandwidth_bytes_per_s * constants.memory[columns.group]
    gain = 1 + constants.cache_gain * cached_share(columns, device)
    memory = columns.nbytes / (bandwidth * gain)
    return OpParts(
        overhead_s=constants.overhead_s * columns.launches,
        compute_s=compute,
        memory_s=memory,
        busy_s=(compute**SHARPNESS + memory**SHARPNESS + _NOTHING) ** (1 / SHARPNESS),
    )


def cached_share(columns: OpColumns, device: MemoryRates) -> Floats:
    """How much of an operator's bytes the last-level cache may serve."""
    result: Floats = device.l2_bytes / (device.l2_bytes + columns.nbytes)
    return result


def op_times(columns: OpColumns, device: Device, constants: FamilyConstants) -> Floats:
    """Seconds per kind on the device."""
    parts = op_parts(columns, device, constants)
    return parts.overhead_s + parts.busy_s


def _peaks(graph: Graph, device: Device, precision: str, group: Ints) -> Floats:
    """FLOP/s of each kind on the units that run it."""
    on_vector_units = np.isin(group, _VECTOR_GROUPS)
    return np.where(
        on_vector_units, device.vector_flops_per_s, kind_peaks(graph, device, precision)
    )


def launches_of(group: Ints) -> Floats:
    """Kernels of an operator of each group."""
    launches = np.ones(len(group))
    for name, count in _LAUNCHES.items():
        launches[group == GROUP_INDEX[name]] = count
    # Multi-tensor optimizers launch once for many parameters.
    launches[group == GROUP_INDEX["optimizer"]] = 0.05
    return launches
