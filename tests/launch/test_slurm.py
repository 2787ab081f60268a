"""#SBATCH lines in all the ways people write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.errors import InputError
from foretell.launch import Launch, read_launch
from foretell.launch.devices import memory_variants, resolve_device
from foretell.launch.slurm import slurm_time_s

counts = st.integers(0, 999)


@given(days=counts, hours=counts, minutes=counts, seconds=counts)
def test_every_format_of_a_time_limit(days: int, hours: int, minutes: int, seconds: int) -> None:
    day, hour, minute = 86400, 3600, 60
    for text, expected in (
        (f"{minutes}", minutes * minute),
        (f"{minutes}:{seconds:02}", minutes * minute + seconds),
        (f"{hours}:{minutes:02}:{seconds:02}", hours * hour + minutes * minute + seconds),
        (f"{days}-{hours}", days * day + hours * hour),
        (f"{days}-{hours}:{minutes}", days * day + hours * hour + minutes * minute),
        (
            f"{days}-{hours}:{minutes}:{seconds}",
            days * day + hours * hour + minutes * minute + seconds,
        ),
    ):
        assert slurm_time_s(text) == (expected or None), text


@given(st.text(alphabet="0123456789:-dh ", max_size=12))
def test_any_text_is_a_time_or_refused(text: str) -> None:
    try:
        limit = slurm_time_s(text)
    except ValueError:
        return
    assert limit is None or limit > 0


@pytest.mark.parametrize("text", ["unlimited", "INFINITE", "0"])
def test_no_limit(text: str) -> None:
    assert slurm_time_s(text) is None


def job(tmp_path: Path, directives: str, command: str = "srun python train.py") -> Launch:
    lines = "".join(f"#SBATCH {line}\n" for line in directives.splitlines())
    path = tmp_path / "job.sbatch"
    path.write_text(f"#!/bin/bash\n{lines}{command}\n")
    return read_launch(path)


@pytest.mark.parametrize(
    ("directives", "nodes", "gpus", "device"),
    [
        ("--nodes=2\n--gpus-per-node=8", 2, 8, None),
        ("-N2 --gres=gpu:4", 2, 4, None),
        ("-N 2\n--gres gpu:h100:8", 2, 8, "h100-sxm"),
        ("--nodes=2-2\n--gres=gpu:A100-SXM4-40GB:4(S:0-1)", 2, 4, "a100-40gb"),
        ("--nodes=4\n--gpus=l40s:16", 4, 4, "l40s"),
        ("--gres=nvme:1,gpu:rtx3090:2", 1, 2, "rtx3090"),
        ("--gres=gpu", 1, 1, None),
        ("--ntasks=16\n--ntasks-per-node=8\n--gpus-per-task=1", 2, 8, None),
        ("--nodes=1 --gpus-per-node=a100:8\n--constraint=a100&40gb", 1, 8, "a100-40gb"),
        ("--nodes=1 --gres=gpu:8\n-C v100-32g", 1, 8, "v100-32gb"),
        ("--nodes=1 --gres=gpu:2\n--partition=gpu-a40", 1, 2, "a40"),
        ("--nodes=1 --gres=gpu:titan-v:2", 1, 2, "titan-v"),
        ("--nodes=2 # two of them\n--gres=gpu:8", 2, 8, None),
        ('--nodes=2\n--gres="gpu:a40:8"', 2, 8, "a40"),
        ("--nodes=1 --gres=gpu:8\n--constraint='a40'", 1, 8, "a40"),
    ],
)
def test_machines(
    tmp_path: Path, directives: str, nodes: int, gpus: int, device: str | None
) -> None:
    launch = job(tmp_path, directives)
    assert (launch.nodes, launch.gpus_per_node, launch.device_hint) == (nodes, gpus, device)
    assert launch.world_size == nodes * gpus


@pytest.mark.parametrize(
    ("word", "device"),
    [
        ("nvidia-tesla-a100", "a100-40gb"),
        ("nvidia-a100-80gb", "a100-80gb"),
        ("NVIDIA-H100-80GB-HBM3", "h100-sxm"),
        ("Standard_ND96isr_H100_v5", "h100-sxm"),
        ("a2-ultragpu-8g", "a100-80gb"),
        ("p4d.24xlarge", "a100-40gb"),
        ("a100_80g", "a100-80gb"),
        ("toaster", None),
    ],
)
def test_words_for_devices(word: str, device: str | None) -> None:
    assert resolve_device(word) == device
    assert memory_variants(word) == ()


def test_directives_after_a_command_are_ignored_as_slurm_does(tmp_path: Path) -> None:
    launch = job(tmp_path, "--nodes=1 --gres=gpu:8", "cd work\n#SBATCH --nodes=4\nsrun python t.py")
    assert launch.nodes == 1
    assert any("after a command" in note for note in launch.notes)


def test_a_range_of_nodes_is_left_open(tmp_path: Path) -> None:
    launch = job(tmp_path, "--nodes=2-4\n--gres=gpu:a40:8")
    assert "cluster" in launch.missing()
    assert any("2-4" in note for note in launch.notes)


def test_slurm_variables_follow_from_the_reservation(tmp_path: Path) -> None:
    command = (
        "export W=$((SLURM_NNODES * SLURM_GPUS_ON_NODE))\n"
        "srun bash -c 'torchrun --nnodes $SLURM_JOB_NUM_NODES --nproc_per_node 8 train.py "
        "--global-batch-size $W --micro-batch-size 1'"
    )
    launch = job(tmp_path, "--nodes=2\n--gres=gpu:8", command)
    assert launch.options["global_batch"] == 16


def test_a_step_may_use_fewer_nodes(tmp_path: Path) -> None:
    assert job(tmp_path, "-N 4\n--gres=gpu:8", "srun -N 1 python train.py").nodes == 1


def test_a_constraint_without_a_device_is_noted(tmp_path: Path) -> None:
    launch = job(tmp_path, '--nodes=1 --gres=gpu:8\n-C "gpu&hbm80g"')
    assert any("gpu hbm80g names no device Foretell knows" in note for note in launch.notes)


def test_several_kinds_of_gpu_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="several kinds of GPU"):
        job(tmp_path, "--gres=gpu:a100:4,gpu:v100:2")
