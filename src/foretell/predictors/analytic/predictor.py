"""The analytic predictor: additive roofline times with honest intervals."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretell.cluster import Cluster, Device
from foretell.data.export import whole_file
from foretell.graph.graph import Floats, Graph
from foretell.graph.ops import OpClass
from foretell.parallel import OpTimes, Placed, StepRun, place, run_step
from foretell.predictors.analytic.constants import (
    Constants,
    FamilyConstants,
    load_constants,
    shipped_constants,
)
from foretell.predictors.analytic.roofline import op_times, price_step
from foretell.predictors.assemble import Spread, Trust, assemble, slowest
from foretell.predictors.forecast import Forecast
from foretell.predictors.peaks import check_precision
from foretell.predictors.protocol import Measurement
from foretell.workload import Recipe, Workload

_UNPRICED_SHARE = 0.05
# Training frameworks take up to ten times the host time of the loops constants come from.
_LAUNCHES_MATTER = 0.1


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
        with whole_file(path, binary=False) as stream:
            stream.write(self.constants.to_json())

    def fit(self, measurements: Iterable[Measurement]) -> AnalyticPredictor:
        """One speed factor and its spread per device family and setting that was measured."""
        ratios: dict[tuple[str, tuple[str, ...]], list[float]] = {}
        for m in measurements:
            predicted = self.predict(m.workload, m.cluster).step_time_s.value
            setting = slowest(m.cluster).family, _variants(m.workload.recipe)
            ratios.setdefault(setting, []).append(m.step_time_s / predicted)
        families, spreads = dict(self.constants.families), dict(self.constants.spreads)
        for (family, variants), values in ratios.items():
            factor = float(np.exp(np.median(np.log(values))))
            base, _ = self.constants.family(family, variants=variants)
            key = f"{family}/{variants[0]}"
            families[key] = _slower(base, factor)
            families.setdefault(family, families[key])
            spreads[key] = _spread_of(np.array(values) / factor)
        return AnalyticPredictor(
            dataclasses.replace(self.constants, families=families, spreads=spreads), self.name
        )

    def predict(self, workload: Workload, cluster: Cluster) -> Forecast:
        """The forecast of one workload on one cluster."""
        placed, run = self.play(workload, cluster)
        trust = self._trust(workload, slowest(cluster))
        if not cluster.is_single_device:
            trust = dataclasses.replace(trust, spread=self._spread_together(cluster, run, trust))
        return assemble(placed, run, trust, self.name)

    def _spread_together(self, cluster: Cluster, run: StepRun, trust: Trust) -> Spread:
        measured = self.constants.spreads.get(f"{slowest(cluster).family}/together")
        return trust.spread.or_wider(measured or self.constants.spread(distributed_level(run)))

    def play(self, workload: Workload, cluster: Cluster) -> tuple[Placed, StepRun]:
        """One step of the job, as it goes on its cluster."""
        placed, device = place(workload, cluster), slowest(cluster)
        times = self.op_times(placed.local, device)
        together = self.constants.together.get(device.family)
        if together is None or cluster.is_single_device:
            return placed, run_step(placed, times)
        return placed, run_step(placed, together.applied(times), together.all_links())

    def op_times(self, workload: Workload, device: Device) -> OpTimes:
        """Times of every operator of the step on one device, in execution order."""
        recipe, step = workload.recipe, workload.step
        constants = self.constants_for(recipe, device)
        priced = price_step(step, device, recipe.precision, compiled=recipe.compile)
        return OpTimes(
            device_s=op_times(priced.columns, device, constants)[priced.row],
            host_s=priced.columns.launches[priced.row] * constants.dispatch_s,
        )

    def constants_for(self, recipe: Recipe, device: Device) -> FamilyConstants:
        """What operators of such a step are priced with on the device."""
        check_precision(recipe.precision, device)
        return self._family(recipe, device)[0]

    def _family(self, recipe: Recipe, device: Device) -> tuple[FamilyConstants, str]:
        return self.constants.family(device.family, variants=_variants(recipe))

    def _trust(self, workload: Workload, device: Device) -> Trust:
        """The spread of cases like this one, and what speaks against them."""
        _, key = self._family(workload.recipe, device)
        if key.startswith("default"):
            notes = [f"the {device.family} family was never measured: default rates are used"]
            level = "default"
        else:
            notes = self._gaps(workload, device, key)
            level = "extrapolated" if notes else key
        unpriced = _share_of(workload.step, OpClass.OTHER)
        if unpriced > _UNPRICED_SHARE:
            notes.append(f"{unpriced:.0%} of operators are of a class without a cost rule")
        return Trust(spread=self.constants.spread(level), notes=notes)

    def _gaps(self, workload: Workload, device: Device, key: str) -> list[str]:
        """What of this case was not measured on the device's family."""
        recipe = workload.recipe
        evidence = self.constants.provenance.get("evidence", {}).get(key, {})
        if evidence.get("operators_only"):
            return [f"only single operators were measured on {device.family}, no whole steps"]
        wanted = _variants(recipe)[0]
        gaps = []
        if key != f"{device.family}/{wanted}" or evidence.get("derived"):
            gaps.append(f"no {wanted.replace('+', ' ')} steps were measured on {device.family}")
        if recipe.precision not in evidence.get("precisions", (recipe.precision,)):
            gaps.append(f"{recipe.precision} was not measured on {device.family} in this setting")
        return gaps


def distributed_level(run: StepRun) -> str:
    """Which spread a distributed step has: frameworks differ most where launches may limit it."""
    return "distributed" if run.host_share < _LAUNCHES_MATTER else "distributed-launches"


def _variants(recipe: Recipe) -> tuple[str, ...]:
    """Keys of constants that would suit the recipe, most specific first."""
    parts = [recipe.mode]
    parts += ["nhwc"] if recipe.channels_last else []
    parts += ["compile"] if recipe.compile else []
    return tuple("+".join(parts[:n]) for n in range(len(parts), 0, -1))


def _share_of(step: Graph, op_class: OpClass) -> float:
    return float((step.op_class == op_class).mean()) if len(step) else 0.0


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
