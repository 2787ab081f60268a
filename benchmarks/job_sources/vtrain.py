"""vTrain: Megatron-LM iterations of GPT models on 2 to 8 A100 over a TP x DP x PP grid."""

from __future__ import annotations

import csv

from benchmarks.jobs import Job
from benchmarks.sources import require

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


def jobs() -> list[Job]:
    """All rows of the single-node table."""
    with (require("vtrain") / "ground_truth_single.csv").open(newline="") as stream:
        return [_job(record) for record in csv.DictReader(stream)]


def _job(record: dict[str, str]) -> Job:
    r = {name: int(record[column]) for name, column in _FIELDS.items()}
    model = (
        f"transformer:layers={r['layers']},hidden={r['hidden']},heads={r['heads']},"
        f"seq={r['seq']},vocab=51200,tied"
    )
    return Job(
        source="vtrain",
        device="a100-80gb",
        configuration=f"{r['layers']}/{r['hidden']} tp={r['tp']} dp={r['dp']} pp={r['pp']}",
        options={
            "model": model,
            "cluster": f"{r['gpus']}xa100-80gb",
            **{name: r[name] for name in ("batch", "global_batch", "tp", "dp", "pp")},
            "precision": "fp16",
            "master_weights": True,
            "fp32_gradients": True,
            "optimizer": "adam",
            "fused_optimizer": True,
            "overlap": False,
        },
        step_time_s=float(record["iteration time (ms)"]) / 1e3,
        labels=r,
    )
