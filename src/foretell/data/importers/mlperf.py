"""MLPerf Training: throughput that runs report themselves, ResNet-50 and BERT-large on NVIDIA GPUs.

Read from a table with one row per result log (rounds, systems and what the logs track as columns),
made from the repositories training_results_v0.5 to v5.1.

Each configuration is one record: the median over submitters and runs, at the origin of its first
log; the other logs count as merged. Throughput is images or sequences per second for these two;
other benchmarks report units that vary, or parallel settings are not in the logs (GPT-3, Llama).
Submissions are fused by hand: compile=True is the nearest option. BERT runs without padding, on
average about half of 512 tokens, so the sequence is stated as 256. Times to a target quality are
not taken: they depend on how training went.
"""

from __future__ import annotations

import re
import statistics
from pathlib import Path
from typing import NamedTuple

from foretell.data.importers.hardware import cluster_text
from foretell.data.importers.rows import BadRowError, Row, csv_table, grouped, merged
from foretell.data.importers.source import Rows, Source
from foretell.data.importers.steps import step_record
from foretell.data.record import Record

_TABLE = "runs*.csv"
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
_MOST_PER_NODE = 16
_THROUGHPUT = "throughput_median"
_COUNTS = ("sys_number_of_nodes", "sys_accelerators_per_node", "global_batch_size")
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


class _Key(NamedTuple):
    benchmark: str
    device: str
    nodes: int
    per_node: int
    batch: int


def read(folder: Path) -> Rows:
    """What is left out, then the records."""
    found, rejects = grouped(csv_table(folder, _TABLE), _key)
    yield from rejects
    for key, rows in sorted(found.items()):
        yield from merged(rows, _step, key)


def _key(row: Row) -> _Key:
    benchmark = row.text("submission_benchmark") or row.text("benchmark_dir")
    device = _device(row.text("sys_accelerator_model_name"))
    if benchmark not in _MODELS:
        raise BadRowError("a benchmark whose unit of throughput or parallel settings vary")
    if row.text("status") != "success":
        raise BadRowError("a status other than success")
    if not row.text(_THROUGHPUT):
        raise BadRowError("no throughput in the log")
    if device is None:
        raise BadRowError("an accelerator that is not listed")
    if not all(row.text(name) for name in _COUNTS):
        raise BadRowError("nodes, accelerators or batch not stated")
    row.positive(_THROUGHPUT)
    nodes, per_node, batch = (int(row.number(name)) for name in _COUNTS)
    if nodes < 1 or not 1 <= per_node <= _MOST_PER_NODE:
        raise BadRowError("a number of nodes or accelerators that cannot be")
    if batch % (nodes * per_node):
        raise BadRowError("an accelerator's share of the batch is not whole")
    if nodes == _WRONG_NODES:
        raise BadRowError("a throughput that cannot be")
    return _Key(benchmark, device, nodes, per_node, batch)


def _device(name: str) -> str | None:
    return next((device for pattern, device in _DEVICES if re.search(pattern, name)), None)


def _step(rows: list[Row], key: _Key) -> Record:
    benchmark, device, nodes, per_node, batch = key
    throughput_per_s = statistics.median(row.positive(_THROUGHPUT) for row in rows)
    return step_record(
        {
            **_MODELS[benchmark],
            "cluster": cluster_text(device, per_node, nodes),
            "batch": batch // (nodes * per_node),
        },
        group=f"{benchmark} {nodes} {per_node}",
        time_s=batch / throughput_per_s,
        samples=len(rows),
        environment={"benchmark": benchmark},
        source=SOURCE.name,
        origin=rows[0].origin,
    )


SOURCE = Source(
    name="mlperf",
    repository="https://github.com/mlcommons/training_results_v5.1",
    commit="441d65f4445cd59687466533fd9f55399136e7a4",
    licence="Apache-2.0",
    use="fit",
    files=(_TABLE,),
    read=read,
)
