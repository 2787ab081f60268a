"""Breakdowns of a step are of the rank that is done last, and sum to the step."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.cluster import parse_cluster
from foretell.graph import Graph, graph_of
from foretell.predictors import Forecast, predictor
from foretell.workload import Recipe, Workload

GPT = "transformer:layers=8,hidden=512,heads=8,seq=256,vocab=4096"
SCHEDULES = ["1f1b", "gpipe", "zero-bubble", "interleaved"]


@pytest.fixture(scope="module")
def gpt() -> Graph:
    return graph_of(GPT, precision="bf16")


def forecast(graph: Graph, **recipe: object) -> Forecast:
    job = Workload(graph, Recipe(precision="bf16", batch=1, **recipe))  # type: ignore[arg-type]
    return predictor().predict(job, parse_cluster("2x8xa100-80gb"))


@settings(max_examples=60, deadline=None)
@given(
    zero=st.integers(0, 3),
    tp=st.sampled_from([1, 2]),
    pp=st.sampled_from([1, 2, 4]),
    schedule=st.sampled_from(SCHEDULES),
    passes=st.sampled_from([4, 8, 24]),
    settings=st.sampled_from(
        [{}, {"overlap": False}, {"straggler": 0.3}, {"offload_optimizer": True}]
    ),
)
def test_phases_and_classes_both_sum_to_the_step(
    zero: int, tp: int, pp: int, schedule: str, passes: int, settings: dict[str, object]
) -> None:
    plan = {"schedule": schedule if pp > 1 else "1f1b", **settings}
    if plan["schedule"] == "interleaved":
        plan["virtual_stages"] = 2
    global_batch = passes * 16 // (tp * pp)
    answer = forecast(
        graph_of(GPT, precision="bf16"), zero=zero, tp=tp, pp=pp, global_batch=global_batch, **plan
    )
    step_s = answer.step_time_s.value
    assert sum(answer.breakdown["phase"].values()) == pytest.approx(step_s, rel=1e-6)
    assert sum(answer.breakdown["class"].values()) == pytest.approx(step_s, rel=1e-6)


def test_modules_are_those_of_one_stage(gpt: Graph) -> None:
    shown = forecast(gpt, pp=8, global_batch=32).breakdown["module"]
    # The first stage starts first and is done last; it holds one of the eight blocks.
    assert {name.split(".")[1] for name in shown if name.startswith("layers.")} == {"0"}
