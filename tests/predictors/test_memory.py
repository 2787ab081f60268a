"""Memory: liveness equals PyTorch's own accounting, and reacts as it should."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from benchmarks.memory_cpu import CASES, MemoryCase, measured_peak_bytes, predicted_peak_bytes
from foretell.cluster import parse_cluster
from foretell.errors import InputError
from foretell.graph import graph_of
from foretell.parallel import Holding, place
from foretell.predictors import largest_batch, memory_use
from foretell.predictors.memory import rank_memory
from foretell.workload import Recipe, Workload

ONE_GPU = parse_cluster("a100-80gb")
# VGG's first dense layer makes the CPU library copy 400 MB of weights into its own layout.
QUICK = [c for c in CASES if "vgg" not in c.reference]


@pytest.mark.parametrize("case", QUICK, ids=lambda c: c.reference)
def test_peak_is_within_five_percent_of_a_real_step(case: MemoryCase) -> None:
    assert predicted_peak_bytes(case) == pytest.approx(measured_peak_bytes(case), rel=0.05)


def workload(**recipe: object) -> Workload:
    return Workload(graph_of("timm:resnet18"), Recipe(**recipe))  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(limit_gb=st.floats(1.0, 200.0))
def test_the_largest_batch_fits_and_one_more_does_not(limit_gb: float) -> None:
    job = workload()
    best = largest_batch(job, ONE_GPU, limit_gb * 1e9)
    assert best == 0 or memory_use(job.at_batch(best)).total_bytes <= limit_gb * 1e9
    assert memory_use(job.at_batch(best + 1)).total_bytes > limit_gb * 1e9


@settings(max_examples=25, deadline=None)
@given(limit_gb=st.floats(1.0, 60.0), global_batch=st.sampled_from([60, 96, 100, 128, 2 * 97]))
def test_the_largest_batch_divides_the_global_batch(limit_gb: float, global_batch: int) -> None:
    job, cluster = workload(global_batch=global_batch), parse_cluster("2xa100-80gb")

    def fits(batch: int) -> bool:
        placed = place(job.at_batch(batch), cluster)
        return rank_memory(placed)[0].total_bytes <= limit_gb * 1e9

    divisors = [b for b in range(1, global_batch + 1) if global_batch % (2 * b) == 0]
    expected = max((b for b in divisors if fits(b)), default=0)
    assert largest_batch(job, cluster, limit_gb * 1e9) == expected


def test_interleaved_batches_leave_rounds_of_microbatches() -> None:
    model = "transformer:layers=8,hidden=64,heads=4,seq=32,vocab=128"
    plan = {"pp": 4, "schedule": "interleaved", "virtual_stages": 2}
    found = foretell.max_batch(model, cluster="4xa100-80gb", global_batch=96, **plan)
    assert found == 24
    with pytest.raises(InputError, match="rounds of pp=4"):
        foretell.max_batch(model, cluster="4xa100-80gb", global_batch=6, **plan)


def test_a_model_that_does_not_fit_at_all_has_largest_batch_zero() -> None:
    assert largest_batch(workload(), ONE_GPU, 1e6) == 0


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 0), ("momentum", 1), ("adamw", 2)])
def test_optimizer_state_is_its_number_of_copies(optimizer: str, copies: int) -> None:
    job = workload(optimizer=optimizer)
    expected = copies * 4 * job.graph.parameters.total
    assert memory_use(job).optimizer_state == expected


def test_adafactor_keeps_rows_and_columns_only() -> None:
    graph = graph_of("transformer:layers=1,hidden=64,heads=2,seq=8,vocab=100,nobias")
    state = memory_use(Workload(graph, Recipe(optimizer="adafactor"))).optimizer_state
    shapes = graph.parameters.shape
    assert state == 4 * sum(sum(s) for s in shapes)


def test_master_weights_add_four_bytes_a_parameter_and_widen_the_state() -> None:
    graph = graph_of("timm:resnet18", precision="bf16")
    plain, master = (
        memory_use(Workload(graph, Recipe(precision="bf16", master_weights=m)))
        for m in (False, True)
    )
    assert master.master_weights == 4 * graph.parameters.total
    assert master.optimizer_state == 2 * plain.optimizer_state


def test_mixed_precision_saves_activation_memory() -> None:
    full = foretell.predict("timm:vit_small_patch16_224", batch=64)
    mixed = foretell.predict("timm:vit_small_patch16_224", batch=64, precision="amp-bf16")
    saved = [f.breakdown["memory"]["saved_activations"] for f in (full, mixed)]
    assert saved[1] < 0.75 * saved[0]


def test_accumulated_gradients_stay_through_the_next_forward_pass() -> None:
    graph = graph_of("transformer:layers=2,hidden=256,heads=4,seq=64,vocab=1000")
    job = Workload(graph, Recipe(batch=64, optimizer="sgd"))
    once, twice = (memory_use(job, holding=Holding(passes=p)) for p in (1, 2))
    gradients = 4 * graph.parameters.total
    extra = twice.allocated_bytes - once.allocated_bytes
    assert twice.gradients == pytest.approx(gradients, rel=0.01)
    assert 0.5 * gradients < extra < 1.5 * gradients
