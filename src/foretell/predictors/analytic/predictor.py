"""The analytic predictor: additive roofline times, liveness memory, honest intervals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretell.cluster import Cluster, Device
from foretell.errors import InputError
from foretell.graph.graph import Floats, Graph
from foretell.graph.ops import OpClass, Phase
from foretell.predictors.analytic.constants import (
    Constants,
    FamilyConstants,
    Spread,
    load_constants,
    shipped_constants,
)
from foretell.predictors.analytic.roofline import op_columns, op_times
from foretell.predictors.data_parallel import gradient_exchange
from foretell.predictors.forecast import Forecast, Quantity
from foretell.predictors.memory import CPU_MEMORY, CUDA_MEMORY, MemoryConstants, memory_use
from foretell.predictors.protocol import Measurement
from foretell.workload import Workload

_MEMORY_SPREAD = Spread(low=0.93, high=1.08)
_MODULE_DEPTH = 3


@dataclass(frozen=True)
class StepTimes:
    """Seconds of each operator of a step, in execution order."""

    op_s: Floats
    key: str
    """Which constants priced it."""

    @property
    def total_s(self) -> float:
        """The device's time for the step."""
        return float(self.op_s.sum())


@dataclass(frozen=True)
class AnalyticPredictor:
    """Physics with a few fitted constants per device family; needs no training data to answer."""

    constants: Constants
    name: str = "analytic"

    @classmethod
    def shipped(cls) -> AnalyticPredictor:
        """With the constants that come with the package."""
        return cls(shipped_constants())

    @classmethod
    def load(cls, path: Path) -> AnalyticPredictor:
        """With constants from a file."""
        return cls(load_constants(path))

    def save(self, path: Path) -> None:
        """Write the constants as JSON."""
        path.write_text(self.constants.to_json(), encoding="utf-8")

    def fit(self, measurements: Iterable[Measurement]) -> AnalyticPredictor:
        """One speed factor per device family, and its spread, from measured steps."""
        ratios: dict[str, list[float]] = {}
        for m in measurements:
            predicted = self.predict(m.workload, m.cluster).step_time_s.value
            family = m.cluster.groups[0].device.family
            ratios.setdefault(family, []).append(m.step_time_s / predicted)
        families, spreads = dict(self.constants.families), dict(self.constants.spreads)
        for family, values in ratios.items():
            factor = float(np.exp(np.median(np.log(values))))
            for key in {self.constants.family(family)[1], *families}:
                if key.split("/")[0] in (family, "default"):
                    new_key = key.replace("default", family)
                    families[new_key] = _slower(self.constants.families[key], factor)
            spreads[family] = _spread_of(np.array(values) / factor)
        return AnalyticPredictor(
            dataclasses.replace(self.constants, families=families, spreads=spreads), self.name
        )

    def step_times(self, workload: Workload, device: Device) -> StepTimes:
        """Seconds of every operator on one device."""
        recipe = workload.recipe
        _check_precision(recipe.precision, device)
        variants = _variants(recipe.mode, recipe.channels_last, recipe.compile)
        constants, key = self.constants.family(device.family, variants=variants)
        step = workload.step
        kind_s = op_times(op_columns(step, device, recipe.precision), device, constants)
        op_s = kind_s[step.op_kind]
        return StepTimes(_not_faster_than_dispatch(op_s, step, constants, recipe.compile), key)

    def predict(self, workload: Workload, cluster: Cluster) -> Forecast:
        """The forecast of one workload on one cluster."""
        recipe, device = workload.recipe, _slowest(cluster)
        times = self.step_times(workload, device)
        devices = cluster.total_devices
        passes = recipe.accumulation(devices)
        compute_s = _phase_seconds(workload.step, times.op_s)
        exchange = gradient_exchange(workload, cluster, compute_s.get("backward", 0.0))
        single = sum(s for phase, s in compute_s.items() if phase != "optimizer")
        step_s = passes * single + compute_s.get("optimizer", 0.0) + exchange.exposed_s
        spread, in_domain, notes = self._trust(workload, cluster, times.key)
        step_time = _around(step_s, spread)
        memory = memory_use(workload, memory_constants(device))
        total = _total_time(workload, step_time, devices)
        flops = passes * workload.graph.at(recipe.batch).flops
        samples = recipe.batch * devices * passes
        peak = _peak_for(recipe.precision, device)
        return Forecast(
            step_time_s=step_time,
            memory_bytes=_around(memory.total_bytes, _MEMORY_SPREAD),
            throughput_per_s=step_time.inverse(samples),
            utilisation=step_time.inverse(flops / peak),
            traffic_bytes_per_step=_exactly(exchange.sent_bytes),
            total_time_s=total,
            cost_usd=_cost(total, cluster),
            fits=memory.total_bytes <= device.memory_bytes,
            in_domain=in_domain,
            notes=(*notes, *exchange.notes, *_memory_notes(memory.total_bytes, device)),
            breakdown={
                "phase": {**compute_s, **exchange.breakdown()},
                "class": _class_seconds(workload.step, times.op_s),
                "module": _module_seconds(workload.step, times.op_s),
                "memory": {**memory.by_holder(), "allocated_peak": memory.allocated_bytes},
            },
            subject=_subject(workload, cluster),
            predictor=self.name,
        )

    def _trust(
        self, workload: Workload, cluster: Cluster, key: str
    ) -> tuple[Spread, bool, list[str]]:
        """Spread, whether the case resembles what was fitted, and why not."""
        device = _slowest(cluster)
        notes: list[str] = []
        family = key.split("/")[0]
        if family == "default":
            notes.append(
                f"the {device.family} family was never measured: default efficiencies are used"
            )
        else:
            notes += self._gaps(workload, device, key)
        unpriced = _share_of(workload.step, OpClass.OTHER)
        if unpriced > 0.05:
            notes.append(f"{unpriced:.0%} of operators are of a class without a cost rule")
        level = key if not notes else "default" if family == "default" else "extrapolated"
        return self.constants.spread(level), not notes, notes

    def _gaps(self, workload: Workload, device: Device, key: str) -> list[str]:
        """What of this case was not measured on the device's family."""
        recipe = workload.recipe
        evidence = self.constants.provenance.get("evidence", {}).get(key, {})
        if evidence.get("operators_only"):
            return [f"only single operators were measured on {device.family}, no whole steps"]
        wanted = _variants(recipe.mode, recipe.channels_last, recipe.compile)[0]
        gaps = []
        if key != f"{device.family}/{wanted}":
            gaps.append(f"no {wanted.replace('+', ' ')} steps were measured on {device.family}")
        if recipe.precision not in evidence.get("precisions", (recipe.precision,)):
            gaps.append(f"{recipe.precision} was not measured on {device.family} in this setting")
        return gaps


def memory_constants(device: Device) -> MemoryConstants:
    """What the device's runtime takes beyond tensors."""
    return CPU_MEMORY if device.vendor == "cpu" else CUDA_MEMORY


def _variants(mode: str, channels_last: bool, compiled: bool) -> tuple[str, ...]:
    """Most specific first."""
    layout = "nhwc" if channels_last else ""
    how = "compile" if compiled else ""
    full = [part for part in (mode, layout, how) if part]
    return tuple("+".join(full[:n]) for n in range(len(full), 0, -1))


def _check_precision(precision: str, device: Device) -> None:
    needed = precision.removeprefix("amp-")
    if not device.supports(needed):
        have = ", ".join(device.peak_flops_per_s)
        raise InputError(
            f"device {device.id!r} does not compute in {needed}, which precision={precision} "
            f"needs: it has {have}"
        )


def _not_faster_than_dispatch(
    op_s: Floats, step: Graph, constants: FamilyConstants, compiled: bool
) -> Floats:
    """The host launches operators one by one; a device that waits for it is no faster."""
    launched = float((step.op_phase != Phase.OPTIMIZER).sum())
    host_s = launched * constants.dispatch_s * (0.3 if compiled else 1.0)
    busy_s = float(op_s.sum())
    if busy_s <= 0.0:
        return op_s
    stretch = float((busy_s**4 + host_s**4) ** 0.25) / busy_s
    return op_s * stretch


def _slowest(cluster: Cluster) -> Device:
    """Synchronous training runs at the pace of the slowest device."""
    return min(cluster.devices, key=lambda d: d.memory_bandwidth_bytes_per_s * d.peak("fp32"))


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


def _share_of(step: Graph, op_class: OpClass) -> float:
    return float((step.op_class == op_class).mean()) if len(step) else 0.0


def _peak_for(precision: str, device: Device) -> float:
    return device.peak(precision.removeprefix("amp-"))


def _around(value: float, spread: Spread) -> Quantity:
    return Quantity(value, value * min(spread.low, 1.0), value * max(spread.high, 1.0))


def _exactly(value: float) -> Quantity:
    return Quantity(value, value, value)


def _total_time(workload: Workload, step_time: Quantity, devices: int) -> Quantity | None:
    steps = workload.recipe.total_steps(devices, workload.seq)
    return None if steps is None else step_time.scaled(steps)


def _cost(total: Quantity | None, cluster: Cluster) -> Quantity | None:
    price = cluster.price_usd_per_hour
    if total is None or price is None:
        return None
    low, high = price
    hours = total.scaled(1 / 3600)
    return Quantity(hours.value * math.sqrt(low * high), hours.low * low, hours.high * high)


def _memory_notes(needed_bytes: float, device: Device) -> list[str]:
    share = needed_bytes / device.memory_bytes
    if share <= 1.0:
        return ["memory is within 8 % of the device's limit"] if share > 0.92 else []
    return [
        f"does not fit: the step needs {share:.2f} times the memory of one {device.id}; "
        "use a smaller batch, recompute=full or a larger device"
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
        "flops_per_sample": workload.graph.at(recipe.batch).flops / recipe.batch,
    }


def _slower(constants: FamilyConstants, factor: float) -> FamilyConstants:
    return dataclasses.replace(
        constants,
        compute=constants.compute / factor,
        memory=constants.memory / factor,
        overhead_s=constants.overhead_s * factor,
        dispatch_s=constants.dispatch_s * factor,
    )


def _spread_of(ratios: Floats) -> Spread:
    """The 5 % and 95 % points of measured / predicted, no narrower than 2 % each way."""
    low, high = np.quantile(ratios, [0.05, 0.95])
    return Spread(low=float(min(low, 0.98)), high=float(max(high, 1.02)))
