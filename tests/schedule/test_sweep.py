"""Many policies at once: in this process, in others, on a Ray cluster."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from foretell.cluster import parse_cluster
from foretell.errors import MissingExtraError, UnknownNameError
from foretell.schedule.play import Setup
from foretell.schedule.pool import pools_of
from foretell.schedule.simulator import Outage, Rules
from foretell.schedule.sweep import Plan, Source, summary, sweep

PLAN = Plan(
    source=Source(text="generated:jobs=80,load=0.9"),
    setup=Setup(
        pools=pools_of(parse_cluster("2x8xv100")),
        rules=Rules(outages=(Outage(0, 500.0, 4000.0),)),
    ),
    policies=("a-srpt", "fifo"),
    seeds=2,
)


def rows(**how: Any) -> list[dict[str, Any]]:
    return summary(list(sweep(PLAN, tell=lambda share: None, **how)))


def test_progress_ends_at_all_of_it() -> None:
    told: list[float] = []
    list(sweep(PLAN, workers=1, tell=told.append))
    assert told == sorted(told)
    assert 0.5 < told[-1] <= 1.0


def test_errors_come_back_from_other_processes() -> None:
    for error in (UnknownNameError("policy", "x", ["y"], "use y"), MissingExtraError("a", "b")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again)) == (type(error), str(error))


@pytest.fixture
def ray() -> Iterator[Any]:
    found = pytest.importorskip("ray", reason="the ray extra is not installed")
    yield found
    found.shutdown()


def test_a_ray_cluster_says_what_one_process_says(ray: Any) -> None:
    ray.init(num_cpus=2, log_to_driver=False, include_dashboard=False)
    assert rows(engine="ray") == rows(workers=1)
    assert ray.is_initialized(), "a cluster that was there before stays"
