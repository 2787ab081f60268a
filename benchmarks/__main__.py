"""python -m benchmarks: every benchmark in turn; those whose data is absent say so and pass."""

from __future__ import annotations

import runpy
import sys

NAMES = (
    "speed",
    "capture",
    "memory_cpu",
    "memory_timm",
    "memory_megatron",
    "analytic",
    "collectives",
    "distributed",
    "gloo",
    "probes",
    "repeatability",
    "design",
    "calibrate",
    "many_devices",
    "new_devices",
    "neusight_operators",
    "ablation",
    "scaledl",
    "worst",
    "learned_jobs",
    "typical_jobs",
    "schedule",
    "lengths",
    "schedule_speed",
)


def main() -> None:
    """Run what was named, or everything."""
    chosen = sys.argv[1:] or list(NAMES)
    sys.argv = sys.argv[:1]
    for name in chosen:
        print(f"== {name}", flush=True)
        try:
            runpy.run_module(f"benchmarks.{name}", run_name="__main__")
        except SystemExit as stop:
            print(stop)


if __name__ == "__main__":
    main()
