"""What several processes do to each other, from collectives and from steps they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from foretell.api import cluster_of
from foretell.cluster import Cluster, Device, Link
from foretell.comm import Collective
from foretell.comm import Constants as CommConstants
from foretell.comm.fit import CollectiveTime, fit_link
from foretell.data import Record
from foretell.design.known import Run
from foretell.graph.graph import Floats
from foretell.parallel import OpTimes, Placed, place, run_step
from foretell.predictors.analytic.constants import Together
from foretell.workload import Workload

_FITTED = ("slowdown", "contention", "exchange_factor")
_USUAL = np.log([1.05, 0.3, 1.2])
_DOUBT = np.array([0.15, 0.7, 0.4])
"""Where each starts, and how far it may well be from there, as logarithms."""
_NOISE = 0.1
_TURNS = 12
_MOVE = 1e-2


@dataclass(frozen=True, eq=False)
class SharedFit:
    """Constants of processes together, and what they were fitted on."""

    constants: Together
    collectives: int
    ratios: Floats
    """Predicted over measured of every step."""


class TimesOperators(Protocol):
    """A predictor that says how long each operator takes."""

    def op_times(self, workload: Workload, device: Device) -> OpTimes:
        """Of the step on one device, in execution order."""
        ...


def fit_together(
    predictor: TimesOperators,
    device: Device,
    runs: Sequence[Run],
    records: Sequence[Record],
    copy_bytes_per_s: float,
) -> SharedFit | None:
    """How processes of the device do together; None where nothing of the kind was measured."""
    times = _collectives(device, records)
    links = {link.id: fit_link(rows, link, device, ranks) for (link, ranks), rows in times.items()}
    if not links and not runs:
        return None
    start = Together(links=CommConstants(links=links), copy_bytes_per_s=copy_bytes_per_s)
    steps = [_alone(r, predictor) for r in runs]
    measured_s = np.array([r.time_s for r in runs])
    constants = _fitted(steps, np.log(measured_s), start)
    predicted_s = np.array([_step_s(step, constants) for step in steps])
    return SharedFit(constants, sum(map(len, times.values())), predicted_s / measured_s)


def _collectives(
    device: Device, records: Sequence[Record]
) -> dict[tuple[Link, int], list[CollectiveTime]]:
    """Measured collectives by the link they went over and how many took part."""
    found: dict[tuple[Link, int], list[CollectiveTime]] = {}
    for record in records:
        if record.kind != "collective" or not record.ok or record.device != device.id:
            continue
        name = record.model.partition(":")[2]
        if record.time_s is None or name not in {c.value for c in Collective}:
            continue
        kind = Collective(name)
        # The worker sends there and back.
        passes = 2 if kind is Collective.SEND_RECV else 1
        time = CollectiveTime(kind, float(record.options["nbytes"]), record.time_s / passes)
        link = _link_of(cluster_of(record.cluster))
        found.setdefault((link, record.devices), []).append(time)
    return found


def _link_of(cluster: Cluster) -> Link:
    group = cluster.groups[0]
    return group.network_link if cluster.total_nodes > 1 else group.gpu_link


@dataclass(frozen=True, eq=False)
class _Alone:
    """A step laid out on its devices, with the times of operators when nobody else computes."""

    placed: Placed
    times: OpTimes


def _alone(run: Run, predictor: TimesOperators) -> _Alone:
    workload, cluster = run.job
    placed = place(workload, cluster)
    return _Alone(placed, predictor.op_times(placed.local, cluster.devices[0]))


def _step_s(alone: _Alone, together: Together) -> float:
    return run_step(alone.placed, together.applied(alone.times), together.all_links()).step_s


def _fitted(steps: Sequence[_Alone], measured: Floats, start: Together) -> Together:
    """Gauss and Newton on the logarithms of three numbers, drawn to what is usual."""

    def with_logs(logs: Floats) -> Together:
        named = dict(zip(_FITTED, np.exp(logs).tolist(), strict=True))
        return dataclasses.replace(start, **named)

    def off(logs: Floats) -> Floats:
        together = with_logs(logs)
        predicted: Floats = np.log([_step_s(step, together) for step in steps])
        return predicted - measured

    logs = _USUAL.copy()
    for _ in range(_TURNS if len(steps) else 0):
        errors = off(logs)
        slopes = np.column_stack(
            [(off(logs + _MOVE * unit) - errors) / _MOVE for unit in np.eye(len(logs))]
        )
        weight = 1 / np.maximum(np.abs(errors) / _NOISE, 1) / _NOISE**2
        curvature = (slopes * weight[:, None]).T @ slopes + np.diag(_DOUBT**-2.0)
        gradient = slopes.T @ (weight * errors) + (logs - _USUAL) / _DOUBT**2
        step = np.clip(-np.linalg.solve(curvature, gradient), -0.5, 0.5)
        logs = logs + step
        if np.abs(step).max() < _MOVE:
            break
    return with_logs(logs)
