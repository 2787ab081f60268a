"""Options beside a launch file go before it, and nothing gives way in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from foretell.errors import InputError
from foretell.launch import Launch, beside, read_launch

# 16 processes x batch 4 x accumulation 2 = 128
TRAINER = (
    "torchrun --nnodes 2 --nproc_per_node 8 t.py --per_device_train_batch_size 4 \\\n"
    "  --gradient_accumulation_steps 2 --model_name_or_path gpt2 --num_train_epochs 3\n"
)
MEGATRON = (
    "torchrun --nnodes 2 --nproc_per_node 8 p.py --tensor-model-parallel-size 2 \\\n"
    "  --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 \\\n"
    "  --sequence-parallel --micro-batch-size 2 --global-batch-size 64 --bf16 --train-iters 5\n"
)
HYBRID = (
    "distributed_type: FSDP\nfsdp_config:\n  fsdp_sharding_strategy: HYBRID_SHARD\n"
    "num_machines: 2\nnum_processes: 16\n"
)


def read(tmp_path: Path, text: str, **given: Any) -> Launch:
    path = tmp_path / "run.sh"
    path.write_text(text)
    return beside(read_launch(path), given)


def options(launch: Launch, *names: str) -> tuple[Any, ...]:
    return tuple(launch.options.get(name) for name in names)


def test_without_options_the_file_stands_as_it_is(tmp_path: Path) -> None:
    for text in (TRAINER, MEGATRON, HYBRID):
        path = tmp_path / "run.sh"
        path.write_text(text)
        launch = read_launch(path)
        again = beside(launch, {})
        assert (again.options, again.notes) == (launch.options, launch.notes)


def test_another_number_of_devices_keeps_the_accumulation_a_file_states(tmp_path: Path) -> None:
    launch = read(tmp_path, TRAINER, cluster="8xa100-80gb")
    assert options(launch, "batch", "global_batch") == (4, 64)
    assert (launch.world_size, launch.accumulation) == (8, 2)
    assert launch.notes == (
        "world size 16 (run.sh:1 --nproc_per_node) gives way to 8 (--cluster)",
        "the global batch of 128 becomes 64: 4 (run.sh:1 --per_device_train_batch_size) x 2 x "
        "8 copies (--cluster)",
    )


def test_another_number_of_devices_keeps_the_global_batch_a_file_states(tmp_path: Path) -> None:
    launch = read(tmp_path, MEGATRON, cluster="8xa100-80gb")
    assert options(launch, "batch", "global_batch") == (2, 64)
    assert launch.accumulation == 16
    assert any("accumulation 8" in note and "becomes 16" in note for note in launch.notes)


def test_another_number_of_nodes_is_noted(tmp_path: Path) -> None:
    launch = read(tmp_path, TRAINER, cluster="4x4xa100-80gb")
    assert launch.notes == ("nodes 2 (run.sh:1 --nnodes) gives way to 4 (--cluster)",)


def test_the_same_machines_need_no_note(tmp_path: Path) -> None:
    assert read(tmp_path, TRAINER, cluster="2x8xa100-80gb").notes == ()


def test_another_cluster_than_the_files_is_noted_once(tmp_path: Path) -> None:
    job = "#!/bin/sh\n#SBATCH -N 2 --gres=gpu:h100:8\n" + TRAINER
    launch = read(tmp_path, job, cluster="2x4xa40")
    assert launch.notes[0] == (
        "cluster 2x8xh100-sxm (run.sh:2 --gres) gives way to 2x4xa40 (--cluster)"
    )
    assert len(launch.notes) == 2
    assert "global batch of 128 becomes 64" in launch.notes[1]


def test_another_batch_changes_the_global_batch_that_follows_from_it(tmp_path: Path) -> None:
    launch = read(tmp_path, TRAINER, batch=2)
    assert options(launch, "batch", "global_batch") == (2, 64)
    assert launch.accumulation == 2
    assert launch.notes == (
        "batch 4 (run.sh:1 --per_device_train_batch_size) gives way to 2 (--batch)",
        "the global batch of 128 becomes 64: 2 (--batch) x 2 x 16 copies (run.sh:1 "
        "--nproc_per_node)",
    )


def test_accumulation_that_follows_from_the_batches_is_noted_too(tmp_path: Path) -> None:
    launch = read(tmp_path, MEGATRON, batch=4)
    assert options(launch, "batch", "global_batch") == (4, 64)
    assert any(
        note.startswith("accumulation 8 (run.sh:3 --global-batch-size) becomes 4: ")
        for note in launch.notes
    )


def test_another_global_batch_changes_accumulation(tmp_path: Path) -> None:
    launch = read(tmp_path, TRAINER, global_batch=64)
    assert options(launch, "batch", "global_batch") == (4, 64)
    assert any("accumulation 2" in note and "becomes 1" in note for note in launch.notes)
    assert any("64 (--global-batch)" in note for note in launch.notes)


def test_accumulation_counts_once_the_cluster_is_given(tmp_path: Path) -> None:
    text = "per_device_train_batch_size: 4\ngradient_accumulation_steps: 8\n"
    assert read(tmp_path, text).options.get("global_batch") is None
    launch = read(tmp_path, text, cluster="8xa100-80gb")
    assert options(launch, "batch", "global_batch") == (4, 256)
    assert launch.notes == ()


def test_accumulation_counts_once_the_batch_is_given(tmp_path: Path) -> None:
    text = "torchrun --nproc_per_node 8 t.py --gradient_accumulation_steps 8\n"
    assert read(tmp_path, text, batch=2).options["global_batch"] == 128


def test_a_batch_follows_from_global_batch_and_accumulation(tmp_path: Path) -> None:
    text = '{"train_batch_size": 256, "gradient_accumulation_steps": 4}'
    assert read(tmp_path, text, cluster="8xa100-80gb").options["batch"] == 8


@pytest.mark.parametrize(
    ("text", "given", "parts"),
    [
        (
            MEGATRON,
            {"batch": 3},
            ["64 (run.sh:3 --global-batch-size)", "3 (--batch) x 4 data-parallel copies"],
        ),
        (
            MEGATRON,
            {"cluster": "12xa100-80gb"},
            ["64 (run.sh:3", "2 (run.sh:3 --micro-batch", "3 data-parallel copies (--cluster)"],
        ),
        (
            TRAINER,
            {"global_batch": 100},
            ["100 (--global-batch)", "4 (run.sh:1 --per_device_train_batch_size)"],
        ),
        (
            MEGATRON,
            {"cluster": "6xa100-80gb"},
            ["2 (run.sh:1 --tensor-model-parallel-size)", "6 devices (--cluster)"],
        ),
        (MEGATRON, {"tp": 16}, ["16 (--tp)", "2 (run.sh:2 --pipeline", "16 devices (run.sh:1"]),
        (TRAINER, {"dp": 4}, ["is 4 (--dp) and 16 (run.sh:1 --nproc_per_node)"]),
        (
            MEGATRON.replace("--bf16", "--expert-model-parallel-size 4"),
            {"pp": 4},
            ["4 groups of experts (run.sh:3 --expert-model-parallel-size)", "2 data-parallel"],
        ),
        (TRAINER, {"batch": 0}, ["--batch is 0", "1 or more"]),
        (TRAINER, {"tp": -1}, ["--tp is -1", "1 or more"]),
        (HYBRID, {"shard": 3}, ["3 ranks that share a copy (--shard)", "16 data-parallel ranks"]),
    ],
)
def test_what_no_longer_factors_names_the_file_and_the_option(
    tmp_path: Path, text: str, given: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, text, **given)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "given", "left_out"),
    [
        (TRAINER, {"steps": 10}, {"epochs"}),
        (TRAINER + " --max_train_samples 9", {"tokens": 1e9}, {"epochs", "samples"}),
        (MEGATRON, {"epochs": 1, "samples": 10}, {"steps"}),
        (MEGATRON, {"tp": 1}, {"sp"}),
        (MEGATRON + " --expert-tensor-parallel-size 1", {"tp": 1}, {"sp", "tp_plan"}),
        (HYBRID + "parallelism_config:\n  tp_size: 2\n", {"tp": 1}, {"tp_joint"}),
        (MEGATRON, {"pp": 1}, {"schedule", "virtual_stages"}),
        (MEGATRON, {"schedule": "1f1b"}, {"virtual_stages"}),
        (MEGATRON, {"virtual_stages": 1}, {"schedule"}),
        (MEGATRON, {"precision": "amp-bf16"}, {"master_weights"}),
        (MEGATRON + " --recompute-activations", {"mode": "infer"}, {"recompute", "master_weights"}),
        (MEGATRON, {"optimizer": "adafactor"}, {"fused_optimizer"}),
        (HYBRID, {"zero": 0}, {"shard"}),
    ],
)
def test_what_has_no_meaning_beside_an_option_is_left_out_and_noted(
    tmp_path: Path, text: str, given: dict[str, Any], left_out: set[str]
) -> None:
    text = text.replace("\n --", " --")
    before = read(tmp_path, text).options
    launch = read(tmp_path, text, **given)
    assert left_out <= set(before)
    assert not left_out & set(launch.options)
    for name in left_out:
        assert any(note.startswith(f"{name.replace('_', ' ')} ") for note in launch.notes), name


def test_a_switch_is_noted_in_its_negative_form(tmp_path: Path) -> None:
    launch = read(tmp_path, MEGATRON, sp=False)
    assert launch.options["sp"] is False
    assert "sp True (run.sh:3 --sequence-parallel) gives way to False (--no-sp)" in launch.notes


def test_the_same_value_again_is_no_news(tmp_path: Path) -> None:
    assert read(tmp_path, MEGATRON, tp=2, batch=2, precision="bf16").notes == ()


def test_hybrid_sharding_follows_the_nodes_of_the_cluster(tmp_path: Path) -> None:
    assert options(read(tmp_path, HYBRID), "zero", "shard") == (3, 8)
    for given, shard in (
        ({"cluster": "4x4xa100-80gb"}, 4),
        ({"cluster": "2x8xa100-80gb", "tp": 2}, 4),
        ({"cluster": "8xa100-80gb"}, 8),
        ({"shard": 2}, 2),
    ):
        assert read(tmp_path, HYBRID, **given).options["shard"] == shard


def test_a_note_goes_once_an_option_settles_it(tmp_path: Path) -> None:
    text = '{"fsdp": {"sharding_strategy": "HYBRID_SHARD"}}'
    assert any("shards within a node" in note for note in read(tmp_path, text).notes)
    launch = read(tmp_path, text, cluster="2x8xa100-80gb")
    assert launch.options["shard"] == 8
    assert launch.notes == ()


def test_copies_that_a_file_counts_follow_the_cluster(tmp_path: Path) -> None:
    text = HYBRID + "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n"
    text += "  parallelism_config_dp_shard_size: 8\n"
    launch = read(tmp_path, text, cluster="4x8xa100-80gb")
    assert options(launch, "dp", "shard") == (32, 8)
    assert any(note.startswith("dp 16 (") and "32 (--cluster)" in note for note in launch.notes)


def test_every_option_still_tells_its_origin(tmp_path: Path) -> None:
    launch = read(tmp_path, MEGATRON, cluster="2x8xa100-80gb", tp=1, model="hf:gpt2")
    assert set(launch.origins) >= set(launch.options)
    assert launch.origins["tp"] == "--tp"
    assert "sp" not in launch.origins


SAMPLES = sorted((Path(__file__).parent / "samples").iterdir())
COUNTS = st.sampled_from([0, 1, 2, 3, 8, 16, 64])
GIVEN: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("batch", "global_batch", "tp", "pp", "cp", "ep", "dp", "shard"), COUNTS),
    **dict.fromkeys(("epochs", "steps", "samples", "tokens"), COUNTS),
    **dict.fromkeys(("sp", "master_weights", "compile", "fused_optimizer"), st.booleans()),
    "zero": st.integers(0, 3),
    "cluster": st.sampled_from(["a40", "8xa100-80gb", "2x8xh100-sxm", "3x4xa40+2x8xa40", "x"]),
    "precision": st.sampled_from(["fp32", "bf16", "amp-bf16", "fp8"]),
    "optimizer": st.sampled_from(["adamw", "adafactor", "none"]),
    "mode": st.sampled_from(["train", "infer"]),
    "schedule": st.sampled_from(["1f1b", "gpipe"]),
}


@hypothesis.settings(deadline=None)
@hypothesis.given(st.sampled_from(SAMPLES), st.fixed_dictionaries({}, optional=GIVEN))
def test_any_options_are_used_or_refused(sample: Path, given: dict[str, Any]) -> None:
    launch = read_launch(sample)
    try:
        job = beside(launch, given)
    except InputError:
        return
    assert {name: job.options[name] for name in given} == given
    changed = {n for n, value in given.items() if launch.options.get(n, value) != value}
    for name in changed:
        words = name.replace("_", " ")
        assert any(note.startswith(f"{words} ") for note in job.notes), name
