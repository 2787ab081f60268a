"""Running jobs come together on few servers where that is worth the restarts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from foretell.schedule.history import History
from foretell.schedule.policies.a_srpt import ASrpt
from foretell.schedule.simulator import Rules
from foretell.schedule.trace import Trace
from tests.schedule.makers import ends_of, play, pool, trace_of

TALKS = 40e9
"""Bytes of gradients that make iterations on two servers nine seconds, on one 1.8."""
SERVERS = [pool(2, 4)]
# Two jobs of three devices leave one on each server, where the third has to go.
APART = [(0.0, 3, 1000.0), (0.0, 3, 40_000.0), (1.0, 2, 10_000.0)]


def servers_of(history: History, job: int) -> list[list[int]]:
    """The servers of every run of a job."""
    first = history.run_first
    return [
        list(history.server[first[run] : first[run + 1]])
        for run, whose in enumerate(history.run_job)
        if whose == job
    ]


def run(trace: Trace, restart_s: float = 60.0) -> History:
    return play(trace, SERVERS, ASrpt(), Rules(restart_s=restart_s))


def test_a_job_moves_once_others_leave_room_on_one_server() -> None:
    history = run(trace_of(APART, TALKS))
    spread, together = servers_of(history, 2)
    assert len(spread) == 2
    assert len(together) == 1


def test_it_ends_much_earlier_for_it() -> None:
    trace = trace_of(APART, TALKS)
    fixed = dataclasses.replace(trace, preemptible=np.zeros(3, dtype=np.bool_))
    moved_s, stays_s = ends_of(run(trace))[2], ends_of(run(fixed))[2]
    assert len(servers_of(run(fixed), 2)) == 1
    assert moved_s < stays_s / 2


def test_nobody_moves_for_less_than_the_restarts_cost() -> None:
    moves = [len(servers_of(run(trace_of(APART, TALKS), s), 2)) - 1 for s in (60.0, 1e6)]
    assert moves == [1, 0]


def test_jobs_that_tell_each_other_nothing_stay_where_they_are() -> None:
    history = run(trace_of(APART))
    assert [len(servers_of(history, job)) for job in range(3)] == [1, 1, 1]


# Ones, every other of which soon ends: two devices are free on each server then.
ONES = [(float(i), 1, 400.0 if i % 2 else 50_000.0) for i in range(8)]


def test_small_jobs_make_way_for_a_large_one_and_go_on_elsewhere() -> None:
    trace = trace_of([*ONES, (500.0, 4, 20_000.0)], TALKS)
    history = run(trace)
    assert [len(servers) for servers in servers_of(history, 8)] == [1]
    moved = [job for job in range(8) if len(servers_of(history, job)) > 1]
    assert len(moved) == 2
    # It costs those who moved a restart each, and no more.
    waited_s = np.array(ends_of(history)) - trace.arrival_s - trace.iterations
    assert waited_s[moved] == pytest.approx([60.0, 60.0])


def test_who_has_just_begun_makes_no_way() -> None:
    late = [(450.0 + i, 1, 50_000.0) for i in range(4)]
    trace = trace_of([*ONES, *late, (500.0, 4, 20_000.0)], TALKS)
    history = run(trace)
    for job in range(8, 12):
        begun = next(i for i, whose in enumerate(history.run_job) if whose == job)
        assert history.run_end_s[begun] - history.run_start_s[begun] >= 300.0
