"""What cannot be true at once is refused with both places."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.errors import InputError
from foretell.launch import read_launch

DEEPSPEED = '{"train_batch_size": 512, "train_micro_batch_size_per_gpu": 4,\n' \
    ' "gradient_accumulation_steps": 8}'  # fmt: skip

CASES: list[tuple[str, dict[str, str], list[str]]] = [
    (
        "nodes",
        {
            "job.sh": "#!/bin/sh\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:8\n"
            "srun torchrun --nnodes 4 --nproc_per_node 8 train.py --max_steps 5\n"
        },
        ["2 (job.sh:2 --nodes)", "4 (job.sh:4 --nnodes)"],
    ),
    (
        "devices per node",
        {
            "job.sh": "#!/bin/sh\n#SBATCH --nodes=1\n#SBATCH --gres=gpu:4\n"
            "torchrun --nproc_per_node 8 train.py --max_steps 5\n"
        },
        ["4 (job.sh:3 --gres)", "8 (job.sh:4 --nproc_per_node)"],
    ),
    (
        "processes",
        {"a.yaml": "num_machines: 3\nnum_processes: 16\n"},
        ["16 (a.yaml:2 num_processes)", "3 (a.yaml:1 num_machines)"],
    ),
    (
        "global batch",
        {
            "run.sh": "deepspeed --num_gpus 8 t.py --deepspeed ds.json\n",
            "ds.json": DEEPSPEED,
        },
        ["512 (ds.json train_batch_size)", "8 data-parallel copies (run.sh:1 --num_gpus) = 256"],
    ),
    (
        "global batch of megatron",
        {
            "run.sh": "torchrun --nproc_per_node 8 p.py --micro-batch-size 3 "
            "--global-batch-size 16\n"
        },
        ["16 (run.sh:1 --global-batch-size)", "is not a multiple of 3"],
    ),
    (
        "model parallel",
        {
            "run.sh": "torchrun --nproc_per_node 8 p.py \\\n --tensor-model-parallel-size 4 \\\n"
            " --pipeline-model-parallel-size 3\n"
        },
        ["4 (run.sh:2 --tensor-model-parallel-size)", "3 (run.sh:3", "8 devices"],
    ),
    (
        "experts",
        {
            "run.sh": "torchrun --nproc_per_node 8 p.py --micro-batch-size 1 "
            "--expert-model-parallel-size 3\n"
        },
        ["3 groups of experts", "8 devices"],
    ),
    (
        "virtual stages",
        {
            "run.sh": "torchrun --nproc_per_node 8 p.py --num-layers 10 "
            "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 2\n"
        },
        ["10 layers", "4 pipeline stages"],
    ),
    (
        "number format in one file",
        {"run.sh": "torchrun t.py --fp16 \\\n --bf16 True --max_steps 5\n"},
        ["fp16 (run.sh:1 --fp16)", "bf16 (run.sh:2 --bf16)"],
    ),
    (
        "number format in two files",
        {
            "run.sh": "deepspeed t.py --bf16 --max_steps 5 --deepspeed ds.json\n",
            "ds.json": '{"fp16": {"enabled": true}, "zero_optimization": {"stage": 1}}',
        },
        ["bf16 (run.sh:1 --bf16)", "fp16 (ds.json fp16.enabled)"],
    ),
    (
        "zero",
        {
            "a.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"
            "  deepspeed_config_file: ds.json\n",
            "ds.json": '{"zero_optimization": {"stage": 3}}',
        },
        ["2 (a.yaml:3 deepspeed_config.zero_stage)", "3 (ds.json zero_optimization.stage)"],
    ),
    (
        "length",
        {"run.sh": "torchrun p.py --train-iters 5 --train-samples 10\n"},
        ["--train-iters 5", "--train-samples 10"],
    ),
    (
        "pods of different size",
        {
            "job.yaml": "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec:\n"
            "  pytorchReplicaSpecs:\n"
            + "".join(
                f"    {role}:\n      template:\n        spec:\n          containers:\n"
                f"          - resources: {{limits: {{nvidia.com/gpu: {count}}}}}\n"
                for role, count in (("Master", 4), ("Worker", 8))
            )
        },
        ["is 4 (job.yaml:9", "and 8 (job.yaml:14"],
    ),
    (
        "too many devices in a node",
        {"job.sh": "#!/bin/sh\n#SBATCH --nodes=1 --gres=gpu:a100:64\nsrun python t.py\n"},
        ["64 devices in one node"],
    ),
]


@pytest.mark.parametrize(("files", "parts"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_contradictions_name_both_places(
    tmp_path: Path, files: dict[str, str], parts: list[str]
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    first = tmp_path / next(iter(files))
    with pytest.raises(InputError) as caught:
        read_launch(first)
    message = str(caught.value)
    assert str(first) in message
    assert "\n" not in message
    for part in parts:
        assert part in message


def test_equal_values_in_two_places_are_no_contradiction(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text(
        '{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4,'
        ' "gradient_accumulation_steps": 8, "bf16": {"enabled": true}}'
    )
    script = tmp_path / "run.sh"
    script.write_text(
        "deepspeed --num_gpus 8 t.py --deepspeed ds.json --bf16 --per_device_train_batch_size 4 "
        "--gradient_accumulation_steps 8\n"
    )
    assert read_launch(script).options["global_batch"] == 256
