"""Jobs from recipes, from forecasts and from logs that say little."""

from __future__ import annotations

import numpy as np
import pytest

from foretell.api import Case, workload_of
from foretell.cluster import parse_cluster
from foretell.errors import InputError
from foretell.predictors import predictor
from foretell.predictors.protocol import PlaysSteps
from foretell.schedule.forecast import shape_of
from foretell.schedule.generate import Recipe, rows_generated
from foretell.schedule.log import trace_of
from foretell.schedule.placement import Placement
from foretell.schedule.pool import pools_of
from foretell.schedule.readers import Row
from foretell.schedule.shape import Shape
from foretell.schedule.typical import typical_shape

POOLS = pools_of(parse_cluster("4x8xv100"))
GPT = "transformer:layers=8,hidden=1024,heads=16,seq=512,vocab=32000"


def row(devices: int, **more: object) -> Row:
    told = {"line": 1, "id": "a", "submit_s": 0.0, "duration_s": 600.0, "devices": devices, **more}
    return Row(**told)  # type: ignore[arg-type]


def test_generated_jobs_bring_the_load_that_is_asked_for() -> None:
    rows = rows_generated(Recipe(jobs=5000, load=0.7), 64, seed=1)
    work = sum(r.duration_s * r.devices for r in rows)
    assert work / (64 * rows[-1].submit_s) == pytest.approx(0.7, rel=0.01)
    assert np.mean([r.duration_s for r in rows]) == pytest.approx(3600.0, rel=0.01)
    assert all(r.duration_s <= r.limit_s for r in rows)
    assert max(r.devices for r in rows) <= 64


def test_generated_jobs_recur_and_seeds_differ() -> None:
    one, again, other = (rows_generated(Recipe(jobs=500), 64, seed=s) for s in (0, 0, 1))
    assert one == again != other
    kinds: dict[str, list[Row]] = {}
    for each in one:
        kinds.setdefault(each.name, []).append(each)
    common = [rows for rows in kinds.values() if len(rows) > 5]
    assert common
    for rows in common:
        assert len({r.devices for r in rows}) == len({r.user for r in rows}) == 1
    inside = np.mean([np.std(np.log([r.duration_s for r in rows])) for rows in common])
    assert inside < np.std(np.log([r.duration_s for r in one]))


@pytest.mark.parametrize("devices", [1, 3, 8, 16, 32])
def test_what_recurs_is_taken_for_the_same_network(devices: int) -> None:
    shapes = {typical_shape(row(devices, id=str(i), user="ann", name="x")) for i in range(5)}
    assert len(shapes) == 1
    assert next(iter(shapes)).devices == devices
    several = {typical_shape(row(devices, id=str(i))) for i in range(40)}
    assert len(several) > 2


@pytest.mark.parametrize("traffic", ["none", "typical"])
def test_a_job_takes_as_long_as_the_log_says_on_the_fewest_servers(traffic: str) -> None:
    rows = [row(n, id=str(n)) for n in (1, 2, 8, 16)]
    trace = trace_of(rows, POOLS, traffic)
    placement = Placement(trace.shapes, POOLS)
    least = np.array([placement.least_s(i) for i in range(len(trace.shapes))])
    assert trace.iterations * least[trace.shape] == pytest.approx(600.0)


def test_arrivals_are_pressed_together_and_deadlines_move_with_them() -> None:
    rows = [row(1, id="a", submit_s=100.0), row(1, id="b", submit_s=300.0, deadline_s=1300.0)]
    trace = trace_of(rows, POOLS, load=2.0)
    assert trace.arrival_s.tolist() == [0.0, 100.0]
    assert trace.deadline_s.tolist() == [float("inf"), 1100.0]


def test_kinds_of_devices_count_where_there_are_several() -> None:
    rows = [row(1, id="a", device="T4"), row(1, id="b", device="V100M32"), row(1, id="c")]
    trace = trace_of(rows, pools_of(parse_cluster("1x8xv100+1x8xt4")))
    named = [trace.devices_wanted[i] if i >= 0 else "" for i in trace.wants]
    assert named == ["t4", "", ""]
    assert trace_of(rows, POOLS).wants.tolist() == [-1, -1, -1]


def test_a_job_larger_than_every_pool_is_named_with_its_line() -> None:
    with pytest.raises(InputError, match=r"job 'a' \(line 1\) needs 33 devices .* has 32"):
        trace_of([row(33)], POOLS)


def shape_for(**options: object) -> tuple[Shape, float]:
    told = {"model": GPT, "batch": 4, "precision": "amp-fp16", "cluster": "8xv100-32gb", **options}
    workload, cluster = workload_of(Case.from_mapping(told))
    analytic = predictor("analytic")
    assert isinstance(analytic, PlaysSteps)
    _, run = analytic.play(workload, cluster)
    return shape_of(workload, cluster, analytic), run.step_s


def test_a_data_parallel_forecast_is_one_stage() -> None:
    shape, step_s = shape_for()
    assert [stage.replicas for stage in shape.stages] == [8]
    assert not shape.flows
    stage = shape.stages[0]
    # The forecast hides gradients behind compute, the scheduler's model adds them up.
    assert 0.5 * step_s < stage.compute_s <= step_s
    parameters = 8 * 12 * 1024**2 + 2 * 32000 * 1024
    assert stage.parameter_bytes == pytest.approx(4 * parameters, rel=0.1)


def test_a_pipelined_forecast_is_a_stage_per_rank() -> None:
    shape, step_s = shape_for(pp=4, batch=1, global_batch=16)
    assert [stage.replicas for stage in shape.stages] == [2, 2, 2, 2]
    assert [(flow.source, flow.target) for flow in shape.flows] == [(0, 1), (1, 2), (2, 3)]
    # 16 samples a step, there and back; between blocks autocast keeps single precision.
    assert shape.flows[0].nbytes == pytest.approx(2 * 16 * 512 * 1024 * 4, rel=0.3)
    assert max(stage.compute_s for stage in shape.stages) <= step_s
