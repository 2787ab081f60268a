"""Pollux (OSDI 2021): data-parallel steps of six models on up to 64 T4, four to a node.

Read from the authors' published training scripts:
- imagenet and yolov3 run under apex amp (O1), the others in fp32 without tensor cores;
- bert is BERT-base on SQuAD at 384 tokens with AdamW, ncf NeuMF on MovieLens 1M with Adam, the
  others SGD; cifar10 is the ResNet-18 with a 3x3 stem; yolov3 starts at 448 pixels;
- gradients are exchanged by DistributedDataParallel in buckets of 25 MB beside the backward pass.

Assumed: deepspeech2 hears 4 s of speech per sample (the corpus is not named). The network is
written as eth-10g: an instance has 50 Gbit/s, but AWS holds one TCP connection to 5 to 10 Gbit/s
and rings of few connections see that limit.

Placements name the GPUs used on each node ("431"). Uneven ones are read as the even spread of the
same number of nodes whose GPUs per node are the largest digit, since the fullest node is the
slowest; scalability.csv gives nodes and GPUs, rounded up alike. A placement listed in both tables
is taken from both.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator

from benchmarks.jobs import Job
from benchmarks.sources import require

_OWN = "benchmarks/job_sources/models.py"
OPTIONS: dict[str, dict[str, object]] = {
    "bert": {"model": f"{_OWN}:bert_base_squad", "optimizer": "adamw"},
    "cifar10": {"model": f"{_OWN}:cifar_resnet18", "optimizer": "momentum"},
    "deepspeech2": {"model": f"{_OWN}:deepspeech2", "optimizer": "momentum"},
    "imagenet": {
        "model": "timm:resnet50",
        "optimizer": "momentum",
        "precision": "amp-fp16",
        "image_size": 224,
    },
    "ncf": {"model": f"{_OWN}:ncf", "optimizer": "adam"},
    "yolov3": {
        "model": f"{_OWN}:yolov3",
        "optimizer": "momentum",
        "precision": "amp-fp16",
    },
}
"""How each application runs, whatever it runs on."""
_NETWORK = "eth-10g"


def jobs() -> list[Job]:
    """All rows of both tables."""
    found = []
    for name in OPTIONS:
        found += [_job(name, *row) for row in _rows(name)]
    return found


def cluster_text(nodes: int, gpus: int) -> str:
    """Nodes with the same number of GPUs each."""
    return f"{nodes}x{gpus}xt4:{_NETWORK}" if nodes > 1 else f"{gpus}xt4"


def _rows(name: str) -> Iterator[tuple[str, int, int, int, float]]:
    """(placement, nodes, GPUs per node, batch, seconds)."""
    folder = require("pollux_osdi21") / "sched" / "traces" / name
    with (folder / "placements.csv").open(newline="") as stream:
        for r in csv.DictReader(stream):
            digits = [int(d) for d in r["placement"]]
            yield r["placement"], len(digits), max(digits), int(r["local_bsz"]), _s(r)
    with (folder / "scalability.csv").open(newline="") as stream:
        for r in csv.DictReader(stream):
            nodes, gpus = int(r["num_nodes"]), int(r["num_replicas"])
            shape = f"{gpus} on {nodes} nodes"
            yield shape, nodes, math.ceil(gpus / nodes), int(r["local_bsz"]), _s(r)


def _s(record: dict[str, str]) -> float:
    return float(record["step_time"])


def _job(name: str, placement: str, nodes: int, gpus: int, batch: int, seconds: float) -> Job:
    return Job(
        source="pollux",
        device="t4",
        configuration=f"{name} {placement}",
        options={
            "cluster": cluster_text(nodes, gpus),
            "batch": batch,
            "torch_version": "1.6",
            **OPTIONS[name],
        },
        step_time_s=seconds,
        labels={"model": name, "placement": placement, "batch": batch},
    )
