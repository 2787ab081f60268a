"""Measures of a schedule, worked out again from the list of its runs."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from foretell.schedule.history import History
from foretell.schedule.metrics import by_size, by_user, measures, outcome_of, usage_of
from foretell.schedule.placement import Placement
from foretell.schedule.policies import policy_named
from foretell.schedule.pool import PoolSpec
from foretell.schedule.simulator import Rules
from foretell.schedule.trace import Trace
from tests.schedule.makers import play, pool, trace_of, traces


def runs_of(history: History) -> list[tuple[int, float, float, dict[int, int]]]:
    found = []
    for i, job in enumerate(history.run_job):
        at = range(history.run_first[i], history.run_first[i + 1])
        share = {history.server[k]: history.server_devices[k] for k in at}
        found.append((job, history.run_start_s[i], history.run_end_s[i], share))
    return found


def needed_s(trace: Trace, pools: list[PoolSpec]) -> np.ndarray:
    placement = Placement(trace.shapes, pools)
    least = np.array([placement.least_s(i) for i in range(len(trace.shapes))])
    return trace.iterations * least[trace.shape]


@settings(max_examples=30)
@given(traces())
def test_measures_agree_with_the_list_of_runs(trace: Trace) -> None:
    pools = [pool(3, 4)]
    history = play(trace, pools, policy_named("srtf"), Rules(restart_s=2.0))
    needed = needed_s(trace, pools)
    outcome = outcome_of(trace, history, needed)
    found = measures(trace, history, outcome, pools)
    ends = dict(zip(history.end_job, history.end_s, strict=True))
    jct = [ends[i] - trace.arrival_s[i] for i in range(len(trace))]
    held = [0.0] * len(trace)
    busy = 0.0
    for job, start_s, end_s, share in runs_of(history):
        held[job] += end_s - start_s
        busy += (end_s - start_s) * sum(share.values())
    span_s = max(ends.values()) - trace.arrival_s[0]
    assert found["mean_jct_s"] == pytest.approx(np.mean(jct))
    assert found["mean_wait_s"] == pytest.approx(np.mean(np.array(jct) - held), abs=1e-6)
    assert found["makespan_s"] == pytest.approx(span_s)
    assert found["utilisation"] == pytest.approx(busy / (12 * span_s))
    assert found["fragmentation"] == pytest.approx(_fragmented(history, 3, 4, span_s), abs=1e-9)
    assert found["idle_while_waiting"] == pytest.approx(_idle(trace, history, 12), abs=1e-9)
    slowdown = np.maximum(1.0, np.array(jct) / np.maximum(needed, 10.0))
    assert found["mean_slowdown"] == pytest.approx(slowdown.mean())


def _instants(trace: Trace, history: History) -> list[float]:
    times = {*trace.arrival_s.tolist(), *history.run_start_s, *history.run_end_s}
    return sorted(times)


def _fragmented(history: History, servers: int, each: int, span_s: float) -> float:
    times = sorted({*history.run_start_s, *history.run_end_s})
    total = 0.0
    for begin, end in itertools.pairwise(times):
        used = [0] * servers
        for _, start_s, end_s, share in runs_of(history):
            if start_s <= begin and end_s >= end:
                for server, count in share.items():
                    used[server] += count
        total += (end - begin) * sum(each - n for n in used if n)
    return total / (servers * each * span_s)


def _idle(trace: Trace, history: History, devices: int) -> float:
    ends = dict(zip(history.end_job, history.end_s, strict=True))
    times = _instants(trace, history)
    total = 0.0
    for begin, end in itertools.pairwise(times):
        now = [r for r in runs_of(history) if r[1] <= begin and r[2] >= end]
        there = sum(trace.arrival_s[i] <= begin and ends[i] >= end for i in range(len(trace)))
        if there > len(now):
            total += (end - begin) * (devices - sum(sum(r[3].values()) for r in now))
    return total / (devices * (times[-1] - times[0]))


def test_deadlines_users_and_sizes() -> None:
    trace = trace_of([(0, 1, 100), (0, 2, 100), (0, 1, 50)])
    trace = dataclasses.replace(
        trace,
        user=np.array([0, 1, 0]),
        texts=("ann", "bob"),
        deadline_s=np.array([90.0, 300.0, np.inf]),
    )
    pools = [pool(1, 2)]
    history = play(trace, pools, policy_named("fifo"))
    outcome = outcome_of(trace, history, needed_s(trace, pools))
    found = measures(trace, history, outcome, pools)
    assert found["missed_deadlines"] == 0.5
    assert outcome.jct_s.tolist() == [100.0, 200.0, 250.0]
    assert [(u["user"], u["jobs"], u["mean_jct_s"]) for u in by_user(trace, outcome)] == [
        ("ann", 2, 175.0),
        ("bob", 1, 200.0),
    ]
    assert [(c["devices"], c["jobs"]) for c in by_size(trace, outcome)] == [("1", 2), ("2-2", 1)]
    slowdown = np.array([(1 + 250 / 50) / 2, 2.0])
    assert found["fairness"] == pytest.approx(slowdown.sum() ** 2 / (2 * (slowdown**2).sum()))


def test_usage_counts_devices_and_who_waits() -> None:
    trace = trace_of([(0, 2, 10), (4, 1, 5)])
    usage = usage_of(trace, play(trace, [pool(1, 2)], policy_named("fifo")))
    assert usage.at_s.tolist() == [0.0, 4.0, 10.0, 15.0]
    assert usage.held.tolist() == [2, 2, 1, 0]
    assert usage.waiting.tolist() == [0, 1, 0, 0]
