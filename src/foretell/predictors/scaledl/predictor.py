"""The ScaleDL predictor: learned operator times, played on the cluster like any others."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from foretell.cluster import Cluster, Device
from foretell.errors import InputError
from foretell.graph.graph import Floats
from foretell.graph.ops import Phase
from foretell.parallel import OpTimes, Placed, StepRun, place, run_step
from foretell.predictors.analytic.rates import GROUPS
from foretell.predictors.assemble import Spread, Trust, assemble, slowest
from foretell.predictors.forecast import Forecast
from foretell.predictors.peaks import check_precision
from foretell.predictors.protocol import Measurement
from foretell.predictors.scaledl.domain import (
    cells_of,
    factors_at,
    level_of,
    newest_group,
    novelty,
)
from foretell.predictors.scaledl.setting import Setting, place_of, setting_of
from foretell.predictors.scaledl.table import OpTable, table_of
from foretell.predictors.scaledl.together import LAUNCHES_MATTER_FROM, Taught, job_of
from foretell.predictors.scaledl.weights import Weights, load_weights, save_weights
from foretell.workload import Workload

SHIPPED = {"scaledl": "weights.safetensors", "scaledl-graph": "weights-graph.safetensors"}
"""Weights that come with the package: layer models alone, and with the network over the graph."""
FEW = "few"
"""What the card files steps of few models on a device under, instead of their mode."""
EASY_HOST = "launches hardly matter"
"""What the card files distributed jobs under whose host has little to do."""
_EVIDENCE = 0.5
"""Likeness to a measured distributed job from which on its kind counts as measured."""


@dataclass(frozen=True, eq=False)
class ScaleDLPredictor:
    """Times by an ensemble of layer models, with or without the network over the graph."""

    weights: Weights
    name: str = "scaledl"

    @classmethod
    def shipped(cls, name: str = "scaledl") -> ScaleDLPredictor:
        """With weights that come with the package."""
        return cls(_shipped_weights(SHIPPED[name]), name)

    @classmethod
    def load(cls, path: Path) -> ScaleDLPredictor:
        """With weights from a file."""
        return cls(load_weights(path))

    def save(self, path: Path) -> None:
        """Write the weights that are used."""
        save_weights(self.weights, path)

    def fit(self, measurements: Iterable[Measurement]) -> ScaleDLPredictor:
        """Weights are fitted by 'foretell fit' and 'foretell adapt', not in passing."""
        raise InputError("scaledl is fitted by 'foretell fit' and 'foretell adapt': use those")

    def predict(self, workload: Workload, cluster: Cluster) -> Forecast:
        """The forecast of one workload on one cluster."""
        placed, device = place(workload, cluster), slowest(cluster)
        timed = self._timed(placed.local, device)
        run = self._run(placed, timed)
        trust = self._trust(placed, timed)
        if not cluster.is_single_device:
            if device.id in self.weights.machines:
                low, high = self.weights.card["spreads"]["machine"][device.id]
                spread = trust.spread.or_wider(Spread(low=low, high=high))
                trust = dataclasses.replace(trust, spread=spread)
            else:
                run, trust = self._together(placed, run, trust)
        return assemble(placed, run, trust, self.name)

    def _run(self, placed: Placed, timed: _Timed) -> StepRun:
        """The step by its timeline; as processes of the device were seen to do together."""
        machine = self.weights.machines.get(timed.setting.device)
        if machine is None or placed.cluster.is_single_device:
            return run_step(placed, timed.op_times())
        return run_step(placed, machine.applied(timed.op_times()), machine.all_links())

    def _together(self, placed: Placed, run: StepRun, trust: Trust) -> tuple[StepRun, Trust]:
        """What measured jobs like this one teach about the rest of the step."""
        taught = self._taught(placed, run)
        spreads, notes = self.weights.card["spreads"], list(trust.notes)
        if taught.evidence >= _EVIDENCE:
            low, high = (float(s**taught.doubt) for s in spreads["together"]["*"])
        else:
            known = spreads["distributed"]
            easy = run.host_share < LAUNCHES_MATTER_FROM and EASY_HOST in known
            low, high = known[EASY_HOST if easy else "*"]
            notes.append("no distributed job like this was measured: the timeline alone stands")
        spread = Spread(low=low, high=high)
        if trust.notes:
            spread = spread.or_wider(trust.spread)
        return run.stretched(math.exp(taught.added)), Trust(spread=spread, notes=notes)

    def _taught(self, placed: Placed, run: StepRun) -> Taught:
        device = slowest(placed.cluster)
        jobs = self.weights.together.get(device.family)
        known = placed.cluster.is_single_device or device.id in self.weights.machines
        return Taught(0.0, 0.0, 0.0) if known or not jobs else jobs.about(job_of(placed, run))

    def play(self, workload: Workload, cluster: Cluster) -> tuple[Placed, StepRun]:
        """One step of the job, as it is forecast."""
        placed = place(workload, cluster)
        run = self._run(placed, self._timed(placed.local, slowest(cluster)))
        return placed, run.stretched(math.exp(self._taught(placed, run).added))

    def op_times(self, workload: Workload, device: Device) -> OpTimes:
        """Times of every operator of the step on one device, in execution order."""
        return self._timed(workload, device).op_times()

    def _timed(self, workload: Workload, device: Device) -> _Timed:
        recipe = workload.recipe
        check_precision(recipe.precision, device)
        table = table_of(
            workload.step,
            recipe.precision,
            compiled=recipe.compile,
            on_cpu=device.vendor == "cpu",
        )
        setting = setting_of(recipe, device)
        ensemble = self.weights.ensemble
        logs = ensemble.log_seconds(table, setting, table.context if ensemble.has_cross else None)
        paces = self.weights.paces.get(device.id, np.zeros(len(GROUPS) + 1))
        return _Timed(
            table=table,
            setting=setting,
            kernel_s=np.exp(logs.mean(0) + paces[table.group[table.row]]),
            dispatch_s=float(np.exp(np.log(ensemble.dispatch_s(setting)).mean() + paces[-1])),
            operators=len(workload.step),
        )

    def _trust(self, placed: Placed, timed: _Timed) -> Trust:
        """The spread of cases like this one, and what speaks against them."""
        card, cluster = self.weights.card, placed.cluster
        cells = cells_of(timed.table, timed.setting)
        step = placed.local.step
        passes = np.where(step.op_phase == Phase.OPTIMIZER, 1, placed.microbatches)
        seconds = timed.row_s(passes)
        new = novelty(cells, seconds, self.weights.seen)
        level, notes = level_of(new), []
        if level == "strange":
            group = newest_group(timed.table, cells, seconds, self.weights.seen)
            notes.append(
                f"{new:.0%} of the step is in operators unlike those measured, most in {group}"
            )
        if strange := _strange(card, placed.whole, slowest(cluster)):
            level, notes = "new-device", [strange, *notes]
        return Trust(spread=self._spread(level, timed.setting), notes=notes)

    def _spread(self, level: str, setting: Setting) -> Spread:
        known = self.weights.card["spreads"][level]
        low, high = factors_at(known, place_of(setting), on_cpu=setting.is_cpu)
        return Spread(low=low, high=high)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Timed:
    """Kernels of a step in execution order, and how long each takes."""

    table: OpTable
    setting: Setting
    kernel_s: Floats
    dispatch_s: float
    operators: int

    def row_s(self, passes: Floats) -> Floats:
        """Seconds of all runs of each row of the table; operators run so often in a step."""
        seconds = self.kernel_s * passes[self.table.wiring.op]
        return np.bincount(self.table.row, seconds, len(self.table)).astype(np.float64)

    def op_times(self) -> OpTimes:
        """Of every operator."""
        table = self.table
        return OpTimes(
            device_s=table.by_op(self.kernel_s, self.operators),
            host_s=table.by_op(table.launches[table.row] * self.dispatch_s, self.operators),
        )


def _strange(card: Mapping[str, Any], workload: Workload, device: Device) -> str | None:
    """What of the device was not in the training data."""
    modes = card["groups"].get(device.id, {})
    mode = workload.recipe.mode
    if mode in modes:
        return None
    if FEW in modes:
        return f"few models were measured on {device.id}: other devices stand for the rest"
    if not modes:
        return f"nothing was measured on {device.id}: its specification stands for it"
    alone = set(modes) == {"alone"}
    only = "only single operators were" if alone else f"no {mode} steps were"
    return f"{only} measured on {device.id}: other devices stand for the rest"


@functools.cache
def _shipped_weights(file_name: str) -> Weights:
    file = resources.files("foretell.predictors.scaledl").joinpath(file_name)
    with resources.as_file(file) as path:
        return load_weights(path)
