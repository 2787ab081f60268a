"""Every sample file is read as a person would read it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretell.cluster import parse_cluster
from foretell.graph.sources.transformer_source import parse_transformer
from foretell.launch import Launch, read_launch

SAMPLES = Path(__file__).parent / "samples"

EXPECTED: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "megatron.sbatch": (
        ("sbatch", "srun", "torchrun", "megatron"),
        {
            "model": "transformer:layers=48,hidden=6144,heads=64,seq=2048,vocab=51200,tied,"
            "dropout,fused_loss",
            "cluster": "4x8xa100-80gb",
            "seq": 2048,
            "batch": 2,
            "global_batch": 128,
            "steps": 50000,
            "precision": "bf16",
            "master_weights": True,
            "optimizer": "adamw",
            "recompute": "selective",
            "tp": 8,
            "pp": 2,
            "sp": True,
            "zero": 1,
            "fused_optimizer": True,
            "fp32_gradients": True,
            "overlap": False,
            "virtual_stages": 4,
            "schedule": "interleaved",
        },
    ),
    "llama_moe.sh": (
        ("torchrun", "megatron"),
        {
            "model": "transformer:layers=32,hidden=4096,heads=32,seq=4096,vocab=32000,ffn=14336,"
            "kv_heads=8,experts=8,topk=2,gated,fused_gate,rmsnorm,rope,nobias,dropout,fused_loss",
            "seq": 4096,
            "batch": 1,
            "global_batch": 256,
            "epochs": 1,
            "samples": 1_000_000,
            "precision": "fp8",
            "master_weights": True,
            "recompute": "full",
            "tp": 2,
            "pp": 1,
            "cp": 2,
            "ep": 8,
            "sp": True,
            "fused_optimizer": True,
            "fp32_gradients": True,
            "overlap": False,
        },
    ),
    "finetune.sh": (
        ("deepspeed", "trainer"),
        {
            "model": "hf:meta-llama/Llama-3.1-8B",
            "seq": 2048,
            "batch": 4,
            "global_batch": 128,
            "epochs": 3,
            "samples": 52000,
            "precision": "bf16",
            "master_weights": True,
            "optimizer": "adamw",
            "recompute": "full",
            "zero": 3,
            "offload_optimizer": True,
        },
    ),
    "deepspeed.json": (
        ("deepspeed",),
        {
            "batch": 4,
            "global_batch": 512,
            "precision": "fp16",
            "master_weights": True,
            "optimizer": "adam",
            "fused_optimizer": True,
            "overlap": True,
            "recompute": "full",
            "zero": 2,
            "bucket_mb": 953.674,
        },
    ),
    "zero3.json": (
        ("deepspeed",),
        {"optimizer": "adamw", "zero": 3, "offload_optimizer": True},
    ),
    "accelerate_fsdp.yaml": (
        ("accelerate", "fsdp"),
        {"precision": "amp-bf16", "recompute": "full", "zero": 2},
    ),
    "accelerate_deepspeed.yaml": (
        ("accelerate", "deepspeed"),
        {
            "precision": "fp16",
            "master_weights": True,
            "zero": 2,
            "overlap": False,
            "offload_optimizer": True,
        },
    ),
    "accelerate_megatron.yaml": (
        ("accelerate", "megatron"),
        {
            "precision": "bf16",
            "master_weights": True,
            "recompute": "selective",
            "tp": 2,
            "pp": 2,
            "sp": True,
            "zero": 1,
            "fused_optimizer": True,
            "fp32_gradients": True,
            "overlap": False,
        },
    ),
    "accelerate_launch.txt": (
        ("accelerate", "fsdp", "trainer"),
        {
            "model": "hf:gpt2",
            "batch": 2,
            "global_batch": 64,
            "steps": 1000,
            "precision": "amp-bf16",
            "optimizer": "adafactor",
            "recompute": "full",
            "zero": 2,
        },
    ),
    "trainer.yaml": (
        ("trainer", "fsdp"),
        {
            "model": "hf:Qwen/Qwen2.5-7B",
            "seq": 4096,
            "batch": 2,
            "epochs": 2.5,
            "precision": "amp-bf16",
            "optimizer": "adamw",
            "fused_optimizer": True,
            "compile": True,
            "recompute": "full",
            "zero": 3,
        },
    ),
    "fsdp.json": (("fsdp",), {"zero": 3, "offload_optimizer": True}),
    "pytorchjob.yaml": (
        ("pytorchjob", "torchrun", "trainer"),
        {"batch": 8, "steps": 20000, "precision": "amp-bf16", "cluster": "4x8xh100-sxm"},
    ),
    "timm.slurm": (
        ("sbatch", "srun", "script"),
        {
            "model": "timm:resnet50",
            "cluster": "4xv100-16gb",
            "image_size": 224,
            "batch": 128,
            "epochs": 90,
            "precision": "amp-bf16",
            "optimizer": "momentum",
            "compile": True,
            "channels_last": True,
        },
    ),
    "hostile.sh": (("torchrun", "trainer"), {"steps": 10}),
}


def sample(name: str) -> Launch:
    return read_launch(SAMPLES / name)


def test_every_sample_is_expected() -> None:
    assert {path.name for path in SAMPLES.iterdir()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_options_are_those_the_file_states(name: str) -> None:
    launch = sample(name)
    kinds, options = EXPECTED[name]
    assert launch.kinds == kinds
    assert dict(launch.options) == options


@pytest.mark.parametrize("name", EXPECTED)
def test_every_option_tells_its_origin(name: str) -> None:
    launch = sample(name)
    assert set(launch.origins) >= set(launch.options)
    for origin in launch.origins.values():
        assert (SAMPLES / origin.split(" ")[0].split(":")[0]).is_file(), origin


@pytest.mark.parametrize("name", EXPECTED)
def test_models_and_clusters_are_understood_by_the_rest_of_foretell(name: str) -> None:
    options = sample(name).options
    if str(options.get("model", "")).startswith("transformer:"):
        parse_transformer(options["model"].removeprefix("transformer:"))
    if "cluster" in options:
        assert parse_cluster(options["cluster"]).spec == options["cluster"]


def test_origins_point_at_the_line_where_a_flag_is_written() -> None:
    origins = sample("megatron.sbatch").origins
    lines = (SAMPLES / "megatron.sbatch").read_text().splitlines()
    for option, flag in (
        ("batch", "--micro-batch-size"),
        ("tp", "--tensor-model-parallel-size"),
        ("model", "--num-layers"),
        ("cluster", "--gres"),
    ):
        place, written = origins[option].split(" ")
        assert written == flag
        assert flag in lines[int(place.split(":")[1]) - 1]


def test_machines_of_a_slurm_job() -> None:
    launch = sample("megatron.sbatch")
    assert (launch.nodes, launch.gpus_per_node, launch.world_size) == (4, 8, 32)
    assert launch.device_hint == "a100-80gb"
    assert launch.time_limit_s == 2.5 * 86400 + 1800
    assert launch.missing() == ()
    assert launch.notes == ()


def test_machines_of_a_pytorchjob() -> None:
    launch = sample("pytorchjob.yaml")
    assert (launch.nodes, launch.gpus_per_node, launch.world_size) == (4, 8, 32)
    assert launch.time_limit_s == 86400
    assert launch.missing() == ("model",)
    assert any("ConfigMap" in note for note in launch.notes)


def test_what_a_forecast_still_needs() -> None:
    assert sample("trainer.yaml").missing() == ("cluster", "samples")
    assert sample("accelerate_fsdp.yaml").missing() == ("model", "cluster", "batch")


def test_what_may_matter_is_noted() -> None:
    assert any("lora" in note for note in sample("trainer.yaml").notes)
    assert any("v100-32gb" in note for note in sample("timm.slurm").notes)
    assert (
        "world size 16 (accelerate_fsdp.yaml:15 num_processes) gives way to 8 "
        "(accelerate_launch.txt:1 --num_processes)"
    ) in sample("accelerate_launch.txt").notes
    assert any("shards within a node" in note for note in sample("fsdp.json").notes)


def test_nothing_in_a_file_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    launch = sample("hostile.sh")
    assert launch.world_size == 4
    assert list(tmp_path.iterdir()) == []
    assert not [path for path in SAMPLES.iterdir() if path.name.startswith("ran-")]
    assert any("touch ran-in-quotes" in note for note in launch.notes)
