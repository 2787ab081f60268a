"""Who knows how long jobs will be: python -m benchmarks.lengths [--only nasa].

Every job of a log starts when it is submitted; when it ends, everybody learns how long it was.
Predictions are made at submission, the first thousand are not judged. Off by a factor: the larger
of predicted / true and true / predicted.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import time
from collections.abc import Iterator

import numpy as np

from benchmarks.schedule import LOGS, rows_of
from benchmarks.sources import RESULTS, ROOT
from foretell.cluster import parse_cluster
from foretell.graph.graph import Floats
from foretell.schedule.job import Job
from foretell.schedule.learned import Learned
from foretell.schedule.log import trace_of
from foretell.schedule.play import LENGTHS
from foretell.schedule.pool import pools_of
from foretell.schedule.sizes import Sizes
from foretell.schedule.trace import Trace

_LEARN = 1000
_EDGES = (0.05, 0.95)
_LOGS = ("philly", "nasa", "alibaba-2023", "generated")
_COLUMNS = ("log", "lengths", "jobs", "median_factor", "p90_factor", "within_2", "rank", "covered")


def main() -> None:
    """Replay, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(_LOGS))
    options = parser.parse_args()
    found = []
    print("log            lengths    jobs  median factor  p90  within 2x  rank  in 90 %  seconds")
    for name in options.only.split(","):
        log = LOGS[name]
        pools = pools_of(parse_cluster(log.cluster))
        trace = trace_of(rows_of(log, sum(spec.devices for spec in pools), seed=0), pools)
        for who in LENGTHS:
            if who == "stated" and not np.isfinite(trace.limit_s).any():
                continue
            started = time.perf_counter()
            row = (name, who, *_judged(trace, LENGTHS[who](trace, np.ones(len(trace)), 0)))
            found.append(row)
            _print(row, time.perf_counter() - started)
    path = RESULTS / "lengths.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows([*row[:3], *(f"{v:.4g}" for v in row[3:])] for row in found)
    print(f"wrote {path.relative_to(ROOT)}")


def _judged(trace: Trace, sizes: Sizes) -> tuple[float, ...]:
    said_s, inside = np.array(list(_replayed(trace, sizes))).T
    true_s = trace.iterations
    factor = np.exp(np.abs(np.log(said_s / true_s)))[_LEARN:]
    return (
        len(factor),
        float(np.median(factor)),
        float(np.quantile(factor, 0.9)),
        float((factor <= 2).mean()),
        _rank_correlation(said_s[_LEARN:], true_s[_LEARN:]),
        float(inside[_LEARN:].mean()),
    )


def _replayed(trace: Trace, sizes: Sizes) -> Iterator[tuple[float, float]]:
    """Seconds by prediction of every job, and whether its 90 % interval held."""
    ends: list[tuple[float, int, Job]] = []
    for number, arrival_s in enumerate(trace.arrival_s.tolist()):
        while ends and ends[0][0] <= arrival_s:
            _, ended, job = heapq.heappop(ends)
            sizes.learn(job, float(trace.iterations[ended]))
        job = Job(
            number=number,
            devices=int(trace.devices[number]),
            arrival_s=arrival_s,
            predicted_s=0.0,
            limit_s=float(trace.limit_s[number]),
            user=int(trace.user[number]),
            deadline_s=float(trace.deadline_s[number]),
            preemptible=True,
        )
        held = np.nan
        if isinstance(sizes, Learned):
            low, high = (sizes.quantile_s(job, share) for share in _EDGES)
            held = float(low <= trace.iterations[number] <= high)
        yield max(sizes.predicted_s(job), 1.0), held
        heapq.heappush(ends, (arrival_s + float(trace.iterations[number]), number, job))


def _rank_correlation(one: Floats, other: Floats) -> float:
    """Spearman's: 1 where the order is right."""
    from scipy.stats import spearmanr

    return float(spearmanr(one, other).statistic)


def _print(row: tuple[object, ...], seconds: float) -> None:
    name, who, jobs, *numbers = row
    median, p90, within, rank, covered = (float(v) for v in numbers)  # type: ignore[arg-type]
    shown = "" if np.isnan(covered) else f"{covered:.0%}"
    print(
        f"{name:14} {who:9} {jobs:6} {median:11.2f} x {p90:6.1f} x {within:7.0%} {rank:8.2f} "
        f"{shown:>7} {seconds:8.1f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
