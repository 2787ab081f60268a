"""Answers of a crew as records of the store."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

import numpy as np

from foretell.data import Record
from foretell.measure.bursts import resources
from foretell.measure.series import Series
from foretell.measure.statistics import fast_half, steady_from, summarise
from foretell.measure.task import Answer, Task
from foretell.measure.world import World

_NAMED = ("model", "batch", "cluster")
_PHASES = ("forward_s", "backward_s", "optimizer_s")


def record_of(
    task: Task, world: World, answers: Sequence[Answer], environment: dict[str, Any]
) -> Record:
    """One record of all rounds of a workload; a round that failed speaks for all."""
    failed = next((a for a in answers if a.outcome != "ok"), None)
    common = _where(task, world, environment)
    if failed is not None:
        spent = {"spent_s": sum(a.spent_s for a in answers)}
        return Record(**common, outcome=failed.outcome, reason=failed.reason, metrics=spent)
    rounds = [a.step_s[steady_from(a.step_s) :] for a in answers]
    samples = [s for steady in rounds for s in steady]
    summary = summarise(samples)
    phases = [a.phase_s for a in answers if a.phase_s]
    memory = {n: max(a.memory.get(n, 0.0) for a in answers) for a in answers for n in a.memory}
    metrics = {
        "fast_half_s": fast_half(samples),
        "mean_s": float(np.mean(samples)),
        "reference_s": float(np.median([a.reference_s for a in answers])),
        "rounds": float(len(answers)),
        "round_spread": float(np.ptp([np.median(r) for r in rounds]) / summary.centre_s),
        "spent_s": sum(a.spent_s for a in answers),
        **_operators(answers[-1]),
    }
    return Record(
        **common,
        time_s=summary.centre_s,
        time_low_s=summary.low_s,
        time_high_s=summary.high_s,
        samples=summary.samples,
        **(dict(zip(_PHASES, np.median(phases, axis=0).tolist(), strict=True)) if phases else {}),
        allocated_bytes=memory.get("allocated_bytes"),
        resident_bytes=memory.get("resident_bytes"),
        sent_bytes=float(np.median([a.sent_bytes for a in answers])) if world.total > 1 else None,
        resources=_resources(answers),
        metrics=metrics,
    )


def _operators(answer: Answer) -> dict[str, float]:
    """Seconds per step of every kind of operator, where it was profiled."""
    found: dict[str, float] = {}
    for row in answer.operators:
        name = f"{row['operator']}_op_s"
        found[name] = found.get(name, 0.0) + row["calls"] * row["seconds"]
    return found


def _resources(answers: Sequence[Answer]) -> tuple[float, ...]:
    """Means over rounds of the twelve numbers; empty when usage was not watched."""
    rounds = [resources(Series.from_dict(a.series)) for a in answers if a.series]
    return tuple(np.mean(rounds, axis=0).tolist()) if rounds else ()


def collective_records(
    task: Task, world: World, answer: Answer, environment: dict[str, Any]
) -> list[Record]:
    """One record per size of a collective."""
    common = _where(task, world, environment) | {"kind": "collective"}
    if answer.outcome != "ok":
        return [Record(**common, outcome=answer.outcome, reason=answer.reason)]
    found = []
    for row in answer.rows:
        summary = summarise(row["seconds"])
        found.append(
            Record(
                **{**common, "options": {"nbytes": row["nbytes"], "dtype": "float32"}},
                time_s=summary.centre_s,
                time_low_s=summary.low_s,
                time_high_s=summary.high_s,
                samples=summary.samples,
                metrics={"spent_s": answer.spent_s / len(answer.rows)},
            )
        )
    return found


def _where(task: Task, world: World, environment: dict[str, Any]) -> dict[str, Any]:
    options = {k: v for k, v in task.options.items() if k not in _NAMED}
    model = str(task.options["model"])
    return {
        "kind": "operator" if model.startswith("op:") else "step",
        "model": model,
        "batch": task.options.get("batch"),
        "cluster": world.cluster,
        "device": world.device.id,
        "devices": world.total,
        "nodes": world.nodes,
        "options": options,
        "group": model,
        "source": "foretell",
        "environment": environment | _network(world),
        "taken_at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def _network(world: World) -> dict[str, Any]:
    if world.total == 1:
        return {}
    if world.namespaces:
        return {"network": "namespaces", "network_bits_per_s": world.bits_per_s}
    return {"network": "ssh" if world.hosts else "loopback"}
