"""Predicted memory against timm's largest training batches on a 24 GB card.

timm halves (or shrinks) the batch until a step no longer runs out of memory on an RTX 3090, so a
row says: this batch fits, and the one tried before did not. Rows at the starting batch of 512 or
256 say only that it fits.
"""

from __future__ import annotations

import csv

import numpy as np

from benchmarks.sources import RESULTS, ROOT
from benchmarks.timm_rows import Graphs, rows
from foretell.cluster import device
from foretell.predictors.memory import CUDA_MEMORY, memory_use
from foretell.workload import Recipe, Workload


def main() -> None:
    """Print how often the true batch is allowed and double of it is not."""
    limit = device("rtx3090").memory_bytes
    graphs = Graphs()
    ledger: list[list[object]] = []
    allowed, refused, ratio_allowed, ratio_double = [], [], [], []
    for row in rows(lambda r: r.mode == "train"):
        graph = graphs.of(row)
        if graph is None:
            continue
        recipe = Recipe(batch=row.batch, precision=row.precision, optimizer="momentum")
        workload = Workload(graph, recipe)
        use = memory_use(workload, CUDA_MEMORY).total_bytes
        allowed.append(use <= limit)
        ratio_allowed.append(use / limit)
        censored = row.batch >= 256
        double = memory_use(workload.at_batch(2 * row.batch), CUDA_MEMORY).total_bytes
        if not censored:
            refused.append(double > limit)
            ratio_double.append(double / limit)
        ledger.append([row.file, row.model, row.batch, use, double, censored])
    print(f"{len(allowed)} rows: the true batch is allowed in {100 * np.mean(allowed):.1f} %")
    print(f"{len(refused)} rows below 256: its double is refused in {100 * np.mean(refused):.1f} %")
    for name, values in (("true batch", ratio_allowed), ("its double", ratio_double)):
        quantiles = np.quantile(values, [0.05, 0.5, 0.95, 1.0])
        print(f"need / 24 GB at the {name}: p5, median, p95, max = {np.round(quantiles, 2)}")
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "memory-timm.csv"
    with path.open("w", newline="") as stream:
        header = ["file", "model", "batch", "need_bytes", "need_at_double_bytes", "censored"]
        csv.writer(stream).writerows([header, *ledger])
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
