"""How fast the simulator is, and how it grows: python -m benchmarks.schedule_speed.

Each case has a process of its own, one after the other, so that memory is its own; seconds are
those of the simulation, without reading the log.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from dataclasses import dataclass

import numpy as np

from benchmarks.schedule import LOGS, rows_of
from foretell.cluster import parse_cluster
from foretell.schedule.generate import Recipe, rows_generated
from foretell.schedule.log import trace_of
from foretell.schedule.pace import Wires
from foretell.schedule.placement import Placement
from foretell.schedule.play import Setup, play
from foretell.schedule.pool import Pool, PoolSpec, pools_of
from foretell.schedule.shape import Stage, pipeline

_PLACED = 200
_LEFT_DEVICES, _JOB_DEVICES = 256, 64


@dataclass(frozen=True)
class Case:
    """Jobs, a cluster, and who schedules."""

    name: str
    cluster: str
    policy: str
    jobs: int | None = None
    """Generated ones; the whole Philly log unless given."""


CASES = (
    *(
        Case("Philly's 57,573", "128x8xv100", policy)
        for policy in ("fifo", "easy", "a-srpt-oracle", "a-srpt", "a-srpt-whole", "a-srpt-strict")
    ),
    *(
        Case(f"{jobs:,} generated", "16x8xv100", policy, jobs)
        for policy in ("fifo", "a-srpt")
        for jobs in (10_000, 100_000, 1_000_000)
    ),
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="Cases whose name or policy has this in it.")
    options = parser.parse_args()
    for case in CASES:
        if options.only in f"{case.name} {case.policy}":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                seconds, gigabytes = pool.apply(_measured, (case,))
            print(
                f"{case.name:20} {case.cluster:11} {case.policy:14} {seconds:7.1f} s "
                f"{gigabytes:5.2f} GB",
                flush=True,
            )
    if not options.only:
        _print_placement()


def _measured(case: Case) -> tuple[float, float]:
    pools = pools_of(parse_cluster(case.cluster))
    devices = sum(spec.devices for spec in pools)
    if case.jobs is None:
        rows = rows_of(LOGS["philly"], devices, seed=0)
    else:
        rows = rows_generated(Recipe(jobs=case.jobs, load=0.9), devices, seed=0)
    trace = trace_of(rows, pools)
    del rows
    started = time.perf_counter()
    play(trace, case.policy, Setup(pools=pools))
    taken_s = time.perf_counter() - started
    return taken_s, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def _print_placement() -> None:
    """A job of 64 devices where 256 are free, here and there, each shape seen first."""
    draw, took_s = np.random.default_rng(0), []
    wires = Wires(inside_bytes_per_s=100e9, port_bytes_per_s=10e9)
    spec = PoolSpec(device="v100", first_server=0, servers=128, devices_per_server=8, wires=wires)
    for _ in range(_PLACED):
        stages = int(draw.choice([1, 2, 4, 8, 16]))
        shape = pipeline(
            [
                Stage(_JOB_DEVICES // stages, float(draw.uniform(0.1, 1)), draw.uniform(1e8, 1e9))
                for _ in range(stages)
            ],
            [float(draw.uniform(1e8, 1e9)) for _ in range(stages - 1)],
        )
        pool = Pool(spec)
        while pool.free_devices > _LEFT_DEVICES:
            server = int(draw.integers(spec.servers))
            most = min(pool.free_on(server), pool.free_devices - _LEFT_DEVICES)
            if most:
                pool.take(((server, int(draw.integers(1, most + 1))),))
        placement = Placement([shape], [spec])
        started = time.perf_counter()
        placement.offer(0, pool, 0)
        took_s.append(time.perf_counter() - started)
    low, high = 1e3 * np.quantile(took_s, (0.5, 0.9))
    print(f"{_JOB_DEVICES} devices on {_LEFT_DEVICES} free ones: {low:.2f} ms, p90 {high:.2f} ms")


if __name__ == "__main__":
    main()
