"""From operator times to a Forecast: the part all predictors share."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foretell.cluster import Cluster, Device
from foretell.graph.graph import Floats, Graph, Ints
from foretell.graph.ops import OpClass, Phase
from foretell.parallel import Placed, StepRun, describe, plan_notes
from foretell.predictors.forecast import WAITING, Forecast, Quantity
from foretell.predictors.memory import (
    CPU_MEMORY,
    CUDA_MEMORY,
    MemoryConstants,
    MemoryUse,
    rank_memory,
)
from foretell.predictors.peaks import kind_peaks
from foretell.workload import Workload

_MODULE_DEPTH = 3


@dataclass(frozen=True, kw_only=True)
class Spread:
    """90 % interval of measured / predicted, as factors."""

    low: float
    high: float

    def or_wider(self, other: Spread) -> Spread:
        """The interval that holds both."""
        return Spread(low=min(self.low, other.low), high=max(self.high, other.high))

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


def assemble(placed: Placed, run: StepRun, trust: Trust, predictor: str) -> Forecast:
    """The forecast of a job whose step went like this."""
    workload, cluster, layout = placed.whole, placed.cluster, placed.layout
    recipe, device, micro = workload.recipe, slowest(cluster), placed.microbatches
    step_time = trust.spread.around(run.step_s)
    smallest = min(cluster.devices, key=lambda d: d.memory_bytes)
    by_rank = rank_memory(placed, memory_constants(smallest))
    memory = max(by_rank, key=lambda m: m.total_bytes)
    total = _total_time(workload, step_time, layout.dp)
    compute = _compute_breakdown(placed, run)
    shares = _utilisation(placed, run, device)
    return Forecast(
        step_time_s=step_time,
        memory_bytes=MEMORY_SPREAD.around(memory.total_bytes),
        throughput_per_s=step_time.inverse(recipe.batch * layout.dp * micro),
        utilisation=step_time.inverse(shares["mfu"] * run.step_s).at_most(1.0),
        traffic_bytes_per_step=Quantity(*[sum(run.sent_bytes.values())] * 3),
        total_time_s=total,
        cost_usd=_cost(total, cluster),
        fits=memory.total_bytes <= smallest.memory_bytes,
        in_domain=trust.in_domain,
        notes=(
            *workload.graph.notes,
            *trust.notes,
            *plan_notes(placed, run),
            *_memory_notes(memory.total_bytes, smallest, recipe.batch),
        ),
        breakdown={
            "phase": run.phase_s,
            **compute,
            "memory": {**memory.by_holder(), "allocated_peak": memory.allocated_bytes},
            "utilisation": shares,
            **_distributed_breakdown(run, by_rank),
        },
        subject={**_subject(placed), "limited_by": _limited_by(run, compute["class"])},
        predictor=predictor,
    )


def _compute_breakdown(placed: Placed, run: StepRun) -> dict[str, dict[str, float]]:
    """Seconds of the slowest rank by operator class and by module."""
    step = placed.local.step
    optimizing = step.op_phase == Phase.OPTIMIZER
    times_run = np.where(optimizing, 1, placed.microbatches) * (run.op_rank == run.slowest)
    seconds = run.op_s * times_run
    planned = float(seconds[optimizing].sum())
    if planned:
        seconds[optimizing] *= run.phase_s.get(Phase.OPTIMIZER.label, planned) / planned
    waiting = {k: v for k, v in run.phase_s.items() if k in WAITING}
    return {
        "class": {**_class_seconds(step, seconds), **waiting},
        "module": _module_seconds(step, seconds),
    }


def _limited_by(run: StepRun, class_s: Mapping[str, float]) -> str:
    """What takes most of the step, in words."""
    shares = {name.replace("_", " "): seconds for name, seconds in class_s.items()}
    waited = (1 - 1 / run.host_stretch) * sum(s for n, s in class_s.items() if n not in WAITING)
    if waited > 0.2 * run.step_s:
        shares["the host launching operators"] = waited
    name = max(shares, key=lambda n: shares[n])
    return f"{name} ({shares[name] / run.step_s:.0%} of the step)"


def _distributed_breakdown(
    run: StepRun, by_rank: Sequence[MemoryUse]
) -> dict[str, dict[str, float]]:
    if not run.sent_bytes:
        return {}
    found = {
        "traffic": {**run.sent_bytes, "network": run.network_bytes},
        "streams": {
            "compute_busy": run.compute_busy_s,
            "communication_busy": run.communication_busy_s,
        },
    }
    if len(by_rank) > 1:
        found["memory_by_stage"] = {f"stage {i}": m.total_bytes for i, m in enumerate(by_rank)}
    return found


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


def _ideal_s(workload: Workload, device: Device, *, twice: bool = False) -> float:
    """Time of the model's FLOPs with every operator at the peak of its number format.

    `twice` counts what is computed again as well.
    """
    step = workload.step
    ideal_s = step.kind_flops / kind_peaks(step, device, workload.recipe.precision)
    return float(ideal_s[step.op_kind][twice | (step.op_phase != Phase.RECOMPUTE)].sum())


def _utilisation(placed: Placed, run: StepRun, device: Device) -> dict[str, float]:
    """Shares of the step: FLOPs at peak without and with recomputation, and busy compute."""
    per_device = placed.microbatches / (placed.layout.world // placed.layout.dp) / run.step_s
    return {
        "mfu": per_device * _ideal_s(placed.whole, device),
        "hfu": per_device * _ideal_s(placed.whole, device, twice=True),
        "compute_busy": run.compute_busy_s / run.step_s,
    }


def _class_seconds(step: Graph, op_s: Floats) -> dict[str, float]:
    sums = np.bincount(step.op_class, weights=op_s, minlength=len(OpClass))
    ordered = sorted(OpClass, key=lambda c: -sums[c])
    return {c.label: float(sums[c]) for c in ordered if sums[c] > 0}


def _module_seconds(step: Graph, op_s: Floats) -> dict[str, float]:
    """Seconds by module, down to a readable depth, longest first."""
    names, shown = _shown_modules(step.modules)
    sums = np.bincount(shown[step.op_module], weights=op_s, minlength=len(names))
    return {names[i]: float(sums[i]) for i in np.argsort(-sums, kind="stable") if sums[i] > 0}


@functools.lru_cache(maxsize=256)
def _shown_modules(modules: tuple[str, ...]) -> tuple[tuple[str, ...], Ints]:
    """The shown names, and which of them each module path counts to."""
    number: dict[str, int] = {}
    shown = [
        number.setdefault(".".join(path.split(".")[:_MODULE_DEPTH]) or "(top)", len(number))
        for path in modules
    ]
    return tuple(number), np.array(shown, dtype=np.int64)


def _total_time(workload: Workload, step_time: Quantity, replicas: int) -> Quantity | None:
    steps = workload.recipe.total_steps(replicas, workload.seq)
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


def _subject(placed: Placed) -> dict[str, object]:
    workload = placed.whole
    recipe, meta = workload.recipe, workload.graph.meta
    return {
        "model": meta.get("source", "module"),
        "cluster": str(placed.cluster),
        "devices": placed.cluster.total_devices,
        "batch": recipe.batch,
        "global_batch": recipe.batch * placed.layout.dp * placed.microbatches,
        "mode": recipe.mode,
        "precision": recipe.precision,
        "parallel": describe(placed),
        "sample": meta.get("sample", "sample"),
        "parameters": workload.graph.parameters.total,
        "flops_per_sample": _model_flops(workload) / recipe.batch,
    }
