"""Lambda's runs of NVIDIA's examples: throughput, and memory and load as nvidia-smi saw them.

Reads the table runs_extracted.csv, one line per log file of upstream's results. A throughput
becomes a step time where it counts samples and the batch is told; for tokens, spectra and audio it
stays in the metrics. Memory is the fullest moment of the fullest device; a monitor that saw a few
MiB watched an idle one. The models are those of the examples, so most keep upstream's name: heads
and inputs differ from the references.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from foretell.data.importers.hardware import known_cluster, single_precision
from foretell.data.importers.rows import BadRowError, Row, csv_table, each
from foretell.data.importers.source import Rows, Source
from foretell.data.record import Record

# Tried in this order: names without a size of memory are of the time when there was only one.
_DEVICE = (
    (r"H100_80GB_SXM5", "h100-sxm"),
    (r"H100_80GB_PCIe", "h100-pcie"),
    (r"B200_192GB", "b200"),
    (r"A100_80GB_PCIe", "a100-80gb-pcie"),
    (r"A100_80GB_SXM4", "a100-80gb"),
    (r"A100(_40GB)?_PCIe", "a100-40gb-pcie"),
    (r"A100(_40GB)?_SXM4|A100_p4", "a100-40gb"),
    (r"V100_?16GB?|p3\.", "v100-16gb"),
    (r"1080Ti", "gtx1080ti"),
    (r"2080Ti", "rtx2080ti"),
    (r"QuadroRTX6000", "quadro-rtx6000"),
    (r"QuadroRTX8000", "quadro-rtx8000"),
    (r"TitanRTX", "titan-rtx"),
    (r"4090", "rtx4090"),
    (r"3080(?!Max)", "rtx3080"),
    (r"A4000", "rtx-a4000"),
    (r"A5000", "rtx-a5000"),
    (r"A40(?!00)", "a40"),
    (r"A10(?!0)", "a10"),
)
_TASK = re.compile(r"PyTorch_(?P<model>.+)_(?P<precision>AMP|FP16|FP32)")
_PARA = re.compile(r"GLOBAL_BATCH (?P<batch>\d+) GPU (?P<gpus>\d+)")
_CLOUD = re.compile(r"p3\.(8|16)xlarge")
_MODEL = {"resnet50": "timm:resnet50"}
_MODEL_OPTIONS: dict[str, dict[str, Any]] = {
    "resnet50": {"image_size": 224, "optimizer": "momentum"}
}
_COUNTS_SAMPLES = ("resnet50", "SSD", "bert_base_squad", "bert_large_squad")
# Their logs tell the batch of all devices, the others that of one.
_LOG_ALL = ("ncf", "transformerxlbase", "transformerxllarge")
_PRECISION = {"AMP": "amp-fp16", "FP16": "fp16"}
_LEAST_MIB = 100.0


def read(folder: Path) -> Rows:
    """All runs."""
    yield from each(csv_table(folder, *SOURCE.files), _record)


def _record(row: Row) -> Record:
    system, match = row.filled("system"), _TASK.fullmatch(row.filled("task"))
    if match is None:
        raise BadRowError("the task is not known")
    name = match["model"]
    own = re.sub(r"^\d+x", "", system)
    device = next((known for seen, known in _DEVICE if re.search(seen, system)), own)
    gpus, batch = _size(row, system, name)
    memory_bytes = _memory_bytes(row)
    time_s = _time_s(row, name, gpus, batch, memory_bytes is not None)
    label = match["precision"]
    return Record(
        model=_MODEL.get(name, name),
        # Bridges between cards are named, the links they stand for are not in the catalogue.
        cluster="" if "NVlink" in system or _CLOUD.search(system) else known_cluster(device, gpus),
        device=device,
        devices=gpus,
        batch=batch,
        options={
            "mode": "train",
            "precision": _PRECISION.get(label) or single_precision(device),
            **_MODEL_OPTIONS.get(name, {}),
        },
        group=name,
        time_s=time_s,
        resident_bytes=memory_bytes,
        metrics=row.optional(throughput_per_s="throughput", utilisation_percent="util_mean_active"),
        source=SOURCE.name,
        origin=row.origin,
        environment={"system": system, "precision": label},
        taken_at=_taken_at(row),
    )


def _size(row: Row, system: str, name: str) -> tuple[int, int | None]:
    """(devices, batch of each or None)."""
    para = _PARA.fullmatch(row.cells.get("para", "").strip())
    if para:
        gpus = int(para["gpus"])
        return gpus, _share(int(para["batch"]), gpus)
    cloud = _CLOUD.search(system)
    if cloud:  # whether the log's batch is that of one device or of all is not told
        return int(cloud[1]) // 2, None
    gpus = row.count("num_gpu_from_name")
    logged = int(row.optional(batch="batch_size_in_log").get("batch", 0.0))
    return gpus, _share(logged, gpus) if name in _LOG_ALL else logged or None


def _share(batch: int, gpus: int) -> int | None:
    return batch // gpus if batch and batch % gpus == 0 else None


def _memory_bytes(row: Row) -> float | None:
    mib = row.optional(memory="mem_max_MiB").get("memory", 0.0)
    return mib * 2**20 if mib >= _LEAST_MIB else None


def _time_s(row: Row, name: str, gpus: int, batch: int | None, has_memory: bool) -> float | None:
    """Of one step; None where only memory can be had from the row."""
    try:
        throughput = row.positive("throughput")
    except BadRowError:
        if has_memory:
            return None
        raise BadRowError("neither throughput nor memory of a busy device") from None
    if name in _COUNTS_SAMPLES and batch:
        return gpus * batch / throughput
    if has_memory:
        return None
    if name in _COUNTS_SAMPLES or name == "maskrcnn":
        raise BadRowError("the batch is not told, and there is no memory of a busy device")
    raise BadRowError(f"throughput of {name} does not count samples, and there is no memory")


def _taken_at(row: Row) -> str:
    """'03-03-2020_18-45-27' -> ISO 8601; the clock's zone is not told, so the day must do."""
    match = re.match(r"(\d\d)-(\d\d)-(\d{4})_", row.cells.get("timestamp", ""))
    return f"{match[3]}-{match[2]}-{match[1]}" if match else ""


SOURCE = Source(
    name="lambda_dl_benchmark",
    repository="https://github.com/lambdal/deeplearning-benchmark",
    commit="aa5addb6a53675a649a80036dad548f1c27cbcc4",
    licence="none stated",
    use="check",
    files=("runs_extracted.csv",),
    read=read,
)
