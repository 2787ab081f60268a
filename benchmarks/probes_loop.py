"""A training loop to be watched: runs blocks of steps in a process and sees who else is at work."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from foretell.measure import Series, UsageSampler

_BLOCK_S = 0.1
_LONG_BLOCKS = 50
_LOOK_S = 0.5
_QUIET = 0.1
"""Cores that others may use beyond those the loop leaves free."""
_BUSY = ("user", "nice", "system", "irq", "softirq", "interrupt", "dpc", "steal")
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Block:
    """Seconds per step, and what others did meanwhile."""

    wall_s: float
    cpu_s: float
    others: float
    """Cores in use by neither the loop nor the sampler."""


class Loop:
    """A training loop in a process; ended on exit."""

    def __init__(self, model: str, threads: int) -> None:
        paths = (str(_ROOT / "src"), str(_ROOT), os.environ.get("PYTHONPATH", ""))
        self.threads = threads
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.probes_worker", model, str(threads)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            cwd=_ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._line()
        self.quiet = (os.cpu_count() or 1) - threads + _QUIET
        self.steps = 10
        self.steps = max(1, round(_BLOCK_S / self.block(None).wall_s))

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def block(self, sampler: UsageSampler | None) -> Block:
        """A block of steps, watched by a sampler or by none."""
        if sampler is not None:
            sampler.start([self.process.pid], threads=self.threads)
        machine_s = _machine_busy_s()
        wall_s, cpu_s = self._run(self.steps)
        machine_s = _machine_busy_s() - machine_s
        sampler_s = sampler.stop().sampler_cpu_s if sampler is not None else 0.0
        others = (machine_s - cpu_s - sampler_s) / wall_s
        return Block(wall_s / self.steps, cpu_s / self.steps, others)

    def series(self, sampler: UsageSampler) -> Series:
        """What a sampler sees of many steps."""
        sampler.start([self.process.pid], threads=self.threads)
        self._run(_LONG_BLOCKS * self.steps)
        return sampler.stop()

    def _run(self, steps: int) -> tuple[float, float]:
        assert self.process.stdin is not None
        print(steps, file=self.process.stdin, flush=True)
        took = json.loads(self._line())
        return took["wall_s"], took["cpu_s"]

    def wait_for_quiet(self, until: float) -> None:
        """Until others leave enough cores free, or until that moment."""
        busy_s = math.inf
        while busy_s > self.quiet * _LOOK_S and time.monotonic() < until:
            before_s = _machine_busy_s()
            time.sleep(_LOOK_S)
            busy_s = _machine_busy_s() - before_s

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("the training loop has ended by itself")
        return line


def _machine_busy_s() -> float:
    """Seconds all cores together have worked since the machine came up."""
    times = psutil.cpu_times()._asdict()
    return float(sum(times.get(name, 0.0) for name in _BUSY))
