"""Who must go to make room, against trying all of them in order."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.schedule.job import Job
from foretell.schedule.policies import policy_named
from foretell.schedule.simulator import Rules
from foretell.schedule.stoppable import Stoppable
from tests.schedule.makers import ends_of, play, pool, trace_of


def job(number: int, devices: int) -> Job:
    return Job(
        number=number,
        devices=devices,
        arrival_s=0.0,
        predicted_s=1.0,
        limit_s=1.0,
        user=0,
        deadline_s=1.0,
        preemptible=True,
    )


Ranked = list[tuple[float, Job, int]]
QUESTIONS = st.lists(
    st.tuples(
        st.integers(1, 12),
        st.dictionaries(st.integers(0, 2), st.integers(0, 3), min_size=1),
        st.integers(0, 10),
    ),
    max_size=6,
)


@st.composite
def running(draw: st.DrawFn) -> Ranked:
    each = draw(st.lists(st.tuples(st.integers(0, 10), st.integers(1, 4), st.integers(0, 2))))
    each.sort(reverse=True)
    return [(float(rank), job(i, n), pool) for i, (rank, n, pool) in enumerate(each)]


def expected(ranked: Ranked, devices: int, free: dict[int, int], least: float) -> list[int] | None:
    """One after the other, until some pool has room."""
    if any(count >= devices for count in free.values()):
        return []
    gone: dict[int, list[Job]] = {where: [] for where in free}
    for rank, each, where in ranked:
        if rank < least:
            return None
        if where in gone:
            gone[where].append(each)
            if free[where] + sum(one.devices for one in gone[where]) >= devices:
                return [one.number for one in gone[where]]
    return None


@given(ranked=running(), questions=QUESTIONS)
def test_it_answers_every_question_as_if_it_were_the_first(
    ranked: Ranked, questions: list[tuple[int, dict[int, int], int]]
) -> None:
    stoppable = Stoppable(ranked)
    for devices, free, least in questions:
        found = stoppable.for_room(devices, free, float(least))
        wanted = expected(ranked, devices, free, float(least))
        if found is None or wanted is None:
            assert found == wanted
        else:
            # Pools that have room at the same rank are as good as each other.
            numbers = [one.number for one in found]
            lowest = [
                min((r for r, j, _ in ranked if j.number in n), default=0.0)
                for n in (numbers, wanted)
            ]
            assert lowest[0] == lowest[1]
            assert bool(numbers) == bool(wanted)
            assert len({where for _, j, where in ranked if j.number in numbers}) <= 1


@pytest.mark.parametrize("name", ["a-srpt", "srtf"])
def test_nobody_is_stopped_on_devices_that_the_job_cannot_use(name: str) -> None:
    pools = [
        dataclasses.replace(pool(1, 1), device="a100-80gb"),
        dataclasses.replace(pool(1, 1), device="t4", first_server=1),
    ]
    trace = dataclasses.replace(
        trace_of([(0.0, 1, 9000.0), (0.0, 1, 90_000.0), (400.0, 1, 10.0)]),
        devices_wanted=("a100-80gb", "t4"),
        wants=np.array([0, 1, 0]),
    )
    history = play(trace, pools, policy_named(name), Rules(restart_s=0.0))
    assert ends_of(history) == pytest.approx([9010.0, 90_000.0, 410.0])
    assert list(history.run_job).count(1) == 1
