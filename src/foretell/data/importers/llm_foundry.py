"""llm-foundry: throughput of MPT models under FSDP on 8 to 64 A100 and H100.

Upstream prints its tables in a README; a CSV file with the same columns is read as well.

Heads and widths are those of llm-foundry's pretraining configurations. Nodes have eight GPUs with
one 200 (A100) or 400 Gbit/s (H100) port each. FULL_SHARD is zero=3, SHARD_GRAD_OP keeps gathered
parameters until backward. Parameters are fp32, gathered and reduced in the compute format. The
step is the tokens of a global batch over tokens per second: samples per second are rounded.
"""

from __future__ import annotations

from pathlib import Path

from foretell.data.importers.hardware import full_nodes
from foretell.data.importers.markdown import csv_and_pages
from foretell.data.importers.rows import BadRowError, Row, each
from foretell.data.importers.source import Rows, Source
from foretell.data.importers.steps import step_record
from foretell.data.record import Record

_README, _TABLE = "README.md", "train_throughput*.csv"
_THROUGHPUT = "Throughput (T/s)"
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
_PER_NODE = 8


def read(folder: Path) -> Rows:
    """All rows of the CSV tables and of the README's."""
    yield from each(csv_and_pages(folder, _TABLE, _README, _THROUGHPUT), _step)


def _step(row: Row) -> Record:
    device = _DEVICES.get(row.text("GPU"))
    name = row.text("Model")
    precision = _PRECISION.get(row.text("Precision"))
    if device is None or name not in _SHAPES or precision is None:
        raise BadRowError("model, device or precision not known")
    layers, hidden, heads = _SHAPES[name]
    gpus, seq = row.count("# GPUs"), row.count("SeqLen (T)")
    global_batch = row.count("GlobalBatchSize")
    return step_record(
        {
            "model": f"transformer:layers={layers},hidden={hidden},heads={heads},seq={seq},"
            "vocab=50368,nobias,tied",
            "cluster": f"{full_nodes(device, gpus, _PER_NODE)}:{_NETWORK[device]}",
            "batch": row.count("MicroBatchSize"),
            "global_batch": global_batch,
            "precision": precision,
            "zero": 3,
            "reshard": row.text("Sharding Strategy") == "FULL_SHARD",
            "recompute": "full" if row.text("Activation Checkpointing") == "True" else "none",
        },
        group=f"{name} {seq} {gpus}",
        time_s=global_batch * seq / row.positive(_THROUGHPUT),
        metrics={"mfu_percent": row.number("MFU")},
        source=SOURCE.name,
        origin=row.origin,
    )


SOURCE = Source(
    name="llm_foundry",
    repository="https://github.com/mosaicml/llm-foundry",
    commit="8c8dd48f72168c5d51e2f7b151595892a8fba43d",
    licence="Apache-2.0",
    use="fit",
    files=(f"scripts/train/benchmarking/{_README}", _TABLE),
    read=read,
)
