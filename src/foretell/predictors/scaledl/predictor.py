"""The ScaleDL predictor: learned operator times, played on the cluster like any others."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from foretell.cluster import Cluster, Device
from foretell.errors import InputError
from foretell.graph.graph import Floats
from foretell.parallel import OpTimes, Placed, StepRun, place, run_step
from foretell.predictors.assemble import Spread, Trust, assemble, slowest
from foretell.predictors.forecast import Forecast
from foretell.predictors.protocol import Measurement
from foretell.predictors.scaledl.context import Context, context_of
from foretell.predictors.scaledl.setting import Setting, setting_of
from foretell.predictors.scaledl.table import OpTable, table_of
from foretell.predictors.scaledl.weights import Weights, load_weights, save_weights
from foretell.workload import Workload


@dataclass(frozen=True, eq=False)
class ScaleDLPredictor:
    """Times by an ensemble of layer models, with or without the network over the graph."""

    weights: Weights
    name: str = "scaledl"
    with_cross: bool = True

    @classmethod
    def shipped(cls, *, name: str = "scaledl", with_cross: bool = True) -> ScaleDLPredictor:
        """With the weights that come with the package."""
        return cls(shipped_weights(), name, with_cross)

    @classmethod
    def load(cls, path: Path) -> ScaleDLPredictor:
        """With weights from a file."""
        return cls(load_weights(path))

    def save(self, path: Path) -> None:
        """Write the weights."""
        save_weights(self.weights, path)

    def fit(self, measurements: Iterable[Measurement]) -> ScaleDLPredictor:
        """Weights are fitted by 'foretell fit' and 'foretell adapt', not in passing."""
        raise InputError("scaledl is fitted by 'foretell fit' and 'foretell adapt': use those")

    def predict(self, workload: Workload, cluster: Cluster) -> Forecast:
        """The forecast of one workload on one cluster."""
        placed, run = self.play(workload, cluster)
        return assemble(placed, run, self._trust(workload, cluster), self.name)

    def play(self, workload: Workload, cluster: Cluster) -> tuple[Placed, StepRun]:
        """One step of the job, as it goes on its cluster."""
        placed = place(workload, cluster)
        return placed, run_step(placed, self.op_times(placed.local, slowest(cluster)))

    def op_times(self, workload: Workload, device: Device) -> OpTimes:
        """Times of every operator of the step on one device, in execution order."""
        recipe, step = workload.recipe, workload.step
        table = table_of(step, recipe.precision, compiled=recipe.compile)
        setting = setting_of(recipe, device)
        context = _context(table) if self.with_cross else None
        logs = [self._member_logs(i, table, setting, context) for i in range(len(self.weights))]
        dispatch_s = np.exp(
            np.mean([np.log(m.layers.dispatch_s(setting)) for m in self.weights.members])
        )
        return OpTimes(
            device_s=table.by_op(np.exp(np.mean(logs, axis=0)), len(step)),
            host_s=table.by_op(table.launches[table.row] * float(dispatch_s), len(step)),
        )

    def _member_logs(
        self, number: int, table: OpTable, setting: Setting, context: Context | None
    ) -> Floats:
        member = self.weights.members[number]
        hidden = member.layers.hidden(table, setting)
        logs: Floats = np.log(member.layers.times_of(hidden, table, setting))[table.row]
        if context is not None and member.cross is not None:
            logs = logs + member.cross.change(hidden, context)[context.place]
        return logs

    def _trust(self, workload: Workload, cluster: Cluster) -> Trust:
        """The spread of cases like this one, and what speaks against them."""
        card, device = self.weights.card, slowest(cluster)
        notes = _gaps(card, workload, device)
        known = device.id in card["devices"]
        level = "device" if known and not notes else "gap" if known else "new-device"
        spreads = {name: Spread(low=v[0], high=v[1]) for name, v in card["spreads"].items()}
        spread = spreads[level]
        if not cluster.is_single_device:
            spread = spread.or_wider(spreads["distributed"])
        return Trust(spread=spread, notes=notes)


def _gaps(card: Mapping[str, Any], workload: Workload, device: Device) -> list[str]:
    """What of this case was not in the training data."""
    if device.id not in card["devices"]:
        return [f"no step was measured on {device.id}: its specification stands for it"]
    return []


def _context(table: OpTable) -> Context:
    return context_of(table.row, table.edge_src, table.edge_dst, np.ones(len(table.row)))


@functools.cache
def shipped_weights() -> Weights:
    """The weights that come with the package."""
    file = resources.files("foretell.predictors.scaledl").joinpath("weights.safetensors")
    with resources.as_file(file) as path:
        return load_weights(path)


def without_cross(predictor: ScaleDLPredictor) -> ScaleDLPredictor:
    """The same layer models alone."""
    return dataclasses.replace(predictor, with_cross=False, name="scaledl-layers")
