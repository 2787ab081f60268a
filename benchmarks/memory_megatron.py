"""Predicted peak allocated memory against Megatron-LM's regression runs.

Megatron logs torch.cuda.max_memory_allocated of the last rank, which sits on the last pipeline
stage. Workspaces are those of its libraries: PyTorch keeps one per thread that calls cuBLAS, two
in all; Transformer Engine one of its own and four more for grouped products. What stays allocated
between steps shows the same sizes.
"""

from __future__ import annotations

import csv
from collections import defaultdict

import numpy as np

from benchmarks.jobs import Job, jobs_of
from benchmarks.sources import RESULTS, ROOT
from foretell.data.importers import Tally
from foretell.errors import ForetellError
from foretell.predictors.memory import MemoryConstants, MemoryUse, rank_memory

_MIB = 1024**2
_LARGE = 2 * 1024**3
_DETERMINISTIC_CUBLAS = 32 * _MIB
_CUBLAS = {"a100-80gb": 8 * _MIB, "h100-sxm": 32 * _MIB, "gb200": 8 * _MIB}
_ENGINE = {"a100-80gb": 4 * _MIB, "h100-sxm": 32 * _MIB, "gb200": 32 * _MIB}


def main() -> None:
    """Print errors by kind of model and device, and write the ledger."""
    judged: list[tuple[Job, MemoryUse]] = []
    refused: dict[str, int] = defaultdict(int)
    known: dict[tuple[str, int], MemoryUse] = {}
    tally = Tally()
    for job in jobs_of("megatron_golden", tally):
        try:
            judged.append((job, _predicted(job, known)))
        except ForetellError as error:
            refused[str(error)] += 1
    print(f"{'cases':28} {'n':>5} {'mean':>8} {'median':>8} {'p90':>8} {'max':>8} {'bias':>8}")
    for large in (True, False):
        chosen = [(j, m) for j, m in judged if not large or _measured_bytes(j) > _LARGE]
        title = "over 2 GiB" if large else "all"
        _print_row(title, chosen)
        for key in ("model", "device"):
            groups: dict[str, list[tuple[Job, MemoryUse]]] = defaultdict(list)
            for job, use in chosen:
                name = job.record.device if key == "device" else str(job.labels["model"])
                groups[name].append((job, use))
            for name, group in sorted(groups.items()):
                _print_row(f"  {name}", group)
    for reason, count in refused.items():
        print(f"{count} refused: {reason}")
    for reason, count in tally.reasons().most_common():
        print(f"{count} rows left out: {reason}")
    _write(judged)


def _predicted(job: Job, known: dict[tuple[str, int], MemoryUse]) -> MemoryUse:
    constants = _constants(job)
    key = (str(sorted(job.record.case_options().items())), constants.workspace_bytes)
    if key not in known:
        known[key] = rank_memory(job.placed(), constants)[-1]
    return known[key]


def _constants(job: Job) -> MemoryConstants:
    device, labels = job.record.device, job.labels
    pytorch = _DETERMINISTIC_CUBLAS if labels["deterministic"] else _CUBLAS[device]
    products = 5 if labels["grouped_products"] else 1
    engine = products * _ENGINE[device] if labels["transformer_engine"] else 0
    return MemoryConstants(workspace_bytes=2 * pytorch + engine)


def _measured_bytes(job: Job) -> float:
    assert job.record.allocated_bytes is not None
    return job.record.allocated_bytes


def _error(job: Job, use: MemoryUse) -> float:
    return use.allocated_bytes / _measured_bytes(job) - 1


def _print_row(name: str, cases: list[tuple[Job, MemoryUse]]) -> None:
    if not cases:
        return
    signed = 100 * np.array([_error(job, use) for job, use in cases])
    e = np.abs(signed)
    print(
        f"{name:28} {len(e):5d} {e.mean():7.1f}% {np.median(e):7.1f}% "
        f"{np.quantile(e, 0.9):7.1f}% {e.max():7.1f}% {signed.mean():+7.1f}%"
    )


def _write(judged: list[tuple[Job, MemoryUse]]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "memory-megatron.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        holders = list(judged[0][1].by_holder()) if judged else []
        names = ["model", "test_case", "platform", "environment"]
        writer.writerow(
            [*names, "commits", "device", "measured_mib", "predicted_mib", "error", *holders]
        )
        for job, use in sorted(judged, key=lambda pair: -abs(_error(*pair))):
            writer.writerow(
                [
                    *(job.labels[n] for n in names),
                    job.record.samples,
                    job.record.device,
                    f"{_measured_bytes(job) / _MIB:.1f}",
                    f"{use.allocated_bytes / _MIB:.1f}",
                    f"{_error(job, use):+.4f}",
                    *(f"{v / _MIB:.1f}" for v in use.by_holder().values()),
                ]
            )
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
