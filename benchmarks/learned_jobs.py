"""Distributed jobs by the learned predictor: python -m benchmarks.learned_jobs [--weights FILE].

Each configuration is judged by what the others of its source and device family teach (the folds of
'foretell fit'), beside three baselines on the same folds: the timeline alone, the timeline times a
constant per source and device, and Ernest, fitted to the other configurations of the same model.
Prints a table and writes the ledger.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from benchmarks.figures import errors
from benchmarks.sources import RESULTS, ROOT, measured, required_data
from foretell.fit.jobs import JOB_SOURCES, HeldOut, MeasuredJobs, held_out, measured_jobs
from foretell.graph.graph import Floats
from foretell.predictors.scaledl.predictor import ScaleDLPredictor
from foretell.predictors.scaledl.together import JOB_NAMES, SCALE

_FEWEST = 4
"""Configurations of a model that Ernest's four coefficients need."""


def main() -> None:
    """Forecast, judge, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, help="instead of those of the package")
    options = parser.parse_args()
    chosen = options.weights
    predictor = ScaleDLPredictor.load(chosen) if chosen else ScaleDLPredictor.shipped()
    untaught = dataclasses.replace(predictor.weights, together={})
    jobs = measured_jobs(required_data(), ScaleDLPredictor(untaught))
    judged = held_out(jobs)
    found = {
        "learned": judged.predicted_s,
        "timeline": jobs.predicted_s,
        "timeline x constant": _scaled(jobs, judged),
        "Ernest": _ernest(jobs, judged),
    }
    source = np.array(jobs.source)
    for name in JOB_SOURCES:
        mine = source == name
        print(f"{name}, {mine.sum()} configurations")
        for what, said in found.items():
            known = mine & np.isfinite(said)
            if not known.any():
                print(f"  {what:20} too few configurations of any model")
                continue
            off = errors(jobs.measured_s[known] / said[known])
            shown = " / ".join(f"{v:.1f}" for v in off.values())
            print(f"  {what:20} {shown} % (mean / median / p90 / max), {known.sum()} judged")
    path = RESULTS / "learned-jobs.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["source", "origin", "measured_s", *(w.replace(" ", "_") for w in found)])
        for i, label in enumerate(jobs.labels):
            numbers = (jobs.measured_s[i], *(said[i] for said in found.values()))
            writer.writerow([jobs.source[i], label, *(f"{n:.5g}" for n in numbers)])
    print(f"wrote {path.relative_to(ROOT)}")


def _scaled(jobs: MeasuredJobs, judged: HeldOut) -> Floats:
    """The timeline times what the others of its source and device family took longer."""
    alike = np.array([f"{s} {f}" for s, f in zip(jobs.source, jobs.family, strict=True)])
    said = jobs.predicted_s.copy()
    for i in range(len(jobs)):
        others = (alike == alike[i]) & (judged.fold != judged.fold[i])
        if others.any():
            said[i] *= np.exp(np.median(jobs.off[others]))
    return said


def _ernest(jobs: MeasuredJobs, judged: HeldOut) -> Floats:
    """T = a + b s/m + c log m + d m, no coefficient below zero; NaN where too few were measured."""
    model = _models(jobs)
    amount = dict(zip(JOB_NAMES, 2.0 ** (jobs.at * SCALE).T, strict=True))
    devices = amount["log_devices"]
    samples = amount["log_dp"] * amount["log_microbatches"] * amount["log_batch"]
    rows = np.stack([np.ones(len(jobs)), samples / devices, np.log(devices), devices], 1)
    said = np.full(len(jobs), np.nan)
    for name in np.unique(model):
        for fold in np.unique(judged.fold):
            known = np.flatnonzero((model == name) & (judged.fold != fold))
            asked = np.flatnonzero((model == name) & (judged.fold == fold))
            if len(known) >= _FEWEST and len(asked):
                took = jobs.measured_s[known][:, None]
                scale = (rows[known] / took).max(0)  # to relative errors, in numbers near one
                factors, _ = nnls(rows[known] / took / scale, np.ones(len(known)))
                said[asked] = np.maximum(rows[asked] / scale @ factors, 1e-6)
    return said


def _models(jobs: MeasuredJobs) -> np.ndarray:
    """What Ernest would call one workload: source, device, model and its lengths."""
    known = {}
    for source in JOB_SOURCES:
        for record in measured(source):
            kind = (source, record.device, record.model, record.options.get("seq"))
            known[source, record.origin] = repr(kind)
    return np.array([known[at] for at in zip(jobs.source, jobs.labels, strict=True)])


if __name__ == "__main__":
    main()
