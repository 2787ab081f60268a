"""Distributed steps obey the formulas everybody knows."""

from __future__ import annotations

import dataclasses
import re
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.cluster import Cluster, device, link, node_group, parse_cluster
from foretell.errors import InputError
from foretell.graph import Graph, Role, graph_of
from foretell.parallel import OpTimes, place, run_step
from foretell.parallel.exchange import buckets
from foretell.parallel.schedule import StageTimes, moments, run_schedule
from foretell.parallel.streams import bucketed_backward
from foretell.predictors import Forecast, predictor
from foretell.predictors.memory import MemoryUse, rank_memory
from foretell.workload import Recipe, Workload

GPT = "transformer:layers=8,hidden=512,heads=8,seq=256,vocab=4096"
EQUAL = StageTimes(forward_s=1.0, backward_s=2.0, weights_s=1.0, send_s=0.0)


@pytest.fixture(scope="module")
def gpt() -> Graph:
    return graph_of(GPT, precision="bf16")


def forecast(graph: Graph, cluster: str | Cluster, **recipe: object) -> Forecast:
    """By operator times and the timeline alone: nothing that measured jobs teach is added."""
    where = parse_cluster(cluster) if isinstance(cluster, str) else cluster
    job = Workload(graph, Recipe(precision="bf16", **{"batch": 2, **recipe}))  # type: ignore[arg-type]
    return predictor("analytic").predict(job, where)


@settings(max_examples=60, deadline=None)
@given(pp=st.integers(1, 8), micro=st.integers(1, 40), name=st.sampled_from(["gpipe", "1f1b"]))
def test_the_bubble_of_equal_stages_is_p_minus_one_microbatches(
    pp: int, micro: int, name: str
) -> None:
    done = run_schedule(name, [EQUAL] * pp, pp, micro)
    assert done.length_s == pytest.approx(3.0 * (micro + pp - 1))
    assert done.busy_s == pytest.approx((3.0 * micro,) * pp)


@settings(max_examples=40, deadline=None)
@given(pp=st.integers(2, 6), virtual=st.integers(2, 4), rounds=st.integers(1, 6))
def test_chunks_divide_the_bubble(pp: int, virtual: int, rounds: int) -> None:
    chunk = dataclasses.replace(EQUAL, forward_s=1 / virtual, backward_s=2 / virtual)
    done = run_schedule("interleaved", [chunk] * (pp * virtual), pp, rounds * pp)
    assert done.length_s == pytest.approx(3.0 * (rounds * pp + (pp - 1) / virtual))


@settings(max_examples=40, deadline=None)
@given(pp=st.integers(2, 8), micro=st.integers(16, 40))
def test_zero_bubble_leaves_a_third_of_the_bubble(pp: int, micro: int) -> None:
    done = run_schedule("zero-bubble", [EQUAL] * pp, pp, micro)
    assert done.length_s == pytest.approx(3.0 * micro + (pp - 1))


@settings(max_examples=40, deadline=None)
@given(pp=st.integers(2, 8), micro=st.integers(8, 40), rank=st.integers(0, 7))
def test_one_forward_one_backward_holds_as_many_microbatches_as_stages_remain(
    pp: int, micro: int, rank: int
) -> None:
    rank %= pp
    for schedule, most in (("1f1b", min(micro, pp - rank)), ("gpipe", micro)):
        held = [1 + m.beside[0] for m in moments(schedule, rank, pp, 1, micro)]
        assert max(held) == most


@settings(max_examples=40, deadline=None)
@given(pp=st.integers(2, 6), virtual=st.integers(2, 4), rank=st.integers(0, 5))
def test_interleaving_holds_its_warm_up_and_one_more_chunk(
    pp: int, virtual: int, rank: int
) -> None:
    rank %= pp
    found = moments("interleaved", rank, pp, virtual, 4 * pp)
    warm = 2 * (pp - rank - 1) + (virtual - 1) * pp
    assert max(sum(m.beside) for m in found) == warm
    # The loss of a microbatch is computed and differentiated before the next one's.
    last = [m.beside[-1] for m in found if m.chunk == virtual - 1]
    assert rank < pp - 1 or max(last) == 0


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zero-bubble", "interleaved"])
def test_extrapolated_microbatches_take_as_long_as_simulated_ones(schedule: str) -> None:
    uneven = [
        StageTimes(forward_s=f, backward_s=2 * f, weights_s=f, send_s=0.2)
        for f in (0.8, 1.5, 1.0, 1.5)
    ]
    pp = 2 if schedule == "interleaved" else 4
    short, whole = (run_schedule(schedule, uneven, pp, 60, whole=w) for w in (False, True))
    assert short.length_s == pytest.approx(whole.length_s, rel=1e-6)
    assert len(short.spans) < len(whole.spans)


def test_one_gpu_takes_the_sum_of_its_operators(gpt: Graph) -> None:
    job = Workload(gpt, Recipe(precision="bf16", batch=2))
    chosen = predictor("analytic")
    op_s = chosen.op_times(job, device("a100-80gb")).joined()  # type: ignore[attr-defined]
    answer = forecast(gpt, "a100-80gb")
    assert answer.step_time_s.value == pytest.approx(float(op_s.sum()))
    assert answer.traffic_bytes_per_step.value == 0
    assert set(answer.breakdown["phase"]) == {"forward", "backward", "optimizer"}


@settings(max_examples=15, deadline=None)
@given(power=st.integers(1, 7))
def test_plain_data_parallelism_sends_the_ring_share_of_its_gradients(power: int) -> None:
    graph = graph_of(GPT, precision="bf16")
    devices = 2**power
    cluster = f"{max(1, devices // 8)}x{min(8, devices)}xa100-80gb"
    gradients = 2 * graph.parameters.total
    sent = forecast(graph, cluster).traffic_bytes_per_step.value
    assert sent == pytest.approx(2 * (devices - 1) / devices * gradients, rel=1e-6)


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("devices", [2, 8])
def test_zero_divides_what_it_shards(gpt: Graph, zero: int, devices: int) -> None:
    def held(**recipe: object) -> dict[str, float]:
        job = Workload(gpt, Recipe(precision="bf16", batch=1, **recipe))  # type: ignore[arg-type]
        return rank_memory(place(job, parse_cluster(f"{devices}xa100-80gb")))[0].by_holder()

    whole, cut = held(), held(zero=zero)
    assert cut["optimizer_state"] == pytest.approx(whole["optimizer_state"] / devices)
    share = devices if zero == 3 else 1
    assert cut["parameters"] == pytest.approx(whole["parameters"] / share, rel=0.01)


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallel_ranks_share_products_and_parameters(gpt: Graph, tp: int) -> None:
    placed = place(
        Workload(gpt, Recipe(precision="bf16", batch=2, tp=tp)), parse_cluster(f"{tp}xa100-80gb")
    )
    local = placed.local.graph
    assert local.at(2).flops == pytest.approx(gpt.at(2).flops / tp, rel=1e-6)
    split = sum(
        n for n, s in zip(gpt.parameters.numel, placed.plan.parameter_split, strict=True) if s
    )
    whole = gpt.parameters.total - split
    assert local.parameters.total == pytest.approx(split / tp + whole, rel=1e-3)
    assert whole < 0.1 * gpt.parameters.total
    # two sums forward and two backward in every block, one after the embedding, one for the head
    sums = [c for c in placed.messages.collective if c.value == "all_reduce"]
    assert len(sums) == 4 * 8 + 3 + 1 + 1


def test_a_stage_with_more_work_than_the_others_is_named() -> None:
    plan = {"pp": 4, "batch": 1, "global_batch": 32}
    model = "transformer:layers=8,hidden=2048,heads=16,seq=1024,vocab={}"
    even, uneven = (
        forecast(graph_of(model.format(vocab), precision="bf16"), "4xa100-80gb", **plan).notes
        for vocab in (512, 100_000)
    )
    assert not any("more work" in note for note in even)
    (said,) = (note for note in uneven if "more work" in note)
    assert re.match(r"stage 3 has \d+% more work than the mean of the 4 pipeline stages", said)


def test_embedding_and_head_may_be_stages_of_their_own(gpt: Graph) -> None:
    for stages, first in ((9, 1), (10, 0)):
        job = Workload(gpt, Recipe(precision="bf16", batch=1, global_batch=8, pp=stages))
        split = place(job, parse_cluster(f"{stages}x1xa100-80gb")).stage_of_unit
        assert split[-1] == stages - 1
        assert (split == stages - 1).sum() == 1
        assert (split == 0).sum() == 1 + first


def test_pipeline_stages_share_the_model_out(gpt: Graph) -> None:
    from foretell.parallel.holding import rank_workloads

    job = Workload(gpt, Recipe(precision="bf16", batch=1, global_batch=8, pp=4))
    parts = [w.graph for w, _ in rank_workloads(place(job, parse_cluster("4xa100-80gb")))]
    assert sum(len(p) for p in parts) == len(gpt)
    assert sum(p.parameters.total for p in parts) == gpt.parameters.total
    assert sum(p.flops for p in parts) == pytest.approx(gpt.flops)
    assert [sum("mlp.up.weight" in n for n in p.parameters.name) for p in parts] == [2, 2, 2, 2]


@settings(max_examples=20, deadline=None)
@given(factor=st.floats(1.1, 50.0), zero=st.sampled_from([0, 1, 3]))
def test_more_bandwidth_is_never_slower(factor: float, zero: int) -> None:
    graph = graph_of(GPT, precision="bf16")
    slow = link("eth-25g")
    fast = dataclasses.replace(slow, bandwidth_bytes_per_s=slow.bandwidth_bytes_per_s * factor)
    before, after = (
        forecast(
            graph,
            Cluster(groups=(node_group(device("a100-80gb"), count=4, network_link=net),)),
            zero=zero,
        ).step_time_s.value
        for net in (slow, fast)
    )
    assert after <= before * (1 + 1e-9)


@pytest.mark.parametrize("plan", [{}, {"zero": 3}, {"tp": 4}, {"pp": 4}, {"tp": 2, "cp": 2}])
def test_more_samples_take_longer_and_more_memory(gpt: Graph, plan: dict[str, object]) -> None:
    small, large = (forecast(gpt, "4xa100-80gb", batch=b, **plan) for b in (1, 16))
    assert large.step_time_s.value > small.step_time_s.value
    assert large.memory_bytes.value > small.memory_bytes.value


@pytest.mark.parametrize("plan", [{}, {"zero": 3}, {"tp": 8, "pp": 4, "zero": 1}])
def test_phases_sum_to_the_step(gpt: Graph, plan: dict[str, object]) -> None:
    answer = forecast(gpt, "8x8xa100-80gb", batch=1, global_batch=256, **plan)
    assert sum(answer.breakdown["phase"].values()) == pytest.approx(answer.step_time_s.value)


def test_ten_thousand_devices_cost_no_more_than_a_thousand() -> None:
    graph = graph_of(
        "transformer:layers=32,hidden=1024,heads=16,seq=512,vocab=4096", precision="bf16"
    )

    def seconds(nodes: int) -> float:
        plan = {"tp": 8, "pp": 8, "zero": 1, "batch": 1, "global_batch": nodes // 8 * 64}
        forecast(graph, f"{nodes}x8xa100-80gb", **plan)
        best = 1.0
        for _ in range(5):
            start = time.perf_counter()
            forecast(graph, f"{nodes}x8xa100-80gb", **plan)
            best = min(best, time.perf_counter() - start)
        return best

    assert seconds(1280) < 2 * seconds(128) + 0.005


@pytest.mark.parametrize(
    ("cluster", "plan", "words"),
    [
        ("8xa100-80gb", {"tp": 3}, "do not factor"),
        ("8xa100-80gb", {"dp": 3, "tp": 2}, "dp=3"),
        ("16x8xa100-80gb", {"tp": 16}, "attention heads"),
        ("16x8xa100-80gb", {"pp": 16}, "repeated blocks"),
        ("8xa100-80gb", {"global_batch": 4, "batch": 1}, "global_batch"),
        ("8xa100-80gb", {"ep": 2}, "experts"),
        ("8xa100-80gb", {"sp": True}, "tp"),
        ("8xa100-80gb", {"virtual_stages": 2, "pp": 2}, "interleaved"),
        ("8xa100-80gb", {"zero": 4}, "zero=4"),
        ("8xa100-80gb", {"schedule": "gpipe"}, "pp greater than 1"),
        ("8xa100-80gb", {"reshard": False}, "zero=3"),
        ("8xa100-80gb", {"straggler": 99.0}, "straggler=99"),
        ("8xa100-80gb", {"bucket_mb": float("nan")}, "bucket_mb=nan"),
        ("8xa100-80gb", {"mode": "infer", "offload_optimizer": True}, "offload_optimizer"),
        ("8xa100-80gb", {"schedule": "fifo"}, "schedule"),
        ("2xp100", {"batch": 1}, "bf16"),
        (
            "8xa100-80gb",
            {"pp": 4, "schedule": "interleaved", "virtual_stages": 2, "global_batch": 12},
            "rounds",
        ),
    ],
)
def test_what_no_framework_runs_is_refused(
    gpt: Graph, cluster: str, plan: dict[str, object], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        forecast(gpt, cluster, **plan)


def test_a_mixture_of_experts_exchanges_tokens() -> None:
    graph = graph_of(f"{GPT},experts=8,topk=2", precision="bf16")
    answer = forecast(graph, "8xa100-80gb", ep=8)
    assert answer.breakdown["traffic"]["ep"] > 0
    alone = forecast(graph, "8xa100-80gb")
    assert answer.memory_bytes.value < 0.6 * alone.memory_bytes.value


def megatron(model: str, cluster: str, **plan: object) -> list[MemoryUse]:
    """Memory of every pipeline rank of a run as Megatron does it."""
    recipe = {"precision": "bf16", "master_weights": True, "fp32_gradients": True, "batch": 4}
    job = Workload(
        graph_of(model, precision="bf16", fused_attention="dropout" not in model),
        Recipe(**{**recipe, "optimizer": "adam", **plan}),  # type: ignore[arg-type]
    )
    return rank_memory(place(job, parse_cluster(cluster)))


MEGATRON = "transformer:layers=8,hidden=512,heads=8,seq=256,vocab=50304,tied,fused_loss"


def test_both_ends_of_a_pipeline_keep_the_tied_table_and_its_gradient() -> None:
    first, _, _, last = megatron(MEGATRON, "4xa100-80gb", pp=4, global_batch=16)
    assert last.collective_buffers == pytest.approx(2 * last.parameters, rel=0.01)
    assert last.optimizer_state == pytest.approx(4 * last.parameters, rel=0.01)
    assert first.parameters == pytest.approx(last.parameters, rel=0.02)


def test_interleaved_ranks_keep_the_logits_of_one_microbatch() -> None:
    plan = {"schedule": "interleaved", "virtual_stages": 2, "pp": 4, "global_batch": 32}
    *_, last = megatron(MEGATRON, "4xa100-80gb", **plan)
    logits = 4 * 4 * 256 * 50304
    blocks = last.saved_activations - logits
    *_, plain = megatron(MEGATRON, "4xa100-80gb", pp=4, global_batch=32)
    # Two blocks for one microbatch, against a block of each of five.
    assert blocks == pytest.approx(5 / 2 * (plain.saved_activations - logits), rel=0.1)


def test_a_stage_holds_the_activations_it_receives(gpt: Graph) -> None:
    from foretell.parallel.holding import rank_workloads

    def saved(graph: Graph) -> float:
        return float(graph.storage_bytes[graph.storages.role == Role.SAVED].sum())

    job = Workload(gpt, Recipe(precision="bf16", batch=1, global_batch=4, pp=4))
    parts = [w.graph for w, _ in rank_workloads(place(job, parse_cluster("4xa100-80gb")))]
    assert sum(map(saved, parts)) == saved(gpt)
    # The first stage makes its own input, the others save what they are sent.
    assert saved(parts[1]) == saved(parts[2])
    assert all((p.storages.alloc_op < len(p)).all() for p in parts)


def test_experts_optimizer_state_is_shared_by_the_ranks_that_hold_the_same_experts() -> None:
    model = f"{MEGATRON},experts=8,nobias"
    plan = {"zero": 1, "ep": 4, "global_batch": 32}
    (use,) = megatron(model, "8xa100-80gb", **plan)
    experts = 8 * 8 * 2 * 512 * 2048 / 4
    dense = use.parameters / 2 - experts
    assert use.optimizer_state == pytest.approx(8 * (experts / 2 + dense / 8), rel=0.01)
    (whole,) = megatron(model, "8xa100-80gb", **plan, tp=2, sp=True, tp_plan="mlp=whole")
    shared = whole.optimizer_state - 8 * (whole.parameters / 2 - experts) / 4
    assert shared == pytest.approx(8 * experts / 2, rel=0.01)


def test_activations_follow_the_published_formula() -> None:
    # Korthikanti et al. 2022: s b h (34 + 5 a s / h) bytes a layer with dropout and half numbers,
    # s b h (10 + 24 / t + 5 a s / (h t)) on t tensor-parallel ranks.
    s, b, h, a = 1024, 4, 512, 8
    model = "transformer:layers={},hidden=512,heads=8,seq=1024,vocab=512,dropout,fused_loss"
    for tp, factor in ((1, 34 + 5 * a * s / h), (4, 10 + 24 / 4 + 5 * a * s / (h * 4))):
        few, many = (
            megatron(model.format(layers), f"{tp}xa100-80gb", tp=tp)[0].saved_activations
            for layers in (2, 4)
        )
        assert (many - few) / 2 == pytest.approx(s * b * h * factor, rel=0.03)


def test_module_splits_can_be_named(gpt: Graph) -> None:
    whole = forecast(gpt, "2xa100-80gb", tp=2, tp_plan="mlp.up=whole,mlp.down=whole")
    planned = forecast(gpt, "2xa100-80gb", tp=2)
    assert whole.breakdown["traffic"]["tp"] < planned.breakdown["traffic"]["tp"]
    with pytest.raises(InputError, match="no module"):
        forecast(gpt, "2xa100-80gb", tp=2, tp_plan="nowhere=row")


def test_python_and_case_names_are_the_same() -> None:
    answer = foretell.predict(GPT, cluster="4xa100-80gb", batch=1, tp=2, pp=2, global_batch=4)
    assert answer.subject["parallel"] == "tp=2, pp=2 (1f1b), 4 microbatches of 1"


@pytest.mark.parametrize("plan", [{}, {"pp": 4, "global_batch": 32}])
def test_a_straggler_holds_the_others_up(gpt: Graph, plan: dict[str, object]) -> None:
    even, slow = (forecast(gpt, "8xa100-80gb", straggler=s, **plan) for s in (0.0, 0.5))
    ratio = slow.step_time_s.value / even.step_time_s.value
    assert 1.2 < ratio < 1.5


def test_recomputation_counts_for_the_hardware_only() -> None:
    graph = graph_of(GPT, precision="bf16", recompute="full")
    shares = forecast(graph, "2xa100-80gb", recompute="full").breakdown["utilisation"]
    assert 1.2 < shares["hfu"] / shares["mfu"] < 1.4


@pytest.mark.parametrize(("cluster", "slower"), [("2x4xa100-80gb", True), ("8xa100-80gb", False)])
def test_a_slow_network_slows_only_what_crosses_it(gpt: Graph, cluster: str, slower: bool) -> None:
    placed = place(Workload(gpt, Recipe(precision="bf16", batch=2)), parse_cluster(cluster))
    count = len(placed.local.step)
    usual = OpTimes(np.full(count, 1e-5), np.zeros(count))
    slow = dataclasses.replace(usual, network_factor=50.0)
    assert (run_step(placed, slow).step_s > run_step(placed, usual).step_s) == slower


def test_what_the_loop_does_adds_to_every_step(gpt: Graph) -> None:
    placed = place(Workload(gpt, Recipe(precision="bf16", batch=2)), parse_cluster("8xa100-80gb"))
    count = len(placed.local.step)
    usual = OpTimes(np.full(count, 1e-5), np.zeros(count))
    run = run_step(placed, dataclasses.replace(usual, loop_s=0.5))
    assert run.step_s == pytest.approx(run_step(placed, usual).step_s + 0.5)
    assert sum(run.phase_s.values()) == pytest.approx(run.step_s)


@settings(max_examples=20, deadline=None)
@given(micro=st.integers(1, 12))
def test_a_slow_link_passes_one_microbatch_at_a_time(micro: int) -> None:
    slow = dataclasses.replace(EQUAL, send_s=10.0)
    done = run_schedule("gpipe", [slow] * 2, 2, micro)
    assert done.length_s == pytest.approx(20.0 * micro + 6.0)


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
@pytest.mark.parametrize("pp", [2, 4])
def test_transfers_that_wait_to_be_asked_for_cannot_hide(schedule: str, pp: int) -> None:
    stages = [dataclasses.replace(EQUAL, send_s=0.5)] * pp
    eager = run_schedule(schedule, stages, pp, 8).length_s
    asked = run_schedule(schedule, stages, pp, 8, asked_for=True).length_s
    assert eager < asked < eager + 2 * 0.5 * 8
    instant = [dataclasses.replace(EQUAL, send_s=0.0)] * pp
    assert run_schedule(schedule, instant, pp, 8, asked_for=True).length_s == pytest.approx(
        run_schedule(schedule, instant, pp, 8).length_s
    )


def test_what_lies_outside_the_blocks_is_gathered_once(gpt: Graph) -> None:
    parameters = gpt.parameters
    numel = {"blocks": 0, "rest": 0}
    for name, count in zip(parameters.name, parameters.numel, strict=True):
        numel["blocks" if name.startswith("layers.") else "rest"] += int(count)
    sent = forecast(gpt, "8xa100-80gb", zero=3).traffic_bytes_per_step.value
    gathers_and_scatter = 3 * numel["blocks"] + 2 * numel["rest"]
    assert sent == pytest.approx(7 / 8 * 2 * gathers_and_scatter)


def test_layers_planned_one_by_one_exchange_more_gradients() -> None:
    graph = graph_of(f"{GPT},gated", precision="bf16")
    joint, single = (
        place(
            Workload(graph, Recipe(precision="bf16", batch=2, tp=2, tp_joint=together)),
            parse_cluster("2xa100-80gb"),
        )
        for together in (True, False)
    )
    # gate and up of the eight blocks
    assert len(single.messages) == len(joint.messages) + 8
    with pytest.raises(InputError, match="tp_joint"):
        Recipe(tp_joint=False)


@given(
    sizes=st.lists(st.integers(1, 40 * 2**20), min_size=1, max_size=60),
    cap=st.integers(2**20, 2**25),
)
def test_a_bucket_closes_once_it_is_full(sizes: list[int], cap: int) -> None:
    number = buckets(np.array(sizes, dtype=np.float64), float(cap))
    held = [
        [s for s, n in zip(sizes, number, strict=True) if n == b] for b in range(number[-1] + 1)
    ]
    limits = [2**20] + [cap] * (len(held) - 1)
    for bucket, limit in zip(held[:-1], limits, strict=False):
        assert sum(bucket) >= limit > sum(bucket[:-1])
    assert sum(held[-1][:-1]) < limits[-1]


def test_compute_beside_an_exchange_is_slowed_and_counted() -> None:
    ready, seconds = np.array([4.0, 10.0]), np.array([5.0, 1.0])
    free = bucketed_backward(10.0, ready, seconds, overlap=True, contention=0.0)
    slowed = bucketed_backward(10.0, ready, seconds, overlap=True, contention=1.0)
    assert free.exposed_s == pytest.approx(1.0)
    # half of the five seconds beside the first bucket are lost
    assert slowed.exposed_s == pytest.approx(3.5)


def test_a_model_without_blocks_has_no_stages() -> None:
    with pytest.raises(InputError, match="0 repeated blocks"):
        foretell.predict("timm:vgg11", cluster="2xa100-80gb", pp=2)


def test_sequences_are_needed_to_split_them() -> None:
    with pytest.raises(InputError, match="sp splits sequences"):
        foretell.predict("timm:resnet18", cluster="2xa100-80gb", tp=2, sp=True)


@pytest.mark.parametrize("model", ["timm:vit_base_patch16_224", "timm:resnet18"])
def test_context_parallelism_is_refused_for_models_that_read_images(model: str) -> None:
    with pytest.raises(InputError, match=r"cp=2 .* reads images, not sequences"):
        foretell.predict(model, cluster="2xa100-80gb", cp=2)


def test_heads_that_do_not_divide_are_named_before_widths() -> None:
    for reference in ("hf:bert-base-uncased", "timm:vit_base_patch16_224"):
        with pytest.raises(InputError, match="tp=5 does not divide the 12 attention heads"):
            foretell.predict(reference, cluster="5xa100-80gb", tp=5)


def test_a_gather_before_the_first_operator_is_counted_to_it() -> None:
    graph = graph_of(f"{GPT},rope", precision="bf16")
    answer = forecast(graph, "2xa100-80gb", tp=2, sp=True)
    assert answer.breakdown["traffic"]["tp"] > 0


def test_experts_of_one_rank_each_are_neither_averaged_nor_sharded() -> None:
    graph = graph_of(f"{GPT},experts=8,topk=2", precision="bf16")
    plain, cut = (forecast(graph, "8xa100-80gb", ep=8, zero=z) for z in (0, 3))
    experts = sum(
        n
        for n, name in zip(graph.parameters.numel, graph.parameters.name, strict=True)
        if name.endswith((".mlp.up", ".mlp.down"))
    )
    dense = graph.parameters.total - experts
    assert plain.breakdown["traffic"]["dp"] == pytest.approx(2 * 7 / 8 * 2 * dense, rel=1e-3)
    owned = 2 * (experts / 8 + dense / 8)
    assert cut.breakdown["memory"]["parameters"] == pytest.approx(owned, rel=0.02)


def test_a_shard_of_one_is_plain_data_parallelism(gpt: Graph) -> None:
    plain, one = (forecast(gpt, "2x8xa100-80gb", **p) for p in ({}, {"zero": 3, "shard": 1}))
    exposed = [f.breakdown["phase"]["exposed_communication"] for f in (plain, one)]
    assert exposed[1] == pytest.approx(exposed[0])
    assert one.breakdown["memory"]["gathered"] == 0


def test_inference_shards_parameters_too(gpt: Graph) -> None:
    graph = graph_of(GPT, precision="bf16", mode="infer")
    whole, cut = (forecast(graph, "8xa100-80gb", mode="infer", zero=z) for z in (0, 3))
    assert cut.breakdown["memory"]["parameters"] < 0.2 * whole.breakdown["memory"]["parameters"]
    assert cut.breakdown["traffic"]["dp"] > 0


def test_sharded_gradients_are_reduced_after_every_pass(gpt: Graph) -> None:
    once, often = (
        forecast(gpt, "8xa100-80gb", batch=1, global_batch=8 * n, zero=2) for n in (1, 4)
    )
    extra = often.traffic_bytes_per_step.value - once.traffic_bytes_per_step.value
    assert extra == pytest.approx(3 * 7 / 8 * 2 * gpt.parameters.total, rel=1e-3)


def test_one_node_sends_nothing_over_the_network(gpt: Graph) -> None:
    plan = {"tp": 2, "pp": 2, "batch": 1, "global_batch": 8}
    assert forecast(gpt, "8xa100-80gb", **plan).breakdown["traffic"]["network"] == 0


def test_no_schedule_is_shorter_than_the_work_of_its_busiest_rank() -> None:
    uneven = [
        StageTimes(forward_s=f, backward_s=2 * f, weights_s=f, send_s=0.0)
        for f in (0.1, 2.0, 0.1, 3.0)
    ]
    done = run_schedule("interleaved", uneven, 2, 16)
    assert all(busy <= end for busy, end in zip(done.busy_s, done.end_s, strict=True))
