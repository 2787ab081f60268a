"""Megatron-Bridge: vendor-published pre-training throughput of Llama models, Hopper and later.

Upstream prints its tables in Markdown; a CSV file with the same columns is read as well. A model
or system that is no column is told by the headings. Rows that do not state a precision are FP8.
FSDP counts the GPUs that share parameters, or says 1 where it is used; 0 is a sharded optimizer
only.

Left out: mixtures of experts with latent or grouped routing whose layers `transformer:` cannot
state (DeepSeek, Qwen, GPT-OSS, Nemotron-H, Kimi), NVFP4, fine-tuning, and rows with two values in
one cell.
"""

from __future__ import annotations

import re
from pathlib import Path

from foretell.data.importers.hardware import full_nodes
from foretell.data.importers.llm_shapes import reference
from foretell.data.importers.markdown import csv_and_pages
from foretell.data.importers.rows import BadRowError, Row, each
from foretell.data.importers.source import Rows, Source
from foretell.data.importers.steps import step_record
from foretell.data.record import Record

_TABLE, _PAGES = "performance_summary_tables.csv", "performance-summary*.md"
SYSTEMS = {  # device, GPUs per node
    "H100": ("h100-sxm", 8),
    "B200": ("b200", 8),
    "B300": ("b300", 8),
    "GB200": ("gb200", 4),
    "GB300": ("gb300", 4),
}
_NOT_STATED = ("", "n/a", "-")


def read(folder: Path) -> Rows:
    """All rows of the CSV table and of the Markdown pages."""
    yield from each(csv_and_pages(folder, _TABLE, _PAGES), _step)


def _step(row: Row) -> Record:
    section = row.text("section")
    name = row.cells.get("Model") or section.rpartition("Model: ")[2]
    system = row.cells.get("System") or _system(section)
    known = SYSTEMS.get(system.removeprefix("DGX-"))
    stated = row.cells.get("Precision", "")
    if "Fine" in section:
        raise BadRowError("fine-tuning")
    if known is None:
        raise BadRowError("system not known")
    if stated == "NVFP4":
        raise BadRowError("NVFP4")
    if any("(" in value for value in row.cells.values()):
        raise BadRowError("two values in one cell, or a variant in parentheses")
    return llm_record(row, SOURCE.name, name, known, "bf16" if stated == "BF16" else "fp8")


def _system(section: str) -> str:
    match = re.search(r"DGX-(\w+)", section)
    return match.group(1) if match else ""


def llm_record(row: Row, source: str, name: str, known: tuple[str, int], precision: str) -> Record:
    """A row of the vendor's tables."""
    seq = row.count("Sequence Length")
    model = reference(re.sub(r"[ _]", "-", name.strip()), seq)
    if model is None:
        raise BadRowError("a model whose layers transformer: cannot state")
    device, per_node = known
    gpus, global_batch = row.count("#-GPUs"), row.count("GBS")
    tp, pp, cp, chunks = (_degree(row, k) for k in ("TP", "PP", "CP", "VP"))
    sharded = _degree(row, "FSDP", 0) > 0
    options: dict[str, object] = {
        "model": model,
        "cluster": full_nodes(device, gpus, per_node),
        "batch": row.count("MBS"),
        "global_batch": global_batch,
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
    return step_record(
        options,
        group=f"{name} {gpus} {tp} {pp} {cp}",
        time_s=global_batch * seq / (_tokens_per_s(row) * gpus),
        source=source,
        origin=row.origin,
    )


def _degree(row: Row, name: str, default: int = 1) -> int:
    """A column that not every table has, and that cells leave open."""
    if row.cells.get(name, "").strip() in _NOT_STATED:
        return default
    return row.whole(name)


def _tokens_per_s(row: Row) -> float:
    """Of one GPU; thousands may be set apart by commas."""
    name = "Tokens / sec / GPU"
    return Row(row.origin, {name: row.text(name).replace(",", "")}).positive(name)


SOURCE = Source(
    name="megatron_bridge",
    repository="https://github.com/NVIDIA-NeMo/Megatron-Bridge",
    commit="067f987df03b8355b03192d88d70f1709fedf51a",
    licence="Apache-2.0",
    use="fit",
    files=(f"docs/{_PAGES}", _TABLE),
    read=read,
)
