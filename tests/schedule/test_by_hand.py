"""Schedules worked out on paper.

Jobs are (arrival, devices, seconds); nothing is lost between servers and restarts are free unless a
case says so. "J1 10-15" means that job 1 has its devices from 10 s to 15 s.

fifo          4 devices. J0 takes three for 10 s, J1 wants four: J0 0-10, J1 10-15. J2 fits beside
              J0 but may not pass J1: J2 15-23.
easy, in time The same, but J2 (8 s) would end at 10 s, when J1 can start: J2 2-10. J3 (9 s) finds
              no device at 3 s and waits behind J1: J3 15-24.
easy, late    J2 takes 9 s and would end at 11 s: it waits. J0 0-10, J1 10-15, J2 15-24.
easy, spare   J1 wants only two: at 10 s four are free, two are spare, so J2 may take one however
              long it is. J0 0-10, J1 10-15, J2 2-102.
easy, stated  As "easy, in time", but J2's user states 20 s: it is not let past. J2 15-23.
spjf          2 devices. J1 is shortest and blocks: J0 0-10, J1 10-11, J2 11-14.
wcs-duration  J1 does not fit, J2 does: J0 0-10, J2 2-5, J1 10-11.
spjf/spwf     J0 has both devices until 4 s. J1 is 3 s on two devices, J2 5 s on one. By length J1
              4-7, J2 7-12; by work (6 against 5) J2 4-9, J1 9-12.
wcs-submit    J1 does not fit, J2 does: J0 0-10, J1 10-15, J2 2-3.
srtf          1 device. At 2 s J0 has 8 s left, more than twice J1's 1 s: J0 0-2, J1 2-3, J0 3-11.
              With a restart of 1 s, J0 goes on computing at 4 s: it ends at 12 s.
srtf, near    J1 takes 5 s, J0 has 8 s left, not twice as much: J0 0-10, J1 10-15.
las           1 device, one limit at 5 device-seconds. J0 passes it at 5 s, J1 has had nothing:
              J0 0-5, J1 5-8, J0 8-13.
max-min       2 devices. Two jobs of user 0 run; at 10 s one ends, user 1 has no device: J3 10-20
              before J2 of user 0: J2 20-30.
a-srpt-strict 2 devices. Virtual sizes are 5 s and 2 s: done at 7 s and 2 s. J1 2-6, J0 7-17.
a-srpt        The same: both devices are free, both start. J0 0-10, J1 0-4.
a-srpt, turn  2 devices. J0 0-10 on one. J1 wants both for 2 s; J0 has 9 s left, more than three
              times as much, but has just begun (turns last 300 s). J2 4-7, J3 (20 s) 7-27 pass,
              as nothing is kept for J1: J1 27-29.
a-srpt, stop  The same without turns: J1 stops J0: J1 1-3, J0 goes on 3-12, J2 4-7, J3 7-27.
a-srpt-whole  The same, nobody is stopped: J1's virtual size is 2 s, before J0's rest, so its turn
              comes at 3 s and both devices are kept for it at 10 s. J2 ends in time: J2 4-7. J3
              would not: J1 10-12, J3 12-32.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from foretell.schedule.job import Policy
from foretell.schedule.policies import policy_named
from foretell.schedule.policies.a_srpt import ASrpt
from foretell.schedule.policies.las import LeastAttained
from foretell.schedule.simulator import Rules
from tests.schedule.makers import ends_of, play, pool, trace_of

Jobs = list[tuple[float, int, float]]
WAITS: Jobs = [(0, 3, 10), (1, 4, 5), (2, 1, 8)]
SHORT: Jobs = [(0, 1, 10), (1, 2, 1), (2, 1, 3)]
WIDE: Jobs = [(0, 2, 4), (1, 2, 3), (1, 1, 5)]
TURN: Jobs = [(0, 1, 10), (1, 2, 2), (4, 1, 3), (5, 1, 20)]
PAIR: Jobs = [(0, 1, 10), (0, 1, 4)]


def ends(policy: Policy, devices: int, jobs: Jobs, restart_s: float = 0.0) -> list[float]:
    return ends_of(play(trace_of(jobs), [pool(1, devices)], policy, Rules(restart_s=restart_s)))


@pytest.mark.parametrize(
    ("policy", "devices", "jobs", "expected"),
    [
        ("fifo", 4, WAITS, [10, 15, 23]),
        ("easy", 4, [*WAITS, (3, 1, 9)], [10, 15, 10, 24]),
        ("easy", 4, [*WAITS[:2], (2, 1, 9)], [10, 15, 24]),
        ("easy", 4, [(0, 3, 10), (1, 2, 5), (2, 1, 100)], [10, 15, 102]),
        ("spjf", 2, SHORT, [10, 11, 14]),
        ("wcs-duration", 2, SHORT, [10, 11, 5]),
        ("spjf", 2, WIDE, [4, 7, 12]),
        ("spwf", 2, WIDE, [4, 12, 9]),
        ("wcs-submit", 2, [(0, 1, 10), (1, 2, 5), (2, 1, 1)], [10, 15, 3]),
        ("srtf", 1, [(0, 1, 10), (2, 1, 1)], [11, 3]),
        ("srtf", 1, [(0, 1, 10), (2, 1, 5)], [10, 15]),
        ("a-srpt-strict", 2, PAIR, [17, 6]),
        ("a-srpt", 2, PAIR, [10, 4]),
        ("a-srpt", 2, TURN, [10, 29, 7, 27]),
        ("a-srpt-whole", 2, PAIR, [10, 4]),
        ("a-srpt-whole", 2, TURN, [10, 12, 7, 32]),
    ],
)
def test_a_schedule_worked_out_by_hand(
    policy: str, devices: int, jobs: Jobs, expected: list[float]
) -> None:
    assert ends(policy_named(policy), devices, jobs) == pytest.approx(expected)


def test_easy_goes_by_what_users_state() -> None:
    trace = dataclasses.replace(trace_of(WAITS), limit_s=np.array([10.0, 5.0, 20.0]))
    history = play(trace, [pool(1, 4)], policy_named("easy"))
    assert ends_of(history) == [10, 15, 23]


def test_a_restart_costs_what_it_costs() -> None:
    assert ends(policy_named("srtf"), 1, [(0, 1, 10), (2, 1, 1)], restart_s=1.0) == [12, 3]


def test_least_attained_service_turns_at_its_limit() -> None:
    assert ends(LeastAttained([5.0]), 1, [(0, 1, 10), (2, 1, 3)]) == [13, 8]


def test_a_srpt_stops_what_has_much_more_left() -> None:
    assert ends(ASrpt(least_turn_s=0.0), 2, TURN) == [12, 3, 7, 27]


def test_max_min_serves_the_user_with_fewest_devices() -> None:
    trace = trace_of([(0, 1, 10), (0, 1, 20), (0, 1, 10), (1, 1, 10)])
    trace = dataclasses.replace(trace, user=np.array([0, 0, 0, 1]), texts=("a", "b"))
    assert ends_of(play(trace, [pool(1, 2)], policy_named("max-min"))) == [10, 20, 30, 20]
