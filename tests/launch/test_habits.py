"""What frameworks do unless a file tells them otherwise, and what it tells them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from foretell.launch import Launch, beside, read_launch


def read(tmp_path: Path, text: str, **files: str) -> Launch:
    """A launch file `run.sh` with others next to it; ds_json becomes ds.json."""
    for name, content in files.items():
        (tmp_path / name.replace("_", ".")).write_text(content)
    path = tmp_path / "run.sh"
    path.write_text(text)
    return read_launch(path)


MEGATRON = "torchrun --nproc_per_node 8 p.py --micro-batch-size 1 "


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--bf16", {"fp32_gradients": True, "fused_optimizer": True, "overlap": False}),
        ("--fp16", {"fp32_gradients": None, "fused_optimizer": True, "overlap": False}),
        ("--fp16 --accumulate-allreduce-grads-in-fp32", {"fp32_gradients": True}),
        ("--bf16 --grad-reduce-in-bf16", {"fp32_gradients": False}),
        ("--bf16 --overlap-grad-reduce --overlap-param-gather", {"overlap": True}),
        ("--bf16 --optimizer-cpu-offload", {"fused_optimizer": None}),
        ("--sequence-parallel", {"sp": None}),
        ("--sequence-parallel --tensor-model-parallel-size 2", {"sp": True}),
        (
            "--use-distributed-optimizer --num-distributed-optimizer-instances 2",
            {"zero": 1, "shard": 4},
        ),
        (
            "--tensor-model-parallel-size 2 --expert-tensor-parallel-size 1",
            {"tp_plan": "mlp=whole"},
        ),
        ("--tensor-model-parallel-size 2 --expert-tensor-parallel-size 2", {"tp_plan": None}),
    ],
)
def test_megatron(tmp_path: Path, flags: str, expected: dict[str, Any]) -> None:
    launch = read(tmp_path, MEGATRON + flags)
    assert {name: launch.options.get(name) for name in expected} == expected
    assert launch.notes == ()


def test_wide_gradients_that_are_sharded_are_noted(tmp_path: Path) -> None:
    launch = read(tmp_path, MEGATRON + "--bf16 --use-torch-fsdp2")
    assert not {"fp32_gradients", "overlap"} & set(launch.options)
    assert launch.notes == (
        "run.sh:1 p.py adds sharded gradients up in fp32, which is not modelled",
    )


def test_instances_of_an_optimizer_over_unknown_ranks_are_noted(tmp_path: Path) -> None:
    flags = "--use-distributed-optimizer --num-distributed-optimizer-instances 2"
    launch = read(tmp_path, f"--micro-batch-size 1 {flags}")
    assert any("give --shard" in note for note in launch.notes)
    assert beside(launch, {"cluster": "8xa100-80gb", "shard": 4}).notes == ()


def test_experts_split_in_their_own_way_are_noted(tmp_path: Path) -> None:
    flags = "--tensor-model-parallel-size 4 --expert-tensor-parallel-size 2"
    assert any("experts are split into 4" in n for n in read(tmp_path, MEGATRON + flags).notes)


ADAM = {"type": "AdamW", "params": {"lr": 1e-4}}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"zero_optimization": {"stage": 2}}, {"overlap": False}),
        ({"zero_optimization": {"stage": 3}}, {"overlap": None}),
        ({"zero_optimization": {"stage": 2, "overlap_comm": True}}, {"overlap": True}),
        ({"zero_optimization": {"stage": 3, "overlap_comm": False}}, {"overlap": False}),
        ({"zero_optimization": {"stage": 3, "mics_shard_size": 8}}, {"shard": 8}),
        ({"zero_optimization": {"stage": 3, "mics_shard_size": -1}}, {"shard": None}),
        ({"optimizer": ADAM}, {"optimizer": "adamw", "fused_optimizer": True}),
        (
            {"optimizer": {"type": "Adam", "params": {"torch_adam": True}}},
            {"optimizer": "adamw", "fused_optimizer": None},
        ),
        (
            {"optimizer": ADAM, "zero_optimization": {"offload_optimizer": {"device": "cpu"}}},
            {"offload_optimizer": True, "fused_optimizer": None},
        ),
        ({"data_types": {"grad_accum_dtype": "fp32"}}, {"fp32_gradients": True}),
    ],
)
def test_deepspeed(tmp_path: Path, settings: dict[str, Any], expected: dict[str, Any]) -> None:
    launch = read(tmp_path, json.dumps({"train_batch_size": 8, **settings}))
    assert {name: launch.options.get(name) for name in expected} == expected
    assert launch.notes == ()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"mixed_precision": "bf16"}, {"precision": "amp-bf16"}),
        ({"mixed_precision": {"param_dtype": "torch.float16"}}, {"precision": "amp-fp16"}),
        ({"backward_prefetch": "BackwardPrefetch.NO_PREFETCH"}, {"prefetch": 0}),
        ({"backward_prefetch": "BACKWARD_PRE"}, {"prefetch": None}),
    ],
)
def test_fsdp(tmp_path: Path, settings: dict[str, Any], expected: dict[str, Any]) -> None:
    content = {"fsdp_config": {"sharding_strategy": "FULL_SHARD", **settings}}
    launch = read(tmp_path, json.dumps(content))
    assert {name: launch.options.get(name) for name in expected} == expected
    assert launch.notes == ()


@pytest.mark.parametrize("text", ['{"bf16": {"enabled": "auto"}, "train_batch_size": 8}',
                                  "bf16: auto\nmax_steps: 5\n"])  # fmt: skip
def test_a_precision_left_open_is_noted_until_it_is_given(tmp_path: Path, text: str) -> None:
    launch = read(tmp_path, text)
    assert any("leaves the precision open: give --precision" in note for note in launch.notes)
    assert beside(launch, {"precision": "bf16"}).notes == ()


def test_a_precision_left_to_the_command_is_not_open(tmp_path: Path) -> None:
    ds = '{"bf16": {"enabled": "auto"}, "train_batch_size": "auto"}'
    launch = read(tmp_path, "deepspeed t.py --bf16 --deepspeed ds.json --max_steps 5", ds_json=ds)
    assert launch.options["precision"] == "bf16"
    assert launch.notes == ()


ACCELERATE = (
    "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\n"
    "fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n"
)


def test_flags_of_accelerate_go_before_its_file(tmp_path: Path) -> None:
    launch = read(
        tmp_path,
        "accelerate launch --config_file a.yaml --fsdp_sharding_strategy SHARD_GRAD_OP t.py\n",
        a_yaml=ACCELERATE,
    )
    assert launch.options["zero"] == 2
    assert launch.notes == (
        "zero 3 (a.yaml:5 fsdp_config.fsdp_sharding_strategy) gives way to 2 "
        "(run.sh:1 --fsdp_sharding_strategy)",
    )


def test_a_flag_of_fsdp_alone_is_read(tmp_path: Path) -> None:
    launch = read(tmp_path, "accelerate launch --fsdp_reshard_after_forward false t.py\n")
    assert launch.options["zero"] == 2


def test_only_the_section_that_accelerate_chooses_counts(tmp_path: Path) -> None:
    launch = read(tmp_path, ACCELERATE.replace("FSDP", "MULTI_GPU", 1))
    assert dict(launch.options) == {"precision": "amp-bf16"}


def test_eager_attention_is_noted(tmp_path: Path) -> None:
    for implementation, is_noted in (("eager", True), ("flash_attention_2", False)):
        launch = read(tmp_path, f"attn_implementation: {implementation}\nmax_steps: 5\n")
        assert bool(launch.notes) == is_noted


def test_words_nobody_knows_name_the_option_that_settles_them(tmp_path: Path) -> None:
    launch = read(tmp_path, "optim: lion_32bit\nmax_steps: 5\n")
    assert launch.notes == (
        "run.sh:1 optim lion_32bit is not known to Foretell: give --optimizer",
    )  # fmt: skip
    assert beside(launch, {"optimizer": "sgd"}).notes == ()


def test_variables_nobody_sets_are_settled_by_an_option(tmp_path: Path) -> None:
    launch = read(tmp_path, "torchrun --nproc_per_node $N t.py --per_device_train_batch_size $B")
    assert len(launch.notes) == 2
    assert beside(launch, {"cluster": "8xa100-80gb", "batch": 4}).notes == ()
