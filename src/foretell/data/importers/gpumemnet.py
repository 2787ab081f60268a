"""GPUMemNet's multilayer perceptrons: peak memory of the device while they train.

The GPU is not told and no time was taken. Some 1.4 GiB of every value are the process itself.
"""

from __future__ import annotations

import re
from pathlib import Path

from foretell.data.importers.rows import Row, csv_table, each
from foretell.data.importers.source import Rows, Source
from foretell.data.record import Record

_BATCH = re.compile(r"_batch:\d+")
_METRICS = {
    "parameters": "Total Parameters",
    "activations": "Total Activations",
    "depth": "Depth",
    "utilisation_percent": "Avg GPUTL",
    "busy_share": "Avg GRACT",
    "sm_share": "Avg SMACT",
    "occupancy_share": "Avg SMOCC",
    "fp32_share": "Avg FP32A",
}


def read(folder: Path) -> Rows:
    """All networks."""
    yield from each(csv_table(folder, *SOURCE.files), _record)


def _record(row: Row) -> Record:
    model = row.filled("Filename").removesuffix(".out")
    return Record(
        model=model,
        batch=row.count("Batch Size"),
        options={"mode": "train"},
        group=_BATCH.sub("", model),
        resident_bytes=row.positive("Max GPU Memory (MiB)") * 2**20,
        metrics=row.optional(**_METRICS),
        source=SOURCE.name,
        origin=row.origin,
        environment={"layers": row.filled("Activations-Params")},
    )


SOURCE = Source(
    name="gpumemnet",
    repository="https://github.com/itu-rad/GPUMemNet",
    commit="f01eb0592e1b2030d3bceb73441747912b6652a6",
    licence="none stated",
    use="check",
    files=("mlp_data_step2.csv",),
    read=read,
)
