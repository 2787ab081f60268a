"""A trace shows the whole step of every rank, and ends when the step does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from foretell.cluster import parse_cluster
from foretell.errors import InputError
from foretell.graph import graph_of
from foretell.predictors import predictor
from foretell.predictors.trace import chrome_trace
from foretell.workload import Recipe, Workload

GPT = "transformer:layers=8,hidden=512,heads=8,seq=256,vocab=4096"
PASSES, OPERATORS, EXCHANGES, MESSAGES, TRANSFERS = range(5)
PLANS: dict[str, dict[str, Any]] = {
    "one device": {"cluster": "a100-80gb"},
    "accumulation": {"cluster": "a100-80gb", "global_batch": 12},
    "ddp": {},
    "ddp, nothing overlaps": {"overlap": False},
    "ddp with accumulation": {"global_batch": 64},
    "zero 1": {"zero": 1},
    "zero 2": {"zero": 2},
    "zero 2 with accumulation": {"zero": 2, "global_batch": 64},
    "zero 3": {"zero": 3},
    "zero 3 with accumulation": {"zero": 3, "global_batch": 64},
    "offload": {"zero": 1, "offload_optimizer": True},
    "tp": {"tp": 8},
    "sp": {"tp": 8, "sp": True},
    "cp": {"cp": 2},
    "inference": {"mode": "infer", "zero": 3},
    "1f1b": {"pp": 4, "global_batch": 16},
    "1f1b, extrapolated": {"pp": 4, "global_batch": 200},
    "gpipe": {"pp": 4, "schedule": "gpipe", "global_batch": 16},
    "zero-bubble": {"pp": 4, "schedule": "zero-bubble", "global_batch": 32, "zero": 1},
    "interleaved": {
        "pp": 4,
        "schedule": "interleaved",
        "virtual_stages": 2,
        "global_batch": 80,
        "tp": 2,
    },
    "pipeline of shards": {"pp": 2, "zero": 3, "global_batch": 32},
    "pipeline with sharded gradients": {"pp": 2, "zero": 2, "global_batch": 32},
}


def trace(
    *, cluster: str = "8xa100-80gb", by: str = "scaledl", **recipe: Any
) -> tuple[dict[str, Any], float]:
    """The trace and the forecast's step time."""
    recipe = {"precision": "bf16", "batch": 1, **recipe}
    graph = graph_of(GPT, precision="bf16", mode=recipe.get("mode", "train"))
    job, where = Workload(graph, Recipe(**recipe)), parse_cluster(cluster)
    chosen = predictor(by)
    placed, run = chosen.play(job, where)  # type: ignore[attr-defined]
    return chrome_trace(placed, run, "a100"), chosen.predict(job, where).step_time_s.value


def slices(found: dict[str, Any], track: int | None = None) -> list[dict[str, Any]]:
    events = [e for e in found["traceEvents"] if e["ph"] == "X"]
    return [e for e in events if track is None or e["tid"] == track]


def ends_us(events: list[dict[str, Any]]) -> list[float]:
    return [e["ts"] + e["dur"] for e in events]


@pytest.mark.parametrize("by", ["analytic", "scaledl"])
@pytest.mark.parametrize("plan", PLANS)
def test_the_last_event_ends_with_the_step(plan: str, by: str) -> None:
    found, step_s = trace(by=by, **PLANS[plan])
    assert max(ends_us(slices(found))) == pytest.approx(step_s * 1e6, rel=0.01)


@pytest.mark.parametrize("plan", PLANS)
def test_what_is_on_one_track_runs_one_after_the_other(plan: str) -> None:
    found, _ = trace(**PLANS[plan])
    for track in (OPERATORS, EXCHANGES, MESSAGES):
        for rank in {e["pid"] for e in slices(found)}:
            events = [e for e in slices(found, track) if e["pid"] == rank]
            events.sort(key=lambda e: e["ts"])
            following = zip(events[1:], ends_us(events), strict=False)
            assert all(event["ts"] >= end - 1e-3 for event, end in following)


@pytest.mark.parametrize("plan", PLANS)
def test_every_operator_runs_in_every_pass(plan: str) -> None:
    recipe = PLANS[plan]
    graph = graph_of(GPT, precision="bf16", mode=recipe.get("mode", "train"))
    found, _ = trace(**recipe)
    operators = [e for e in slices(found, OPERATORS) if e["cat"] != "optimizer"]
    assert len(operators) == len(graph) * found["otherData"]["passes"]
    optimized = sum(e["cat"] == "optimizer" for e in slices(found, OPERATORS))
    assert optimized == (0 if recipe.get("mode") == "infer" else len(graph.parameters))
    stages = {e["pid"] for e in slices(found, PASSES) if e["name"] == "optimizer"}
    assert len(stages) == (recipe.get("pp", 1) if optimized else 0)


def test_gathers_come_before_the_blocks_they_are_for_and_scatters_after() -> None:
    found, _ = trace(zero=3, global_batch=16)
    exchanges = slices(found, EXCHANGES)
    counts = Counter(e["cat"] for e in exchanges)
    # Both passes of two microbatches; what lies outside the eight blocks is one more unit.
    assert counts == {"gather": 2 * (9 + 8), "reduce": 2 * 9}
    operators = [
        e
        for e in slices(found, OPERATORS)
        if e["args"]["module"].startswith("layers.3.") and e["cat"] != "optimizer"
    ]
    gather = next(e for e in exchanges if e["name"] == "gather layers.3")
    assert gather["ts"] + gather["dur"] <= operators[0]["ts"] + 1e-3
    reduce = next(e for e in exchanges if e["name"] == "reduce layers.3")
    of_first_pass = operators[: len(operators) // 2]
    assert max(ends_us(of_first_pass)) <= reduce["ts"] + 1e-3


def test_gradients_are_exchanged_beside_the_last_backward_pass_only() -> None:
    found, _ = trace(global_batch=32)
    last = next(e for e in slices(found, PASSES) if e["name"] == "backward 3")
    buckets = slices(found, EXCHANGES)
    assert buckets
    assert all(e["name"].startswith("bucket") for e in buckets)
    assert last["ts"] < min(e["ts"] for e in buckets) < last["ts"] + last["dur"]


def test_sharded_gradients_are_exchanged_beside_every_backward_pass() -> None:
    found, _ = trace(zero=2, global_batch=32)
    first = [e for e in slices(found, EXCHANGES) if e["name"] == "bucket 0"]
    backward = [e for e in slices(found, PASSES) if e["name"].startswith("backward")]
    assert len(first) == len(backward) == 4
    for bucket, run in zip(first, backward, strict=True):
        assert run["ts"] < bucket["ts"] < run["ts"] + run["dur"] + 1e-3


@pytest.mark.parametrize("zero", [1, 2])
def test_parameters_are_gathered_after_the_optimizer(zero: int) -> None:
    found, _ = trace(zero=zero)
    (gather,) = (e for e in slices(found, EXCHANGES) if e["name"] == "gather parameters")
    (optimizer,) = (e for e in slices(found, PASSES) if e["name"] == "optimizer")
    assert gather["ts"] == pytest.approx(optimizer["ts"] + optimizer["dur"])


def test_many_passes_show_the_operators_of_the_first_and_the_last() -> None:
    found, step_s = trace(cluster="a100-80gb", global_batch=1000)
    count = len(graph_of(GPT, precision="bf16"))
    operators = [e for e in slices(found, OPERATORS) if e["cat"] != "optimizer"]
    assert len(operators) == 2 * count
    assert sum(e["name"].startswith("forward") for e in slices(found, PASSES)) == 1000
    assert found["otherData"]["shown"] == "operators of the first and the last of 1000 passes"
    assert max(ends_us(slices(found))) == pytest.approx(step_s * 1e6, rel=0.01)


@pytest.mark.parametrize("name", ["1f1b", "gpipe", "zero-bubble", "interleaved"])
def test_what_a_stage_hands_on_arrives_before_the_next_begins(name: str) -> None:
    slices = [e for e in trace(**PLANS[name])[0]["traceEvents"] if e["ph"] == "X"]
    begins = {(e["pid"], e["name"]): e["ts"] for e in slices if e["tid"] == PASSES}
    forward = [
        e
        for e in slices
        if e["tid"] == TRANSFERS and e["name"].startswith("forward") and "chunk" not in e["name"]
    ]
    assert forward
    checked = 0
    for transfer in forward:
        _, _, _, stage, micro = transfer["name"].split()
        begin = begins.get((int(stage), f"forward {micro}"))
        if begin is not None:
            checked += 1
            assert transfer["ts"] + transfer["dur"] <= begin + 1e-3
    assert checked


def test_a_trace_of_countless_passes_is_refused() -> None:
    with pytest.raises(InputError, match="1000000 passes"):
        trace(cluster="a100-80gb", global_batch=1_000_000)
