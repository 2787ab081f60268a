"""A forecast job as the scheduler sees it: stages, replicas, and what they tell each other."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from foretell.api import Case, workload_of
from foretell.cluster import Cluster, NodeGroup, aliases, device, node_group
from foretell.errors import ForetellError, InputError, one_line
from foretell.parallel.schedule import run_schedule
from foretell.predictors import predictor
from foretell.predictors.protocol import PlaysSteps
from foretell.schedule.pool import PoolSpec
from foretell.schedule.readers import Left, Row
from foretell.schedule.shape import Flow, Shape, Stage
from foretell.workload import Workload

_Z90 = 1.645
"""Deviations from the middle that the edges of a forecast's interval are."""
_REMEMBERED = 100_000
"""Different jobs of a log whose answers are kept."""


def forecast_rows(
    rows: Sequence[Row],
    pools: Sequence[PoolSpec],
    tell: Callable[[float], None] = lambda share: None,
) -> tuple[list[Row], list[Left]]:
    """Rows that say what they train with what that takes here, and those that cannot run here.

    Compute is that of the first pool that has the devices and the kind a job wants, in units of
    the pool's speed.
    """
    found, left = [], []
    for done, row in enumerate(rows, start=1):
        if row.case is None:
            found.append(row)
            continue
        answer = _answer(row.case, _pool_for(row, pools), row.devices)
        tell(done / len(rows))
        if isinstance(answer, str):
            left.append(Left(row.line, answer, malformed=False))
        else:
            found.append(dataclasses.replace(row, **answer))
    return found, left


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


def _pool_for(row: Row, pools: Sequence[PoolSpec]) -> PoolSpec:
    kind = aliases().get(row.device.lower(), row.device.lower())
    wanted = [spec for spec in pools if spec.device == kind] or pools
    return next((spec for spec in wanted if spec.devices >= row.devices), wanted[0])


@lru_cache(maxsize=_REMEMBERED)
def _answer(case: Case, spec: PoolSpec, devices: int) -> dict[str, Any] | str:
    """What a row says of a job once it is forecast, or why it cannot run."""
    cluster = Cluster(groups=(_fewest_nodes(spec, devices),))
    asked = predictor(case.predictor)
    try:
        if not isinstance(asked, PlaysSteps):
            raise InputError(f"predictor {case.predictor!r} cannot show how a step runs")
        workload, _ = workload_of(case, cluster)
        forecast = asked.predict(workload, cluster)
        if not forecast.fits:
            return f"does not fit in the memory of {spec.device}"
        steps = workload.recipe.total_steps(case.layout(devices).dp, workload.seq)
        time = forecast.step_time_s
        return {
            "shape": _at_speed(shape_of(workload, cluster, asked), spec.speed),
            "iterations": steps or math.nan,
            "doubt": math.log(time.high / time.low) / (2 * _Z90),
        }
    except ForetellError as error:
        return one_line(error)


def _at_speed(shape: Shape, speed: float) -> Shape:
    """As devices of speed 1 would compute it."""
    stages = [dataclasses.replace(s, compute_s=s.compute_s * speed) for s in shape.stages]
    return dataclasses.replace(shape, stages=tuple(stages))


def _fewest_nodes(spec: PoolSpec, devices: int) -> NodeGroup:
    """As few equal nodes of a pool as hold so many devices."""
    each = spec.devices_per_server
    nodes = spec.nodes or node_group(device(spec.device), gpus_per_node=each)
    least = -(-devices // each)
    count = next(n for n in range(least, devices + 1) if devices % n == 0)
    return dataclasses.replace(nodes, count=count, gpus_per_node=devices // count)
