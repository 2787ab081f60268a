"""What Foretell says about a real gloo run, given how fast one process and the network are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gloo_models import Model
from benchmarks.gloo_network import DEVICE, Network
from foretell.graph import Graph, graph_of
from foretell.graph.ops import Phase
from foretell.parallel import OpTimes, Placed, StepRun, place, run_step
from foretell.parallel.tensor import Split
from foretell.predictors.analytic.predictor import AnalyticPredictor
from foretell.workload import Recipe, Workload

_PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
_SPLITS = {Split.COLUMN: "column", Split.ROW: "row", Split.ROWS_OF_TABLE: "table"}


@dataclass(frozen=True, eq=False)
class Plan:
    """A model and a strategy as both sides need them."""

    model: Model
    strategy: str
    workload: Workload

    @classmethod
    def of(cls, model: Model, strategy: str) -> Plan:
        graph = graph_of(
            model.reference, image_size=model.image_size, seq=model.seq, batch=model.batch
        )
        return cls(model, strategy, Workload(graph, _recipe(model, strategy)))

    def job(self, network: Network) -> dict[str, Any]:
        """What the workers have to know."""
        placed = place(self.workload, network.cluster)
        graph = self.workload.graph
        piped = placed.layout.pp > 1
        second = int(np.argmax(placed.stage_of_unit == 1)) - 1
        return {
            "model": self.model.name,
            "strategy": self.strategy,
            "splits": _splits(placed, graph),
            "first_of_second": graph.meta["blocks"][second] if piped else "",
        }

    def predict(
        self, network: Network, local_s: Sequence[float], dispatch_s: Sequence[float] = (0, 0, 0)
    ) -> StepRun:
        """The step, from seconds of forward, backward and optimizer of the whole model alone.

        `dispatch_s` is what the strategy's classes add to each of them, however it is split.
        """
        placed = place(self.workload, network.cluster)
        whole = Workload(self.workload.graph, self.workload.recipe)
        roofline = AnalyticPredictor.shipped()
        alone, mine = (roofline.op_times(w, DEVICE).device_s for w in (whole, placed.local))
        phase = whole.step.op_phase
        factor = np.ones(len(phase))
        for number, seconds in zip(_PHASES, local_s, strict=True):
            ops = phase == number
            factor[ops] = seconds / alone[ops].sum() if ops.any() else 1.0
        mine = mine * factor
        for number, seconds in zip(_PHASES, dispatch_s, strict=True):
            ops = phase == number
            mine[ops] += seconds / max(1, ops.sum())
        times = OpTimes(
            device_s=mine,
            host_s=np.zeros(len(mine)),
            message_host_s=0.0,
            contention=network.core_share,
            copy_bytes_per_s=network.copy_bytes_per_s,
        )
        return run_step(placed, times, network.constants)


def _recipe(model: Model, strategy: str) -> Recipe:
    plain = Recipe(batch=model.batch, optimizer="adamw")
    piped = {"pp": 2, "global_batch": model.batch * model.microbatches}
    options: dict[str, dict[str, Any]] = {
        "ddp": {},
        "fsdp": {"zero": 3},
        "gpipe": {**piped, "schedule": "gpipe"},
        "1f1b": {**piped, "schedule": "1f1b"},
        "tp": {"tp": 2, "tp_joint": False},
    }
    return dataclasses.replace(plain, **options[strategy])


def _splits(placed: Placed, graph: Graph) -> dict[str, str]:
    """Module -> split as DTensor styles name it."""
    found = {
        graph.modules[graph.parameters.module[i]]: _SPLITS[Split(int(split))]
        for i, split in enumerate(placed.plan.parameter_split)
        if split
    }
    if placed.plan.losses and found:
        found[list(found)[-1]] = "classes"
    return found
