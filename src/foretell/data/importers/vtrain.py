"""vTrain: Megatron-DeepSpeed iterations of GPT models over a TP x DP x PP grid, and all-reduces.

Iterations are those of A100; up to eight share a node. More are read as nodes of eight on the
network usual for the device, which the source does not name. fp16 with fp32 master weights and
gradients, which are exchanged after the backward pass.

The all-reduce tables of NCCL's own benchmark give two times per size: out of place, which is the
record's time, and in place, which is a metric. Folder or file name tells the device; V100 are read
as those with 16 GB.
"""

from __future__ import annotations

import re
from pathlib import Path

from foretell.data.importers.hardware import cluster_text, full_nodes
from foretell.data.importers.rows import BadRowError, Row, csv_file, csv_table, each
from foretell.data.importers.source import Rows, Source, find
from foretell.data.importers.steps import step_record
from foretell.data.record import Record

_STEPS = "ground_truth_*.csv"
_TABLES = ("*AR_GPU*_LUT", "*AR_GPU*_LUT.csv")
_FIELDS = {
    "gpus": "# GPUs",
    "global_batch": "global batch",
    "batch": "micro batch",
    "hidden": "hidden size",
    "heads": "attention heads",
    "layers": "# layers",
    "seq": "sequence length",
    "tp": "tensor parallelism",
    "dp": "data parallelism",
    "pp": "pipeline parallelism",
}
_DEVICES = {"a100": "a100-80gb", "v100": "v100-16gb"}
_PER_NODE = 8


def read(folder: Path) -> Rows:
    """Iterations, then all-reduces."""
    yield from each(csv_table(folder, _STEPS), _step)
    for path in find(folder, *_TABLES):
        yield from each(csv_file(folder, path), _all_reduce, path)


def _step(row: Row) -> Record:
    r = {name: row.count(column) for name, column in _FIELDS.items()}
    return step_record(
        {
            "model": f"transformer:layers={r['layers']},hidden={r['hidden']},heads={r['heads']},"
            f"seq={r['seq']},vocab=51200,tied",
            "cluster": full_nodes("a100-80gb", r["gpus"], _PER_NODE),
            **{name: r[name] for name in ("batch", "global_batch", "tp", "dp", "pp")},
            "precision": "fp16",
            "master_weights": True,
            "fp32_gradients": True,
            "optimizer": "adam",
            "fused_optimizer": True,
            "overlap": False,
        },
        group=f"{r['layers']}/{r['hidden']} tp={r['tp']} dp={r['dp']} pp={r['pp']}",
        time_s=row.positive("iteration time (ms)") / 1e3,
        source=SOURCE.name,
        origin=row.origin,
    )


def _all_reduce(row: Row, path: Path) -> Record:
    match = re.search(r"(?:(a100|v100)[_/])?AR_GPU(\d+)_", f"{path.parent.name}/{path.name}")
    if match is None or match.group(1) is None:
        raise BadRowError("neither folder nor file name tells the device")
    device, ranks = _DEVICES[match.group(1)], int(match.group(2))
    if row.text("type") != "float":
        raise BadRowError("numbers that are not fp32")
    return Record(
        kind="collective",
        model="collective:all_reduce",
        cluster=cluster_text(device, ranks),
        device=device,
        devices=ranks,
        options={"nbytes": row.count("size(B)"), "dtype": "float32"},
        group=f"all_reduce {ranks}x{device}",
        time_s=row.positive("time(ns)") / 1e9,
        metrics={"in_place_s": row.positive("time(ns) (2)") / 1e9},
        source=SOURCE.name,
        origin=row.origin,
    )


SOURCE = Source(
    name="vtrain",
    repository="https://github.com/VIA-Research/vTrain",
    commit="f8dda8473a48b373b1d25f51f52d685bff5150c5",
    licence="MIT",
    use="fit",
    files=(_STEPS, *_TABLES),
    read=read,
)
