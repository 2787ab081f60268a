"""What a schedule was worth, worked out from what happened alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.graph.graph import Floats, Ints
from foretell.schedule.history import History
from foretell.schedule.pool import PoolSpec
from foretell.schedule.trace import NONE, Trace

_SHORT_S = 10.0
"""Jobs count as at least so long when their slowdown is worked out, as is usual."""
_SIZES = ((1, 1), (2, 4), (5, 8), (9, 16), (17, 64), (65, 10**9))
"""Classes of devices."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """How every job fared, in the order of the trace."""

    jct_s: Floats
    """From arrival to end."""
    wait_s: Floats
    """Of it, without devices."""
    held_s: Floats
    """With devices."""
    needed_s: Floats
    """On the fewest servers, uninterrupted."""
    starts: Ints
    """How often it was given devices."""
    late: np.ndarray
    """Whether it missed a deadline."""

    @property
    def slowdown(self) -> Floats:
        """How many times as long as alone."""
        found: Floats = np.maximum(1.0, self.jct_s / np.maximum(self.needed_s, _SHORT_S))
        return found


def outcome_of(trace: Trace, history: History, needed_s: Floats) -> Outcome:
    """From a finished schedule; `needed_s` is how long each job takes on the fewest servers."""
    count = len(trace)
    job = np.frombuffer(history.run_job, dtype=np.int64)
    took_s = np.frombuffer(history.run_end_s) - np.frombuffer(history.run_start_s)
    end_s = np.full(count, np.nan)
    end_s[np.frombuffer(history.end_job, dtype=np.int64)] = np.frombuffer(history.end_s)
    held_s: Floats = np.bincount(job, took_s, count).astype(np.float64)
    jct_s = end_s - trace.arrival_s
    return Outcome(
        jct_s=jct_s,
        wait_s=np.maximum(0.0, jct_s - held_s),
        held_s=held_s,
        needed_s=needed_s,
        starts=np.bincount(job, minlength=count),
        late=end_s > trace.deadline_s,
    )


def measures(
    trace: Trace, history: History, outcome: Outcome, pools: Sequence[PoolSpec]
) -> dict[str, float | None]:
    """The numbers policies are compared by."""
    start_s, end_s = float(trace.arrival_s[0]), float(max(history.end_s))
    span_s = end_s - start_s
    held = float((outcome.held_s * trace.devices).sum())
    useful = float((outcome.needed_s * trace.devices).sum())
    devices = sum(spec.devices for spec in pools)
    has_deadline = np.isfinite(trace.deadline_s)
    arriving_s = float(trace.arrival_s[-1]) - start_s
    return {
        **_spread("jct", outcome.jct_s),
        **_spread("wait", outcome.wait_s),
        "mean_slowdown": float(outcome.slowdown.mean()),
        "p99_slowdown": float(np.quantile(outcome.slowdown, 0.99)),
        "makespan_s": span_s,
        "utilisation": held / (devices * span_s),
        "goodput": useful / (devices * span_s),
        "idle_while_waiting": _idle_while_waiting(usage_of(trace, history), devices),
        "fragmentation": _fragmented(history, pools, span_s),
        "fairness": _jain(_by_user(trace, outcome)),
        "restarts": float((outcome.starts - 1).sum()),
        "missed_deadlines": float(outcome.late[has_deadline].mean())
        if has_deadline.any()
        else None,
        "offered_load": useful / (devices * arriving_s) if arriving_s > 0 else None,
    }


def by_size(trace: Trace, outcome: Outcome) -> list[dict[str, Any]]:
    """Jobs by how many devices they need."""
    found = []
    for low, high in _SIZES:
        mine = (trace.devices >= low) & (trace.devices <= high)
        if mine.any():
            name = str(low) if low == high else f"{low}-{min(high, int(trace.devices.max()))}"
            found.append({"devices": name, **_part(outcome, mine)})
    return found


def by_user(trace: Trace, outcome: Outcome, most: int = 20) -> list[dict[str, Any]]:
    """The users with most jobs."""
    users, counts = np.unique(trace.user, return_counts=True)
    order = np.lexsort((users, -counts))[:most]
    return [
        {
            "user": "" if users[i] == NONE else trace.texts[users[i]],
            **_part(outcome, trace.user == users[i]),
        }
        for i in order
    ]


def _part(outcome: Outcome, mine: np.ndarray) -> dict[str, float]:
    return {
        "jobs": int(mine.sum()),
        "mean_jct_s": float(outcome.jct_s[mine].mean()),
        "p90_jct_s": float(np.quantile(outcome.jct_s[mine], 0.9)),
        "mean_wait_s": float(outcome.wait_s[mine].mean()),
        "mean_slowdown": float(outcome.slowdown[mine].mean()),
    }


def _spread(name: str, values: Floats) -> dict[str, float]:
    p50, p90, p99 = np.quantile(values, (0.5, 0.9, 0.99))
    return {
        f"mean_{name}_s": float(values.mean()),
        f"p50_{name}_s": float(p50),
        f"p90_{name}_s": float(p90),
        f"p99_{name}_s": float(p99),
    }


def _by_user(trace: Trace, outcome: Outcome) -> Floats:
    """Mean slowdown of every user; of every job where users are not known."""
    if (trace.user == NONE).all():
        return outcome.slowdown
    _, user = np.unique(trace.user, return_inverse=True)
    found: Floats = np.bincount(user, outcome.slowdown) / np.bincount(user)
    return found


def _jain(values: Floats) -> float:
    """1 where all fare alike, 1/n where one takes it all."""
    return float(values.sum() ** 2 / (len(values) * np.square(values).sum()))


@dataclass(frozen=True, eq=False)
class Usage:
    """Instants, and how things stood from each to the next."""

    at_s: Floats
    held: Ints
    """Devices that jobs have."""
    waiting: Ints
    """Jobs without devices."""


def usage_of(trace: Trace, history: History) -> Usage:
    """Of the whole cluster."""
    job = np.frombuffer(history.run_job, dtype=np.int64)
    start_s, end_s = np.frombuffer(history.run_start_s), np.frombuffer(history.run_end_s)
    devices = trace.devices[job]
    done_s = np.full(len(trace), np.nan)
    done_s[np.frombuffer(history.end_job, dtype=np.int64)] = np.frombuffer(history.end_s)
    stopped_s = end_s[end_s < done_s[job]]
    moments = (
        (trace.arrival_s, 0, 1),
        (start_s, devices, -1),
        (end_s, -devices, 0),
        (stopped_s, 0, 1),
    )
    at_s, where = np.unique(np.concatenate([at for at, _, _ in moments]), return_inverse=True)
    changes = np.zeros((2, len(at_s)), dtype=np.int64)
    first = 0
    for at, held, waiting in moments:
        here = where[first : first + len(at)]
        np.add.at(changes[0], here, held)
        np.add.at(changes[1], here, waiting)
        first += len(at)
    held, waiting = changes.cumsum(1)
    return Usage(at_s, held, waiting)


def _idle_while_waiting(usage: Usage, devices: int) -> float:
    """Share of all device-time that was idle although jobs waited."""
    span_s = np.diff(usage.at_s)
    idle = (devices - usage.held[:-1]) * span_s * (usage.waiting[:-1] > 0)
    return float(idle.sum() / (devices * span_s.sum())) if span_s.sum() else 0.0


def _fragmented(history: History, pools: Sequence[PoolSpec], span_s: float) -> float:
    """Share of all device-time that was free on servers with other devices in use."""
    runs = np.repeat(np.arange(len(history.run_job)), np.diff(history.run_first))
    server = np.frombuffer(history.server, dtype=np.int64)
    count = np.frombuffer(history.server_devices, dtype=np.int64)
    at_s = np.concatenate(
        [np.frombuffer(history.run_start_s)[runs], np.frombuffer(history.run_end_s)[runs]]
    )
    where, change = np.tile(server, 2), np.concatenate([count, -count])
    order = np.lexsort((at_s, where))
    at_s, where = at_s[order], where[order]
    used = np.cumsum(change[order])[:-1]  # every server ends empty, so they do not add up
    whole = np.repeat([p.devices_per_server for p in pools], [p.servers for p in pools])
    lasts_s = np.diff(at_s) * (where[1:] == where[:-1])
    free = np.where(used > 0, whole[where[:-1]] - used, 0)
    return float((free * lasts_s).sum() / (whole.sum() * span_s)) if span_s else 0.0
