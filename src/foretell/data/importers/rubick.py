"""Rubick (SOSP 2025): steps of five transformers on 1 to 64 A800 under many execution plans.

Read from the authors' published scripts and from the numbers themselves:
- Global batches are fixed: BERT-large 32, RoBERTa-large 64, T5 (1.24 B) 16, GPT-2 XL 16, LLaMA-7B
  8, at 512, 512, 512, 1024 and 2048 tokens. RoBERTa on one GPU without recomputation takes as long
  as on two, and the authors' model halves its forward time: it ran half the batch.
- DeepSpeed's fp16 is off and forward passes reach 45 to 75 TFLOP/s: fp32 storage, TF32 products.
- ga is DistributedDataParallel, gc the same with recomputation, zero-dp ZeRO-2 with buckets of
  2e8 elements, zero-offload ZeRO-2 with the optimizer on the host.
- Three digits are pipeline, tensor and data parallelism, in this order: steps of 411, 611 and 811
  are equally long, so the first digit does not divide the work, which a pipeline with one
  microbatch does not; forward times fall with the second; batches with the third. The whole batch
  of a replica is one microbatch. Megatron's exchange of gradients follows the backward pass.
- Nodes have 100 GB/s of RDMA: four ports of 200 Gbit/s, each next to two GPUs. Steps with one or
  two GPUs per node see one port (20 to 24 GB/s), with four two, with eight all.

Uneven placements are read as the nearest even spread of the same GPUs, with the ports of the node
that has the fewest.

No row of these five is left out, although two groups contradict the rest: T5 under three digits (20
rows) takes 2.5 times as long as the same work under ga, LLaMA under zero-offload (4 rows) ten
times the host time per parameter of the other models; no published setting explains either.
Upstream's tables of other models and batches are rejected: their batches are not known. The parts
of a step are not taken, as their units differ from table to table.
"""

from __future__ import annotations

import math
from pathlib import Path

from foretell.data.importers.hardware import cluster_text
from foretell.data.importers.placements import gpus_by_node
from foretell.data.importers.rows import BadRowError, Row, csv_file, each
from foretell.data.importers.source import Rows, Source, find
from foretell.data.importers.steps import OWN_MODELS, step_record
from foretell.data.record import Record

_FILES = ("placements.csv", "placements_*.csv")
MODELS: dict[str, dict[str, object]] = {
    "bert": {"model": "hf:google-bert/bert-large-uncased", "seq": 512},
    "roberta": {"model": "hf:FacebookAI/roberta-large", "seq": 512},
    "t5": {"model": f"{OWN_MODELS}:t5_1b"},
    "gpt2": {"model": "transformer:layers=48,hidden=1600,heads=25,seq=1024,vocab=50560,tied"},
    "llama7": {
        "model": "transformer:layers=32,hidden=4096,heads=32,seq=2048,vocab=32000,ffn=11008,"
        "gated,rmsnorm,rope"
    },
}
_GLOBAL_BATCH = {"bert": 32, "roberta": 64, "t5": 16, "gpt2": 16, "llama7": 8}
_ZERO: dict[str, object] = {"zero": 2, "bucket_mb": 763.0}
_PLANS: dict[str, dict[str, object]] = {
    "ga": {},
    "gc": {"recompute": "full"},
    "zero-dp": _ZERO,
    "zero-offload": {**_ZERO, "offload_optimizer": True},
}


def read(folder: Path) -> Rows:
    """All rows, table by table in the order of MODELS."""
    order = list(MODELS)
    named = [(_name(path), path) for path in find(folder, *_FILES)]
    named.sort(key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order))
    for name, path in named:
        yield from each(csv_file(folder, path), _step, name)


def _name(path: Path) -> str:
    """traces/NAME/placements.csv, or placements_NAME.csv."""
    stem = path.name.partition(".")[0]
    return path.parent.name if stem == "placements" else stem.removeprefix("placements_")


def _step(row: Row, name: str) -> Record:
    if name not in MODELS:
        raise BadRowError("a model whose batch is not known")
    plan, placement = row.text("exec_plan"), row.text("placement")
    digits = gpus_by_node(row)
    devices = sum(digits)
    if plan in _PLANS:
        degrees: dict[str, object] = dict(_PLANS[plan])
        replicas = devices
    elif len(plan) == 3 and plan.isdecimal() and "0" not in plan:
        pp, tp, replicas = (int(d) for d in plan)
        degrees = {"pp": pp, "tp": tp, "dp": replicas, "overlap": False}
    else:
        raise BadRowError("an execution plan that is not known")
    batch = _GLOBAL_BATCH[name] // replicas
    if name == "roberta" and devices == 1 and plan != "gc":
        batch //= 2
    return step_record(
        {
            **MODELS[name],
            **degrees,
            "cluster": _cluster(digits),
            "batch": batch,
            "precision": "tf32",
            "optimizer": "adamw",
            "torch_version": "1.10",
        },
        group=f"{name} {plan} {placement}",
        time_s=row.positive("iter_time"),
        environment={"model": name, "plan": plan, "placement": placement},
        source=SOURCE.name,
        origin=row.origin,
    )


def _cluster(digits: list[int]) -> str:
    """The nearest even spread; ties go to more nodes."""
    devices = sum(digits)
    spreads = [n for n in range(1, devices + 1) if devices % n == 0 and devices // n <= 8]
    nodes = min(spreads, key=lambda n: (abs(n - len(digits)), -n))
    gpus = devices // nodes
    return cluster_text("a800-80gb", gpus, nodes, f"{math.ceil(min(digits) / 2)}xroce-200")


SOURCE = Source(
    name="rubick",
    repository="https://github.com/AlibabaPAI/reconfigurable-dl-scheduler",
    commit="80e85248c65c1ae231e2cf8bbfe0918b7af45c98",
    licence="Apache-2.0",
    use="fit",
    files=("simulator/traces/*/placements.csv", "placements_*.csv"),
    read=read,
)
