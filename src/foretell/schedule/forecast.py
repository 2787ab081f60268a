"""A forecast job as the scheduler sees it: stages, replicas, and what they tell each other."""

from __future__ import annotations

import dataclasses

from foretell.cluster import Cluster
from foretell.parallel.schedule import run_schedule
from foretell.predictors.protocol import PlaysSteps
from foretell.schedule.shape import Flow, Shape, Stage
from foretell.workload import Workload


def shape_of(workload: Workload, cluster: Cluster, predictor: PlaysSteps) -> Shape:
    """One stage per pipeline rank; what tensor-parallel ranks tell each other counts as compute.

    Stages take as long as the step does with transfers between them for nothing: bubbles and the
    optimizer are part of it, the exchange of gradients is not.
    """
    placed, run = predictor.play(workload, cluster)
    layout, recipe = placed.layout, placed.whole.recipe
    replicas = cluster.total_devices // layout.pp
    free = [dataclasses.replace(stage, send_s=0.0) for stage in run.stages]
    played = run_schedule(recipe.schedule, free, layout.pp, placed.microbatches)
    gradients = run.sent_bytes.get("dp", 0.0) * replicas / max(2 * (replicas - 1), 1)
    stages = tuple(
        Stage(replicas, (played.end_s[rank] + run.finishes[rank].optimizer_s), gradients)
        for rank in range(layout.pp)
    )
    between = run.sent_bytes.get("pp", 0.0) * layout.pp / max(layout.pp - 1, 1) * replicas
    flows = tuple(Flow(rank, rank + 1, between) for rank in range(layout.pp - 1))
    return Shape(stages, flows)
