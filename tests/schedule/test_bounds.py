"""What policies promise however wrong predictions are."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.schedule.placement import Placement
from foretell.schedule.policies.a_srpt import ASrpt
from foretell.schedule.policies.a_srpt_strict import Patience, StrictASrpt
from foretell.schedule.simulator import Rules, Simulation
from foretell.schedule.sizes import Distorted
from foretell.schedule.trace import Trace
from foretell.schedule.virtual import VirtualMachine
from tests.schedule.makers import ends_of, play, pool, trace_of, traces

NOW = Patience(stretch=float("inf"))


def virtual_ends(trace: Trace, size_s: np.ndarray) -> np.ndarray:
    """When each job is done on the single machine."""
    machine, found = VirtualMachine(), np.full(len(trace), np.nan)

    def until(now_s: float) -> None:
        while machine.next_s() <= now_s:
            at_s = machine.next_s()
            found[machine.advance(at_s)] = at_s
        machine.advance(now_s)

    for number, arrival_s in enumerate(trace.arrival_s.tolist()):
        until(arrival_s)
        machine.add(number, float(size_s[number]), arrival_s)
    until(1e15)
    return found


@settings(max_examples=100, deadline=None)
@given(traces(), st.integers(2, 4), st.floats(0.0, 2.0), st.integers(0, 99))
def test_the_strict_form_keeps_its_bound(
    trace: Trace, servers: int, sigma: float, seed: int
) -> None:
    """Of every job: end <= v + rho eta^2 G / (G - g + 1) v + rho length, v its virtual end.

    Sums over jobs give the bound of the docs: sums of v are at most eta times, and lengths at most
    once, what any schedule needs. eta is by how much predictions are off at most, either way, rho
    by how much a bad place stretches a job.
    """
    pools = [pool(servers, 4)]
    devices = 4 * servers
    placement = Placement(trace.shapes, pools)
    shapes = range(len(trace.shapes))
    least = np.array([placement.least_s(i) for i in shapes])
    rho = max(placement.most_s(i) / least[i] for i in shapes)
    length_s = trace.iterations * least[trace.shape]
    sizes = Distorted(length_s, sigma, seed)
    said_s = np.array(sizes._said_s)
    eta = float(np.maximum(said_s / length_s, length_s / said_s).max())
    rules = Rules(restart_s=0.0)
    simulation = Simulation(trace, pools, StrictASrpt(NOW), sizes, placement, rules)
    end_s = np.array(ends_of(simulation.play()))
    virtual_s = virtual_ends(trace, trace.devices * said_s / devices)
    most = int(trace.devices.max())
    ahead = rho * eta * devices / (devices - most + 1) * virtual_s
    assert (end_s <= (virtual_s + ahead + rho * length_s) * (1 + 1e-9) + 1e-6).all()


def starved(share: float) -> float:
    """When a long job ends among a stream of short ones that always come first."""
    short = [(float(i), 1, 9.0) for i in range(2000)]
    trace = trace_of([(0.0, 1, 500.0), *short])
    policy = ASrpt(share_of_oldest=share, least_turn_s=0.0)
    return ends_of(play(trace, [pool(1, 8)], policy, Rules(restart_s=0.0)))[0]


def test_the_oldest_job_is_served_however_many_shorter_ones_come() -> None:
    """It has at least its share of all device-time, paid ten minutes at a time."""
    for share in (0.125, 0.0625):
        assert starved(share) <= (600.0 + 500.0) / (share * 8) + 1.0
    assert starved(0.0) > 2000.0


@settings(max_examples=50, deadline=None)
@given(traces(), st.floats(0.0, 3.0), st.booleans(), st.integers(0, 9))
def test_whatever_is_predicted_all_jobs_end(
    trace: Trace, sigma: float, inverted: bool, seed: int
) -> None:
    pools = [pool(3, 4)]
    placement = Placement(trace.shapes, pools)
    least = np.array([placement.least_s(i) for i in range(len(trace.shapes))])
    sizes = Distorted(trace.iterations * least[trace.shape], sigma, seed, inverted=inverted)
    history = Simulation(trace, pools, ASrpt(), sizes, placement).play()
    assert sorted(history.end_job) == list(range(len(trace)))
