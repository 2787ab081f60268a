"""Policies on published logs and generated jobs: python -m benchmarks.schedule [--only philly].

Every log is played at three loads: arrivals follow each other so fast that the work that arrives is
60, 80 or 95 % of what the cluster can do. Every policy runs with lengths as they are predicted, and
those that ask for lengths with the truth as well. Generated jobs come from five seeds, Pollux's are
five workloads; on the other logs five forests, which differ by chance, predict the same jobs. Then
the default under lengths that are wrong. Each run is a line of the ledger as soon as it is done: an
interrupted benchmark goes on where it stopped.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import multiprocessing
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.sources import RESULTS, require
from foretell.cluster import parse_cluster
from foretell.schedule.generate import Recipe, rows_generated
from foretell.schedule.log import trace_of
from foretell.schedule.placement import Placement
from foretell.schedule.play import ORACLE, Setup, asks_lengths, play
from foretell.schedule.policies import POLICIES
from foretell.schedule.pool import PoolSpec, pools_of
from foretell.schedule.readers import Row, read_log
from foretell.schedule.simulator import Rules
from foretell.schedule.sizes import Distorted
from foretell.schedule.trace import Trace

_LEDGER = RESULTS / "schedule.csv"
_LOADS = (0.6, 0.8, 0.95)
_SEEDS = 5
_NOISE = (0.5, 1.0, 2.0)
_MEASURES = (
    "mean_jct_s",
    "p90_jct_s",
    "p99_jct_s",
    "makespan_s",
    "utilisation",
    "mean_slowdown",
    "restarts",
)
_COLUMNS = ("log", "traffic", "load", "seed", "policy", "lengths", *_MEASURES, "seconds")


@dataclass(frozen=True)
class Log:
    """Jobs, and the cluster they are played on."""

    cluster: str
    source: str = ""
    inside: str = ""
    """{} is the number of the seed, from one on."""
    traffics: tuple[str, ...] = ("none",)
    first: int = 0
    jobs: int | None = None

    @property
    def has_many(self) -> bool:
        """Whether there are different sets of jobs."""
        return not self.source or "{}" in self.inside


LOGS = {
    "philly": Log("64x8xv100", "philly", "philly.csv.gz"),
    "philly-10k": Log("64x8xv100", "philly", "philly.csv.gz", ("typical",), 20_000, 10_000),
    "nasa": Log("16x8xv100", "swf", "NASA-iPSC-1993-3.1-cln.swf.gz", ("none", "typical")),
    "alibaba-2023": Log("4x8xv100", "alibaba_gpu", "v2023/openb_pod_list_default.csv.gz"),
    "pollux": Log("16x4xt4", "pollux", "benchmark/workloads/workload-{}.csv", ("none", "typical")),
    "generated": Log("16x8xv100", traffics=("none", "typical"), jobs=2000),
}


@dataclass(frozen=True)
class Run:
    """One line of the ledger."""

    log: str
    traffic: str
    load: float
    seed: int
    policy: str
    lengths: str = "forest"

    @property
    def key(self) -> tuple[str, ...]:
        """As it stands in the ledger."""
        return (self.log, self.traffic, f"{self.load:g}", str(self.seed), self.policy, self.lengths)


def main() -> None:
    """Play what is missing, then print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(LOGS))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    chosen = options.only.split(",")
    done = {tuple(row[c] for c in _COLUMNS[:6]) for row in _ledger()}
    missing = [run for name in chosen for run in _runs(name) if run.key not in done]
    with multiprocessing.get_context("spawn").Pool(options.workers, maxtasksperchild=8) as pool:
        for row in pool.imap_unordered(_play, missing):
            _append(row)
            print(" ".join(str(v) for v in row), flush=True)
    rows = _ledger()
    _print(rows)
    _print_noise(rows)


def _runs(name: str) -> Iterator[Run]:
    log = LOGS[name]
    for traffic, load, seed in itertools.product(log.traffics, _LOADS, range(_SEEDS)):
        alike = seed > 0 and not log.has_many
        for policy in POLICIES:
            if asks_lengths(policy) or not alike:
                yield Run(name, traffic, load, seed, policy)
            if asks_lengths(policy) and not alike:
                yield Run(name, traffic, load, seed, policy + ORACLE, "oracle")
        if traffic == "none":
            for told in (*(f"noise {sigma:g}" for sigma in _NOISE), "inverted"):
                if told != "inverted" or not alike:
                    yield Run(name, traffic, load, seed, "a-srpt", told)


def rows_of(log: Log, devices: int, seed: int) -> list[Row]:
    """Jobs of a log that fit."""
    if not log.source:
        return rows_generated(Recipe(jobs=log.jobs or 1, load=1.0), devices, seed)
    rows, _ = read_log(require(log.source) / log.inside.format(seed + 1))
    rows = [row for row in rows if row.devices <= devices]
    return rows[log.first : log.first + (log.jobs or len(rows))]


def _trace(log: Log, pools: tuple[PoolSpec, ...], traffic: str, load: float, seed: int) -> Trace:
    """At the load that is asked for."""
    devices = sum(spec.devices for spec in pools)
    rows = rows_of(log, devices, seed)
    work = sum(row.duration_s * row.devices for row in rows)
    offered = work / (devices * (rows[-1].submit_s - rows[0].submit_s))
    return trace_of(rows, pools, traffic, load / offered)


def _play(run: Run) -> list[object]:
    log = LOGS[run.log]
    pools = pools_of(parse_cluster(log.cluster))
    trace = _trace(log, pools, run.traffic, run.load, run.seed)
    setup = Setup(pools=pools, rules=Rules(contention=run.traffic != "none"), seed=run.seed)
    started = time.perf_counter()
    found = play(trace, run.policy, setup, _distorted(run, trace, pools)).measures
    taken_s = time.perf_counter() - started
    return [*run.key, *(f"{found[name] or 0.0:.6g}" for name in _MEASURES), f"{taken_s:.1f}"]


def _distorted(run: Run, trace: Trace, pools: tuple[PoolSpec, ...]) -> Distorted | None:
    if run.lengths in ("forest", "oracle"):
        return None
    placement = Placement(trace.shapes, pools)
    each_s = np.array([placement.least_s(i) for i in range(len(trace.shapes))])[trace.shape]
    sigma = 0.0 if run.lengths == "inverted" else float(run.lengths.partition(" ")[2])
    inverted = run.lengths == "inverted"
    return Distorted(trace.iterations * each_s, sigma, run.seed, inverted=inverted)


def _ledger() -> list[dict[str, str]]:
    if not _LEDGER.exists():
        return []
    with _LEDGER.open(newline="") as stream:
        return list(csv.DictReader(stream))


def _append(row: list[object]) -> None:
    new = not _LEDGER.exists()
    with _LEDGER.open("a", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        if new:
            writer.writerow(_COLUMNS)
        writer.writerow(row)


def _means(rows: list[dict[str, str]]) -> dict[tuple[str, str, str], dict[tuple[str, str], float]]:
    """(log, traffic, load) -> (policy, lengths) -> mean JCT over seeds."""
    found: dict[tuple[str, str, str], dict[tuple[str, str], list[float]]] = {}
    for row in rows:
        place = found.setdefault((row["log"], row["traffic"], row["load"]), {})
        place.setdefault((row["policy"], row["lengths"]), []).append(float(row["mean_jct_s"]))
    return {
        place: {who: float(np.mean(values)) for who, values in by.items()}
        for place, by in found.items()
    }


def _print(rows: list[dict[str, str]]) -> None:
    """Mean JCT of every policy by that of the default; the truth in brackets."""
    print("\nmean JCT, as a multiple of a-srpt's; in brackets with the truth")
    names = [name for name in POLICIES if name != "a-srpt"]
    print(f"{'':34}{'a-srpt':>17}" + "".join(f"{name:>15}" for name in names))
    for (log, traffic, load), by in _means(rows).items():
        own = by.get(("a-srpt", "forest"))
        if own is None:
            continue
        cells = [f"{own / 60:9.1f} min ({by.get(('a-srpt' + ORACLE, 'oracle'), 0) / own:.2f})"]
        for name in names:
            told, truth = by.get((name, "forest")), by.get((name + ORACLE, "oracle"))
            shown = "" if told is None else f"{told / own:.2f}"
            cells.append(shown + ("" if truth is None else f" ({truth / own:.2f})"))
        print(
            f"{f'{log}, {traffic}, {load}':34}{cells[0]:>17}"
            + "".join(f"{c:>15}" for c in cells[1:])
        )


def _print_noise(rows: list[dict[str, str]]) -> None:
    print("\na-srpt told wrong lengths, mean JCT by that of FIFO")
    told = [*(f"noise {sigma:g}" for sigma in _NOISE), "inverted"]
    print(f"{'':34}" + "".join(f"{name:>12}" for name in told))
    for (log, traffic, load), by in _means(rows).items():
        fifo = by.get(("fifo", "forest"))
        values = [by.get(("a-srpt", name)) for name in told]
        if fifo and None not in values:
            cells = "".join(f"{(v or 0) / fifo:12.3f}" for v in values)
            print(f"{f'{log}, {traffic}, {load}':34}{cells}")


if __name__ == "__main__":
    main()
