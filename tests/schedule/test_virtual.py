"""One machine under SRPT."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foretell.schedule.virtual import VirtualMachine


def completions(jobs: list[tuple[int, int]]) -> dict[int, float]:
    """(arrival, size) of jobs in the order of arrival -> when each is done."""
    machine, found = VirtualMachine(), {}

    def until(now_s: float) -> None:
        while machine.next_s() <= now_s:
            at_s = machine.next_s()
            for number in machine.advance(at_s):
                found[number] = at_s
        machine.advance(now_s)

    for number, (arrival, size) in enumerate(jobs):
        until(arrival)
        machine.add(number, size, arrival)
    until(10_000)
    return found


def least_total(jobs: list[tuple[int, int]]) -> int:
    """The least sum of completion times of any preemptive schedule, unit by unit."""
    start = tuple(size for _, size in jobs)
    best: dict[tuple[int, tuple[int, ...]], int] = {}

    def total(now: int, left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        if (now, left) not in best:
            here = [i for i, n in enumerate(left) if n and jobs[i][0] <= now]
            ways = []
            for i in here:
                after = (*left[:i], left[i] - 1, *left[i + 1 :])
                ways.append(total(now + 1, after) + (now + 1 if not after[i] else 0))
            best[now, left] = min(ways) if ways else total(now + 1, left)
        return best[now, left]

    return total(0, start)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 4)), min_size=1, max_size=4))
def test_no_schedule_has_a_lower_mean_completion_time(jobs: list[tuple[int, int]]) -> None:
    jobs = sorted(jobs, key=lambda j: j[0])
    found = completions(jobs)
    assert len(found) == len(jobs)
    assert sum(found.values()) == least_total(jobs)


def test_a_short_job_interrupts_a_long_one() -> None:
    assert completions([(0, 10), (2, 1), (3, 20)]) == {1: 3.0, 0: 11.0, 2: 31.0}
