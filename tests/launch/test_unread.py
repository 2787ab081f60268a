"""Settings that nobody reads are noted when they may matter for time or memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretell.launch import read_launch


def notes(tmp_path: Path, content: str) -> tuple[str, ...]:
    path = tmp_path / "run.sh"
    path.write_text(content)
    return read_launch(path).notes


DEEPSPEED = {"train_micro_batch_size_per_gpu": 1}
TRAINER = {"max_steps": 5}
ACCELERATE = {"num_processes": 8}
FSDP = {"sharding_strategy": "FULL_SHARD"}


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (DEEPSPEED | {"zero_optimization": {"zero_hpz_partition_size": 8}}, "size 8 was not read"),
        (DEEPSPEED | {"communication_data_type": "fp32"}, "data_type fp32 was not read"),
        (DEEPSPEED | {"pipeline": {"stages": 2}}, "pipeline was not read"),
        (DEEPSPEED | {"elasticity": {"enabled": True}}, "elasticity was not read"),
        (TRAINER | {"use_liger_kernel": True}, "use_liger_kernel was not read"),
        (TRAINER | {"finetuning_type": "lora"}, "lora trains a part of the model"),
        (TRAINER | {"load_in_4bit": True}, "load_in_4bit narrows what is kept in memory"),
        (TRAINER | {"sample_packing": True}, "sample_packing decides how full sequences are"),
        (ACCELERATE | {"fp8_config": {"backend": "TE"}}, "fp8_config was not read"),
        (ACCELERATE | {"fsdp_config": FSDP | {"fsdp_ignored_modules": "x"}}, "x was not read"),
    ],
)
def test_keys(tmp_path: Path, settings: dict[str, Any], part: str) -> None:
    assert any(part in note for note in notes(tmp_path, json.dumps(settings)))


@pytest.mark.parametrize(
    "settings",
    [
        DEEPSPEED | {"zero_allow_untested_optimizer": True, "gradient_clipping": 1.0},
        DEEPSPEED | {"zero_optimization": {"stage": 3, "stage3_max_live_parameters": 1e9}},
        DEEPSPEED | {"pipeline": {}, "quantize_training": None},
        TRAINER | {"use_peft": False, "load_in_8bit": "false", "finetuning_type": "full"},
        TRAINER | {"per_device_eval_batch_size": 4, "dataloader_num_workers": 4},
        TRAINER | {"fsdp": "full_shard", "fsdp_config": {"fsdp_min_num_params": 2000}},
        ACCELERATE | {"fsdp_config": {"fsdp_auto_wrap_policy": "X", "fsdp_use_orig_params": True}},
    ],
)
def test_keys_that_change_nothing_are_passed_over(tmp_path: Path, settings: dict[str, Any]) -> None:
    assert notes(tmp_path, json.dumps(settings)) == ()


@pytest.mark.parametrize(
    ("flag", "is_noted"),
    [
        ("--offload", True),
        ("--load weights.pt", False),
        ("--model-ema", True),
        ("--amp_mode fp16", True),
        ("--use_peft False", False),
        ("--fsdp_transformer_layer_cls_to_wrap Block", False),
        ("--tp-comm-overlap", True),
        ("--moe-grouped-gemm", False),
    ],
)
def test_flags(tmp_path: Path, flag: str, is_noted: bool) -> None:
    found = notes(tmp_path, f"torchrun --nproc_per_node 8 t.py --max_steps 5 {flag}\n")
    assert bool(found) == is_noted


def test_many_signs_of_one_thing_make_one_note(tmp_path: Path) -> None:
    flags = "--use_peft --lora_r 16 --lora_alpha 32 --lora_target_modules q v"
    assert len(notes(tmp_path, f"torchrun --nproc_per_node 8 t.py --max_steps 5 {flags}\n")) == 1
