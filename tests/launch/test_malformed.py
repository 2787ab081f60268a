"""Whatever a file holds, it is read or refused with one sentence."""

from __future__ import annotations

import contextlib
import copy
import errno
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretell.errors import InputError
from foretell.launch import read_launch
from foretell.launch.documents import LARGEST_FILE_BYTES


def bomb(line: str) -> str:
    """Nine aliases of nine aliases of ..."""
    rows = ["a: &a {x: 1}"]
    for name, inner in zip("bcdefghi", "abcdefgh", strict=True):
        rows.append(line.format(name=name, inner=", ".join([f"*{inner}"] * 9)))
    return "\n".join(rows)


CASES: dict[str, str | bytes] = {
    "empty.sh": "",
    "blank.yaml": " \n\n",
    "binary.sh": b"\x7fELF\0\0",
    "latin.sh": "torchrun é".encode("latin-1"),
    "large.sh": b"#" * (LARGEST_FILE_BYTES + 1),
    "aliases.yaml": bomb("{name}: &{name} [{inner}]"),
    "merges.yaml": bomb("{name}: &{name}\n  <<: [{inner}]"),
    "key.yaml": bomb("{name}: &{name} [{inner}]") + "\n? *i\n: 1",
    "twice.yaml": "num_processes: 8\nnum_machines: 1\nnum_processes: 16\n",
    "twice.json": '{"zero_optimization": {"stage": 1, "stage": 2}}',
    "large.yaml": "num_processes: 8\n" + "# more\n" * 50_000,
    "cycle.yaml": "num_processes: &a [*a]",
    "deep.yaml": "a: " + "[" * 5000,
    "deep.json": '{"a": ' + "[" * 100_000,
    "open.yaml": "num_processes: [1,",
    "tabs.yaml": "num_processes:\n\t- 1",
    "control.yaml": "num_processes: \x07",
    "alias.yaml": "num_processes: *nobody",
    "date.yaml": "num_processes: 2020-99-99",
    "list.yaml": "- a: 1\n- b",
    "code.yaml": "num_processes: !!python/object/apply:os.getcwd []",
    "comma.json": '{"train_batch_size": 1,}',
    "list.json": "[1, 2]",
    "digits.json": '{"train_batch_size": ' + "9" * 5000 + "}",
    "negative.json": '{"train_batch_size": -4}',
    "text.json": '{"train_batch_size": "many"}',
    "nan.json": '{"train_batch_size": NaN}',
    "truth.json": '{"train_batch_size": true}',
    "section.json": '{"zero_optimization": 3}',
    "strategy.json": '{"fsdp_config": {"sharding_strategy": []}}',
    "stage.json": '{"zero_optimization": {"stage": 7}}',
    "quote.sh": 'torchrun t.py "open',
    "time.sh": "#!/bin/sh\n#SBATCH --time=soon\n",
    "nothing.sh": "echo hello\nls\n",
    "nothing.yaml": "name: hello\n",
    "job.yaml": "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nspec: 5\n",
    "pod.yaml": "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\n"
    "spec: {pytorchReplicaSpecs: {Master: {template: {spec: {containers: 1}}}}}\n",
}


@pytest.mark.parametrize("name", CASES)
def test_refused_with_one_sentence_that_names_the_file(tmp_path: Path, name: str) -> None:
    content = CASES[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        read_launch(path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


SAMPLES = [
    path
    for path in sorted((Path(__file__).parent / "samples").iterdir())
    if path.suffix in (".yaml", ".json")
]


def places(node: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in nested settings."""
    inner = node.items() if isinstance(node, dict) else enumerate(node)
    for key, value in inner:
        yield (*at, key)
        if isinstance(value, dict | list):
            yield from places(value, (*at, key))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.name)
def test_a_sample_with_any_one_value_spoilt_is_read_or_refused(
    tmp_path: Path, sample: Path
) -> None:
    documents = list(yaml.safe_load_all(sample.read_text()))
    for *outer, last in places(documents):
        for wrong in (None, -1, "x", [{}], {"a": 1}) if outer else ():
            changed = copy.deepcopy(documents)
            part = changed
            for key in outer:
                part = part[key]
            part[last] = wrong
            path = tmp_path / "spoilt.yaml"
            path.write_text(yaml.safe_dump_all(changed))
            with contextlib.suppress(InputError):
                assert read_launch(path).kinds


def test_a_file_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    path = tmp_path / "run.sh"
    path.write_text("torchrun t.py\n")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(InputError, match=r"run\.sh' cannot be read: Permission denied"):
        read_launch(path)


def test_notes_stay_few_and_short(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    many = {f"zero_{number}": "x" * 1000 for number in range(900)}
    path.write_text(json.dumps({"train_batch_size": 8, **many}))
    notes = read_launch(path).notes
    assert len(notes) <= 101
    assert max(map(len, notes)) < 200


def test_no_file_starts_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise AssertionError(f"started {args}")

    for module, name in (
        (os, "system"),
        (os, "popen"),
        (os, "posix_spawn"),
        (os, "execv"),
        (os, "fork"),
        (subprocess, "Popen"),
    ):
        monkeypatch.setattr(module, name, refuse)
    (tmp_path / "inner.sh").write_text("torchrun --nproc_per_node `id` t.py --max_steps $(id)\n")
    (tmp_path / "outer.sh").write_text("#SBATCH -N 1\n$(id); eval id\nsrun bash inner.sh `id`\n")
    paths = [*(Path(__file__).parent / "samples").iterdir(), tmp_path / "outer.sh"]
    for path in paths:
        assert read_launch(path).kinds


def test_a_file_of_a_hundred_megabytes_is_not_even_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.sh"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    with pytest.raises(InputError, match="larger than"):
        read_launch(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, problem in (
        (tmp_path, "not a file"),
        (tmp_path / "pipe", "not a file"),
        (tmp_path / "absent.sh", "does not exist"),
    ):
        with pytest.raises(InputError, match=problem):
            read_launch(path)


def test_a_malformed_file_that_is_referred_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text("{")
    (tmp_path / "run.sh").write_text("deepspeed t.py --deepspeed ds.json")
    with pytest.raises(InputError, match=r"ds\.json is not valid JSON"):
        read_launch(tmp_path / "run.sh")


fragments = st.sampled_from(
    "torchrun|deepspeed|accelerate launch|srun|python|train.py|--nproc_per_node|--nnodes|8|2|$N|"
    "${N:-4}|$((N*2))|N=8|A=(|)|'|\"|\\|#SBATCH --nodes=2|#SBATCH --gres=gpu:a100:8|--bf16|--fp16|"
    "--micro-batch-size|--num-layers|--hidden-size|--deepspeed|x.json|--fsdp|full_shard|bash -c|"
    "num_processes:|mixed_precision: bf16|fsdp_config:|  fsdp_sharding_strategy: 1|apiVersion: v1|"
    "kind: PyTorchJob|spec:|{|}|[|:|auto|-1|1e400|&a|*a|if|then|fi|<<EOF|EOF".split("|")
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.tuples(fragments, st.sampled_from([" ", "\n"])), max_size=25))
def test_any_mix_of_pieces_is_read_or_refused(
    tmp_path: Path, pieces: list[tuple[str, str]]
) -> None:
    path = tmp_path / "mix.sh"
    path.write_text("".join(piece + gap for piece, gap in pieces))
    with contextlib.suppress(InputError):
        assert read_launch(path).kinds


KEYS = (
    "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps fp16 bf16 enabled "
    "zero_optimization stage offload_optimizer device reduce_bucket_size optimizer type params "
    "activation_checkpointing num_machines num_processes mixed_precision distributed_type "
    "fsdp_config fsdp_sharding_strategy deepspeed_config zero_stage deepspeed_config_file "
    "megatron_lm_config megatron_lm_tp_degree parallelism_config tp_size dynamo_config fsdp optim "
    "deepspeed max_steps num_train_epochs model_name_or_path torch_dtype training gpu_ids "
    "apiVersion kind spec pytorchReplicaSpecs Master Worker replicas template containers command "
    "args env name value resources limits nvidia.com/gpu nodeSelector nvidia.com/gpu.product "
    "affinity nodeAffinity requiredDuringSchedulingIgnoredDuringExecution nodeSelectorTerms "
    "matchExpressions key operator values runPolicy activeDeadlineSeconds elasticPolicy"
).split()
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 9),
    st.floats(allow_nan=False),
    st.sampled_from(["auto", "bf16", "PyTorchJob", "FSDP", "DEEPSPEED", "cpu", "8", "torchrun"]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.recursive(
        VALUES,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
        ),
        max_leaves=25,
    )
)
def test_any_shape_of_settings_is_read_or_refused(tmp_path: Path, content: object) -> None:
    path = tmp_path / "mix.json"
    path.write_text(json.dumps(content))
    with contextlib.suppress(InputError):
        assert read_launch(path).kinds
