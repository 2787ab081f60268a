"""What a calibration brings on this machine: python -m benchmarks.calibrate [--budget 600].

Calibrates within the budget, then measures models that no calibration chooses from, alone and on
two processes, and compares forecasts of both predictors with and without the calibration. A run
that was interrupted goes on where it stopped.
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
from foretell.calibrate.learned import fit_learned
from foretell.data import Record
from foretell.data.store import Store
from foretell.measure.jobs import job, not_yet_measured
from foretell.measure.runner import Plan, run_jobs
from foretell.measure.task import Task
from foretell.measure.world import World
from foretell.predictors import Predictor
from foretell.predictors.analytic import AnalyticPredictor
from foretell.predictors.scaledl import ScaleDLPredictor

# Name, image size, batch: none of them is among the candidates of a calibration, nor among the
# measurements in benchmarks/measured that the learned predictor was fitted to.
UNSEEN = (
    ("timm:resnet34", 64, 4),
    ("timm:skresnet18", 96, 4),
    ("timm:mobilenetv1_100", 96, 8),
    ("timm:mobilenetv3_rw", 96, 4),
    ("timm:tf_efficientnet_lite1", 96, 4),
    ("timm:semnasnet_075", 96, 8),
    ("timm:tinynet_d", 96, 8),
    ("timm:regnety_004", 96, 4),
    ("timm:densenet169", 64, 2),
    ("timm:convnextv2_atto", 96, 4),
    ("timm:deit_small_patch16_224", 96, 4),
    ("timm:mobilevitv2_075", 128, 2),
    ("timm:resmlp_24_224", 224, 1),
    ("transformer:layers=6,hidden=320,heads=5,seq=96,vocab=3000", None, 4),
    ("transformer:layers=10,hidden=160,heads=4,seq=64,vocab=1500", None, 8),
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
    learned = fit_learned(mine, device, ScaleDLPredictor.shipped(), found)
    print(
        f"{found.operators} operators, {found.steps} steps of one process, {found.shared_steps} of "
        f"two, {found.collectives} collectives; held out by model "
        f"{100 * np.median(np.abs(found.after - 1)):.1f} % median, learned "
        f"{100 * np.median(np.abs(learned.after - 1)):.1f} %"
    )
    ways: dict[str, Predictor] = {
        "analytic, as shipped": AnalyticPredictor.shipped(),
        "analytic, calibrated": found.predictor,
        "scaledl, as shipped": ScaleDLPredictor.shipped(),
        "scaledl, calibrated": learned.predictor,
    }
    rows = [row for way, p in ways.items() for row in _compared(_unseen(store), way, p)]
    for cluster in dict.fromkeys(row[2] for row in rows):
        for way in ways:
            mine_rows = [row for row in rows if row[2] == cluster and row[4] == way]
            e = errors(1 / np.array([row[5] for row in mine_rows]))
            held = np.mean([row[6] for row in mine_rows])
            print(
                f"{cluster:12} {way:22} {len(mine_rows):3d} {e['mean']:6.1f}% {e['median']:6.1f}% "
                f"{e['p90']:6.1f}% {e['max']:6.1f}%, in the 90 % interval {100 * held:.0f} %"
            )
    path = RESULTS / "calibrate.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["model", "batch", "cluster", "measured_s", "predictor", "ratio", "held"])
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
    records: Iterable[Record], way: str, predictor: Predictor
) -> Iterable[tuple[str, int | None, str, float, str, float, bool]]:
    """Predicted over measured of every record, and whether it is in its interval."""
    for record in records:
        assert record.time_s is not None
        workload = workload_of(Case.from_mapping(record.case_options()))
        said = predictor.predict(*workload).step_time_s
        yield (
            record.model,
            record.batch,
            record.cluster,
            record.time_s,
            way,
            said.value / record.time_s,
            said.low <= record.time_s <= said.high,
        )


if __name__ == "__main__":
    main()
