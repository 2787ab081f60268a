"""From operator times to a Forecast: the part all predictors share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.cluster import Cluster, Device
from foretell.graph.graph import Floats, Graph
from foretell.graph.ops import OpClass, Phase
from foretell.predictors.data_parallel import gradient_exchange
from foretell.predictors.forecast import Forecast, Quantity
from foretell.predictors.memory import CPU_MEMORY, CUDA_MEMORY, MemoryConstants, memory_use
from foretell.predictors.peaks import kind_peaks
from foretell.workload import Workload

_MODULE_DEPTH = 3


@dataclass(frozen=True, kw_only=True)
class Spread:
    """90 % interval of measured / predicted, as factors."""

    low: float
    high: float

    def around(self, value: float) -> Quantity:
        """The interval around a prediction; it always holds the prediction itself."""
        return Quantity(value, value * min(self.low, 1.0), value * max(self.high, 1.0))


# Tensors are counted exactly; what allocator, libraries and driver add varies by this much.
MEMORY_SPREAD = Spread(low=0.93, high=1.08)


@dataclass(frozen=True, kw_only=True)
class Trust:
    """How far a prediction may be off, and why."""

    spread: Spread
    notes: Sequence[str] = ()

    @property
    def in_domain(self) -> bool:
        """Nothing speaks against it."""
        return not self.notes


def assemble(
    workload: Workload, cluster: Cluster, op_s: Floats, trust: Trust, predictor: str
) -> Forecast:
    """The forecast of a step whose operators take `op_s` seconds on the slowest device."""
    recipe, device = workload.recipe, slowest(cluster)
    devices = cluster.total_devices
    passes = recipe.accumulation(devices)
    phase = workload.step.op_phase
    exchange = gradient_exchange(workload, cluster, float(op_s[phase == Phase.BACKWARD].sum()))
    op_s = np.where(phase == Phase.OPTIMIZER, op_s, passes * op_s)
    step_time = trust.spread.around(float(op_s.sum()) + exchange.exposed_s)
    smallest = min(cluster.devices, key=lambda d: d.memory_bytes)
    memory = memory_use(workload, memory_constants(smallest), passes=passes)
    total = _total_time(workload, step_time, devices)
    return Forecast(
        step_time_s=step_time,
        memory_bytes=MEMORY_SPREAD.around(memory.total_bytes),
        throughput_per_s=step_time.inverse(recipe.batch * devices * passes),
        utilisation=step_time.inverse(passes * _ideal_s(workload, device)).at_most(1.0),
        traffic_bytes_per_step=Quantity(*[exchange.sent_bytes] * 3),
        total_time_s=total,
        cost_usd=_cost(total, cluster),
        fits=memory.total_bytes <= smallest.memory_bytes,
        in_domain=trust.in_domain,
        notes=(
            *workload.graph.notes,
            *trust.notes,
            *exchange.notes,
            *_memory_notes(memory.total_bytes, smallest, recipe.batch),
        ),
        breakdown={
            "phase": {**_phase_seconds(workload.step, op_s), **exchange.breakdown()},
            "class": _class_seconds(workload.step, op_s),
            "module": _module_seconds(workload.step, op_s),
            "memory": {**memory.by_holder(), "allocated_peak": memory.allocated_bytes},
        },
        subject=_subject(workload, cluster),
        predictor=predictor,
    )


def slowest(cluster: Cluster) -> Device:
    """Synchronous training runs at the pace of the slowest device."""
    return min(cluster.devices, key=lambda d: d.memory_bandwidth_bytes_per_s * d.peak("fp32"))


def memory_constants(device: Device) -> MemoryConstants:
    """What the device's runtime takes beyond tensors."""
    return CPU_MEMORY if device.vendor == "cpu" else CUDA_MEMORY


def _model_flops(workload: Workload) -> float:
    """FLOPs of one forward and backward pass, without what is computed twice."""
    step = workload.step
    return float(step.op_flops()[step.op_phase != Phase.RECOMPUTE].sum())


def _ideal_s(workload: Workload, device: Device) -> float:
    """Time of the model's FLOPs with every operator at the peak of its number format."""
    step = workload.step
    ideal_s = step.kind_flops / kind_peaks(step, device, workload.recipe.precision)
    return float(ideal_s[step.op_kind][step.op_phase != Phase.RECOMPUTE].sum())


def _phase_seconds(step: Graph, op_s: Floats) -> dict[str, float]:
    sums = np.bincount(step.op_phase, weights=op_s, minlength=len(Phase))
    return {phase.label: float(sums[phase]) for phase in Phase if sums[phase] > 0}


def _class_seconds(step: Graph, op_s: Floats) -> dict[str, float]:
    sums = np.bincount(step.op_class, weights=op_s, minlength=len(OpClass))
    ordered = sorted(OpClass, key=lambda c: -sums[c])
    return {c.label: float(sums[c]) for c in ordered if sums[c] > 0}


def _module_seconds(step: Graph, op_s: Floats) -> dict[str, float]:
    """Seconds by module, down to a readable depth."""
    sums = np.bincount(step.op_module, weights=op_s, minlength=len(step.modules))
    shown: dict[str, float] = {}
    for index in np.flatnonzero(sums):
        path = ".".join(step.modules[index].split(".")[:_MODULE_DEPTH]) or "(top)"
        shown[path] = shown.get(path, 0.0) + float(sums[index])
    return dict(sorted(shown.items(), key=lambda item: -item[1]))


def _total_time(workload: Workload, step_time: Quantity, devices: int) -> Quantity | None:
    steps = workload.recipe.total_steps(devices, workload.seq)
    return None if steps is None else step_time.scaled(steps)


def _cost(total: Quantity | None, cluster: Cluster) -> Quantity | None:
    """Between the cheapest fast run and the dearest slow one; the middle price is geometric."""
    price = cluster.price_usd_per_hour
    if total is None or price is None:
        return None
    low, high = price
    hours = total.scaled(1 / 3600)
    return Quantity(hours.value * math.sqrt(low * high), hours.low * low, hours.high * high)


def _memory_notes(needed_bytes: float, device: Device, batch: int) -> list[str]:
    share = needed_bytes / device.memory_bytes
    if share <= 1.0:
        return ["memory is within 8 % of the device's limit"] if share > 0.92 else []
    return [
        f"does not fit: the step needs {share:.2f} times the memory of one {device.id}; "
        f"use {'a smaller batch, ' if batch > 1 else ''}recompute=full or a larger device"
    ]


def _subject(workload: Workload, cluster: Cluster) -> dict[str, object]:
    recipe, meta = workload.recipe, workload.graph.meta
    return {
        "model": meta.get("source", "module"),
        "cluster": str(cluster),
        "devices": cluster.total_devices,
        "batch": recipe.batch,
        "mode": recipe.mode,
        "precision": recipe.precision,
        "sample": meta.get("sample", "sample"),
        "parameters": workload.graph.parameters.total,
        "flops_per_sample": _model_flops(workload) / recipe.batch,
    }
