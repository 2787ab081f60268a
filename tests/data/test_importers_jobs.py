"""Importers of measured jobs: what they take of upstream's files, and what they say of the rest."""

from __future__ import annotations

import gzip
import importlib
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.jobs import Job
from benchmarks.sources import folder_of
from foretell.api import Case, cluster_of
from foretell.data import Record
from foretell.data.importers import Tally, records_of, source
from foretell.data.importers.rows import MERGED, NO_ROWS
from foretell.errors import InputError
from tests.data.job_samples import COUNTS, ITERATIONS, RUNS, SAMPLES, golden


def _write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def _sample(name: str, folder: Path) -> list[Record]:
    return list(records_of(name, _write(folder, SAMPLES[name][0])))


def _reasons(name: str, folder: Path, files: dict[str, str]) -> tuple[int, dict[str, int]]:
    tally = Tally()
    list(records_of(name, _write(folder, files), tally))
    return tally.kept, dict(tally.reasons())


def _data(name: str) -> Path:
    folder = folder_of(name)
    if folder is None:
        pytest.skip(f"measurements of {name} are not here: fetch them and set FORETELL_DATA")
    return folder


@pytest.mark.parametrize("name", COUNTS)
def test_every_row_at_hand_is_kept_or_rejected_for_a_reason(name: str) -> None:
    read, kept, reasons = COUNTS[name]
    tally = Tally()
    records = list(records_of(name, _data(name), tally))
    assert (tally.read, tally.kept, dict(tally.reasons())) == (read, kept, reasons)
    origins = [row.origin for row in (*records, *tally.rejects)]
    assert len(set(origins)) == len(origins)


@pytest.mark.parametrize("name", COUNTS)
def test_reading_twice_gives_the_same_rows(name: str) -> None:
    first = [record.id for record in records_of(name, _data(name))]
    assert first == [record.id for record in records_of(name, _data(name))]
    assert len(set(first)) == len(first)


@pytest.mark.parametrize("name", SAMPLES)
def test_files_laid_out_as_upstream_does_are_read(name: str, tmp_path: Path) -> None:
    records = _sample(name, tmp_path)
    assert len(records) == SAMPLES[name][1]
    assert {record.source for record in records} == {name} == {source(name).name}
    for record in records:
        path, _, line = record.origin.partition(":")
        assert (tmp_path / path).is_file()
        assert line


@pytest.mark.parametrize("name", SAMPLES)
def test_gzipped_files_give_the_same_measurements(name: str, tmp_path: Path) -> None:
    plain = _sample(name, tmp_path / "plain")
    for path, text in SAMPLES[name][0].items():
        packed = tmp_path / "packed" / f"{path}.gz"
        packed.parent.mkdir(parents=True, exist_ok=True)
        packed.write_bytes(gzip.compress(text.encode()))
    unpacked = list(records_of(name, tmp_path / "packed"))
    assert [(r.group, r.case_options(), r.time_s) for r in unpacked] == [
        (r.group, r.case_options(), r.time_s) for r in plain
    ]


@pytest.mark.parametrize("name", SAMPLES)
def test_steps_are_cases_of_a_forecast(name: str, tmp_path: Path) -> None:
    for record in _sample(name, tmp_path):
        if record.kind == "step":
            case = Case.from_mapping(record.case_options())
            where = cluster_of(case.cluster)
            case.recipe(where.total_devices)
            assert {group.device.id for group in where.groups} == {record.device}


@pytest.mark.parametrize("name", SAMPLES)
def test_models_of_our_own_exist(name: str, tmp_path: Path) -> None:
    for record in _sample(name, tmp_path):
        place, _, function = record.model.rpartition(":")
        if place.startswith("foretell."):
            assert callable(getattr(importlib.import_module(place), function))


@pytest.mark.parametrize("name", SAMPLES)
def test_an_empty_file_is_one_reject_that_names_it(name: str, tmp_path: Path) -> None:
    files = {path: "{}" if path.endswith("json") else "" for path in SAMPLES[name][0]}
    tally = Tally()
    assert list(records_of(name, _write(tmp_path, files), tally)) == []
    assert set(tally.reasons()) == {NO_ROWS}
    named = [reject.origin for reject in tally.rejects]
    assert set(named) <= set(files)
    assert len(set(named)) == len(named)


@pytest.mark.parametrize("name", SAMPLES)
def test_a_file_cut_short_is_one_reject_that_names_it(name: str, tmp_path: Path) -> None:
    file, text = next(iter(SAMPLES[name][0].items()))
    whole = gzip.compress(text.encode() * 200)
    path = tmp_path / f"{file}.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(whole[: len(whole) // 2])
    tally = Tally()
    list(records_of(name, tmp_path, tally))
    cut = [r.origin for r in tally.rejects if r.reason == "file cannot be read further (EOFError)"]
    assert cut == [f"{file}.gz"]


@pytest.mark.parametrize(
    ("content", "reason"), [("{", "file is not JSON"), ("[]", "file holds no JSON object")]
)
def test_runs_whose_arguments_cannot_be_read_are_not_guessed(
    content: str, reason: str, tmp_path: Path
) -> None:
    files = {**SAMPLES["megatron_golden"][0], "model_args_by_test_case.json": content}
    kept, reasons = _reasons("megatron_golden", tmp_path, files)
    assert (kept, reasons) == (0, {reason: 1, "the file of its arguments cannot be read": 1})


def test_a_folder_without_files_of_a_source_is_refused(tmp_path: Path) -> None:
    for name in SAMPLES:
        with pytest.raises(InputError, match="holds no rows of source"):
            list(records_of(name, tmp_path))


@pytest.mark.parametrize("name", [n for n in SAMPLES if n != "elasticflow"])
def test_rows_that_lack_a_cell_are_rejected(name: str, tmp_path: Path) -> None:
    files = {
        path: text if path.endswith("json") else _without_last_cell(text)
        for path, text in SAMPLES[name][0].items()
    }
    kept, reasons = _reasons(name, tmp_path, files)
    assert kept == 0
    assert "fewer cells than columns" in reasons


def _without_last_cell(text: str) -> str:
    """Every line but headings and headers with one cell less."""
    lines = text.splitlines()
    header = 0
    for number, line in enumerate(lines):
        if line.startswith("#") or not line:
            header = number + 1
        elif line.startswith("|"):
            if number > header + 1:
                lines[number] = line.rstrip("| ").rpartition("|")[0] + "|"
        elif number:
            lines[number] = line.rpartition(",")[0]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("vtrain", "iteration time (ms)"),
        ("pollux", "step_time"),
        ("sia", "step_time"),
        ("rubick", "iter_time"),
        ("mlperf", "throughput_median"),
        ("lucie", "samples_per_seconds"),
        ("llm_foundry", "MFU"),
        ("megatron_bridge", "Tokens / sec / GPU"),
        ("nemo", "GBS"),
        ("elasticflow", "global_batch_size"),
        ("megatron_golden", "mem_max_allocated_bytes"),
        ("megatron_golden", "date"),
    ],
)
def test_a_missing_column_is_named(name: str, column: str, tmp_path: Path) -> None:
    files = {p: t.replace(column, "something else") for p, t in SAMPLES[name][0].items()}
    kept, reasons = _reasons(name, tmp_path, files)
    assert kept <= SAMPLES[name][1] / 2
    assert f"column {column!r} is missing" in reasons


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("vtrain", "200.5", "fast", "iteration time (ms) is not a number"),
        ("vtrain", "200.5", "", "iteration time (ms) is empty"),
        ("vtrain", "200.5", "-1", "iteration time (ms) is not above zero"),
        ("vtrain", "200.5", "200.5,1", "more cells than columns"),
        ("vtrain", "64,32,1", "12,32,1", "GPUs that do not fill their nodes"),
        ("vtrain", "8,32,4", "0,32,4", "# GPUs is not at least 1"),
        ("vtrain", "8,32,4", "8,32,4.5", "micro batch is not a whole number"),
        ("vtrain", "float,50000", "half,50000", "numbers that are not fp32"),
        ("llm_foundry", "h100_80gb", "gaudi2", "model, device or precision not known"),
        ("llm_foundry", "100000", "inf", "Throughput (T/s) is not a number"),
        ("megatron_bridge", "FP8-CS", "NVFP4", "NVFP4"),
        ("megatron_bridge", "4,312", "4,312 (4,000)", "two values in one cell, or a variant in "),
        ("megatron_bridge", "LLAMA3_8B", "Kimi", "a model whose layers transformer: cannot state"),
        ("megatron_bridge", "System: DGX-H100", "System: X", "system not known"),
        ("nemo", "### Pretraining", "### Finetuning", "fine-tuning"),
        ("nemo", "8646", "many", "Tokens / sec / GPU is not a number"),
        ("pollux", "431,", "4x1,", "placement is not one digit above zero per node"),
        ("pollux", "6,7,8", "8,7,8", "fewer GPUs than nodes"),
        ("rubick", "221,", "fsdp,", "an execution plan that is not known"),
        ("rubick", "zero-dp,44", "zero-dp,8888", "devices, nodes and batch must be at least 1"),
        ("elasticflow", "2.5", "", "no throughput: empty, 0 or nan"),
        ("elasticflow", "2.5", "nan", "no throughput: empty, 0 or nan"),
        ("elasticflow", "2.5", "quick", "iterations per second is not a number"),
        ("elasticflow", "256,1.5", "255,1.5", "a GPU's share of the batch is not whole"),
        ("mlperf", "success", "aborted", "a status other than success"),
        ("mlperf", "A100-SXM-80GB", "TPU", "an accelerator that is not listed"),
        ("mlperf", "8192", "8191", "an accelerator's share of the batch is not whole"),
        ("mlperf", "resnet", "gnmt", "a benchmark whose unit of throughput or parallel settings "),
        ("lucie", "32000,16.0", "32000,0.1", "a configuration whose micro batch is not listed"),
        ("lucie", "512,2,69", "100,2,69", "the micro batch does not divide the global batch"),
        ("lucie", "32k", "16k", "a vocabulary that is not known"),
        ("megatron_golden", ",gpt,", ",t5,", "neither GPT, nor a mixture of experts, nor BERT"),
        ("megatron_golden", "12.0,512", "many,512", "num-layers is not a number"),
        ("megatron_golden", "12.0,512", ",512", "configuration not stated"),
        ("megatron_golden", "dgx_h100", "", "platform not stated"),
        ("megatron_golden", "--swiglu", "--export-kd-cfg", "distillation"),
    ],
)
def test_a_row_that_cannot_be_taken_is_rejected_and_the_others_stay(
    name: str, old: str, new: str, reason: str, tmp_path: Path
) -> None:
    files, kept_before = SAMPLES[name]
    changed = {path: text.replace(old, new, 1) for path, text in files.items()}
    assert changed != files
    kept, reasons = _reasons(name, tmp_path, changed)
    assert sum(reasons.values()) >= 1
    assert kept + sum(reasons.values()) == kept_before
    assert all(reason in found for found in reasons), reasons


def test_an_all_reduce_keeps_both_of_its_times(tmp_path: Path) -> None:
    found = {r.device: r for r in _sample("vtrain", tmp_path) if r.kind == "collective"}
    record = found["a100-80gb"]
    assert (record.model, record.devices) == ("collective:all_reduce", 4)
    assert record.options == {"nbytes": 1048576, "dtype": "float32"}
    assert (record.time_s, record.metrics) == (5e-5, {"in_place_s": 6e-5})


def test_uneven_placements_keep_the_number_of_gpus_that_ran(tmp_path: Path) -> None:
    uneven, counted = _sample("pollux", tmp_path)
    assert (uneven.devices, uneven.nodes, uneven.cluster) == (8, 3, "3x4xt4:eth-10g")
    assert (counted.devices, counted.cluster) == (7, "6x2xt4:eth-10g")
    assert uneven.group == "yolov3 431"


def test_rows_of_sia_that_are_not_its_own_measurements_are_rejected(tmp_path: Path) -> None:
    header = "local_bsz,step_time,sync_time,placement\n"
    counts = "local_bsz,step_time,sync_time,num_nodes,num_replicas\n"
    kept, reasons = _reasons(
        "sia",
        tmp_path,
        {
            "traces/bert/placements-aws.csv": header + "4,0.4,0.01,1\n",
            "traces/gpt_pmp/placements-rtx.csv": header + "4,0.4,0.01,1\n",
            "traces/bert/placements-rtx.csv": header + "4,0.4,0.01,1\n",
            "traces/bert/scalability-rtx.csv": counts + "4,0.4,0.01,1,1\n",
        },
    )
    assert kept == 1
    assert reasons == {
        "measured by Pollux: source pollux has it": 1,
        "times are exactly linear in the batch: a model's, not measured": 1,
        "the same figures in another table": 1,
    }


def test_the_newest_figure_of_a_configuration_counts(tmp_path: Path) -> None:
    columns = "date,section,Model,#-GPUs,GBS,MBS,Sequence Length,TP,PP,CP,VP,Tokens / sec / GPU\n"
    row = "{},A > Pretraining,GPT3-5B,64,2048,4,2048,1,1,1,1,{}\n"
    table = columns + row.format("2024-08-26", 20000) + row.format("2024-08-12", 10000)
    tally = Tally()
    folder = _write(tmp_path, {"performance_summary_history.csv": table})
    (record,) = records_of("nemo", folder, tally)
    assert record.time_s == 2048 * 2048 / (20000 * 64)
    assert record.origin.endswith(":2")
    assert [reject.origin for reject in tally.rejects] == ["performance_summary_history.csv:3"]


def test_runs_of_one_configuration_are_one_record_of_their_median(tmp_path: Path) -> None:
    rows = [f"success,resnet,,8192,4,8,NVIDIA A100-SXM-80GB,{n}\n" for n in (1000, 4000, 2000)]
    tally = Tally()
    folder = _write(tmp_path, {"runs.csv": RUNS + "".join(rows)})
    (record,) = records_of("mlperf", folder, tally)
    assert (record.time_s, record.samples, record.origin) == (8192 / 2000, 3, "runs.csv:2")
    assert tally.reasons() == Counter({MERGED: 2})


def test_slow_iterations_do_not_move_the_median_of_a_configuration(tmp_path: Path) -> None:
    rows = "".join(
        f"{512 * n},{512 * n * 2048},{ms},{512e3 / ms},8,1,1,z1\n"
        for n, ms in enumerate((40000, 32000, 32000, 200000, 32000), start=1)
    )
    (record,) = records_of("lucie", _write(tmp_path, {"all_iters_w_dp.csv": ITERATIONS + rows}))
    assert (record.time_s, record.samples, record.batch) == (32.0, 5, 2)
    assert record.options["zero"] == 1


def test_commits_that_share_a_configuration_share_a_record_with_memory(tmp_path: Path) -> None:
    time, memory = "iter_time_median_s", "mem_max_allocated_bytes"
    table = golden(
        {time: "0.5", memory: "5e9"},
        {time: "0.7", memory: "6e9"},
        {time: "0.6", memory: "7e9"},
        {time: ""},
        {"num-layers": "24.0"},
    )
    tally = Tally()
    folder = _write(tmp_path, {"golden_values_history.csv": table})
    first, second = records_of("megatron_golden", folder, tally)
    assert (first.time_s, first.allocated_bytes, first.samples) == (0.6, 6e9, 3)
    assert first.device == second.device == "h100-sxm"
    assert "layers=24" in second.model
    assert tally.reasons() == Counter({MERGED: 2, "no time or no memory": 1})


def test_wide_rows_cut_short_are_rejected_cell_by_cell(tmp_path: Path) -> None:
    files = {"throughputs_A100/vgg16.csv": "global_batch_size,1,2,4\n256,1.5,2.5\n"}
    kept, reasons = _reasons("elasticflow", tmp_path, files)
    assert (kept, reasons) == (0, {"fewer cells than columns": 2})


def test_only_sources_with_a_clear_licence_may_be_fitted() -> None:
    assert {name for name in COUNTS if source(name).use == "check"} == {"lucie", "sia"}


def test_jobs_of_different_precision_do_not_share_a_curve(tmp_path: Path) -> None:
    bf16, fp8 = (Job(r) for r in reversed(_sample("megatron_bridge", tmp_path)))
    assert {bf16.curve, fp8.curve} == {"h100-sxm bf16", "gb200 fp8"}
    (benchmark,) = (Job(r) for r in _sample("mlperf", tmp_path))
    assert benchmark.curve == "a100-80gb resnet"
    (plain, _) = (Job(r) for r in _sample("rubick", tmp_path))
    assert plain.curve == "a800-80gb"


def test_a_model_of_our_own_is_captured_by_its_reference() -> None:
    from foretell.graph.sources import graph_of

    graph = graph_of("foretell.data.importers.models:ncf", batch=4)
    assert graph.is_training
    assert len(graph.parameters) == 12
