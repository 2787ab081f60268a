"""llm-foundry: throughput of MPT models under FSDP on 8 to 64 A100 and H100.

Heads and widths are those of llm-foundry's pretraining configurations. Nodes have eight GPUs with
one 200 (A100) or 400 Gbit/s (H100) port each. FULL_SHARD is zero=3, SHARD_GRAD_OP keeps gathered
parameters until backward. Parameters are fp32, gathered and reduced in the compute format.
"""

from __future__ import annotations

import csv

from benchmarks.jobs import Job
from benchmarks.sources import require

_SHAPES = {  # layers, hidden, heads
    "125m": (12, 768, 12),
    "350m": (24, 1024, 16),
    "760m": (24, 1536, 12),
    "1b": (24, 2048, 16),
    "3b": (32, 2560, 20),
    "7b": (32, 4096, 32),
    "13b": (40, 5120, 40),
    "30b": (48, 7168, 56),
    "70b": (80, 8192, 64),
}
_DEVICES = {"a100_40gb": "a100-40gb", "a100_80gb": "a100-80gb", "h100_80gb": "h100-sxm"}
_NETWORK = {"a100-40gb": "ib-hdr", "a100-80gb": "ib-hdr", "h100-sxm": "ib-ndr"}
_PRECISION = {"amp_bf16": "amp-bf16", "bf16": "amp-bf16", "amp_fp8": "fp8"}


def jobs() -> list[Job]:
    """All rows."""
    with (require("llm-foundry") / "train_throughput.csv").open(newline="") as stream:
        return [_job(record) for record in csv.DictReader(stream)]


def _job(record: dict[str, str]) -> Job:
    device = _DEVICES[record["GPU"]]
    layers, hidden, heads = _SHAPES[record["Model"]]
    gpus, seq = int(record["# GPUs"]), int(record["SeqLen (T)"])
    batch = int(record["MicroBatchSize"])
    precision = _PRECISION[record["Precision"]]
    tokens = float(record["GlobalBatchSize"]) * seq
    nodes = f"{gpus // 8}x8x" if gpus > 8 else f"{gpus}x"
    return Job(
        source="llm_foundry",
        device=f"{device} {precision}",
        configuration=f"{record['Model']} {seq} {gpus}",
        options={
            "model": f"transformer:layers={layers},hidden={hidden},heads={heads},seq={seq},"
            "vocab=50368,nobias,tied",
            "cluster": f"{nodes}{device}:{_NETWORK[device]}",
            "batch": batch,
            "global_batch": int(record["GlobalBatchSize"]),
            "precision": precision,
            "zero": 3,
            "reshard": record["Sharding Strategy"] == "FULL_SHARD",
            "recompute": "full" if record["Activation Checkpointing"] == "True" else "none",
        },
        step_time_s=tokens / float(record["Throughput (T/s)"]),
        labels={
            k: record[k]
            for k in ("Model", "SeqLen (T)", "# GPUs", "MicroBatchSize", "GradAccum", "MFU")
        },
    )
