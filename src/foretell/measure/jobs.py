"""From what a user names to jobs: models, batches, processes and hosts in every combination."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from foretell.api import Case, predict_case, workload_of
from foretell.data import Record
from foretell.errors import CannotError, InputError
from foretell.graph.sources import check_reference
from foretell.graph.sources.op_sweep import sweep_ops
from foretell.measure.collectives import COLLECTIVES, SIZES_BYTES
from foretell.measure.runner import Job
from foretell.measure.task import Task
from foretell.measure.world import World, parse_hosts

_NOT_HERE = ("cluster", "predictor")
_LONGEST_OPERATOR_S = 0.5


def worlds(nproc: Sequence[int], hosts: Sequence[str], threads: int) -> list[World]:
    """Every number of processes on every choice of hosts."""
    return [
        World(processes=n, threads=threads, **parse_hosts(h))
        for h, n in itertools.product(hosts, nproc)
    ]


def workload_jobs(
    models: Sequence[str],
    batches: Sequence[int | None],
    chosen: Sequence[World],
    options: Mapping[str, Any],
    task: Task,
) -> list[Job]:
    """Every model at every batch in every world."""
    return [
        job(_without_none({**options, "model": model, "batch": batch}), world, task)
        for world, model, batch in itertools.product(chosen, models, batches)
    ]


def check_models(jobs: Iterable[Job]) -> None:
    """Refuse models that do not exist before processes are started for them."""
    first = {str(j.task.options["model"]): j for j in jobs}
    for wanted in first.values():
        case = Case.from_mapping({**wanted.task.options, "cluster": wanted.world.cluster})
        with contextlib.suppress(CannotError):  # the record will say why
            workload_of(case)


def case_jobs(path: Path, chosen: Sequence[World], task: Task) -> list[Job]:
    """The cases of a file, one JSON object a line, in every world."""
    found = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"case file {str(path)!r} cannot be read: {reason}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            options = json.loads(line)
            if not isinstance(options, dict):
                raise InputError("a case is a JSON object")
            plain = {k: v for k, v in options.items() if k not in _NOT_HERE}
            found += [job(plain, world, task) for world in chosen]
        except (ValueError, InputError) as error:
            raise InputError(f"case file {str(path)!r}, line {number}: {error}") from error
    if not found:
        raise InputError(f"case file {str(path)!r} is empty: write one JSON object per line")
    return found


def collective_jobs(chosen: Sequence[World], task: Task) -> list[Job]:
    """Every collective over all sizes, in every world with more than one process."""
    several = [w for w in chosen if w.total > 1]
    if not several:
        raise InputError("collectives need at least two processes: give --nproc 2")
    return [
        Job(
            dataclasses.replace(
                task, options={"model": f"collective:{name}", "sizes": SIZES_BYTES}
            ),
            w,
        )
        for w, name in itertools.product(several, COLLECTIVES)
    ]


def operator_jobs(chosen: Sequence[World], task: Task) -> list[Job]:
    """Single operators over their usual sizes, in every world; without those that take long."""
    found = []
    for world in chosen:
        jobs = [job({"model": m, "batch": b}, world, task) for m, b in sweep_ops()]
        found += [j for j in jobs if _expected_s(j) <= _LONGEST_OPERATOR_S]
    return found


def _expected_s(wanted: Job) -> float:
    case = Case.from_mapping({**wanted.task.options, "cluster": wanted.world.cluster})
    return predict_case(case).step_time_s.value


def job(options: Mapping[str, Any], world: World, task: Task) -> Job:
    """One workload in one world, its options checked."""
    case = Case.from_mapping({**options, "cluster": world.cluster})
    check_reference(case.model)
    batch = case.recipe(world.total).batch
    kept = {k: v for k, v in options.items() if k not in _NOT_HERE}
    return Job(dataclasses.replace(task, options={**kept, "batch": batch}), world)


def not_yet_measured(jobs: Iterable[Job], records: Iterable[Record]) -> list[Job]:
    """Jobs of which the store has no record from this kind of machine.

    Crashes and endless runs may have had reasons outside the workload: those are tried again.
    """
    known = {
        _key(r.model, r.cluster, r.batch, r.options, _name(r))
        for r in records
        if r.outcome not in ("crashed", "timed-out")
    }
    return [
        j
        for j in jobs
        if _key(
            str(j.task.options["model"]),
            j.world.cluster,
            j.task.options.get("batch"),
            {k: v for k, v in j.task.options.items() if k not in ("model", "batch", "sizes")},
            j.world.device.name,
        )
        not in known
    ]


def _key(
    model: str, cluster: str, batch: object, options: Mapping[str, Any], device: str
) -> tuple[object, ...]:
    relevant = {} if model.startswith("collective:") else options
    return model, cluster, batch, json.dumps(relevant, sort_keys=True), device


def _name(record: Record) -> str:
    return str(record.environment.get("device", {}).get("name", ""))


def _without_none(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
