"""How repeatable measurements are: python -m benchmarks.repeatability [--times 5] [--pause 60].

The same workloads are measured several times with pauses in between, on the machine as it is and
beside neighbours: processes that compute in bursts of random length. For each way to summarise the
samples of a run, the tables show by how much its result moves from run to run: the coefficient of
variation, and the largest result over the smallest.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.sources import RESULTS, ROOT
from foretell.measure.crew import Crew
from foretell.measure.statistics import fast_half, steady_from
from foretell.measure.task import Answer, Task
from foretell.measure.world import World

_WORKLOADS = (
    ("timm:resnet10t", 8, 96),
    ("timm:mobilenetv3_small_100", 16, 96),
    ("timm:vit_tiny_patch16_224", 8, 96),
    ("transformer:layers=4,hidden=256,heads=4,seq=128,vocab=4096", 4, None),
    ("op:linear,in=1024,out=1024", 256, None),
    ("op:conv2d,in=64,out=64,size=28", 16, None),
)
_ROUNDS = 2
_BURST_S = 1.0
MACHINES = ("quiet", "neighbours")
_COLUMNS = ["machine", "summary", "mean_variation", "worst_variation", "largest_over_smallest"]


def _steady(rounds: Sequence[Answer]) -> list[float]:
    return [s for a in rounds for s in a.step_s[steady_from(a.step_s) :]]


def _by_reference(rounds: Sequence[Answer]) -> float:
    return float(np.median([s / a.reference_s for a in rounds for s in a.step_s]))


SUMMARIES: dict[str, Callable[[Sequence[Answer]], float]] = {
    "first five steps, mean": lambda rounds: float(np.mean(rounds[0].step_s[:5])),
    "one round, mean": lambda rounds: float(np.mean(rounds[0].step_s)),
    "one round, median": lambda rounds: float(np.median(rounds[0].step_s)),
    "all rounds, mean": lambda rounds: float(np.mean([s for a in rounds for s in a.step_s])),
    "all rounds, steady, median": lambda rounds: float(np.median(_steady(rounds))),
    "all rounds, steady, fast half": lambda rounds: fast_half(_steady(rounds)),
    "all rounds, median over reference": _by_reference,
}


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--pause", type=float, default=60.0, help="seconds between runs")
    parser.add_argument("--machine", nargs="+", choices=MACHINES, default=MACHINES)
    options = parser.parse_args()
    path = RESULTS / "repeatability.csv"
    rows = [row for row in _kept(path) if row[0] not in options.machine]
    for machine in options.machine:
        runs: list[dict[str, list[Answer]]] = []
        with _neighbours() if machine == "neighbours" else contextlib.nullcontext():
            for number in range(options.times):
                time.sleep(options.pause if number else 0)
                runs.append(_one_run())
                print(f"{machine}: run {number + 1} of {options.times}", flush=True)
        found = [(machine, name, *_movement(runs, way)) for name, way in SUMMARIES.items()]
        print(f"{machine:36} {'variation':>10} {'worst':>8} {'largest/smallest':>18}")
        for _, name, mean, worst, ratio in found:
            print(f"{name:36} {100 * mean:9.1f}% {100 * worst:7.1f}% {ratio:17.2f}x", flush=True)
        rows += [[machine, name, *(f"{v:.4g}" for v in rest)] for _, name, *rest in found]
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([_COLUMNS, *rows])
    print(f"wrote {path.relative_to(ROOT)}")


def _kept(path: Path) -> list[list[str]]:
    """Rows of an earlier run."""
    if not path.exists():
        return []
    with path.open(newline="") as stream:
        return list(csv.reader(stream))[1:]


@contextlib.contextmanager
def _neighbours() -> Iterator[None]:
    """As many processes as cores, each busy about a third of the time."""
    context = multiprocessing.get_context("spawn")
    busy = [context.Process(target=_busy, args=(n,), daemon=True) for n in range(_cores())]
    for process in busy:
        process.start()
    try:
        yield
    finally:
        for process in busy:
            process.terminate()


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _busy(seed: int) -> None:
    chance = random.Random(seed)
    while True:
        until = time.monotonic() + chance.expovariate(1 / _BURST_S)
        while time.monotonic() < until:
            pass
        time.sleep(chance.expovariate(1 / (2 * _BURST_S)))


def _one_run() -> dict[str, list[Answer]]:
    found: dict[str, list[Answer]] = {model: [] for model, _, _ in _WORKLOADS}
    with Crew(World(processes=1, threads=1)) as crew:
        for _ in range(_ROUNDS):
            for model, batch, size in _WORKLOADS:
                options = {"model": model, "batch": batch}
                options |= {"image_size": size} if size else {}
                found[model].append(crew.do(Task(options=options, seconds=2.0)))
    return found


def _movement(
    runs: Sequence[dict[str, list[Answer]]], summarise: Callable[[Sequence[Answer]], float]
) -> tuple[float, float, float]:
    """Mean and worst coefficient of variation over workloads, and the worst ratio."""
    variations, ratios = [], []
    for model, _, _ in _WORKLOADS:
        values = np.array([summarise(run[model]) for run in runs])
        variations.append(values.std(ddof=1) / values.mean())
        ratios.append(values.max() / values.min())
    return float(np.mean(variations)), float(np.max(variations)), float(np.max(ratios))


if __name__ == "__main__":
    main()
