"""The analytic predictor behaves like physics."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import foretell
from foretell.cluster import Cluster, device, node_group, parse_cluster
from foretell.errors import InputError
from foretell.graph import Graph, graph_of
from foretell.graph.capture import CaptureOptions, Subject, capture
from foretell.predictors import Measurement, Predictor, predictor, predictor_names
from foretell.predictors.analytic import AnalyticPredictor
from foretell.predictors.analytic.fusion import fused_bytes
from foretell.workload import Recipe, Workload

predict = functools.partial(foretell.predict, predictor="analytic")

NETWORKS = ("timm:resnet18", "timm:vit_tiny_patch16_224", "timm:mobilenetv3_small_050")


@pytest.fixture(scope="module", params=NETWORKS)
def graph(request: pytest.FixtureRequest) -> Graph:
    return graph_of(request.param, precision="amp-fp16")


def step_s(graph: Graph, where: str | Cluster, **recipe: object) -> float:
    workload = Workload(graph, Recipe(precision="amp-fp16", **recipe))  # type: ignore[arg-type]
    cluster = parse_cluster(where) if isinstance(where, str) else where
    return predictor("analytic").predict(workload, cluster).step_time_s.value


@settings(max_examples=20, deadline=None)
@given(batch=st.integers(1, 512), more=st.integers(1, 512))
def test_more_samples_never_take_less_time(batch: int, more: int) -> None:
    graph = graph_of("timm:resnet18", precision="amp-fp16")
    assert step_s(graph, "a100-80gb", batch=batch + more) >= 0.97 * step_s(
        graph, "a100-80gb", batch=batch
    )


@pytest.mark.parametrize("field", ["peak", "bandwidth"])
def test_a_faster_device_is_never_slower(graph: Graph, field: str) -> None:
    slow = device("a100-80gb")
    if field == "bandwidth":
        rate = 2 * slow.memory_bandwidth_bytes_per_s
        fast = dataclasses.replace(slow, memory_bandwidth_bytes_per_s=rate)
    else:
        peaks = {k: 2 * v for k, v in slow.peak_flops_per_s.items()}
        fast = dataclasses.replace(slow, peak_flops_per_s=peaks)
    clusters = [Cluster(groups=(node_group(d),)) for d in (slow, fast)]
    before, after = (step_s(graph, c, batch=128) for c in clusters)
    assert after <= before


def test_accumulation_repeats_all_but_the_optimizer(graph: Graph) -> None:
    once = step_s(graph, "a100-80gb", batch=64)
    thrice = step_s(graph, "a100-80gb", batch=64, global_batch=192)
    assert 2.5 * once < thrice < 3 * once


def test_inference_is_cheaper_than_training() -> None:
    train = predict("timm:resnet18", batch=64)
    infer = predict("timm:resnet18", batch=64, mode="infer")
    assert infer.step_time_s.value < 0.6 * train.step_time_s.value
    assert infer.memory_bytes.value < train.memory_bytes.value


def test_recomputation_trades_time_for_memory() -> None:
    plain = predict("timm:vit_small_patch16_224", batch=64)
    again = predict("timm:vit_small_patch16_224", batch=64, recompute="full")
    assert again.memory_bytes.value < 0.6 * plain.memory_bytes.value
    assert again.step_time_s.value > 1.1 * plain.step_time_s.value
    assert again.breakdown["phase"]["recompute"] > 0


def test_a_device_family_nobody_measured_is_out_of_domain_and_says_so() -> None:
    forecast = predict("timm:resnet18", batch=32, cluster="k80")
    assert not forecast.in_domain
    assert any("never measured" in note for note in forecast.notes)
    assert forecast.step_time_s.high > 1.5 * forecast.step_time_s.value


def test_a_measured_setting_is_in_domain() -> None:
    forecast = predict(
        "timm:resnet50", batch=128, cluster="rtx3090", precision="amp-fp16", optimizer="momentum"
    )
    assert forecast.in_domain


def test_a_format_the_device_lacks_is_refused() -> None:
    with pytest.raises(foretell.InputError, match=r"v100-16gb.*bf16"):
        predict("timm:resnet18", precision="bf16", cluster="v100-16gb")


def test_data_parallel_training_sends_the_ring_share(graph: Graph) -> None:
    workload = Workload(graph, Recipe(batch=32, precision="amp-fp16"))
    forecast = predictor("analytic").predict(workload, parse_cluster("8xa100-80gb"))
    gradients = 4 * graph.parameters.total
    assert forecast.traffic_bytes_per_step.value == pytest.approx(2 * 7 / 8 * gradients)


def test_fitting_on_slower_runs_makes_it_slower(graph: Graph, tmp_path: Path) -> None:
    cluster = parse_cluster("k80")
    workload = Workload(graph, Recipe(batch=32, precision="fp32"))
    base = AnalyticPredictor.shipped()
    before = base.predict(workload, cluster).step_time_s.value
    runs = [
        Measurement(workload=workload.at_batch(b), cluster=cluster, step_time_s=2 * t)
        for b in (8, 16, 32)
        for t in [base.predict(workload.at_batch(b), cluster).step_time_s.value]
    ]
    fitted = base.fit(runs)
    assert fitted.predict(workload, cluster).step_time_s.value == pytest.approx(
        2 * before, rel=0.05
    )
    assert fitted.predict(workload, cluster).in_domain
    fitted.save(tmp_path / "constants.json")
    again = AnalyticPredictor.load(tmp_path / "constants.json")
    assert np.isclose(
        again.predict(workload, cluster).step_time_s.value,
        fitted.predict(workload, cluster).step_time_s.value,
        rtol=1e-2,
    )


def test_the_registry_offers_it_and_explains_unknown_names() -> None:
    assert "analytic" in predictor_names()
    assert isinstance(predictor("analytic"), Predictor)
    with pytest.raises(foretell.InputError, match="analytic"):
        predictor("analitic")


def test_compiling_saves_elementwise_traffic_and_never_adds_any() -> None:
    graph = graph_of("timm:mobilenetv3_small_050", mode="infer", precision="amp-fp16").at(64)
    compiled, launched = fused_bytes(graph)
    eager = (graph.kind_bytes_read + graph.kind_bytes_written)[graph.op_kind]
    assert (compiled <= eager).all()
    assert compiled.sum() < 0.8 * eager.sum()
    contraction = graph.op_flops() > 0
    assert np.array_equal(compiled[contraction], eager[contraction])
    assert launched[contraction].all()


class Shortcut(torch.nn.Module):
    """A result that a convolution reads and, behind it, a sum."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(8, 8, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.tanh(torch.sigmoid(x))
        return torch.relu(self.convolution(x) + x)


def test_a_compiled_kernel_reads_again_what_came_before_a_convolution() -> None:
    with torch.device("meta"):
        model = Shortcut()
    subject = Subject(module=model, inputs=lambda batch: ((torch.empty(batch, 8, 16, 16),), {}))
    step = capture(subject, CaptureOptions(mode="infer")).at(4)
    moved, launched = fused_bytes(step)
    tensor = 4 * 4 * 8 * 16 * 16
    by_name = dict(zip(step.op_name, zip(moved, launched, strict=True), strict=True))
    assert by_name["sigmoid"] == (tensor, 0)  # read, and passed on
    assert by_name["tanh"] == (tensor, 1)  # written for the convolution and the sum
    assert by_name["add"] == (2 * tensor, 0)
    assert by_name["relu"] == (tensor, 1)


def test_phases_of_accumulated_passes_sum_to_the_step(graph: Graph) -> None:
    workload = Workload(graph, Recipe(precision="amp-fp16", batch=8, global_batch=32))
    forecast = predictor("analytic").predict(workload, parse_cluster("rtx3090"))
    for part in ("phase", "class", "module"):
        assert sum(forecast.breakdown[part].values()) == pytest.approx(forecast.step_time_s.value)


def test_master_weights_cost_optimizer_time() -> None:
    plain, kept = (
        predict("timm:vit_tiny_patch16_224", precision="bf16", master_weights=m)
        for m in (False, True)
    )
    optimizer_s = [f.breakdown["phase"]["optimizer"] for f in (plain, kept)]
    assert 1.5 < optimizer_s[1] / optimizer_s[0] < 3


def test_every_device_of_a_mixed_cluster_must_have_room() -> None:
    both = Cluster(groups=(node_group(device("h100-sxm")), node_group(device("t4"))))
    alone = Cluster(groups=(node_group(device("h100-sxm")),) * 2)
    fits = [predict("timm:resnet50", batch=256, cluster=c).fits for c in (both, alone)]
    assert fits == [False, True]


def test_newer_devices_are_faster_for_recurrent_layers() -> None:
    lstm = torch.nn.LSTM(256, 256, num_layers=2)
    seconds = [
        predict(
            lstm, inputs=torch.empty(100, 32, 256), cluster=c, precision="amp-fp16", mode="infer"
        ).step_time_s.value
        for c in ("t4", "h100-sxm")
    ]
    # 200 dependent products of a few microseconds each
    assert 2e-4 < seconds[1] < seconds[0] < 2e-2


def test_utilisation_counts_the_format_convolutions_run_in() -> None:
    forecast = predict("timm:resnet50", batch=128, cluster="a100-80gb")
    tf32 = predict("timm:resnet50", batch=128, cluster="a100-80gb", precision="tf32")
    assert forecast.utilisation.value == pytest.approx(tf32.utilisation.value, rel=0.02)


def test_a_fused_optimizer_moves_fewer_bytes() -> None:
    plain, fused = (predict("timm:vit_tiny_patch16_224", fused_optimizer=f) for f in (False, True))
    ratio = fused.breakdown["phase"]["optimizer"] / plain.breakdown["phase"]["optimizer"]
    assert ratio == pytest.approx(7 / 20, rel=0.2)
    with pytest.raises(InputError, match="adafactor"):
        predict("timm:resnet18", fused_optimizer=True, optimizer="adafactor")
