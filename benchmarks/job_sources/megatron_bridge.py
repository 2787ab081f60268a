"""Megatron-Bridge: vendor-published pre-training throughput of Llama models, Hopper and later.

Left out: mixtures of experts with latent or grouped routing whose layers `transformer:` cannot
state (DeepSeek, Qwen, GPT-OSS, Nemotron-H, Kimi), NVFP4, fine-tuning, and rows with two values in
one cell.
"""

from __future__ import annotations

import csv
import re

from benchmarks.job_sources.llm_shapes import reference
from benchmarks.jobs import Job
from benchmarks.sources import require

DEVICES = {
    "H100": ("h100-sxm", 8),
    "B200": ("b200", 8),
    "B300": ("b300", 8),
    "GB200": ("gb200", 4),
    "GB300": ("gb300", 4),
}


def jobs() -> list[Job]:
    """Rows that can be stated in our options."""
    path = require("megatron_bridge") / "performance_summary_tables.csv"
    with path.open(newline="") as stream:
        found = [_job(record) for record in csv.DictReader(stream)]
    return [job for job in found if job is not None]


def _job(record: dict[str, str]) -> Job | None:
    name = record["Model"] or record["section"].rpartition("Model: ")[2]
    system = record["System"] or _system(record["section"])
    precision = "bf16" if record["Precision"] == "BF16" else "fp8"
    known = DEVICES.get(system.removeprefix("DGX-"))
    if known is None or record["Precision"] == "NVFP4" or "Fine" in record["section"]:
        return None
    if any("(" in value for value in record.values()):
        return None
    return llm_job("megatron_bridge", name, known, precision, record)


def _system(section: str) -> str:
    match = re.search(r"DGX-(\w+)", section)
    return match.group(1) if match else ""


def llm_job(
    source: str, name: str, known: tuple[str, int], precision: str, record: dict[str, str]
) -> Job | None:
    """A row of the vendor's tables; None for models that cannot be stated."""
    seq = _number(record, "Sequence Length")
    model = reference(re.sub(r"[ _]", "-", name.strip()), seq)
    if model is None:
        return None
    device, per_node = known
    gpus, tp, pp, cp = (_number(record, k) for k in ("#-GPUs", "TP", "PP", "CP"))
    chunks = _number(record, "VP")
    sharded = _number(record, "FSDP") > 1
    cluster = f"{gpus}x{device}" if gpus <= per_node else f"{gpus // per_node}x{per_node}x{device}"
    gbs = _number(record, "GBS")
    options: dict[str, object] = {
        "model": model,
        "cluster": cluster,
        "batch": _number(record, "MBS"),
        "global_batch": gbs,
        "precision": precision,
        "master_weights": True,
        "fp32_gradients": not sharded,
        "optimizer": "adam",
        "fused_optimizer": True,
        "tp": tp,
        "sp": tp > 1,
        "pp": pp,
        "cp": cp,
        "zero": 3 if sharded else 1,
    }
    if pp > 1 and chunks > 1:
        options |= {"schedule": "interleaved", "virtual_stages": chunks}
    tokens_per_s = float(record["Tokens / sec / GPU"].replace(",", "")) * gpus
    return Job(
        source=source,
        device=f"{device} {precision}",
        configuration=f"{name} {gpus} {tp} {pp} {cp}",
        options=options,
        step_time_s=gbs * seq / tokens_per_s,
        labels={"model": name, "gpus": gpus, "tp": tp, "pp": pp, "cp": cp, "vp": chunks},
    )


def _number(record: dict[str, str], name: str) -> int:
    text = record.get(name, "") or "1"
    return int(text) if text.isdigit() else 1
