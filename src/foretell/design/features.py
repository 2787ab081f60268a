"""What a candidate would tell: how its time answers to every fitted constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.cluster import Cluster
from foretell.design.played import EXCHANGE, played_elasticities
from foretell.graph.graph import Bools, Floats, Ints
from foretell.parallel import Placed, place
from foretell.predictors.analytic import AnalyticPredictor
from foretell.predictors.analytic.constants import NAMES, FamilyConstants
from foretell.predictors.analytic.elasticity import Stack, priced_on, stack
from foretell.predictors.assemble import slowest
from foretell.workload import Workload

FEATURES = (*NAMES, *EXCHANGE)
"""Constants of operators, then those of exchanges between processes."""

Job = tuple[Workload, Cluster]


@dataclass(frozen=True, eq=False, kw_only=True)
class Features:
    """Candidates as rows."""

    elasticities: Floats
    """[n, FEATURES]: d log step time / d log constant."""
    step_s: Floats
    steps: Stack
    """What one device runs of each."""
    processes: Ints

    def __len__(self) -> int:
        return len(self.step_s)

    def subset(self, keep: Bools) -> Features:
        """The rows where `keep` is true."""
        return Features(
            elasticities=self.elasticities[keep],
            step_s=self.step_s[keep],
            steps=self.steps.subset(keep),
            processes=self.processes[keep],
        )


def features_of(
    jobs: Sequence[Job], predictor: AnalyticPredictor, shift: Floats | None = None
) -> Features:
    """Rows of many jobs; `shift` is added to the logarithms of all operator constants."""
    placed = [place(workload, cluster) for workload, cluster in jobs]
    own = [predictor.constants_for(p.whole.recipe, slowest(p.cluster)) for p in placed]
    kinds = {id(constants): constants for constants in own}
    kind = np.array([id(constants) for constants in own])
    alone = np.array([_is_alone(p) for p in placed], dtype=np.bool_)
    steps = stack([priced_on(p.local, slowest(p.cluster), p.microbatches) for p in placed])
    rows = np.zeros((len(placed), len(FEATURES)))
    step_s = np.zeros(len(placed))
    for number, constants in kinds.items():
        moved = constants if shift is None else FamilyConstants.from_logs(constants.logs() + shift)
        same = kind == number
        together = same & alone
        if together.any():
            step_s[together], found = steps.subset(together).elasticities(moved)
            rows[together, : len(NAMES)] = found
        for i in np.flatnonzero(same & ~alone):
            step_s[i], rows[i] = played_elasticities(placed[i], moved)
    return Features(
        elasticities=rows,
        step_s=step_s,
        steps=steps,
        processes=np.array([p.cluster.total_devices for p in placed], dtype=np.int64),
    )


def _is_alone(placed: Placed) -> bool:
    """Whether the step is no more than its operators, one after another."""
    recipe = placed.whole.recipe
    return placed.cluster.is_single_device and not recipe.offload_optimizer and not recipe.straggler
