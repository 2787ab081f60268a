"""ElasticFlow (ASPLOS 2023): iterations per second of fixed global batches on 1 to 64 GPUs.

A100 (Azure ND96asr v4: eight A100-40GB and eight HDR ports a node), read from the authors' training
scripts: PyTorch DistributedDataParallel, fp32 storage with the TF32 products that PyTorch before
1.12 uses; ImageNet models at 224 pixels (Inception 299) with SGD, BERT-base on CoLA and GPT-2 on
reviews (60 tokens) with AdamW, a speech model of residual convolutions and GRUs on LibriSpeech.
Assumed: texts of CoLA are padded to 128 tokens (a sample more costs 2.1 times what one of GPT-2
does), speech to 16 s.

T4: the README says these were made from Pollux's measurements, so they are read as Pollux's jobs
are, with gradients accumulated where a GPU's share exceeds the largest batch measured there.

Tables are wide: a row has one cell per number of GPUs, and each cell counts as a row here. Cells
that are empty, 0 or nan are left out, and so are those where a GPU's share of the batch is not
whole. Overheads of migration and job traces of the same repository are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from foretell.data.importers import pollux
from foretell.data.importers.hardware import full_nodes
from foretell.data.importers.rows import BadRowError, Row, csv_file, each
from foretell.data.importers.source import Rows, Source, find
from foretell.data.importers.steps import OWN_MODELS, step_record
from foretell.data.record import Record

_A100: dict[str, dict[str, object]] = {
    "bert": {"model": f"{OWN_MODELS}:bert_base_cola", "optimizer": "adamw"},
    "deepspeech2": {"model": f"{OWN_MODELS}:speech_resnet", "optimizer": "adamw"},
    "gpt2": {"model": f"{OWN_MODELS}:gpt2_reviews", "optimizer": "adamw"},
    "inception3": {"model": "timm:inception_v3", "optimizer": "momentum", "image_size": 299},
    "resnet50": {"model": "timm:resnet50", "optimizer": "momentum", "image_size": 224},
    "resnet50_cifar10": {"model": "timm:resnet50", "optimizer": "momentum", "image_size": 32},
    "vgg16": {"model": "timm:vgg16", "optimizer": "momentum", "image_size": 224},
}
_LARGEST_T4 = {
    "bert": 12,
    "cifar10": 1024,
    "deepspeech2": 80,
    "imagenet": 200,
    "ncf": 32768,
    "yolov3": 16,
}
Options = Callable[[str, int, int], dict[str, Any]]
"""Of an application, a global batch and a number of GPUs."""
_BATCH, _DEVICES, _RATE = "global_batch_size", "number of GPUs", "iterations per second"


def read(folder: Path) -> Rows:
    """Every cell of the tables of A100 and T4."""
    kinds: dict[str, Options] = {"A100": _a100, "T4": _t4}
    for kind, options in kinds.items():
        for path in find(folder, f"throughputs_{kind}/*.csv"):
            name = path.name.partition(".")[0]
            cells = (cell for row in csv_file(folder, path) for cell in _cells(row))
            yield from each(cells, _step, name, options)


def _cells(row: Row) -> Iterator[Row]:
    """A wide row as one row per number of GPUs."""
    if not row.cells:  # the file as a whole is flawed
        yield row
    for devices, rate in row.cells.items():
        if devices != _BATCH:
            size = {_BATCH: row.cells[_BATCH]} if _BATCH in row.cells else {}
            cells = {**size, _DEVICES: devices, _RATE: rate}
            yield Row(f"{row.origin} {devices} GPUs", cells, row.flaw)


def _step(cell: Row, name: str, options: Options) -> Record:
    size, devices = cell.count(_BATCH), cell.count(_DEVICES)
    rate = cell.number(_RATE) if cell.text(_RATE) not in ("", "nan") else 0.0
    if rate <= 0:
        raise BadRowError("no throughput: empty, 0 or nan")
    if size % devices:
        raise BadRowError("a GPU's share of the batch is not whole")
    return step_record(
        options(name, size, devices),
        devices=devices,
        group=f"{name} {devices}",
        time_s=1 / rate,
        environment={"application": name},
        source=SOURCE.name,
        origin=cell.origin,
    )


def _a100(name: str, size: int, devices: int) -> dict[str, Any]:
    if name not in _A100:
        raise BadRowError("an application that is not described")
    return {
        "cluster": full_nodes("a100-40gb", devices, 8, "8xib-hdr"),
        "batch": size // devices,
        "precision": "tf32",
        "torch_version": "1.10",
        **_A100[name],
    }


def _t4(name: str, size: int, devices: int) -> dict[str, Any]:
    if name not in _LARGEST_T4:
        raise BadRowError("an application that is not described")
    share = size // devices
    nodes = max(1, devices // 4)
    return {
        "cluster": pollux.t4_cluster(nodes, devices // nodes),
        "batch": max(b for b in range(1, _LARGEST_T4[name] + 1) if share % b == 0),
        "global_batch": size,
        "torch_version": "1.6",
        **pollux.OPTIONS[name],
    }


SOURCE = Source(
    name="elasticflow",
    repository="https://github.com/pkusys/ElasticFlow",
    commit="04a0109a6acdd7d89f4cb31b6a6a7a128bee6bb0",
    licence="Apache-2.0",
    use="fit",
    files=("throughputs_A100/*.csv", "throughputs_T4/*.csv"),
    read=read,
)
