"""What Foretell says about a real gloo run, given how fast one process and the network are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.gloo_models import Model, recipe_of
from benchmarks.gloo_network import DEVICE, Network
from foretell.graph import graph_of
from foretell.graph.ops import Phase
from foretell.measure.splits import splits_of
from foretell.parallel import OpTimes, StepRun, place, run_step
from foretell.predictors.analytic.predictor import AnalyticPredictor
from foretell.workload import Workload

_PHASES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


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
        return cls(model, strategy, Workload(graph, recipe_of(model, strategy)))

    def job(self, network: Network) -> dict[str, Any]:
        """What the workers have to know."""
        placed = place(self.workload, network.cluster)
        splits = splits_of(placed) if self.strategy == "tp" else {}
        return {"model": self.model.name, "strategy": self.strategy, "splits": splits}

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
