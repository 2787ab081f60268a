"""Gavel's throughput tables: steps per second of six kinds of jobs, alone and sharing a GPU.

Upstream's profiler adds up the rates of all workers, so a step of a job on several GPUs takes
workers / rate. The values are noisy: a job on eight V100s can appear eleven times as fast as on
one; such rows are kept and carry `superlinear` beside their `speedup` in the metrics. Spread jobs
are read as one worker in each node; how many GPUs a node has is not told, so jobs on several have
no cluster. Two jobs that share a GPU are no case that a forecast describes and are rejected.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretell.data.importers.hardware import known_cluster
from foretell.data.importers.rows import (
    NO_ROWS,
    BadRowError,
    Row,
    json_object,
    lines,
    place,
    rejected,
    taken,
)
from foretell.data.importers.source import Rows, Source, find
from foretell.data.record import Record, Reject

_TABLES = (
    "simulation_throughputs.json",
    "physical_cluster_throughputs.json",
    "packing_experiment_throughputs.json",
)
_PAIRS = ("perf_prediction_measurements.csv", "perf_prediction/measurements.csv")
_RATE = "steps per second"
_DEVICE = {"k80": "k80", "p100": "p100", "v100": "v100-16gb"}
_SPREAD = "_unconsolidated"
_BATCH = re.compile(r"(?P<model>.+) \(batch size (?P<batch>\d+)\)")
_OPTIONS: dict[str, Any] = {"mode": "train", "precision": "fp32"}
# Only one of the jobs is a model that a reference describes: torchvision's ResNet-50 on ImageNet.
_REFERENCE = {"ResNet-50": "timm:resnet50"}
_REFERENCE_OPTIONS = {"ResNet-50": {"optimizer": "momentum", "image_size": 224}}
_ALONE = "null"


def read(folder: Path) -> Rows:
    """All entries of all tables, then the older table of pairs."""
    seen: dict[tuple[str, ...], tuple[Any, str]] = {}
    for path in find(folder, *_TABLES):
        yield from throughputs(folder, path, SOURCE.name, seen)
    for path in find(folder, *_PAIRS):
        yield from rejected(lines(folder, path), "units and batches are not told")


def throughputs(
    folder: Path, path: Path, source: str, seen: dict[tuple[str, ...], tuple[Any, str]]
) -> Rows:
    """Every entry of one table, as gpu / job / (alone or other job); `seen` is what came before."""
    name = place(folder, path)
    content = json_object(folder, path) or Reject(name, NO_ROWS)
    if isinstance(content, Reject):
        yield content
        return
    for gpu, jobs in content.items():
        for job, others in jobs.items() if isinstance(jobs, dict) else ():
            for other, value in others.items() if isinstance(others, dict) else ():
                origin = f"{name}:{gpu}/{job}/{other}"
                key = (gpu, job, other)
                if other == _ALONE and key in seen and seen[key][0] == value:
                    yield Reject(origin, f"repeats {seen[key][1]}")
                    continue
                seen.setdefault(key, (value, name))
                yield taken(Row(origin, {_RATE: str(value)}), _record, key, jobs, source)


def _record(row: Row, key: tuple[str, str, str], jobs: Mapping[str, Any], source: str) -> Record:
    gpu, job, other = key
    if other != _ALONE:
        raise BadRowError("two jobs share a GPU")
    name, workers = _parsed(job)
    spread = gpu.endswith(_SPREAD)
    if spread and workers == 1:
        raise BadRowError("a job on one GPU cannot be spread: repeats the packed entry")
    if row.number(_RATE) == 0:
        raise BadRowError("no steps per second: the job does not run there")
    rate = row.positive(_RATE)
    device = _DEVICE.get(gpu.removesuffix(_SPREAD), gpu)
    match = _BATCH.fullmatch(name)
    model = match["model"] if match else name
    return Record(
        model=_REFERENCE.get(model, model),
        cluster=known_cluster(device) if workers == 1 else "",
        device=device,
        devices=workers,
        nodes=workers if spread else 1,
        batch=int(match["batch"]) if match else None,
        options={**_OPTIONS, **_REFERENCE_OPTIONS.get(model, {})},
        group=_REFERENCE.get(model, model).removeprefix("timm:"),
        time_s=workers / rate,
        metrics={"steps_per_s": rate, **_speedup(jobs, name, workers, rate)},
        source=source,
        origin=row.origin,
        environment={"placement": "spread" if spread else "packed"} if workers > 1 else {},
    )


def _parsed(job: str) -> tuple[str, int]:
    """ "('LM (batch size 5)', 2)" -> name and workers."""
    try:
        name, workers = ast.literal_eval(job)
    except (ValueError, SyntaxError, TypeError):
        raise BadRowError("the job's name is not understood") from None
    if not isinstance(name, str) or not isinstance(workers, int) or workers < 1:
        raise BadRowError("the job's name is not understood")
    return name, workers


def _speedup(jobs: Mapping[str, Any], name: str, workers: int, rate: float) -> dict[str, float]:
    """How much faster than on one GPU, and whether that is more than there are GPUs."""
    alone = jobs.get(str((name, 1)), {}).get(_ALONE)
    if workers == 1 or not isinstance(alone, float) or alone <= 0:
        return {}
    speedup = rate / alone
    return {"speedup": speedup, **({"superlinear": 1.0} if speedup > workers else {})}


SOURCE = Source(
    name="gavel",
    repository="https://github.com/stanford-futuredata/gavel",
    commit="c4fa40097339e9608ab71fd64c8bdea96a5e4a4c",
    licence="MIT",
    use="fit",
    files=(*_TABLES, *_PAIRS),
    read=read,
)
