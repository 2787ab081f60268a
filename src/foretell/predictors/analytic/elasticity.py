"""How the time of a step answers to each fitted constant: d log time / d log constant.

A step is a sum over operators, so its elasticities are those of its operators weighted by their
share of the time. Many steps are worked out at once as flat columns.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.cluster import Device
from foretell.graph.graph import Bools, Floats, Ints
from foretell.graph.ops import Phase
from foretell.predictors.analytic.constants import NAMES, FamilyConstants
from foretell.predictors.analytic.rates import GROUPS
from foretell.predictors.analytic.roofline import (
    SHARPNESS,
    OpColumns,
    cached_share,
    op_parts,
    price_step,
)
from foretell.workload import Workload

HOST_SHARPNESS = 4.0
"""Of the smooth maximum between a device's time and that of the host that launches."""
_INDEX = {name: i for i, name in enumerate(NAMES)}


@dataclass(frozen=True, eq=False)
class PricedOn:
    """The operators of one step on one device, each distinct one once with its count."""

    columns: OpColumns
    count: Floats
    launches: float
    """Operators the host launches for the whole step; 0 where its time does not count."""
    device: Device


def priced_on(workload: Workload, device: Device, microbatches: int) -> PricedOn:
    """A workload on one device, at the pace of its host."""
    step, recipe = workload.step, workload.recipe
    priced = price_step(step, device, recipe.precision, compiled=recipe.compile)
    columns = priced.columns
    passes = np.where(step.op_phase == Phase.OPTIMIZER, 1.0, microbatches)
    count: Floats = np.bincount(priced.row, passes, len(columns.group)).astype(np.float64)
    return PricedOn(columns, count, float(columns.launches @ count), device)


@dataclass(frozen=True, eq=False)
class Rates:
    """The part of a Device that the roofline reads, per operator."""

    l2_bytes: Floats
    memory_bandwidth_bytes_per_s: Floats


@dataclass(frozen=True, eq=False)
class Stack:
    """Many steps, their operators in flat columns."""

    columns: OpColumns
    rates: Rates
    step: Ints
    """Which step each operator belongs to."""
    count: Floats
    launches: Floats
    """Per step."""

    def __len__(self) -> int:
        return len(self.launches)

    def seconds(self, constants: FamilyConstants) -> Floats:
        """Time of each step."""
        parts = op_parts(self.columns, self.rates, constants)
        busy_s = self._sums(parts.overhead_s + parts.busy_s)
        return _with_host(busy_s, self.launches * constants.dispatch_s)

    def elasticities(self, constants: FamilyConstants) -> tuple[Floats, Floats]:
        """Time of each step, and its elasticities [steps, constants] in the order of NAMES."""
        columns, parts = self.columns, op_parts(self.columns, self.rates, constants)
        busy_s = self._sums(parts.overhead_s + parts.busy_s)
        host_s = self.launches * constants.dispatch_s
        total_s = _with_host(busy_s, host_s)
        # Share of the total that follows the device; the rest follows the host.
        by_device = (busy_s / total_s) ** HOST_SHARPNESS
        compute_s = parts.busy_s * (parts.compute_s / parts.busy_s) ** SHARPNESS
        memory_s = parts.busy_s * (parts.memory_s / parts.busy_s) ** SHARPNESS
        gained = constants.cache_gain * cached_share(columns, self.rates)
        found = np.zeros((len(self), len(NAMES)))
        of_group = self.step * len(GROUPS) + columns.group
        for first, seconds in ((0, compute_s), (len(GROUPS), memory_s)):
            sums = np.bincount(of_group, self.count * seconds, len(self) * len(GROUPS))
            found[:, first : first + len(GROUPS)] = -sums.reshape(len(self), len(GROUPS))
        for name, seconds in (
            ("overhead_s", parts.overhead_s),
            ("tile_latency_s", compute_s * _share(constants.tile_latency_s, columns.tile_s)),
            ("half_waves", compute_s * _share(constants.half_waves, columns.waves)),
            ("cache_gain", -memory_s * gained / (1 + gained)),
        ):
            found[:, _INDEX[name]] = self._sums(seconds)
        found *= (by_device / busy_s)[:, None]
        found[:, _INDEX["dispatch_s"]] = (host_s / total_s) ** HOST_SHARPNESS
        return total_s, found

    def group_shares(self, constants: FamilyConstants) -> Floats:
        """What each rate group takes of each step's compute and memory time [steps, GROUPS]."""
        return group_shares(self.elasticities(constants)[1])

    def subset(self, keep: Bools) -> Stack:
        """The steps where `keep` is true."""
        ops = keep[self.step]
        return Stack(
            columns=OpColumns(**_each(OpColumns, lambda n: getattr(self.columns, n)[ops])),
            rates=Rates(**_each(Rates, lambda n: getattr(self.rates, n)[ops])),
            step=(np.cumsum(keep) - 1)[self.step[ops]],
            count=self.count[ops],
            launches=self.launches[keep],
        )

    def _sums(self, op_s: Floats) -> Floats:
        sums: Floats = np.bincount(self.step, self.count * op_s, len(self)).astype(np.float64)
        return sums


def stack(steps: Sequence[PricedOn]) -> Stack:
    """Steps one after another as flat columns."""
    lengths = np.array([len(s.count) for s in steps], dtype=np.int64)

    def column(name: str) -> Floats:
        return np.concatenate([getattr(s.columns, name) for s in steps])

    def rate(name: str) -> Floats:
        return np.repeat([float(getattr(s.device, name)) for s in steps], lengths)

    return Stack(
        columns=OpColumns(**_each(OpColumns, column)),
        rates=Rates(**_each(Rates, rate)),
        step=np.repeat(np.arange(len(steps)), lengths),
        count=np.concatenate([s.count for s in steps]),
        launches=np.array([s.launches for s in steps], dtype=np.float64),
    )


def group_shares(elasticities: Floats) -> Floats:
    """What each rate group takes of compute and memory time, from rows of elasticities."""
    taken = -(elasticities[:, : len(GROUPS)] + elasticities[:, len(GROUPS) : 2 * len(GROUPS)])
    shares: Floats = taken / np.maximum(taken.sum(1, keepdims=True), np.finfo(float).tiny)
    return shares


def _each(kind: type, pick: Callable[[str], Any]) -> dict[str, Any]:
    return {field.name: pick(field.name) for field in dataclasses.fields(kind)}


def _with_host(device_s: Floats, host_s: Floats) -> Floats:
    result: Floats = (device_s**HOST_SHARPNESS + host_s**HOST_SHARPNESS) ** (1 / HOST_SHARPNESS)
    return result


def _share(part: float, whole: Floats) -> Floats:
    """part / (part + whole), which is zero where the whole is infinite."""
    return part / (part + whole)
