"""Policies x loads x seeds, side by side in processes or on a Ray cluster."""

from __future__ import annotations

import dataclasses
import itertools
import multiprocessing
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from foretell.errors import InputError, MissingExtraError, UnknownNameError
from foretell.schedule.forecast import forecast_rows
from foretell.schedule.generate import PREFIX, Recipe, rows_generated
from foretell.schedule.log import trace_of
from foretell.schedule.play import Played, Setup, check_policy, play
from foretell.schedule.readers import Left, Row, read_log
from foretell.schedule.trace import Trace

ENGINES = ("processes", "ray")


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where jobs come from: a log, or a recipe for generating them."""

    text: str
    log_format: str | None = None
    unit_s: float = 1.0
    most: int | None = None
    """Jobs of the log that count, the first ones."""
    drop_larger: bool = False
    """Whether jobs that fit no pool are left out."""

    @property
    def is_generated(self) -> bool:
        """Whether it is a recipe."""
        return self.text.startswith(PREFIX)

    def rows(self, devices: int, seed: int) -> tuple[list[Row], list[Left]]:
        """Jobs for a cluster of so many devices, and lines of the log that are none."""
        if self.is_generated:
            recipe = Recipe.parse(self.text.removeprefix(PREFIX))
            return rows_generated(recipe, devices, seed)[: self.most], []
        rows, left = _read(self)
        return rows[: self.most], left


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to compare."""

    source: Source
    setup: Setup
    policies: tuple[str, ...]
    loads: tuple[float, ...] = (1.0,)
    seeds: int = 1
    traffic: str = "none"

    def __post_init__(self) -> None:
        if not self.policies:
            raise InputError("no policy was named: give at least one")
        for name in self.policies:
            check_policy(name)
        if self.seeds < 1:
            raise InputError(f"seeds={self.seeds} plays nothing: use 1 or more")

    def runs(self) -> list[Run]:
        """All of them."""
        ways = itertools.product(self.loads, range(self.seeds), self.policies)
        return [Run(policy, load, seed) for load, seed, policy in ways]

    def forecast(self, tell: Tell) -> None:
        """Forecast the jobs of a log that say what they train; traces do not have to, then."""
        if not self.source.is_generated:
            forecast_rows(self.source.rows(0, 0)[0], self.setup.pools, tell)

    def trace(self, load: float, seed: int) -> tuple[Trace, list[Left]]:
        """The jobs of a run, and lines of the log that are none; the last one is kept."""
        return _trace(self, load, seed if self.source.is_generated else 0)


@dataclass(frozen=True)
class Run:
    """One of the things to play."""

    policy: str
    load: float
    seed: int


@dataclass(frozen=True, eq=False)
class Result:
    """What came of a run."""

    run: Run
    played: Played
    tables: Mapping[str, list[dict[str, Any]]]
    """Some of the jobs, by what they have in common."""


Tell = Callable[[float], None]
"""What share of everything is done."""


def sweep(
    plan: Plan, *, workers: int | None = None, engine: str = "processes", tell: Tell
) -> Iterator[Result]:
    """Every run, in order; many at once if there are many."""
    if engine not in ENGINES:
        raise UnknownNameError("engine", engine, ENGINES, f"use one of {', '.join(ENGINES)}")
    runs = plan.runs()
    many = min(workers or os.cpu_count() or 1, len(runs))
    if engine == "ray":
        yield from _on_ray(plan, runs, tell)
    elif many < 2:
        for number, run in enumerate(runs):
            yield _played(plan, run, _part_of(tell, number, len(runs)))
    else:
        with multiprocessing.get_context("spawn").Pool(many) as pool:
            tasks = [(plan, run) for run in runs]
            for number, result in enumerate(pool.imap(_apart, tasks)):
                tell((number + 1) / len(runs))
                yield result


def _part_of(tell: Tell, number: int, count: int) -> Tell:
    return lambda share: tell((number + share) / count)


def _played(plan: Plan, run: Run, tell: Tell) -> Result:
    trace = plan.trace(run.load, run.seed)[0]
    setup = dataclasses.replace(plan.setup, seed=run.seed)
    found = play(trace, run.policy, setup, tell=tell)
    return Result(run, found, found.tables(trace))


def _apart(task: tuple[Plan, Run]) -> Result:
    """In a process of its own."""
    return _played(*task, tell=lambda share: None)


@lru_cache(maxsize=1)
def _read(source: Source) -> tuple[list[Row], list[Left]]:
    return read_log(Path(source.text), source.log_format, source.unit_s)


@lru_cache(maxsize=1)
def _trace(plan: Plan, load: float, seed: int) -> tuple[Trace, list[Left]]:
    devices = sum(spec.devices for spec in plan.setup.pools)
    rows, left = plan.source.rows(devices, seed)
    if plan.source.drop_larger:
        most = max(spec.devices for spec in plan.setup.pools)
        large = [row for row in rows if row.devices > most]
        left = [
            *left,
            *(Left(row.line, f"needs {row.devices} devices", malformed=False) for row in large),
        ]
        rows = [row for row in rows if row.devices <= most]
    rows, cannot = forecast_rows(rows, plan.setup.pools)
    if not rows:
        raise InputError(
            f"no job of {plan.source.text!r} can run on the cluster; line {cannot[0].line}: "
            f"{cannot[0].reason}"
        )
    left = [*left, *cannot]
    return trace_of(rows, plan.setup.pools, plan.traffic, load), left


def _on_ray(plan: Plan, runs: Sequence[Run], tell: Tell) -> Iterator[Result]:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("--engine ray", "ray") from error
    started = not ray.is_initialized()
    if started:
        ray.init(log_to_driver=False, include_dashboard=False)
    try:
        remote = ray.remote(_apart)
        waiting = [remote.remote((plan, run)) for run in runs]
        for number, each in enumerate(waiting):
            yield ray.get(each)
            tell((number + 1) / len(runs))
    finally:
        if started:
            ray.shutdown()


def summary(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row per policy and load: means over seeds, and how far these differ."""
    found: dict[tuple[str, float], list[Result]] = {}
    for result in results:
        found.setdefault((result.run.policy, result.run.load), []).append(result)
    rows = []
    for (policy, load), mine in found.items():
        row: dict[str, Any] = {"policy": policy, "load": load, "seeds": len(mine)}
        for name in mine[0].played.measures:
            values = [v for r in mine if (v := r.played.measures[name]) is not None]
            row[name] = float(np.mean(values)) if values else None
        if len(mine) == 1:
            row |= mine[0].tables
        else:
            means = [float(r.played.outcome.jct_s.mean()) for r in mine]
            row["std_jct_s"] = float(np.std(means, ddof=1))
        rows.append(row)
    return rows
