"""Sia (SOSP 2023): Pollux's six models on more kinds of GPUs, for validation only: no licence.

Read as Pollux's rows are (see `pollux`). A file's suffix tells the machine, as the authors'
simulator lists them:
- azure: eight V100 32 GB a node with one 100 Gbit/s InfiniBand port;
- dgx, dgx-ext: DGX A100 with eight A100 40 GB; dgx-ext has more batch sizes;
- rtx: eight RTX 2080 Ti a node; quad: four Quadro RTX 6000;
- aws: the T4 of Pollux.
Containers hold PyTorch 1.9, whose fp32 products are TF32 on A100.
Assumed, since the repository does not say: eight HDR ports in a DGX, 50 Gbit/s of Ethernet between
nodes with RTX 2080 Ti. Many steps are far longer than the device needs: imagenet at batch 20 takes
as long on A100 as on T4, ncf at batch 32 on azure 13 times as long; why is not told.

Left out: rows of aws, which are Pollux's own; figures that another file of the same machine gives
as well (tables of dgx-ext list most rows twice); gpt_pmp, whose times are exactly linear in the
batch and so come from a model; the scheduler's copy of the tables below adaptdl/.
"""

from __future__ import annotations

import re
from pathlib import Path

from foretell.data.importers.hardware import cluster_text
from foretell.data.importers.placements import placement_of
from foretell.data.importers.pollux import OPTIONS, application_record
from foretell.data.importers.rows import BadRowError, Row, csv_file, each
from foretell.data.importers.source import Rows, Source, find
from foretell.data.record import Record

_FILES = ("placements-*.csv", "scalability-*.csv")
_COPY = "adaptdl"
_MACHINES = {  # device, network
    "azure": ("v100-32gb", "ib-edr"),
    "dgx": ("a100-40gb", "8xib-hdr"),
    "dgx-ext": ("a100-40gb", "8xib-hdr"),
    "quad": ("quadro-rtx6000", "eth-25g"),
    "rtx": ("rtx2080ti", "2xeth-25g"),
}
_TF32 = ("a100-40gb",)


def read(folder: Path) -> Rows:
    """All rows of both tables of every application and machine."""
    seen: set[tuple[str, ...]] = set()
    for path in find(folder, *_FILES):
        if _COPY not in path.relative_to(folder).parts:
            yield from each(csv_file(folder, path), _step, path, seen)


def _step(row: Row, path: Path, seen: set[tuple[str, ...]]) -> Record:
    name = path.parent.name
    match = re.match(r"\w+-([\w-]+)\.csv", path.name)
    machine = match.group(1) if match else ""
    if machine == "aws":
        raise BadRowError("measured by Pollux: source pollux has it")
    if name == "gpt_pmp":
        raise BadRowError("times are exactly linear in the batch: a model's, not measured")
    if name not in OPTIONS or machine not in _MACHINES:
        raise BadRowError("an application or machine that is not described")
    device, network = _MACHINES[machine]
    figures = (name, device, *(row.text(k) for k in ("local_bsz", "step_time", "sync_time")))
    if figures in seen:
        raise BadRowError("the same figures in another table")
    where = placement_of(row)
    options = {
        "cluster": cluster_text(device, where.gpus_per_node, where.nodes, network),
        "torch_version": "1.9",
        **({"precision": "tf32"} if device in _TF32 else {}),
        **OPTIONS[name],
    }
    record = application_record(row, name, where, options, SOURCE.name)
    seen.add(figures)
    return record


SOURCE = Source(
    name="sia",
    repository="https://github.com/siasosp23/artifacts",
    commit="aaf7a0de7b6cb5eab06ea020467ede5d2fd18e70",
    licence="none stated",
    use="check",
    files=tuple(f"sia-simulator/traces/*/{name}" for name in _FILES),
    read=read,
)
