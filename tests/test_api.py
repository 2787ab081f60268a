"""The Python API: what it refuses, and in which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import foretell
from foretell.api import cluster_of, workload_of
from foretell.errors import InputError
from foretell.graph import graph_of

ROW = torch.empty(1, 8)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (None, "model is None"),
        (3, "model is 3"),
        (torch.nn.Linear, "model is the class Linear, so call it"),
        (lambda: torch.nn.Linear(8, 8), "model is the function <lambda>, so call it"),
        ([torch.nn.Linear(8, 8)], "model is a list"),
    ],
)
def test_what_is_no_model_is_refused(model: Any, says: str) -> None:
    for call in (foretell.predict, foretell.max_batch):
        with pytest.raises(InputError, match=says):
            call(model)


@pytest.mark.parametrize("cluster", [None, 8, foretell.Device, 1.5])
def test_what_is_no_cluster_is_refused(cluster: Any) -> None:
    with pytest.raises(InputError, match="cluster is "):
        foretell.predict("timm:resnet18", cluster=cluster)
    with pytest.raises(InputError, match="cluster is "):
        foretell.parse_cluster(cluster)


def test_capture_takes_modules_only() -> None:
    with pytest.raises(InputError, match="module is 'timm:resnet18'"):
        foretell.capture("timm:resnet18")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="loss is 3"):
        foretell.capture(torch.nn.Linear(8, 8), ROW, loss=3)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def graph() -> foretell.Graph:
    return foretell.capture(torch.nn.Linear(8, 8), ROW, precision="amp-bf16")


def test_a_graph_brings_the_options_it_was_captured_with(graph: foretell.Graph) -> None:
    subject = foretell.predict(graph, batch=4).subject
    assert (subject["precision"], subject["mode"], subject["batch"]) == ("amp-bf16", "train", 4)
    assert foretell.predict(graph, precision="amp-bf16", mode="train", seq=None).fits


@pytest.mark.parametrize(
    "option",
    [
        {"precision": "fp32"},
        {"mode": "infer"},
        {"channels_last": True},
        {"recompute": "full"},
        {"seq": 128},
        {"image_size": 224},
        {"torch_version": "1.13"},
    ],
)
def test_options_that_contradict_a_graph_are_refused(
    graph: foretell.Graph, option: dict[str, Any]
) -> None:
    name = next(iter(option))
    with pytest.raises(InputError, match=rf"{name}=.* the graph"):
        foretell.predict(graph, **option)
    with pytest.raises(InputError, match=rf"{name}=.* the graph"):
        foretell.max_batch(graph, **option)


def test_inputs_beside_a_graph_are_refused(graph: foretell.Graph) -> None:
    with pytest.raises(InputError, match="inputs and loss"):
        foretell.predict(graph, inputs=ROW)


def test_formats_that_share_a_graph_do_not_contradict_it(tmp_path: Path) -> None:
    graph = graph_of("timm:resnet18", image_size=192)
    foretell.save_graph(graph, tmp_path / "graph.npz")
    again = foretell.load_graph(tmp_path / "graph.npz")
    assert foretell.predict(again, precision="tf32", image_size=192).subject["precision"] == "tf32"
    with pytest.raises(InputError, match="image_size=224 contradicts"):
        foretell.predict(again, image_size=224)


@pytest.mark.parametrize(
    ("model", "option"),
    [
        ("timm:resnet18", {"seq": 128}),
        ("hf:gpt2", {"image_size": 224}),
        ("hf:google/vit-base-patch16-224", {"seq": 128}),
        ("transformer:layers=1,hidden=8,heads=1,seq=8,vocab=9", {"image_size": 224}),
        (torch.nn.Linear(8, 8), {"image_size": 224}),
        (torch.nn.Linear(8, 8), {"seq": 16}),
    ],
)
def test_sizes_a_model_does_not_have_are_refused(model: Any, option: dict[str, int]) -> None:
    with pytest.raises(InputError, match="does not apply"):
        foretell.predict(model, **option)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"seq": 0}, "seq=0"),
        ({"image_size": -1}, "image_size=-1"),
        ({"batch": 1e30}, "batch=1e.30 must be at most"),
        ({"batch": 10**400}, "batch=.* must be at most"),
        ({"tokens": float("inf")}, "tokens=inf"),
        ({"epochs": float("nan"), "samples": 1}, "epochs=nan"),
        ({"tokens": 10**400}, "tokens=inf"),
        ({"steps": float("inf")}, "steps=inf must be a whole number"),
        ({"batch": "x"}, "batch='x' must be a whole number"),
        ({"samples": 100}, "epochs"),
        ({"optimizer": "lion"}, "none, sgd, momentum"),
        ({"recompute": "nope", "mode": "infer"}, "mode=infer"),
        ({"master_weights": True}, "master_weights"),
        ({"master_weights": True, "precision": "amp-bf16"}, "master_weights"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(option: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        foretell.predict("timm:resnet18", **option)


def test_a_changed_cluster_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    for count in (2, 3):
        path.write_text(f'[[nodes]]\ndevice = "t4"\ncount = {count}\ngpus_per_node = 1\n')
        assert cluster_of(str(path)).total_devices == count


def test_a_changed_model_file_is_captured_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    for width in (4, 5):
        path.write_text(
            f"import torch\ndef build():\n"
            f"    return torch.nn.Linear({width}, 1, bias=False), torch.rand(1, {width})\n"
        )
        case = foretell.Case(model=f"{path}:build")
        assert workload_of(case)[0].graph.parameters.total == width


def test_a_changed_configuration_in_a_folder_is_captured_again(tmp_path: Path) -> None:
    sizes = {"model_type": "gpt2", "n_embd": 8, "n_head": 1, "n_positions": 16, "vocab_size": 9}
    found = set()
    for layers in (1, 2):
        config = {**sizes, "n_layer": layers, "architectures": ["GPT2LMHeadModel"]}
        (tmp_path / "config.json").write_text(json.dumps(config))
        workload, _ = workload_of(foretell.Case(model=f"hf:{tmp_path}"))
        found.add(workload.graph.parameters.total)
    assert len(found) == 2


def test_a_cluster_object_with_devices_of_its_own_goes_with_a_reference(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_text('[[nodes]]\ndevice = "mine"\n[devices.mine]\nlike = "t4"\ngpus_per_node = 1\n')
    cluster = foretell.parse_cluster(str(path))
    assert foretell.predict("timm:resnet18", batch=1, cluster=cluster).fits


def test_the_longest_job_on_the_slowest_cluster_is_valid_json(tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    path.write_text(
        '[[nodes]]\ndevice = "mine"\ncount = 1000000\nnetwork_link = "slow"\n'
        "price_usd_per_hour = 1e9\n"
        '[devices.mine]\nlike = "t4"\nmemory_bandwidth_gb_per_s = 1e-6\n'
        '[links.slow]\nkind = "ethernet"\nbandwidth_gb_per_s = 1e-6\nlatency_us = 1e9\n'
    )
    forecast = foretell.predict(
        "timm:resnet18", batch=10**9, epochs=10**9, samples=10**15, cluster=str(path)
    )
    json.dumps(forecast.to_dict(), allow_nan=False)
