"""Judge distributed forecasts: python -m benchmarks.distributed [SOURCE ...].

Per source and device one efficiency curve (a few multipliers on the analytic constants) is fitted
on the training folds; folds are split by configuration. Prints the errors on held-out
configurations, before and after fitting, and writes the per-case ledger.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import hashlib
import random
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from benchmarks.analytic import CONSTANTS_FILE
from benchmarks.figures import errors
from benchmarks.jobs import Job, jobs_of
from benchmarks.knobs import KNOBS, Priced, fit_knobs
from benchmarks.sources import RESULTS, ROOT
from foretell.api import workload_of
from foretell.data.importers import source as find_source
from foretell.errors import ForetellError
from foretell.predictors.analytic.constants import shipped_constants
from foretell.predictors.analytic.predictor import AnalyticPredictor, distributed_level
from foretell.predictors.assemble import Spread

SOURCES = (
    "vtrain",
    "llm_foundry",
    "rubick",
    "pollux",
    "elasticflow",
    "megatron_golden",
    "megatron_bridge",
    "nemo",
    "mlperf",
)
_FOLDS = 5
_MOST_FITTED = 120
_FEWEST_CONFIGURATIONS = 3
# A host that is the bottleneck shows only when it is slow: start there.
_START = {"dispatch": 4.0, "message": 3.0, "loop": 20.0}


def fold_of(configuration: str) -> int:
    """Which fold a configuration is held out in."""
    return int(hashlib.sha256(configuration.encode()).hexdigest(), 16) % _FOLDS


def held_out(cases: list[Priced], seed: int = 0) -> np.ndarray:
    """measured / predicted of every case, with a curve fitted on the other folds."""
    folds = np.array([fold_of(c.key) for c in cases])
    ratios = np.zeros(len(cases))
    for fold in range(_FOLDS):
        away = np.flatnonzero(folds == fold)
        known = [cases[i] for i in np.flatnonzero(folds != fold)]
        if not len(away):
            continue
        # Too few configurations to learn from: the shipped constants as they are.
        enough = len({c.key for c in known}) >= _FEWEST_CONFIGURATIONS
        knobs = best_fit(known, seed) if enough else np.zeros(len(KNOBS))
        ratios[away] = [cases[i].measured_s / cases[i].predict(knobs) for i in away]
    return ratios


def best_fit(known: list[Priced], seed: int) -> np.ndarray:
    """The better of two starts: a fast host and a slow one."""
    chosen = random.Random(seed).sample(known, min(len(known), _MOST_FITTED))
    many = len({c.key for c in chosen}) >= 2 * len(KNOBS)
    free = KNOBS if many else ("compute", "memory", "dispatch", "exchange")
    slow_host = np.log([_START.get(name, 1.0) for name in KNOBS])
    starts = [np.zeros(len(KNOBS)), slow_host]
    fits = [fit_knobs(chosen, free, start=start, rounds=12) for start in starts]
    return min(
        fits, key=lambda k: np.mean([abs(np.log(c.predict(k) / c.measured_s)) for c in chosen])
    )


def main() -> None:
    """Fit, judge, print, and write the ledger."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="*", help=f"of {', '.join(SOURCES)}; all when left out")
    parser.add_argument("--write", action="store_true", help="only write the shipped intervals")
    parser.add_argument("--limit", type=int, help="use every n-th job only")
    options = parser.parse_args()
    print(
        f"{'source':28} {'n':>5}  {'mean':>7} {'median':>7} {'p90':>7} {'max':>8}   unfitted mean"
    )
    chosen = options.source or SOURCES
    if options.write:
        for name in chosen:
            if find_source(name).use != "fit":
                parser.error(f"{name} is for checks only: leave it out of what is written")
        _write_spreads(chosen)
        return
    for source in chosen:
        judge(source, options.limit or 1)


def judge(source: str, every: int) -> None:
    """One source."""
    by_curve: dict[str, list[Job]] = defaultdict(list)
    for job in jobs_of(source)[::every]:
        by_curve[job.curve].append(job)
    ledger: list[list[object]] = []
    all_ratios = []
    for curve, jobs in sorted(by_curve.items()):
        cases, kept, refused = [], [], defaultdict(int)
        for job in jobs:
            try:
                cases.append(job.priced())
                kept.append(job)
            except ForetellError as error:
                refused[str(error)[:100]] += 1
        plain = np.array([c.measured_s / c.predict(np.zeros(len(KNOBS))) for c in cases])
        ratios = held_out(cases)
        all_ratios.append(ratios)
        _print_row(f"{source} {curve}", ratios, plain)
        for reason, count in refused.items():
            print(f"    {count} refused: {reason}")
        for job, ratio, before in zip(kept, ratios, plain, strict=True):
            ledger.append(
                [
                    source,
                    curve,
                    job.record.group,
                    job.step_time_s,
                    ratio,
                    before,
                    dict(job.labels),
                ]
            )
    if len(by_curve) > 1:
        _print_row(f"{source}, all", np.concatenate(all_ratios), None)
    _write_ledger(source, ledger)


def _write_spreads(sources: Sequence[str]) -> None:
    """The 90 % intervals of distributed jobs without a fitted curve, all sources alike."""
    found: dict[str, list[np.ndarray]] = defaultdict(list)
    draw = np.random.default_rng(0)
    for source in sources:
        by_level: dict[str, list[float]] = defaultdict(list)
        for job in jobs_of(source):
            try:
                run = AnalyticPredictor.shipped().play(*workload_of(job.case))[1]
            except ForetellError:
                continue
            by_level[distributed_level(run)].append(job.step_time_s / run.step_s)
        for level, ratios in by_level.items():
            found[level].append(draw.choice(ratios, 1000))
        print(f"{source}: { ({level: len(r) for level, r in by_level.items()}) }", flush=True)
    constants = shipped_constants()
    spreads = dict(constants.spreads)
    for level, parts in found.items():
        low, high = (float(v) for v in np.quantile(np.concatenate(parts), [0.05, 0.95]))
        spreads[level] = Spread(low=low, high=high)
        print(f"{level}: 90 % of measured/predicted in {low:.2f} to {high:.2f}")
    text = dataclasses.replace(constants, spreads=spreads).to_json()
    CONSTANTS_FILE.write_text(text + "\n", encoding="utf-8")


def _print_row(name: str, ratios: np.ndarray, plain: np.ndarray | None) -> None:
    e = errors(ratios)
    before = "" if plain is None else f"{errors(plain)['mean']:8.1f}%"
    print(
        f"{name:28} {len(ratios):5d}  {e['mean']:6.1f}% {e['median']:6.1f}% {e['p90']:6.1f}% "
        f"{e['max']:7.1f}%  {before}",
        flush=True,
    )


def _write_ledger(source: str, ledger: list[list[object]]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"distributed-{source}.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(
            [
                "source",
                "device",
                "configuration",
                "measured_s",
                "measured_over_predicted",
                "measured_over_unfitted",
                "labels",
            ]
        )
        for row in ledger:
            writer.writerow([f"{v:.5g}" if isinstance(v, float) else v for v in row])
    print(f"    wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
