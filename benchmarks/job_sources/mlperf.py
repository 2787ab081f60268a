"""MLPerf Training: throughput that runs report themselves, ResNet-50 and BERT-large on NVIDIA GPUs.

Each configuration is the median over submitters and runs. Throughput is images or sequences per
second for these two; other benchmarks report units that vary, or parallel settings are not in the
logs (GPT-3, Llama). Submissions are fused by hand: compile=True is the nearest option. BERT runs
without padding, on average about half of 512 tokens, so the sequence is stated as 256.
"""

from __future__ import annotations

import csv
import gzip
import re
from collections import defaultdict

import numpy as np

from benchmarks.jobs import Job
from benchmarks.sources import require

_DEVICES = (  # pattern of the accelerator's name -> device; the first that matches
    (r"H100.*PCIe", "h100-pcie"),
    (r"H100-SXM5?-80GB", "h100-sxm"),
    (r"H200", "h200"),
    (r"A100.*PCIe?.*80", "a100-80gb-pcie"),
    (r"A100.*PCIe?.*40", "a100-40gb-pcie"),
    (r"A100.*SXM.*40", "a100-40gb"),
    (r"A100.*SXM.*80", "a100-80gb"),
    (r"A30\b", "a30"),
    (r"L40S", "l40s"),
)
# 527 nodes of 8 A100 are said to do 16 images each in 1.6 ms, four fifths of the peak FLOP/s.
_WRONG_NODES = 527
_MODELS = {
    "resnet": {
        "model": "timm:resnet50",
        "precision": "amp-fp16",
        "channels_last": True,
        "compile": True,
        "optimizer": "momentum",
    },
    "bert": {
        "model": "transformer:layers=24,hidden=1024,heads=16,seq=256,vocab=30592,encoder,tied",
        "precision": "fp16",
        "master_weights": True,
        "compile": True,
        "optimizer": "adam",
    },
}


def jobs() -> list[Job]:
    """One job per benchmark, device, number of devices and global batch."""
    found: dict[tuple[str, str, int, int, int], list[float]] = defaultdict(list)
    path = require("mlperf_training") / "runs.csv.gz"
    with gzip.open(path, "rt", newline="") as stream:
        for record in csv.DictReader(stream):
            key = _key(record)
            if key is not None:
                found[key].append(float(record["throughput_median"]))
    return [_job(key, float(np.median(values))) for key, values in sorted(found.items())]


def _key(record: dict[str, str]) -> tuple[str, str, int, int, int] | None:
    benchmark = record["submission_benchmark"] or record["benchmark_dir"]
    counts = [
        record[k] for k in ("sys_number_of_nodes", "sys_accelerators_per_node", "global_batch_size")
    ]
    usable = benchmark in _MODELS and record["status"] == "success" and all(counts)
    device = _device(record["sys_accelerator_model_name"])
    if not usable or not record["throughput_median"] or device is None:
        return None
    nodes, per_node, batch = (int(float(c)) for c in counts)
    if per_node < 1 or per_node > 16 or batch % (nodes * per_node):
        return None
    if nodes == _WRONG_NODES:
        return None
    return benchmark, device, nodes, per_node, batch


def _device(name: str) -> str | None:
    return next((device for pattern, device in _DEVICES if re.search(pattern, name)), None)


def _job(key: tuple[str, str, int, int, int], throughput_per_s: float) -> Job:
    benchmark, device, nodes, per_node, batch = key
    return Job(
        source="mlperf",
        device=f"{device} {benchmark}",
        configuration=f"{benchmark} {nodes} {per_node}",
        options={
            **_MODELS[benchmark],
            "cluster": f"{nodes}x{per_node}x{device}" if nodes > 1 else f"{per_node}x{device}",
            "batch": batch // (nodes * per_node),
        },
        step_time_s=batch / throughput_per_s,
        labels={"benchmark": benchmark, "nodes": nodes, "per_node": per_node, "batch": batch},
    )
