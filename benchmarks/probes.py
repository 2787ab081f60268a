"""What sampling costs the job it watches: python -m benchmarks.probes [LOOP ...]

Short blocks of steps of a real training loop alternate, without a sampler and with one, and each is
compared with the blocks right before and after it, so that neither a warming processor nor a
neighbour's work is taken for overhead. Blocks without a sampler are compared the same way: what
they show is the error of the method. Where other processes leave the loop fewer cores than it has
threads, blocks are left out and the next ones wait: whom of two a third one delays is chance.
"""

from __future__ import annotations

import csv
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from benchmarks.probes_loop import Block, Loop
from benchmarks.probes_worker import MODELS
from foretell.measure import Series, UsageSampler

RATES_HZ = (20.0, 50.0, 100.0)
LOOPS = {f"{model}-{threads}": (model, threads) for model in MODELS for threads in (1, 2)}
"""Model and threads."""
_ENOUGH_BLOCKS, _LEAST_BLOCKS = 200, 10
_PATIENCE_S = 900.0
"""Per loop; what was measured until then has to do."""
_RESULTS = Path(__file__).parent / "results" / "probes.csv"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One loop sampled at one rate; overheads in percent with 95 % confidence intervals."""

    model: str
    threads: int
    rate_hz: float
    """0: no sampler, the error of the method."""
    blocks: int
    step_ms: float
    overhead: float
    overhead_low: float
    overhead_high: float
    cpu_overhead: float
    """Of the loop's own CPU time, which other work on the machine hardly moves."""
    cpu_low: float
    cpu_high: float
    achieved_hz: float
    sampler_core_share: float
    """Percent of one core."""


def main() -> None:
    """Print the table and keep it."""
    chosen = sys.argv[1:] or list(LOOPS)
    if unknown := set(chosen) - set(LOOPS):
        raise SystemExit(f"unknown loops {sorted(unknown)}: choose among {', '.join(LOOPS)}")
    print("loop       Hz asked  achieved  core  step ms  blocks  overhead %  of CPU time %")
    for name in chosen:
        model, threads = LOOPS[name]
        if threads > (os.cpu_count() or 1):
            continue
        rows = measure(model, threads)
        for row in rows:
            print(
                f"{name:10} {row.rate_hz:8.0f} {row.achieved_hz:9.1f} "
                f"{row.sampler_core_share:4.2f}% {row.step_ms:8.2f} {row.blocks:7}  "
                f"{row.overhead:+5.2f} [{row.overhead_low:+.2f}, {row.overhead_high:+.2f}]  "
                f"{row.cpu_overhead:+5.2f} [{row.cpu_low:+.2f}, {row.cpu_high:+.2f}]",
                flush=True,
            )
        if rows:
            _keep(rows)
        else:
            print(f"{name:10} the machine was hardly ever quiet: run it when nothing else does")


def _keep(rows: Sequence[Row]) -> None:
    """Rows of this loop replace those kept before."""
    kept: list[dict[str, str]] = []
    if _RESULTS.exists():
        with _RESULTS.open(newline="") as stream:
            kept = list(csv.DictReader(stream))
    new = [
        {name: f"{value:.5g}" if isinstance(value, float) else str(value) for name, value in row}
        for row in (asdict(row).items() for row in rows)
    ]
    loop = {(row["model"], row["threads"]) for row in new}
    kept = [row for row in kept if (row["model"], row["threads"]) not in loop] + new
    kept.sort(key=lambda row: (row["model"], row["threads"], float(row["rate_hz"])))
    with _RESULTS.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(kept)


def measure(model: str, threads: int) -> list[Row]:
    """Every rate, and none, by turns in one run; nothing when others were at work all the time."""
    until = time.monotonic() + _PATIENCE_S
    shuffle = random.Random(0).shuffle
    samplers: dict[float, UsageSampler | None] = {0.0: None}
    samplers |= {rate_hz: UsageSampler(rate_hz) for rate_hz in RATES_HZ}
    pairs: dict[float, list[tuple[Block, Block, Block]]] = {rate_hz: [] for rate_hz in samplers}
    with Loop(model, threads) as loop:
        loop.block(None)
        before = loop.block(None)
        while min(map(len, pairs.values())) < _ENOUGH_BLOCKS and time.monotonic() < until:
            order = list(samplers)
            shuffle(order)
            for rate_hz in order:
                if before.others > loop.quiet:
                    loop.wait_for_quiet(until)
                    before = loop.block(None)
                watched = loop.block(samplers[rate_hz])
                after = loop.block(None)
                if max(block.others for block in (before, watched, after)) <= loop.quiet:
                    pairs[rate_hz].append((before, watched, after))
                before = after
        series = {rate_hz: loop.series(each) for rate_hz, each in samplers.items() if each}
    for each in samplers.values():
        if each is not None:
            each.close()
    if min(map(len, pairs.values())) < _LEAST_BLOCKS:
        return []
    return [
        _row(model, threads, rate_hz, pairs[rate_hz], series.get(rate_hz)) for rate_hz in samplers
    ]


def _row(
    model: str,
    threads: int,
    rate_hz: float,
    pairs: Sequence[tuple[Block, Block, Block]],
    series: Series | None,
) -> Row:
    wall = _median_with_interval([_percent(*(b.wall_s for b in blocks)) for blocks in pairs])
    cpu = _median_with_interval([_percent(*(b.cpu_s for b in blocks)) for blocks in pairs])
    return Row(
        model=model,
        threads=threads,
        rate_hz=rate_hz,
        blocks=len(pairs),
        step_ms=1e3 * statistics.median(watched.wall_s for _, watched, _ in pairs),
        overhead=wall[0],
        overhead_low=wall[1],
        overhead_high=wall[2],
        cpu_overhead=cpu[0],
        cpu_low=cpu[1],
        cpu_high=cpu[2],
        achieved_hz=series.rate_hz if series is not None else 0.0,
        sampler_core_share=(
            100 * series.sampler_cpu_s / series.duration_s if series is not None else 0.0
        ),
    )


def _percent(before_s: float, watched_s: float, after_s: float) -> float:
    return 100 * (watched_s / math.sqrt(before_s * after_s) - 1)


def _median_with_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The median and, whatever the distribution, its 95 % confidence interval."""
    ordered, count = sorted(values), len(values)
    reach = math.ceil(0.98 * math.sqrt(count))
    low, high = max(0, count // 2 - reach), min(count - 1, count // 2 + reach)
    return statistics.median(ordered), ordered[low], ordered[high]


if __name__ == "__main__":
    main()
