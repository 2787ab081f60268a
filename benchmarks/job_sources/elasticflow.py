"""ElasticFlow (ASPLOS 2023): iterations per second of fixed global batches on 1 to 64 GPUs.

A100 (Azure ND96asr v4: eight A100-40GB and eight HDR ports a node), read from the authors' training
scripts: PyTorch DistributedDataParallel, fp32 storage with the TF32 products that PyTorch before
1.12 uses; ImageNet models at 224 pixels (Inception 299) with SGD, BERT-base on CoLA and GPT-2 on
reviews (60 tokens) with AdamW, a speech model of residual convolutions and GRUs on LibriSpeech.
Assumed: texts of CoLA are padded to 128 tokens (a sample more costs 2.1 times what one of GPT-2
does), speech to 16 s.

T4: the README says these were made from Pollux's measurements, so they are read as Pollux's jobs
are, with gradients accumulated where a GPU's share exceeds the largest batch measured there.

Cells that are empty, 0 or nan are left out, and so are those where a GPU's share of the batch is
not whole.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

from benchmarks.job_sources import pollux
from benchmarks.jobs import Job
from benchmarks.sources import require

_OWN = "benchmarks/job_sources/models.py"
_A100: dict[str, dict[str, object]] = {
    "bert": {"model": f"{_OWN}:bert_base_cola", "optimizer": "adamw"},
    "deepspeech2": {"model": f"{_OWN}:speech_resnet", "optimizer": "adamw"},
    "gpt2": {"model": f"{_OWN}:gpt2_reviews", "optimizer": "adamw"},
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


def jobs() -> list[Job]:
    """Every cell that holds a throughput."""
    base = require("elasticflow")
    found = []
    for kind, names in (("A100", _A100), ("T4", _LARGEST_T4)):
        for name in names:
            for size, devices, rate in _cells(base / f"throughputs_{kind}" / f"{name}.csv"):
                if size % devices == 0:
                    make = _a100 if kind == "A100" else _t4
                    found.append(make(name, size, devices, 1 / rate))
    return found


def _cells(path: Path) -> list[tuple[int, int, float]]:
    """(global batch, GPUs, iterations per second)."""
    found = []
    with path.open(newline="") as stream:
        for record in csv.DictReader(stream):
            size = int(record.pop("global_batch_size"))
            for devices, text in record.items():
                rate = float(text or "nan")
                if math.isfinite(rate) and rate > 0:
                    found.append((size, int(devices), rate))
    return found


def _a100(name: str, size: int, devices: int, seconds: float) -> Job:
    nodes = max(1, devices // 8)
    cluster = f"{nodes}x8xa100-40gb:8xib-hdr" if nodes > 1 else f"{devices}xa100-40gb"
    options = {
        "cluster": cluster,
        "batch": size // devices,
        "precision": "tf32",
        "torch_version": "1.10",
        **_A100[name],
    }
    return _job("a100-40gb", name, size, devices, options, seconds)


def _t4(name: str, size: int, devices: int, seconds: float) -> Job:
    share, most = size // devices, _LARGEST_T4[name]
    nodes = max(1, devices // 4)
    options = {
        "cluster": pollux.cluster_text(nodes, devices // nodes),
        "batch": max(b for b in range(1, most + 1) if share % b == 0),
        "global_batch": size,
        "torch_version": "1.6",
        **pollux.OPTIONS[name],
    }
    return _job("t4", name, size, devices, options, seconds)


def _job(
    device: str, name: str, size: int, devices: int, options: dict[str, object], seconds: float
) -> Job:
    return Job(
        source="elasticflow",
        device=device,
        configuration=f"{name} {devices}",
        options=options,
        step_time_s=seconds,
        labels={"model": name, "global_batch": size, "devices": devices},
    )
