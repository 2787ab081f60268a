"""Launchers, programs and the files they name, one behaviour each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from foretell.launch import Launch, read_launch


def read(tmp_path: Path, text: str, **files: str) -> Launch:
    """A launch file `run.sh` with others next to it; ds_json becomes ds.json."""
    for name, content in files.items():
        (tmp_path / name.replace("_", ".")).write_text(content)
    path = tmp_path / "run.sh"
    path.write_text(text)
    return read_launch(path)


@pytest.mark.parametrize(
    ("command", "kinds", "nodes", "gpus"),
    [
        ("torchrun --standalone --nproc-per-node=4 t.py", ("torchrun",), 1, 4),
        ("python -m torch.distributed.run --nnodes 2 --nproc_per_node 8 t.py", ("torchrun",), 2, 8),
        ("python3 -u -m torch.distributed.launch --nproc_per_node=8 t.py", ("torchrun",), 1, 8),
        ("torchrun --nproc_per_node=4 -m package.train", ("torchrun",), 1, 4),
        ("torchrun --nnodes=1:4 --nproc_per_node=4 t.py", ("torchrun",), None, 4),
        ("torchrun --nnodes=2:2 --nproc_per_node=4 t.py", ("torchrun",), 2, 4),
        ("torchrun --nproc_per_node=gpu t.py", ("torchrun",), 1, None),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node=gpu t.py", ("torchrun",), 1, 2),
        ("accelerate launch --multi_gpu --num_processes 8 t.py", ("accelerate",), 1, 8),
        ("accelerate launch --num_machines 2 --num_processes 16 t.py", ("accelerate",), 2, 8),
        ("deepspeed --num_nodes 2 --num_gpus 8 t.py", ("deepspeed",), 2, 8),
        ("deepspeed --include localhost:0,1,2,3 t.py", ("deepspeed",), 1, 4),
        ("deepspeed --include 'a:0,1@b:0,1' t.py", ("deepspeed",), 2, 2),
        ("deepspeed --hostfile hosts.txt t.py", ("deepspeed",), 3, 8),
        ("mpirun -np 16 -npernode 8 python t.py --max_steps 3", ("mpirun", "trainer"), 2, 8),
        ("mpirun -np 8 -H a:4,b:4 python t.py --max_steps 3", ("mpirun", "trainer"), 2, 4),
        ("mpirun -np 6 -H a:4,b:4 python t.py --max_steps 3", ("mpirun", "trainer"), None, None),
        ("srun bash -c 'torchrun --nproc_per_node 4 t.py'", ("srun", "torchrun"), 1, 4),
        ("singularity exec --nv i.sif torchrun --nproc_per_node 4 t.py", ("torchrun",), 1, 4),
        ("nohup env X=1 torchrun --nproc_per_node 4 t.py > log &", ("torchrun",), 1, 4),
        ("echo torchrun x.py\ntorchrun --nproc_per_node 4 t.py", ("torchrun",), 1, 4),
        ("pip install deepspeed\ntorchrun --nproc_per_node 4 t.py", ("torchrun",), 1, 4),
    ],
)
def test_launchers(
    tmp_path: Path, command: str, kinds: tuple[str, ...], nodes: int | None, gpus: int | None
) -> None:
    hosts = "# three of them\na slots=8\nb slots=8\nc slots=8\n"
    launch = read(tmp_path, command + "\n", hosts_txt=hosts)
    assert (launch.kinds, launch.nodes, launch.gpus_per_node) == (kinds, nodes, gpus)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--bf16 --max_steps=5", {"precision": "amp-bf16", "steps": 5}),
        ("--bf16 False --max_steps 5", {"steps": 5}),
        ("--tf32 true --max_steps 5", {"precision": "tf32", "steps": 5}),
        ("--bf16 --torch_dtype bfloat16 --optim sgd", {"precision": "bf16", "optimizer": "sgd"}),
        ("--max_steps -1 --num_train_epochs 2", {"epochs": 2}),
        ("--fsdp 'shard_grad_op auto_wrap' --fp16", {"precision": "amp-fp16", "zero": 2}),
        ("--fsdp full_shard offload", {"zero": 3, "offload_optimizer": True}),
        ("--fsdp 'hybrid_shard auto_wrap'", {"zero": 3, "shard": 4}),
        ("--fsdp hybrid_shard_zero2", {"zero": 2, "shard": 4}),
        ("--enable_fsdp --batch-size-per-gpu 2", {"batch": 2, "zero": 3}),
        ("--fsdp --sharding_strategy SHARD_GRAD_OP --max_steps 5", {"steps": 5, "zero": 2}),
        ("--optim adamw_torch_fused", {"optimizer": "adamw", "fused_optimizer": True}),
        ("--torch_compile_backend inductor --max_steps 5", {"compile": True, "steps": 5}),
        ("--tp_size 2 --max_steps 5", {"tp": 2, "tp_joint": False, "steps": 5}),
        ("--fsdp no_shard --ddp_bucket_cap_mb 50", {"zero": 0, "bucket_mb": 50}),
        ("--torch_compile --gradient_checkpointing True", {"compile": True, "recompute": "full"}),
        ("--optim adamw_bnb_8bit --max_steps 5", {"steps": 5}),
        ("--model_name_or_path ./my/model --max_steps 5", {"steps": 5}),
        (
            "--batch-size 8 --epochs 3 --image-size 224",
            {"batch": 8, "epochs": 3, "image_size": 224},
        ),
        ("--model hf:gpt2 --precision bf16", {"model": "hf:gpt2", "precision": "amp-bf16"}),
        ("--model resnet50 --epochs 3", {"epochs": 3}),
    ],
)
def test_flags_of_programs(tmp_path: Path, flags: str, expected: dict[str, Any]) -> None:
    launch = read(tmp_path, f"torchrun --nproc_per_node 4 t.py {flags}\n")
    assert dict(launch.options) == expected


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--recompute-granularity selective", {"recompute": "selective"}),
        ("--checkpoint-activations --fp16", {"recompute": "full", "precision": "fp16"}),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params "
         "--use-distributed-optimizer", {"zero": 3}),
        ("--use-torch-fsdp2", {"zero": 3}),
        ("--zero-stage 2", {"zero": 2}),
        ("--optimizer sgd --optimizer-cpu-offload",
         {"optimizer": "momentum", "offload_optimizer": True}),
        ("--pipeline-model-parallel-size 4", {"pp": 4, "schedule": "1f1b"}),
        ("--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2",
         {"pp": 4, "virtual_stages": 2, "schedule": "interleaved"}),
        ("--train-tokens 1e12", {"tokens": 10**12}),
    ],
)  # fmt: skip
def test_megatron_flags(tmp_path: Path, flags: str, expected: dict[str, Any]) -> None:
    launch = read(
        tmp_path, f"torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 {flags}\n"
    )
    habits = {"batch", "fused_optimizer", "overlap", "master_weights"}
    assert {n: v for n, v in launch.options.items() if n not in habits} == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("fsdp_sharding_strategy: HYBRID_SHARD", {"zero": 3, "shard": 8}),
        ("fsdp_sharding_strategy: 4", {"zero": 3, "shard": 8}),
        ("fsdp_sharding_strategy: _HYBRID_SHARD_ZERO2", {"zero": 2, "shard": 8}),
        ("fsdp_reshard_after_forward: HYBRID_SHARD", {"zero": 3, "shard": 8}),
        ("fsdp_sharding_strategy: FULL_SHARD", {"zero": 3}),
    ],
)
def test_hybrid_sharding_keeps_a_copy_in_every_node(
    tmp_path: Path, settings: str, expected: dict[str, Any]
) -> None:
    launch = read(
        tmp_path,
        f"distributed_type: FSDP\nfsdp_config:\n  {settings}\nnum_machines: 4\nnum_processes: 32\n",
    )
    assert dict(launch.options) == expected
    assert launch.notes == ()


def test_a_stated_number_of_shards_goes_before_the_node(tmp_path: Path) -> None:
    launch = read(
        tmp_path,
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n"
        "num_machines: 2\nnum_processes: 16\nparallelism_config:\n"
        "  parallelism_config_dp_replicate_size: 4\n  parallelism_config_dp_shard_size: 4\n",
    )
    assert (launch.options["shard"], launch.options["dp"]) == (4, 16)
    assert launch.shards_within_node is None


SHAPE = "--num-layers 4 --hidden-size 1024 --num-attention-heads 16 --seq-length 512"


@pytest.mark.parametrize(
    ("flags", "program", "model"),
    [
        ("--vocab-size 50257", "pretrain_gpt.py", "vocab=50304,tied,dropout"),
        ("--vocab-size 50257 --hidden-dropout 0.0", "p.py", "vocab=50304,tied"),
        ("--vocab-size 50257 --tensor-model-parallel-size 8", "p.py", "vocab=51200,tied,dropout"),
        ("--vocab-size 1000 --make-vocab-size-divisible-by 1", "p.py", "vocab=1000,tied,dropout"),
        ("--vocab-size 128 --swiglu", "p.py", "vocab=128,ffn=2688,gated,fused_gate,tied,dropout"),
        ("--vocab-size 128 --ffn-hidden-size 3000", "p.py", "vocab=128,ffn=3000,tied,dropout"),
        ("--vocab-size 128 --num-experts 4", "p.py", "vocab=128,experts=4,topk=2,tied,dropout"),
        ("--vocab-size 128 --position-embedding-type rope", "p.py", "vocab=128,rope,tied,dropout"),
        ("--vocab-size 128", "pretrain_bert.py", "vocab=128,tied,encoder,dropout"),
        ("--vocab-size 128", "pretrain_t5.py", None),
        ("--tokenizer-type Llama2Tokenizer", "p.py", "vocab=32000,tied,dropout"),
        ("--vocab-file v.json --merge-file m.txt", "p.py", "vocab=50304,tied,dropout"),
        ("--tokenizer-type HuggingFaceTokenizer", "p.py", None),
    ],
)
def test_megatron_models(tmp_path: Path, flags: str, program: str, model: str | None) -> None:
    launch = read(tmp_path, f"torchrun --nproc_per_node 8 {program} {SHAPE} {flags}\n")
    start = "transformer:layers=4,hidden=1024,heads=16,seq=512,"
    assert launch.options.get("model") == (None if model is None else f"{start}{model},fused_loss")
    assert bool(launch.notes) == ("--vocab-size" not in flags or model is None)


def test_an_args_file_is_read(tmp_path: Path) -> None:
    launch = read(
        tmp_path,
        "torchrun --nproc_per_node 8 p.py --args-file args.txt --micro-batch-size 2\n",
        args_txt="--tensor-model-parallel-size 4\n--bf16 # low\n",
    )
    assert launch.options["tp"] == 4
    assert launch.options["precision"] == "bf16"


def test_lines_of_flags_alone_are_one_list(tmp_path: Path) -> None:
    launch = read(
        tmp_path, "--tensor-model-parallel-size 4\n--micro-batch-size 2 # small\n--bf16\n"
    )
    assert (launch.options["tp"], launch.options["batch"]) == (4, 2)
    assert launch.options["precision"] == "bf16"
    assert launch.notes == ()


def test_a_script_that_only_starts_another_is_read_with_it(tmp_path: Path) -> None:
    launch = read(
        tmp_path,
        "#!/bin/sh\n#SBATCH -N 2 --gres=gpu:4\nsource env.sh\nsrun --cpu-bind=none ./inner.sh 8\n",
        inner_sh="torchrun --nnodes $SLURM_NNODES --nproc_per_node 4 t.py --max_steps $1\n",
    )
    assert launch.kinds == ("sbatch", "srun", "torchrun", "trainer")
    assert launch.origins["steps"] == "inner.sh:1 --max_steps"
    assert launch.options["steps"] == 8
    assert launch.notes == ()


def test_a_script_that_starts_itself_is_read_once(tmp_path: Path) -> None:
    launch = read(tmp_path, "#SBATCH -N 2 --gres=gpu:4\nbash run.sh\n")
    assert any("no training command" in note for note in launch.notes)


def test_a_file_that_a_script_writes_itself_is_read(tmp_path: Path) -> None:
    launch = read(
        tmp_path,
        "MICRO=4\nCONFIG=ds.$SLURM_JOBID.json\ncat <<EOT > $CONFIG\n"
        '{"train_micro_batch_size_per_gpu": $MICRO, "zero_optimization": {"stage": 1}}\nEOT\n'
        "deepspeed --num_gpus 8 t.py --deepspeed_config $CONFIG\n",
    )
    assert dict(launch.options) == {"batch": 4, "zero": 1, "overlap": False}


def test_a_missing_file_becomes_a_note(tmp_path: Path) -> None:
    launch = read(tmp_path, "deepspeed --num_gpus 8 t.py --deepspeed configs/ds.json\n")
    assert launch.notes == (
        "run.sh:1 --deepspeed configs/ds.json was not read: there is no such file here",
    )


def test_a_configuration_given_as_a_word_is_read(tmp_path: Path) -> None:
    launch = read(
        tmp_path,
        "llamafactory-cli train sft.yaml\n",
        sft_yaml="model_name_or_path: Qwen/Qwen2.5-7B\nper_device_train_batch_size: 1\n",
    )
    assert launch.options["model"] == "hf:Qwen/Qwen2.5-7B"
    assert launch.origins["batch"] == "sft.yaml:2 per_device_train_batch_size"


def test_a_local_model_is_its_config(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text("{}")
    launch = read(tmp_path, "torchrun t.py --model_name_or_path ./tiny --max_steps 5\n")
    assert launch.options["model"] == f"hf:{tmp_path / 'tiny' / 'config.json'}"


def test_hosts_left_out_are_noted(tmp_path: Path) -> None:
    launch = read(tmp_path, "deepspeed --exclude worker-1:0 t.py --max_steps 5\n")
    assert launch.notes == ("run.sh:1 --exclude worker-1:0 was not read",)


def test_a_second_job_is_noted(tmp_path: Path) -> None:
    launch = read(tmp_path, "torchrun a.py --max_steps 5\ntorchrun b.py --max_steps 7\n")
    assert launch.options["steps"] == 5
    assert any("run.sh:2 starts b.py" in note for note in launch.notes)


def test_fewer_processes_than_reserved_devices_are_noted(tmp_path: Path) -> None:
    launch = read(
        tmp_path,
        "#!/bin/sh\n#SBATCH -N 1 --gres=gpu:a100:8\ntorchrun --nproc_per_node 4 t.py\n",
    )
    assert launch.gpus_per_node == 4
    assert any("reserves 8" in note for note in launch.notes)


def test_unknown_flags_that_may_matter_are_noted_and_others_are_not(tmp_path: Path) -> None:
    launch = read(tmp_path, "torchrun t.py --max_steps 5 --lora_r 16 --seed 1 --lr 0.1 $EXTRA\n")
    assert any("--lora_r 16 trains a part of the model" in note for note in launch.notes)
    assert any("$EXTRA" in note for note in launch.notes)
    assert not any("seed" in note for note in launch.notes)


def test_formats_are_told_by_content_not_by_name(tmp_path: Path) -> None:
    path = tmp_path / "odd.json"
    path.write_text("torchrun --nproc_per_node 4 t.py --max_steps 5\n")
    assert read_launch(path).world_size == 4
    path = tmp_path / "odd.sh"
    path.write_text("num_machines: 1\nnum_processes: 4\n")
    assert read_launch(path).world_size == 4
    path = tmp_path / "odd.yaml"
    path.write_text('{"train_batch_size": 8}')
    assert read_launch(path).options["global_batch"] == 8


def test_flags_inside_a_nested_shell_keep_their_lines(tmp_path: Path) -> None:
    launch = read(
        tmp_path,
        "HOST=$(hostname -s)\nexport RUN='torchrun --nproc_per_node 4'\n"
        'export ARGS="--addr $HOST \\\n  --micro-batch-size 2"\n'
        "srun bash -c '$RUN --master_addr $HOST p.py $ARGS --bf16'\n",
    )
    assert launch.origins["batch"] == "run.sh:4 --micro-batch-size"
    assert launch.origins["precision"] == "run.sh:5 --bf16"
    assert launch.notes == ()
