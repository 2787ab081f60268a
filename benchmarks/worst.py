"""The worst cases of every table: python -m benchmarks.worst [--most 20].

Reads the ledger of 'python -m benchmarks.scaledl --split fit' and lists, for each setting, the
models whose steps were furthest off (each model once, by its worst step).
"""

from __future__ import annotations

import argparse
import csv

import numpy as np
import pyarrow.parquet as pq

from benchmarks.sources import RESULTS, ROOT

_MOST = 20


def main() -> None:
    """Sort, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--most", type=int, default=_MOST)
    options = parser.parse_args()
    ledger = pq.read_table(RESULTS / "scaledl-fit.parquet").to_pydict()
    model, place = np.array(ledger["model"]), np.array(ledger["place"])
    ratio = np.array(ledger["fit"]) / np.array(ledger["measured_s"])
    path = RESULTS / "scaledl-worst.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["place", "model", "predicted_over_measured"])
        for where in np.unique(place):
            worst = _worst(model[place == where], ratio[place == where], options.most)
            print(f"{where}: " + ", ".join(f"{name} {r:.2f}" for name, r in worst.items()))
            writer.writerows([where, name, f"{r:.3f}"] for name, r in worst.items())
    print(f"wrote {path.relative_to(ROOT)}")


def _worst(model: np.ndarray, ratio: np.ndarray, most: int) -> dict[str, float]:
    """Models and the ratio of their worst step, the furthest off first."""
    found: dict[str, float] = {}
    for i in np.argsort(-np.abs(np.log(ratio))):
        found.setdefault(str(model[i]).removeprefix("timm:"), float(ratio[i]))
        if len(found) == most:
            break
    return found


if __name__ == "__main__":
    main()
