"""Schedules are valid whatever the policy, and exact where they can be worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.errors import InputError
from foretell.schedule import policies
from foretell.schedule.heavy_edge import heavy_edge
from foretell.schedule.history import History
from foretell.schedule.job import Policy
from foretell.schedule.pace import pace_of
from foretell.schedule.placement import Placement
from foretell.schedule.policies.a_srpt import ASrpt
from foretell.schedule.policies.a_srpt_strict import StrictASrpt
from foretell.schedule.policies.fifo import Fifo
from foretell.schedule.simulator import Outage, Rules, Simulation
from foretell.schedule.sizes import Oracle
from foretell.schedule.trace import Trace
from tests.schedule.makers import WIRES, ends_of, play, pool, trace_of, traces


def restless() -> Policy:
    """Stops and moves jobs as soon as it is worth it."""
    return ASrpt(least_turn_s=0.0)


POLICIES = [*policies.POLICIES.values(), restless]


def check_schedule(trace: Trace, history: History, servers: int, each: int) -> None:
    """No device twice, gangs whole, nobody before their arrival, all done."""
    assert sorted(history.end_job) == list(range(len(trace)))
    changes: list[tuple[float, int, int, int]] = []
    for run, job in enumerate(history.run_job):
        first, last = history.run_first[run], history.run_first[run + 1]
        start_s, end_s = history.run_start_s[run], history.run_end_s[run]
        assert start_s >= trace.arrival_s[job]
        assert end_s >= start_s
        assert sum(history.server_devices[first:last]) == trace.devices[job]
        for at in range(first, last):
            server, count = history.server[at], history.server_devices[at]
            changes += [(end_s, 0, server, -count), (start_s, 1, server, count)]
    used = [0] * servers
    for _, _, server, count in sorted(changes):
        used[server] += count
        assert used[server] <= each


@pytest.mark.parametrize("policy", POLICIES)
@given(trace=traces(), contention=st.booleans())
@settings(max_examples=40, deadline=None)
def test_every_schedule_is_valid(
    policy: Callable[[], Policy], trace: Trace, contention: bool
) -> None:
    history = play(trace, [pool(4, 3)], policy(), Rules(contention=contention))
    check_schedule(trace, history, servers=4, each=3)


@pytest.mark.parametrize("policy", POLICIES)
@given(trace=traces())
@settings(max_examples=25, deadline=None)
def test_all_work_is_done_once_however_often_a_job_is_stopped(
    policy: Callable[[], Policy], trace: Trace
) -> None:
    restart_s = 3.0
    history = play(trace, [pool(4, 3)], policy(), Rules(restart_s=restart_s))
    done = np.zeros(len(trace))
    for run, job in enumerate(history.run_job):
        took_s = history.run_end_s[run] - history.run_start_s[run]
        worked_s = max(0.0, took_s - (restart_s if job in history.run_job[:run] else 0.0))
        shape = trace.shapes[trace.shape[job]]
        room = list(history.server_devices[history.run_first[run] : history.run_first[run + 1]])
        pace = pace_of(shape, heavy_edge(shape, room), WIRES)
        done[job] += worked_s / pace.iteration_s()
    assert done == pytest.approx(trace.iterations)


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_trace_gives_the_same_schedule(policy: Callable[[], Policy]) -> None:
    draw = np.random.default_rng(0)
    jobs = [(float(i), int(n), float(s)) for i, (n, s) in enumerate(draw.integers(1, 9, (200, 2)))]
    trace = trace_of(jobs, parameter_bytes=1e9)
    one, other = (play(trace, [pool(3, 4)], policy()) for _ in range(2))
    for column in vars(one):
        assert getattr(one, column) == getattr(other, column)


def test_fifo_lets_nobody_pass() -> None:
    """Two devices: the second job needs both and waits for the first; the third waits behind it."""
    trace = trace_of([(0.0, 1, 10.0), (1.0, 2, 5.0), (2.0, 1, 1.0)])
    assert ends_of(play(trace, [pool(1, 2)], Fifo())) == [10.0, 15.0, 16.0]


def test_two_jobs_at_one_port_take_turns() -> None:
    """Each spans both servers: alone an iteration takes 1 + 0.2 s, together 1 + 0.4 s."""
    trace = trace_of([(0.0, 2, 10.0), (6.0, 2, 10.0)], parameter_bytes=2e9)
    pools = [pool(2, 2)]
    apart = play(trace, pools, Fifo(), Rules(contention=True), way="spread")
    # Five iterations alone until 6 s; five of the first beside the second until 13 s; the second
    # has then done five and goes on alone.
    assert ends_of(apart) == pytest.approx([13.0, 19.0])
    alone = play(trace, pools, Fifo(), Rules(contention=False), way="spread")
    assert ends_of(alone) == pytest.approx([12.0, 18.0])


def test_a_failed_server_costs_what_was_not_saved() -> None:
    """Fails after 25 s: 20 s were saved; back at 30 s, 5 s to restart, 80 s to go."""
    rules = Rules(restart_s=5.0, checkpoint_every_s=10.0, outages=(Outage(0, 25.0, 30.0),))
    history = play(trace_of([(0.0, 1, 100.0)]), [pool(1, 1)], Fifo(), rules)
    assert ends_of(history) == [115.0]
    assert list(history.run_start_s) == [0.0, 30.0]


def test_a_job_goes_elsewhere_when_its_server_fails() -> None:
    rules = Rules(restart_s=0.0, checkpoint_every_s=1.0, outages=(Outage(0, 4.5, 1000.0),))
    history = play(trace_of([(0.0, 1, 10.0)]), [pool(2, 1)], Fifo(), rules)
    assert ends_of(history) == [10.5]
    assert list(history.server) == [0, 1]


def test_strict_a_srpt_waits_for_the_virtual_machine() -> None:
    """Two devices, one job on one of them for 10 s: 5 s on the virtual machine, then it starts."""
    history = play(trace_of([(0.0, 1, 10.0)]), [pool(1, 2)], StrictASrpt())
    assert list(history.run_start_s) == [5.0]


def test_a_srpt_starts_the_shorter_job_first() -> None:
    trace = trace_of([(0.0, 1, 2.0), (1.0, 1, 50.0), (1.0, 1, 5.0)])
    assert ends_of(play(trace, [pool(1, 1)], ASrpt())) == [2.0, 57.0, 7.0]


def test_a_job_larger_than_the_cluster_is_refused() -> None:
    trace = trace_of([(0.0, 1, 1.0), (0.0, 9, 1.0)])
    pools = [pool(2, 4)]
    with pytest.raises(InputError, match=r"job '1' needs 9 devices .* has 8"):
        Simulation(trace, pools, Fifo(), Oracle(np.ones(2)), Placement(trace.shapes, pools))


@pytest.mark.parametrize(
    ("jobs", "says"),
    [
        ([], "has no jobs"),
        ([(-1.0, 1, 1.0)], "arrives at -1 s: times must be 0 or more"),
        ([(0.0, 1, 0.0)], "has 0 iterations"),
        ([(5.0, 1, 1.0), (0.0, 1, 1.0)], "in the order of their arrival"),
    ],
)
def test_what_is_no_trace_is_refused(jobs: list[tuple[float, int, float]], says: str) -> None:
    with pytest.raises(InputError, match=says):
        trace_of(jobs)
