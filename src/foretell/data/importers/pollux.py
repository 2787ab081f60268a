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
slowest; scalability.csv gives nodes and GPUs, rounded up alike. That spread is the record's
cluster, its number of devices is what ran. A placement listed in both tables is taken from both.
The time gradients took to synchronise is a metric. Curves of validation and workloads of the same
folders are no measurements of steps and are not read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foretell.data.importers.hardware import cluster_text
from foretell.data.importers.placements import Placement, placement_of
from foretell.data.importers.rows import BadRowError, Row, csv_file, each
from foretell.data.importers.source import Rows, Source, find
from foretell.data.importers.steps import OWN_MODELS, step_record
from foretell.data.record import Record

_FILES = ("placements.csv", "scalability.csv")
OPTIONS: dict[str, dict[str, object]] = {
    "bert": {"model": f"{OWN_MODELS}:bert_base_squad", "optimizer": "adamw"},
    "cifar10": {"model": f"{OWN_MODELS}:cifar_resnet18", "optimizer": "momentum"},
    "deepspeech2": {"model": f"{OWN_MODELS}:deepspeech2", "optimizer": "momentum"},
    "imagenet": {
        "model": "timm:resnet50",
        "optimizer": "momentum",
        "precision": "amp-fp16",
        "image_size": 224,
    },
    "ncf": {"model": f"{OWN_MODELS}:ncf", "optimizer": "adam"},
    "yolov3": {
        "model": f"{OWN_MODELS}:yolov3",
        "optimizer": "momentum",
        "precision": "amp-fp16",
    },
}
"""How each application runs, whatever it runs on."""
_NETWORK = "eth-10g"


def read(folder: Path) -> Rows:
    """All rows of both tables of every application."""
    for path in find(folder, *_FILES):
        yield from each(csv_file(folder, path), _step, path.parent.name)


def t4_cluster(nodes: int, gpus: int) -> str:
    """Nodes with the same number of T4 each."""
    return cluster_text("t4", gpus, nodes, _NETWORK)


def application_record(
    row: Row, name: str, where: Placement, options: dict[str, Any], source: str
) -> Record:
    """A row of Pollux's tables, on whatever it ran."""
    return step_record(
        {"batch": row.count("local_bsz"), **options},
        devices=where.devices,
        group=f"{name} {where.text}",
        time_s=row.positive("step_time"),
        metrics={"sync_s": row.number("sync_time")},
        environment={"application": name, "placement": where.text},
        source=source,
        origin=row.origin,
    )


def _step(row: Row, name: str) -> Record:
    if name not in OPTIONS:
        raise BadRowError("an application that is not described")
    where = placement_of(row)
    cluster = t4_cluster(where.nodes, where.gpus_per_node)
    options = {"cluster": cluster, "torch_version": "1.6", **OPTIONS[name]}
    return application_record(row, name, where, options, SOURCE.name)


SOURCE = Source(
    name="pollux",
    repository="https://github.com/petuum/adaptdl",
    commit="c793c7089bd307462686339d29707925c461f9a9",
    licence="Apache-2.0",
    use="fit",
    files=tuple(f"sched/traces/*/{name}" for name in _FILES),
    read=read,
)
