"""What a calibration brings on this machine: python -m benchmarks.calibrate [--budget 600].

Calibrates within the budget, then measures models that no calibration chooses from, alone and on
two processes, and compares forecasts with and without the calibration. A run that was interrupted
goes on where it stopped.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from benchmarks.figures import errors
from benchmarks.sources import RESULTS, ROOT
from foretell.api import Case, workload_of
from foretell.calibrate import Campaign, fit_machine
from foretell.data import Record
from foretell.data.store import Store
from foretell.measure.jobs import job, not_yet_measured
from foretell.measure.runner import Plan, run_jobs
from foretell.measure.task import Task
from foretell.measure.world import World
from foretell.predictors.analytic import AnalyticPredictor

# Name, image size, batch: none of them is among the candidates of a calibration.
UNSEEN = (
    ("timm:resnet18", 96, 4),
    ("timm:resnet14t", 64, 8),
    ("timm:mobilenetv3_small_100", 96, 16),
    ("timm:mobilenetv3_large_100", 96, 4),
    ("timm:efficientnet_b0", 96, 4),
    ("timm:mnasnet_small", 96, 8),
    ("timm:tinynet_c", 96, 8),
    ("timm:regnety_002", 96, 8),
    ("timm:densenet121", 64, 4),
    ("timm:convnext_atto", 96, 4),
    ("timm:vit_tiny_patch16_224", 96, 8),
    ("timm:mobilevit_xxs", 128, 4),
    ("timm:gmlp_ti16_224", 224, 1),
    ("transformer:layers=4,hidden=256,heads=4,seq=128,vocab=4096", None, 4),
    ("transformer:layers=12,hidden=128,heads=2,seq=64,vocab=1000", None, 8),
)
_WORLDS = (World(processes=1, threads=1), World(processes=2, threads=1))


def main() -> None:
    """Calibrate, measure, compare, and write the ledger."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", type=float, default=600.0, help="seconds of the calibration")
    parser.add_argument("--store", type=Path, default=Path("calibration"))
    options = parser.parse_args()
    store = Store(options.store)
    campaign = Campaign(
        store=store, budget_s=options.budget, worlds=_WORLDS, name="benchmarks.calibrate"
    )
    for turn in campaign.run():
        print(f"{turn.cluster:12} {turn.measured:4d} measured in {turn.spent_s:4.0f} s", flush=True)
    device = _WORLDS[0].device
    mine = [
        r for r in campaign.records() if r.environment.get("campaign") == "benchmarks.calibrate"
    ]
    found = fit_machine(mine, device)
    print(
        f"{found.operators} operators, {found.steps} steps of one process, {found.shared_steps} of "
        f"two, {found.collectives} collectives; held out by model "
        f"{100 * np.median(np.abs(found.after - 1)):.1f} % median"
    )
    rows = list(_compared(_unseen(store), found.predictor))
    for cluster in dict.fromkeys(row[2] for row in rows):
        for number, name in ((4, "as shipped"), (5, "calibrated")):
            ratios = np.array([float(row[number]) for row in rows if row[2] == cluster])
            e = errors(1 / ratios)
            print(
                f"{cluster:12} {name:12} {len(ratios):3d} {e['mean']:6.1f}% {e['median']:6.1f}% "
                f"{e['p90']:6.1f}% {e['max']:6.1f}%"
            )
        held = np.mean([row[6] for row in rows if row[2] == cluster])
        print(f"{cluster:12} in the 90 % interval: {100 * held:.0f} %")
    path = RESULTS / "calibrate.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(
            ["model", "batch", "cluster", "measured_s", "shipped_ratio", "calibrated_ratio", "held"]
        )
        writer.writerows([f"{v:.5g}" if isinstance(v, float) else v for v in row] for row in rows)
    print(f"wrote {path.relative_to(ROOT)}")


def _unseen(store: Store) -> list[Record]:
    """Measurements of the models in question, taken now if they are not there yet."""
    task = Task(options={}, seconds=1.5)
    jobs = [
        job({"model": m, "batch": b} | ({"image_size": s} if s else {}), world, task)
        for world in _WORLDS
        for m, s, b in UNSEEN
    ]
    run_jobs(not_yet_measured(jobs, store.records()), store, Plan(rounds=3))
    names = {m for m, _, _ in UNSEEN}
    return [r for r in store.records() if r.ok and r.model in names]


def _compared(
    records: Iterable[Record], calibrated: AnalyticPredictor
) -> Iterable[tuple[str, int | None, str, float, float, float, bool]]:
    """Predicted over measured of every record, with the shipped constants and the fitted ones."""
    shipped = AnalyticPredictor.shipped()
    for record in records:
        assert record.time_s is not None
        workload = workload_of(Case.from_mapping(record.case_options()))
        before = shipped.predict(*workload).step_time_s.value
        after = calibrated.predict(*workload).step_time_s
        yield (
            record.model,
            record.batch,
            record.cluster,
            record.time_s,
            before / record.time_s,
            after.value / record.time_s,
            after.low <= record.time_s <= after.high,
        )


if __name__ == "__main__":
    main()
